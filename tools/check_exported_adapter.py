#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Checks that diffusers' and peft's own loaders read our exported adapters as the golden files require.

    TEST_TMPDIR=/tmp/exports build/dev/tests/model_golden_test --gtest_filter='*ExportedFiles*'
    tools/check_exported_adapter.py goldens tests/golden/models /tmp/exports
    tools/check_exported_adapter.py record tests/golden/models /tmp/exports

    TEST_TMPDIR=/tmp/exports build/dev/tests/exported_golden_test --gtest_filter='*ExportedAdapter*'
    tools/check_exported_adapter.py graphs tests/golden/exported /tmp/exports
    tools/check_exported_adapter.py record-graphs tests/golden/exported /tmp/exports

    oxbow export RUN --format F --out /tmp/run/F      for F in diffusers, peft and merged
    tools/check_exported_adapter.py run models/digits /tmp/run

`record` also writes exported.safetensors beside the golden models: the SHA-256 of the files that the loaders read, and
the velocities that they computed, so that the test can check both without Python.

`graphs` and `record-graphs` do the same with the small models of all classes, by the pipeline of each.

`run` compares the formats of one run with each other, of any class that export_model knows. Velocities must agree
within 1e-5. ComfyUI's reading is checked by names: its key map of SD3 has the diffusers names of all linear layers
behind `transformer.`.
"""
import argparse
import hashlib
import inspect
import json
import pathlib
import sys

import diffusers
import peft
import safetensors.torch
import torch
from diffusers import FlowMatchEulerDiscreteScheduler, SD3Transformer2DModel, StableDiffusion3Pipeline

from export_model.tracing import example_inputs, full_config, shapes_at
from export_model.wrappers import WRAPPERS

TOLERANCE = 1e-5
PIPELINES = {"SD3Transformer2DModel": "StableDiffusion3Pipeline", "FluxTransformer2DModel": "FluxPipeline",
             "WanTransformer3DModel": "WanPipeline", "QwenImageTransformer2DModel": "QwenImagePipeline",
             "ZImageTransformer2DModel": "ZImagePipeline", "Flux2Transformer2DModel": "Flux2Pipeline",
             "HunyuanVideoTransformer3DModel": "HunyuanVideoPipeline", "LTXVideoTransformer3DModel": "LTXPipeline"}


def pipeline(pipeline_class, transformer):
    """The part of a pipeline that its LoRA loader needs."""
    parts = {name: None for name, parameter in inspect.signature(pipeline_class.__init__).parameters.items()
             if name != "self" and parameter.default is parameter.empty}
    return pipeline_class(**parts | {"transformer": transformer, "scheduler": FlowMatchEulerDiscreteScheduler()})


def velocity(model, inputs):
    with torch.no_grad():
        return WRAPPERS[type(model).__name__](model)(**inputs)


def with_diffusers(model, directory, inputs, pipeline_class=StableDiffusion3Pipeline):
    pipe = pipeline(pipeline_class, model)
    pipe.load_lora_weights(str(directory))
    return velocity(pipe.transformer, inputs)


def with_peft(model, directory, inputs):
    return velocity(peft.PeftModel.from_pretrained(model, str(directory)).base_model.model, inputs)


def compare(what, ours, expected):
    error = (ours - expected).abs().max().item() / max(1, expected.abs().max().item())
    print(f"{what}: {error:.1e}")
    return error <= TOLERANCE


def comfy_keys(directory, transformer):
    """Every key of ComfyUI's file is a linear layer's diffusers name, and none has an alpha."""
    modules = {name for name, m in transformer.named_modules() if isinstance(m, torch.nn.Linear)}
    ok = True
    for file in directory.glob("*.safetensors"):
        for key in safetensors.torch.load_file(file):
            module = key.removeprefix("transformer.").removesuffix(".lora_A.weight").removesuffix(".lora_B.weight")
            if module not in modules or not key.startswith("transformer."):
                print(f"{file}: not ComfyUI's: {key}")
                ok = False
    return ok


def goldens(models, exports, record=False):
    ok, velocities, digests = True, {}, {}
    for file in sorted(models.glob("lora_*.safetensors")):
        with safetensors.safe_open(file, "pt") as golden:
            tensors = {key: golden.get_tensor(key) for key in golden.keys()}
            config = json.loads(golden.metadata()["config"])
        section = lambda name: {k[len(name) + 1:]: v for k, v in tensors.items() if k.startswith(name + ".")}

        def fresh():
            model = SD3Transformer2DModel.from_config(config)
            model.load_state_dict({k: v.float() for k, v in section("weight").items()})
            return model
        directory, expected = exports / file.stem, section("out")["v"]
        for loader, load, folder in (("diffusers", with_diffusers, directory), ("peft", with_peft, directory / "peft")):
            v = velocities[f"{file.stem}.{loader}"] = load(fresh(), folder, section("in"))
            ok &= compare(f"{file.stem} by {loader}", v, expected)
        ok &= comfy_keys(directory / "comfyui", fresh())
        digests |= {f"{file.stem}/{path.relative_to(directory)}": hashlib.sha256(path.read_bytes()).hexdigest()
                    for path in sorted(directory.rglob("*")) if path.is_file()}
    if ok and record:
        safetensors.torch.save_file(velocities, models / "exported.safetensors", metadata=digests | versions())
    return ok


def of_graph(directory, exports, record):
    with safetensors.safe_open(directory / "golden.safetensors", "pt") as golden:
        tensors = {key: golden.get_tensor(key) for key in golden.keys()}
    config = json.loads((directory / "config.json").read_text())
    transformer_class = getattr(diffusers, config["_class_name"])
    section = lambda name: {k[len(name) + 1:]: v for k, v in tensors.items() if k.startswith(name + ".")}
    inputs = section("0.in")
    inputs.pop("direction")

    def fresh():
        model = transformer_class.from_config(config)
        model.load_state_dict({k: v.float() for k, v in section("weight").items()})
        return model
    pipeline_class = getattr(diffusers, PIPELINES[config["_class_name"]])
    velocities = {"diffusers": with_diffusers(fresh(), exports, inputs, pipeline_class),
                  "peft": with_peft(fresh(), exports / "peft", inputs)}
    ok = all([compare(f"{directory.name} by {loader}", v, section("0.adapted")["v"]) for loader, v in velocities.items()])
    if ok and record:
        files = {str(path.relative_to(exports)): hashlib.sha256(path.read_bytes()).hexdigest()
                 for path in sorted(exports.rglob("*")) if path.is_file()}
        file = directory / "exported.safetensors"
        safetensors.torch.save_file({key: v.contiguous() for key, v in velocities.items()}, file, metadata=files | versions())
        file.chmod(0o644)
    return ok


def graphs(models, exports, record=False):
    return all([of_graph(directory, exports / directory.name, record) for directory in sorted(models.glob("*_tiny"))])


def versions():
    return {m.__name__: m.__version__ for m in (diffusers, peft, torch)}


def run(model, exports):
    index = json.loads((model / "model_index.json").read_text())
    transformer_class = getattr(diffusers, index["transformer"][1])
    base = lambda: transformer_class.from_pretrained(model, subfolder="transformer")
    wrapper = WRAPPERS[transformer_class.__name__]
    inputs = example_inputs(wrapper, shapes_at(wrapper, full_config(base()), 0), seed=1)
    merged = velocity(transformer_class.from_pretrained(exports / "merged", subfolder="transformer"), inputs)
    print(f"the adapter moves velocities by {(merged - velocity(base(), inputs)).abs().max():.1e}")
    ok = compare("diffusers against merged",
                 with_diffusers(base(), exports / "diffusers", inputs, getattr(diffusers, index["_class_name"])), merged)
    ok &= compare("peft against merged", with_peft(base(), exports / "peft", inputs), merged)
    return ok


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("what", choices=("goldens", "record", "graphs", "record-graphs", "run"))
    parser.add_argument("model", type=pathlib.Path, help="golden models, or the base model's directory")
    parser.add_argument("exports", type=pathlib.Path)
    args = parser.parse_args()
    torch.set_num_threads(1)
    checks = {"goldens": goldens, "record": lambda *paths: goldens(*paths, record=True), "graphs": graphs,
              "record-graphs": lambda *paths: graphs(*paths, record=True), "run": run}
    return 0 if checks[args.what](args.model, args.exports) else 1


if __name__ == "__main__":
    sys.exit(main())
