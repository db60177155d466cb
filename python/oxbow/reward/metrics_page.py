# SPDX-License-Identifier: Apache-2.0
"""GET /metrics over HTTP, in a thread of its own."""
from __future__ import annotations

import socket
import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any, Callable

from .addresses import host_and_port, text_of
from .status import EXIT_UNAVAILABLE, SetupError


class MetricsPage:
    """Serves `page()` until close(). SetupError if the address cannot be bound."""

    def __init__(self, listen: str, page: Callable[[], str]):
        class Handler(BaseHTTPRequestHandler):
            timeout = 10  # Seconds for a caller that says nothing.

            def do_GET(self) -> None:
                found = self.path.split("?")[0] == "/metrics"
                body = page().encode() if found else b"only /metrics is here\n"
                self.send_response(200 if found else 404)
                self.send_header("Content-Type", "text/plain; version=0.0.4; charset=utf-8")
                self.send_header("Content-Length", str(len(body)))
                self.end_headers()
                self.wfile.write(body)

            def log_message(self, *_: Any) -> None:
                pass

        host, port = host_and_port(listen)

        class Server(ThreadingHTTPServer):
            address_family = socket.AF_INET6 if ":" in host else socket.AF_INET
            daemon_threads = True

        try:
            self._server = Server((host, port), Handler)
        except OSError as error:
            raise SetupError(f"cannot listen on {listen} (--metrics-listen): {error.strerror or error}",
                             EXIT_UNAVAILABLE) from None
        self.endpoint = text_of(host, self._server.server_address[1])
        threading.Thread(target=self._server.serve_forever, name="metrics", daemon=True).start()

    def close(self) -> None:
        self._server.shutdown()
        self._server.server_close()
