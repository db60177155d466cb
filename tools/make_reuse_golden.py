#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Float64 golden vectors of forms of reuse and of GSPO's ratio.

An independent implementation of the formulas in docs/methods/reuse.md and docs/methods/gspo.md. It
shares no code with the product: a run is followed step by step and remembers all its plans, means
over Beta distributions are exact fractions, the subset of greatest variance is found among all
subsets, and gradients are written out by hand. `make_reuse_golden.py SEED OUT.json` draws random
inputs from SEED. Needs no package.
"""
import itertools
import json
import math
import random
import sys
from fractions import Fraction


def need_record(rng):
    """Plans of a run: step s is planned after max(0, s - ahead) committed steps."""
    ahead, heads_max, steps = rng.randint(0, 3), rng.randint(1, 16), rng.randint(1, 12)
    shares = [None if rng.random() < 0.15 else rng.randint(0, 8) / 8 for _ in range(steps)]
    rewards = [rng.random() for _ in range(steps)]
    need, success = [1.0], [0.0]  # After so many committed steps.
    for share, reward in zip(shares, rewards):
        fresh = share is not None
        need.append(0.6 * need[-1] + 0.4 * share if fresh else need[-1])
        success.append(0.6 * success[-1] + 0.4 * reward if fresh else success[-1])
    planned = []
    for step in range(steps + ahead + 1):
        of_plan = min(1.0, max(0.0, 2 * need[max(0, step - ahead)] - 0.5))
        if abs(heads_max * of_plan % 1 - 0.5) < 1e-9:
            return need_record(rng)  # Rounding would decide.
        planned.append(math.floor(heads_max * of_plan + 0.5))
    return {'ahead': ahead, 'heads_max': heads_max, 'without_signal': shares, 'rewards': rewards,
            'need': need, 'success_rate': success, 'heads': planned}


def imitation_record(rng):
    reward, rate, limit = rng.random(), rng.random(), rng.uniform(0.5, 4)
    advantage = (reward - rate) / math.sqrt(rate - rate * rate + 0.01)
    fresh, added, weight = rng.choice([0, 8, 16, 40]), rng.choice([0, 4, 16]), rng.uniform(0, 2)
    scale = min(1.0, weight * fresh / added) if added else 0.0
    return {'reward': reward, 'rate': rate, 'limit': limit,
            'advantage': min(max(advantage, 0.0), limit), 'fresh': fresh, 'added': added,
            'weight_max': weight, 'scale': scale}


def learnability_record(rng):
    """E[p] - E[p^2] of p ~ Beta(a, b): E[p^k] is a quotient of rising factorials."""
    successes, failures = rng.randint(0, 12), rng.randint(0, 12)
    a, n = Fraction(1 + successes), Fraction(2 + successes + failures)
    mean = a / n - a * (a + 1) / (n * (n + 1))
    return {'successes': successes, 'failures': failures, 'mean': float(mean)}


def variance(values):
    mean = sum(values) / len(values)
    return sum((value - mean) ** 2 for value in values) / len(values)


def draws_record(rng):
    count, drawn = rng.randint(1, 9), rng.randint(1, 5)
    entries = [{'id': 10 + i, 'birth': rng.randint(0, 4), 'value': rng.randint(0, 4) / 4} for i in range(count)]
    rng.shuffle(entries)
    order = sorted(entries, key=lambda e: (-e['value'], -e['birth'], e['id']))
    size = min(drawn, count)
    # The greatest sum where variances are equal. In eighths all is exact.
    best = max(itertools.combinations([e['value'] for e in order], size),
               key=lambda values: (Fraction(variance([Fraction(v) for v in values])), sum(values)))
    return {'entries': entries, 'count': drawn, 'best': [e['id'] for e in order[:size]],
            'varied_values': sorted(best, reverse=True)}


def gspo_record(rng):
    """Paths of one to five trained steps: a loss for each row, and the gradient of their sum."""
    low, high = rng.uniform(0.05, 0.3), rng.uniform(0.05, 0.3)
    paths, losses, gradients = [], [], []
    for _ in range(rng.randint(1, 4)):
        steps = rng.randint(1, 5)
        new = [rng.uniform(-1, 1) for _ in range(steps)]
        old = [value + rng.uniform(-0.5, 0.5) for value in new]
        advantage, weight = rng.choice([-1, 1]) * rng.uniform(0.2, 2), rng.uniform(0.3, 1.2)
        ratio = math.exp(math.fsum(n - o for n, o in zip(new, old)) / steps)
        free, held = -advantage * ratio, -advantage * min(max(ratio, 1 - low), 1 + high)
        # The sum has the loss `steps` times, and each log-prob has a share of 1 / steps in the ratio.
        silent = held > free
        losses += [weight * max(free, held)] * steps
        gradients += [0.0 if silent else weight * free] * steps
        paths.append({'new': new, 'old': old, 'advantage': advantage, 'weight': weight})
    return {'low': low, 'high': high, 'paths': paths, 'losses': losses, 'gradients': gradients}


def main():
    rng = random.Random(int(sys.argv[1]))
    records = {'need': need_record, 'imitation': imitation_record, 'learnability': learnability_record,
               'draws': draws_record, 'gspo': gspo_record}
    golden = {name: [record(rng) for _ in range(40)] for name, record in records.items()}
    with open(sys.argv[2], 'w', encoding='utf-8') as out:
        json.dump(golden, out, indent=0)
        out.write('\n')


if __name__ == '__main__':
    main()
