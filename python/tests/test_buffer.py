# SPDX-License-Identifier: Apache-2.0
"""The buffer's client: what goes on the wire, and a replay_buffer where OXBOW_BUILD names a build with one."""
import subprocess
import tempfile
import unittest

import grpc
import numpy as np
from servers import built

from oxbow.buffer import Entry, Outcome, ReplayBuffer, client, wire

BUFFER = built("replay_buffer")


def entry_of(number, size=8, prompt=None):
    values = np.random.default_rng(number).random((2, size), dtype=np.float32)
    return Entry(id=number, prompt=number if prompt is None else prompt, latents=values, reward=number / 100, text="a")


class WireTest(unittest.TestCase):
    def test_bytes_behind_a_message_are_part_of_it(self):
        for size in (1, 31, 32, 4000, 600_000):
            entries = [entry_of(1, size), entry_of(2, size)]
            pieces, total = [], 0
            for entry in entries:
                more, bytes_more = client._pieces(entry)
                pieces, total = pieces + more, total + bytes_more
            head = wire.OfferRequest(epoch=7, run_uid="run", ends_batch=True).SerializeToString()
            request = wire.OfferRequest.FromString(wire.whole_request(head, pieces, total))
            self.assertEqual((request.epoch, request.run_uid, request.ends_batch), (7, "run", True))
            self.assertEqual(len(request.whole.entries), 2)
            for entry, message in zip(entries, request.whole.entries):
                latents = message.trajectory.latents
                self.assertEqual((list(latents.shape), latents.dtype), ([2, size], 1))
                self.assertEqual(latents.data, entry.latents.tobytes())
                self.assertEqual((message.entry_id, message.prompt.text), (entry.id, "a"))

    def test_large_entries_are_cut_out_of_an_answer(self):
        def answer(sizes):
            response = wire.ReadResponse()
            for number, size in enumerate(sizes):
                entry = entry_of(number + 1, size)
                message = response.whole.entries.add()
                message.CopyFrom(client._message_of(entry, entry.latents))
                message.trajectory.latents.data = entry.latents.tobytes()
                message.trajectory.log_prob.extend([0.5, -1.0])
                message.raw_reward, message.table = -2.5, "a table"
            return response

        for sizes in ([20_000], [20_000, 1, 40_000], [300_000] * 3):
            response = answer(sizes)
            cut = wire.whole_entries(response.SerializeToString())
            self.assertEqual(len(cut), len(sizes))
            for (message, latents), expected in zip(cut, response.whole.entries):
                self.assertEqual(bytes(latents), expected.trajectory.latents.data)
                expected.trajectory.latents.ClearField("data")
                self.assertEqual(message, expected)
        # A server puts the latents behind the rest, as whole_entry does.
        entry = entry_of(1, 300_000)
        pieces, size = wire.whole_entry(client._message_of(entry, entry.latents), entry.latents.tobytes())
        behind = b"".join([wire._opening(wire.ReadResponse, "whole", size), *pieces])
        (message, latents), = wire.whole_entries(behind)
        self.assertEqual(bytes(latents), entry.latents.tobytes())
        self.assertEqual(message, client._message_of(entry, entry.latents))
        self.assertIsNone(wire.whole_entries(answer([10] * 3000).SerializeToString()), "small ones are protobuf's")
        self.assertIsNone(wire.whole_entries(answer([10]).SerializeToString()))
        header = wire.ReadResponse(header=answer([20_000]).whole.entries[0]).SerializeToString()
        self.assertIsNone(wire.whole_entries(header))
        with self.assertRaisesRegex(ValueError, "ends within a field"):
            wire.whole_entries(answer([300_000]).SerializeToString()[:-5])

    def test_what_cannot_be_stored_is_said_before_it_is_sent(self):
        with self.assertRaisesRegex(TypeError, "entry 1: latents of dtype complex64"):
            client._pieces(Entry(1, 1, np.zeros((1, 2), np.complex64)))
        with self.assertRaisesRegex(ValueError, "entry 1 has .* bytes, more than fit a message"):
            client._pieces(Entry(1, 1, np.zeros((1, 5_000_000), np.float32)))


@unittest.skipUnless(BUFFER, "OXBOW_BUILD is no build of oxbow")
class ReplayBufferTest(unittest.TestCase):
    def setUp(self):
        self.folder = tempfile.TemporaryDirectory()
        self.addCleanup(self.folder.cleanup)
        self.server = subprocess.Popen([BUFFER, "--data", self.folder.name, "--capacity", "5000", "--log-level", "error"],
                                       stdout=subprocess.PIPE, text=True)
        self.addCleanup(self.server.stdout.close)
        self.addCleanup(self.server.wait)
        self.addCleanup(self.server.kill)
        self.address = self.server.stdout.readline().split("grpc=")[1].split()[0]
        self.buffer = ReplayBuffer(self.address, run="test", epoch=2)
        self.addCleanup(self.buffer.close)

    def test_entries_come_back_as_they_went(self):
        entries = [entry_of(1), entry_of(2, 350_000), entry_of(3, 1_500_000), entry_of(4)]
        self.assertEqual(self.buffer.insert(entries), [Outcome.INSERTED] * 4)
        self.assertEqual(self.buffer.insert([entries[0], entry_of(9, prompt=2)]), [Outcome.DUPLICATE, Outcome.REPLACED])
        read = list(self.buffer.read([3, 77, 1, 9, 2, 4]))
        self.assertEqual([entry.id for entry in read], [3, 1, 9, 4])
        for entry in read:
            wanted = entry_of(entry.id, entries[entry.id - 1].latents.shape[1] if entry.id < 9 else 8)
            self.assertTrue(np.array_equal(entry.latents, wanted.latents))
            self.assertEqual((entry.reward, entry.text), (wanted.reward, "a"))
        self.assertEqual(self.buffer.info().entries, 4)

    def test_what_was_inserted_is_there_after_kill(self):
        with self.buffer.inserter() as inserter:
            for number in range(1, 1501):
                inserter.insert(entry_of(number, 400))
            self.assertEqual(inserter.flush(), {Outcome.INSERTED: 1500})
            self.server.kill()
        self.server.wait()
        again = subprocess.Popen([BUFFER, "--data", self.folder.name, "--capacity", "5000", "--log-level", "error"],
                                 stdout=subprocess.PIPE, text=True)
        try:
            address = again.stdout.readline().split("grpc=")[1].split()[0]
            with ReplayBuffer(address) as buffer:
                self.assertEqual(sum(1 for _ in buffer.read(range(1, 1501))), 1500)
        finally:
            again.kill()
            again.wait()
            again.stdout.close()

    def test_a_call_that_fails_ends_the_inserter(self):
        self.buffer.insert([entry_of(1)])
        with self.assertRaises(grpc.RpcError) as raised, ReplayBuffer(self.address, run="another") as other, \
                other.inserter() as inserter:
            inserter.insert(entry_of(2))
        self.assertEqual(raised.exception.code(), grpc.StatusCode.FAILED_PRECONDITION)
        self.assertIn("belongs to run test", raised.exception.details())

    def test_a_step_draws_the_same_entries_again_and_commits(self):
        self.buffer.insert([entry_of(number) for number in range(1, 11)])
        drawn = [message.entry_id for message in self.buffer.draw(step=1, count=3, seed=5)]
        self.assertEqual([message.entry_id for message in self.buffer.draw(step=1, count=3, seed=5)], drawn)
        self.buffer.advance(1, used=drawn)
        self.assertAlmostEqual(self.buffer.info().uses_mean, .3)


if __name__ == "__main__":
    unittest.main()
