#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""The work of graph_bench with diffusers and peft, eager or compiled, on the same GPU: forward pass and training step of a
LoRA on SD3.5-M at its published size, random weights.

    bench/sd35m_diffusers.py --rows 8 --compute bf16 [--compile]

bf16 is arranged as flow_grpo does it: the base in bf16, the adapter in float32, autocast. Inputs stay on the GPU.
"""
import argparse
import contextlib
import statistics
import time

import peft
import torch
from diffusers import SD3Transformer2DModel

from sd35m_train import TRANSFORMER

TARGETS = [f"attn.{name}" for name in ("add_q_proj", "add_k_proj", "add_v_proj", "to_add_out", "to_q", "to_k", "to_v",
                                       "to_out.0")]


def wait():
    if torch.cuda.is_available():
        torch.cuda.synchronize()


def median_ms(work, repeat):
    times = []
    for i in range(repeat + 2):
        wait()
        start = time.perf_counter()
        work()
        wait()
        if i > 1:
            times.append(1e3 * (time.perf_counter() - start))
    return statistics.median(times)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rows", type=int, default=8)
    parser.add_argument("--pixels", type=int, default=512)
    parser.add_argument("--prompt-tokens", type=int, default=205)
    parser.add_argument("--compute", choices=("f32", "bf16"), default="bf16")
    parser.add_argument("--repeat", type=int, default=10)
    parser.add_argument("--checkpoint", action="store_true")
    parser.add_argument("--compile", action="store_true", help="with torch.compile")
    parser.add_argument("--device", default="cuda")
    parser.add_argument("--layers", type=int, default=24)
    args = parser.parse_args()
    torch.manual_seed(1)
    dtype = torch.bfloat16 if args.compute == "bf16" else torch.float32
    config = TRANSFORMER | dict(num_layers=args.layers, dual_attention_layers=tuple(range(min(args.layers, 13))))
    if args.layers < 24:  # A small test: its table of positions, too.
        config["pos_embed_max_size"] = 64
    with torch.device(args.device):
        model = SD3Transformer2DModel(**config).to(dtype)
        for p in model.parameters():
            p.data.normal_(std=0.02)
        x = torch.randn(args.rows, 16, args.pixels // 8, args.pixels // 8)
        sigma = torch.rand(args.rows) * 1000
        tokens = torch.randn(args.rows, args.prompt_tokens, 4096)
        pooled = torch.randn(args.rows, 2048)
    model.requires_grad_(False)
    model.add_adapter(peft.LoraConfig(r=32, lora_alpha=64, target_modules=TARGETS))
    for p in model.parameters():
        if p.requires_grad:
            p.data = p.data.float()
    if args.checkpoint:
        model.enable_gradient_checkpointing()
        model.train()
    trained = [p for p in model.parameters() if p.requires_grad]
    optimizer = torch.optim.AdamW(trained, lr=3e-4)
    precision = (lambda: torch.autocast(args.device, torch.bfloat16)) if args.compute == "bf16" else contextlib.nullcontext

    def velocity():
        with precision():
            return model(hidden_states=x.to(dtype), timestep=sigma, encoder_hidden_states=tokens.to(dtype),
                         pooled_projections=pooled.to(dtype), return_dict=False)[0]

    def forward():
        with torch.no_grad():
            velocity()

    def train():
        optimizer.zero_grad()
        velocity().float().square().mean().backward()
        torch.nn.utils.clip_grad_norm_(trained, 1.0)
        optimizer.step()

    if args.compile:
        model.compile()
    mode = "compiled" if args.compile else "eager"
    print(f"diffusers {mode}, {args.rows} rows of {args.pixels} px, {args.compute}, torch {torch.__version__}")
    print(f"forward          {median_ms(forward, args.repeat):8.1f} ms")
    print(f"training step    {median_ms(train, args.repeat):8.1f} ms")
    if args.device == "cuda":
        print(f"training memory  {torch.cuda.max_memory_allocated() / 2**20:8.0f} MiB at most", flush=True)


if __name__ == "__main__":
    main()
