# SPDX-License-Identifier: Apache-2.0
"""Puts requests together whose media came in pieces (ScoreItem in proto/oxbow/v1/reward.proto).

Sizes are checked, and room is taken in the budget, before any further piece is read.
"""
from __future__ import annotations

import math
import time
from dataclasses import dataclass, field
from typing import Any, Sequence

import grpc

from . import memory
from .batch_queue import Budget
from .images import declared_bytes
from .status import StatusError, invalid


@dataclass(frozen=True)
class Limits:
    """The limits of a server for its callers."""

    batch_max: int = 64  # Items of one request.
    item_bytes_max: int = 256 << 20  # Pixels of one medium, decoded.
    items_waiting_max: int = 1024  # Over all calls; a request beyond is RESOURCE_EXHAUSTED.
    bytes_waiting_max: int = field(default_factory=lambda: memory.share(0.3, most=1 << 30))
    idle_seconds: float = 60.0  # For the next message of a call, the first and pieces of a medium too.
    # Calls at a time; one more is RESOURCE_EXHAUSTED. Health is beside them: a busy server is not a dead one.
    calls_max: int = 1024
    calls_per_connection_max: int = 256


@dataclass
class Medium:
    """One item as it arrived. `refusal` is why its sizes are not allowed."""

    item: int
    image: Any
    pieces: list[bytes]
    missing: int = 0  # Bytes that further requests have.
    refusal: StatusError | None = None

    @property
    def pixels(self) -> bytes:
        return self.pieces[0] if len(self.pieces) == 1 else b"".join(self.pieces)


@dataclass
class Batch:
    """One request, whole when nothing is missing. It holds room in the budget until it is released."""

    request: Any
    media: list[Medium]
    budget: Budget
    bytes: int
    since: float = field(default_factory=time.monotonic)
    _held: bool = field(default=True)

    @property
    def whole(self) -> bool:
        return all(medium.missing == 0 for medium in self.media)

    def add(self, request: Any) -> None:
        """Takes the next pieces. INVALID_ARGUMENT if they are of no medium that waits for them."""
        missing = {medium.item: medium for medium in self.media if medium.missing}
        for piece in request.items:
            medium = missing.get(piece.item)
            size = len(piece.image.pixels)
            if medium is None:
                raise invalid(f"item {piece.item} is not in pieces, and other items are not complete yet")
            if size == 0 or size > medium.missing:
                raise invalid(f"piece of item {piece.item} has {size} bytes; {medium.missing} are missing")
            medium.pieces.append(piece.image.pixels)
            medium.missing -= size

    def release(self) -> None:
        if self._held:
            self._held = False
            self.budget.give_back(len(self.media), self.bytes, time.monotonic() - self.since)


def begin(request: Any, limits: Limits, budget: Budget) -> Batch:
    """Begins the batch of a request. INVALID_ARGUMENT for a size over the limits, RESOURCE_EXHAUSTED
    if too much waits already."""
    if len(request.items) > limits.batch_max:
        raise invalid("batch has more items than Describe's batch_max: "
                      f"{len(request.items)} over {limits.batch_max}")
    media, size = [], 0
    for item in request.items:
        medium, one = _medium(item, limits)
        media.append(medium)
        size += one
    _check_names(media)
    if size > limits.bytes_waiting_max:
        raise invalid(f"batch is larger than this server: {size} bytes over {limits.bytes_waiting_max}")
    if not budget.take(len(media), size):
        raise StatusError(grpc.StatusCode.RESOURCE_EXHAUSTED,
                          f"busy: {budget.items} items of {budget.bytes} bytes wait already; ask again in "
                          f"{math.ceil(1000 * budget.pause)} ms, or start more reward servers", budget.pause)
    return Batch(request, media, budget, size)


def _medium(item: Any, limits: Limits) -> tuple[Medium, int]:
    image, held = item.image, len(item.image.pixels)
    if image.pixels_size > limits.item_bytes_max:
        raise invalid(f"item {item.item} is too large: {image.pixels_size} bytes over {limits.item_bytes_max}")
    medium = Medium(item.item, image, [image.pixels], max(0, image.pixels_size - held))
    decoded = 0
    try:
        decoded = declared_bytes(image, limits.item_bytes_max)
        if image.pixels_size and image.pixels_size < held:
            raise invalid(f"image has more bytes than pixels_size: {held} over {image.pixels_size}")
    except StatusError as refusal:
        medium.refusal = refusal
    file = max(held, image.pixels_size)
    return medium, max(decoded, file) if not image.encoding else decoded + file


def _check_names(media: Sequence[Medium]) -> None:
    open_items = [medium.item for medium in media if medium.missing]
    if any(sum(other.item == item for other in media) > 1 for item in open_items):
        raise invalid("two items of one number, one of them in pieces")
