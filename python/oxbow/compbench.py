# SPDX-License-Identifier: Apache-2.0
"""Scores pictures of T2I-CompBench by its own evaluators, and gathers what they say into one table.

    oxbow eval RUN --set t2i-compbench --export-images PICTURES
    oxbow compbench PICTURES --repository T2I-CompBench --python ITS_ENVIRONMENT/bin/python

The repository is github.com/Karine-Huang/T2I-CompBench (arXiv:2307.06350), with the weights that its Readme names. Its scripts
write beside the pictures; a category whose result is newer than its pictures is not scored again.
"""
from __future__ import annotations

import argparse
import json
import math
import shutil
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path

from .bench import EXIT_DATA, EXIT_FAILURE, EXIT_UNAVAILABLE, EXIT_USAGE, Refused
from .bench.command import exit_code_of, write_whole
from .command_line import end_with

SHOWN_LINES = 12  # The last ones of a script that fails.


@dataclass(frozen=True)
class Script:
    path: str    # In the repository; it runs in its own folder, where its imports and weights are.
    folder: str  # The option that takes a category's folder.
    result: str  # The folder of vqa_result.json, in a category's.
    more: tuple[str, ...] = ()


BLIP = Script("BLIPvqa_eval/BLIP_vqa.py", "--out_dir", "annotation_blip")
PLANE = Script("UniDet_eval/2D_spatial_eval.py", "--outpath", "labels/annotation_obj_detection_2d")
SPACE = Script("UniDet_eval/3D_spatial_eval.py", "--outpath", "labels/annotation_obj_detection_3d")
COUNT = Script("UniDet_eval/numeracy_eval.py", "--outpath", "annotation_num")
CLIP = Script("CLIPScore_eval/CLIP_similarity.py", "--outpath", "annotation_clip")
MIXED = Script("3_in_1_eval/3_in_1.py", "--outpath", "annotation_3_in_1")
COMPLEX = tuple(Script(one.path, one.folder, one.result, ("--complex=True",)) for one in (PLANE, CLIP))

# The measure of a category, and its scripts; the last one's result is the category's.
CATEGORIES: dict[str, tuple[str, tuple[Script, ...]]] = {
    "color": ("BLIP-VQA", (BLIP,)),
    "shape": ("BLIP-VQA", (BLIP,)),
    "texture": ("BLIP-VQA", (BLIP,)),
    "spatial": ("UniDet", (PLANE,)),
    "3d_spatial": ("UniDet", (SPACE,)),
    "numeracy": ("UniDet", (COUNT,)),
    "non_spatial": ("CLIPScore", (CLIP,)),
    "complex": ("3-in-1", (BLIP, *COMPLEX, MIXED)),
}


def pictures_of(category: Path) -> list[Path]:
    samples = category / "samples"
    return sorted(samples.iterdir()) if samples.is_dir() else []


def answers_of(result: Path, pictures: int) -> list[float]:
    """The score of each picture. Refused where there are not as many, or one is no number."""
    try:
        answers = [float(one["answer"]) for one in json.loads(result.read_text())]
    except (ValueError, KeyError, TypeError):
        raise Refused(EXIT_DATA, f"not a list of answers with a number each: {result}") from None
    if len(answers) != pictures or not all(map(math.isfinite, answers)):
        raise Refused(EXIT_DATA, f"{len(answers)} answers for {pictures} pictures, or some are no numbers: {result}")
    return answers


def run(script: Script, category: Path, repository: Path, python: str) -> None:
    """Runs a script; what it says goes to a file beside the pictures. Refused with its last lines where it fails."""
    path = repository / script.path
    log = category / f"{path.stem}.log"
    words = [python, path.name, f"{script.folder}={category}", *script.more]
    print(f"{category.name}: {script.path}", file=sys.stderr, flush=True)
    with log.open("w") as said:
        code = subprocess.run(words, cwd=path.parent, stdout=said, stderr=subprocess.STDOUT, check=False).returncode
    if code == 0 and (category / script.result / "vqa_result.json").is_file():
        return
    last = "\n".join("  " + line for line in log.read_text(errors="replace").splitlines()[-SHOWN_LINES:])
    how = f"ended with {code}" if code else f"wrote no {script.result}/vqa_result.json"
    raise Refused(EXIT_FAILURE, f"{category.name}: {script.path} {how}; {log} has\n{last}")


def score(category: Path, scripts: tuple[Script, ...], repository: Path, python: str) -> tuple[float, int]:
    """The mean score of a category's pictures and their number. Once a script has run, those after it run again."""
    pictures = pictures_of(category)
    drawn = max(picture.stat().st_mtime for picture in pictures)
    stale = False
    for script in scripts:
        result = category / script.result / "vqa_result.json"
        stale = stale or not result.is_file() or result.stat().st_mtime < drawn
        if not stale:
            continue
        depth = category / "labels/depth"
        if script is SPACE and depth.is_dir() and depth.stat().st_mtime < drawn:
            shutil.rmtree(depth)  # It would take those of other pictures.
        run(script, category, repository, python)
    answers = answers_of(category / scripts[-1].result / "vqa_result.json", len(pictures))
    return sum(answers) / len(answers), len(answers)


def table_of(scores: dict[str, tuple[float, int]]) -> str:
    lines = [f"{'category':12}  {'measure':10}  {'score':>7}  {'n':>6}"]
    lines += [f"{name:12}  {CATEGORIES[name][0]:10}  {value:7.4f}  {count:6}" for name, (value, count) in scores.items()]
    return "\n".join(lines) + "\n"


def compbench(args: argparse.Namespace) -> None:
    pictures, repository = args.PICTURES.absolute(), args.repository.absolute()
    there = [name for name in CATEGORIES if pictures_of(pictures / name)]
    if not there:
        raise Refused(EXIT_USAGE, f"no CATEGORY/samples with pictures, as `oxbow eval --set t2i-compbench --export-images` writes: {pictures}")
    for path in {script.path for name in there for script in CATEGORIES[name][1]}:
        if not (repository / path).is_file():
            raise Refused(EXIT_USAGE, f"--repository: no clone of Karine-Huang/T2I-CompBench, {path} is missing: {repository}")
    if shutil.which(args.python) is None:
        raise Refused(EXIT_UNAVAILABLE, f"--python: no program that can be run: {args.python}")
    scores = {name: score(pictures / name, CATEGORIES[name][1], repository, args.python) for name in there}
    print(table_of(scores), end="", flush=True)
    rows = {name: {"measure": CATEGORIES[name][0], "score": value, "pictures": count} for name, (value, count) in scores.items()}
    write_whole(args.out or pictures / "compbench.json", json.dumps(rows, indent=1) + "\n")


def main(arguments: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser("oxbow compbench", description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("PICTURES", type=Path, help="directory of CATEGORY/samples")
    parser.add_argument("--repository", type=Path, required=True, help="clone of T2I-CompBench, with its weights")
    parser.add_argument("--python", default=sys.executable, help="interpreter with what it imports (default: this one)")
    parser.add_argument("--out", type=Path, help="file of the scores (default: PICTURES/compbench.json)")
    return exit_code_of("oxbow compbench", lambda: compbench(parser.parse_args(arguments)))


if __name__ == "__main__":
    end_with(main)
