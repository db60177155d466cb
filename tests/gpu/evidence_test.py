#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""tools/gpu_evidence: what fails, hangs or is not there is a line of the table; real programs know the steps' flags.

    evidence_test.py BUILD
"""
import importlib
import os
import pathlib
import subprocess
import sys
import tempfile
import unittest

TOOLS = pathlib.Path(__file__).resolve().parents[2] / "tools/gpu_evidence"
sys.path.insert(0, str(TOOLS))
table, steps = importlib.import_module("table"), importlib.import_module("steps")
BUILD = pathlib.Path(sys.argv.pop(1)).absolute() if pathlib.Path(*sys.argv[1:2], "bin").is_dir() and sys.argv[1:] else None
TORCH = """__version__ = "2.11.0"
class version: cuda = None
class cuda: device_count = staticmethod(lambda: 0)
"""
OF_18_ROWS = """forward                   104.00 ms   500.000 TFLOP/s   53.9000 TFLOP  MFU 50.6 %
     99.10 ms in 1713 kernels
      9.00 ms   24 x gemm
forward, no adapter        70.00 ms   500.000 TFLOP/s   53.9000 TFLOP  MFU 50.6 %
     88.20 ms in 953 kernels
training step             310.00 ms   300.000 TFLOP/s  119.0000 TFLOP  MFU 40.0 %
"""


def script(path, text):
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text("#!/bin/bash\n" + text)
    path.chmod(0o755)


class TableTest(unittest.TestCase):
    def test_a_figure_stands_beside_its_prediction(self):
        step = next(step for step in steps.steps() if step.name == "SD3.5-M, 18 rows")
        lines = list(table.rows(step, "", OF_18_ROWS))
        self.assertIn("| SD3.5-M, 18 rows | forward | 104 ms | 95-110 |  |", lines)
        self.assertIn("| SD3.5-M, 18 rows | training step | 310 ms | 265-280 | +11 % |", lines)
        self.assertIn("| SD3.5-M, 18 rows | forward, no adapter | 70 ms | 81-95 | -14 % |", lines)
        self.assertIn("| SD3.5-M, 18 rows | of the step | 40 % | 30-36 | +11 % |", lines)
        self.assertIn("| SD3.5-M, 18 rows | a forward pass's kernels | 99.1 ms |  |  |", lines)
        self.assertIn("| SD3.5-M, 18 rows | memory at most | not printed |  | |", lines)

    def test_a_failed_step_keeps_what_it_printed(self):
        step = steps.tests_of("gpu_test", 9)
        text = "[  PASSED  ] 83 tests.\n 2 FAILED TESTS\n"
        self.assertEqual(list(table.rows(step, "exit code 1: x", text)),
                         ["| gpu_test | **exit code 1: x** | | | |", "| gpu_test | cases passed | 83 |  |  |",
                          "| gpu_test | cases failed | 2 |  |  |"])

    def test_smoke_has_the_flags_of_the_true_run(self):
        for true, smoke in zip(steps.steps(), steps.steps(smoke=True)):
            self.assertEqual(true.name, smoke.name)
            flags = [{word for word in step.command if word.startswith("--")} for step in (true, smoke)]
            self.assertTrue("gpu" in true.name or flags[0] - {"--profile", "--peak-tflops"} <= flags[1], true.name)

    def test_all_steps_fit_one_call(self):
        usual = ["gpu_test", "SD3.5-M", "FLUX", "Wan", "ceilings", "decoder"]
        self.assertLessEqual(sum(step.seconds for step in steps.steps() if step.name.startswith(tuple(usual))), 600)


class RunTest(unittest.TestCase):
    def run_pack(self, root, *flags, path=""):
        """Exit code and table of run.py on a machine whose torch is a stand-in."""
        stand_in = root.parent / "stand-in"
        (stand_in / "torch").mkdir(parents=True, exist_ok=True)
        (stand_in / "torch/__init__.py").write_text(TORCH)
        out = root.parent / "out"
        done = subprocess.run([sys.executable, str(TOOLS / "run.py"), str(root), "--out", str(out), "--device", "cpu", *flags],
                              capture_output=True, text=True, timeout=900, check=False,
                              env=os.environ | {"PYTHONPATH": str(stand_in), "PATH": f"{path}:{os.environ['PATH']}"})
        self.assertTrue((out / "evidence.md").exists(), done.stderr)
        return done.returncode, (out / "evidence.md").read_text(), (out / "log.txt").read_text()

    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.root = pathlib.Path(folder.name) / "pack"
        for name in ("sd3_tiny", "flux_dev_tiny", "wan_tiny"):
            script(self.root / f"goldens/exported/{name}/graph.json.gz", "")
        script(self.root / "graphs/AutoencoderKL-sd3.json.gz", "")

    def test_each_failure_is_a_line_and_stops_no_other_step(self):
        script(self.root / "bin/gpu_test", "echo '[  PASSED  ] 7 tests.'; echo 'segmentation | fault'; exit 139\n")
        script(self.root / "bin/graph_bench", "echo 'forward   12.5 ms'; sleep 99 & echo $! > pid; wait\n")
        script(self.root / "bin/decoder_bench", "echo 'decode, f32   3.5 ms'\n")
        code, text, log = self.run_pack(self.root, "--smoke", "--seconds", "12", "--only", "gpu_test", "SD3.5-M, 18", "decoder", "nccl",
                                        "diffusers, eager")
        self.assertEqual(code, 1)
        self.assertIn("| gpu_test | **exit code 139: segmentation / fault** | | | |", text)
        self.assertIn("| gpu_test | cases passed | 7 |  |  |", text)
        self.assertRegex(text, r"\| SD3.5-M, 18 rows \| \*\*stopped after \d+ s\*\* \| \| \| \|")
        self.assertIn("| SD3.5-M, 18 rows | forward | 12.5 ms |  |  |", text)
        self.assertIn("| decoder, 24 of 512 px | **left out: no time was left** | | | |", text)
        self.assertIn("| diffusers, eager | **not packed: sd35m_diffusers.py** | | | |", text)
        self.assertIn("| nccl_ranks_test | **left out: needs 2 GPUs** | | | |", text)
        self.assertIn("segmentation | fault", log)
        state = pathlib.Path("/proc", (self.root / "pid").read_text().strip(), "stat")
        self.assertTrue(not state.exists() or ") Z " in state.read_text(), "what a stopped step has started is gone")

    def test_a_missing_library_is_named(self):
        script(self.root / "bin/gpu_test", "exit 0\n")
        ldd = self.root.parent / "path"
        script(ldd / "ldd", "echo '	libabsl_x.so.2 => not found'; echo '	libc.so.6 => /lib/libc.so.6 (0x1)'\n")
        code, text, _ = self.run_pack(self.root, "--only", "gpu_test", path=ldd)
        self.assertEqual(code, 1)
        self.assertIn("| gpu_test | **libraries not found: libabsl_x.so.2** | | | |", text)

    @unittest.skipUnless(BUILD, "no build was named")
    def test_programs_of_a_build_know_every_flag(self):
        out = self.root.parent / "packed"
        done = subprocess.run([sys.executable, str(TOOLS / "pack.py"), str(BUILD), "--out", str(out), "--parts", "bench", "--folder"],
                              capture_output=True, text=True, check=False, timeout=900)
        self.assertEqual(done.returncode, 0, done.stderr)
        code, text, log = self.run_pack(out / "pack", "--smoke", "--seconds", "800", "--only", "SD3", "FLUX", "Wan", "decoder")
        self.assertEqual(code, 0, text + log)
        self.assertRegex(text, r"^oxbow ([0-9a-f]{7,}(-dirty)?|of an unknown revision)\ntorch 2.11.0, CUDA none, cuDNN none")
        for name in ("SD3.5-M, 18 rows | both passes, no adapter", "SD3.5-M, 48 rows, forward | forward",
                     "FLUX.1-dev, 4 rows of 512 px | training step, recomputed", "Wan2.1 1.3B, 33 frames of 480p | forward",
                     "decoder, 24 of 512 px | bf16"):
            self.assertRegex(text, rf"\| {name} \| [\d.]+ ms \|")


if __name__ == "__main__":
    unittest.main()
