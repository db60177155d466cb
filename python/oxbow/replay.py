# SPDX-License-Identifier: Apache-2.0
"""Entries of a replay buffer as arrays: of one that is live, or as `oxbow replay export` wrote them.

    with Run("runs/digits").replay() as buffer:
        best = max(buffer, key=lambda entry: entry.reward)
        path = buffer.read(best.id)                   # with latents [n, C, H, W]

    entry = exported("entry_77.json")                 # of a buffer that has ended
"""
from __future__ import annotations

import json
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Iterator

import grpc
import numpy as np

from .buffer.wire import REPLAY
from .protocol import message
from .reward.tls import Tls
from .tensors import array_of, read_safetensors

_PAGE = 200
_TABLE = "best"


@dataclass(frozen=True)
class Entry:
    """A stored trajectory. Arrays are empty where an entry is listed and not read."""

    id: int
    prompt: str
    reward: float
    birth_step: int
    uses: int
    table: str
    sigmas: np.ndarray  # [T + 1] noise levels
    log_prob: np.ndarray  # [T] mean over elements; 0 where the step is deterministic
    stochastic: np.ndarray  # [T] bool
    first_latent: int  # Index of latents[0] in x_0 .. x_T
    latents: np.ndarray = field(repr=False, default_factory=lambda: np.empty(0, np.float32))  # [n, C, H, W]
    conditioning: dict[str, np.ndarray] = field(repr=False, default_factory=dict)
    picture: bytes = field(repr=False, default=b"")  # A small JPEG or PNG of the finished picture; of `read` alone


class Replay:
    """A live buffer at `endpoint` (HOST:PORT). Iterating lists the entries of a table. ConnectionError: nobody answers."""

    def __init__(self, endpoint: str, table: str = _TABLE, tls: Tls | None = None, timeout: float = 30.0):
        self.endpoint, self.table, self._timeout = endpoint, table, timeout
        self._channel = (tls or Tls.from_environment()).channel(endpoint)

    def __enter__(self) -> Replay:
        return self

    def __exit__(self, *_: Any) -> None:
        self.close()

    def close(self) -> None:
        self._channel.close()

    def __iter__(self) -> Iterator[Entry]:
        list_entries = self._method("List", "unary_unary")
        after = 0
        while True:
            with _named(self.endpoint):
                page = list_entries(message("oxbow.v1.ListRequest")(limit=_PAGE, after_entry_id=after, table=self.table),
                                    timeout=self._timeout).entries
            if not page:
                return
            yield from (_entry(one) for one in page)
            after = page[-1].entry_id

    def read(self, entry_id: int) -> Entry:
        """The whole entry, of any table. KeyError if it is not there (any more)."""
        header, data = None, bytearray()
        with _named(self.endpoint, entry_id):
            call = self._method("Read", "unary_stream")
            for part in call(message("oxbow.v1.ReadRequest")(entry_id=entry_id, whole=True, conditioning=True), timeout=self._timeout):
                if part.HasField("header"):
                    header = part.header
                else:
                    data += part.chunk.data
        return _entry(header, bytes(data))

    def _method(self, name: str, kind: str) -> Any:
        return getattr(self._channel, kind)(
            f"/{REPLAY}/{name}", message(f"oxbow.v1.{name}Request").SerializeToString,
            message(f"oxbow.v1.{name}Response").FromString)


def exported(path: str | Path) -> Entry:
    """An entry as `oxbow replay export` wrote it: entry_ID.json, with the arrays of entry_ID.safetensors beside it."""
    path = Path(path)
    told = json.loads(path.read_text(encoding="utf-8"))
    arrays = read_safetensors(path.with_suffix(".safetensors"))
    steps = told["trajectory"]
    return Entry(int(told["entry"]), told["prompt"], told["reward"], told["birth_step"], told["uses"], told["table"],
                 np.array(told["sigmas"]), np.array(steps["log_prob"], np.float32), np.array(steps["sde"], bool),
                 steps["first_latent"], arrays.pop("latents", np.empty(0, np.float32)),
                 {name.removeprefix("conditioning."): array for name, array in arrays.items()})


def _entry(one: Any, data: bytes | None = None) -> Entry:
    path = one.trajectory
    whole = {"latents": array_of(path.latents, data), "conditioning": _parts(one.conditioning), "picture": path.picture} if data else {}
    return Entry(one.entry_id, one.prompt.text, one.raw_reward, one.birth_step, one.uses, one.table or _TABLE,
                 np.array(one.sigmas), np.array(path.log_prob, np.float32), np.array(path.sde, bool),
                 path.first_latent, **whole)


def _parts(conditioning: Any) -> dict[str, np.ndarray]:
    named = [("tokens", conditioning.tokens), ("pooled", conditioning.pooled)]
    named += [(part.name, part.tensor) for part in conditioning.parts]
    return {name: array_of(tensor) for name, tensor in named if tensor.dtype}


class _named:
    """Errors of a call in Python's terms."""

    def __init__(self, endpoint: str, entry_id: int | None = None):
        self._endpoint, self._entry = endpoint, entry_id

    def __enter__(self) -> None:
        pass

    def __exit__(self, kind: Any, error: Any, _: Any) -> None:
        if not isinstance(error, grpc.RpcError):
            return
        text = " ".join((error.details() or "").split())[:200]
        if error.code() is grpc.StatusCode.NOT_FOUND and self._entry is not None:
            raise KeyError(self._entry) from None
        raise ConnectionError(f"replay buffer at {self._endpoint}: {error.code().name}: {text}") from None
