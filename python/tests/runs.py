# SPDX-License-Identifier: Apache-2.0
"""Run directories for tests, in the form of docs/formats.md."""
import json
import os
import socket
import struct
import zlib
from pathlib import Path

CONFIG = """run:                                        # defaults
  name: digits
  steps: {steps}
optimizer:
  learning_rate: 1e-05                      # --set
reward:
  terms: [{{name: digits_ocr, weight: 1}}, {{name: "no", weight: 0.5}}]
  endpoints: []
"""


def png(level, width=4, height=2):
    """A grey picture as a PNG file."""
    def chunk(kind, data):
        return struct.pack(">I", len(data)) + kind + data + struct.pack(">I", zlib.crc32(kind + data))
    rows = (b"\0" + bytes([level]) * width) * height
    return (b"\x89PNG\r\n\x1a\n" + chunk(b"IHDR", struct.pack(">IIBBBBB", width, height, 8, 0, 0, 0, 0))
            + chunk(b"IDAT", zlib.compress(rows)) + chunk(b"IEND", b""))


PROMPTS = ("text 473", "a house at the river, 一座古老石桥 🌊 старый дом", "scored only")
SEEDS = (2**64 - 1, 1, 2)


class WrittenRun:
    """A run as its learner writes it. An evaluation, with two pictures and their sheet, comes every second step."""

    def __init__(self, folder, steps=10, uid="digits-0123456789abcdef"):
        self.directory = Path(folder)
        self.directory.mkdir(parents=True, exist_ok=True)
        (self.directory / "config.resolved.yaml").write_text(CONFIG.format(steps=steps))
        (self.directory / "run_uid").write_text(uid + "\n")
        self.metrics = self.directory / "metrics.jsonl"
        self.cut_to(-1)

    def line(self, step):
        numbers = {"step": step, "time/wall_s": step + 0.5}
        if step:
            numbers["train/loss"] = None if step == 3 else step / 8
            numbers["train/reward_mean"] = step / 32
        if step % 2 == 0:
            numbers["eval/reward_mean"] = step / 16
        return json.dumps(numbers, separators=(",", ":")) + "\n"

    def write(self, *steps):
        for step in steps:
            if step % 2 == 0:
                folder = self.directory / "samples" / f"step_{step:06d}"
                folder.mkdir(parents=True, exist_ok=True)
                (folder / "000.png").write_bytes(png(step))
                (folder / "001.png").write_bytes(png(step + 1))
                (folder / "eval.jsonl").write_text("".join(self.row(step, number) for number in range(3)), encoding="utf-8")
                (folder / "eval.png").write_bytes(png(step))
                (folder / "eval.txt").write_text(f"held-out prompts, reward {step / 16:.3f}")
            with self.metrics.open("a") as file:
                file.write(self.line(step))

    def row(self, step, number):
        """The line of one picture of an evaluation; the last one has no file."""
        picture = {"picture": f"{number:03d}.png"} if number < 2 else {}
        return json.dumps({"prompt": PROMPTS[number], "reward": step / 16, "right": False, **picture, "width": 4, "height": 2,
                           "rewards": {"digits_ocr": step / 16, "redness": None if number else 0.25},
                           "seed": str(SEEDS[number]), "group": "7", "sample": number}) + "\n"

    def cut_to(self, last):
        """As a resumed learner does: the lines past its checkpoint go."""
        self.metrics.write_text("".join(self.line(step) for step in range(last + 1)))

    def hold(self, pid=None, host=None):
        """The file LOCK of a run that this process, or another, works on."""
        pid = pid or os.getpid()
        stat = Path(f"/proc/{pid}/stat").read_text().rpartition(") ")[2].split()
        (self.directory / "LOCK").write_text(json.dumps(
            {"host": host or socket.gethostname(), "pid": pid, "process_start": int(stat[19]), "token": "8c1f"}))

    def let_go(self):
        (self.directory / "LOCK").unlink()
