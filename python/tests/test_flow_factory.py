# SPDX-License-Identifier: Apache-2.0
"""A server of Flow-Factory's remote rewards scores for oxbow's reward server.

The other side is a stand-in written from the protocol. With FLOW_FACTORY=CHECKOUT it is Flow-Factory's own
client and example server, unmodified (tests/flow_factory.py says what that needs):

    FLOW_FACTORY=../Flow-Factory OXBOW_BUILD=build/release python python/tests/run.py test_flow_factory
"""
import subprocess
import tempfile
import unittest
from contextlib import contextmanager
from pathlib import Path

from servers import PATIENCE, ask, built, values

import numpy as np

from oxbow.reward.contract.client import Client
from oxbow.reward.contract.pictures import picture, raw
from oxbow.reward.tls import Tls

try:
    import flow_factory
except ImportError:
    flow_factory = None

CONFIG = """
run: {{name: bridge}}
reward:
  terms: [{{name: style, weight: 1}}]
  scorers: [{{name: style, kind: json, url: "{url}"}}]
"""


@contextmanager
def reward_server(*flags):
    with tempfile.TemporaryFile("w+") as said:
        process = subprocess.Popen([built("reward_server"), *flags], stdout=subprocess.PIPE, stderr=said, text=True)
        try:
            ready = process.stdout.readline()
            said.seek(0)
            assert ready.startswith("READY"), said.read()
            yield ready.split("grpc=")[1].split()[0]
        finally:
            process.terminate()
            process.wait(PATIENCE)
            process.stdout.close()


@contextmanager
def calling(endpoint):
    client = Client(endpoint, Tls(), PATIENCE)
    try:
        yield client
    finally:
        client.close()


# Promise: A server of Flow-Factory's protocol scores here as there. Its scores of pictures and
# videos arrive unchanged, and its errors are errors here. A call without a score for each item
# fails.
@unittest.skipUnless(built("reward_server"), "OXBOW_BUILD is no build of oxbow")
@unittest.skipUnless(flow_factory, "needs Pillow")
class FlowFactoryTest(unittest.TestCase):
    @contextmanager
    def scored(self, compute):
        with flow_factory.server(compute) as url, tempfile.TemporaryDirectory() as folder:
            Path(folder, "run.yaml").write_text(CONFIG.format(url=url))
            with reward_server("--config", str(Path(folder, "run.yaml"))) as grpc, calling(grpc) as own:
                yield own

    def test_its_server_scores_pictures_here(self):
        def brightness(prompt, image, video):
            return [float(np.asarray(one).mean()) + len(text) for text, one in zip(prompt, image, strict=True)]

        arrays = [picture(seed, 12, 9, 3) for seed in range(20)]
        with self.scored(brightness) as own:
            expected = [array.mean() + len("a red cube") for array in arrays]
            got = values(ask(own, *map(raw, arrays), prompt="a red cube", metadata='{"tag": "colors"}'))
            np.testing.assert_allclose(got, expected, rtol=1e-12)

    def test_its_server_scores_videos_here(self):
        def frames(prompt, image, video):
            return [len(one) + float(np.asarray(one[-1])[0, 0, 0]) for one in video]

        array = picture(1, 12, 9, 3)
        with self.scored(frames) as own:
            got = values(ask(own, raw(array, frames=5), prompt="a"))
            self.assertEqual(got, [5 + float(array[0, 0, 0])])

    def test_its_servers_errors_are_errors_here(self):
        def broken(prompt, image, video):
            raise ValueError("CUDA out of memory")

        with self.scored(broken) as own:
            for response in ask(own, raw(picture(0, 12, 9, 3)), prompt="a"):
                self.assertEqual(response.rewards, [])
                self.assertIn("CUDA out of memory", response.status_message)


if __name__ == "__main__":
    unittest.main()
