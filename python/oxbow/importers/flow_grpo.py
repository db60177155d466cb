# SPDX-License-Identifier: Apache-2.0
"""A function of flow_grpo's config/*.py as a run that builds on a recipe. It is evaluated without running it."""
from __future__ import annotations

from pathlib import Path

from .python_values import File, Section, flatten
from .settings import Refused, Table, quoted
from .translation import Translation

MODELS = {  # The end of pretrained.model: recipe with the model's own settings.
    "stable-diffusion-3.5-medium": "sd35m", "stable-diffusion-3.5-large": "sd35m", "FLUX.1-dev": "flux-dev",
    "Wan2.1-T2V-1.3B-Diffusers": "wan21", "Wan2.1-T2V-14B-Diffusers": "wan21", "Qwen-Image": "sd35m",
}
QWEN_IMAGE = {  # As in scripts/train_qwenimage.py where that differs from SD3, without two modules that are not there.
    "model.lora.rank": 64, "model.lora.alpha": 128, "sampling.schedule": "linspace", "sampling.negative_prompt": " ",
    "model.lora.targets": "[attn.to_q, attn.to_k, attn.to_v, attn.to_out.0, attn.add_q_proj, attn.add_k_proj, "
                          "attn.add_v_proj, attn.to_add_out, img_mlp.net.0.proj, txt_mlp.net.0.proj]",
    "method.zero_variance": "mean_over_all",
}
REWARDS = {"pickscore": "pickscore", "clipscore": "clipscore", "aesthetic": "aesthetic", "imagereward": "imagereward",
           "ocr": "ocr", "video_ocr": "ocr", "geneval": "geneval"}
SCORERS = {  # Weights of the rewards that the run serves itself: ids of the Hub, or directories (docs/rewards.md).
    "pickscore": "model: yuvalkirstain/PickScore_v1", "clipscore": "model: openai/clip-vit-large-patch14",
    "geneval": "variant: flow_grpo, model: mask2former, head: openai/clip-vit-large-patch14",
    "aesthetic": "model: openai/clip-vit-large-patch14, head: aesthetic.safetensors", "imagereward": "model: imagereward",
}
STEPS_MAX = 10000

KEYS = Table("""
run_name                  text   . !
seed                      count  . = run.seed
num_epochs                count  . !
eval_freq                 count  . = eval.every
save_freq                 count  . = checkpoint.every
num_checkpoint_limit      count  . = checkpoint.keep
mixed_precision           text   . = model.compute_dtype: no f32, bf16, fp16 bf16
use_lora                  flag   . = model.trained: true lora, false full
activation_checkpointing  flag   . = model.memory: true recompute, false fast
dataset                   text   . !
{resolution,height,width} count  . !
frames                    count  . = sampling.frames
debug                     any    . - no such mode
{logdir,save_dir}         text   . - run.directory says where
{logging_platform,run_id} text   . - `oxbow-follow --to wandb` copies a run to a tracker
allow_tf32                flag   . - PyTorch's default
prompt_fn                 text   . - the prompt files say it
prompt_fn_kwargs.*        any    . - the prompt files say it
prompt_fn_kwargs          any    . - the prompt files say it
per_prompt_stat_tracking  flag   . - it is always on
resume_from               text   . - `oxbow train --resume` goes on with a run
fsdp_optimizer_offload    flag   . - ranks share the moments
diffusion_loss            any    . - it is of the scripts' log
aggregate_fn              any    . ~ nothing: rewards are summed with their weights
pretrained.model          text   . !
pretrained.revision       text   . - the directory is one
reward_fn                 any    . !
reward_fn.*               number . !

sample.num_steps                 count  . = sampling.steps
sample.eval_num_steps            count  . = eval.steps
sample.noise_level               number . = sampling.eta
sample.sde_type                  text   sde = sampling.dynamics: sde flow_sde, cps
sample.same_latent               flag   false = sampling.noise: true group, false sample
sample.global_std                flag   false = method.advantage_std: true global, false group
sample.guidance_scale            number . !
sample.eval_guidance_scale       number . !
sample.{sde_window_size,train_num_steps,num_image_per_prompt,num_batches_per_epoch} count . !
sample.sde_window_range          counts . !
sample.{train_batch_size,mini_num_image_per_prompt} count . !
sample.kl_reward                 number . ~ 0, 0.0: rewards without a part of the distance alone
sample.{test_batch_size,batch_size,sample_time_per_prompt} any . - batch.groups and batch.group_size say it for all machines
test.*                           any    . - evaluation is at the size that is trained

train.batch_size                   count  . = batch.rows_per_pass
train.num_inner_epochs             count  . = batch.passes
train.gradient_accumulation_steps  count  . !
train.timestep_fraction            number 1 !
train.cfg                          flag   . !
train.clip_range                   number . = method.clip_range
train.adv_clip_max                 number . = method.advantage_clip
train.beta                         number 0 = method.kl_weight
train.learning_rate                number . = optimizer.learning_rate
train.adam_beta1                   number . = optimizer.beta1
train.adam_beta2                   number . = optimizer.beta2
train.adam_epsilon                 number . = optimizer.epsilon
train.adam_weight_decay            number . = optimizer.weight_decay
train.max_grad_norm                number . = optimizer.grad_norm_max
train.ema                          flag   false = ema.enabled
train.lora_path                    text   . !
train.sft                          number . ~ 0, 0.0: nothing is trained on given pictures
train.{sft_batch_size,clip_range_lt,clip_range_gt,timestep_shift} any . - it is of other scripts
train.use_8bit_adam                flag   . - AdamW works in float32
""")


class _Config:
    def __init__(self, t: Translation, function: str, gpus: int | None):
        self.t, self.function, self.gpus = t, function, gpus

    def run(self) -> None:
        t, name, epochs, lora = self.t, self.t.get("run_name"), self.t.get("num_epochs"), self.t.get("train.lora_path")
        t.put("run.name", name.text if name.present and name.text else self.function.replace("_", "-"), name, "run_name")
        if epochs.present and epochs.count:
            t.put("run.steps", min(epochs.count, STEPS_MAX), epochs)
        else:
            t.differs(epochs, f"a run has an end here: run.steps is that of the recipe {t.recipe}; stop it when you like")
        model, data = t.get("pretrained.model"), t.get("dataset")
        t.put("model.path", model.text, model)
        t.differs(model, "model.path is a directory, or an id of the Hub that `oxbow fetch` gets")
        if model.text.rstrip("/").endswith("Qwen-Image"):
            for key, value in QWEN_IMAGE.items():
                t.put(key, value, model, "scripts/train_qwenimage.py")
        if lora.present and lora.text:
            if t.get("use_lora").flag:
                t.put("model.lora.path", lora.text, lora)
            else:
                t.refuse(lora, "without use_lora")
        for key in ("prompts.train", "prompts.eval"):
            t.put(key, data.text.rstrip("/"), data)

    def sampling(self) -> None:
        t, scale, measured = self.t, self.t.get("sample.guidance_scale"), self.t.get("sample.eval_guidance_scale")
        if "flux" in t.recipe:
            t.put("sampling.embedded_guidance", scale.text, scale)
        guided = t.get("train.cfg").flag and "flux" not in t.recipe
        t.put("sampling.guidance", scale.text if guided else 1, scale if guided else t.get("train.cfg"))
        if measured.present and measured.number() != scale.number():
            t.differs(measured, f"evaluation has sampling.guidance {scale.text}")
        for side in ("height", "width"):
            own = t.get(side) if t.get(side).present else t.get("resolution")
            if own.present:
                t.put(f"sampling.{side}", own.text, own)
            else:
                t.refuse(own, "images have a size")
        self.window(t.get("sample.num_steps").count)

    def window(self, steps: int) -> None:
        """The window of the fast scripts; the others have none and train a fraction of the steps."""
        t, size, span = self.t, self.t.get("sample.sde_window_size"), self.t.get("sample.sde_window_range")
        # base.py sets a window for all; scripts that have one name its range or train all steps of it.
        if size.present and size.count and len(span.items) == 2 and Path(span.place.rpartition(":")[0]).name != "base.py":
            first, end = (int(item) for item in span.items)
            t.put("sampling.sde_first", first, span)
            t.put("sampling.sde_count", end - first, span)
            t.put("sampling.window.kind", "random", size)
            t.put("sampling.window.size", size.text, size)
        else:
            fraction = t.get("train.timestep_fraction")
            t.put("sampling.sde_count", min(int(steps * fraction.number()), steps - 1), fraction)
            t.differs(fraction, "the last step is an ODE step: its density is degenerate")
            for s in (size, span):
                if s.present:
                    t.not_needed(s, "a script without a window of its own has none")

    def batch(self) -> None:
        """flow_grpo says images per process and batches; oxbow says prompts and updates."""
        t, each, batches = self.t, self.t.get("sample.num_image_per_prompt"), self.t.get("sample.num_batches_per_epoch")
        accumulation, small = t.get("train.gradient_accumulation_steps"), t.get("sample.mini_num_image_per_prompt")
        size = small if small.present and small.count else t.get("sample.train_batch_size")
        if not self.gpus:
            raise Refused(f"{t.name}: {self.function} does not set gpu_number: say --gpus N, the number of processes that it "
                          "runs with")
        total = self.gpus * size.count * batches.count
        if each.count == 0 or total % each.count:
            t.refuse(each, f"{self.gpus} processes x {size.count} images x {batches.count} batches are no whole groups of it")
        elif accumulation.count < 1 or batches.count % accumulation.count:
            t.refuse(accumulation, f"does not divide {batches.count} batches")
        else:
            groups = total // each.count
            t.put("batch.groups", groups, size, f"{self.gpus} processes x {size.count} x {batches.count} / {each.count}")
            t.put("batch.group_size", each.text, each)
            t.put("batch.updates", batches.count // accumulation.count, accumulation)
            t.processes(self.gpus, groups, batches, "gpu_number")

    def distance(self) -> None:
        """The recipes say the rest of the method, which is in flow_grpo's scripts."""
        weight = self.t.get("train.beta")
        if weight.number():
            self.t.put("method.kl_space", "mean", weight, "scripts/train_*.py")
            self.t.put("method.kl_all_steps", True, weight, "scripts/train_*.py")

    def rewards(self) -> None:
        t, terms, entries, first = self.t, [], [], self.t.get("reward_fn")
        for path in list(t.given):
            if path.startswith("reward_fn."):
                s = t.get(path)
                name, first = path.removeprefix("reward_fn."), s if not terms else first
                ours = REWARDS.get(name, name)
                terms.append(f"{{name: {quoted(ours)}, weight: {s.text}}}")
                entries += [f"{{name: {ours}, {SCORERS[ours]}, device: cuda}}"] if ours in SCORERS else []
                if name not in REWARDS:
                    t.differs(s, "a server at reward.endpoints must have it (docs/own_reward.md)")
        if not terms:
            t.refuse(first, "there is no reward to train on")
        t.put("reward.terms", f"[{', '.join(terms)}]", first, "reward_fn")
        t.put("reward.scorers", f"[{', '.join(entries)}]", first, "reward_fn")
        if entries:
            t.differs(first, "the weights that reward.scorers names are directories, or ids of the Hub that `oxbow fetch` gets")


def translate(read, path: str, function: str, gpus: int | None) -> Translation:
    try:
        config, names = File(read, path).call(function)
    except (TypeError, ValueError, AttributeError, RecursionError) as error:  # A file that is in no form of flow_grpo's.
        raise Refused(f"{path}: {function}: not understood: {error}") from None
    if not isinstance(config, Section):
        raise Refused(f"{path}: {function}: returns no config")
    pretrained, processes = config.get("pretrained"), names.get("gpu_number")
    model = pretrained.get("model") if isinstance(pretrained, Section) else None
    model = model.rstrip("/") if isinstance(model, str) else ""
    recipe = next((recipe for end, recipe in MODELS.items() if model.endswith(end)), None)
    if recipe is None:
        raise Refused(f"{path}: {function}: pretrained.model = {model}: no counterpart; known are {', '.join(MODELS)}")
    t = Translation("flow_grpo", path, KEYS, flatten(config), recipe)
    needed = ("sample.num_steps", "sample.guidance_scale", "sample.num_image_per_prompt", "sample.num_batches_per_epoch",
              "sample.train_batch_size", "train.gradient_accumulation_steps", "train.cfg", "use_lora", "dataset")
    t.problems += [f"{path}: {function}: {one} is not set" for one in needed if not t.get(one).present and not t.problems]
    if not t.problems:
        t.take_rows()
        c = _Config(t, function, gpus or (processes if isinstance(processes, int) else None))
        for part in (c.run, c.sampling, c.batch, c.distance, c.rewards):
            part()
        t.sort_out_rest()
    return t
