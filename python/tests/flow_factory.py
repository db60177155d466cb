# SPDX-License-Identifier: Apache-2.0
"""Client and server of Flow-Factory's remote reward protocol: stand-ins written from the protocol, or the
project's own code, unmodified, from a checkout that FLOW_FACTORY names.

Its own code needs requests, fastapi, uvicorn and Pillow. What it imports of torch, accelerate and its own
package is replaced by the few names that the client uses.
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
import urllib.error
import urllib.request
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

from PIL import Image

CHECKOUT = os.environ.get("FLOW_FACTORY")
PATIENCE = 60.0


def _png64(image):
    buffer = io.BytesIO()
    image.save(buffer, format="PNG")
    return base64.b64encode(buffer.getvalue()).decode()


class StandInClient:
    """Sends what Flow-Factory's client sends, and raises where it raises."""

    def __init__(self, server_url, timeout=PATIENCE, retries=1):
        self.url, self.timeout, self.retries = server_url.rstrip("/"), timeout, retries

    def _answer(self, path, data=None):
        request = urllib.request.Request(self.url + path, data, {"Content-Type": "application/json"})
        with urllib.request.urlopen(request, timeout=self.timeout) as answer:
            return json.load(answer)

    def health_check(self):
        try:
            self._answer("/health")
            return True
        except OSError:
            return False

    def compute(self, prompt, image=None, video=None, **kwargs):
        body = {"prompt": prompt, "image": [_png64(one) for one in image] if image else None,
                "video": [[_png64(frame) for frame in one] for one in video] if video else None,
                "condition_images": None, "condition_videos": None, "kwargs": kwargs or None}
        for left in reversed(range(self.retries)):
            try:
                return self._answer("/compute", json.dumps(body).encode())["rewards"]
            except urllib.error.URLError as error:
                if not left:
                    raise RuntimeError(f"{self.url}: {error}") from error
        raise AssertionError


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


def _module(name, **names):
    module = types.ModuleType(name)
    module.__dict__.update(names)
    sys.modules[name] = module


def _load(name, path):
    spec = importlib.util.spec_from_file_location(name, Path(CHECKOUT, path))
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


class _Model:
    def __init__(self, config, accelerator):
        self.device = "cpu"


class _Output:
    def __init__(self, rewards):
        self.rewards = rewards


def upstream_model(groupwise=False):
    """Flow-Factory's own class of remote rewards."""
    _module("torch", Tensor=type("Tensor", (), {}), float32="float32", no_grad=lambda: lambda function: function,
            tensor=lambda values, **_: list(values))
    _module("accelerate", Accelerator=object)
    for name in ("flow_factory", "flow_factory.rewards"):
        _module(name)
    _module("flow_factory.hparams", RewardArguments=object)
    _module("flow_factory.rewards.abc", GroupwiseRewardModel=_Model, PointwiseRewardModel=_Model,
            RewardModelOutput=_Output)
    module = _load("flow_factory.rewards.my_reward_remote", "src/flow_factory/rewards/my_reward_remote.py")
    return module.RemoteGroupwiseRewardModel if groupwise else module.RemotePointwiseRewardModel


class UpstreamClient:
    """The class as its trainer calls it."""

    def __init__(self, server_url):
        config = types.SimpleNamespace(server_url=server_url, timeout=PATIENCE, retry_attempts=1)
        self.model = upstream_model()(config, None)

    def health_check(self):
        return self.model.client.health_check()

    def compute(self, prompt, image=None, video=None):
        return self.model(prompt, image=image, video=video).rewards


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


def client(server_url):
    return UpstreamClient(server_url) if CHECKOUT else StandInClient(server_url)


def server(compute):
    return upstream_server(compute) if CHECKOUT else stand_in_server(compute)
