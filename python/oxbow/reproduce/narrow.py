# SPDX-License-Identifier: Apache-2.0
"""A published plan in small: random networks of the published structure and a narrow width, few steps, small pictures.

The networks are those of the tests of a checkout: graphs, text encoders, tokenizers and reward networks are there, and the
rest of the weights is drawn. Nothing is learnt; each part that the plan names runs.
"""
from __future__ import annotations

import gzip
import json
import math
import shutil
from pathlib import Path
from typing import Any, Callable, Mapping

import numpy as np

from ..bench import EXIT_DATA, EXIT_UNAVAILABLE, EXIT_USAGE, Refused

SIDE, ROWS, STEPS, SIZE = 32, 64, 2, 4  # Pixels, rows of a pass, learner steps, pictures of a group.
PROMPTS, UPDATES_MAX = 64, 4
# The reward networks of the checkout's tests, by the name of the scorer.
SCORERS: dict[str, dict[str, str]] = {
    "geneval": {"model": "geneval/0", "head": "clip"}, "pickscore": {"model": "clip"}, "hpsv2": {"model": "open_clip"},
    "imagereward": {"model": "imagereward/0"}}


def settings_of(config: Mapping[str, Any], checkout: Path, folder: Path) -> list[str]:
    """Overrides that make a run of this resolved config small; its networks and prompts are written below `folder`. Refused: a
    network or a reward has no narrow form."""
    family, make = _family(str(config["model.path"]))
    if not (folder / family).exists():
        make(checkout, folder / family)
    settings = {
        "model.path": folder / family, "model.device": "cpu", "model.encoder_device": "cpu", "model.memory": "fast",
        "model.lora.rank": 2, "model.lora.alpha": 4,
        "prompts.train": _prompts(folder, "train", 0), "prompts.eval": _prompts(folder, "eval", PROMPTS), "prompts.cache": folder / "encoded",
        "prompts.t5_length": 48,
        "sampling.height": SIDE, "sampling.width": SIDE, "batch.rows_per_pass": ROWS,
        "run.steps": STEPS, "eval.every": STEPS, "eval.images": 4, "eval.steps": 2, "checkpoint.every": 1, "learner.ranks": 1,
        "services.rollout_workers": 1, "services.log_level": "warning"}
    # A tree has as many leaves as its splits make.
    settings["batch.group_size"] = max(SIZE, int(config.get("sampling.split_width") or 1) ** len(config.get("sampling.split_steps") or []))
    # A share of replayed groups stays one of at least one group.
    share = float(config.get("replay.fraction") or 0)
    updates = settings["batch.updates"] = min(int(config["batch.updates"]), UPDATES_MAX)
    settings["batch.groups"] = updates * math.ceil(max(2, 1 / share if share else 0) / updates)
    if config.get("eval.height"):
        settings |= {"eval.height": SIDE, "eval.width": SIDE}
    if config.get("sampling.frames"):
        settings["sampling.frames"] = 5
    if scorers := config.get("reward.scorers"):
        settings["reward.scorers"] = f"[{', '.join(_scorer(one, checkout) for one in scorers)}]"
    return [f"{key}={value}" for key, value in settings.items()]


def _scorer(of: Mapping[str, Any], checkout: Path) -> str:
    """The entry with a network of the tests; an engine without one stays."""
    narrow = SCORERS.get(of.get("scorer", of["name"]))
    if narrow is None and "model" in of:
        raise Refused(EXIT_USAGE, f"reward {of['name']} has no narrow network")
    keys = dict(of) | {key: checkout / "tests/golden/scorers" / path for key, path in (narrow or {}).items()}
    if "device" in keys:
        keys["device"] = "cpu"
    return "{" + ", ".join(f"{key}: {value}" for key, value in keys.items()) + "}"


def _prompts(folder: Path, name: str, first: int) -> Path:
    """PROMPTS of them from number `first` on that every reward can read: a quoted text, and the objects that GenEval asks for."""
    path = folder / f"{name}.jsonl"
    if not path.exists():
        things = ("boat", "oven", "dog", "clock", "apple", "bus", "kite", "cup")
        lines = [{"prompt": f'a photo of {1 + i % 3} {things[i % len(things)]} and the text "number {100 + i}"', "tag": "counting",
                  "include": [{"class": things[i % len(things)], "count": 1 + i % 3}]} for i in range(first, first + PROMPTS)]
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text("".join(json.dumps(line) + "\n" for line in lines), encoding="utf-8")
    return path


def _family(model: str) -> tuple[str, Callable[[Path, Path], None]]:
    for mark, family, make in (("stable-diffusion-3", "sd3", _sd3), ("FLUX.1", "flux", _flux), ("Wan2.1", "wan", _wan)):
        if mark in model:
            return family, make
    raise Refused(EXIT_USAGE, f"no narrow network of {model}: there are some of Stable Diffusion 3.5, FLUX.1 and Wan2.1")


def _sd3(checkout: Path, model: Path) -> None:
    _copy(checkout, "text/pipeline", model)
    part = model / "transformer"
    shutil.copyfile(checkout / "tests/testing/graphs/narrow_sd35m.json.gz", part / "graph.json.gz")
    graph = json.loads(gzip.decompress((part / "graph.json.gz").read_bytes()))
    (part / "config.json").write_text(json.dumps(graph["config"] | {"_class_name": graph["class"]}))
    _draw(part)
    _autoencoder(checkout, "kl_decoder_sd3", model)


def _flux(checkout: Path, model: Path) -> None:
    _copy(checkout, "text/pipeline_flux", model)
    for ours, theirs in (("tokenizer", "tokenizer"), ("tokenizer_3", "tokenizer_2")):
        _copy(checkout, f"text/tokenizer_json/{ours}", model / theirs)
    for file in ("config.json", "graph.json.gz"):  # With guidance as an input, as FLUX.1-dev has it.
        shutil.copyfile(checkout / "tests/golden/graphs/flux_guided" / file, model / "transformer" / file)
    _draw(model / "transformer")


def _wan(checkout: Path, model: Path) -> None:
    _copy(checkout, "text/pipeline_wan", model)
    _autoencoder(checkout, "wan_decoder_late", model)


def _copy(checkout: Path, golden: str, to: Path) -> None:
    source = checkout / "tests/golden" / golden
    if not source.is_dir():
        raise Refused(EXIT_DATA, f"--tiny takes the networks of a checkout's tests: there is no {source}")
    shutil.copytree(source, to)


def _autoencoder(checkout: Path, golden: str, model: Path) -> None:
    """Adds the decoder of a golden, with drawn weights, to a pipeline."""
    (model / "vae").mkdir()
    for file in ("config.json", "graph.json.gz"):
        shutil.copyfile(checkout / "tests/golden/decoders" / golden / file, model / "vae" / file)
    index = json.loads((model / "model_index.json").read_text())
    index["vae"] = ["diffusers", json.loads((model / "vae/config.json").read_text())["_class_name"]]
    (model / "model_index.json").write_text(json.dumps(index))
    _draw(model / "vae")


def _draw(part: Path) -> None:
    """Weights for the graph of a part: a factor of a product by what it sums up, the rest small, scales 1."""
    try:
        from safetensors.numpy import save_file
    except ImportError:
        raise Refused(EXIT_UNAVAILABLE, "--tiny draws weights and needs the Python package safetensors; `make build` has it") from None
    graph = json.loads(gzip.decompress((part / "graph.json.gz").read_bytes()))
    random = np.random.default_rng(5)
    tensors = {}
    for of in sorted(graph["parameters"], key=lambda one: one["name"]):
        values = random.standard_normal(of["shape"], np.float32)
        if of["name"].endswith(("gamma", "running_var", "latents_std")):
            values[:] = 1
        tensors[of["name"]] = values * np.float32(1 / math.sqrt(math.prod(of["shape"][1:])) if len(of["shape"]) > 1 else 0.2)
    save_file(tensors, part / "diffusion_pytorch_model.safetensors")
