# SPDX-License-Identifier: Apache-2.0
"""Trains every recipe of a comparison with every seed, and writes steps, time and cost to a level.

    oxbow bench learning PLAN

Finished runs are not trained again. The environment variable OXBOW_PROGRAM names the oxbow command that trains.
"""
from __future__ import annotations

import argparse
import errno
import os
import secrets
import shutil
import sys
from pathlib import Path
from typing import Callable

from ..command_line import end_with
from . import EXIT_FULL, EXIT_UNAVAILABLE, Refused
from .comparison import Arm, Comparison
from .curve import curve_of
from .page import page, picture
from .plan import Plan
from .shares import shares_table
from .tables import learning_table
from .training import Trainer, curve_at, lines_of
from .tuning import best_rates, tuning_table


def bench(args: argparse.Namespace) -> None:
    plan = Plan(args.PLAN, args.seeds)
    plan.level = args.level or plan.level
    out = args.out or Path("runs/bench") / plan.name
    trainer = Trainer(Path(os.environ.get("OXBOW_PROGRAM") or shutil.which("oxbow") or "oxbow"))
    tuning = plan.tuning(out)
    trainer.resolve(plan.runs(out) + tuning)
    (out / "tuning").mkdir(parents=True, exist_ok=True)
    if not args.table_only:
        trainer.train(tuning, args.jobs)
    scores: dict[tuple[str, float], list[float]] = {}
    for run in tuning:
        of = scores.setdefault((run.recipe, run.rate), [])
        if trainer.is_finished(run):
            of.append(curve_at(run).mean_reward)
    runs = plan.runs(out, best_rates(scores))
    if not args.table_only:
        trainer.train(runs, args.jobs)
    finished = [run for run in runs if trainer.is_finished(run)]
    arms, lines = [], {}
    for recipe in plan.recipes:
        of_recipe = [run for run in finished if run.recipe == recipe["name"]]
        lines[recipe["name"]] = [lines_of(run) for run in of_recipe]
        arms.append(Arm(recipe["name"], [curve_of(one) for one in lines[recipe["name"]]], [run.seed for run in of_recipe], recipe["note"],
                        recipe["grid_of"], recipe["point"]))
    comparison = Comparison(plan.name, plan.baseline, arms, plan.level, plan.levels)
    tables = (tuning_table(scores) + "\n" if tuning else "") + learning_table(comparison) + shares_table(lines)
    write_whole(out / "learning.md", tables)  # First: a picture may fail.
    drawing = picture(comparison)
    write_whole(out / "learning.html", page(plan.name, tables, drawing))
    if drawing:
        write_whole(out / "learning.svg", drawing)
    print(tables, end="", flush=True)
    print(f"written to {out / 'learning.md'}, learning.html and learning.svg", file=sys.stderr)


def write_whole(path: Path, text: str) -> None:
    """The file appears whole or not at all. OSError names it."""
    whole = path.with_name(f"{path.name}.tmp.{secrets.token_hex(8)}")  # As src/base/file.h names it.
    try:
        whole.write_text(text, encoding="utf-8")
        os.replace(whole, path)
    except OSError as why:  # A write that finds the disk full names no file.
        raise OSError(why.errno, why.strerror, str(path)) from None
    finally:
        whole.unlink(missing_ok=True)


def exit_code_of(command: str, work: Callable[[], None]) -> int:
    """Does the work; an error is one line of the command and its exit code."""
    try:
        work()
    except Refused as why:
        print(f"{command}: {why}", file=sys.stderr)
        return why.code
    except BrokenPipeError:
        raise
    except OSError as why:
        print(f"{command}: {why.strerror or why}{f': {why.filename}' if why.filename else ''}", file=sys.stderr)
        return EXIT_FULL if why.errno in (errno.ENOSPC, errno.EDQUOT) else EXIT_UNAVAILABLE
    except KeyboardInterrupt:
        return 130
    return 0


def at_least_one(text: str) -> int:
    if not 1 <= int(text) <= 1000:
        raise ValueError
    return int(text)


def main(arguments: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser("oxbow bench learning", description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("PLAN", type=Path, help="comparison, a YAML file")
    parser.add_argument("--out", type=Path, help="directory of runs and table (default: runs/bench/NAME)")
    parser.add_argument("--seeds", type=at_least_one, help="seeds of each recipe (default: the plan's)")
    parser.add_argument("--level", type=float, help="held-out reward to reach (default: the plan's, or the baseline's at its end)")
    parser.add_argument("--jobs", type=at_least_one, default=1, help="runs that train at once; times are comparable with 1 alone")
    parser.add_argument("--table-only", action="store_true", help="train nothing, show what is finished")
    return exit_code_of("oxbow bench learning", lambda: bench(parser.parse_args(arguments)))


if __name__ == "__main__":
    end_with(main)
