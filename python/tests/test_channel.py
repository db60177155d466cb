# SPDX-License-Identifier: Apache-2.0
"""Channels and the proxies that an environment names."""
import os
import subprocess
import sys
import unittest

from servers import levels, serving

from oxbow.reward import reward

# Says whether a server answers within the time that a connection takes.
ASK = """
import sys, grpc
from oxbow.reward.tls import Tls
channel = Tls().channel(sys.argv[1])
try:
    grpc.channel_ready_future(channel).result(timeout=float(sys.argv[2]))
    print("answers")
except grpc.FutureTimeoutError:
    print("silent")
"""


class ChannelTest(unittest.TestCase):
    def said(self, endpoint, seconds, **more):
        surroundings = {**os.environ, "http_proxy": "http://127.0.0.1:9", "no_proxy": "", "no_grpc_proxy": "",
                        "PYTHONPATH": os.pathsep.join(sys.path), **more}
        done = subprocess.run([sys.executable, "-c", ASK, endpoint, str(seconds)], env=surroundings,
                              capture_output=True, text=True, timeout=60, check=True)
        return done.stdout.strip()

    def test_no_proxy_of_the_environment_is_used_unless_it_is_wanted(self):
        with serving(reward("level", range=(0, 255), wait_ms=0)(levels)) as (server, _):
            self.assertEqual(self.said(server.endpoint, 30), "answers")
            self.assertEqual(self.said(server.endpoint, 1, OXBOW_HTTP_PROXY="1"), "silent")


if __name__ == "__main__":
    unittest.main()
