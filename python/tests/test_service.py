# SPDX-License-Identifier: Apache-2.0
"""A server over loopback: batches, refusals, cancellation, health, metrics."""
import asyncio
import re
import socket
import threading
import unittest
import urllib.error
import urllib.request
from contextlib import contextmanager
from pathlib import Path
from unittest import mock

import grpc
import numpy as np

from servers import PATIENCE, Gate, ask, call_in_thread, colourful, grey, levels, serving, values, wire

from oxbow.reward import Failed, Score, reward
from oxbow.reward.addresses import host_and_port
from oxbow.reward.assembly import Limits
from oxbow.reward.contract.client import Client, request_of
from oxbow.reward.contract.pictures import encoded, raw
from oxbow.reward.metrics import RewardMetrics
from oxbow.reward.metrics_page import CONNECTIONS_MAX
from oxbow.reward.status import SetupError
from oxbow.reward.tls import Tls

HOUR_MS = 3.6e6


def named(name="level", score=levels, **arguments):
    return reward(name, range=(0, 255), **{"wait_ms": 0, **arguments})(score)


def saying(requests, end):
    """The requests of a call that then says nothing until `end`."""
    yield from requests
    assert end.wait(PATIENCE)


@contextmanager
def another(server):
    """A client with a connection of its own: channels of one process share theirs else."""
    with mock.patch("oxbow.reward.tls.CHANNEL_OPTIONS", [("grpc.use_local_subchannel_pool", 1)]):
        client = Client(server.endpoint, Tls(), PATIENCE)
    try:
        yield client
    finally:
        client.close()


class ScoringTest(unittest.TestCase):
    def test_each_item_has_its_score_whatever_its_number(self):
        with serving(named()) as (_, client):
            self.assertEqual(values(ask(client, *map(grey, (9, 3, 7)), first=100)), [9, 3, 7])

    def test_an_item_has_all_wanted_rewards_or_none_in_the_old_fields(self):
        def picky(items):
            return [Failed("too dark") if level < 5 else Score(level, "fine") for level in levels(items)]

        with serving(named(), named("picky", picky)) as (_, client):
            dark, light = ask(client, grey(1), grey(8))
        self.assertEqual([(one.name, one.value) for one in light.rewards], [("level", 8), ("picky", 8)])
        self.assertEqual([one.note for one in light.outcomes], ["", "fine"])
        self.assertEqual((list(dark.rewards), dark.status_code, dark.status_message), ([], 3, "picky: too dark"))
        self.assertEqual([(one.name, one.value, one.status_code) for one in dark.outcomes],
                         [("level", 1, 0), ("picky", 0, 3)])

    def test_a_prompt_and_its_metadata_reach_the_reward(self):
        seen = []
        look = named(score=lambda items: [seen.append((one.prompt, one.metadata, one.group)) or 0 for one in items])
        with serving(look) as (_, client):
            ask(client, grey(1), prompt="a cat", metadata='{"tag": "x"}')
        self.assertEqual(seen, [("a cat", {"tag": "x"}, 1)])

    def test_a_score_that_is_none_is_never_sent(self):
        for wrong in ([float("nan")], [1.0, 2.0], [], ["1"], None):
            with self.subTest(repr(wrong)), serving(named(score=lambda items, w=wrong: w)) as (_, client):
                response, = ask(client, grey(1))
                self.assertEqual((list(response.rewards), response.status_code), ([], 13))
                self.assertEqual(response.outcomes[0].value, 0)

    def test_pixels_of_files_and_of_clips_arrive(self):
        mean = named(score=lambda items: [item.frames.mean() for item in items], media=("image", "video"))
        array = colourful()
        with serving(mean) as (_, client):
            got = values(ask(client, raw(array), encoded(array, "png"), raw(array, frames=3)))
        self.assertEqual(got, [array.mean()] * 3)

    def test_says_the_revision_of_the_protocol_that_the_services_speak(self):
        header = (Path(__file__).resolve().parents[2] / "src/rpc/protocol_revision.h").read_text()
        revision, = re.findall(r"kProtocolRevision = (\d+);", header)
        with serving(named()) as (_, client):
            self.assertEqual(client.describe().protocol, int(revision))

    def test_a_clip_is_its_frames_to_a_reward_of_pictures(self):
        def picky(items):
            return [Failed("too dark") if level == 0 else level for level in levels(items)]

        def clip(*shades):
            frames = np.array(shades, np.uint8).reshape(-1, 1, 1, 1).repeat(2, 1).repeat(2, 2)
            return wire.Image(width=2, height=2, channels=1, frames=len(shades), pixels=frames.tobytes())

        thirds = named("thirds", frames_every=3)
        with serving(named(), named("picky", picky, batch_max=2), thirds) as (_, client):
            described = {one.name: (list(one.media), one.frames_every) for one in client.describe().rewards}
            good, dark = ask(client, clip(1, 2, 6, 7), clip(4, 0))
        self.assertEqual(described["level"], (["image", "video"], 1))
        self.assertEqual(described["thirds"][1], 3)
        self.assertEqual([(one.name, one.value) for one in good.outcomes], [("level", 4), ("picky", 4), ("thirds", 4)])
        self.assertEqual([(one.name, one.value, one.status_code) for one in dark.outcomes],
                         [("level", 2, 0), ("picky", 0, 3), ("thirds", 4, 0)])

    def test_a_group_comes_whole_and_alone(self):
        sizes = []

        def rank(items):
            sizes.append(len(items))
            return levels(items)

        with serving(named("rank", rank, groupwise=True, wait_ms=HOUR_MS)) as (_, client):
            first = call_in_thread(lambda: ask(client, *map(grey, (1, 2, 3)), group_complete=True))
            second = call_in_thread(lambda: ask(client, *map(grey, (4, 5)), group_complete=True))
            self.assertEqual((values(first()), values(second())), ([1, 2, 3], [4, 5]))
            part = ask(client, grey(1))
        self.assertEqual(sorted(sizes), [2, 3])
        self.assertEqual(part[0].status_code, 3)


class BatchingTest(unittest.TestCase):
    def test_items_of_all_callers_join_one_batch(self):
        sizes = []

        def count(items):
            sizes.append(len(items))
            return levels(items)

        # Neither call fills a batch, and none waits less than an hour: together they are one.
        with serving(named(score=count, batch_max=4, wait_ms=HOUR_MS)) as (_, client):
            first = call_in_thread(lambda: ask(client, grey(1), grey(2)))
            second = call_in_thread(lambda: ask(client, grey(3), grey(4)))
            self.assertEqual((values(first()), values(second())), ([1, 2], [3, 4]))
        self.assertEqual(sizes, [4])

    def test_a_request_larger_than_a_rewards_batch_is_cut(self):
        sizes = []

        def count(items):
            sizes.append(len(items))
            return levels(items)

        with serving(named(score=count, batch_max=2)) as (_, client):
            self.assertEqual(values(ask(client, *map(grey, range(5)))), [0, 1, 2, 3, 4])
        self.assertLessEqual(max(sizes), 2)

    # Promise: A reward of your own breaks nothing else.
    def test_no_caller_pays_for_the_items_of_another(self):
        def breaks(items):
            if 13 in levels(items):
                raise ValueError("13")
            return levels(items)

        with serving(named(score=breaks, batch_max=4, wait_ms=HOUR_MS)) as (_, client):
            good = call_in_thread(lambda: ask(client, grey(1), grey(2)))
            bad = call_in_thread(lambda: ask(client, grey(3), grey(13)))
            self.assertEqual(values(good()), [1, 2])
            self.assertEqual([one.status_message for one in bad()], ["level: ValueError: 13"] * 2)

    # Promise: A reward of your own breaks nothing else.
    def test_what_finds_no_room_is_refused_and_room_comes_back(self):
        for limits in (Limits(items_waiting_max=2), Limits(bytes_waiting_max=2 * 12)):
            gate = Gate()
            with serving(named(score=gate), limits=limits) as (_, client):
                first = call_in_thread(lambda: ask(client, grey(1), grey(2)))
                gate.wait_until_begun()
                refused = client.score(request_of([grey(3)]))
                self.assertEqual(refused.code.name, "RESOURCE_EXHAUSTED")
                self.assertEqual(refused.trailing, {"retry-after-ms": "100"})
                gate.open.set()
                self.assertEqual(values(first()), [1, 2])
                self.assertEqual(values(ask(client, grey(3))), [3])

    def test_what_its_caller_gave_up_is_never_scored_and_gives_its_room_back(self):
        gate, ended = Gate(), threading.Semaphore(0)
        real = RewardMetrics.call_ended

        def call_ended(self, seconds, ok):
            real(self, seconds, ok)
            ended.release()

        with mock.patch.object(RewardMetrics, "call_ended", call_ended), \
                mock.patch.object(RewardMetrics, "batch_arrived", lambda self, items: arrived.release()), \
                serving(named(score=gate), limits=Limits(items_waiting_max=2)) as (_, client):
            arrived = threading.Semaphore(0)
            first = call_in_thread(lambda: ask(client, grey(1)))
            gate.wait_until_begun()
            self.assertTrue(arrived.acquire(timeout=PATIENCE))
            second = client.begin([request_of([grey(2)])])
            self.assertTrue(arrived.acquire(timeout=PATIENCE))
            second.cancel()
            self.assertTrue(ended.acquire(timeout=PATIENCE))
            third = call_in_thread(lambda: ask(client, grey(3)))
            self.assertTrue(arrived.acquire(timeout=PATIENCE))
            gate.open.set()
            self.assertEqual((values(first()), values(third())), ([1], [3]))
        self.assertEqual(gate.batches, [[1], [3]])


# Promise: A reward of your own breaks nothing else.
class RefusingTest(unittest.TestCase):
    def test_pieces_that_tarry_end_their_call_and_give_their_room_back(self):
        whole, end = grey(5), threading.Event()
        first = request_of([whole])
        first.items[0].image.pixels_size, first.items[0].image.pixels = 12, whole.pixels[:5]

        def requests():
            yield first
            assert end.wait(PATIENCE)

        with serving(named(), limits=Limits(items_waiting_max=1, idle_seconds=0.05)) as (_, client):
            with self.assertRaises(grpc.RpcError) as raised:
                list(client.begin(requests()))
            end.set()
            self.assertEqual(raised.exception.code().name, "DEADLINE_EXCEEDED")
            self.assertEqual(values(ask(client, whole)), [5])

    # Promise: A server of Python cannot be locked. A reward server in Python ends a call that says
    # nothing for 60 s, its first message included. One connection has at most 256 calls, all
    # together 1,024; one more is refused as busy. Health is beside them, so that a busy server is
    # not taken for a dead one. Waiting calls take at most three tenths of the memory that it may
    # use. Its metrics page has one thread.
    def test_a_call_that_says_nothing_ends(self):
        end = threading.Event()
        with serving(named(), limits=Limits(idle_seconds=0.05)) as (_, client):
            for said in ([], [request_of([grey(1)])]):  # Before its first message, and between two.
                with self.assertRaises(grpc.RpcError) as raised:
                    list(client.begin(saying(said, end)))
                self.assertEqual(raised.exception.code().name, "DEADLINE_EXCEEDED")
                self.assertIn("the next request did not come", raised.exception.details())
            end.set()

    # Promise: A server of Python cannot be locked.
    def test_no_connection_takes_all_calls_and_health_is_beside_them(self):
        end = threading.Event()
        limits = Limits(calls_max=3, calls_per_connection_max=2)
        with serving(named(), limits=limits) as (server, client), another(server) as second, another(server) as third:
            held = []

            def hold(one):
                held.append(one.begin(saying([request_of([grey(1)])], end)))
                next(held[-1])  # It is running now.

            hold(client)
            hold(client)
            self.assertEqual(client.score(request_of([grey(1)])).code.name, "RESOURCE_EXHAUSTED")
            self.assertEqual(values(ask(second, grey(4))), [4])
            hold(second)
            self.assertEqual(third.score(request_of([grey(1)])).code.name, "RESOURCE_EXHAUSTED")
            for one in (client, second, third):
                self.assertEqual(one.health(""), wire.SERVING)
            end.set()
            for call in held:
                self.assertEqual(list(call), [])
            self.assertEqual(values(ask(client, grey(5))), [5])

    def test_what_ends_a_call_has_its_code(self):
        with serving(named(), limits=Limits(batch_max=2)) as (_, client):
            self.assertEqual(client.score(request_of([grey(1)] * 3)).code.name, "INVALID_ARGUMENT")
            self.assertEqual(client.score(request_of([grey(1)], rewards=["other"])).code.name, "NOT_FOUND")
            cut = request_of([grey(1)])
            cut.items[0].image.pixels_size = 100
            self.assertEqual(client.score(cut).code.name, "INVALID_ARGUMENT")
            self.assertEqual(values(ask(client, grey(1))), [1])

    def test_one_bad_item_leaves_the_others_alone(self):
        bad = grey(2)
        bad.pixels += b"x"
        with serving(named()) as (_, client):
            good, refused = ask(client, grey(1), bad)
        self.assertEqual((values([good]), refused.status_code), ([1], 3))


    def test_a_call_that_is_refused_gives_its_room_back(self):
        with serving(named(), limits=Limits(items_waiting_max=1)) as (_, client):
            for _ in range(5):
                self.assertEqual(client.score(request_of([grey(1)], rewards=["other"])).code.name, "NOT_FOUND")
            self.assertEqual(values(ask(client, grey(1))), [1])

    def test_a_medium_larger_than_a_message_travels_in_pieces(self):
        whole = raw(colourful(width=3000, height=2500))
        pixels, size = whole.pixels, 10 << 20
        first = request_of([whole])
        first.items[0].image.pixels_size, first.items[0].image.pixels = len(pixels), pixels[:size]
        rest = [request_of([wire.Image(pixels=pixels[start:start + size])]) for start in range(size, len(pixels), size)]
        self.assertGreater(len(pixels), wire.MESSAGE_BYTES_MAX)
        with serving(named(score=lambda items: [item.picture.mean() for item in items])) as (_, client):
            answer = client.score(first, *rest)
        self.assertAlmostEqual(answer.responses[0].rewards[0].value, np.frombuffer(pixels, np.uint8).mean(), places=9)


class LifeTest(unittest.TestCase):
    def test_a_reward_that_loads_is_not_serving_and_cannot_be_asked(self):
        go, threads = threading.Event(), []

        class Slow:
            def load(self):
                threads.append(threading.get_ident())
                assert go.wait(PATIENCE)

            def score(self, items):
                threads.append(threading.get_ident())
                return levels(items)

        with serving(named(), named("slow", Slow), wait=False) as (server, client):
            try:
                self.assertEqual(client.describe().rewards[1].name, "slow")
                self.assertEqual(client.health("oxbow.v1.Reward/slow"), wire.NOT_SERVING)
                self.assertEqual(client.health(""), wire.NOT_SERVING)
                self.assertEqual(client.score(request_of([grey(1)], rewards=["slow"])).code.name, "UNAVAILABLE")
            finally:
                go.set()
            loop = server._loaded[0].get_loop()
            asyncio.run_coroutine_threadsafe(server.wait_until_loaded(), loop).result(PATIENCE)
            self.assertEqual(client.health("oxbow.v1.Reward/slow"), wire.SERVING)
            self.assertEqual(client.health(""), wire.SERVING)
            self.assertIsNone(client.health("oxbow.v1.Reward/other"))
            self.assertEqual(values(ask(client, grey(4), rewards=["slow"])), [4])
        self.assertEqual(len(set(threads)), 1)

    def test_a_reward_that_cannot_load_ends_the_start_in_one_line(self):
        class Broken:
            def load(self):
                raise FileNotFoundError("weights.pt")

            def score(self, items):
                return []

        with self.assertRaises(SetupError) as raised, serving(named("broken", Broken)):
            pass
        self.assertEqual((str(raised.exception), raised.exception.exit_code),
                         ("broken: load() failed: FileNotFoundError: weights.pt", 4))

    def test_names_are_served_once(self):
        with self.assertRaisesRegex(SetupError, "named twice: level"), serving(named(), named()):
            pass
        with self.assertRaisesRegex(SetupError, "no reward"), serving():
            pass

    def test_the_metrics_page_counts_what_was_done(self):
        bad = grey(2)
        bad.width = 0
        nan = named("nan", lambda items: [float("nan")] * len(items))
        with serving(named(), nan) as (server, client):
            ask(client, grey(100), bad)
            with urllib.request.urlopen(f"http://{server.metrics_endpoint}/metrics", timeout=PATIENCE) as page:
                lines = page.read().decode().splitlines()
            with self.assertRaises(urllib.error.HTTPError):
                urllib.request.urlopen(f"http://{server.metrics_endpoint}/", timeout=PATIENCE)
        for line in ('oxbow_reward_items_total{outcome="scored",reward="level"} 1',
                     'oxbow_reward_items_total{outcome="invalid",reward="level"} 1',
                     'oxbow_reward_items_total{outcome="failed",reward="nan"} 1',
                     'oxbow_reward_score_bucket{reward="level",le="76.5"} 0',
                     'oxbow_reward_score_bucket{reward="level",le="102"} 1',
                     'oxbow_reward_score_bucket{reward="level",le="+Inf"} 1',
                     'oxbow_reward_score_sum{reward="level"} 100', 'oxbow_reward_score_count{reward="level"} 1',
                     'oxbow_reward_request_duration_seconds_count{outcome="ok"} 1',
                     'oxbow_reward_batch_items_bucket{le="1"} 0', 'oxbow_reward_batch_items_bucket{le="2"} 1',
                     "# TYPE oxbow_reward_score histogram", "# TYPE oxbow_rpc_refused_total counter"):
            self.assertIn(line, lines)


    # Promise: A server of Python cannot be locked.
    def test_callers_of_the_metrics_page_that_say_nothing_cost_no_threads(self):
        with serving(named()) as (server, _):
            before = threading.active_count()
            silent = [socket.create_connection(host_and_port(server.metrics_endpoint))
                      for _ in range(2 * CONNECTIONS_MAX)]
            with urllib.request.urlopen(f"http://{server.metrics_endpoint}/metrics", timeout=PATIENCE) as page:
                self.assertIn("oxbow_reward_items_total", page.read().decode())
            self.assertEqual(threading.active_count(), before)
            silent[0].settimeout(PATIENCE)
            with silent[0] as oldest:
                try:
                    self.assertEqual(oldest.recv(1), b"")  # It made room.
                except ConnectionResetError:
                    pass
            for one in silent:
                one.close()


if __name__ == "__main__":
    unittest.main()
