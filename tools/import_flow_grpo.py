#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Converts a configuration of flow_grpo to a run file of oxbow.

    tools/import_flow_grpo.py flow_grpo/config/grpo.py:pickscore_sd3 [--gpus N] [--out RUN.yaml]

The function is evaluated without running it (tools/flow_grpo_config.py). Each value has a comment with its origin. What
differs on purpose, and what oxbow does not need, is listed in comments and on stderr. Exit code 2, and nothing is written,
for a setting without a counterpart; `oxbow validate` then checks the result against oxbow's own rules.
"""
import argparse
import sys
from pathlib import Path

from flow_grpo_config import File, NotUnderstood, Section

MODELS = {  # Part of pretrained.model: recipe with the model's own settings.
    "stable-diffusion-3.5-medium": "sd35m", "stable-diffusion-3.5-large": "sd35m", "FLUX.1-dev": "flux-dev",
    "Wan2.1-T2V": "wan21",
}
REWARDS = {"pickscore": "pickscore", "clipscore": "clipscore", "aesthetic": "aesthetic", "imagereward": "imagereward",
           "ocr": "ocr", "video_ocr": "ocr", "geneval": "geneval"}
NEEDLESS = {
    "debug": "no such mode", "logdir": "run.directory", "save_dir": "run.directory", "allow_tf32": "PyTorch's default",
    "dataset": "", "prompt_fn": "the prompt files say it", "prompt_fn_kwargs": "", "per_prompt_stat_tracking": "always on",
    "resume_from": "oxbow train --resume", "fsdp_optimizer_offload": "learner.shard_optimizer",
    "sample.test_batch_size": "oxbow's own", "sample.train_batch_size": "batch.groups says it for all machines",
    "sample.batch_size": "as train_batch_size", "sample.num_batches_per_epoch": "batch.groups says it for all machines",
    "sample.mini_num_image_per_prompt": "batch.rows_per_pass", "sample.sample_time_per_prompt": "batch.group_size",
    "train.use_8bit_adam": "AdamW in float32", "train.clip_range_lt": "of other scripts", "train.clip_range_gt": "of other scripts",
    "train.timestep_shift": "of BAGEL", "train.sft_batch_size": "of train.sft", "pretrained.revision": "the directory is one",
    "sample.train_num_steps": "sample.sde_window_size", "diffusion_loss": "of the scripts' log",
}
FIXED = {  # Settings that must have this value: others have no counterpart.
    "train.sft": 0, "sample.kl_reward": 0,
}


class Refused(Exception):
    """Why there is no run file."""


class Import:
    def __init__(self, config, names, gpus):
        self.config, self.gpus = config, gpus or names.get("gpu_number")
        self.read, self.lines, self.different = set(), {}, []

    def get(self, path, default=None):
        section = self.config
        *above, name = path.split(".")
        for part in above:
            section = section.get(part, {})
        self.read.add(path)
        return section.get(name, default)

    def put(self, key, value, origin):
        """Values are nested by the dots of their key; the text is YAML."""
        section, _, name = key.partition(".")
        self.lines.setdefault(section, []).append((name, value, origin))

    def copy(self, key, path, default=None):
        value = self.get(path, default)
        if value is not None:
            self.put(key, text(value), path)

    def run(self, name):
        for path, value in FIXED.items():
            if self.get(path, value) != value:
                raise Refused(f"{path} = {self.get(path)}: no counterpart")
        self.put("run.name", self.get("run_name") or name, "run_name")
        self.copy("run.seed", "seed")
        epochs = self.get("num_epochs")
        if epochs:
            self.put("run.steps", text(min(epochs, 10000)), f"num_epochs {epochs}")
        self.model()
        self.sampling()
        self.batch()
        self.method()
        self.rewards()
        for key, path in (("eval.every", "eval_freq"), ("eval.steps", "sample.eval_num_steps"),
                          ("checkpoint.every", "save_freq"), ("checkpoint.keep", "num_checkpoint_limit")):
            self.copy(key, path)
        guidance, measured = self.get("sample.guidance_scale"), self.get("sample.eval_guidance_scale")
        if measured not in (None, guidance):
            self.different.append(f"sample.eval_guidance_scale {measured}: evaluation has sampling.guidance {guidance}")

    def model(self):
        path = self.get("pretrained.model")
        self.recipe = next((recipe for part, recipe in MODELS.items() if part in path and "Kontext" not in path), None)
        if self.recipe is None:
            raise Refused(f"pretrained.model = {path}: no counterpart; known are {', '.join(MODELS)}")
        self.put("model.path", path, "pretrained.model; `oxbow fetch` gets what is an id of the Hub")
        self.put("model.trained", "lora" if self.get("use_lora") else "full", "use_lora")
        if start := self.get("train.lora_path"):
            if not self.get("use_lora"):
                raise Refused("train.lora_path without use_lora")
            self.put("model.lora", f'{{path: "{start}"}}', "train.lora_path")
        precision = {"fp16": "bf16", "bf16": "bf16", "no": "f32"}.get(self.get("mixed_precision"))
        if precision is None:
            raise Refused(f"mixed_precision = {self.get('mixed_precision')}: none of fp16, bf16, no")
        self.put("model.compute_dtype", precision, f"mixed_precision {self.get('mixed_precision')}")
        if self.get("activation_checkpointing"):
            self.put("model.checkpoint_activations", "true", "activation_checkpointing")
        dataset = self.get("dataset").rstrip("/")
        self.put("prompts.train", dataset, "dataset")
        self.put("prompts.eval", dataset, "dataset")

    def sampling(self):
        steps = self.get("sample.num_steps")
        self.copy("sampling.steps", "sample.num_steps")
        kind = self.get("sample.sde_type", "sde")
        if kind not in ("sde", "cps"):
            raise Refused(f"sample.sde_type = {kind}: neither sde nor cps")
        self.put("sampling.dynamics", "cps" if kind == "cps" else "flow_sde", "sample.sde_type")
        self.copy("sampling.eta", "sample.noise_level")
        self.put("sampling.noise", "group" if self.get("sample.same_latent") else "sample", "sample.same_latent")
        guided = self.get("train.cfg") and "flux" not in self.recipe
        scale = self.get("sample.guidance_scale")
        self.put("sampling.guidance", text(scale if guided else 1), "sample.guidance_scale, train.cfg")
        if "flux" in self.recipe:
            self.put("sampling.embedded_guidance", text(scale), "sample.guidance_scale")
        for key, path in (("height", "height"), ("width", "width")):
            self.put(f"sampling.{key}", text(self.get(path) or self.get("resolution")), path if self.get(path) else "resolution")
        self.copy("sampling.frames", "frames")
        self.window(steps)

    def window(self, steps):
        """The window of the fast scripts; the others have none and train a fraction of the steps."""
        first, end = self.get("sample.sde_window_range", (0, steps))
        size, fraction = self.get("sample.sde_window_size", 0), self.get("train.timestep_fraction")
        # base.py sets a window for all; scripts that have one name its range or train all steps of it.
        if size and self.set_here("sample", "sde_window_range"):
            self.put("sampling.sde_first", text(first), "sample.sde_window_range")
            self.put("sampling.sde_count", text(end - first), "sample.sde_window_range")
            self.put("sampling.window", f"{{kind: random, size: {size}}}", "sample.sde_window_size")
        else:
            self.put("sampling.sde_count", text(min(int(steps * fraction), steps - 1)), "train.timestep_fraction")
            self.different.append("the last step is an ODE step: its density is degenerate")

    def set_here(self, section, name):
        return not self.config[section].lines.get(name, "base.py:").startswith("base.py:")

    def batch(self):
        """flow_grpo says images per process and batches; oxbow says prompts and updates."""
        images, batches = self.get("sample.num_image_per_prompt"), self.get("sample.num_batches_per_epoch")
        size = self.get("sample.mini_num_image_per_prompt") or self.get("sample.train_batch_size")
        if not self.gpus:
            raise Refused("the function does not set gpu_number: say --gpus N, the number of processes that it runs with")
        total = self.gpus * size * batches
        if total % images:
            raise Refused(f"{self.gpus} processes x {size} images x {batches} batches are no whole groups of {images}")
        accumulation = self.get("train.gradient_accumulation_steps")
        if accumulation < 1 or batches % accumulation:
            raise Refused(f"train.gradient_accumulation_steps = {accumulation} does not divide {batches} batches")
        self.put("batch.groups", text(total // images), f"{self.gpus} processes x {size} x {batches} / {images}")
        self.put("batch.group_size", text(images), "sample.num_image_per_prompt")
        self.put("batch.updates", text(batches // accumulation), "train.gradient_accumulation_steps")
        self.copy("batch.passes", "train.num_inner_epochs")
        self.copy("batch.rows_per_pass", "train.batch_size")

    def method(self):
        self.put("method.name", "grpo", "scripts/train_*.py")
        self.copy("method.clip_range", "train.clip_range")
        self.copy("method.advantage_clip", "train.adv_clip_max")
        self.put("method.advantage_std", "global" if self.get("sample.global_std") else "group", "sample.global_std")
        self.put("method.zero_variance", "mean_over_kept", "scripts/train_*.py")
        self.copy("method.kl_weight", "train.beta")
        self.put("method.kl_space", "mean", "scripts/train_*.py")
        self.put("method.kl_all_steps", "true", "scripts/train_*.py")
        self.put("replay.fraction", "0", "flow_grpo has no replay")
        for key, path in (("learning_rate", "learning_rate"), ("beta1", "adam_beta1"), ("beta2", "adam_beta2"),
                          ("epsilon", "adam_epsilon"), ("weight_decay", "adam_weight_decay"),
                          ("grad_norm_max", "max_grad_norm")):
            self.copy(f"optimizer.{key}", f"train.{path}")
        self.put("ema.enabled", "true" if self.get("train.ema") else "false", "train.ema")

    def rewards(self):
        terms = []
        for name, weight in self.get("reward_fn").items():
            known = REWARDS.get(name)
            terms.append(f"{{name: {known or name}, weight: {text(weight)}}}")
            if known is None:
                self.different.append(f"reward_fn.{name}: a server at reward.endpoints must have it (docs/own_reward.md)")
        self.put("reward.terms", f"[{', '.join(terms)}]", "reward_fn")
        self.different.append("weights of rewards, if they are published, are directories or ids in reward.scorers (docs/rewards.md)")

    def unread(self):
        """Settings that nobody asked for, by their path."""
        for path in paths(self.config):
            if path not in self.read and not path.startswith("reward_fn."):
                yield path


def paths(section, above=""):
    for name, value in section.items():
        if isinstance(value, Section):
            yield from paths(value, f"{above}{name}.")
        else:
            yield above + name


def text(value):
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, float) and value.is_integer() and abs(value) < 1e15:
        return str(int(value))
    return str(value)


def yaml_of(imported, source):
    lines = [f"# {source}, converted by tools/import_flow_grpo.py.", f"recipe: {imported.recipe}"]
    for section, keys in imported.lines.items():
        lines.append(f"{section}:")
        lines += [f"  {f'{name}: {value}':<26} # {origin}" for name, value, origin in keys]
    lines += [f"# different: {line}" for line in imported.different]
    return "\n".join(lines) + "\n"


def main(arguments):
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("source", metavar="FILE.py:FUNCTION")
    parser.add_argument("--gpus", type=int, help="processes of the run, where the function does not say it")
    parser.add_argument("--out", type=Path)
    flags = parser.parse_args(arguments)
    path, _, function = flags.source.rpartition(":")
    try:
        config, names = File(path).call(function)
        imported = Import(config, names, flags.gpus)
        imported.run(function.replace("_", "-"))
        unknown = [one for one in imported.unread() if one not in NEEDLESS]
        if unknown:
            raise Refused(f"unknown settings: {', '.join(unknown)}")
    except OSError as error:
        print(f"import_flow_grpo: {error.strerror}: {path}", file=sys.stderr)
        return 4
    except (NotUnderstood, Refused) as error:
        print(f"import_flow_grpo: {error}", file=sys.stderr)
        return 2
    result = yaml_of(imported, flags.source)
    if flags.out and flags.out.exists():
        print(f"import_flow_grpo: exists: {flags.out}", file=sys.stderr)
        return 2
    if flags.out:
        flags.out.write_text(result)
    else:
        sys.stdout.write(result)
    for line in imported.different:
        print(f"different: {line}", file=sys.stderr)
    for one in imported.unread():
        if NEEDLESS[one]:
            print(f"not needed: {one}: {NEEDLESS[one]}", file=sys.stderr)
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
