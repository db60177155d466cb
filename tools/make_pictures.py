#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Makes the pictures of the README and the sample report: docs/pictures/report.png, terminal.png, and
docs/sample_report.html, of one run of `oxbow train configs/digits.yaml`.

    tools/make_pictures.py BUILD [--chromium PROGRAM]

The terminal is recorded in a pseudo-terminal of 100 columns: what stays on the screen at the end, and the progress line
as it was halfway. Needs Chromium and pngquant (Debian's chromium, pngquant).
"""
import argparse
import fcntl
import html
import os
import pty
import re
import struct
import subprocess
import sys
import tempfile
import termios
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
PICTURES = ROOT / "docs/pictures"
COLUMNS, BYTES_MAX = 100, 200_000
PAGE = """<meta charset="utf-8"><body style="margin:0;background:#0d1117;color:#e6edf3;padding:18px 22px">
<pre style="font:15px/1.45 'DejaVu Sans Mono',monospace;margin:0">%s</pre>"""


def record(command, folder):
    """The command's output on a terminal of COLUMNS columns."""
    child, terminal = pty.fork()
    if child == 0:
        os.chdir(folder)
        os.environ["TERM"] = "xterm-256color"
        os.environ.pop("NO_COLOR", None)
        os.execvp(command[0], command)
    fcntl.ioctl(terminal, termios.TIOCSWINSZ, struct.pack("HHHH", 40, COLUMNS, 0, 0))
    told = b""
    while True:
        try:
            piece = os.read(terminal, 1 << 16)
        except OSError:
            break
        if not piece:
            break
        told += piece
    _, status = os.waitpid(child, 0)
    if status:
        sys.exit(f"{' '.join(command)}: failed\n{told.decode(errors='replace')[-2000:]}")
    return told.decode(errors="replace")


def screen(told):
    """The lines that stay, with one state of the line that was rewritten, from the middle of the run."""
    lines, rewritten = [], []
    for line in told.replace("\r\n", "\n").split("\n"):
        states = [re.sub(r"\x1b\[[0-9;?]*[A-Za-z]", "", state) for state in line.split("\r")]
        rewritten += [state for state in states[:-1] if state.startswith(("step", "["))]
        if states[-1].strip():
            lines.append(states[-1])
    lines = [line for line in lines if ": warning: machine/" not in line]  # About the machine that makes the picture.
    if not rewritten:
        return lines
    half = rewritten[len(rewritten) // 2]
    step = int(re.search(r"step (\d+)/", half).group(1))
    past = [at for at, line in enumerate(lines) if re.match(r"step \d+", line) and int(line.split()[1]) > step]
    where = past[0] if past else len(lines)
    return [*lines[:where], half, "...", *lines[where:]]


def shoot(chromium, page, picture, width, height):
    subprocess.run([chromium, "--headless", "--no-sandbox", "--disable-gpu", "--hide-scrollbars",
                    "--virtual-time-budget=5000", f"--window-size={width},{height}", f"--screenshot={picture}", page.as_uri()],
                   check=True, stderr=subprocess.DEVNULL)
    subprocess.run(["pngquant", "--force", "--output", picture, "64", picture], check=True)
    if picture.stat().st_size > BYTES_MAX:
        sys.exit(f"{picture}: {picture.stat().st_size} bytes, at most {BYTES_MAX}")


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("build", type=Path)
    parser.add_argument("--chromium", default="chromium")
    flags = parser.parse_args()
    PICTURES.mkdir(exist_ok=True)
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        for part in ("configs", "models"):
            (folder / part).symlink_to(ROOT / part)
        oxbow = str(flags.build.resolve() / "bin/oxbow")
        lines = ["$ oxbow train configs/digits.yaml", *screen(record([oxbow, "train", "configs/digits.yaml"], folder))]
        page = folder / "terminal.html"
        page.write_text(PAGE % html.escape("\n".join(lines)))
        shoot(flags.chromium, page, PICTURES / "terminal.png", 1060, 40 + 22 * len(lines))
        report = ROOT / "docs/sample_report.html"
        report.write_text((folder / "runs/digits/report.html").read_text())
        shoot(flags.chromium, report, PICTURES / "report.png", 1200, 900)
    for path in (report, PICTURES / "report.png", PICTURES / "terminal.png"):
        print(f"{path.relative_to(ROOT)}: {path.stat().st_size} bytes")


if __name__ == "__main__":
    main()
