# SPDX-License-Identifier: Apache-2.0
"""Replay entries as arrays: over the protocol, from exported files, and of a real buffer."""
import json
import struct
import subprocess
import tempfile
import unittest
from concurrent import futures
from contextlib import contextmanager
from pathlib import Path

import grpc
import numpy as np
from servers import built

from oxbow import Run
from oxbow.protocol import message
from oxbow.replay import Replay, exported
from oxbow.tensors import array_of, read_safetensors

CHECKOUT = Path(__file__).resolve().parents[2]
PATIENCE = 300
F32, BF16, U8 = 1, 3, 7


def entry(number, latents=None):
    one = message("oxbow.v1.ReplayEntry")(entry_id=number, raw_reward=number / 8, birth_step=2, uses=1,
                                          sigmas=[1.0, 0.5, 0.0])
    one.prompt.text = f"text {number}"
    path = one.trajectory
    path.log_prob.extend([-0.5, 0.0])
    path.sde.extend([True, False])
    path.first_latent = 1
    if latents is not None:
        path.latents.dtype = F32
        path.latents.shape.extend(latents.shape)
        path.picture = b"a picture"
        one.conditioning.tokens.dtype = BF16
        one.conditioning.tokens.shape.extend([1, 2])
        one.conditioning.tokens.data = struct.pack("<HH", 0x3F80, 0xC040)  # 1.0, -3.0
    return one


@contextmanager
def buffer(entries, latents):
    """A replay buffer that lists `entries` in pages, and reads the latents in pieces."""
    def page(request, _):
        later = [one for one in entries if one.entry_id > request.after_entry_id]
        return message("oxbow.v1.ListResponse")(entries=later[:2])

    def read(request, context):
        if request.entry_id not in [one.entry_id for one in entries]:
            context.abort(grpc.StatusCode.NOT_FOUND, "no such entry")
        response = message("oxbow.v1.ReadResponse")
        yield response(header=entry(request.entry_id, latents))
        data = latents.tobytes()
        for at in range(0, len(data), 7):
            yield response(chunk={"offset": at, "data": data[at:at + 7]})

    def handler(kind, name, answer):
        return kind(answer, message(f"oxbow.v1.{name}Request").FromString,
                    message(f"oxbow.v1.{name}Response").SerializeToString)

    server = grpc.server(futures.ThreadPoolExecutor(2))
    server.add_generic_rpc_handlers([grpc.method_handlers_generic_handler("oxbow.v1.ReplayBuffer", {
        "List": handler(grpc.unary_unary_rpc_method_handler, "List", page),
        "Read": handler(grpc.unary_stream_rpc_method_handler, "Read", read)})])
    port = server.add_insecure_port("127.0.0.1:0")
    server.start()
    try:
        yield f"127.0.0.1:{port}"
    finally:
        server.stop(None)


class LiveReplayTest(unittest.TestCase):
    LATENTS = np.arange(12, dtype=np.float32).reshape(2, 1, 2, 3)

    def test_a_table_is_listed_over_its_pages(self):
        with buffer([entry(number) for number in (3, 5, 9, 2**63 + 1)], self.LATENTS) as endpoint, \
                Replay(endpoint) as replay:
            self.assertEqual([(one.id, one.prompt, one.reward) for one in replay],
                             [(n, f"text {n}", n / 8) for n in (3, 5, 9, 2**63 + 1)])

    def test_an_entry_has_its_arrays(self):
        with buffer([entry(3)], self.LATENTS) as endpoint, Replay(endpoint) as replay:
            one = replay.read(3)
            np.testing.assert_array_equal(one.latents, self.LATENTS)
            np.testing.assert_array_equal(one.conditioning["tokens"], [[1.0, -3.0]])
            np.testing.assert_array_equal(one.stochastic, [True, False])
            self.assertEqual(one.picture, b"a picture")
            self.assertEqual((one.first_latent, list(one.sigmas)), (1, [1.0, 0.5, 0.0]))
            with self.assertRaises(KeyError):
                replay.read(4)

    def test_a_buffer_that_is_away_is_named(self):
        with self.assertRaisesRegex(ConnectionError, "127.0.0.1:1: UNAVAILABLE"):
            list(Replay("127.0.0.1:1", timeout=20))


class TensorTest(unittest.TestCase):
    def test_bytes_that_do_not_fit_are_refused(self):
        tensor = message("oxbow.v1.Tensor")(dtype=F32, shape=[2, 2], data=b"\0" * 12)
        with self.assertRaises(ValueError):
            array_of(tensor)
        with self.assertRaisesRegex(ValueError, "type"):
            array_of(message("oxbow.v1.Tensor")(dtype=99, shape=[1], data=b"\0"))

    def test_a_safetensors_file(self):
        header = {"__metadata__": {"format": "pt"}, "a": {"dtype": "BF16", "shape": [2], "data_offsets": [0, 4]},
                  "b": {"dtype": "U8", "shape": [1, 3], "data_offsets": [4, 7]}}
        text = json.dumps(header).encode()
        with tempfile.TemporaryDirectory() as folder:
            path = Path(folder, "x.safetensors")
            path.write_bytes(struct.pack("<Q", len(text)) + text + struct.pack("<HH", 0x3F80, 0xC040) + b"\1\2\3")
            arrays = read_safetensors(path)
        self.assertEqual(sorted(arrays), ["a", "b"])
        self.assertEqual((arrays["a"].tolist(), arrays["b"].tolist()), ([1.0, -3.0], [[1, 2, 3]]))


@unittest.skipUnless(built("oxbow") and built("replay_buffer"), "OXBOW_BUILD is no build of oxbow")
class TrainedReplayTest(unittest.TestCase):
    def oxbow(self, *arguments):
        done = subprocess.run([built("oxbow"), *arguments], cwd=CHECKOUT, capture_output=True, text=True,
                              timeout=PATIENCE)
        self.assertEqual(done.returncode, 0, done.stdout + done.stderr)
        return done.stdout

    def test_a_live_buffer_and_its_export_have_the_same_arrays(self):
        with tempfile.TemporaryDirectory() as folder:
            self.oxbow("train", "configs/digits.yaml", "--set", f"run.directory={folder}", "--set", "run.steps=2",
                       "--set", "eval.every=0", "--set", "run.name=kept")
            run = Run(Path(folder, "kept"))
            data = str(run.directory / "replay")
            rows = json.loads(self.oxbow("replay", "list", "--data", data, "--format", "json"))["rows"]
            self.assertTrue(rows)
            number = int(rows[0]["entry"])
            self.oxbow("replay", "export", str(number), "--data", data, "--out", folder)
            stored = exported(Path(folder, f"entry_{number}.json"))
            with self.serving(data) as endpoint, Replay(endpoint) as replay:
                self.assertEqual(len(list(replay)), len(rows))
                live = replay.read(number)
        self.assertEqual((live.prompt, live.table, live.first_latent), (stored.prompt, stored.table, stored.first_latent))
        self.assertGreater(live.latents.size, 0)
        np.testing.assert_array_equal(live.latents, stored.latents)
        np.testing.assert_array_equal(live.log_prob, stored.log_prob)
        self.assertEqual(sorted(live.conditioning), sorted(stored.conditioning))
        for name, array in live.conditioning.items():
            np.testing.assert_array_equal(array, stored.conditioning[name])

    @contextmanager
    def serving(self, data):
        with subprocess.Popen([built("replay_buffer"), "--data", data], stdout=subprocess.PIPE,
                              stderr=subprocess.DEVNULL, text=True) as child:
            try:
                ready = next(line for line in child.stdout if line.startswith("READY"))
                yield dict(part.split("=") for part in ready.split()[1:])["grpc"]
            finally:
                child.terminate()


if __name__ == "__main__":
    unittest.main()
