# SPDX-License-Identifier: Apache-2.0
"""GET /metrics over HTTP, in one thread of its own.

One thread waits for all connections, so a caller that says nothing, or reads nothing, delays no other. Each connection
ends after SECONDS_MAX; if too many are open, the oldest ends.
"""
from __future__ import annotations

import asyncio
import socket
import threading
from typing import Callable

from .addresses import host_and_port, text_of
from .status import EXIT_UNAVAILABLE, SetupError

SECONDS_MAX = 10.0
CONNECTIONS_MAX = 64
_REQUEST_BYTES_MAX = 8192


class MetricsPage:
    """Serves `page()` until close(). SetupError if the address cannot be bound."""

    def __init__(self, listen: str, page: Callable[[], str]):
        host, port = host_and_port(listen)
        try:
            listening = socket.create_server((host, port), family=socket.AF_INET6 if ":" in host else socket.AF_INET)
        except OSError as error:
            raise SetupError(f"cannot listen on {listen} (--metrics-listen): {error.strerror or error}",
                             EXIT_UNAVAILABLE) from None
        self.endpoint = text_of(host, listening.getsockname()[1])
        self._page = page
        self._open: dict[asyncio.StreamWriter, None] = {}  # Oldest first.
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._run, args=(listening,), name="metrics", daemon=True)
        self._thread.start()

    def close(self) -> None:
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join()

    def _run(self, listening: socket.socket) -> None:
        server = self._loop.run_until_complete(self._listen(listening))
        self._loop.run_forever()
        server.close()
        tasks = asyncio.all_tasks(self._loop)
        for task in tasks:
            task.cancel()
        if tasks:
            self._loop.run_until_complete(asyncio.wait(tasks))
        self._loop.close()

    async def _listen(self, listening: socket.socket) -> asyncio.AbstractServer:
        return await asyncio.start_server(self._serve, sock=listening, limit=_REQUEST_BYTES_MAX)

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._open[writer] = None
        if len(self._open) > CONNECTIONS_MAX:
            next(iter(self._open)).transport.abort()
        try:
            await asyncio.wait_for(self._answer(reader, writer), SECONDS_MAX)
        except (asyncio.TimeoutError, asyncio.IncompleteReadError, asyncio.LimitOverrunError, OSError):
            writer.transport.abort()
        finally:
            del self._open[writer]
            writer.close()

    async def _answer(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        request = (await reader.readuntil(b"\r\n\r\n")).split(b" ", 2)
        found = request[0] == b"GET" and len(request) == 3 and request[1].split(b"?")[0] == b"/metrics"
        body = self._page().encode() if found else b"only GET /metrics is here\n"
        writer.write((f"HTTP/1.1 {'200 OK' if found else '404 Not Found'}\r\n"
                      "Content-Type: text/plain; version=0.0.4; charset=utf-8\r\n"
                      f"Content-Length: {len(body)}\r\nConnection: close\r\n\r\n").encode() + body)
        await writer.drain()
        writer.close()
        await writer.wait_closed()
