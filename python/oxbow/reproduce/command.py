# SPDX-License-Identifier: Apache-2.0
"""Trains the runs of a published comparison, and sets our curves beside the numbers of the document.

    oxbow reproduce PLAN --gpus 8

First each run is checked: weights, prompts, rewards, memory and disk. Finished runs are not trained again, and one that was
stopped goes on. The environment variable OXBOW_PROGRAM names the oxbow command that trains.
"""
from __future__ import annotations

import argparse
import os
import re
import shutil
import sys
from collections import Counter
from dataclasses import replace
from pathlib import Path

from ..bench import EXIT_USAGE, Refused
from ..bench.command import at_least_one, exit_code_of, write_whole
from ..bench.comparison import Arm, Comparison
from ..bench.curve import curve_of
from ..bench.page import page
from ..bench.plan import Plan, Run
from ..bench.shares import shares_table
from ..bench.tables import learning_table
from ..bench.training import Trainer, environment_of_runs, lines_of
from ..command_line import end_with
from . import checks, narrow
from .page import drawing, published_table

CHECKOUT = Path(__file__).resolve().parents[3]


def reproduce(args: argparse.Namespace) -> None:
    plan = Plan(args.PLAN, args.seeds)
    if not plan.source:
        raise Refused(EXIT_USAGE, f"{args.PLAN}: source: is missing: a plan that reproduces names its document; `oxbow bench learning` takes others")
    out = args.out or Path("runs/reproduce") / (plan.name + ("-tiny" if args.tiny else ""))
    count, machine = _machine(args)
    environment = environment_of_runs()
    program = Path(os.environ.get("OXBOW_PROGRAM") or shutil.which("oxbow") or "oxbow")
    if count and not machine:
        checks.take_gpus(count, environment)
    trainer = Trainer(program, resumes=True, environment=environment)
    runs = [replace(run, settings=(*run.settings, *args.set)) for run in plan.runs(out)]
    trainer.resolve(runs)
    if args.tiny:
        runs = [replace(run, settings=(*run.settings, *narrow.settings_of(trainer.config_of(run), CHECKOUT, out.absolute() / "networks")))
                for run in runs]
        trainer.resolve(runs)
    print(f"{plan.name}: {plan.source}")
    first: dict[str, Run] = {}
    for run in runs:
        first.setdefault(run.recipe, run)
    _check(trainer, [checks.needs_of(program, run, machine, environment) for run in first.values()], runs,
           0 if args.tiny else count or 8, out)
    if args.check:
        return
    out.mkdir(parents=True, exist_ok=True)
    trainer.train(runs, 1, lambda: _write_page(plan, trainer, runs, out))
    print(_write_page(plan, trainer, runs, out), end="", flush=True)
    print(f"written to {out / 'reproduced.md'}, reproduced.html and reproduced.svg", file=sys.stderr)


def _machine(args: argparse.Namespace) -> tuple[int, str]:
    """How many GPUs to take (0: what there is), and NUMBERxGIB where another machine is meant."""
    if args.gpus is None:
        return 0, ""
    of = re.fullmatch(r"([1-9]\d*)(x[1-9]\d*)?", args.gpus)
    if not of:
        raise Refused(EXIT_USAGE, f"--gpus: expected a number such as 8, or 8x80 with --check, got \"{args.gpus}\"")
    if of[2] and not args.check:
        raise Refused(EXIT_USAGE, f"--gpus {args.gpus}: GPUs with their GiB are those of another machine: add --check, or write --gpus {of[1]}")
    return int(of[1]), args.gpus if of[2] else ""


def _check(trainer: Trainer, needs: list[checks.Needs], runs: list[Run], gpus: int, out: Path) -> None:
    """Prints what each recipe takes, hours on so many GPUs (0: no hours). Refused where one that is not finished cannot run."""
    hours = {one.run.recipe: checks.hours_of(one.run, trainer.config_of(one.run)["run.steps"],
                                             trainer.config_of(replace(one.run, settings=()))["run.steps"], gpus) for one in needs}
    print(checks.needs_table(needs, hours), flush=True)
    checks.refuse_what_is_missing(needs, Counter(run.recipe for run in runs if not trainer.is_finished(run)), out)


def _write_page(plan: Plan, trainer: Trainer, runs: list[Run], out: Path) -> str:
    """reproduced.md, .html and .svg of the runs that are finished, of the first seed where the document prints one curve. Returns the text."""
    finished = [run for run in runs if trainer.is_finished(run)]
    lines = {run.directory.name: lines_of(run) for run in finished}
    first: dict[str, list[dict[str, float]]] = {}
    for run in finished:
        first.setdefault(run.recipe, lines[run.directory.name])
    arms = [Arm(recipe["name"], [curve_of(lines[run.directory.name]) for run in of], [run.seed for run in of], recipe["note"])
            for recipe in plan.recipes for of in [[run for run in finished if run.recipe == recipe["name"]]]]
    text = (f"{plan.name}: {plan.source}\n" + published_table(plan.published, first)
            + "\n" + learning_table(Comparison(plan.name, plan.baseline, arms, plan.level, plan.levels))
            + shares_table({recipe: [lines[run.directory.name] for run in finished if run.recipe == recipe] for recipe in first}))
    write_whole(out / "reproduced.md", text)  # First: a picture may fail.
    picture = drawing(plan.name, plan.published, first)
    write_whole(out / "reproduced.html", page(plan.name, text, picture))
    if picture:
        write_whole(out / "reproduced.svg", picture)
    return text


def main(arguments: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser("oxbow reproduce", description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("PLAN", type=Path, help="published comparison, a YAML file with `source`")
    parser.add_argument("--gpus", help="GPUs of this machine to take (default: all); with --check also NUMBERxGIB of another machine")
    parser.add_argument("--out", type=Path, help="directory of runs and page (default: runs/reproduce/NAME)")
    parser.add_argument("--seeds", type=at_least_one, help="seeds of each recipe (default: the plan's)")
    parser.add_argument("--set", action="append", default=[], metavar="KEY=VALUE", help="override for every run: prompts.train=DIRECTORY")
    parser.add_argument("--tiny", action="store_true", help="random narrow networks, small pictures, two steps: whether the plan runs")
    parser.add_argument("--check", action="store_true", help="train nothing, say what the plan takes and what is missing")
    return exit_code_of("oxbow reproduce", lambda: reproduce(parser.parse_args(arguments)))


if __name__ == "__main__":
    end_with(main)
