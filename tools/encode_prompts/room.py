# SPDX-License-Identifier: Apache-2.0
"""The room of encoded prompts that oxbow reads (docs/formats.md, "Encoded prompts"), and its identity."""
import hashlib
import json
import mmap
import os
import pathlib
import struct

import torch
from safetensors.torch import save

WHOLE_MAX, PIECE, PIECES = 64 << 10, 4 << 10, 4
NOTES = ("_name_or_path", "transformers_version", "torch_dtype", "dtype")
TOKENIZER_FILES = ("vocab.json", "merges.txt", "spiece.model", "special_tokens_map.json", "tokenizer_config.json", "tokenizer.json",
                   "chat_template.jinja")


def sha256(content):
    return hashlib.sha256(content).hexdigest()


def line(name, content):
    return f"{name} {len(content)} {sha256(content)}\n"


def sample(data):
    """A small tensor's bytes whole; four pieces of a large one."""
    if len(data) <= WHOLE_MAX:
        return bytes(data)
    starts = (i * (len(data) - PIECE) // (PIECES - 1) for i in range(PIECES))
    return b"".join(bytes(data[start:start + PIECE]) for start in starts)


def weight_files(directory, base):
    for variant in ("", ".fp16"):
        index = directory / f"{base}.safetensors.index{variant}.json"
        if index.exists():
            return [directory / name for name in sorted(set(json.loads(index.read_text())["weight_map"].values()))]
        if (directory / f"{base}{variant}.safetensors").exists():
            return [directory / f"{base}{variant}.safetensors"]
    raise FileNotFoundError(f"{directory}: no {base}.safetensors, its index, or the fp16 variants")


def tensor_lines(path, name):
    """Of each tensor in a file: its name and its line."""
    with open(path, "rb") as file, mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ) as data:
        size, = struct.unpack("<Q", data[:8])
        for tensor, entry in json.loads(data[8:8 + size]).items():
            if tensor == "__metadata__":
                continue
            begin, end = (8 + size + offset for offset in entry["data_offsets"])
            with memoryview(data) as view, view[begin:end] as part:
                shape = ",".join(map(str, entry["shape"]))
                yield tensor, line(f"{name} {tensor} {entry['dtype']} [{shape}]", sample(part))


def encoder_lines(name, directory):
    config = json.loads((directory / "config.json").read_text(encoding="utf-8"))
    config = {key: value for key, value in config.items() if key not in NOTES}
    text = json.dumps(config, sort_keys=True, ensure_ascii=False, separators=(",", ":"))
    lines = {}
    for path in weight_files(directory, "model"):
        lines.update(tensor_lines(path, name))
    return line(f"{name} config", text.encode()) + "".join(lines[tensor] for tensor in sorted(lines))


def tokenizer_lines(name, directory):
    present = [file for file in TOKENIZER_FILES if (directory / file).exists()]
    return "".join(line(f"{name} {file}", (directory / file).read_bytes()) for file in present)


def identity(model, tokens, dtype):
    """As oxbow's IdentityOfTextEncoders: changes with anything that changes what the encoders say."""
    settings = f"encoded elsewhere, tokens {tokens}" + (", bf16" if dtype == "bf16" else "")
    text = "oxbow text encoders 1\n" + line("settings", settings.encode())
    index = json.loads((model / "model_index.json").read_text(encoding="utf-8"))
    for name, entry in sorted(index.items()):
        if name.startswith("_") or not isinstance(entry, list) or entry[1] is None:
            continue
        if name.startswith("text_encoder"):
            text += encoder_lines(name, model / name)
        elif name.startswith("tokenizer"):
            text += tokenizer_lines(name, model / name)
    return sha256(text.encode())


def narrowed(tensor):
    """In the smallest type that holds every value exactly."""
    for dtype in (torch.float16, torch.bfloat16):
        if torch.equal(tensor.to(dtype).to(tensor.dtype), tensor):
            return tensor.to(dtype)
    return tensor


class Room:
    def __init__(self, cache, identity):
        self.identity, self.directory = identity, pathlib.Path(cache) / identity[:16]

    def path(self, text):
        name = sha256(text.encode("utf-8"))
        return self.directory / name[:2] / f"{name}.safetensors"

    def write(self, text, parts):
        """`parts`: name -> [1, ...] float32. The file is there whole or not at all."""
        path = self.path(text)
        path.parent.mkdir(parents=True, exist_ok=True)
        tensors = {name: narrowed(part.detach().cpu().float()).contiguous() for name, part in parts.items()}
        content = save(tensors, {"oxbow.text_encoders": self.identity, "oxbow.text_sha256": path.stem})
        temporary = path.with_name(f"{path.name}.{os.getpid()}.tmp")
        with open(temporary, "wb") as file:
            file.write(content)
            file.flush()
            os.fsync(file.fileno())
        os.replace(temporary, path)
