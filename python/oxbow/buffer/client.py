# SPDX-License-Identifier: Apache-2.0
"""Calls of one replay buffer. What is inserted is durable when its outcome is here."""
from __future__ import annotations

import collections
import enum
import queue
import threading
from dataclasses import dataclass, field
from typing import Any, Iterable, Iterator, Sequence

import grpc
import numpy as np

from ..protocol import CHANNEL_OPTIONS
from ..tensors import WIRE_TYPES
from . import wire

_MESSAGE_BYTES = 4 << 20  # A batch has no more, unless one entry does.
_ENTRY_BYTES_MAX = wire.MESSAGE_BYTES_MAX - (64 << 10)
_NUMPY = {number: np.dtype(name) for number, name in WIRE_TYPES.items()}
_DTYPES = {dtype.str: number for number, dtype in _NUMPY.items()}


class Outcome(enum.IntEnum):
    """The outcome of an entry (oxbow.v1.OfferOutcome)."""

    INSERTED = 1
    REPLACED = 2
    REJECTED_LOWER = 3
    DUPLICATE = 4
    REJECTED_INVALID = 5


@dataclass
class Entry:
    """A stored trajectory. `latents` [n, ...] are at least one latent, of a dtype that numpy knows."""

    id: int  # Unique for ever: an id enters once.
    prompt: int  # The id of its prompt; `best` keeps one entry of each.
    latents: np.ndarray
    reward: float = 0.0
    birth_step: int = 0  # Learner step whose weights made it.
    table: str = ""  # Empty: `best`.
    text: str = ""
    message: Any = field(default=None, repr=False)  # Read only: all of it, without the latents.


def _message_of(entry: Entry, latents: np.ndarray) -> Any:
    if latents.dtype.str not in _DTYPES:
        raise TypeError(f"entry {entry.id}: latents of dtype {latents.dtype} cannot be stored")
    message = wire.ReplayEntry(entry_id=entry.id, birth_step=entry.birth_step, raw_reward=entry.reward,
                               table=entry.table)
    message.prompt.id, message.prompt.text = entry.prompt, entry.text
    tensor = message.trajectory.latents
    tensor.dtype = _DTYPES[latents.dtype.str]
    tensor.shape.extend(latents.shape)
    return message


def _entry_of(message: Any, data: bytes | memoryview) -> Entry:
    tensor = message.trajectory.latents
    latents = np.frombuffer(data, _NUMPY.get(tensor.dtype, np.dtype("V2"))).reshape(tuple(tensor.shape))
    tensor.data = b""
    return Entry(message.entry_id, message.prompt.id, latents, message.raw_reward, message.birth_step,
                 message.table, message.prompt.text, message)


def _pieces(entry: Entry) -> tuple[list[bytes | memoryview], int]:
    latents = np.ascontiguousarray(entry.latents)
    pieces, size = wire.whole_entry(_message_of(entry, latents), memoryview(latents).cast("B"))
    if size > _ENTRY_BYTES_MAX:
        raise ValueError(f"entry {entry.id} has {size} bytes, more than fit a message: {_ENTRY_BYTES_MAX}")
    return pieces, size


class Inserter:
    """Inserts without waiting: what comes while a message is under way goes together in the next.

    A context: at its end all is durable, or it raises. One thread inserts.
    """

    def __init__(self, stub: Any, head: bytes, in_flight: int):
        self._head = head
        self._room = threading.Semaphore(in_flight)  # Batches.
        self._lock = threading.Condition()
        self._waiting: collections.deque[tuple[list[bytes | memoryview], int]] = collections.deque()
        self._closed = False
        self._under_way = 0  # Entries.
        self._bytes = 0  # Sum over those that wait.
        self._counts: collections.Counter[Outcome] = collections.Counter()
        self._errors: list[str] = []
        self._failure: Exception | None = None
        self._call = stub(self._batches())
        self._reader = threading.Thread(target=self._read, daemon=True)
        self._reader.start()

    def insert(self, entry: Entry) -> None:
        """Waits while 64 MiB wait or 10,000 entries are under way. Raises what made the stream fail."""
        piece = _pieces(entry)
        with self._lock:
            self._lock.wait_for(lambda: self._failure or self._under_way < 10_000 and self._bytes < 64 << 20)
            if self._failure:
                raise self._failure
            self._waiting.append(piece)
            self._under_way += 1
            self._bytes += piece[1]
            self._lock.notify_all()

    def flush(self) -> collections.Counter[Outcome]:
        """Waits until all is durable. Counts by outcome, since the start."""
        with self._lock:
            self._lock.wait_for(lambda: self._failure or not self._under_way)
            if self._failure:
                raise self._failure
            return collections.Counter(self._counts)

    @property
    def errors(self) -> list[str]:
        """Why entries were REJECTED_INVALID."""
        return list(self._errors)

    def _batches(self) -> Iterator[bytes]:
        while True:
            self._room.acquire()
            with self._lock:
                self._lock.wait_for(lambda: self._waiting or self._closed)
                if not self._waiting:
                    return
                pieces, size = self._waiting.popleft()
                pieces = list(pieces)
                while self._waiting and size + self._waiting[0][1] <= _MESSAGE_BYTES:
                    more, bytes_more = self._waiting.popleft()
                    pieces += more
                    size += bytes_more
                self._bytes -= size
                self._lock.notify_all()
            yield wire.whole_request(self._head, pieces, size)

    def _read(self) -> None:
        try:
            for response in self._call:
                self._room.release()
                with self._lock:
                    for result in response.results:
                        self._counts[Outcome(result.outcome)] += 1
                        if result.error:
                            self._errors.append(f"entry {result.entry_id}: {result.error}")
                    self._under_way -= len(response.results)
                    self._lock.notify_all()
        except grpc.RpcError as error:
            with self._lock:
                self._failure = error
                self._lock.notify_all()
            self._room.release()

    def close(self) -> None:
        with self._lock:
            self._closed = True
            self._lock.notify_all()
        self._room.release()
        self._reader.join()

    def __enter__(self) -> "Inserter":
        return self

    def __exit__(self, kind: Any, *_: Any) -> None:
        try:
            if kind is None:
                self.flush()
        finally:
            self.close()


class ReplayBuffer:
    """One replay buffer at `address` (HOST:PORT), as the run `run` in its start `epoch`.

    A buffer belongs to the first run that writes to it; a later start of the run fences those before.
    Failed calls raise grpc.RpcError.
    """

    def __init__(self, address: str, run: str = "", epoch: int = 1, timeout: float = 60.0,
                 credentials: grpc.ChannelCredentials | None = None):
        self._channel = (grpc.insecure_channel(address, CHANNEL_OPTIONS) if credentials is None
                         else grpc.secure_channel(address, credentials, CHANNEL_OPTIONS))
        self._who = {"epoch": epoch, "run_uid": run}
        self._timeout = timeout
        self._head = wire.OfferRequest(ends_batch=True, **self._who).SerializeToString()
        self._offer = self._channel.stream_stream(f"/{wire.REPLAY}/Offer", None, wire.OfferResponse.FromString)

    def _unary(self, method: str, request: Any, response: Any) -> Any:
        call = self._channel.unary_unary(f"/{wire.REPLAY}/{method}", type(request).SerializeToString,
                                         response.FromString)
        return call(request, timeout=self._timeout)

    def insert(self, entries: Iterable[Entry]) -> list[Outcome]:
        """Offers entries as one batch: when this returns all are durable. An outcome for each, in order."""
        messages: queue.SimpleQueue[bytes] = queue.SimpleQueue()
        pieces, size = [], 0
        for entry in entries:
            more, bytes_more = _pieces(entry)
            if size and size + bytes_more > _MESSAGE_BYTES:
                messages.put(wire.whole_request(self._open_head(), pieces, size))
                pieces, size = [], 0
            pieces += more
            size += bytes_more
        messages.put(wire.whole_request(self._head, pieces, size))
        results = [result for response in self._offer(iter(_drained(messages)), timeout=self._timeout)
                   for result in response.results]
        return [Outcome(result.outcome) for result in results]

    def _open_head(self) -> bytes:
        return wire.OfferRequest(**self._who).SerializeToString()

    def inserter(self, in_flight: int = 16) -> Inserter:
        """For many entries: up to `in_flight` batches are under way at a time."""
        return Inserter(self._offer, self._head, in_flight)

    def read(self, ids: Sequence[int], conditioning: bool = False) -> Iterator[Entry]:
        """Entries with all their latents, in this order; those that are not there are left out."""
        call = self._channel.unary_stream(f"/{wire.REPLAY}/Read", wire.ReadRequest.SerializeToString, bytes)
        message, data = None, bytearray()
        request = wire.ReadRequest(entry_ids=ids, conditioning=conditioning)
        for raw in call(request, timeout=self._timeout):
            whole = wire.whole_entries(raw)
            response = wire.ReadResponse() if whole is not None else wire.ReadResponse.FromString(raw)
            if response.HasField("chunk"):
                data += response.chunk.data
                continue
            if message is not None:
                yield _entry_of(message, bytes(data))
            message, data = None, bytearray()
            if response.HasField("header"):
                message = response.header
            for entry, latents in whole or []:
                yield _entry_of(entry, latents)
            for entry in response.whole.entries:
                yield _entry_of(entry, entry.trajectory.latents.data)
        if message is not None:
            yield _entry_of(message, bytes(data))

    def draw(self, step: int, count: int, seed: int = 0, table: str = "") -> list[Any]:
        """Entries for a learner step, as messages without latents; the same step gets the same ones."""
        request = wire.DrawRequest(step=step, count=count, seed=seed, table=table, **self._who)
        return list(self._unary("Draw", request, wire.DrawResponse).entries)

    def advance(self, step: int, used: Iterable[int] = (), evict: Iterable[int] = ()) -> None:
        """Says that a step was committed, what it trained on, and what must leave."""
        request = wire.AdvanceRequest(step=step, used_entry_ids=used, evict_entry_ids=evict, **self._who)
        self._unary("Advance", request, wire.AdvanceResponse)

    def info(self) -> Any:
        return self._unary("Info", wire.InfoRequest(), wire.InfoResponse)

    def close(self) -> None:
        self._channel.close()

    def __enter__(self) -> "ReplayBuffer":
        return self

    def __exit__(self, *_: Any) -> None:
        self.close()


def _drained(messages: "queue.SimpleQueue[bytes]") -> Iterator[bytes]:
    while not messages.empty():
        yield messages.get()
