# SPDX-License-Identifier: Apache-2.0
"""The room of encoded prompts that oxbow reads (docs/formats/model_files.md), and its identity."""
import hashlib
import json
import mmap
import os
import pathlib
import secrets
import struct
import time

import torch
from safetensors.torch import save

DIGITS, WORTH_REMEMBERING, SETTLED = 64, 16 << 20, 1e9  # Digits of a SHA-256, bytes, nanoseconds.
RECORD_FORMAT = "oxbow tensor digests 1\n"
NOTES = ("_name_or_path", "transformers_version", "torch_dtype", "dtype", "_diffusers_version")
TOKENIZER_FILES = ("vocab.json", "merges.txt", "spiece.model", "special_tokens_map.json", "tokenizer_config.json", "tokenizer.json",
                   "chat_template.jinja")


def sha256(content):
    return hashlib.sha256(content).hexdigest()


def line(name, content):
    return f"{name} {len(content)} {sha256(content)}\n"


def weight_files(directory, base):
    for variant in ("", ".fp16"):
        index = directory / f"{base}.safetensors.index{variant}.json"
        if index.exists():
            return [directory / name for name in sorted(set(json.loads(index.read_text())["weight_map"].values()))]
        if (directory / f"{base}{variant}.safetensors").exists():
            return [directory / f"{base}{variant}.safetensors"]
    raise FileNotFoundError(f"{directory}: no {base}.safetensors, its index, or the fp16 variants")


def record_of(path):
    """The file in which digests of a file's tensors are remembered, as oxbow does (src/io/model_digest.h); None: nowhere."""
    cache = os.environ.get("XDG_CACHE_HOME") or os.environ.get("HOME") and os.path.join(os.environ["HOME"], ".cache")
    return pathlib.Path(cache) / "oxbow" / "digests" / sha256(os.path.realpath(path).encode())[:32] if cache else None


def facts_of(path):
    """The second line of a record; "" for a file that needs none, or that may still change."""
    facts = os.stat(path)
    if facts.st_size < WORTH_REMEMBERING or time.time_ns() - facts.st_ctime_ns < SETTLED:
        return ""
    return f"{facts.st_size} {facts.st_mtime_ns} {facts.st_ctime_ns} {facts.st_ino} {facts.st_dev}\n"


def read_record(record, facts, names):
    """{tensor: digest}; None if it is not the record of these tensors."""
    try:
        text = record.read_text(encoding="utf-8")
    except (OSError, UnicodeError):
        return None
    if not text.startswith(RECORD_FORMAT + facts):
        return None
    lines = text[len(RECORD_FORMAT + facts):].splitlines()
    known = {one[DIGITS + 1:]: one[:DIGITS] for one in lines}
    return known if text.endswith("\n") and known.keys() == set(names) else None


def replace(path, content):
    """Writes a file whole or not at all."""
    path.parent.mkdir(parents=True, exist_ok=True)
    temporary = path.with_name(f"{path.name}.tmp.{secrets.token_hex(8)}")
    with open(temporary, "xb") as file:
        file.write(content)
        file.flush()
        os.fsync(file.fileno())
    os.replace(temporary, path)


def digests_of(path, data, places):
    """{tensor: SHA-256 of all its bytes} of a file that is mapped at `data`. What was hashed once is remembered."""
    record, facts = record_of(path), facts_of(path)
    known = read_record(record, facts, places) if record and facts else None
    if known is None:
        known = {}
        for tensor, (begin, end) in sorted(places.items()):
            with memoryview(data) as view, view[begin:end] as part:
                known[tensor] = sha256(part)
        if record and facts and facts == facts_of(path):
            try:
                replace(record, "".join([RECORD_FORMAT, facts, *(f"{known[t]} {t}\n" for t in sorted(known))]).encode())
            except OSError:
                pass  # A digest that cannot be remembered is made again.
    return known


def tensor_lines(path, name):
    """The name and the line of each tensor in a file."""
    with open(path, "rb") as file, mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ) as data:
        size, = struct.unpack("<Q", data[:8])
        entries = json.loads(data[8:8 + size])
        entries.pop("__metadata__", None)
        places = {tensor: [8 + size + offset for offset in entry["data_offsets"]] for tensor, entry in entries.items()}
        digests = digests_of(path, data, places)
        for tensor, entry in entries.items():
            begin, end = places[tensor]
            shape = ",".join(map(str, entry["shape"]))
            yield tensor, f"{name} {tensor} {entry['dtype']} [{shape}] {end - begin} {digests[tensor]}\n"


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
    text = "oxbow text encoders 2\n" + line("settings", settings.encode())
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
        tensors = {name: narrowed(part.detach().cpu().float()).contiguous() for name, part in parts.items()}
        content = save(tensors, {"oxbow.text_encoders": self.identity, "oxbow.text_sha256": path.stem})
        replace(path, content)
