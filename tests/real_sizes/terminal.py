# SPDX-License-Identifier: Apache-2.0
"""A program in a terminal of a hundred columns, and when each line of it was seen."""
import fcntl
import os
import pty
import re
import signal
import struct
import subprocess
import termios
import threading
import time
from pathlib import Path

PATIENCE = 400  # Seconds for one command.
SIZE = struct.pack("HHHH", 40, 100, 0, 0)
CONTROL = re.compile(r"\x1b\[[0-9;?]*[A-Za-z]")


def descendants(pid):
    """The processes that `pid` started, and those that these started."""
    parents = {}
    for stat in Path("/proc").glob("[0-9]*/stat"):
        try:
            fields = stat.read_text().rpartition(") ")[2].split()
        except (FileNotFoundError, ProcessLookupError):
            continue
        parents.setdefault(int(fields[1]), []).append(int(stat.parent.name))
    found = [pid]
    for one in found:
        found += parents.get(one, [])
    return found[1:]


class Terminal:
    """A command that has started. `lines` are the different texts that stood in it, with the seconds since its start."""

    def __init__(self, command, environment, folder):
        self.lines, self.code, self.seconds, self._open = [], None, 0.0, False
        ours, theirs = pty.openpty()
        fcntl.ioctl(theirs, termios.TIOCSWINSZ, SIZE)
        self._start = time.monotonic()
        self._child = subprocess.Popen([str(word) for word in command], env=environment, cwd=folder, stdin=subprocess.DEVNULL,
                                       stdout=theirs, stderr=theirs, start_new_session=True)
        os.close(theirs)
        self._reader = threading.Thread(target=self._read, args=(ours,), daemon=True)
        self._reader.start()

    def _read(self, descriptor):
        rest = b""
        while True:
            try:
                data = os.read(descriptor, 65536)
            except OSError:  # The last process has closed the terminal.
                break
            if not data:
                break
            # A progress line has no end: what stands there now is a text, too.
            *whole, rest = re.split(rb"[\r\n]+", rest + data)
            for line in whole:
                self._saw(line, ended=True)
            self._saw(rest, ended=False)
        os.close(descriptor)

    def _saw(self, line, ended):
        text = CONTROL.sub("", line.decode("utf-8", "replace")).rstrip()
        if self._open and text.startswith(self.lines[-1][1]):  # A message may come in pieces.
            self.lines.pop()
        if text and (not self.lines or self.lines[-1][1] != text):
            self.lines.append((time.monotonic() - self._start, text))
        self._open = bool(text) and not ended

    def wait(self, patience=PATIENCE):
        """Itself, when the command has ended. It is killed after `patience` seconds, and its code is then a text."""
        try:
            self.code = self._child.wait(patience)
        except subprocess.TimeoutExpired:
            self.kill()
            self.code = f"no end after {patience} s"
        self.seconds = time.monotonic() - self._start
        self._reader.join(10)
        return self

    def stop(self):
        """Ctrl-C."""
        self._child.send_signal(signal.SIGINT)
        return self.wait(60)

    def kill(self):
        """Nobody of them notices."""
        for pid in [self._child.pid, *descendants(self._child.pid)]:
            try:
                os.kill(pid, signal.SIGKILL)
            except ProcessLookupError:
                pass
        self._child.wait()

    @property
    def running(self):
        return self._child.poll() is None

    @property
    def text(self):
        return "\n".join(line for _, line in self.lines)

    @property
    def end(self):
        """The last texts; of those that differ by numbers alone the last one."""
        kept = {re.sub(r"[0-9.:]+", "0", line): line for _, line in self.lines}
        return "\n".join(list(kept.values())[-10:])

    @property
    def silence(self):
        """(seconds, the text that stood there meanwhile): the longest time without another text."""
        times = [0.0, *(at for at, _ in self.lines), self.seconds or time.monotonic() - self._start]
        shown = ["", *(line for _, line in self.lines)]
        return max((after - before, line) for before, after, line in zip(times, times[1:], shown))
