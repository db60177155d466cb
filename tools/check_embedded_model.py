#!/usr/bin/env python3
"""Loads models/digits, models/plates or models/compose with diffusers and transformers and writes their outputs.

The golden file (tests/golden/models/WORLD_velocity.safetensors) holds prompts' token ids, their embeddings, and
velocities at several noise levels; the C++ test compares its own with them.

    tools/check_embedded_model.py digits|plates|compose [--model DIR] [--out FILE]
"""
import argparse
import pathlib

import diffusers
import torch
import transformers
from safetensors.torch import save_file

PROMPTS = {
    "digits": [f"text {number:03d}" for number in (0, 9, 473, 820, 999)],
    "plates": [f'text "{number:03d}"' for number in (0, 9, 473, 820, 999)],
    "compose": ["red square left of blue disc", "green triangle above yellow cross", "blue cross right of blue disc",
                "yellow disc below red triangle", "green square left of green disc"],
}
PICTURE = {"digits": (1, 8, 20), "plates": (1, 16, 32), "compose": (3, 16, 16)}
LENGTH = {"digits": 6, "plates": 8, "compose": 8}


def main():
    root = pathlib.Path(__file__).resolve().parent.parent
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("world", choices=sorted(PROMPTS))
    parser.add_argument("--model", type=pathlib.Path)
    parser.add_argument("--out", type=pathlib.Path)
    flags = parser.parse_args()
    model = flags.model or root / "models" / flags.world
    out = flags.out or root / f"tests/golden/models/{flags.world}_velocity.safetensors"
    torch.manual_seed(0)
    torch.set_num_threads(1)

    transformer = diffusers.SD3Transformer2DModel.from_pretrained(model / "transformer")
    encoder = transformers.CLIPTextModelWithProjection.from_pretrained(model / "text_encoder")
    tokenizer = transformers.CLIPTokenizer.from_pretrained(model / "tokenizer")
    scheduler = diffusers.FlowMatchEulerDiscreteScheduler.from_pretrained(model / "scheduler")
    scheduler.set_timesteps(10)

    prompts = PROMPTS[flags.world]
    ids = tokenizer(prompts, padding="max_length", max_length=LENGTH[flags.world], return_tensors="pt").input_ids
    if flags.world == "digits":
        assert ids[2].tolist() == [515, 514, 275, 278, 274, 516], ids[2]
    if flags.world == "plates":
        assert ids[2].tolist() == [515, 514, 257, 275, 278, 274, 257, 516], ids[2]

    x = torch.randn(len(prompts), *PICTURE[flags.world])
    sigma = torch.tensor([1.0, 0.8, 0.5, 0.2, 0.01])
    with torch.no_grad():
        encoded = encoder(ids, output_hidden_states=True)
        tokens, pooled = encoded.hidden_states[-2], encoded.text_embeds
        velocity = transformer(hidden_states=x, timestep=sigma * 1000, encoder_hidden_states=tokens,
                               pooled_projections=pooled, return_dict=False)[0]

    out.parent.mkdir(parents=True, exist_ok=True)
    save_file({"ids": ids, "tokens": tokens.contiguous(), "pooled": pooled.contiguous(), "x": x, "sigma": sigma,
               "velocity": velocity.contiguous(), "grid10": scheduler.sigmas.contiguous()}, out,
              metadata={"prompts": ",".join(prompts), "diffusers": diffusers.__version__,
                        "transformers": transformers.__version__, "torch": torch.__version__})
    parameters = sum(p.numel() for p in transformer.parameters())
    print(f"{model}: transformer {parameters} parameters, "
          f"text encoder {sum(p.numel() for p in encoder.parameters())}; wrote {out}")


if __name__ == "__main__":
    main()
