# SPDX-License-Identifier: Apache-2.0
"""oxbow.v1.Tensor and safetensors as numpy arrays. bfloat16, which numpy does not have, becomes float32 exactly."""
from __future__ import annotations

import json
from pathlib import Path
from typing import Any, Sequence

import numpy as np

# By the number of oxbow.v1.DType, and by the name of safetensors.
WIRE_TYPES = {1: "<f4", 2: "<f2", 4: "<f8", 5: "<i8", 6: "<i4", 7: "u1", 8: "?", 9: "i1"}
_FILE = {"F32": "<f4", "F16": "<f2", "F64": "<f8", "I64": "<i8", "I32": "<i4", "U8": "u1", "BOOL": "?", "I8": "i1"}
_WIRE_BF16, _FILE_BF16 = 3, "BF16"


def array_of(tensor: Any, data: bytes | None = None) -> np.ndarray:
    """The array of a message, or of a header and its bytes. ValueError if the bytes do not fit the shape."""
    return _array(data if data is not None else tensor.data, tensor.dtype, tensor.shape, WIRE_TYPES, _WIRE_BF16)


def read_safetensors(path: Path) -> dict[str, np.ndarray]:
    """The tensors of a safetensors file by name."""
    content = Path(path).read_bytes()
    start = 8 + int.from_bytes(content[:8], "little")
    arrays = {}
    for name, entry in json.loads(content[8:start]).items():
        if name == "__metadata__":
            continue
        begin, end = entry["data_offsets"]
        arrays[name] = _array(content[start + begin:start + end], entry["dtype"], entry["shape"], _FILE, _FILE_BF16)
    return arrays


def _array(data: bytes, dtype: Any, shape: Sequence[int], names: dict[Any, str], bf16: Any) -> np.ndarray:
    if dtype == bf16:
        upper = np.frombuffer(data, "<u2").astype(np.uint32) << 16
        return upper.view(np.float32).reshape(tuple(shape))
    if dtype not in names:
        raise ValueError(f"no array of this type: {dtype}")
    return np.frombuffer(data, names[dtype]).reshape(tuple(shape))
