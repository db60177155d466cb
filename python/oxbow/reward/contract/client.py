# SPDX-License-Identifier: Apache-2.0
"""A caller of a reward server that says exactly what was asked and answered."""
from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any, Iterable, Sequence

import grpc

from .. import wire
from ..status import EXIT_DATA, EXIT_UNAVAILABLE, SetupError
from ..tls import Tls


@dataclass(frozen=True)
class Answer:
    """Responses by item, or the status that ended the call."""

    responses: dict[int, Any]
    code: grpc.StatusCode = grpc.StatusCode.OK
    message: str = ""
    trailing: dict[str, Any] = field(default_factory=dict)  # Metadata of a call that failed.

    @property
    def ok(self) -> bool:
        return self.code is grpc.StatusCode.OK


class Client:
    def __init__(self, endpoint: str, tls: Tls, timeout: float):
        self.endpoint = endpoint
        self._timeout = timeout
        self._channel = tls.channel(endpoint)

    def close(self) -> None:
        self._channel.close()

    def describe(self) -> Any:
        """SetupError if what listens there is no reward server that this caller may ask."""
        call = self._channel.unary_unary(f"/{wire.REWARD}/Describe", wire.DescribeRequest.SerializeToString,
                                         wire.DescribeResponse.FromString)
        try:
            return call(wire.DescribeRequest(), timeout=min(10.0, self._timeout), wait_for_ready=True)
        except grpc.RpcError as error:
            away = error.code() in (grpc.StatusCode.UNAVAILABLE, grpc.StatusCode.DEADLINE_EXCEEDED)
            raise SetupError(f"no reward server answers at {self.endpoint}: {error.code().name}: "
                             f"{' '.join((error.details() or '').split())[:200]}",
                             EXIT_UNAVAILABLE if away else EXIT_DATA) from None

    def health(self, service: str) -> int | None:
        """The status of a service; None if the server does not know it."""
        call = self._channel.unary_unary(f"/{wire.HEALTH}/Check", wire.HealthCheckRequest.SerializeToString,
                                         wire.HealthCheckResponse.FromString)
        try:
            return int(call(wire.HealthCheckRequest(service=service), timeout=self._timeout).status)
        except grpc.RpcError as error:
            if error.code() is grpc.StatusCode.NOT_FOUND:
                return None
            raise

    def begin(self, requests: Iterable[Any]) -> Any:
        """A call of Score that the caller reads, or cancels."""
        call = self._channel.stream_stream(f"/{wire.REWARD}/Score", wire.ScoreRequest.SerializeToString,
                                           wire.ScoreResponse.FromString)
        return call(iter(requests), timeout=self._timeout)

    def score(self, *requests: Any) -> Answer:
        responses: dict[int, Any] = {}
        try:
            for response in self.begin(requests):
                if response.item in responses:
                    return Answer(responses, grpc.StatusCode.INTERNAL, f"item {response.item} is answered twice")
                responses[response.item] = response
        except grpc.RpcError as error:
            return Answer(responses, error.code(), error.details() or "", dict(error.trailing_metadata() or ()))
        return Answer(responses)


def request_of(images: Sequence[Any], prompt: str = "", metadata: str = "", rewards: Sequence[str] = (),
               group_complete: bool = False, first: int = 0) -> Any:
    """A request for images, whose items are numbered from `first`."""
    request = wire.ScoreRequest(rewards=rewards, group=1, group_complete=group_complete)
    request.prompt.text, request.prompt.metadata_json = prompt, metadata
    for number, image in enumerate(images, first):
        request.items.add(item=number, image=image)
    return request
