#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""The first hour of a stranger at real picture sizes, with the real programs: what would they see?

    tests/real_sizes/run.py BUILD [--only sd3 flux wan mistakes] [--keep DIR] [--without proxy lora]

Narrow random pipelines that diffusers makes (models.py) go the whole way: fetch, validate, train, kill and resume, report,
watch, compare, trackers, exports, and diffusers again. The Python that runs this has tools/requirements/export.txt; the
trackers' Python serves the reward and follows. --keep leaves all files in DIR. --without leaves out what is broken, to see
what lies behind it. The last line is `real: N passed, N failed`.
"""
# Promise: A first run looks as at real sizes. At 512 x 512 pixels, and with clips of 240 x 416 x 17
# frames, every held-out picture is a file of full size and on the pages, an evaluation of 64 writes
# under 12 MB and the page has under 6 MB. Prompts stay whole in any script. A terminal says
# something new at least every 10 s, and so does the output of a job without one, of `train`,
# `eval`, `sample`, `score`, `encode` and `export`. Looked at with narrow models on a CPU.
# Promise: Media are bounded before they come.
import argparse
import contextlib
import os
import sys
import tempfile
import threading
from pathlib import Path

os.environ |= {"HF_HUB_OFFLINE": "1", "TRANSFORMERS_VERBOSITY": "error"}
sys.path.insert(0, str(Path(__file__).parent))
import diffusers  # noqa: E402
import torch  # noqa: E402
import transformers  # noqa: E402

import mistakes  # noqa: E402
from findings import Findings  # noqa: E402
from walk import Walk  # noqa: E402
from world import ROOT, World  # noqa: E402


def sd3(walk):
    """The whole way, with an evaluation of 64 pictures."""
    walk.fetch()
    walk.validate()
    walk.train_killed_and_moved()
    walk.check_files()
    walk.check_report()
    walk.check_status()
    walk.check_watch()
    walk.check_sample()
    walk.check_python()
    walk.check_wandb()
    walk.check_exports()


def flux(walk):
    walk.world.put_into_hub("flux")
    walk.validate()
    walk.train()
    walk.check_files()
    walk.check_report()
    walk.check_exports()
    walk.check_lora_came_through()


def wan(walk):
    walk.validate()
    walk.train()
    walk.check_files()
    walk.check_report()
    walk.check_exports()


def walk_all(world, findings, only, endpoint):
    walks = {name: Walk(world, findings, name, endpoint) for name in ("sd3", "flux", "wan")}

    def others():
        for name, way in (("flux", flux), ("wan", wan)):
            if name in only:
                way(walks[name])
        if "mistakes" in only:
            mistakes.check(world, findings, endpoint)

    beside = threading.Thread(target=others)  # One core each.
    beside.start()
    if "sd3" in only:
        sd3(walks["sd3"])
    beside.join()
    if {"sd3", "flux"} <= set(only):
        walks["sd3"].check_compare(walks["flux"])


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("build", type=Path)
    parser.add_argument("--only", nargs="+", default=["sd3", "flux", "wan", "mistakes"])
    parser.add_argument("--keep", type=Path)
    parser.add_argument("--without", nargs="+", default=[], choices=["proxy", "lora"])
    parser.add_argument("--trackers", type=Path, default=ROOT / ".deps/python-trackers/bin/python")
    args = parser.parse_args()
    torch.set_num_threads(1)
    diffusers.utils.logging.set_verbosity_error()
    diffusers.utils.logging.disable_progress_bar()
    transformers.logging.set_verbosity_error()
    transformers.logging.disable_progress_bar()
    findings = Findings()
    with contextlib.ExitStack() as stack:
        folder = args.keep.absolute() if args.keep else Path(stack.enter_context(tempfile.TemporaryDirectory()))
        folder.mkdir(parents=True, exist_ok=True)
        world = World(args.build.absolute(), folder, args.trackers.absolute(), args.without)
        endpoint, server = world.serve_reward()
        stack.callback(server.kill)
        walk_all(world, findings, args.only, endpoint)
    sys.exit(0 if findings.sum() else 1)


if __name__ == "__main__":
    main()
