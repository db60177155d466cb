# SPDX-License-Identifier: Apache-2.0
"""Reads a pickle of numbers, text, None, bool, bytes and containers of them; nothing else is made.

A pickle may name any function and have it called. This reader knows two names, those of a numpy number,
and answers each with code of its own.
"""
from __future__ import annotations

import io
import pickle
import pickletools
import re
from typing import Any

import numpy as np


class _Type:
    """Stands for numpy.dtype: a plain number's type, such as f8."""

    def __init__(self, name: str, *_: Any):
        if not (isinstance(name, str) and re.fullmatch(r"f[248]|[iu][1248]|b1", name)):
            raise pickle.UnpicklingError(f"no plain number: {name!r:.40}")
        self._name = name
        self._order: str = "="

    def __setstate__(self, state: Any) -> None:
        order = state[1] if isinstance(state, tuple) and len(state) > 1 else None
        if order not in ("<", ">", "|", "="):
            raise pickle.UnpicklingError("no plain number: unknown byte order")
        self._order = order

    def number(self, data: bytes) -> float | int | bool:
        dtype = np.dtype(self._order + self._name)
        if not isinstance(data, bytes) or len(data) != dtype.itemsize:
            raise pickle.UnpicklingError("no plain number: its size is wrong")
        number: float | int | bool = np.frombuffer(data, dtype)[0].item()
        return number


def _number(kind: Any, data: Any) -> float | int | bool:
    if not isinstance(kind, _Type):
        raise pickle.UnpicklingError("no plain number: its type is none")
    return kind.number(data)


_KNOWN = {
    ("numpy", "dtype"): _Type,
    ("numpy.core.multiarray", "scalar"): _number,
    ("numpy._core.multiarray", "scalar"): _number,
}


class _Reader(pickle.Unpickler):
    def find_class(self, module: str, name: str) -> Any:
        try:
            return _KNOWN[module, name]
        except KeyError:
            raise pickle.UnpicklingError(f"not plain data: {module}.{name}"[:200]) from None


def read(data: bytes) -> Any:
    """ValueError if `data` is no pickle, or one of anything but plain data."""
    try:
        for opcode, argument, _ in pickletools.genops(data):
            # The reader makes room for as many entries of the memo as a number says, up to 2^32.
            if opcode.name.endswith("PUT") and int(str(argument)) > len(data):
                raise pickle.UnpicklingError(f"entry {argument} of the memo")
        return _Reader(io.BytesIO(data)).load()
    except Exception as error:  # Damaged pickles raise errors of many kinds.
        raise ValueError(f"not a pickle of plain data: {' '.join(str(error).split())[:200]}") from None
