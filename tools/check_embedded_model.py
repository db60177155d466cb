#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Loads a model of models/ with diffusers and transformers and writes its outputs.

The golden file (tests/golden/models/velocity_MODEL.safetensors) holds prompts' token ids, their embeddings, and
velocities at several noise levels; the C++ test compares its own with them. A FLUX and a Wan also go through their
pipelines as a whole.

    tools/check_embedded_model.py digits|digits_flux|plates|clip [--model DIR] [--out FILE]
"""
import argparse
import pathlib

import diffusers
import torch
import transformers
from safetensors.torch import save_file

NUMBERS = (0, 9, 473, 820, 999)
PROMPTS = {
    "digits": [f"text {number:03d}" for number in NUMBERS],
    "digits_flux": [f"text {number:03d}" for number in NUMBERS],
    "plates": [f'text "{number:03d}"' for number in NUMBERS],
    "clip": [f"clip {number:02d}" for number in (0, 9, 47, 82, 99)],
}
PICTURE = {"digits": (1, 8, 20), "digits_flux": (1, 8, 20), "plates": (1, 16, 32), "clip": (1, 3, 8, 20)}
LENGTH = {"digits": 6, "digits_flux": 6, "plates": 8, "clip": 4}
THIRD_IDS = {"digits": [515, 514, 275, 278, 274, 516], "digits_flux": [515, 514, 275, 278, 274, 516],
             "plates": [515, 514, 257, 275, 278, 274, 257, 516]}


class Sd3:
    def __init__(self, model, prompts, length):
        self.transformer = diffusers.SD3Transformer2DModel.from_pretrained(model / "transformer")
        self.encoders = [transformers.CLIPTextModelWithProjection.from_pretrained(model / "text_encoder")]
        tokenizer = transformers.CLIPTokenizer.from_pretrained(model / "tokenizer")
        scheduler = diffusers.FlowMatchEulerDiscreteScheduler.from_pretrained(model / "scheduler")
        scheduler.set_timesteps(10)
        self.sigmas = scheduler.sigmas
        self.ids = {"ids": tokenizer(prompts, padding="max_length", max_length=length, return_tensors="pt").input_ids}

    def encoded(self):
        encoded = self.encoders[0](self.ids["ids"], output_hidden_states=True)
        return encoded.hidden_states[-2], encoded.text_embeds

    def velocity(self, x, sigma, tokens, pooled):
        return self.transformer(hidden_states=x, timestep=sigma * 1000, encoder_hidden_states=tokens,
                                pooled_projections=pooled, return_dict=False)[0]


class Flux:
    def __init__(self, model, prompts, length):
        self.pipeline = diffusers.FluxPipeline.from_pretrained(model, vae=None)
        self.transformer = self.pipeline.transformer
        self.encoders = [self.pipeline.text_encoder, self.pipeline.text_encoder_2]
        length_2 = self.pipeline.tokenizer_2.model_max_length
        ids = {"ids": self.pipeline.tokenizer(prompts, padding="max_length", max_length=length, return_tensors="pt"),
               "ids_2": self.pipeline.tokenizer_2(prompts, padding="max_length", max_length=length_2,
                                                  return_tensors="pt")}
        self.ids = {name: value.input_ids for name, value in ids.items()}
        # The pipeline as a whole, at the size at which a pixel is a latent.
        latents = self.pipeline(prompts, height=64, width=160, num_inference_steps=10, max_sequence_length=length_2,
                                output_type="latent").images
        assert latents.shape == (len(prompts), 40, 4) and latents.isfinite().all(), latents
        self.pipeline.scheduler.set_timesteps(10)
        self.sigmas = self.pipeline.scheduler.sigmas

    def encoded(self):
        return self.encoders[1](self.ids["ids_2"]).last_hidden_state, self.encoders[0](self.ids["ids"]).pooler_output

    def velocity(self, x, sigma, tokens, pooled):
        batch, channels, height, width = x.shape
        packed = self.pipeline._pack_latents(x, batch, channels, height, width)
        image_ids = self.pipeline._prepare_latent_image_ids(batch, height // 2, width // 2, x.device, x.dtype)
        v = self.transformer(hidden_states=packed, timestep=sigma, encoder_hidden_states=tokens,
                             pooled_projections=pooled, txt_ids=torch.zeros(tokens.shape[1], 3), img_ids=image_ids,
                             return_dict=False)[0]
        return self.pipeline._unpack_latents(v, height * 8, width * 8, 8)


class Wan:
    def __init__(self, model, prompts, length):
        self.pipeline = diffusers.WanPipeline.from_pretrained(model, vae=None)
        self.transformer = self.pipeline.transformer
        self.encoders = [self.pipeline.text_encoder]
        assert self.pipeline.tokenizer.model_max_length == length
        self.prompts, self.length = prompts, length
        ids = self.pipeline.tokenizer(prompts, padding="max_length", max_length=length, return_tensors="pt")
        self.ids = {"ids": ids.input_ids, "mask": ids.attention_mask.bool()}
        # The pipeline as a whole, of pictures whose sides it takes: without an autoencoder it counts 8 pixels a latent.
        latents = self.pipeline(prompts, height=64, width=160, num_frames=9, num_inference_steps=10, guidance_scale=1.0,
                                max_sequence_length=length, output_type="latent").frames
        assert latents.shape == (len(prompts), 1, 3, 8, 20) and latents.isfinite().all(), latents
        self.pipeline.scheduler.set_timesteps(10)
        self.sigmas = self.pipeline.scheduler.sigmas

    def encoded(self):
        return self.pipeline.encode_prompt(self.prompts, do_classifier_free_guidance=False,
                                           max_sequence_length=self.length)[0], None

    def velocity(self, x, sigma, tokens, pooled):
        return self.transformer(hidden_states=x, timestep=sigma * 1000, encoder_hidden_states=tokens,
                                return_dict=False)[0]


KINDS = {"digits_flux": Flux, "clip": Wan}


def main():
    root = pathlib.Path(__file__).resolve().parent.parent
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("name", choices=sorted(PROMPTS), metavar="MODEL")
    parser.add_argument("--model", type=pathlib.Path)
    parser.add_argument("--out", type=pathlib.Path)
    flags = parser.parse_args()
    model = flags.model or root / "models" / flags.name
    out = flags.out or root / f"tests/golden/models/velocity_{flags.name}.safetensors"
    torch.manual_seed(0)
    torch.set_num_threads(1)

    prompts = PROMPTS[flags.name]
    loaded = KINDS.get(flags.name, Sd3)(model, prompts, LENGTH[flags.name])
    if flags.name in THIRD_IDS:
        assert loaded.ids["ids"][2].tolist() == THIRD_IDS[flags.name], loaded.ids["ids"][2]

    x = torch.randn(len(prompts), *PICTURE[flags.name])
    sigma = torch.tensor([1.0, 0.8, 0.5, 0.2, 0.01])
    with torch.no_grad():
        tokens, pooled = loaded.encoded()
        velocity = loaded.velocity(x, sigma, tokens, pooled)

    out.parent.mkdir(parents=True, exist_ok=True)
    encoded = {"tokens": tokens.contiguous()} | ({} if pooled is None else {"pooled": pooled.contiguous()})
    save_file(loaded.ids | encoded | {"x": x, "sigma": sigma, "velocity": velocity.contiguous(),
                                      "grid10": loaded.sigmas.contiguous()}, out,
              metadata={"prompts": ",".join(prompts), "diffusers": diffusers.__version__,
                        "transformers": transformers.__version__, "torch": torch.__version__})
    sizes = [sum(p.numel() for p in network.parameters()) for network in [loaded.transformer, *loaded.encoders]]
    print(f"{model}: transformer {sizes[0]} parameters, text encoders {sizes[1:]}; wrote {out}")


if __name__ == "__main__":
    main()
