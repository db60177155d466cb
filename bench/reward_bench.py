#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Rewards in oxbow and in Python, on one machine and in one run: ratios of medians.

    bench/reward_bench.py build/release/bin/reward_bench [--work DIR] [--parts model,towers,http,fill,overload] [--repeats 3]
                          [--flow-grpo CHECKOUT] [--flow-factory CHECKOUT]

model     a group of 24 pictures of 512 px, one thread, random weights of ViT-B/32 and ViT-L/14, preprocessing included:
          PickScore here, and flow_grpo's formula on transformers' CLIPModel with Pillow's preprocessing. With --flow-grpo it
          is flow_grpo's own scorer (flow_grpo/pickscore_scorer.py), which finds these weights under the names it asks for;
          it needs a transformers before 5
towers    two rewards over one model, and one
http      a scorer that costs nothing, groups of 24 of 512 px over loopback: reward_server's service with oxbow's client, and
          a stand-in for Flow-Factory's example server with its client: HTTP, JSON, PNG in base64 (standard library, Pillow).
          With --flow-factory it is that server as a process, as it is, and its client; they need fastapi, uvicorn, requests
fill      8 callers with groups of 3 pictures, batches of 8
overload  ten times what a scorer can do, for --seconds (60), with room for 32 MiB of pixels

Needs torch, transformers and Pillow for `model`, `towers` and `http`.
"""
import argparse
import base64
import http.server
import importlib.util
import io
import json
import os
import pathlib
import resource
import shutil
import socket
import statistics
import subprocess
import sys
import threading
import time
import urllib.request

ROOT = pathlib.Path(__file__).resolve().parent.parent
PICTURES, SIDE = 24, 512
SIZES = {"ViT-B/32": (32, 768, 12, 512, 8, 512), "ViT-L/14": (14, 1024, 16, 768, 12, 768)}  # vision, then text and projection
LAYERS = {"ViT-B/32": (12, 12), "ViT-L/14": (24, 12)}


def make_model(name, folder):
    import torch
    from transformers import CLIPConfig, CLIPModel
    patch, width, heads, text_width, text_heads, projection = SIZES[name]
    vision_layers, text_layers = LAYERS[name]
    config = CLIPConfig(
        projection_dim=projection,
        text_config=dict(hidden_size=text_width, intermediate_size=4 * text_width, num_hidden_layers=text_layers,
                         num_attention_heads=text_heads, hidden_act="quick_gelu", vocab_size=49408,
                         max_position_embeddings=77, projection_dim=projection),
        vision_config=dict(hidden_size=width, intermediate_size=4 * width, num_hidden_layers=vision_layers,
                           num_attention_heads=heads, hidden_act="quick_gelu", image_size=224, patch_size=patch,
                           projection_dim=projection))
    torch.manual_seed(0)
    CLIPModel(config).save_pretrained(folder)
    for file in (ROOT / "tests/golden/models/tokenizer").iterdir():
        shutil.copyfile(file, folder / file.name)


def picture(number):
    import numpy
    y, x = numpy.mgrid[0:SIDE, 0:SIDE].astype(numpy.uint32)
    noise = numpy.random.default_rng(number).integers(0, 11, (SIDE, SIDE, 3))
    return ((x * (number % 7 + 1) // 2 + y)[..., None] + noise + number).astype(numpy.uint8)


def formula_scorer(folder):
    """flow_grpo's PickScore: processor, both encoders, unit vectors, exp(logit_scale) cos / 26."""
    import torch
    from transformers import CLIPModel, CLIPTokenizer
    from transformers.models.clip.image_processing_pil_clip import CLIPImageProcessorPil
    model = CLIPModel.from_pretrained(folder).eval()
    tokenizer, processor = CLIPTokenizer.from_pretrained(folder), CLIPImageProcessorPil()

    def unit(x):
        x = getattr(x, "pooler_output", x)
        return x / x.norm(p=2, dim=-1, keepdim=True)

    def score(prompts, images):
        with torch.no_grad():
            pixels = processor(images, return_tensors="pt")
            ids = tokenizer(prompts, padding=True, truncation=True, max_length=77, return_tensors="pt")
            image = unit(model.get_image_features(**pixels))
            text = unit(model.get_text_features(**ids))
            return (model.logit_scale.exp() * (text @ image.T)).diag().div(26)
    return score


def flow_grpo_scorer(folder, checkout):
    """flow_grpo's own class. It loads its models by their names on a hub: this model stands in for them."""
    import types
    from transformers import AutoModel, CLIPImageProcessor, CLIPProcessor, CLIPTokenizerFast
    spec = importlib.util.spec_from_file_location("pickscore_scorer", pathlib.Path(checkout, "flow_grpo/pickscore_scorer.py"))
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    processor = CLIPProcessor(CLIPImageProcessor(), CLIPTokenizerFast.from_pretrained(folder))
    module.AutoProcessor = types.SimpleNamespace(from_pretrained=lambda _: processor)
    module.AutoModel = types.SimpleNamespace(from_pretrained=lambda _: AutoModel.from_pretrained(folder))
    return module.PickScoreScorer(device="cpu")


def python_scorer(args):
    import torch
    from PIL import Image
    torch.set_num_threads(1)
    score = flow_grpo_scorer(args.child, args.flow_grpo) if args.flow_grpo else formula_scorer(args.child)
    seconds = []
    for turn in range(args.rounds + 1):  # The first one warms up.
        pictures = [picture(turn * 1000 + i) for i in range(PICTURES)]
        prompts = [f"a photo of {turn} red apples on a table"] * PICTURES
        start = time.perf_counter()
        score(prompts, [Image.fromarray(p) for p in pictures]).tolist()
        if turn > 0:
            seconds.append(time.perf_counter() - start)
    print(json.dumps({"seconds": seconds, "peak_mib": resource.getrusage(resource.RUSAGE_SELF).ru_maxrss // 1024}))


def call(command):
    environment = os.environ | {"OMP_NUM_THREADS": "1", "MKL_NUM_THREADS": "1"}
    run = subprocess.run(command, capture_output=True, text=True, env=environment)
    if run.returncode != 0:
        sys.exit(f"{' '.join(command)}: {run.stderr.strip()[-2000:]}")
    return json.loads(run.stdout.splitlines()[-1])


def in_turns(commands, repeats):
    """Runs the commands in turns. Median seconds and largest peak of memory of each."""
    runs = [[call(command) for command in commands] for _ in range(repeats)]
    return [(statistics.median(s for run in runs for s in run[i]["seconds"]), max(run[i]["peak_mib"] for run in runs))
            for i in range(len(commands))]


def entry(folder, name, more=""):
    return ["--entry", f"{{name: {name}, model: {folder}{more}}}"]


def model(args):
    for name in args.models.split(","):
        folder = args.folder(name)
        ours, theirs = in_turns([[args.bench, "model", "--rounds", str(args.rounds)] + entry(folder, "pickscore"),
                                 [sys.executable, __file__, "--child", str(folder), "--rounds", str(args.rounds), args.bench] +
                                 (["--flow-grpo", str(args.flow_grpo)] if args.flow_grpo else [])],
                                args.repeats)
        whose = "flow_grpo's scorer" if args.flow_grpo else "its formula in Python"
        print(f"{name}: oxbow {PICTURES / ours[0]:.2f} pictures/s, {whose} {PICTURES / theirs[0]:.2f}: "
              f"{theirs[0] / ours[0]:.2f} times; peak {ours[1]} and {theirs[1]} MiB: {ours[1] / theirs[1]:.2f}", flush=True)


def towers(args):
    folder = args.folder("ViT-B/32")
    command = [args.bench, "model", "--rounds", str(args.rounds)] + entry(folder, "pickscore")
    one, two = in_turns([command, command + entry(folder, "clipscore", ", variant: flow_factory")], args.repeats)
    print(f"two rewards on one tower: {two[0] / one[0]:.3f} times the time of one, {two[1] / one[1]:.2f} times the memory",
          flush=True)


class Server:
    """`reward_bench serve` as a process."""

    def __init__(self, args, *flags):
        self.process = subprocess.Popen([args.bench, "serve", *flags], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
        self.endpoint = self.process.stdout.readline().strip()

    def peak_mib(self):
        status = pathlib.Path(f"/proc/{self.process.pid}/status").read_text()
        return int(next(line for line in status.splitlines() if line.startswith("VmHWM")).split()[1]) // 1024

    def end(self):
        out, _ = self.process.communicate("")
        return json.loads(out)


class Compute(http.server.BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"

    def do_POST(self):
        from PIL import Image
        request = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
        for text in request["image"]:
            Image.open(io.BytesIO(base64.b64decode(text))).convert("RGB")
        body = json.dumps({"rewards": [0.0] * len(request["image"])}).encode()
        self.send_response(200)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, *_):
        pass


def http_pictures_per_s(seconds):
    from PIL import Image
    server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Compute)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    pictures = [Image.fromarray(picture(i)) for i in range(PICTURES)]
    start, count = time.perf_counter(), 0
    while time.perf_counter() - start < seconds:
        encoded = []
        for image in pictures:
            buffer = io.BytesIO()
            image.save(buffer, format="PNG")
            encoded.append(base64.b64encode(buffer.getvalue()).decode())
        body = json.dumps({"prompt": ["a prompt"] * PICTURES, "image": encoded}).encode()
        request = urllib.request.Request(f"http://127.0.0.1:{server.server_port}/compute", body)
        count += len(json.loads(urllib.request.urlopen(request).read())["rewards"])
    rate = count / (time.perf_counter() - start)
    server.shutdown()
    return rate


def example_server(checkout):
    """Flow-Factory's example server as a process, and its URL, once it answers."""
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    process = subprocess.Popen(
        [sys.executable, str(checkout / "reward_server/example_server.py"), "--host", "127.0.0.1", "--port", str(port)],
        stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    url = f"http://127.0.0.1:{port}"
    for _ in range(300):
        try:
            urllib.request.urlopen(url + "/health").read()
            return process, url
        except OSError:
            time.sleep(0.1)
    process.kill()
    sys.exit(f"{checkout}: its example server does not answer")


def flow_factory_client(args):
    """Asks that server as Flow-Factory's trainer does, for --seconds."""
    os.environ["FLOW_FACTORY"] = str(args.flow_factory)
    sys.path.insert(0, str(ROOT / "python/tests"))
    import flow_factory
    from PIL import Image
    client = flow_factory.UpstreamClient(args.flow_factory_client)
    pictures = [Image.fromarray(picture(i)) for i in range(PICTURES)]
    start, count = time.perf_counter(), 0
    while time.perf_counter() - start < args.seconds:
        count += len(client.compute(["a prompt"] * PICTURES, image=pictures))
    print(json.dumps({"pictures_per_s": count / (time.perf_counter() - start)}))


def flow_factory_pictures_per_s(checkout, bench, seconds):
    process, url = example_server(checkout)
    try:
        return call([sys.executable, __file__, bench, "--flow-factory-client", url, "--flow-factory", str(checkout),
                     "--seconds", str(seconds)])["pictures_per_s"]
    finally:
        process.terminate()
        process.wait()


def compare_http(args):
    ours, theirs = [], []
    for _ in range(args.repeats):
        server = Server(args)
        ours.append(call([args.bench, "call", "--server", server.endpoint, "--seconds", "5"])["pictures_per_s"])
        server.end()
        theirs.append(flow_factory_pictures_per_s(args.flow_factory, args.bench, 5) if args.flow_factory else http_pictures_per_s(5))
    a, b = statistics.median(ours), statistics.median(theirs)
    whose = "Flow-Factory's example server and client" if args.flow_factory else "HTTP with base64"
    print(f"free scorer at {SIDE} px: oxbow {a:.0f} pictures/s, {whose} {b:.1f}: {a / b:.1f} times", flush=True)


def fill(args):
    server = Server(args, "--batch-max", "8", "--batch-ms", "20")
    result = call([args.bench, "call", "--server", server.endpoint, "--callers", "8", "--pictures", "3", "--side", "64",
                   "--seconds", "10"])
    served = server.end()
    print(f"8 callers of 3, batches of 8: filled to {served['scored'] / served['batches'] / 8:.1%}, "
          f"{result['pictures_per_s']:.0f} pictures/s", flush=True)


def overload(args):
    # 100 ms for up to 4 pictures: 40 a second. 256 px are 192 KiB each.
    server = Server(args, "--batch-max", "4", "--batch-ms", "100", "--waiting-mib", "32")
    before = server.peak_mib()
    result = call([args.bench, "call", "--server", server.endpoint, "--callers", "256", "--pictures", "8", "--side", "256",
                   "--rate", "520", "--seconds", str(args.seconds)])
    served = server.end()
    offered = result["scored"] + result["refused"]
    print(f"overload: {offered / result['seconds']:.0f} pictures/s offered for {result['seconds']:.0f} s, "
          f"{result['scored'] / result['seconds']:.0f} scored, {result['refused'] / offered:.0%} refused; never more than "
          f"{served['waited_bytes_peak'] / 2 ** 20:.2f} of 32 MiB of pixels waited; the server's peak {served['peak_mib']} MiB, "
          f"{before} before", flush=True)


PARTS = {"model": model, "towers": towers, "http": compare_http, "fill": fill, "overload": overload}


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("bench", help="the binary reward_bench")
    parser.add_argument("--work", type=pathlib.Path, default=pathlib.Path("/tmp/oxbow-reward-bench"))
    parser.add_argument("--parts", default=",".join(PARTS))
    parser.add_argument("--models", default=",".join(SIZES))
    parser.add_argument("--repeats", type=int, default=3)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--seconds", type=int, default=60)
    parser.add_argument("--flow-grpo", type=pathlib.Path)
    parser.add_argument("--flow-factory", type=pathlib.Path)
    parser.add_argument("--child", help=argparse.SUPPRESS)
    parser.add_argument("--flow-factory-client", help=argparse.SUPPRESS)
    args = parser.parse_args()
    if args.child:
        return python_scorer(args)
    if args.flow_factory_client:
        return flow_factory_client(args)

    def folder(name):
        path = args.work / name.replace("/", "-")
        if not (path / "model.safetensors").exists():
            path.mkdir(parents=True, exist_ok=True)
            make_model(name, path)
        return path

    args.folder = folder
    for part in args.parts.split(","):
        PARTS[part](args)


if __name__ == "__main__":
    main()
