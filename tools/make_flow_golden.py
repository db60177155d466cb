#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Float64 golden vectors of the sampler that are not in make_golden.py's records.

An independent NumPy implementation written from the formulas; it shares no code with the product.
`make_flow_golden.py SEED OUT.json` draws random inputs from SEED.
"""
import json
import math
import sys

import numpy as np

LOG_SQRT_2PI = 0.5 * np.log(2.0 * np.pi)


def shift(s, t):
    return s * t / (1.0 + (s - 1.0) * t)


def floats(values):
    return [float(v) for v in np.asarray(values).ravel()]


# flow_grpo's noise schedule for Wan2.1: std is linear from the second level to the last.
def wan_step(x, v, z, s, s2, sigma_1):
    std = 0.0 + (sigma_1 - 0.0) * s
    dt = s2 - s
    mean = x * (1.0 + std**2 / (2.0 * s) * dt) + v * (1.0 + std**2 * (1.0 - s) / (2.0 * s)) * dt
    scale = std * np.sqrt(-dt)
    x2 = mean + scale * z
    logp = np.mean(-((x2 - mean) ** 2) / (2.0 * scale**2) - np.log(scale) - LOG_SQRT_2PI)
    return dict(std=float(std), mean=floats(mean), x_next=floats(x2), logp=float(logp))


# DPM-Solver++(2M) in its alpha/sigma form, as scheduling_dpmsolver_multistep states it.
def dpmpp_path(x, slope, offset, sigmas, kind):
    def lam(s):
        return math.log(1.0 - s) - math.log(s)

    previous = None
    for i in range(len(sigmas) - 1):
        s, s2 = sigmas[i], sigmas[i + 1]
        m0 = x - s * (slope * x + offset * s)
        two_point = s2 / s * x + (1.0 - s2 / s) * m0
        second_order = previous is not None and i + 2 < len(sigmas) and sigmas[i - 1] < 1.0 and s2 > 0.0
        if not second_order:
            x = two_point
        else:
            h, h_prev = lam(s2) - lam(s), lam(s) - lam(sigmas[i - 1])
            d1 = (m0 - previous) / (h_prev / h)
            x = s2 / s * x - (1.0 - s2) * (math.exp(-h) - 1.0) * m0
            if kind == "midpoint":
                x = x - 0.5 * (1.0 - s2) * (math.exp(-h) - 1.0) * d1
            else:
                x = x + (1.0 - s2) * ((math.exp(-h) - 1.0) / h + 1.0) * d1
        previous = m0
    return x


class SlidingWindow:
    """MixGRPO's window as the published state machine: one update per iteration."""

    def __init__(self, strategy, end, size, stride, hold):
        self.strategy, self.end, self.size, self.stride = strategy, end, size, stride
        self.hold, self.hold_min = hold, max(1, hold // 4)
        self.cur, self.count = 0, 0

    def limit(self):
        if self.strategy == "decay":
            p = self.cur / self.end
            return max(self.hold_min, int(self.hold * (1 - p) + self.hold_min * p))
        if self.strategy == "exp_decay":
            return int(math.ceil(self.hold * math.exp(-0.1 * max(0, self.cur - 13))))
        return self.hold

    def take(self):
        window = [self.cur, min(self.cur + self.size, self.end)]
        self.count += 1
        if self.count >= self.limit():
            self.count = 0
            self.cur += self.stride
            if self.cur > self.end - 1:
                self.cur = 0
        return window


def main():
    rng = np.random.default_rng(int(sys.argv[1]))
    out = dict(wan_steps=[], dpmpp_paths=[], dynamic_shift=[], windows=[])
    for _ in range(4):
        d = int(rng.integers(4, 20))
        x, v, z = rng.normal(size=(3, d))
        s = float(rng.uniform(0.1, 0.95))
        s2, sigma_1 = float(s * rng.uniform(0.4, 0.95)), float(rng.uniform(0.9, 0.99))
        out["wan_steps"].append(dict(x=floats(x), v=floats(v), z=floats(z), s=s, s_next=s2, sigma_1=sigma_1,
                                     **wan_step(x, v, z, s, s2, sigma_1)))
    for kind in ("midpoint", "heun"):
        for n, sh in ((3, 1.0), (8, 3.0), (20, 5.0)):
            sigmas = np.append(shift(sh, np.linspace(1.0, 1.0 / n, n)), 0.0)
            x = rng.normal(size=5)
            slope, offset = float(rng.uniform(-0.5, 0.8)), float(rng.uniform(-1, 1))
            out["dpmpp_paths"].append(dict(kind=kind, sigmas=floats(sigmas), x=floats(x), slope=slope, offset=offset,
                                           x_end=floats(dpmpp_path(x, slope, offset, sigmas, kind))))
    for tokens, base, top, first, last in ((1024, .5, 1.15, 256, 4096), (2025, .5, 1.15, 256, 4096), (4096, .5, 1.16, 256, 4096),
                                           (300, .4, 1.3, 128, 1024)):
        m = (top - base) / (last - first)
        out["dynamic_shift"].append(dict(tokens=tokens, base_shift=base, max_shift=top, base_tokens=first, max_tokens=last,
                                         shift=math.exp(m * tokens + base - m * first)))
    for strategy in ("progressive", "decay", "exp_decay"):
        for end, size, stride, hold in ((23, 4, 1, 25), (8, 4, 1, 3), (8, 3, 3, 5), (9, 2, 4, 7)):
            window = SlidingWindow(strategy, end, size, stride, hold)
            out["windows"].append(dict(kind=strategy, end=end, size=size, stride=stride, hold=hold,
                                       windows=[window.take() for _ in range(480)]))
    with open(sys.argv[2], "w") as fh:
        fh.write("{\n" + ",\n".join(f' "{k}": [\n  ' + ",\n  ".join(json.dumps(r) for r in v) + "\n ]" for k, v in out.items()) + "\n}\n")


if __name__ == "__main__":
    main()
