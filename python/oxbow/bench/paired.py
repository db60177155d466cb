# SPDX-License-Identifier: Apache-2.0
"""Two recipes compared by paired runs: pairs share a seed, so a difference is a recipe's and not the seed's."""
from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Callable, Sequence

import numpy as np
from numpy.typing import NDArray

from .curve import Numbers

EXACT_MAX = 20   # Pairs; a million assignments.
SLACK = 1e-12    # Equal sums may differ by rounding.
RESAMPLES, FLIPS = 2000, 100_000


def drawn(bound: int, count: int, n: int) -> NDArray[np.int64]:
    """[count, n] whole numbers below `bound`, the same in every call."""
    return np.random.default_rng((1, n)).integers(bound, size=(count, n))


def sign_flip_p(differences: Sequence[float]) -> float:
    """Two-sided p of the mean difference by sign flips: the share of all 2^n assignments of signs whose mean is at least as far
    from 0 as the one observed, that one included. All are counted up to 20 pairs; beyond, some are drawn, and p is
    (hits + 1) / (drawn + 1). 1 for no pairs. With n pairs it is at least 2^(1-n): of 8 pairs that all agree it is .0078."""
    of = np.asarray(differences, np.float64)
    observed = abs(of.sum()) - SLACK * np.abs(of).sum()
    if len(of) > EXACT_MAX:
        sums = np.where(drawn(2, FLIPS, len(of)) == 0, of, -of).sum(axis=1)
        return float((np.count_nonzero(np.abs(sums) >= observed) + 1) / (FLIPS + 1))
    sums = np.zeros(1)
    for one in of:
        sums = np.concatenate([sums + one, sums - one])
    return float(np.mean(np.abs(sums) >= observed))


@dataclass(frozen=True)
class Interval:
    ratio: float
    low: float
    high: float


def bootstrap(n: int, statistic: Callable[[NDArray[np.int64]], Numbers]) -> Interval | None:
    """A statistic of n items with its 95 % interval: percentiles 2.5 and 97.5 over samples of the items with replacement.

    `statistic` takes samples [k, n] of items' numbers and gives k values; NaN: this sample has none, and it is left out. One
    that depends on an estimated quantity (a level that is a mean over the same runs) computes it from the sample, so that its
    uncertainty is inside the interval. None where the items themselves have no value. Repeatable."""
    if n == 0 or np.isnan(value := statistic(np.arange(n)[None])[0]):
        return None
    values = np.sort(statistic(drawn(n, RESAMPLES, n)))
    values = values[~np.isnan(values)]
    low, high = (values[int(q * (len(values) - 1) + 0.5)] for q in (0.025, 0.975))
    return Interval(float(value), float(low), float(high))


def differences_at_equal(cost: Any, baseline_cost: Any, covariate: Any, baseline_covariate: Any) -> Numbers:
    """The pairs' differences in cost at equal covariates (analysis of covariance), over the last axis: the differences less b
    times those of the covariates, where b is the slope of costs over covariates, of both runs of all pairs, each around the
    mean of its own recipe. b is 0 where no covariate varies. They are not independent, since all have the same b: bootstrap
    what is made of them."""
    x, y = (np.stack(two) for two in ((covariate, baseline_covariate), (cost, baseline_cost)))
    x_around, y_around = (of - of.mean(axis=-1, keepdims=True) for of in (x, y))
    squares = (x_around**2).sum(axis=(0, -1), keepdims=True)[0]
    products = (x_around * y_around).sum(axis=(0, -1), keepdims=True)[0]
    slope = np.divide(products, squares, out=np.zeros_like(products), where=squares > 0)
    return np.asarray(y[0] - y[1] - slope * (x[0] - x[1]))
