# SPDX-License-Identifier: Apache-2.0
"""The RPCs of service Reward and of health: converts, asks the scorers, converts, counts."""
from __future__ import annotations

import asyncio
import logging
import time
from collections import Counter
from contextlib import aclosing, asynccontextmanager
from typing import Any, AsyncGenerator, AsyncIterator, Mapping, Sequence

import grpc

from . import log, wire
from .access import Access, Refused
from .assembly import Batch, Limits, Medium, begin
from .batch_queue import Budget, Work
from .images import frames_of
from .item import Item
from .metrics import RewardMetrics
from .outcome import Outcome
from .rules import MaybeItem, metadata_of, refusals
from .scorer import Scorer
from .shown import shown, together
from .status import StatusError, invalid

_DESCRIBE, _SCORE = f"/{wire.REWARD}/Describe", f"/{wire.REWARD}/Score"
_CHECK = f"/{wire.HEALTH}/Check"


class RewardService:
    """Lives in one event loop. `access`: None admits every caller."""

    def __init__(self, scorers: Mapping[str, Scorer], limits: Limits, metrics: RewardMetrics,
                 access: Access | None, version: str):
        self._scorers = scorers
        self._limits = limits
        self._metrics = metrics
        self._access = access
        self._version = version
        self._budget = Budget(limits.items_waiting_max, limits.bytes_waiting_max)
        self._calls: Counter[str] = Counter()  # By connection.

    def handlers(self) -> list[grpc.GenericRpcHandler]:
        return [
            grpc.method_handlers_generic_handler(wire.REWARD, {
                "Describe": grpc.unary_unary_rpc_method_handler(
                    self.describe, wire.DescribeRequest.FromString, wire.DescribeResponse.SerializeToString),
                "Score": grpc.stream_stream_rpc_method_handler(
                    self.score, wire.ScoreRequest.FromString, wire.ScoreResponse.SerializeToString),
            }),
            grpc.method_handlers_generic_handler(wire.HEALTH, {
                "Check": grpc.unary_unary_rpc_method_handler(
                    self.check_health, wire.HealthCheckRequest.FromString,
                    wire.HealthCheckResponse.SerializeToString),
            }),
        ]

    async def describe(self, _: Any, context: grpc.aio.ServicerContext) -> Any:
        async with self._admitted(_DESCRIBE, context):
            return self._describe()

    def _describe(self) -> Any:
        response = wire.DescribeResponse(batch_max=self._limits.batch_max, version=self._version,
                                         unix_time=time.time(), protocol=wire.REVISION)
        for scorer in self._scorers.values():
            reward = scorer.reward
            response.rewards.add(name=reward.name, value_min=reward.range[0], value_max=reward.range[1],
                                 groupwise=reward.groupwise, help=reward.help, identity=reward.identity,
                                 media=reward.reads, metadata_keys=reward.metadata_keys,
                                 batch_max=reward.batch_max, frames_every=reward.frames_every)
        return response

    async def check_health(self, request: Any, context: grpc.aio.ServicerContext) -> Any:
        await self._admit(_CHECK, context)
        asked = {"": list(self._scorers.values()), wire.REWARD: list(self._scorers.values())}
        asked.update({f"{wire.REWARD}/{name}": [one] for name, one in self._scorers.items()})
        if request.service not in asked:
            await context.abort(grpc.StatusCode.NOT_FOUND, f"no such service here: {request.service[:80]}")
        serving = all(scorer.serving for scorer in asked[request.service])
        return wire.HealthCheckResponse(status=wire.SERVING if serving else wire.NOT_SERVING)

    async def score(self, requests: AsyncIterator[Any], context: grpc.aio.ServicerContext) -> None:
        """One request after the other, as a whole; an error of one item leaves the call alone."""
        async with self._admitted(_SCORE, context):
            await self._score(requests, context)

    async def _score(self, requests: AsyncIterator[Any], context: grpc.aio.ServicerContext) -> None:
        start, ok = time.monotonic(), False
        traces = log.traces_of(context.invocation_metadata())
        answered = 0
        try:
            # Closing gives a batch's room back at once, however the call ends.
            async with aclosing(self._batches(requests.__aiter__())) as batches:
                since = start
                async for batch in batches:
                    await self._admit(_SCORE, context)  # It may have been revoked since.
                    responses = await self._answers(batch)
                    trace = traces[min(answered, len(traces) - 1)] if traces else ""
                    answered += 1
                    for response in responses:
                        await context.write(response)
                    self._log(responses, time.monotonic() - since, trace)
                    since = time.monotonic()
            ok = True
        except StatusError as error:
            if error.code is grpc.StatusCode.RESOURCE_EXHAUSTED:
                self._metrics.call_refused(_SCORE[1:], "busy")
            await context.abort(error.code, error.message, error.trailing)
        finally:
            self._metrics.call_ended(time.monotonic() - start, ok)

    @staticmethod
    def _log(responses: list[Any], seconds: float, trace: str) -> None:
        failed = [response.status_message for response in responses if response.status_code]
        if failed:
            log.event(logging.WARNING, "images not scored", images=len(responses), failed=len(failed),
                      reason=failed[0], trace=trace)
        log.event(logging.DEBUG, "images scored", images=len(responses), seconds=f"{seconds:.3f}", trace=trace)

    async def _admit(self, method: str, context: grpc.aio.ServicerContext) -> None:
        if self._access is None:
            return
        try:
            self._access.check(method, context.auth_context())
        except Refused as refused:
            self._metrics.call_refused(method[1:], refused.reason)
            log.event(logging.WARNING, "call refused", peer=context.peer(), method=method[1:],
                      reason=refused.message)
            await context.abort(refused.code, refused.message)

    @asynccontextmanager
    async def _admitted(self, method: str, context: grpc.aio.ServicerContext) -> AsyncGenerator[None, None]:
        """One of the calls that may run at a time. A connection cannot take them all."""
        await self._admit(method, context)
        connection = context.peer()
        most = self._limits.calls_per_connection_max
        if self._calls[connection] >= most or self._calls.total() >= self._limits.calls_max:
            self._metrics.call_refused(method[1:], "busy")
            here = f"{most} of one connection" if self._calls[connection] >= most else f"{self._calls.total()}"
            await context.abort(grpc.StatusCode.RESOURCE_EXHAUSTED,
                                f"busy: so many calls are running already: {here}; ask again later")
        self._calls[connection] += 1
        try:
            yield
        finally:
            self._calls[connection] -= 1
            if self._calls[connection] == 0:
                del self._calls[connection]

    async def _batches(self, requests: AsyncIterator[Any]) -> AsyncGenerator[Batch, None]:
        batch: Batch | None = None
        try:
            while (request := await self._next(requests, batch)) is not None:
                if batch is None:
                    self._metrics.batch_arrived(len(request.items))
                    batch = begin(request, self._limits, self._budget)
                else:
                    batch.add(request)
                if batch.whole:
                    yield batch
                    batch.release()
                    batch = None
            if batch is not None:
                raise invalid("the call ended before all pieces of its media had come")
        finally:
            if batch is not None:
                batch.release()

    async def _next(self, requests: AsyncIterator[Any], begun: Batch | None) -> Any | None:
        """The next request, None at the end. A call holds a place, and a batch room, so they must not tarry."""
        try:
            return await asyncio.wait_for(requests.__anext__(), self._limits.idle_seconds)
        except StopAsyncIteration:
            return None
        except asyncio.TimeoutError:
            what = "request" if begun is None else "piece of a medium"
            raise StatusError(grpc.StatusCode.DEADLINE_EXCEEDED, f"the next {what} did not come within "
                                                                 f"{self._limits.idle_seconds:g} s") from None

    async def _answers(self, batch: Batch) -> list[Any]:
        request = batch.request
        scorers = self._select(request.rewards)
        items = await self._items(request, batch.media)
        call = object()
        table = await asyncio.gather(*(self._outcomes(scorer, request, items, call) for scorer in scorers))
        return [_response(medium.item, [(scorer.name, column[row]) for scorer, column in zip(scorers, table)])
                for row, medium in enumerate(batch.media)]

    def _select(self, names: Sequence[str]) -> list[Scorer]:
        selected = list(dict.fromkeys(names)) or list(self._scorers)
        for name in selected:
            if name not in self._scorers:
                raise StatusError(grpc.StatusCode.NOT_FOUND, f"this server has no such reward: {name[:80]}")
            if not self._scorers[name].serving:
                raise StatusError(grpc.StatusCode.UNAVAILABLE, f"reward is not ready: {name}")
        return [self._scorers[name] for name in selected]

    async def _items(self, request: Any, media: Sequence[Medium]) -> list[MaybeItem]:
        """Reads pixels; PNG and JPEG in other threads, so that no other call waits for them."""
        def read() -> list[MaybeItem]:
            return [_item(request, medium) for medium in media]

        if any(medium.image.encoding for medium in media):
            return await asyncio.get_running_loop().run_in_executor(None, read)
        return read()

    async def _outcomes(self, scorer: Scorer, request: Any, items: Sequence[MaybeItem],
                        call: object) -> list[Outcome]:
        refused = refusals(scorer.reward, scorer.batch_max, request.group_complete, items)
        taken = [item for item, why in zip(items, refused) if why is None and isinstance(item, Item)]
        parts = [shown(scorer.reward, item) for item in taken]
        one_by_one = [[item] for part in parts for item in part]
        groups = [[item for item, in parts]] if scorer.reward.groupwise and taken else one_by_one
        scores = iter([one for part in await _ask(scorer, groups, call) for one in part])
        made = iter([together([next(scores) for _ in part]) for part in parts])
        outcomes = [next(made) if why is None else why for why in refused]
        for outcome in outcomes:
            self._metrics.item_scored(scorer.name, outcome)
        return outcomes


async def _ask(scorer: Scorer, groups: Sequence[Sequence[Item]], call: object) -> list[list[Outcome]]:
    """Gives work to the scorer and waits for it. If the call ends meanwhile, the rest is given up."""
    loop = asyncio.get_running_loop()
    futures: list[asyncio.Future[list[Outcome]]] = [loop.create_future() for _ in groups]

    def deliver_to(future: asyncio.Future[list[Outcome]]) -> Any:
        def settle(outcomes: list[Outcome]) -> None:
            if not future.done():
                future.set_result(outcomes)

        def deliver(outcomes: list[Outcome]) -> None:
            try:
                loop.call_soon_threadsafe(settle, outcomes)
            except RuntimeError:  # The server has ended and its loop is closed.
                pass

        return deliver

    works = [Work(call, items, deliver_to(future)) for items, future in zip(groups, futures)]
    try:
        scorer.put(works)
        return list(await asyncio.gather(*futures))
    finally:
        for work in works:
            work.given_up = True


def _item(request: Any, medium: Medium) -> MaybeItem:
    try:
        if medium.refusal is not None:
            raise medium.refusal
        return Item(frames_of(medium.image, medium.pixels), request.prompt.text,
                    metadata_of(request.prompt.metadata_json), request.group, max(1, medium.image.frames_every))
    except StatusError as error:
        return error


def _response(item: int, outcomes: Sequence[tuple[str, Outcome]]) -> Any:
    """All wanted rewards or none in `rewards`: clients of before take a partial answer for a whole one."""
    response = wire.ScoreResponse(item=item)
    for name, outcome in outcomes:
        response.outcomes.add(name=name, value=outcome.value, status_code=outcome.code,
                              status_message=outcome.message, note=outcome.note)
    failed = [outcome for _, outcome in outcomes if not outcome.ok]
    if failed:
        response.status_code, response.status_message = failed[0].code, failed[0].message
    else:
        for name, outcome in outcomes:
            response.rewards.add(name=name, value=outcome.value)
    return response
