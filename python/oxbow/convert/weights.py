# SPDX-License-Identifier: Apache-2.0
"""Turns a .pt or .pth file of torch.save into safetensors, without running what is in it.

    oxbow convert-weights IN.pt OUT.safetensors

torch.load(weights_only=True) builds tensors, numbers, texts and containers, and refuses a file that names anything
else. The tensors are those of the outermost dict or, if that has one, of its entry `state_dict`; other values there
are left out. A Mask2Former of mmdetection gets the names of transformers, for the reward geneval.
"""
from __future__ import annotations

import argparse
import errno
import os
import re
import secrets
import sys
import warnings
from pathlib import Path
from typing import Any

from ..command_line import end_with

EXIT_UNAVAILABLE, EXIT_DATA, EXIT_FULL = 3, 4, 5  # docs/formats.md, exit codes.
TERMINAL = re.compile(r"\x1b\[[0-9;]*m")


class Refused(Exception):
    """The file does not hold what is asked for; the text is one line that names it."""


def _one_line(error: Exception) -> str:
    """torch's reasons are pages. The object that a file asks for is what helps."""
    text = " ".join(TERMINAL.sub("", str(error)).split())
    named = re.search(r"GLOBAL (?P<name>[\w.]+)|reconstruct .*?`?(?P<other>[\w]+\.[\w.]+)`? ", text)
    if named:
        return f"asks for {named['name'] or named['other']}, which is no tensor; nothing of it was run"
    return "not a file of torch.save, or damaged; nothing of it was run"


def load(path: Path) -> tuple[dict[str, Any], list[str]]:
    """The dense tensors of the file by name, and the keys of values that are none."""
    import torch
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            found = torch.load(path, map_location="cpu", weights_only=True)
    except OSError as why:
        raise Refused(why.strerror or str(why)) from None
    except MemoryError:
        raise Refused("there is not enough memory to read it") from None
    except Exception as error:  # torch raises five kinds for a damaged or foreign file.
        raise Refused(_one_line(error)) from None
    if isinstance(found, dict) and isinstance(found.get("state_dict"), dict):
        found = found["state_dict"]
    if not isinstance(found, dict):
        raise Refused(f"no dict of tensors, but a {type(found).__name__}")
    tensors: dict[str, Any] = {}
    skipped = []
    for name, value in found.items():
        if not isinstance(value, torch.Tensor):
            skipped.append(ascii(name))
            continue
        if not isinstance(name, str) or not name.isprintable() or not name.isascii():
            raise Refused(f"the name of a tensor is not printable ASCII: {name!r}")
        if value.layout != torch.strided or value.is_complex() or value.is_quantized:
            raise Refused(f"{name} is no dense tensor of real numbers: {value.layout}, {value.dtype}")
        tensors[name] = value.detach()
    if not tensors:
        raise Refused("no tensors in it")
    return tensors, skipped


def _apart(tensors: dict[str, Any]) -> dict[str, Any]:
    """Contiguous tensors of which no two share a storage, as safetensors wants them. Only those that do are copied."""
    apart, taken = {}, set()
    for name, tensor in tensors.items():
        own = tensor.contiguous()
        storage = own.untyped_storage().data_ptr()
        apart[name] = own.clone() if storage in taken else own
        taken.add(storage)
    return apart


def convert(source: Path, target: Path) -> dict[str, Any]:
    """Writes `target`, whole or not at all. Returns `tensors`, `bytes`, `skipped` (names) and `renamed`."""
    from safetensors import SafetensorError
    from safetensors.torch import save_file

    from . import mask2former
    tensors, skipped = load(source)
    renamed = mask2former.MARK in tensors
    if renamed:
        try:
            tensors = dict(mask2former.renamed(tensors))
        except ValueError as error:
            raise Refused(str(error)) from None
    tensors = _apart(tensors)
    whole = target.with_name(f"{target.name}.tmp.{secrets.token_hex(8)}")  # As src/base/file.h names it.
    try:
        save_file(tensors, whole)
        os.replace(whole, target)
    except SafetensorError as why:
        raise OSError(errno.ENOSPC if "os error 28" in str(why) else errno.EIO, str(why)) from None
    finally:
        whole.unlink(missing_ok=True)
    return {"tensors": len(tensors), "bytes": sum(tensor.nbytes for tensor in tensors.values()), "skipped": skipped,
            "renamed": renamed}


def main(arguments: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser("oxbow convert-weights", description=__doc__,
                                     formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("IN", type=Path, help="file of torch.save")
    parser.add_argument("OUT", type=Path, help="safetensors file to write")
    args = parser.parse_args(arguments)
    try:
        done = convert(args.IN, args.OUT)
    except Refused as why:
        print(f"oxbow convert-weights: {args.IN}: {why}", file=sys.stderr)
        return EXIT_DATA
    except OSError as why:
        print(f"oxbow convert-weights: {args.OUT}: {why.strerror or why}", file=sys.stderr)
        return EXIT_FULL if why.errno in (errno.ENOSPC, errno.EDQUOT) else EXIT_UNAVAILABLE
    print(f"wrote {done['tensors']} tensors, {done['bytes']} bytes, to {args.OUT}")
    if done["renamed"]:
        print("names of mmdetection's Mask2Former became those of transformers")
    if done["skipped"]:
        print(f"left out what is no tensor: {', '.join(done['skipped'])}")
    return 0


if __name__ == "__main__":
    end_with(main)
