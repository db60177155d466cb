# SPDX-License-Identifier: Apache-2.0
"""Servers and callers for tests. Every wait has a deadline."""
import threading
from contextlib import contextmanager

import numpy as np
from programs import PATIENCE, built  # noqa: F401: tests take both from here.

from oxbow.reward import wire
from oxbow.reward.assembly import Limits
from oxbow.reward.contract.client import Client, request_of
from oxbow.reward.contract.pictures import picture, raw
from oxbow.reward.server import Options, running
from oxbow.reward.tls import Tls


@contextmanager
def serving(*rewards, limits=Limits(), tls=Tls(), caller=Tls(), wait=True):
    """A server and a client of it."""
    with running(rewards, Options(limits=limits, tls=tls), wait=wait, grace=0.1) as server:
        client = Client(server.endpoint, caller, PATIENCE)
        try:
            yield server, client
        finally:
            client.close()


def grey(level, width=4, height=3):
    """A grey picture, one level all over."""
    return raw(np.full((height, width, 1), level, np.uint8))


def colourful(seed=0, width=40, height=30):
    return picture(seed, width, height, 3)


def levels(items):
    """The level of each picture: a reward that tells pictures apart."""
    return [float(item.picture[0, 0, 0]) for item in items]


def ask(client, *images, **kwargs):
    """The responses in the order of the images; fails unless the call ends well."""
    answer = client.score(request_of(images, **kwargs))
    assert answer.ok, f"{answer.code}: {answer.message}"
    return [answer.responses[number] for number in sorted(answer.responses)]


def values(responses):
    return [response.rewards[0].value if response.rewards else None for response in responses]


class Gate:
    """A reward that says when it begins and waits until it may go on."""

    def __init__(self):
        self.begun = threading.Semaphore(0)
        self.open = threading.Event()
        self.batches = []

    def __call__(self, items):
        self.batches.append(levels(items))
        self.begun.release()
        assert self.open.wait(PATIENCE)
        return levels(items)

    def wait_until_begun(self):
        assert self.begun.acquire(timeout=PATIENCE)


def call_in_thread(function):
    """Runs function() beside the test; result() waits for what it returns."""
    box = []
    thread = threading.Thread(target=lambda: box.append(function()), daemon=True)
    thread.start()

    def result():
        thread.join(PATIENCE)
        assert box, "the call has not ended"
        return box[0]

    return result
