# SPDX-License-Identifier: Apache-2.0
"""The runs of a comparison of recipes."""
from __future__ import annotations

from dataclasses import dataclass
from itertools import product
from pathlib import Path
from typing import Any, Mapping

from . import EXIT_USAGE, Refused
from .plan_file import Placed, read_plan_file

RATE = "optimizer.learning_rate"


@dataclass(frozen=True)
class Run:
    recipe: str
    seed: int
    file: str
    settings: tuple[str, ...]  # Overrides, without those below.
    directory: Path
    rate: float = 0  # The learning rate it was planned with; 0: its recipe's.
    start: Path | None = None  # The run with whose weights it starts.

    @property
    def overrides(self) -> list[str]:
        rate = [f"{RATE}={self.rate:.15g}"] if self.rate else []
        return [*self.settings, *rate, f"run.seed={self.seed}", f"run.name={self.directory.name}", f"run.directory={self.directory.parent}"]


class Plan:
    """A file of comparisons (plan_file.SHAPE), in which a recipe with a grid is replaced by its points. `seeds`, if given, stands
    in place of the file's. Refused, with the place, for an error in it."""

    def __init__(self, path: Path, seeds: int | None = None):
        of = read_plan_file(path)
        of["seeds"] = seeds or of["seeds"]
        try:
            _check(of)
        except ValueError as why:
            raise Refused(EXIT_USAGE, f"{path}: {why}") from None
        self.source: str = of["source"]
        self.published: list[dict[str, Any]] = of["published"]
        self.name, self.baseline, self.seeds, self.first_seed = of["name"], of["baseline"], of["seeds"], of["first_seed"]
        self.level: float = of["level"]
        self.levels: list[float] = of["levels"]
        self.recipes: list[dict[str, Any]] = of["recipes"]  # Each also has `grid_of` and `point`.
        self._set, self._tuning = of["set"], of["tuning"]

    def runs(self, out: Path, rates: Mapping[str, float] | None = None) -> list[Run]:
        """The first seed of every recipe, then the second and so on, so that the finished runs are comparable at any time.
        `rates`: the learning rates of recipes that were tuned."""
        return [self._run(recipe, (), self.first_seed + i, (rates or {}).get(recipe["name"], 0), out, recipe["name"])
                for i in range(self.seeds) for recipe in self.recipes]

    def tuning(self, out: Path) -> list[Run]:
        """The runs that choose every recipe's learning rate; none where the plan has no tuning."""
        of = self._tuning
        return [self._run(recipe, of["set"], of["first_seed"] + i, rate, out / "tuning", f"{recipe['name']}-{rate:g}")
                for i in range(of["seeds"]) for recipe in self.recipes for rate in of["learning_rates"]] if of else []

    def _run(self, recipe: dict[str, Any], more: Any, seed: int, rate: float, out: Path, name: str) -> Run:
        start = out / f"{recipe['from']}-seed{seed}" if recipe["from"] else None
        return Run(recipe["name"], seed, recipe["file"], (*self._set, *recipe["set"], *more), out / f"{name}-seed{seed}", rate, start)


def _points(recipe: dict[str, Any]) -> list[dict[str, Any]]:
    """One recipe for each combination of the grid's values; the recipe itself if it has no grid."""
    if any(not axis["key"] or not axis["values"] for axis in recipe["grid"]):
        raise ValueError(f"recipes: {recipe['name']}: grid: needs a key and values")
    points = []
    for values in product(*(axis["values"] for axis in recipe["grid"])):
        keys = [axis["key"] for axis in recipe["grid"]]
        here = [(key.rpartition(".")[2], value) for key, value in zip(keys, values)]
        points.append({**recipe, "name": "".join([recipe["name"], *(f"-{leaf}-{value}" for leaf, value in here)]),
                       "set": [*recipe["set"], *(Placed.at(key.place, f"{key}={value}") for key, value in zip(keys, values))],
                       "grid_of": recipe["name"] if here else "", "point": ", ".join(f"{leaf} {value}" for leaf, value in here)})
    return points


def _check(of: dict[str, Any]) -> None:
    """Puts the points of every grid in place of their recipe. ValueError says what is wrong."""
    recipes = []
    for recipe in of["recipes"]:
        points = _points(recipe)
        if recipe["grid"] and recipe["name"] == of["baseline"]:
            raise ValueError(f"baseline: name one point of the grid, such as {points[0]['name']}")
        recipes += points
    of["recipes"] = recipes
    names = [recipe["name"] for recipe in recipes]
    if of["seeds"] == 0:
        raise ValueError("seeds: must be 1 or more")
    if not recipes:
        raise ValueError("recipes: there are none")
    for i, name in enumerate(names):
        if not name or "/" in name or " " in name:
            raise ValueError(f"recipes: a name is part of a directory's name: \"{name}\"")
        if name in names[:i]:
            raise ValueError(f"recipes: name repeats: {name}")
        if (start := recipes[i]["from"]) and start not in names[:i]:
            raise ValueError(f"recipes: {name}: from: is no earlier recipe: \"{start}\"")
    for number in of["published"]:
        if number["recipe"] not in names:
            raise ValueError(f"published: is no recipe: \"{number['recipe']}\"")
    if of["tuning"]:
        _check_tuning(of)
    if any(level <= 0 for level in of["levels"]):
        raise ValueError("levels: must be above 0")
    if of["baseline"] not in names:
        raise ValueError(f"baseline: is no recipe: \"{of['baseline']}\"")


def _check_tuning(of: dict[str, Any]) -> None:
    """Seeds that chose a rate must not judge it."""
    tuning = of["tuning"]
    rates = [f"{rate:g}" for rate in tuning["learning_rates"]]
    if not rates or tuning["seeds"] == 0:
        raise ValueError("tuning: needs learning_rates and seeds")
    for i, rate in enumerate(tuning["learning_rates"]):
        if not rate > 0 or rates[i] in rates[:i]:
            raise ValueError(f"tuning.learning_rates: must be above 0 and differ in six digits: {rate:g}")
    for recipe in of["recipes"]:
        if recipe["from"]:
            raise ValueError(f"recipe {recipe['name']}: a recipe with `from` cannot be tuned: its start would be of another rate")
        for one in recipe["set"]:
            if one.startswith(RATE + "="):
                raise ValueError(f"recipe {recipe['name']}: {one} would be overridden by the rate that tuning chooses: leave one out")
    if tuning["first_seed"] < of["first_seed"] + of["seeds"] and of["first_seed"] < tuning["first_seed"] + tuning["seeds"]:
        raise ValueError("tuning.first_seed: a seed is used for tuning and for the comparison: "
                         f"{tuning['first_seed']} + {tuning['seeds']} and {of['first_seed']} + {of['seeds']}")
