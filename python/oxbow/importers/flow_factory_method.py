# SPDX-License-Identifier: Apache-2.0
"""The sections of Flow-Factory's YAML that define training: train and optimizers."""
from __future__ import annotations

import math

from .flow_factory_sampling import Sampling, stores_float32, translate_sampling
from .translation import Translation

ADVANTAGE_FLOOR = 1e-6  # Floor of the standard deviation; constant there.
SINK_BYTES_MAX = GIBIBYTE = 1 << 30  # services.sink_bytes_max of configs/defaults.yaml.


LEVELS_MAX = 1000


def drawn_levels(steps: int, shift: float, share: float) -> int:
    """How many levels Flow-Factory's discrete samplers draw from: those from 1 - share on, without the last of these."""
    below = [1 - index / steps for index in range(steps)]
    return max(1, sum(shift * u / (1 + (shift - 1) * u) >= 1 - share - 1e-6 for u in below) - 1)


class _Method:
    def __init__(self, t: Translation, sampling: Sampling):
        self.t, self.sampling = t, sampling
        self.trainer = t.get("train.trainer_type").text
        self.forward = self.trainer in ("nft", "awm")
        self.updates, self.trained_steps = 1, sampling.trained_steps

    def batch(self) -> None:
        t, accumulation = self.t, self.t.get("train.gradient_accumulation_steps")
        self.updates = t.get("train.gradient_step_per_epoch").count
        if accumulation.text.lower() == "auto":
            t.copy("train.gradient_step_per_epoch")
            return
        if not accumulation.text.isdecimal() or accumulation.count == 0:
            t.refuse(accumulation, "expected `auto` or a whole number above 0")
            return
        images = t.get("train.unique_sample_num_per_epoch").count * t.get("train.group_size").count
        at_once = max(1, t.get("num_processes").count) * max(1, t.get("train.per_device_batch_size").count)
        each = at_once * accumulation.count
        if images == 0 or images % each:
            t.refuse(accumulation, f"an update of {each} images (times {at_once} at once) does not divide the epoch's "
                                   f"{images}; take `auto`, and gradient_step_per_epoch updates")
            return
        self.updates = images // each
        t.put("batch.updates", self.updates, accumulation)

    def advantages(self) -> None:
        t, whole, limit = self.t, self.t.get("train.global_std"), self.t.get("train.adv_clip_range")
        t.put("method.advantage_std", "global" if whole.flag else "group", whole)
        t.put("method.advantage_divisor", "floor", whole)
        t.put("method.advantage_epsilon", ADVANTAGE_FLOOR, whole)
        if len(limit.items) == 2 and limit.number(0) != -limit.number(1):
            t.refuse(limit, "advantages are clipped at the same distance on both sides")
        else:
            t.put("method.advantage_clip", abs(limit.number(-1)), limit)

    def kl(self) -> None:
        t, weight, kind = self.t, self.t.get("train.kl_beta"), self.t.get("train.kl_type")
        t.put("method.kl_weight", weight.text, weight)
        if weight.number() == 0:
            return
        of_velocities = kind.text == "v-based" if kind.present else self.forward
        if self.forward and not of_velocities:
            t.refuse(kind, "their distance of latents is one of the steps that a policy gradient trains: take v-based, and choose kl_beta "
                           "again (about 1e-3)")
            return
        t.put("method.kl_space", "velocity" if of_velocities else "latent", kind)
        t.put("method.kl_all_steps", True, kind)
        t.put("method.zero_variance", "unmasked", weight)  # Groups without a signal train the KL.
        t.allow(t.get("train.kl_weight"), ["uniform"], "the distance weighs the same at all times")

    def method(self) -> None:
        t, trainer = self.t, self.t.get("train.trainer_type")
        t.put("replay.fraction", 0, trainer)
        self.kl()
        if self.trainer != "nft":
            limits = t.get("train.clip_range")
            t.put("method.clip_range", abs(limits.number()), limits)
            if len(limits.items) == 2 and limits.number(1) != -limits.number(0):
                t.put("method.clip_range_high", limits.number(1), limits)
        if self.trainer == "grpo-guard":
            t.differs(trainer, "losses are divided by the time step, as in GRPO-Guard's own code")
        if not self.forward:
            return
        self.times()
        if self.trainer == "nft":
            t.copy("train.nft_beta")
            return
        t.copy("train.awm_weighting", "train.ema_kl_beta")
        self.whole_advantages()
        if (power := t.get("train.ghuber_power")).number() != 0.25:
            t.refuse(power, "the exponent of general_huber is 0.25")
        off = t.get("train.off_policy")
        if off.flag:
            t.put("method.sample_from", "old", off)

    def whole_advantages(self) -> None:
        """Their loss has the advantage A, oxbow's A / c: with everything beside it over c, the loss is theirs over c. AdamW's
        step does not see the factor, if its epsilon and the norm to which gradients are clipped are over c, too."""
        t, limit = self.t, self.t.get("train.adv_clip_range")
        c = abs(limit.number(-1))
        if c in (0, 1):
            return
        for ours, theirs in (("method.kl_weight", "train.kl_beta"), ("method.old_kl_weight", "train.ema_kl_beta"),
                             ("optimizer.epsilon", "optimizers[0].eps"),
                             ("optimizer.grad_norm_max", "optimizers[0].max_grad_norm")):
            s = t.get(theirs)
            t.put(ours, s.number() / c, s)
        t.differs(limit, f"awm divides advantages by method.advantage_clip here: method.kl_weight, method.old_kl_weight, "
                         f"optimizer.epsilon and optimizer.grad_norm_max are theirs over {c:g}, which is the same update")

    def times(self) -> None:
        t, strategy, limits = self.t, self.t.get("train.time_sampling_strategy"), self.t.get("train.timestep_range")
        count, steps = t.get("train.num_train_timesteps"), t.get("train.num_inference_steps").count
        self.trained_steps = count.count or max(1, int(steps * limits.number(-1)))
        t.put("method.times.count", self.trained_steps, count)
        t.copy("train.time_shift")
        known, discrete = t.copy("train.time_sampling_strategy"), strategy.text.startswith("discrete")
        if known and not discrete:
            t.differs(t.get("train.time_shift"),
                      "shift pushes times to noise, as in AWM's own code; theirs to the clean side")
        if len(limits.items) == 2 and limits.number(0) != 0:
            t.refuse(limits, "times begin at the noisiest level: the range must begin at 0")
            return
        shift = self.sampling.shift()
        if not discrete or not shift or not 0 < steps <= LEVELS_MAX:
            t.put("method.times.fraction", limits.number(-1), limits)
            if discrete:
                t.differs(limits, "a share of the levels here, of the range of noise there")
            return
        levels = drawn_levels(steps, shift, limits.number(-1))
        t.put("method.times.fraction", math.ceil(levels / steps * 1e4) / 1e4, limits)
        t.differs(limits, f"their range of noise has the first {levels} of {steps} levels, its last one left out")

    def averages(self) -> None:
        """Their running average: of the weights for evaluation, or the old policy of nft and awm."""
        t, decay, every = self.t, self.t.get("train.ema_decay"), self.t.get("train.ema_update_interval")
        if self.forward or decay.number() == 0:
            t.put("ema.enabled", False, decay)
            t.put("eval.use_ema", False, decay)
        if self.forward:
            self.old_policy()
        elif decay.number() < 0:
            t.refuse(decay, "expected a number from 0 to 1")
        elif decay.number():
            # The same memory in updates: its average moves every so many epochs, oxbow's after every update.
            apart = max(1, every.count) * t.get("train.num_inner_epochs").count * max(1, self.updates)
            t.put("ema.decay_max", round(decay.number() ** (1 / apart), 6), decay)
            t.differs(decay, f"the average follows every update here instead of every {apart}: ema.decay_max is its root")

    def old_policy(self) -> None:
        t, off = self.t, self.t.get("train.off_policy")
        if self.trainer == "nft" and not off.flag:
            t.put("method.old_policy.shape", "constant", off)
            t.put("method.old_policy.decay", 0, off)
            t.differs(off, "the old policy is the policy at the start of a learner step")
        else:
            t.copy("train.ema_decay_schedule", "train.ema_decay", "train.ramp_rate", "train.flat_steps", "train.warmup_steps")
            if (every := t.get("train.ema_update_interval")).count != 1:
                t.refuse(every, "the old policy moves after every learner step")

    def memory(self) -> None:
        t, images = self.t, self.t.get("train.per_device_batch_size")
        # Their batch of a device counts images, a pass here the trained steps of images.
        t.put("batch.rows_per_pass", images.count * max(1, self.trained_steps), images)
        # Room for the latents of two steps, with 16 channels and an eighth of the image's height and width.
        groups = t.get("train.unique_sample_num_per_epoch")
        latents = 1 if self.forward else self.sampling.sde_count + 1
        width = 4 if stores_float32(t) else 2
        needed = (2 * groups.count * t.get("train.group_size").count * latents * width * 16
                  * (int(self.sampling.size[0]) / 8) * (int(self.sampling.size[1]) / 8))
        if needed > SINK_BYTES_MAX:
            t.put("services.sink_bytes_max", math.ceil(needed / GIBIBYTE) * GIBIBYTE, groups, "sizes of batch and image")

    def optimizer(self) -> None:
        t, betas = self.t, self.t.get("optimizers[0].betas")
        if t.size("optimizers") > 1:
            t.refuse(t.get("optimizers[1].learning_rate"), "one policy is trained, with one optimiser")
        if len(betas.items) != 2:
            t.refuse(betas, "expected a list of two numbers")
        else:
            t.put("optimizer.beta1", betas.items[0], betas)
            t.put("optimizer.beta2", betas.items[1], betas)


def translate_method(t: Translation, model) -> None:
    m = _Method(t, translate_sampling(t, model))
    for part in (m.batch, m.advantages, m.method, m.averages, m.optimizer, m.memory):
        part()
