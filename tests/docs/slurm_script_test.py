#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""The batch script of docs/launching.md, with stand-ins for srun and scontrol: which ends of a learner it repeats."""
import os
import re
import subprocess
import tempfile
import unittest
from pathlib import Path

PAGE = Path(__file__).resolve().parents[2] / "docs" / "launching.md"
SRUN = """#!/bin/bash
[ "$*" = "--ntasks 2 --kill-on-bad-exit=0 learner --resume" ] || exit 99
code=$(head -1 codes); sed -i 1d codes; echo started >> starts
exit "${code:-0}"
"""


class SlurmScriptTest(unittest.TestCase):
    def after(self, *codes):
        """Exit code, starts, and whether the job was queued again, where srun ends with these codes, then with 0."""
        script = re.search(r"## srun\n\n```sh[^\n]*\n(.*?)```", PAGE.read_text(), re.DOTALL)[1]
        with tempfile.TemporaryDirectory() as name:
            folder = Path(name)
            (folder / "codes").write_text("".join(f"{code}\n" for code in codes))
            for program, text in (("srun", SRUN), ("scontrol", '#!/bin/sh\necho "$*" > queued\n'), ("sleep", "#!/bin/sh\n")):
                (folder / program).write_text(text)
                (folder / program).chmod(0o755)
            done = subprocess.run(["bash", "-c", script], cwd=folder, check=False, timeout=50,
                                  env={"PATH": f"{folder}:{os.environ['PATH']}", "LEARNER": "learner --resume", "SLURM_JOB_ID": "7"})
            queued = (folder / "queued").read_text() if (folder / "queued").exists() else ""
            return done.returncode, len((folder / "starts").read_text().splitlines()), queued

    def test_the_last_step_is_the_end(self):
        self.assertEqual(self.after(0), (0, 1, ""))

    def test_a_drain_is_no_success_and_queues_the_job_again(self):
        self.assertEqual(self.after(9), (9, 1, "requeue 7\n"))

    def test_what_may_pass_is_started_again_and_not_for_ever(self):
        self.assertEqual(self.after(3, 137, 1), (0, 4, ""))
        self.assertEqual(self.after(*[3] * 100), (3, 31, ""))

    def test_what_would_end_the_same_way_is_not(self):
        for code in (2, 4, 7, 8):
            self.assertEqual(self.after(code), (code, 1, ""))


if __name__ == "__main__":
    unittest.main()
