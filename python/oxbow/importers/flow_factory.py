# SPDX-License-Identifier: Apache-2.0
"""A YAML file of Flow-Factory's (v0.6, and its older forms) as a run."""
from __future__ import annotations

from dataclasses import dataclass, replace
from pathlib import Path

from .flow_factory_keys import KEYS, LISTS, WHOLE
from .flow_factory_method import translate_method
from .flow_factory_rewards import translate_rewards
from .flow_factory_sampling import size_of
from .settings import Setting
from .translation import Translation
from .yaml_values import flatten

STEPS_UNLIMITED = 10000
EVAL_IMAGES = 128  # As in configs/defaults.yaml.
ATTENTION = "attn.to_k, attn.to_q, attn.to_v, attn.to_out.0, attn.add_k_proj, attn.add_q_proj, attn.add_v_proj, attn.to_add_out"


@dataclass(frozen=True)
class Model:
    """A model, with all that its adapter there implies."""
    targets: str = ""  # Default LoRA modules; empty: those of configs/defaults.yaml.
    prompt_tokens: int = 0  # prompts.t5_length; 0: the default.
    guidance: str = "sampling.guidance"  # The key that train.guidance_scale becomes.
    guidance_min: float = 1  # Below it there is no guidance.
    video: bool = False
    shift: str = "0"  # The noise levels' shift: a number, "by size" as FLUX.1's, 0: not known here.


SD3 = Model(shift="3")
FLUX2 = ATTENTION + ", ff.linear_in, ff.linear_out, ff_context.linear_in, ff_context.linear_out, attn.to_qkv_mlp_proj"
MODELS = {
    "sd3": SD3, "sd3-5": SD3, "sd3_5": SD3, "sd3.5": SD3,
    "flux1": Model(ATTENTION + ", ff.net.0.proj, ff.net.2, ff_context.net.0.proj, ff_context.net.2", 512,
                   "sampling.embedded_guidance", 0, shift="by size"),
    "flux2": Model(FLUX2, guidance="sampling.embedded_guidance", guidance_min=0),
    "flux2-klein": Model(FLUX2),
    "wan2_t2v": Model("attn1.to_q, attn1.to_k, attn1.to_v, attn1.to_out.0, attn2.to_q, attn2.to_k, attn2.to_v, "
                      "attn2.to_out.0, ffn.net.0.proj, ffn.net.2", 512, video=True),
    # Without img_mlp.net.2.proj and txt_mlp.net.2.proj, which the network does not have.
    "qwen-image": Model("attn.to_q, attn.to_k, attn.to_v, attn.to_out.0, attn.add_q_proj, attn.add_k_proj, "
                        "attn.add_v_proj, attn.to_add_out, img_mlp.net.0.proj, txt_mlp.net.0.proj"),
    # Its pipeline adds 1 to the scale, and so does oxbow (docs/models.md): any above 0 guides.
    "z-image": Model("attention.to_q, attention.to_k, attention.to_v, attention.to_out.0, feed_forward.w1, "
                     "feed_forward.w2, feed_forward.w3", guidance_min=0),
}
KNOWN = ("models here are Stable Diffusion 3 (sd3, sd3-5), FLUX.1 (flux1), FLUX.2 (flux2, flux2-klein), Wan2.1 from text "
         "(wan2_t2v), Qwen-Image (qwen-image) and Z-Image (z-image)")


def _run(t: Translation) -> None:
    name = t.get("log.run_name")
    t.put("run.name", name.text if name.present else Path(t.name).stem, name, "" if name.present else "the file's name")
    directory = t.get("log.save_dir")
    if directory.present and directory.text.startswith("~"):
        t.differs(directory, "no home directory is looked up: run.directory stays as it is")
    elif directory.present:
        t.put("run.directory", directory.text, directory)
    epochs = t.get("train.max_epochs")
    if epochs.present and epochs.number() >= 0:
        t.put("run.steps", epochs.text, epochs)
    else:
        t.put("run.steps", STEPS_UNLIMITED, epochs)
        t.differs(epochs, f"a run has an end here: run.steps = {STEPS_UNLIMITED}; stop it when you like")
    t.differs(t.get("model.model_name_or_path"), "model.path is a directory, or an id of the Hub that `oxbow fetch` gets")
    processes = t.get("num_processes")
    if processes.given:
        t.processes(processes.count, t.get("train.unique_sample_num_per_epoch").count, processes)


def _prompts(t: Translation) -> None:
    if t.size("data.datasets") > 1:
        t.refuse(t.get("data.datasets[1].dataset_dir"), "there is one source of prompts: join the files into one directory")
    directory = t.get("data.datasets[0].dataset_dir")
    t.put("prompts.train", directory.text, directory)
    t.put("prompts.eval", directory.text, directory)
    most = t.get("data.datasets[0].train.max_dataset_size")
    if most.present:
        t.differs(most, "all prompts of the file are used; cut the file for fewer")


def _model(t: Translation, model: Model) -> None:
    kind, path = t.get("model.model_type"), t.get("model.model_name_or_path")
    if model.video and "Wan2.2" in path.text:
        t.refuse(path, "Wan2.2 has two transformers, or latents of its own, and no counterpart; Wan2.1 has one")
    pictures = t.get("train.condition_image_size")
    if pictures.present and kind.text.startswith("flux2"):
        t.differs(pictures, "pictures of the data set are not looked at: images are drawn from prompts alone")
    elif pictures.present:
        t.not_needed(pictures, "images are drawn from prompts alone")
    if model.prompt_tokens:
        t.put("prompts.t5_length", model.prompt_tokens, kind)
    t.put("model.device", "cuda", kind)  # It trains only on CUDA.
    targets = t.get("model.target_modules")
    if t.get("model.finetune_type").text.lower() == "full":
        if targets.yaml != "all":
            t.differs(targets, "the whole transformer is trained")
    else:
        rank = t.get("model.lora_rank")
        t.copy("model.lora_rank", "model.lora_alpha")
        if not t.get("model.lora_alpha").present:
            t.put("model.lora.alpha", 2 * rank.number(), rank)
        if targets.yaml == "all":
            t.refuse(targets, "name the modules, or take `default`")
        elif targets.yaml != "default":
            t.put("model.lora.targets", f"[{', '.join(targets.items)}]", targets)
        elif model.targets:
            t.put("model.lora.targets", f"[{model.targets}]", targets)
    kept = t.get("model.trainable_parameters_dtype")
    if kept.text not in ("fp32", "float32"):
        t.differs(kept, "trained weights are float32")
    precision = t.get("mixed_precision")
    if precision.text == "fp16":
        t.differs(precision, "bf16 stands in for it")


def _of_evaluation(t: Translation, key: str) -> Setting:
    own = t.get(f"data.datasets[0].eval.{key}")
    return own if own.present else t.get(f"eval.{key}")


def _evaluation(t: Translation, model: Model) -> None:
    steps = _of_evaluation(t, "num_inference_steps")
    t.put("eval.steps", steps.text, steps)
    guidance, least = _of_evaluation(t, "guidance_scale"), model.guidance_min
    if guidance.present and max(least, guidance.number()) != max(least, t.get("train.guidance_scale").number()):
        t.differs(guidance, f"held-out images have the guidance of {model.guidance}")
    frames = t.get("eval.num_frames")
    if frames.present and frames.items != t.get("train.num_frames").items:
        t.differs(frames, "held-out videos are as long as those that are trained on")
    sides = _of_evaluation(t, "resolution")
    for key, side, trained in zip(("height", "width"), (sides.items[0], sides.items[-1]), size_of(t, "train")):
        own = _of_evaluation(t, key)
        own = own if own.present else replace(sides, items=[side])
        if own.text != trained:
            t.put(f"eval.{key}", own.text, own)
    every = t.get("eval.eval_freq")
    if every.count > 0:
        t.differs(every, f"eval.images = {EVAL_IMAGES} held-out images; set it to their test file's prompts for all")


def translate(text: str, name: str) -> Translation:
    t = Translation("Flow-Factory", name, KEYS, flatten(text, name, LISTS, WHOLE))
    kind = t.get("model.model_type") if not t.problems else None
    if kind and kind.text not in MODELS:
        t.refuse(kind, KNOWN)
    if not t.problems:
        model = MODELS[kind.text]
        t.take_rows()
        _run(t)
        _prompts(t)
        _model(t, model)
        translate_method(t, model)
        _evaluation(t, model)
        translate_rewards(t)
        t.sort_out_rest()
    return t
