# SPDX-License-Identifier: Apache-2.0
"""The sections of Flow-Factory's YAML that define sampling: a part of train, and scheduler."""
from __future__ import annotations

import math

from .translation import Translation


def size_of(t: Translation, section: str) -> list[str]:
    """Height and width from a section with `resolution`, `height` and `width`."""
    sides = t.get(f"{section}.resolution").items or ["", ""]
    own = [t.get(f"{section}.height"), t.get(f"{section}.width")]
    return [s.text if s.present else side for s, side in zip(own, (sides[0], sides[-1]))]


def stores_float32(t: Translation) -> bool:
    """Whether latents are kept in full: null means that there, not the default."""
    storage = t.given.get("train.latent_storage_dtype")
    return storage is not None and (not storage.present or storage.text.lower() == "fp32")


class Sampling:
    def __init__(self, t: Translation, model):
        self.t, self.model, self.size = t, model, size_of(t, "train")
        self.sde_count, self.trained_steps = 0, 0  # Stochastic steps, and those of an image that are trained.

    def shift(self) -> float:
        """The shift of the noise levels, where it is known without the model's files; else 0."""
        if self.model.shift != "by size":
            return float(self.model.shift)
        tokens = int(self.size[0]) // 16 * (int(self.size[1]) // 16)
        return math.exp(0.5 + (1.15 - 0.5) * (tokens - 256) / (4096 - 256))  # calculate_shift of diffusers' FluxPipeline.

    def image(self) -> None:
        t = self.t
        frames, shift = t.get("train.num_frames"), t.get("scheduler.flow_shift")
        kind = t.get("model.model_type")
        if self.model.video:  # UniPC's whole timesteps and shift come with a video.
            for key, s in (("sampling.frames", frames), ("sampling.shift", shift)):
                if s.present:
                    t.put(key, s.text, s)
            t.put("sampling.whole_timesteps", True, kind)
        else:
            for s in (frames, t.get("eval.num_frames"), shift):
                t.allow(s, [], "is for videos, and this model draws images")
        for key, side in zip(("height", "width"), self.size):
            own = t.get(f"train.{key}")
            t.put(f"sampling.{key}", side, own if own.present else t.get("train.resolution"))
        guidance = t.get("train.guidance_scale")
        t.put(self.model.guidance, max(self.model.guidance_min, guidance.number()), guidance)
        if stores_float32(t):
            t.put("sampling.storage", "f32", t.get("train.latent_storage_dtype"))
        else:
            t.copy("train.latent_storage_dtype")
        # linspace(1, 1/N, N), shifted by the model's scheduler.
        t.put("sampling.schedule", "unipc_flow_whole" if self.model.video else "linspace", kind)

    def checkpointing(self) -> None:
        t, plain = self.t, self.t.get("train.enable_gradient_checkpointing")
        mode = t.get("train.enable_gradient_checkpointing.mode")
        if mode.present:
            t.put("model.memory", "fast" if mode.text == "none" else "recompute", mode)
            if mode.text not in ("none", "full"):
                t.differs(mode, "every block is checkpointed")
        elif plain.yaml.lower() in ("true", "false"):
            t.put("model.memory", "recompute" if plain.text.lower() == "true" else "fast", plain)
        else:
            t.refuse(plain, "expected true, false or a section with `mode`")

    def steps(self) -> None:
        t, dynamics = self.t, self.t.get("scheduler.dynamics_type")
        if t.copy("scheduler.dynamics_type") and dynamics.text.lower() != "ode":
            t.copy("scheduler.noise_level")
            self.window()

    def window(self) -> None:
        """num_sde_steps of the candidates, drawn again for every epoch."""
        t, steps = self.t, self.t.get("train.num_inference_steps").count
        listed, drawn = t.get("scheduler.sde_steps"), t.get("scheduler.num_sde_steps")
        candidates = {int(item) for item in listed.items} if listed.present else set(range(min(steps, 1000) - 1))
        if candidates and max(candidates) >= steps:
            t.refuse(listed, f"there are no steps beyond {steps} - 1")
            return
        if steps - 1 in candidates:
            candidates.remove(steps - 1)
            t.differs(listed, "the last step is never stochastic, for its density is degenerate")
        if not candidates:
            t.refuse(listed, "leaves no stochastic step")
            return
        if drawn.count == 0:
            t.refuse(drawn, "at least one stochastic step is trained")
            return
        first, self.sde_count = min(candidates), max(candidates) - min(candidates) + 1
        t.put("sampling.sde_first", first, listed)
        t.put("sampling.sde_count", self.sde_count, listed)
        gaps = self.sde_count > len(candidates)
        self.trained_steps = min(drawn.count, len(candidates))
        if drawn.count >= len(candidates):
            t.put("sampling.window.kind", "fixed" if gaps else "all", drawn)
            if gaps:
                t.put("sampling.window.steps", f"{sorted(candidates)}", listed)
        elif gaps:
            t.refuse(listed, "steps are drawn from a range without gaps")
        else:
            t.put("sampling.window.kind", "subset", drawn)
            t.put("sampling.window.size", drawn.text, drawn)


def translate_sampling(t: Translation, model) -> Sampling:
    sampling = Sampling(t, model)
    sampling.image()
    sampling.checkpointing()
    sampling.steps()
    return sampling
