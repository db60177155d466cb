# SPDX-License-Identifier: Apache-2.0
"""A shell script of DanceGRPO or MixGRPO that trains FLUX.1 as a run that builds on the recipe flux-dev-dance."""
from __future__ import annotations

import re

from .settings import Refused, Table
from .shell_values import command_of
from .translation import Translation

SCRIPTS = ("train_grpo_flux.py", "train_grpo_flux_lora.py")
STEPS_MAX = 10_000
TARGETS = "[to_k, to_q, to_v, to_out.0]"  # As in fastvideo/train_grpo_flux_lora.py.
REWARDS = {  # --reward_model: names here, and the flag of each weight.
    "hpsv2": {"hpsv2": "hps_weight"}, "clip_score": {"clipscore": "clip_score_weight"},
    "image_reward": {"imagereward": "image_reward_weight"}, "pick_score": {"pickscore": "pick_score_weight"},
    "hpsv2_clip_score": {"hpsv2": "hps_weight", "clipscore": "clip_score_weight"},
    "multi_reward": {"hpsv2": "hps_weight", "imagereward": "image_reward_weight", "pickscore": "pick_score_weight"},
}
WEIGHTS = {"hpsv2": "HPS_v2.1", "pickscore": "yuvalkirstain/PickScore_v1", "imagereward": "ImageReward",
           "clipscore": "apple/DFN5B-CLIP-ViT-H-14-384, variant: flow_factory"}

KEYS = Table("""
{nnodes,nproc_per_node,train_batch_size,num_generations}                  count  . !
seed                         count  .    = run.seed
max_train_steps              count  .    = run.steps
checkpointing_steps          count  500  = checkpoint.every
output_dir                   text   .    = run.directory
experiment_name              text   .    !
pretrained_model_name_or_path text  .    = model.path
mixed_precision              text   .    ? model.compute_dtype: bf16
gradient_checkpointing       flag   false !
lora_rank                    count  128  ? model.lora.rank
lora_alpha                   number 256  ? model.lora.alpha
h                            count  .    = sampling.height
w                            count  .    = sampling.width
sampling_steps               count  .    = sampling.steps
eta                          number .    = sampling.eta
shift                        number 1    = sampling.shift
init_same_noise              flag   false = sampling.noise: true group, false sample
flow_grpo_sampling           flag   false = sampling.dynamics: true flow_sde, false dance_sde
gradient_accumulation_steps  count  1    !
clip_range                   number 1e-4 = method.clip_range
adv_clip_max                 number 5    = method.advantage_clip
timestep_fraction            number 1    !
learning_rate                number 1e-4 = optimizer.learning_rate
weight_decay                 number 0.01 = optimizer.weight_decay
max_grad_norm                number 2    = optimizer.grad_norm_max
lr_warmup_steps              count  10   = optimizer.warmup_updates
{use_ema,use_hpsv2,use_pickscore,prog_overlap,roll_back}                  flag   false !
ema_decay                    number 0.995 !
reward_model                 text   .    !
multi_reward_mix             text   advantage_aggr ? method.reward_mix: advantage_aggr each, reward_aggr sum
{hps_weight,clip_score_weight,image_reward_weight,pick_score_weight}      number 1    !
training_strategy            text   .    !
sample_strategy              text   progressive ? sampling.window.kind: progressive, random, decay, exp_decay
group_size                   count  4    !
iters_per_group              count  25   !
prog_overlap_step            count  1    !
{max_iters_per_group,min_iters_per_group}                                 count  .    !
dpm_algorithm_type           text   null ~ null, dpmsolver++: its solver has no counterpart
dpm_apply_strategy           text   post !
dpm_post_compress_ratio      number 0.4  ? sampling.compression.share
use_group                    flag   false ~ true: advantages are those of a prompt's group
kl_coeff                     number .    ~ 0, 0.0: no distance to the policy of sampling
trimmed_ratio                number .    ~ 0, 0.0: all rewards of a group make its mean
advantage_rerange_strategy   text   .    ~ null: samples keep their order
frozen_init_timesteps        any    .    ~ -1: the first steps alone are a window: sampling.window
sp_size                      count  .    ~ 1: an image is on one GPU
t                            count  .    ~ 1: one image, no video
num_latent_t                 count  .    ~ 1: one image, no video
lr_scheduler                 text   .    ~ constant_with_warmup: the learning rate stays
resume_from_checkpoint       text   .    - `oxbow train --resume` goes on with a run
resume_from_lora_checkpoint  text   .    - `oxbow train --resume` goes on with a run
ignore_last                  flag   .    - the last step is never stochastic, for its density is degenerate
drop_last_sample             flag   .    - the last step is never stochastic, for its density is degenerate
data_json_path               text   .    !
{cfg,selective_checkpointing,ema_start_step,allow_tf32,loss_coef}         any    . - a run here does not need it
{node_rank,master_addr,master_port,rdzv_endpoint,rdzv_id,rdzv_backend}    any    . - `oxbow train` starts the processes
{vae_model_path,dit_model_name_or_path,cache_dir}    any    . - model.path has all parts
{logging_dir,wandb_key}      any    .    - a run logs into its directory; `oxbow-follow --to wandb` copies it
{dataloader_num_workers,train_sp_batch_size,use_cpu_offload}  any . - the learner has memory and processes of its own
{fsdp_sharding_startegy,master_weight_type}  any . - the learner has memory and processes of its own
sampler_seed any . - all noise follows from run.seed
{hps_path,hps_clip_path,clip_score_path,image_reward_path,image_reward_med_config}  any . - reward.scorers says where weights of rewards are
{image_reward_http_proxy,image_reward_https_proxy}  any . - `oxbow fetch` gets weights
{pick_score_http_proxy,pick_score_https_proxy}  any . - `oxbow fetch` gets weights
unified_reward_url           text   .    ~ none: UnifiedReward is not among the rewards here
{unified_reward_default_question_type,unified_reward_num_workers}  any . - UnifiedReward is not among the rewards here
unified_reward_weight any . - UnifiedReward is not among the rewards here
{dpm_solver_order,dpm_solver_type}                                        any    . - compressed steps have a solver of second order
""")


class _Script:
    def __init__(self, t: Translation, script: str, gpus: int | None):
        self.t, self.lora, self.gpus = t, script.endswith("_lora.py"), gpus
        self.updates = 1

    def run(self) -> None:
        t, name, data = self.t, self.t.get("experiment_name"), self.t.get("data_json_path")
        model = t.get("pretrained_model_name_or_path")
        stem = re.sub(r"\W+", "-", t.name.rpartition("/")[2].removesuffix(".sh")).strip("-")
        t.put("run.name", name.text if name.present else stem, name, "" if name.present else "the file's name")
        t.differs(model, "model.path is a directory of diffusers, or an id of the Hub that `oxbow fetch` gets")
        t.differs(data, "theirs are encoded in advance; write your prompts as prompts.train/train.txt, and `oxbow encode` "
                        "encodes them")
        t.put("model.trained", "lora" if self.lora else "full", model, "the script that it starts")
        if self.lora:
            t.copy("lora_rank", "lora_alpha")
            t.put("model.lora.targets", TARGETS, model, "the script that it starts")
        recompute = t.get("gradient_checkpointing")
        parts = ["recompute"] * recompute.flag + ["shard_gradients", "offload_optimizer"] * (not self.lora)  # As the recipe's.
        t.put("model.memory", " + ".join(parts) or "fast", recompute)
        if t.get("mixed_precision").present:
            t.copy("mixed_precision")

    def batch(self) -> None:
        t, nodes, each = self.t, self.t.get("nnodes"), self.t.get("nproc_per_node")
        size, images, accumulation = t.get("train_batch_size"), t.get("num_generations"), t.get("gradient_accumulation_steps")
        count = self.gpus or (each.count * (nodes.count if nodes.present else 1) if each.present else 0)
        if not count:
            raise Refused(f"{t.name}: --nproc_per_node is no number: say --gpus N, the number of processes that it runs with")
        groups, total = count * size.count, size.count * images.count
        t.put("batch.groups", groups, size, f"{count} processes x train_batch_size {size.count}")
        t.put("batch.group_size", images.text, images)
        if accumulation.count == 0 or total % accumulation.count:
            t.refuse(accumulation, f"does not divide the {total} images of a process")
            return
        self.updates = total // accumulation.count
        t.put("batch.updates", self.updates, accumulation)
        t.processes(count, groups, each if each.present else size, "nnodes x nproc_per_node")

    def window(self) -> None:
        """All steps but the last are stochastic, and a fraction is trained; MixGRPO has a window of stochastic steps."""
        t, strategy, steps = self.t, self.t.get("training_strategy"), self.t.get("sampling_steps")
        if steps.count > STEPS_MAX:
            t.refuse(steps, f"at most {STEPS_MAX} steps")
            return
        t.put("sampling.sde_first", 0, steps)
        t.put("sampling.sde_count", steps.count - 1, steps)
        if not strategy.present or strategy.text == "all":
            t.put("method.step_fraction", t.get("timestep_fraction").text, t.get("timestep_fraction"))
            return
        t.put("method.step_fraction", 1, strategy)
        size, hold, step = t.get("group_size"), t.get("iters_per_group"), t.get("prog_overlap_step")
        kind, overlap = t.get("sample_strategy").text, t.get("prog_overlap").flag
        if overlap and step.count == 0:
            t.put("sampling.window.kind", "fixed", step)
            t.put("sampling.window.steps", f"{list(range(min(size.count, steps.count)))}", size)
        elif t.copy("sample_strategy"):
            t.put("sampling.window.size", size.text, size)
            t.put("sampling.window.stride", step.text if overlap else size.text, step if overlap else size)
            if kind != "random" and not t.get("roll_back").flag:
                t.differs(t.get("roll_back"), "after its last position the window returns to the first one")
            if kind == "decay":
                most, least = t.get("max_iters_per_group"), t.get("min_iters_per_group")
                most = most if most.present else hold
                t.put("sampling.window.hold", most.text, most)
                t.allow(least, [str(max(1, most.count // 4))], "the hold falls to a quarter")
            elif kind != "random":
                t.put("sampling.window.hold", hold.text, hold)
        if t.get("dpm_algorithm_type").text != "null":
            t.allow(t.get("dpm_apply_strategy"), ["post"], "steps before the window are not compressed")
            t.copy("dpm_post_compress_ratio")
            t.put("sampling.compression.carry", True, t.get("dpm_algorithm_type"))

    def average(self) -> None:
        t, decay = self.t, self.t.get("ema_decay")
        t.put("ema.enabled", t.get("use_ema").flag, t.get("use_ema"))
        t.put("eval.use_ema", t.get("use_ema").flag, t.get("use_ema"))
        if t.get("use_ema").flag:
            t.put("ema.decay_max", round(abs(decay.number()) ** (1 / self.updates), 6), decay)

    def rewards(self) -> None:
        t, model = self.t, self.t.get("reward_model")
        terms = [f"{{name: {name}, weight: 1}}" for name, flag in (("hpsv2", "use_hpsv2"), ("pickscore", "use_pickscore"))
                 if t.get(flag).flag]
        source = t.get("use_hpsv2")
        if model.present and model.text in REWARDS:
            terms = [f"{{name: {name}, weight: {t.get(flag).text}}}" for name, flag in REWARDS[model.text].items()]
            t.copy("multi_reward_mix")
            source = model
        if not terms:
            t.refuse(model, f"no reward that is known here: --use_hpsv2, --use_pickscore, or --reward_model of "
                            f"{', '.join(REWARDS)}")
            return
        names = [re.search(r"name: (\w+)", term)[1] for term in terms]
        t.put("reward.terms", f"[{', '.join(terms)}]", source)
        t.put("reward.scorers", f"[{', '.join(f'{{name: {name}, model: {WEIGHTS[name]}, device: cuda}}' for name in names)}]",
              source)
        if "clipscore" in names:
            t.differs(source, "clipscore reads prompts as they are; open_clip's tokenizer, theirs, cleans them first")
        t.differs(source, "the `model` of each entry of reward.scorers is a directory, or an id of the Hub that `oxbow fetch` "
                          "gets (docs/rewards.md)")


def translate(text: str, name: str, gpus: int | None) -> Translation:
    script, values = command_of(text, name)
    if script.rpartition("/")[2] not in SCRIPTS:
        raise Refused(f"{name}: starts {script or 'no training'}: no counterpart; known are {' and '.join(SCRIPTS)} "
                      "by torchrun")
    unresolved = [s for s in values if "$" in s.text and s.path in ("nnodes", "nproc_per_node", "node_rank", "master_addr")]
    t = Translation("DanceGRPO", name, KEYS, [s for s in values if s not in unresolved], "flux-dev-dance")
    needed = ("sampling_steps", "eta", "h", "w", "train_batch_size", "num_generations", "pretrained_model_name_or_path")
    t.problems += [f"{name}: --{one} is not given" for one in needed if not t.get(one).present and not t.problems]
    for s in t.given.values():
        if s.row.type == "text" and s.row.use != "-" and re.search("[$`]", s.text):
            t.refuse(s, "the script does not say this value by itself; put it in")
    if not t.problems:
        t.take_rows()
        s = _Script(t, script, gpus)
        for part in (s.run, s.batch, s.window, s.average, s.rewards):
            part()
        if not t.get("use_group").flag:
            t.refuse(t.get("use_group"), "advantages are those of a prompt's group: --use_group")
        t.sort_out_rest()
    return t
