# SPDX-License-Identifier: Apache-2.0
"""oxbow-reward: bad input is one line and a documented exit code; SIGTERM drains."""
import os
import signal
import struct
import subprocess
import sys
import tempfile
import unittest
import zlib
from importlib.util import find_spec
from pathlib import Path
from runpy import run_path

import numpy as np
from servers import PATIENCE, ask, call_in_thread, colourful, grey, values

from oxbow.reward import fingerprint
from oxbow.reward.contract.client import Client
from oxbow.reward.contract.pictures import encoded
from oxbow.reward.tls import Tls

EXAMPLES = Path(__file__).resolve().parent.parent / "examples"
HEAD = "from oxbow.reward import reward\n"
GOOD = HEAD + "@reward('x', range=(0, 1))\ndef x(items): return [i.picture.mean() / 255 for i in items]\n"


def message(*fields):
    """A protobuf message of (number, integer, text or message)."""
    def varint(value):
        return bytes([value]) if value < 128 else bytes([value % 128 + 128]) + varint(value // 128)

    out = b""
    for number, value in fields:
        if isinstance(value, int):
            out += varint(number * 8) + varint(value)
        else:
            value = value.encode() if isinstance(value, str) else value
            out += varint(number * 8 + 2) + varint(len(value)) + value
    return out


def mean_of_pixels(shape):
    """An ONNX file (onnx.proto of version 8) of one operator: [N, ..] of that shape to the mean of all."""
    def tensor(name, sides):
        dims = message(*((1, message((1 if isinstance(side, int) else 2, side))) for side in sides))
        return message((1, name), (2, message((1, message((1, 1), (2, dims))))))

    node = message((1, "pixels"), (2, "score"), (4, "ReduceMean"))
    graph = message((1, node), (2, "mean"), (11, tensor("pixels", shape)), (12, tensor("score", [1, 1, 1, 1])))
    return message((1, 8), (7, graph), (8, message((2, 13))))


class CommandTest(unittest.TestCase):
    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.folder = Path(folder.name)

    def file(self, text, name="rewards.py"):
        path = self.folder / name
        path.write_text(text)
        return str(path)

    def run_command(self, *arguments):
        return subprocess.run([sys.executable, "-m", "oxbow.reward.command", *arguments], capture_output=True,
                              text=True, timeout=PATIENCE)

    def check_refused(self, code, words, *arguments):
        done = self.run_command(*arguments)
        self.assertEqual(done.returncode, code, done.stderr + done.stdout)
        self.assertEqual(len(done.stderr.splitlines()), 1, done.stderr)
        self.assertIn(words, done.stderr)

    def test_files_that_cannot_be_served(self):
        twice = GOOD + "@reward('x', range=(0, 1))\ndef y(items): return []\n"
        for code, words, text in (
                (2, "no reward in it", "x = 1\n"), (2, "named twice: x", twice),
                (4, "rewards.py:2: SyntaxError", HEAD + "def\n"),
                (4, "rewards.py:2: ZeroDivisionError", HEAD + "1 / 0\n"),
                (2, "range is not", HEAD + "@reward('x', range=(1, 0))\ndef x(items): pass\n"),
                (4, "load() failed: ModuleNotFoundError",
                 HEAD + "@reward('x', range=(0, 1))\nclass X:\n  def load(self): import no_such_module\n"
                        "  def score(self, items): pass\n")):
            for command in ("serve", "check"):
                with self.subTest(command=command, words=words):
                    self.check_refused(code, words, command, self.file(text))
        self.check_refused(4, "no such file", "serve", str(self.folder / "none.py"))

    def test_flags_that_cannot_be(self):
        good = self.file(GOOD)
        self.check_refused(2, "not HOST:PORT", "serve", good, "--listen", "7072")
        self.check_refused(2, "listening beyond this machine", "serve", good, "--listen", "0.0.0.0:0")
        self.check_refused(2, "belong together", "serve", good, "--tls-ca", good)
        self.check_refused(4, "--tls-key: no such file", "serve", good, "--tls-ca", good, "--tls-cert", good,
                           "--tls-key", "none")
        self.check_refused(2, "one of them", "check")
        self.check_refused(3, "no reward server answers", "check", "--server", "127.0.0.1:1", "--timeout", "1")

    def test_a_port_in_use_is_exit_code_3(self):
        import socket
        with socket.socket() as taken:
            taken.bind(("127.0.0.1", 0))
            taken.listen()
            address = f"127.0.0.1:{taken.getsockname()[1]}"
            done = self.run_command("serve", self.file(GOOD), "--listen", address)
            self.assertEqual(done.returncode, 3)
            self.assertIn(f"cannot listen on {address} (--listen)", done.stderr)
            self.check_refused(3, "(--metrics-listen)", "serve", self.file(GOOD), "--metrics-listen", address)

    def test_rewards_without_a_number_fail_the_check_in_one_line(self):
        for result, words in (("[float('nan')] * len(items)", "score is not finite: nan"),
                              ("[0.5]", "1 scores returned for 4 items")):
            text = HEAD + f"@reward('x', range=(0, 1), wait_ms=1000, batch_max=4)\ndef x(items): return {result}\n"
            done = self.run_command("check", self.file(text))
            self.assertEqual((done.returncode, done.stderr), (1, ""), done.stderr)
            failed = [line for line in done.stdout.splitlines() if line.startswith("FAIL")]
            self.assertEqual(len(failed), 1, done.stdout)
            self.assertIn(words, failed[0])

    def test_pictures_that_cannot_be_read(self):
        good, array = self.file(GOOD), colourful()
        for encoding in ("png", "jpeg"):
            whole = encoded(array, encoding).pixels
            path = self.folder / f"cut.{encoding}"
            path.write_bytes(whole[:len(whole) // 2])
            self.check_refused(4, f"not a whole {encoding.upper()} file", "score", good, str(path))
        head = b"IHDR" + struct.pack(">IIBBBBB", 31623, 31623, 8, 2, 0, 0, 0)
        bomb = self.folder / "bomb.png"
        bomb.write_bytes(b"\x89PNG\r\n\x1a\n" + b"\0\0\0\x0d" + head + struct.pack(">I", zlib.crc32(head))
                         + encoded(array, "png").pixels[33:])
        self.check_refused(4, "DecompressionBombError", "score", good, str(bomb))
        self.check_refused(4, "No such file", "score", good, str(self.folder / "none.png"))

    def test_pictures_are_scored(self):
        array = colourful()
        (self.folder / "a.png").write_bytes(encoded(array, "png").pixels)
        done = self.run_command("score", self.file(GOOD), str(self.folder / "a.png"))
        self.assertEqual((done.returncode, done.stderr), (0, ""))
        self.assertEqual(done.stdout.split(), [str(self.folder / "a.png"), "x", f"{array.mean() / 255:g}"])

    def test_examples_keep_the_contract(self):
        for name in ("darkness", "flow_factory_class", "flow_grpo_function"):
            with self.subTest(name):
                done = self.run_command("check", str(EXAMPLES / f"{name}.py"))
                self.assertEqual(done.returncode, 0, done.stdout + done.stderr)
        for name in ("paddle_ocr", "deqa", "onnx_scorer"):
            compile((EXAMPLES / f"{name}.py").read_text(), name, "exec")

    @unittest.skipUnless(find_spec("onnxruntime") and find_spec("PIL"), "needs onnxruntime and Pillow")
    def test_an_onnx_file_is_a_reward(self):
        colour = np.array([[[60, 120, 240]]], np.uint8).repeat(40, 0).repeat(30, 1)
        (self.folder / "a.png").write_bytes(encoded(colour, "png").pixels)
        wanted = ((np.array([60, 120, 240]) / 255 - [0.485, 0.456, 0.406]) / [0.229, 0.224, 0.225]).mean()
        self.addCleanup(os.environ.pop, "ONNX_MODEL", None)
        for name, shape in (("first", ["n", 3, "h", "w"]), ("last", [1, 8, 16, 3])):
            model = self.folder / f"{name}.onnx"
            model.write_bytes(mean_of_pixels(shape))
            os.environ["ONNX_MODEL"] = str(model)
            with self.subTest(name):
                example = run_path(str(EXAMPLES / "onnx_scorer.py"))["OnnxScorer"]
                example.load()
                self.assertIn(fingerprint(model), example.identity)
                done = self.run_command("check", str(EXAMPLES / "onnx_scorer.py"))
                self.assertEqual(done.returncode, 0, done.stdout + done.stderr)
                done = self.run_command("score", str(EXAMPLES / "onnx_scorer.py"), str(self.folder / "a.png"))
                self.assertAlmostEqual(float(done.stdout.split()[-1]), wanted, places=3)

    def test_sigterm_lets_what_runs_end(self):
        begun, go = self.folder / "begun", self.folder / "go"
        for fifo in (begun, go):
            os.mkfifo(fifo)
        text = HEAD + ("@reward('x', range=(0, 255))\ndef x(items):\n"
                       f"    open({str(begun)!r}, 'w').close(); open({str(go)!r}).close()\n"
                       "    return [i.picture.mean() for i in items]\n")
        process = subprocess.Popen([sys.executable, "-m", "oxbow.reward.command", "serve", self.file(text)],
                                   stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
        try:
            ready = process.stdout.readline()
            self.assertRegex(ready, r"^READY name=reward_server grpc=127\.0\.0\.1:\d+ metrics=127\.0\.0\.1:\d+\n$")
            client = Client(ready.split("grpc=")[1].split()[0], Tls(), PATIENCE)
            answers = call_in_thread(lambda: ask(client, grey(7)))
            begun.open().close()
            process.send_signal(signal.SIGTERM)
            self.assertRegex(process.stderr.readline(),
                             r"^I \d\d:\d\d:\d\d\.\d{3} reward_server: stopping signal=15\n$")
            go.open("w").close()
            self.assertEqual(values(answers()), [7])
            self.assertEqual(process.wait(PATIENCE), 0)
            client.close()
        finally:
            process.kill()
            process.wait(PATIENCE)
            process.stdout.close()
            process.stderr.close()


if __name__ == "__main__":
    unittest.main()
