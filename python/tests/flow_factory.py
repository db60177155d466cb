# SPDX-License-Identifier: Apache-2.0
"""A server of Flow-Factory's remote reward protocol: a stand-in written from the protocol, or the project's
example server, unmodified, from a checkout that FLOW_FACTORY names. That one needs fastapi, uvicorn and Pillow.
"""
import base64
import importlib.util
import io
import json
import os
import sys
import threading
import time
import types
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

from PIL import Image

CHECKOUT = os.environ.get("FLOW_FACTORY")
PATIENCE = 60.0


def _read(picture):
    return Image.open(io.BytesIO(base64.b64decode(picture))).convert("RGB")


class _Handler(BaseHTTPRequestHandler):
    def do_POST(self):
        asked = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
        try:
            if self.path != "/compute":
                raise ValueError(f"no such path: {self.path}")
            rewards = self.server.compute(
                prompt=asked["prompt"], image=[_read(one) for one in asked["image"]] if asked.get("image") else None,
                video=[[_read(one) for one in frames] for frames in asked["video"]] if asked.get("video") else None)
            code, answer = 200, {"rewards": rewards}
        except Exception as error:
            code, answer = 500, {"detail": str(error)}
        body = json.dumps(answer).encode()
        self.send_response(code)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, *_):
        pass


@contextmanager
def stand_in_server(compute):
    server = ThreadingHTTPServer(("127.0.0.1", 0), _Handler)
    server.compute = compute
    thread = threading.Thread(target=server.serve_forever)
    thread.start()
    try:
        yield f"http://127.0.0.1:{server.server_port}"
    finally:
        server.shutdown()
        thread.join()
        server.server_close()


def _load(name, path):
    spec = importlib.util.spec_from_file_location(name, Path(CHECKOUT, path))
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@contextmanager
def upstream_server(compute):
    """Flow-Factory's example server with this function, in a thread."""
    import uvicorn
    example = _load("example_server", "reward_server/example_server.py")
    servers = []

    class Held(uvicorn.Server):
        def __init__(self, config):
            super().__init__(config)
            servers.append(self)

    def run(app, host, port):
        Held(uvicorn.Config(app, host=host, port=0, log_level="error")).run()

    class Example(example.RewardServer):
        def compute_reward(self, prompt, image=None, video=None, **_):
            return compute(prompt=prompt, image=image, video=video)

    example.uvicorn = types.SimpleNamespace(run=run)
    thread = threading.Thread(target=Example(host="127.0.0.1").run)
    thread.start()
    end = time.monotonic() + PATIENCE
    while not (servers and servers[0].started) and time.monotonic() < end:
        time.sleep(0.01)
    try:
        port = servers[0].servers[0].sockets[0].getsockname()[1]
        yield f"http://127.0.0.1:{port}"
    finally:
        servers[0].should_exit = True
        thread.join()


def server(compute):
    return upstream_server(compute) if CHECKOUT else stand_in_server(compute)
