#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Small files of torch.save, with what they hold or why they are refused.

    make_checkpoint_goldens.py [--out DIR] [--seed N]

Writes, under tests/golden/checkpoints unless told otherwise:

    NAME.pt, NAME.safetensors   a file of torch.save, and its tensors as safetensors
    refused_NAME.pt             files that must be refused: code, other formats, other objects
    refused.json                a part of the message for each of these

Tests read every file of that shape in a directory, so another seed is another test:
python/tests/test_convert.py reads them. Needs torch and safetensors.
"""
import argparse
import collections
import json
import os
import pathlib
import pickle
import zipfile

import torch
from safetensors.torch import save_file


class Code:
    """A hostile file: a function of its choice is called when it is loaded."""

    def __reduce__(self):
        return os.system, ("echo this must never run",)


def tensor(g, *shape, dtype=torch.float32):
    return torch.randn(*shape, generator=g).to(dtype)


def mlp(g):
    """The layout of published aesthetic predictors: five linear layers of a Sequential."""
    widths = [12, 16, 8, 4, 1]
    layers = [torch.nn.Linear(a, b) for a, b in zip(widths, widths[1:])]
    module = torch.nn.Sequential(layers[0], torch.nn.Dropout(), layers[1], torch.nn.Dropout(), layers[2], layers[3])
    with torch.no_grad():
        for parameter in module.parameters():
            parameter.copy_(tensor(g, *parameter.shape))
    return collections.OrderedDict((f"layers.{k}", v) for k, v in module.state_dict().items())


def types(g):
    many = [torch.float32, torch.float16, torch.bfloat16, torch.float64, torch.int64, torch.int32, torch.uint8, torch.bool]
    return {str(t).split(".")[1]: (tensor(g, 3, 5) * 40).abs().to(t) for t in many} | {
        "scalar": torch.tensor(2.6592), "empty": torch.zeros(0, 4), "long_name" + "x" * 300: tensor(g, 2)}


def views(g):
    """Tensors that share storages, in orders other than their own."""
    base = tensor(g, 4, 6, 5)
    return {"base": base, "transposed": base.permute(2, 0, 1), "part": base[1:3, ::2, 1:4], "column": base[:, 2, 3], "tied": base,
            "row": torch.arange(7).expand(1, -1), "last": base[3, 5, 4]}


def checkpoint(g):
    """A training checkpoint: the weights under `state_dict`, beside numbers and texts."""
    return {"epoch": 3, "name": "run", "loss": 0.25, "done": False, "best": None, "large": 1 << 40,
            "state_dict": {"w": tensor(g, 3, 4), "p": torch.nn.Parameter(tensor(g, 5)), "steps": 7},
            "history": [1, 2.5, ("a", "b")]}


HELD = {"mlp": mlp, "types": types, "views": views, "checkpoint": checkpoint,
        "legacy": checkpoint, "legacy_types": types, "legacy_views": views}  # In the format of torch before 1.6.


def refused(g, directory):
    """Writes the files and returns a part of each message."""
    save = lambda name, content, **more: torch.save(content, directory / f"refused_{name}.pt", **more)
    messages = {}
    save("code", {"w": tensor(g, 2), "x": Code()})
    messages["code"] = "posix.system"
    save("legacy_code", {"w": tensor(g, 2), "x": Code()}, _use_new_zipfile_serialization=False)
    messages["legacy_code"] = "posix.system"
    save("module", torch.nn.Linear(2, 2))
    messages["module"] = "torch.nn.modules.linear.Linear"
    save("sparse", {"w": torch.eye(3).to_sparse()})
    messages["sparse"] = "torch._utils._rebuild_sparse_tensor"
    save("complex", {"w": torch.zeros(2, dtype=torch.complex64)})
    messages["complex"] = "torch.ComplexFloatStorage"
    save("nothing", {"epoch": 3})
    messages["nothing"] = "no tensors"
    save("list", [tensor(g, 2)])
    messages["list"] = "no dict of tensors"
    save("protocol", {"w": tensor(g, 2)}, pickle_protocol=4)
    messages["protocol"] = "protocol 4"
    save("newline", {"two\nlines": tensor(g, 2)})
    messages["newline"] = "printable ASCII: two\\nlines"
    with zipfile.ZipFile(directory / "refused_compressed.pt", "w", zipfile.ZIP_DEFLATED) as archive:
        archive.writestr("archive/data.pkl", b"\x80\x02}." + b" " * 200)
    messages["compressed"] = "compressed or encrypted entry"
    with zipfile.ZipFile(directory / "refused_bare_code.pt", "w") as archive:
        archive.writestr("archive/data.pkl", pickle.dumps(Code(), protocol=2))
    messages["bare_code"] = "posix.system"
    with zipfile.ZipFile(directory / "refused_other_zip.pt", "w") as archive:
        archive.writestr("readme.txt", "no checkpoint")
    messages["other_zip"] = "not one of torch.save"
    with zipfile.ZipFile(directory / "refused_big_endian.pt", "w") as archive:
        archive.writestr("archive/data.pkl", b"\x80\x02}.")
        archive.writestr("archive/byteorder", "big")
    messages["big_endian"] = "byte order: big"
    return messages


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--out", type=pathlib.Path, default=pathlib.Path("tests/golden/checkpoints"))
    parser.add_argument("--seed", type=int, default=20261122)
    args = parser.parse_args()
    args.out.mkdir(parents=True, exist_ok=True)
    for name, make in HELD.items():
        content = make(torch.Generator().manual_seed(args.seed))
        torch.save(content, args.out / f"{name}.pt", _use_new_zipfile_serialization=not name.startswith("legacy"))
        loaded = torch.load(args.out / f"{name}.pt", weights_only=True)
        tensors = {k: v.detach().clone().contiguous() for k, v in loaded.get("state_dict", loaded).items() if torch.is_tensor(v)}
        save_file(tensors, str(args.out / f"{name}.safetensors"))
        (args.out / f"{name}.safetensors").chmod(0o644)
    messages = refused(torch.Generator().manual_seed(args.seed), args.out)
    (args.out / "refused.json").write_text(json.dumps(messages, indent=1, sort_keys=True) + "\n")


if __name__ == "__main__":
    main()
