#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Times of the products and attentions of SD3.5-M, FLUX.1 and Wan on one GPU; needs torch alone.

    python3 ceilings.py                      about 60 s on an H100
    python3 ceilings.py --device cpu --tiny  a smoke test without a GPU

Medians of CUDA-event times, inputs rotated so that L2 does not help. They say what a kernel could gain at most: q, k and
v in one product, LoRA as extra columns of a product, GELU as an epilogue, fp8 products, each attention kernel, a mask.
"""
import argparse
import contextlib
import statistics
import time

import torch
import torch.nn.functional as F

parser = argparse.ArgumentParser()
parser.add_argument("--device", default="cuda")
parser.add_argument("--tiny", action="store_true")
parser.add_argument("--repeat", type=int, default=15)
args = parser.parse_args()
gpu = args.device == "cuda"
half = torch.bfloat16


def ms(work, repeat=None):
    """Median milliseconds of work(i); i rotates inputs."""
    repeat = 2 if args.tiny else repeat or args.repeat
    for i in range(3):
        work(i)
    times = []
    for i in range(repeat):
        if gpu:
            begin, end = torch.cuda.Event(enable_timing=True), torch.cuda.Event(enable_timing=True)
            begin.record()
            work(i)
            end.record()
            end.synchronize()
            times.append(begin.elapsed_time(end))
        else:
            start = time.perf_counter()
            work(i)
            times.append(1e3 * (time.perf_counter() - start))
    return statistics.median(times)


def rand(*shape, dtype=half):
    return torch.randn(*shape, device=args.device, dtype=torch.float32).to(dtype)


def line(what, milliseconds, flop=0.0, moved=0.0):
    rate = f"{flop / milliseconds / 1e9:7.0f} TFLOP/s" if flop else f"{moved / milliseconds / 1e9:7.2f} TB/s   "
    print(f"{what:58} {milliseconds:9.4f} ms {rate}", flush=True)


def tried(what, make, flop=0.0, moved=0.0):
    try:
        line(what, ms(make()), flop, moved)
    except Exception as error:  # A kernel that this build or card does not have is an answer, too.
        print(f"{what:58} not here: {str(error).splitlines()[0][:80]}", flush=True)


def ceilings():
    n = 256 if args.tiny else 8192
    a, b = [rand(n, n) for _ in range(3)], rand(n, n)
    line(f"product {n}^3 bf16", ms(lambda i: a[i % 3] @ b), 2.0 * n ** 3)
    x = torch.empty((1 << 20) if args.tiny else (1 << 32), device=args.device, dtype=torch.uint8)
    y = torch.empty_like(x)
    line("copy", ms(lambda i: y.copy_(x)), moved=2.0 * x.numel())


def products(rows):
    """The linear layers of SD3.5-M for `rows` of 512 px: 1024 image and 205 prompt tokens a row."""
    d, r = (64, 8) if args.tiny else (1536, 32)
    for name, tokens in (("image", 1024 * rows), ("prompt", 205 * rows)):
        m = tokens // 64 if args.tiny else tokens
        x = [rand(m, d) for _ in range(4)]
        w, w3, bias, bias3 = rand(d, d), rand(3 * d, d), rand(d), rand(3 * d)
        flop = 2.0 * m * d * d
        line(f"{rows} rows, {name}: one of q, k, v", ms(lambda i: torch.addmm(bias, x[i % 4], w.t())), flop)
        line(f"{rows} rows, {name}: q, k, v in one product", ms(lambda i: torch.addmm(bias3, x[i % 4], w3.t())), 3 * flop)
        # LoRA beside the product, as it is: down, a copy of y, up. And in place, and as columns of the product.
        a, b, y = rand(r, d), rand(d, r), [rand(m, d) for _ in range(4)]
        z = x[0] @ a.t()
        line("    LoRA down", ms(lambda i: x[i % 4] @ a.t()), 2.0 * m * d * r)
        line("    LoRA up, addmm (copies y)", ms(lambda i: torch.addmm(y[i % 4], z, b.t(), alpha=2)), moved=8.0 * m * d)
        line("    LoRA up, addmm_", ms(lambda i: y[i % 4].addmm_(z, b.t(), alpha=1e-6)), moved=4.0 * m * d)
        xe, we = [rand(m, d + 3 * r) for _ in range(4)], rand(3 * d, d + 3 * r)
        line("    q, k, v with LoRA as 96 more columns", ms(lambda i: torch.addmm(bias3, xe[i % 4], we.t())), 3 * flop)
        up, down, wide = rand(4 * d, d), rand(d, 4 * d), rand(4 * d)
        h = [rand(m, 4 * d) for _ in range(3)]
        line("    MLP up", ms(lambda i: torch.addmm(wide, x[i % 4], up.t())), 4 * flop)
        gelu = lambda i: F.gelu(torch.addmm(wide, x[i % 4], up.t()), approximate="tanh")
        line("    MLP up, then GELU", ms(gelu), 4 * flop)
        tried("    MLP up, GELU as its epilogue",
              lambda: lambda i: torch._addmm_activation(wide, x[i % 4], up.t(), use_gelu=True), 4 * flop)
        line("    MLP down", ms(lambda i: torch.addmm(bias, h[i % 3], down.t())), 4 * flop)
        line("    dX of MLP up", ms(lambda i: h[i % 3] @ up), 4 * flop)
        line("    dX of q, k, v in one product", ms(lambda i: h[i % 3][:, :3 * d] @ w3), 3 * flop)

        def fp8():
            e4m3 = torch.float8_e4m3fn
            scale = lambda t: t.float().abs().amax(1, keepdim=True) / 448
            sw = scale(up)
            q = (up.float() / sw).to(e4m3)
            rows_of = [(t.float() / scale(t)).to(e4m3) for t in x]
            scales = [scale(t) for t in x]
            return lambda i: torch._scaled_mm(rows_of[i % 4], q.t(), scales[i % 4], sw.t().contiguous(), bias=wide,
                                              out_dtype=half)
        tried("    MLP up in fp8, a scale a row", fp8, 4 * flop)


def attention(name, batch, heads, tokens, width, masked=False):
    if args.tiny:
        batch, heads, tokens = 1, 2, 64
    from torch.nn.attention import SDPBackend, sdpa_kernel
    # [B, T, H, d] seen as [B, H, T, d], as the networks have it.
    make = lambda: rand(batch, tokens, heads, width).transpose(1, 2)
    q, k, v = [make() for _ in range(3)], make(), make()
    mask = None
    if masked:
        mask = torch.ones(batch, 1, 1, tokens, dtype=torch.bool, device=args.device)
        mask[..., : tokens // 16] = False
    flop = 4.0 * batch * heads * tokens * tokens * width
    choices = {"default": None, "flash": SDPBackend.FLASH_ATTENTION, "cudnn": SDPBackend.CUDNN_ATTENTION,
               "efficient": SDPBackend.EFFICIENT_ATTENTION}
    for kind, backend in choices.items():
        def scope():
            return sdpa_kernel([backend]) if backend is not None else contextlib.nullcontext()

        def forward():
            def work(i):
                with scope(), torch.no_grad():
                    F.scaled_dot_product_attention(q[i % 3], k, v, attn_mask=mask)
            return work

        def both():
            leaves = [t.detach().requires_grad_() for t in (q[0], k, v)]
            with scope():
                o = F.scaled_dot_product_attention(*leaves, attn_mask=mask)
            do = torch.randn_like(o)
            return lambda i: torch.autograd.grad(o, leaves, do, retain_graph=True)
        tried(f"attention {name}{' masked' if masked else ''}, {kind}", forward, flop)
        tried(f"attention {name}{' masked' if masked else ''}, {kind}, backward", both, 2.5 * flop)


if gpu:
    print(torch.cuda.get_device_name(), torch.__version__, "cuDNN", torch.backends.cudnn.version(), flush=True)
ceilings()
for rows in (8, 18, 48):
    products(rows)
attention("SD3.5-M, 18 rows", 18, 24, 1229, 64)
attention("SD3.5-M image, 18 rows", 18, 24, 1024, 64)
attention("FLUX.1, 4 rows", 4, 24, 1536, 128)
attention("Qwen-Image, 4 rows", 4, 24, 1280, 128, masked=True)
attention("Wan 1.3B, 480p, 33 frames", 1, 12, 14040, 128)
attention("HunyuanVideo, 480p, 33 frames", 1, 24, 14296, 128, masked=True)
