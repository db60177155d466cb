# SPDX-License-Identifier: Apache-2.0
"""Rules for every manifest of deploy/, without a Docker or a cluster: they ask for nothing that a host may refuse."""
import re
import unittest
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
MANIFESTS = [path for path in sorted((ROOT / "deploy").rglob("*.y*ml")) if "dashboards" not in path.parts]
# A limit above the daemon's own ends the start of a container: "error setting rlimit type 7". Rootless and hardened
# hosts may raise nothing. Services raise their own soft limit as far as they may.
REFUSED = re.compile(r"^\s*(ulimits|nofile|nproc|memlock|sysctls|cap_add|privileged|shm_size|cpuset)\s*:", re.MULTILINE)
THREADS_LEAST = 4096  # A reward server has some threads a core, and there are hosts with hundreds.


class ManifestsTest(unittest.TestCase):
    def test_no_manifest_asks_for_more_than_every_host_may_give(self):
        self.assertGreater(len(MANIFESTS), 20)
        for path in MANIFESTS:
            with self.subTest(path.relative_to(ROOT)):
                self.assertEqual(REFUSED.findall(path.read_text(encoding="utf-8")), [])

    def test_a_limit_of_processes_leaves_room_for_the_threads_of_a_large_host(self):
        text = (ROOT / "deploy/compose/docker-compose.yml").read_text(encoding="utf-8")
        limits = [int(limit) for limit in re.findall(r"pids_limit: (\d+)", text)]
        self.assertTrue(limits)
        self.assertGreaterEqual(min(limits), THREADS_LEAST)

    def test_pages_and_manifests_call_compose_2(self):
        pages = [ROOT / "README.md", *MANIFESTS, *(ROOT / "deploy").rglob("*.md"), ROOT / "deploy/compose/.env"]
        for path in pages:
            with self.subTest(path.relative_to(ROOT)):
                text = path.read_text(encoding="utf-8")
                self.assertEqual(re.findall(r"docker-compose (?:-f|up|down|run|exec)\b", text), [])


if __name__ == "__main__":
    unittest.main()
