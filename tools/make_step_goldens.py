#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Whole training steps of Flow-GRPO on a tiny SD3, FLUX or Wan with a PEFT adapter, as golden files for training_step_golden_test.

    make_step_goldens.py                                  the committed step_* of tests/golden/models
    make_step_goldens.py --seed 7 --out /tmp/steps        others
    OXBOW_MODEL_GOLDENS=/tmp/steps build/dev/tests/training_step_golden_test

diffusers makes the model and the noise levels, peft the adapter, autograd the gradients, torch.optim the updates. The
arithmetic between them is written from the formulas of arXiv:2505.05470 and what flow_grpo's trainer for SD3 does with
them: stochastic steps under the guided velocity (of FLUX: the scale of guidance is an input), log-probs as means over a latent's elements, advantages of groups, the
clipped ratio, the KL of means over 2 std^2 (std without the root of the time step; with it for Wan, as in train_wan2_1.py),
a backward pass per microbatch and denoising step, the last step untrained, two updates per epoch. Two epochs are run;
the second continues the first.

Noise and the order of samples are those of oxbow's counter-based streams, implemented here again from Philox's paper,
so that both sides draw the same numbers independently.

A file: weight.* the model, adapter.* its matrices at the start, in.* conditioning and rewards, out.epoch{e}.* latents,
noise and log-probs of sampling, advantages, and out.update{u}.*: log-probs under the weights before the update, the
gradient before it is limited, its norm, the terms of the loss, and the matrices after. Flat vectors are in name order.
"""
import argparse
import json
import math
import pathlib

import numpy as np
import peft
import torch
from diffusers import (FlowMatchEulerDiscreteScheduler, FluxPipeline, FluxTransformer2DModel, SD3Transformer2DModel,
                       UniPCMultistepScheduler, WanTransformer3DModel)
from diffusers.pipelines.flux.pipeline_flux import calculate_shift
from peft.utils import get_peft_model_state_dict

import make_model_goldens as goldens
from make_sd3_goldens import TARGETS, transformer

TOKENS, STEPS, GROUPS, GROUP_SIZE, MICROBATCH, UPDATES, EPOCHS = 5, 5, 2, 4, 2, 2, 2
ETA, SHIFT = 0.7, 3.0


class Network:
    """The facts in which the classes below differ. The noise of a stochastic step is that of Flow-SDE, and its KL has no dt."""
    shape, pooled = (4, 6, 4), True

    @staticmethod
    def std(sigma, sigma_1):
        return ETA * torch.sqrt(sigma / (1 - (sigma_1 if sigma == 1 else sigma)))

    @staticmethod
    def kl_spread(std, spread):
        return std


class Sd3(Network):
    config = transformer(2, 4, sample_size=8, in_channels=4, out_channels=4, num_layers=2, joint_attention_dim=12,
                         pooled_projection_dim=10, pos_embed_max_size=6, dual_attention_layers=(0,), qk_norm="rms_norm")
    targets, rank, alpha, metadata = TARGETS, 4, 8, {
        "class": "SD3Transformer2DModel", "shift": str(SHIFT), "graph": "graphs/step_sd3.json.gz"}
    make = SD3Transformer2DModel

    @staticmethod
    def scheduler():
        scheduler = FlowMatchEulerDiscreteScheduler(shift=SHIFT)
        scheduler.set_timesteps(STEPS)
        return scheduler

    @staticmethod
    def velocity(model, x, timestep, tokens, pooled, settings):
        return model(hidden_states=x, timestep=timestep, encoder_hidden_states=tokens, pooled_projections=pooled).sample


class Flux(Network):
    """As FluxPipeline calls it, along its noise levels; the adapter is that of flow_grpo's train_flux.py."""
    config = dict(patch_size=1, in_channels=16, num_layers=1, num_single_layers=2, attention_head_dim=12,
                  num_attention_heads=2, joint_attention_dim=10, pooled_projection_dim=6, axes_dims_rope=(2, 4, 6),
                  guidance_embeds=True)
    targets = ["attn.to_q", "attn.to_k", "attn.to_v", "attn.to_out.0", "attn.add_q_proj", "attn.add_k_proj",
               "attn.add_v_proj", "attn.to_add_out", "ff.net.0.proj", "ff.net.2", "ff_context.net.0.proj",
               "ff_context.net.2"]
    rank, alpha = 2, 4
    make = FluxTransformer2DModel
    mu = calculate_shift(Network.shape[1] // 2 * (Network.shape[2] // 2))
    metadata = {"class": "FluxTransformer2DModel", "shift": str(math.exp(mu)), "schedule": "linspace", "graph": "exported/flux_dev_tiny/graph.json.gz"}

    @classmethod
    def scheduler(cls):
        scheduler = FlowMatchEulerDiscreteScheduler(use_dynamic_shifting=True)
        scheduler.set_timesteps(sigmas=np.linspace(1.0, 1 / STEPS, STEPS), mu=cls.mu)
        return scheduler

    @staticmethod
    def velocity(model, x, timestep, tokens, pooled, settings):
        rows, channels, height, width = x.shape
        ids = FluxPipeline._prepare_latent_image_ids(rows, height // 2, width // 2, x.device, x.dtype)
        v = model(hidden_states=FluxPipeline._pack_latents(x, rows, channels, height, width), timestep=timestep / 1000,
                  guidance=torch.full((rows,), settings["embedded_guidance"], dtype=x.dtype),
                  encoder_hidden_states=tokens, pooled_projections=pooled,
                  txt_ids=torch.zeros(tokens.shape[1], 3, dtype=x.dtype), img_ids=ids).sample
        return FluxPipeline._unpack_latents(v, height * 8, width * 8, vae_scale_factor=8)


class Wan(Network):
    """As flow_grpo's train_wan2_1.py: a video, its own noise, the KL with dt; the pipeline's whole timesteps."""
    config = dict(patch_size=[1, 2, 2], num_attention_heads=2, attention_head_dim=12, in_channels=4, out_channels=4,
                  text_dim=10, freq_dim=16, ffn_dim=20, num_layers=2, cross_attn_norm=True, rope_max_seq_len=32)
    shape, pooled = (4, 2, 6, 4), False
    targets, rank, alpha = ["to_q", "to_k", "to_v", "to_out.0"], 2, 4
    make = WanTransformer3DModel
    metadata = {"class": "WanTransformer3DModel", "shift": str(SHIFT), "schedule": "unipc_flow_whole",
                "dynamics": "wan_sde", "kl": "transition", "graph": "exported/wan_tiny/graph.json.gz"}

    @staticmethod
    def scheduler():
        scheduler = UniPCMultistepScheduler(prediction_type="flow_prediction", use_flow_sigmas=True, flow_shift=SHIFT)
        scheduler.set_timesteps(STEPS)
        return scheduler

    @staticmethod
    def velocity(model, x, timestep, tokens, pooled, settings):
        return model(hidden_states=x, timestep=timestep, encoder_hidden_states=tokens).sample

    @staticmethod
    def std(sigma, sigma_1):
        return sigma_1 * sigma

    @staticmethod
    def kl_spread(std, spread):
        return spread


CASES = {
    # name: settings by which flow_grpo's recipes differ
    "step_flux": dict(network=Flux, guidance=1.0, embedded_guidance=3.5, clip=1e-4, beta=0.04, global_std=True,
                      norm_max=1.0, run_seed=13),
    "step_wan": dict(network=Wan, guidance=4.5, clip=1e-3, beta=0.004, global_std=False, norm_max=1.0, run_seed=14),
    "step_unguided": dict(guidance=1.0, clip=1e-4, beta=0.04, global_std=False, norm_max=1.0, run_seed=11),
    "step_guided": dict(guidance=4.5, clip=1e-3, beta=0.04, global_std=True, norm_max=0.05, run_seed=12),
}
LEARNING_RATE, WEIGHT_DECAY, ADVANTAGE_MAX = 3e-4, 1e-4, 5.0

# Streams of src/base/philox.h.
INITIAL_LATENT, SHUFFLE = 0xffff0000, 0xffff0004
M32, M64 = 0xffffffff, 0xffffffffffffffff


def philox(counter, key):
    """Philox4x32-10, Salmon et al., SC 2011."""
    c, k = list(counter), list(key)
    for _ in range(10):
        p0, p1 = 0xD2511F53 * c[0], 0xCD9E8D57 * c[2]
        c = [(p1 >> 32) ^ c[1] ^ k[0], p1 & M32, (p0 >> 32) ^ c[3] ^ k[1], p0 & M32]
        k = [(k[0] + 0x9E3779B9) & M32, (k[1] + 0xBB67AE85) & M32]
    return c


def mix64(value):
    value = (value + 0x9E3779B97F4A7C15) & M64
    value = ((value ^ (value >> 30)) * 0xBF58476D1CE4E5B9) & M64
    value = ((value ^ (value >> 27)) * 0x94D049BB133111EB) & M64
    return value ^ (value >> 31)


def words(seed, group, sample, step):
    """The 32-bit words of one stream, four to a block."""
    mixed, block = mix64(mix64(seed) ^ group), 0
    while True:
        yield from philox((block & M32, block >> 32, step, sample), (mixed & M32, mixed >> 32))
        block += 1


def normals(count, *stream):
    """Box-Muller in float64, two numbers per block."""
    w, out = words(*stream), []
    uniform = lambda: (((next(w) << 21) ^ (next(w) >> 11)) + 0.5) * 2.0 ** -53
    while len(out) < count:
        radius, angle = math.sqrt(-2 * math.log(uniform())), 2 * math.pi * uniform()
        out += [radius * math.cos(angle), radius * math.sin(angle)]
    return np.array(out[:count])


def shuffled(count, seed, epoch):
    """Fisher-Yates by the stream of a learner step's first pass."""
    w, order = words(seed, epoch, 0, SHUFFLE), list(range(count))
    for i in range(count, 1, -1):
        limit = M64 - M64 % i
        value = limit
        while value >= limit:
            value = next(w) << 32 | next(w)
        order[i - 1], order[value % i] = order[value % i], order[i - 1]
    return order


class Run:
    """One case: a model, its optimiser, and the recorded values."""

    def __init__(self, settings, seed, dtype):
        self.s, self.dtype, self.out, self.margin = settings, dtype, {}, math.inf
        g = torch.Generator().manual_seed(seed)
        self.network = settings.get("network", Sd3)
        self.model = self.network.make(**self.network.config)
        goldens.randomise(self.model, g)
        self.weights = {"weight." + k: w.clone() for k, w in self.model.state_dict().items()}
        self.model.add_adapter(peft.LoraConfig(r=self.network.rank, lora_alpha=self.network.alpha, init_lora_weights="gaussian",
                                               target_modules=self.network.targets))
        for name, p in sorted(self.model.named_parameters()):
            if "lora_A" in name:  # peft's "gaussian", from our generator.
                p.data = (torch.randn(p.shape, generator=g) / self.network.rank).half().float()
            if "lora_B" in name:  # Not zero, or A would have no gradient at first.
                p.data = (torch.randn(p.shape, generator=g) * 0.1).half().float()
        randn = lambda *shape: torch.randn(*shape, generator=g)
        config = self.network.config
        width, pooled = config.get("joint_attention_dim", config.get("text_dim")), config.get("pooled_projection_dim", 1)
        self.inputs = {"in.tokens": randn(GROUPS, TOKENS, width), "in.pooled": randn(GROUPS, pooled),
                       "in.negative_tokens": randn(1, TOKENS, width), "in.negative_pooled": randn(1, pooled),
                       "in.rewards": torch.rand(EPOCHS, GROUPS, GROUP_SIZE, generator=g, dtype=torch.float64)}
        self.adapter = {"adapter." + k: v.clone() for k, v in get_peft_model_state_dict(self.model).items()}
        self.model.to(dtype)
        named = {k.replace(".default.", "."): p for k, p in self.model.named_parameters() if p.requires_grad}
        assert {"adapter." + k for k in named} == self.adapter.keys()
        self.trained = [named[k] for k in sorted(named)]
        self.optimizer = torch.optim.AdamW(self.trained, lr=LEARNING_RATE, betas=(0.9, 0.999), eps=1e-8,
                                           weight_decay=WEIGHT_DECAY)
        scheduler = self.network.scheduler()
        self.sigmas, self.timesteps = scheduler.sigmas.to(dtype), scheduler.timesteps.to(dtype)
        self.order = [row for g in range(GROUPS) for row in [g] * GROUP_SIZE]  # The group of every sample.

    def flat(self, tensors):
        return torch.cat([t.detach().reshape(-1) for t in tensors]).clone()

    def velocity(self, x, step, rows):
        """Velocity of the guided model: both halves in one batch, with the gradient through both."""
        groups = [self.order[r] for r in rows]
        tokens, pooled = (self.inputs[k][groups].to(self.dtype) for k in ("in.tokens", "in.pooled"))
        guidance = self.s["guidance"]
        if guidance > 1:
            n = len(rows)
            negative = [self.inputs["in.negative_" + k].to(self.dtype).repeat(n, *[1] * (d - 1))
                        for k, d in (("tokens", 3), ("pooled", 2))]
            x, tokens, pooled = torch.cat([x, x]), torch.cat([negative[0], tokens]), torch.cat([negative[1], pooled])
        v = self.network.velocity(self.model, x, self.timesteps[step].expand(len(x)), tokens, pooled, self.s)
        if guidance > 1:
            unconditional, conditional = v.chunk(2)
            v = unconditional + guidance * (conditional - unconditional)
        return v

    def kernel(self, x, v, step):
        """Mean and spread of the reverse SDE's step, and its diffusion coefficient."""
        sigma, dt = self.sigmas[step], self.sigmas[step + 1] - self.sigmas[step]
        std = self.network.std(sigma, self.sigmas[1])
        mean = x * (1 + std ** 2 / (2 * sigma) * dt) + v * (1 + std ** 2 * (1 - sigma) / (2 * sigma)) * dt
        return mean, std * torch.sqrt(-dt), std

    @staticmethod
    def log_prob(x_next, mean, spread):
        density = -(x_next - mean) ** 2 / (2 * spread ** 2) - torch.log(spread) - math.log(math.sqrt(2 * math.pi))
        return density.mean(dim=tuple(range(1, density.dim())))

    def sample(self, epoch):
        """Samples with stochastic steps; the last one is a plain ODE step."""
        identities = [(self.s["run_seed"], epoch * GROUPS + g, s) for g in range(GROUPS) for s in range(GROUP_SIZE)]
        shape = self.network.shape
        noise = lambda step: torch.tensor(np.stack([normals(math.prod(shape), *i, step).astype(np.float32).reshape(shape)
                                                    for i in identities])).to(self.dtype)
        rows, noises, scores = range(len(identities)), [noise(INITIAL_LATENT)], []
        latents = [noises[0]]
        with torch.no_grad():
            for step in range(STEPS):
                x = latents[-1]
                v = self.velocity(x, step, rows)
                if step + 1 == STEPS:
                    latents.append(x + v * (self.sigmas[step + 1] - self.sigmas[step]))
                    break
                mean, spread, _ = self.kernel(x, v, step)
                noises.append(noise(step))
                latents.append(mean + spread * noises[-1])
                scores.append(self.log_prob(latents[-1], mean, spread))
        self.out |= {f"out.epoch{epoch}.latents": torch.stack(latents), f"out.epoch{epoch}.noise": torch.stack(noises),
                     f"out.epoch{epoch}.log_prob": torch.stack(scores)}
        return latents, scores

    def advantages(self, epoch):
        rewards = self.inputs["in.rewards"][epoch].numpy()
        spread = rewards.std() if self.s["global_std"] else rewards.std(axis=1, keepdims=True)
        a = (rewards - rewards.mean(axis=1, keepdims=True)) / (spread + 1e-4)
        a = torch.tensor(a.reshape(-1)).clamp(-ADVANTAGE_MAX, ADVANTAGE_MAX)
        self.out[f"out.epoch{epoch}.advantages"] = a
        return a

    def update(self, number, rows, latents, scores, advantages):
        """Gradients of `rows`, one microbatch and step at a time; then one step of the optimiser."""
        clip, beta, trained_steps = self.s["clip"], self.s["beta"], int(0.99 * STEPS)
        passes = len(rows) // MICROBATCH * trained_steps
        terms, new_scores = {"policy": 0.0, "kl": 0.0, "clipped": 0.0, "silenced": 0.0}, torch.zeros(trained_steps, len(rows))
        for begin in range(0, len(rows), MICROBATCH):
            part = rows[begin:begin + MICROBATCH]
            advantage = advantages[part].to(self.dtype)
            for step in range(trained_steps):
                x, x_next = latents[step][part], latents[step + 1][part]
                mean, spread, std = self.kernel(x, self.velocity(x, step, part), step)
                score = self.log_prob(x_next, mean, spread)
                with torch.no_grad():
                    self.model.disable_adapters()
                    reference, _, _ = self.kernel(x, self.velocity(x, step, part), step)
                    self.model.enable_adapters()
                ratio = torch.exp(score - scores[step][part])
                policy = torch.maximum(-advantage * ratio, -advantage * ratio.clamp(1 - clip, 1 + clip)).mean()
                kl = ((mean - reference) ** 2).flatten(1).mean(dim=1) / (2 * self.network.kl_spread(std, spread) ** 2)
                ((policy + beta * kl.mean()) / passes).backward()
                excess = ratio.detach() - 1
                outside = excess.abs() > clip
                self.margin = min(self.margin, ((excess.abs() - clip).abs()).min().item())
                terms["policy"] += policy.item() / passes
                terms["kl"] += kl.mean().item() / passes
                terms["clipped"] += outside.double().mean().item() / passes
                terms["silenced"] += (outside & (excess * advantage > 0)).double().mean().item() / passes
                new_scores[step, begin:begin + MICROBATCH] = score.detach()
        gradient = self.flat([p.grad for p in self.trained])
        norm = torch.nn.utils.clip_grad_norm_(self.trained, self.s["norm_max"])
        self.optimizer.step()
        self.optimizer.zero_grad()
        terms["grad_norm"] = norm.item()
        key = f"out.update{number}."
        self.out |= {key + "gradient": gradient, key + "adapter": self.flat(self.trained), key + "log_prob": new_scores,
                     key + "rows": torch.tensor(rows), key + "terms": torch.tensor(list(terms.values()), dtype=torch.float64)}
        print(f"  update {number}: " + ", ".join(f"{k} {v:.3g}" for k, v in terms.items()))

    def run(self):
        for epoch in range(EPOCHS):
            latents, scores = self.sample(epoch)
            advantages, order = self.advantages(epoch), shuffled(GROUPS * GROUP_SIZE, self.s["run_seed"], epoch)
            share = len(order) // UPDATES
            for u in range(UPDATES):
                self.update(epoch * UPDATES + u, order[u * share:(u + 1) * share], latents, scores, advantages)
        self.out["out.sigmas"] = self.sigmas
        return self


def distance(a, b):
    return ((a.double() - b.double()).norm() / b.double().norm()).item()


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--out", type=pathlib.Path, default=pathlib.Path("tests/golden/models"))
    parser.add_argument("--seed", type=int, default=20260101)
    args = parser.parse_args()
    args.out.mkdir(parents=True, exist_ok=True)
    torch.set_num_threads(1)
    for name, settings in CASES.items():
        print(name)
        run = Run(settings, args.seed, torch.float32).run()
        # If rounding could decide on which side of a clip a ratio is, two correct answers would
        # differ.
        assert run.margin > 2e-6, f"a ratio is {run.margin} from its clip: take another seed"
        wide = Run(settings, args.seed, torch.float64).run()
        start = torch.cat([v.reshape(-1) for _, v in sorted(run.adapter.items())])
        last = f"out.update{EPOCHS * UPDATES - 1}.adapter"
        print(f"  float32 against float64: movement {distance(run.out[last] - start, wide.out[last] - start):.1e},"
              f" margin {run.margin:.1e}")
        metadata = {k: str(v) for k, v in settings.items() if k != "network"} | run.network.metadata | {
            "rank": str(run.network.rank), "alpha": str(run.network.alpha), "targets": json.dumps(run.network.targets),
            "eta": str(ETA), "learning_rate": str(LEARNING_RATE), "weight_decay": str(WEIGHT_DECAY), "peft": peft.__version__}
        inputs = {k: v for k, v in run.inputs.items() if run.network.pooled or "pooled" not in k}
        goldens.save(args.out / f"{name}.safetensors", run.weights | run.adapter | inputs | run.out,
                     json.dumps(dict(run.model.config)), args.seed, metadata)


if __name__ == "__main__":
    main()
