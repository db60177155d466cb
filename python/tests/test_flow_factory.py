# SPDX-License-Identifier: Apache-2.0
"""Flow-Factory's remote rewards and oxbow's reward server agree, both ways.

The other side is a stand-in written from the protocol. With FLOW_FACTORY=CHECKOUT it is Flow-Factory's own
client and example server, unmodified (tests/flow_factory.py says what that needs):

    FLOW_FACTORY=../Flow-Factory OXBOW_BUILD=build/release python python/tests/run.py test_flow_factory
"""
import re
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
    from PIL import Image
except ImportError:
    flow_factory = None

# A grey picture for Flow-Factory's client, which sends the mode that it gets.
PROMPT, SIZE = "text 473", (20, 8)
CONFIG = """
run: {{name: bridge}}
reward:
  terms: [{{name: style, weight: 1}}]
  scorers: [{{name: style, kind: json, url: "{url}"}}]
"""


@contextmanager
def reward_server(*flags):
    """The endpoint of gRPC, and that of HTTP if it is served."""
    with tempfile.TemporaryFile("w+") as said:
        process = subprocess.Popen([built("reward_server"), *flags], stdout=subprocess.PIPE, stderr=said, text=True)
        try:
            ready = process.stdout.readline()
            said.seek(0)
            log = said.read()
            http = re.search(r"serves HTTP address=(\S+)", log)
            assert ready.startswith("READY"), log
            yield ready.split("grpc=")[1].split()[0], http and http[1]
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


@unittest.skipUnless(built("reward_server"), "OXBOW_BUILD is no build of oxbow")
@unittest.skipUnless(flow_factory, "needs Pillow")
class FlowFactoryTest(unittest.TestCase):
    def test_its_client_gets_the_scores_that_grpc_gives(self):
        arrays = [picture(seed, *SIZE, 1) for seed in range(5)]
        images = [Image.fromarray(array[:, :, 0]) for array in arrays]
        with reward_server("--rewards", "digits_ocr,digits_strict", "--http-listen", "127.0.0.1:0") as (grpc, http):
            with calling(grpc) as own:
                for name in ("digits_ocr", "digits_strict"):
                    theirs = flow_factory.client(f"http://{http}/{name}")
                    self.assertTrue(theirs.health_check())
                    expected = values(ask(own, *map(raw, arrays), prompt=PROMPT, rewards=[name]))
                    self.assertEqual(list(theirs.compute([PROMPT] * 5, image=images)), expected)

    def test_what_cannot_be_scored_is_an_error_of_its_client(self):
        wide = Image.fromarray(picture(0, 30, 8, 1)[:, :, 0])
        with reward_server("--rewards", "digits_ocr", "--http-listen", "127.0.0.1:0") as (_, http):
            theirs = flow_factory.client(f"http://{http}/digits_ocr")
            with self.assertRaisesRegex(RuntimeError, "400"):
                theirs.compute([PROMPT], image=[wide])
            with self.assertRaisesRegex(RuntimeError, "400"):
                theirs.compute(["no digits"], image=[wide.crop((0, 0, *SIZE))])
            if not flow_factory.CHECKOUT:
                self.assertFalse(flow_factory.client(f"http://{http}/other").health_check())

    @contextmanager
    def scored(self, compute):
        with flow_factory.server(compute) as url, tempfile.TemporaryDirectory() as folder:
            Path(folder, "run.yaml").write_text(CONFIG.format(url=url))
            with reward_server("--config", str(Path(folder, "run.yaml"))) as (grpc, _), calling(grpc) as own:
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
