# SPDX-License-Identifier: Apache-2.0
"""Runs rewards behind gRPC: start, health, READY line, orderly end."""
from __future__ import annotations

import asyncio
import logging
import signal
import threading
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import partial
from typing import Any, Callable, Coroutine, Iterator, Sequence

import grpc

from .. import __version__
from ..protocol import CHANNEL_OPTIONS
from . import log, reward_file
from .addresses import host_and_port, text_of
from .assembly import Limits
from .definition import Reward
from .metrics import RewardMetrics
from .metrics_page import MetricsPage
from .scorer import Scorer, load_failure
from .service import RewardService
from .status import EXIT_UNAVAILABLE, SetupError, end
from .tls import Tls, may_listen

PROGRAM = "oxbow-reward"
_GRACE_SECONDS = 10.0
_OPTIONS = [
    *CHANNEL_OPTIONS,
    ("grpc.so_reuseport", 0),
    ("grpc.max_concurrent_streams", 4096),
    ("grpc.keepalive_time_ms", 20_000),
    ("grpc.keepalive_timeout_ms", 10_000),
    ("grpc.keepalive_permit_without_calls", 1),
    ("grpc.http2.min_ping_interval_without_data_ms", 5_000),
]


@dataclass(frozen=True)
class Options:
    listen: str = "127.0.0.1:0"
    metrics_listen: str = "127.0.0.1:0"
    tls: Tls = field(default_factory=Tls)
    plaintext: bool = False
    limits: Limits = field(default_factory=Limits)
    log_level: str = "info"
    log_format: str = "text"  # or json


class Server:
    """One server in the running event loop."""

    def __init__(self, rewards: Sequence[Reward], options: Options):
        check_names(rewards)
        options.tls.check()
        may_listen(options.listen, options.tls, options.plaintext)
        self._scorers = {reward.name: Scorer(reward, options.limits.batch_max) for reward in rewards}
        self._metrics = RewardMetrics(rewards, __version__)
        self._service = RewardService(self._scorers, options.limits, self._metrics, options.tls.access(),
                                      __version__)
        self._options = options
        self.endpoint = self.metrics_endpoint = ""

    async def start(self) -> None:
        """Listens; the rewards begin to load. SetupError if an address cannot be bound."""
        host, port = host_and_port(self._options.listen)
        self._page = MetricsPage(self._options.metrics_listen, self._metrics.page)
        self.metrics_endpoint = self._page.endpoint
        self._server = grpc.aio.server(options=_OPTIONS)
        self._server.add_generic_rpc_handlers(tuple(self._service.handlers()))
        address, tls = text_of(host, port), self._options.tls
        try:
            bound = (self._server.add_secure_port(address, tls.server_credentials()) if tls.used
                     else self._server.add_insecure_port(address))
        except RuntimeError:
            bound = 0
        if bound == 0:
            self._page.close()
            raise SetupError(f"cannot listen on {address} (--listen); is the port in use?", EXIT_UNAVAILABLE)
        self.endpoint = text_of(host, bound)
        loop = asyncio.get_running_loop()
        self._loaded = [loop.create_future() for _ in self._scorers]
        for scorer, future in zip(self._scorers.values(), self._loaded):
            scorer.start(partial(loop.call_soon_threadsafe, _settle, future))
        await self._server.start()

    async def wait_until_loaded(self) -> None:
        """SetupError if a reward cannot be loaded."""
        for future in self._loaded:
            await future
        for name, scorer in self._scorers.items():
            if (error := scorer.load_error) is not None:
                raise load_failure(name, error)

    async def stop(self, grace: float = _GRACE_SECONDS) -> None:
        """New calls are refused, also those of health; running ones get `grace` seconds."""
        await self._server.stop(grace)
        for scorer in self._scorers.values():
            scorer.close()
        self._page.close()


def _settle(future: asyncio.Future[None]) -> None:
    if not future.done():
        future.set_result(None)


def check_names(rewards: Sequence[Reward]) -> None:
    if not rewards:
        raise SetupError("no reward to serve: give at least one function or class with @reward")
    seen = set()
    for one in rewards:
        if not isinstance(one, Reward):
            raise SetupError(f"not a reward (it needs @reward): {one!r:.80}")
        if one.name in seen:
            raise SetupError(f"reward is named twice: {one.name}")
        seen.add(one.name)


def serve(*rewards: Reward, listen: str = "127.0.0.1:0", metrics_listen: str = "127.0.0.1:0",
          batch_max: int = 64, tls: Tls | None = None, plaintext: bool = False) -> None:
    """Serves rewards until SIGTERM or SIGINT, then ends what runs and returns.

    Prints `READY name=... grpc=HOST:PORT metrics=HOST:PORT` once all rewards are loaded. An error ends the
    process with one line on stderr and the exit codes of docs/formats.md. Does nothing in a file that
    `oxbow-reward` reads.
    """
    if reward_file.is_reading():
        return
    options = Options(listen, metrics_listen, tls or Tls.from_environment(), plaintext, Limits(batch_max=batch_max))
    try:
        run(rewards, options)
    except SetupError as error:
        end(PROGRAM, error)


def run(rewards: Sequence[Reward], options: Options) -> None:
    """As serve; raises SetupError."""
    log.to_stderr("reward_server", options.log_level, options.log_format)
    server = Server(rewards, options)
    asyncio.run(_serve(server))


async def _serve(server: Server) -> None:
    stop = asyncio.Event()
    loop = asyncio.get_running_loop()
    hangup = [] if signal.getsignal(signal.SIGHUP) is signal.SIG_IGN else [signal.SIGHUP]  # As under nohup.
    for one in [signal.SIGTERM, signal.SIGINT, signal.SIGUSR1, signal.SIGUSR2, *hangup]:
        loop.add_signal_handler(one, _stopping, loop, one, stop)
    await server.start()
    loaded = asyncio.ensure_future(server.wait_until_loaded())
    stopped = asyncio.ensure_future(stop.wait())
    await asyncio.wait([loaded, stopped], return_when=asyncio.FIRST_COMPLETED)
    try:
        if loaded.done():
            loaded.result()
            print(f"READY name=reward_server grpc={server.endpoint} metrics={server.metrics_endpoint}", flush=True)
        await stopped
    finally:
        for task in (loaded, stopped):
            task.cancel()
        await server.stop()


def _stopping(loop: asyncio.AbstractEventLoop, which: signal.Signals, stop: asyncio.Event) -> None:
    log.event(logging.INFO, "stopping", signal=int(which))
    loop.remove_signal_handler(which)  # A second one ends the process at once.
    stop.set()


@contextmanager
def running(rewards: Sequence[Reward], options: Options = Options(), *,
            wait: bool = True, grace: float = 1.0) -> Iterator[Server]:
    """A server in a thread of its own, for tests and `oxbow-reward check`."""
    server = Server(rewards, options)
    loop = asyncio.new_event_loop()
    thread = threading.Thread(target=loop.run_forever, name="server", daemon=True)
    thread.start()

    def call(make: Callable[[], Coroutine[Any, Any, None]]) -> None:
        asyncio.run_coroutine_threadsafe(make(), loop).result()

    try:
        call(server.start)
        try:
            if wait:
                call(server.wait_until_loaded)
            yield server
        finally:
            call(lambda: server.stop(grace))
    finally:
        loop.call_soon_threadsafe(loop.stop)
        thread.join()
        loop.close()
