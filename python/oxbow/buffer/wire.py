# SPDX-License-Identifier: Apache-2.0
"""The buffer's messages, and how an entry is written and read without copies.

Tensors are most of what travels, and protobuf copies bytes for each message that they lie in. So an
entry's bytes are put behind its message as a second occurrence of `trajectory.latents.data`:
protobuf merges the two, and a tensor is copied once. What is read is cut out of the message before
protobuf sees the rest.
"""
from __future__ import annotations

from typing import Any, Iterator

from ..protocol import MESSAGE_BYTES_MAX, message as _message

REPLAY = "oxbow.v1.ReplayBuffer"

AdvanceRequest = _message("oxbow.v1.AdvanceRequest")
AdvanceResponse = _message("oxbow.v1.AdvanceResponse")
DrawRequest = _message("oxbow.v1.DrawRequest")
DrawResponse = _message("oxbow.v1.DrawResponse")
InfoRequest = _message("oxbow.v1.InfoRequest")
InfoResponse = _message("oxbow.v1.InfoResponse")
OfferRequest = _message("oxbow.v1.OfferRequest")
OfferResponse = _message("oxbow.v1.OfferResponse")
ReadRequest = _message("oxbow.v1.ReadRequest")
ReadResponse = _message("oxbow.v1.ReadResponse")
ReplayEntry = _message("oxbow.v1.ReplayEntry")
Tensor = _message("oxbow.v1.Tensor")
Trajectory = _message("oxbow.v1.Trajectory")
WholeEntries = _message("oxbow.v1.WholeEntries")


_CUT_BYTES_MIN = 1 << 16  # In smaller entries protobuf's own copies cost less.
_SIZE_OF = {1: 8, 5: 4}  # Bytes of a wire type of fixed size.


def _varint(value: int) -> bytes:
    out = bytearray()
    while value > 127:
        out.append(value & 127 | 128)
        value >>= 7
    out.append(value)
    return bytes(out)


def _opening(message: Any, field: str, size: int) -> bytes:
    """The header of `size` bytes of a field of bytes or of a message."""
    return _varint(message.DESCRIPTOR.fields_by_name[field].number << 3 | 2) + _varint(size)


def whole_entry(entry: Any, data: memoryview | bytes) -> tuple[list[bytes | memoryview], int]:
    """Pieces of an element of WholeEntries.entries, and their size; `data` are its latents."""
    header = entry.SerializeToString()
    opening = _opening(Tensor, "data", len(data))
    opening = _opening(Trajectory, "latents", len(opening) + len(data)) + opening
    opening = _opening(ReplayEntry, "trajectory", len(opening) + len(data)) + opening
    size = len(header) + len(opening) + len(data)
    first = _opening(WholeEntries, "entries", size) + header + opening
    return [first, data], len(first) + len(data)


def whole_request(head: bytes, pieces: list[bytes | memoryview], size: int) -> bytes:
    """An OfferRequest of whole entries that ends a batch; `head` are its other fields."""
    return b"".join([head, _opening(OfferRequest, "whole", size), *pieces])


def _read_varint(view: memoryview, at: int) -> tuple[int, int]:
    value = shift = 0
    while True:
        byte = view[at]
        at += 1
        value |= (byte & 127) << shift
        if byte < 128:
            return value, at
        shift += 7


def _fields(view: memoryview) -> Iterator[tuple[int, int, int, int]]:
    """Number, first byte, first byte of the value and end of each field of a message."""
    at = 0
    while at < len(view):
        first = at
        tag, at = _read_varint(view, at)
        kind = tag & 7
        size = _SIZE_OF.get(kind, 0)
        value = at
        if kind == 0:
            _, at = _read_varint(view, at)
        elif kind == 2:
            size, at = _read_varint(view, at)
            value = at
        elif kind not in _SIZE_OF:
            raise ValueError(f"wire type {kind} in an answer of the replay buffer")
        at += size
        if at > len(view):
            raise ValueError("an answer of the replay buffer ends within a field")
        yield tag >> 3, first, value, at


def _number(message: Any, field: str) -> int:
    return int(message.DESCRIPTOR.fields_by_name[field].number)


def _cut(view: memoryview, path: tuple[int, ...]) -> tuple[bytes, memoryview]:
    """A message without the field of bytes at `path`, and that field; empty if it is not there."""
    pieces: list[bytes | memoryview] = []
    found = memoryview(b"")
    for number, first, value, end in _fields(view):
        if number != path[0]:
            pieces.append(view[first:end])
        elif len(path) == 1:
            found = view[value:end]
        else:
            rest, found = _cut(view[value:end], path[1:])
            pieces += [_varint(number << 3 | 2) + _varint(len(rest)), rest]
    return b"".join(pieces), found


def whole_entries(raw: bytes) -> list[tuple[Any, memoryview]] | None:
    """The entries of a ReadResponse of large whole ones, without their latents, and these; None for another answer."""
    view = memoryview(raw)
    if len(view) < _CUT_BYTES_MIN:
        return None
    number, _, value, end = next(_fields(view))
    if number != _number(ReadResponse, "whole"):
        return None
    entries = [view[value:][first:last] for _, _, first, last in _fields(view[value:end])]
    if len(view) < _CUT_BYTES_MIN * len(entries):
        return None
    path = (_number(ReplayEntry, "trajectory"), _number(Trajectory, "latents"), _number(Tensor, "data"))
    cut = [_cut(entry, path) for entry in entries]
    return [(ReplayEntry.FromString(rest), data) for rest, data in cut]
