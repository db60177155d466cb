#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Float64 golden vectors of MixGRPO-Flash: the levels and steps behind the stochastic window.

An independent implementation of what the public code of arXiv:2507.21802 does with
`dpm_apply_strategy: post` (docs/methods/mix_grpo.md). It shares no code with the product.
`make_compression_golden.py SEED OUT.json` draws random inputs from SEED. Needs no package.

`--mixgrpo CHECKOUT` compares every record with that code itself, which must be at e5cdd6a, and says
how far they are apart, where both compute in float64. Needs torch.
"""
import argparse
import json
import math
import random


def shift(s, t):
    return s * t / (1 + (s - 1) * t)


def levels(steps, scale, last, share):
    """The run's grid up to x_{last + 1}, and the compressed levels after it."""
    times = [1 - i / steps for i in range(steps + 1)]
    points = int(max((steps - last) * share, 1))
    start = times[last + 1]
    rest = [start * (1 - j / (points - 1)) for j in range(points)] if points > 1 else [start, 0]
    return [shift(scale, t) for t in times[:last + 1] + rest]


def velocity(record, x):
    return [math.tanh(record['slope'] * value) + record['offset'] for value in x]


def log_snr(sigma):
    return math.log(1 - sigma) - math.log(sigma)


def clean(x, v, sigma):
    return [a - sigma * b for a, b in zip(x, v)]


def noisy_step(record, x, s, s_next, s_1, z):
    """Flow-GRPO's stochastic step."""
    v = velocity(record, x)
    std = record['eta'] * math.sqrt(s / (1 - (s_1 if s == 1 else s)))
    dt = s_next - s
    return [a * (1 + std**2 / (2 * s) * dt) + b * (1 + std**2 * (1 - s) / (2 * s)) * dt
            + std * math.sqrt(-dt) * n for a, b, n in zip(x, v, z)]


def second_order(kind, x, m0, m1, s_prev, s, s_next):
    h = log_snr(s_next) - log_snr(s)
    r = (log_snr(s) - log_snr(s_prev)) / h
    fall = math.exp(-h) - 1
    slope = -0.5 * fall if kind == 'midpoint' else fall / h + 1
    return [s_next / s * a - (1 - s_next) * fall * b + (1 - s_next) * slope * (b - c) / r
            for a, b, c in zip(x, m0, m1)]


def behind_the_window(record, sigmas, last, x, before):
    """The latents from x_{last + 1} = `x` to the picture. `before`: x_{last}, or None."""
    path = [x]
    m1 = clean(before, velocity(record, before), sigmas[last]) if before is not None else None
    for i in range(last + 1, len(sigmas) - 1):
        m0 = clean(x, velocity(record, x), sigmas[i])
        if m1 is None or i + 2 == len(sigmas) or sigmas[i - 1] == 1:
            ratio = sigmas[i + 1] / sigmas[i]
            x = [ratio * a + (1 - ratio) * b for a, b in zip(x, m0)]
        else:
            x = second_order(record['kind'], x, m0, m1, sigmas[i - 1], sigmas[i], sigmas[i + 1])
        m1 = m0
        path.append(x)
    return path


def record_of(rng, kind, carry):
    steps = rng.randint(10, 25)
    size = rng.randint(1, 4)
    first = rng.randint(1, steps - size - 5)
    last = first + size - 1
    r = dict(kind=kind, carry=carry, steps=steps, shift=rng.uniform(1, 5), first=first, last=last,
             share=rng.uniform(.25, .8), eta=rng.uniform(.3, .9), slope=rng.uniform(.3, 1.2),
             offset=rng.uniform(-.3, .3))
    r['x_0'] = [rng.gauss(0, 1) for _ in range(6)]
    r['noise'] = [[rng.gauss(0, 1) for _ in range(6)] for _ in range(size)]
    sigmas = r['sigmas'] = levels(steps, r['shift'], last, r['share'])
    x = r['x_0']
    for i in range(last + 1):
        before = x
        if i < first:
            step = sigmas[i + 1] - sigmas[i]
            x = [a + step * b for a, b in zip(x, velocity(r, x))]
        else:
            x = noisy_step(r, x, sigmas[i], sigmas[i + 1], sigmas[1], r['noise'][i - first])
    r['x_last'] = before
    r['path'] = behind_the_window(r, sigmas, last, x, before if carry else None)
    return r


def published_path(module, r):
    """The same by the public code."""
    import torch
    noise = iter(r['noise'])
    module.randn_tensor = lambda shape, **_: torch.tensor([next(noise)])
    module.tqdm = lambda steps, **_: steps
    steps = r['steps']
    fixed = [not r['first'] <= i <= r['last'] for i in range(steps)]
    stochastic = module.flow_grpo_step

    def step(**keys):  # It draws noise for deterministic steps, too, and leaves it.
        if keys['determistic']:
            drawn, module.randn_tensor = module.randn_tensor, lambda shape, **_: torch.zeros(shape)
            try:
                return stochastic(**keys)
            finally:
                module.randn_tensor = drawn
        return stochastic(**keys)

    module.flow_grpo_step = step
    args = argparse.Namespace(
        dpm_algorithm_type='dpmsolver++', dpm_solver_order=2, dpm_apply_strategy='post',
        sample_strategy='progressive', dpm_post_compress_ratio=r['share'], shift=r['shift'],
        flow_grpo_sampling=True, eta=r['eta'], dpm_solver_type=r['kind'], drop_last_sample=False)

    class Network:
        def eval(self):
            pass

        def __call__(self, hidden_states, **_):
            return (torch.tanh(r['slope'] * hidden_states) + r['offset'],)

    schedule = module.sd3_time_shift(r['shift'], torch.linspace(1, 0, steps + 1))
    try:
        latents = module.run_sample_step(
            args, torch.tensor([r['x_0']]), range(steps), schedule, Network(), torch.zeros(1, 1, 1),
            None, torch.zeros(1, 1), None, True, fixed)[2]
    finally:
        module.flow_grpo_step = stochastic
    return latents[0].tolist()


def compare(checkout, records):
    import importlib.util
    import pathlib
    import sys
    import types
    for name in ('diffusers', 'diffusers.utils', 'diffusers.utils.torch_utils', 'tqdm'):
        sys.modules[name] = types.ModuleType(name)  # The parts that it takes of both are replaced below.
    sys.modules['diffusers.utils.torch_utils'].randn_tensor = None
    sys.modules['tqdm'].tqdm = None
    spec = importlib.util.spec_from_file_location(
        'sampling_utils', pathlib.Path(checkout) / 'fastvideo/utils/sampling_utils.py')
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    torch = module.torch

    class Wide:  # As torch, but what is named float32 there has 64 bits.
        float32 = torch.float64

        def __getattr__(self, name):
            return getattr(torch, name)

    torch.set_default_dtype(torch.float64)
    module.torch = Wide()
    worst, compared = 0, 0
    for r in records:
        if not r['carry'] or (r['steps'] - r['last']) * r['share'] < 2:
            continue  # The public code always carries, and stops early where one step is left.
        theirs = published_path(module, r)
        assert len(theirs) == len(r['sigmas']), (len(theirs), len(r['sigmas']))
        compared += 1
        for mine, other in zip(r['path'], theirs[r['last'] + 1:]):
            for a, b in zip(mine, other):
                worst = max(worst, abs(a - b) / max(1, abs(a)))
    print(f'{compared} paths, largest difference {worst:.2g}')


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument('seed', type=int)
    parser.add_argument('out')
    parser.add_argument('--mixgrpo', help='a checkout of the public code')
    options = parser.parse_args()
    rng = random.Random(options.seed)
    records = [record_of(rng, kind, carry) for _ in range(6) for kind in ('midpoint', 'heun')
               for carry in (True, False)]
    with open(options.out, 'w') as out:
        json.dump(dict(compression=records), out)
        out.write('\n')
    if options.mixgrpo:
        compare(options.mixgrpo, records)


main()
