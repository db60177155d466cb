#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""The replay buffer against Reverb, Python clients on both sides, in turn on one machine.

    python bench/buffer_throughput.py BUILD [--data DIR] [--rounds 3] [--seconds 4] [--clients 1] [--shards 1]

BUILD/bin/replay_buffer writes to --data with fsync; a Reverb of the installed dm-reverb holds all in memory and is left
out where it is not installed. Each cell is the median of the rounds, with the least and the most; the last column is the
ratio of the medians. `disk` is what the disk takes: files of 4.2 MB, written and fsynced one after another.
"""
import argparse
import multiprocessing
import os
import random
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import numpy as np

sys.path.insert(0, str(Path(__file__).resolve().parent.parent / "python"))
from oxbow.buffer import Entry, ReplayBuffer  # noqa: E402

LARGE, SMALL = 1_400_000, 2_048  # Bytes of an item.
BATCH = 48


class Oxbow:
    name = "oxbow"

    def __init__(self, build, data, shards):
        self.folders = [tempfile.TemporaryDirectory(dir=data) for _ in range(shards)]
        self.servers = [subprocess.Popen([f"{build}/bin/replay_buffer", "--data", folder.name, "--capacity", "1000000",
                                          "--log-level", "error"], stdout=subprocess.PIPE, text=True)
                        for folder in self.folders]
        self.addresses = [server.stdout.readline().split("grpc=")[1].split()[0] for server in self.servers]

    def stop(self):
        for server in self.servers:
            server.terminate()
        for server in self.servers:
            server.wait()


class OxbowClient:
    def __init__(self, addresses, number):
        self.buffer = ReplayBuffer(addresses[number % len(addresses)])
        self.next = 1 + (number << 40)
        self.ids = {LARGE: [], SMALL: []}

    def entry(self, payload):
        self.next += 1
        self.ids[payload.size].append(self.next)
        return Entry(id=self.next, prompt=self.next, latents=payload, reward=1.0)

    def insert(self, payload, seconds):
        count, end = 0, time.monotonic() + seconds
        with self.buffer.inserter() as inserter:
            while time.monotonic() < end:
                inserter.insert(self.entry(payload))
                count += 1
        return count

    def insert_batches(self, payload, seconds):
        return self.insert(payload, seconds)

    def read(self, size, seconds):
        count, end = 0, time.monotonic() + seconds
        at_a_time = 32 if size == LARGE else 2000
        while time.monotonic() < end:
            chosen = random.choices(self.ids[size], k=at_a_time)
            count += sum(1 for entry in self.buffer.read(chosen) if entry.latents.size == size)
        return count


class Reverb:
    name = "reverb"

    def __init__(self):
        import reverb
        self.server = reverb.Server(tables=[reverb.Table(
            name=name, sampler=reverb.selectors.Uniform(), remover=reverb.selectors.Fifo(), max_size=size,
            rate_limiter=reverb.rate_limiters.MinSize(1)) for name, size in ((str(LARGE), 1000), (str(SMALL), 1_000_000))])
        self.addresses = [f"localhost:{self.server.port}"]

    def stop(self):
        self.server.stop()


class ReverbClient:
    def __init__(self, addresses, number):
        import reverb
        self.client = reverb.Client(addresses[0])

    def insert(self, payload, seconds):
        count, end = 0, time.monotonic() + seconds
        with self.client.trajectory_writer(num_keep_alive_refs=1) as writer:
            while time.monotonic() < end:
                writer.append([payload])
                writer.create_item(str(payload.size), 1.0, [writer.history[0][-1:]])
                count += 1
                if count % 64 == 0:
                    writer.flush(block_until_num_items=32)
            writer.flush()
        return count

    def insert_batches(self, payload, seconds):
        count, end = 0, time.monotonic() + seconds
        with self.client.trajectory_writer(num_keep_alive_refs=BATCH) as writer:
            while time.monotonic() < end:
                for _ in range(BATCH):
                    writer.append([payload])
                    writer.create_item(str(payload.size), 1.0, [writer.history[0][-1:]])
                writer.flush()
                count += BATCH
        return count

    def read(self, size, seconds):
        count, end = 0, time.monotonic() + seconds
        for _ in self.client.sample(str(size), num_samples=1_000_000_000, emit_timesteps=False):
            count += 1
            if time.monotonic() >= end:
                return count
        return count


def disk(data, seconds):
    """Large items a second that the disk takes, three to an fsync."""
    content, count, end = os.urandom(3 * LARGE), 0, time.monotonic() + seconds
    with tempfile.TemporaryDirectory(dir=data) as folder:
        start = time.monotonic()
        while time.monotonic() < end:
            with open(f"{folder}/{count}", "wb") as file:
                file.write(content)
                os.fsync(file.fileno())
            count += 3
        return count / (time.monotonic() - start)


CASES = {
    "insert 1.4 MB": lambda client, seconds: client.insert(PAYLOADS[LARGE], seconds),
    "insert 2 KB, batches of 48": lambda client, seconds: client.insert_batches(PAYLOADS[SMALL], seconds),
    "insert 2 KB, one by one": lambda client, seconds: client.insert(PAYLOADS[SMALL], seconds),
    "read 1.4 MB": lambda client, seconds: client.read(LARGE, seconds),
    "read 2 KB": lambda client, seconds: client.read(SMALL, seconds),
}
PAYLOADS = {size: np.random.default_rng(1).integers(0, 256, size, dtype=np.uint8).reshape(1, size) for size in (LARGE, SMALL)}


def one_client(kind, addresses, number, seconds, start, results):
    client = {"oxbow": OxbowClient, "reverb": ReverbClient}[kind](addresses, number)
    rates = {}
    for case, run in CASES.items():
        start.wait()
        begin = time.monotonic()
        rates[case] = (run(client, seconds), time.monotonic() - begin)
    results.put(rates)


def measure(side, clients, seconds):
    """Items a second of all clients together, by case."""
    context = multiprocessing.get_context("spawn")
    start, results = context.Barrier(clients), context.Queue()
    workers = [context.Process(target=one_client, args=(side.name, side.addresses, i, seconds, start, results)) for i in range(clients)]
    for worker in workers:
        worker.start()
    rates = [results.get() for _ in workers]
    for worker in workers:
        worker.join()
    return {case: sum(one[case][0] for one in rates) / max(one[case][1] for one in rates) for case in CASES}


def text(values):
    return f"{statistics.median(values):,.0f} ({min(values):,.0f} to {max(values):,.0f})" if values else "-"


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("build")
    parser.add_argument("--data", default=tempfile.gettempdir(), help="a folder on the disk to be measured")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--seconds", type=float, default=4)
    parser.add_argument("--clients", type=int, default=1)
    parser.add_argument("--shards", type=int, default=1)
    options = parser.parse_args()
    rates = {}
    for _ in range(options.rounds):
        rates.setdefault(("insert 1.4 MB", "disk"), []).append(disk(options.data, options.seconds))
        for make in (lambda: Oxbow(options.build, options.data, options.shards), Reverb):
            try:
                side = make()
            except ImportError:
                continue
            for case, rate in measure(side, options.clients, options.seconds).items():
                rates.setdefault((case, side.name), []).append(rate)
            side.stop()
    print("| items a second | oxbow, durable | Reverb, in memory | ratio | disk |\n|---|---|---|---|---|")
    for case in CASES:
        ours, theirs = rates[case, "oxbow"], rates.get((case, "reverb"), [])
        ratio = f"{statistics.median(ours) / statistics.median(theirs):.2f}" if theirs else "-"
        print(f"| {case} | {text(ours)} | {text(theirs)} | {ratio} | {text(rates.get((case, 'disk'), []))} |")
    return 0


if __name__ == "__main__":
    sys.exit(main())
