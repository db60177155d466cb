#!/usr/bin/env python3
"""Loads models/digits with diffusers and transformers and writes what they make of it.

The golden file (tests/golden/models/digits_velocity.safetensors) holds prompts' token ids, their embeddings, and
velocities at several noise levels; the C++ test compares its own against them.

    tools/check_digits_model.py [--model models/digits] [--out tests/golden/models/digits_velocity.safetensors]
"""
import argparse
import pathlib

import diffusers
import torch
import transformers
from safetensors.torch import save_file

NUMBERS = (0, 9, 473, 820, 999)


def main():
    root = pathlib.Path(__file__).resolve().parent.parent
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--model", default=root / "models/digits", type=pathlib.Path)
    parser.add_argument("--out", default=root / "tests/golden/models/digits_velocity.safetensors", type=pathlib.Path)
    flags = parser.parse_args()
    torch.manual_seed(0)
    torch.set_num_threads(1)

    transformer = diffusers.SD3Transformer2DModel.from_pretrained(flags.model / "transformer")
    encoder = transformers.CLIPTextModelWithProjection.from_pretrained(flags.model / "text_encoder")
    tokenizer = transformers.CLIPTokenizer.from_pretrained(flags.model / "tokenizer")
    scheduler = diffusers.FlowMatchEulerDiscreteScheduler.from_pretrained(flags.model / "scheduler")
    scheduler.set_timesteps(10)

    prompts = [f"text {number:03d}" for number in NUMBERS]
    ids = tokenizer(prompts, padding="max_length", max_length=6, return_tensors="pt").input_ids
    assert ids[2].tolist() == [515, 514, 275, 278, 274, 516], ids[2]

    x = torch.randn(len(prompts), 1, 8, 20)
    sigma = torch.tensor([1.0, 0.8, 0.5, 0.2, 0.01])
    with torch.no_grad():
        encoded = encoder(ids, output_hidden_states=True)
        tokens, pooled = encoded.hidden_states[-2], encoded.text_embeds
        velocity = transformer(hidden_states=x, timestep=sigma * 1000, encoder_hidden_states=tokens,
                               pooled_projections=pooled, return_dict=False)[0]

    flags.out.parent.mkdir(parents=True, exist_ok=True)
    save_file({"ids": ids, "tokens": tokens.contiguous(), "pooled": pooled.contiguous(), "x": x, "sigma": sigma,
               "velocity": velocity.contiguous(), "grid10": scheduler.sigmas.contiguous()}, flags.out,
              metadata={"prompts": ",".join(prompts), "diffusers": diffusers.__version__,
                        "transformers": transformers.__version__, "torch": torch.__version__})
    parameters = sum(p.numel() for p in transformer.parameters())
    print(f"{flags.model}: transformer {parameters} parameters, "
          f"text encoder {sum(p.numel() for p in encoder.parameters())}; wrote {flags.out}")


if __name__ == "__main__":
    main()
