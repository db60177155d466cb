#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Weight of the page of a long run, its time to paint in a browser, and the cost of serving it.

  bench/report_page.py RUN [--bin build/release/bin] [--steps 1000] [--sheets 100] [--live CONFIG.yaml]

RUN is the directory of an ended run. Its metrics and sheets, again and again, make a run of --steps steps and --sheets
sheets, whose report.html is written and opened from disk, and which `oxbow watch` serves. Prints the page's size, the
time to the first paint with content in headless Chromium, five times each in turn with an empty page: in a new tab of a
browser that is open, and from a browser's own cold start. Prints the requests of the page and the lines on its console,
too. Then the run goes on by a step each 0.3 s, while a page asks its server for news every two seconds, as the page's
script does; prints the processor time of the server. With --live a run of CONFIG.yaml is trained meanwhile instead, and
the processor time of the server is also set against that of the run.
"""
import argparse
import json
import os
import re
import shutil
import statistics
import subprocess
import tempfile
import time
import urllib.request
from pathlib import Path

from open_browser import OpenBrowser

PROBE = """<script>
for (const kind of ['error', 'warn', 'assert']) {
  const own = console[kind]; console[kind] = (...said) => { console.log('CONSOLE', kind, ...said); own(...said); };
}
window.addEventListener('error', event => console.log('CONSOLE error', event.message));
new PerformanceObserver(list => {
  for (const entry of list.getEntriesByName('first-contentful-paint')) {
    setTimeout(() => console.log('PAINT', entry.startTime, performance.getEntriesByType('resource')
        .filter(one => !one.name.startsWith('data:')).length), 200);
  }
}).observe({type: 'paint', buffered: true});
</script>"""
EMPTY = "<!DOCTYPE html><html><head><title>empty</title></head><body>empty</body></html>"
TICKS = os.sysconf("SC_CLK_TCK")


def stretched(run, into, steps, sheets):
    """A run of so many steps and sheets, out of a short one."""
    lines = [json.loads(line) for line in (run / "metrics.jsonl").read_text().splitlines()]
    first, others = lines[0], lines[1:]
    every = max(1, steps // sheets)
    evaluations = [line for line in lines if "eval/reward_mean" in line]
    with (into / "metrics.jsonl").open("w") as out:
        for step in range(steps + 1):
            line = dict(first if step == 0 else others[(step - 1) % len(others)], step=step)
            line = {key: value for key, value in line.items() if not key.startswith("eval/")}
            line["time/wall_s"] = 0.3 * step
            if step % every == 0:
                line |= {key: value for key, value in evaluations[step // every % len(evaluations)].items()
                         if key.startswith("eval/")}
            out.write(json.dumps(line) + "\n")
    folders = sorted((run / "samples").glob("step_*"))
    for number in range(sheets):
        shutil.copytree(folders[number % len(folders)], into / "samples" / f"step_{number * every:06d}")
    shutil.copy(run / "config.resolved.yaml", into)


def painted(url, scratch, seconds=20):
    """(milliseconds to the first paint with content, requests, console lines) of one cold start."""
    profile = tempfile.mkdtemp(dir=scratch)
    browser = subprocess.Popen(
        ["chromium", "--headless=new", "--no-sandbox", "--disable-gpu", "--enable-logging=stderr", "--v=0",
         "--window-size=1400,1000", f"--user-data-dir={profile}", url],
        stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True)
    said, end = [], time.monotonic() + seconds
    try:
        for line in browser.stderr:
            if "CONSOLE " in line and ":CONSOLE" in line:
                said.append(line.strip())
            found = re.search(r"PAINT ([\d.]+) (\d+)", line)
            if found:
                return float(found.group(1)), int(found.group(2)), said
            if time.monotonic() > end:
                break
    finally:
        browser.terminate()
        browser.wait(10)
    raise SystemExit(f"no paint of {url} in {seconds} s")


def processor_seconds(pid):
    """Of a process and its children, living and waited for."""
    fields = Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()
    own = sum(map(int, fields[11:15])) / TICKS
    children = Path(f"/proc/{pid}/task/{pid}/children").read_text().split()
    return own + sum(processor_seconds(child) for child in children)


def served(oxbow, run):
    """The process of `oxbow watch` and its address."""
    watch = subprocess.Popen([oxbow, "watch", run, "--port", "0"], stdout=subprocess.PIPE, text=True)
    return watch, re.search(r"http://\S+", watch.stdout.readline()).group(0)


def with_probe(page, into):
    into.write_text(page.replace("</title>", "</title>" + PROBE, 1))
    return into.as_uri()


def spread(values):
    return f"{statistics.median(values):.0f} ms ({min(values):.0f} to {max(values):.0f})"


def measure_paints(page, scratch):
    """Of the page from disk and of an empty one, in turn: other work slows both."""
    pages = [with_probe(text, scratch / name) for name, text in (("empty.html", EMPTY), ("probed.html", page))]
    browser = OpenBrowser(tempfile.mkdtemp(dir=scratch))
    browser.painted(pages[0])  # The first tab is slower than all others.
    empty, full = zip(*[[browser.painted(url) for url in pages] for _ in range(5)])
    browser.close()
    print(f"from disk        in an open browser: first paint {spread(full)}, of an empty page {spread(empty)}")
    empty, full = zip(*[[painted(url, scratch) for url in pages] for _ in range(5)])
    print(f"                 browser started for it: {spread([one[0] for one in full])}, "
          f"for an empty page {spread([one[0] for one in empty])}; "
          f"{full[0][1]} requests, {len(full[0][2])} lines on the console")


def measure_page(arguments, scratch):
    oxbow = arguments.bin / "oxbow"
    run = scratch / "long"
    run.mkdir()
    stretched(arguments.run, run, arguments.steps, arguments.sheets)
    begun = time.monotonic()
    subprocess.run([oxbow, "report", run], check=True, stdout=subprocess.DEVNULL)
    first = time.monotonic() - begun
    begun = time.monotonic()
    subprocess.run([oxbow, "report", run], check=True, stdout=subprocess.DEVNULL)
    again = time.monotonic() - begun
    page = (run / "report.html").read_text()
    print(f"report.html      {len(page.encode()) / 1e6:.2f} MB, written in {first:.2f} s, again in {again:.2f} s")
    measure_paints(page, scratch)
    watch, address = served(oxbow, run)
    try:
        seconds = []
        for _ in range(5):
            begun = time.monotonic()
            body = urllib.request.urlopen(address).read()
            seconds.append(time.monotonic() - begun)
    finally:
        watch.terminate()
        watch.wait(10)
    print(f"oxbow watch      {len(body) / 1e6:.2f} MB without its pictures, "
          f"answered in {1e3 * seconds[0]:.0f} ms at first, {1e3 * statistics.median(seconds):.0f} ms later")


class Follower:
    """A page of the run that asks its server for news, as its script does."""

    def __init__(self, oxbow, run):
        self.watch, self.address = served(oxbow, run)
        page = urllib.request.urlopen(self.address).read().decode()
        self.have = re.search(r'data-live="([^"]*)"', page).group(1)
        self.asked, self.answers, self.bytes, self.next = 0, 0, 0, time.monotonic()
        before = processor_seconds(self.watch.pid)
        sheets = re.findall(r"url\((sheets/[^)]*)\)", page)
        for sheet in sheets:
            urllib.request.urlopen(self.address + sheet).read()
        self.begun, self.seconds = time.monotonic(), processor_seconds(self.watch.pid)
        print(f"opening it       {before:.2f} s of the processor for start and page, "
              f"{self.seconds - before:.2f} s for {len(sheets)} sheets")

    def ask(self):
        if time.monotonic() < self.next:
            return
        self.next = time.monotonic() + 2
        self.asked += 1
        with urllib.request.urlopen(f"{self.address}state.json?have={self.have}") as answer:
            if answer.status == 200:
                body = answer.read()
                self.have = json.loads(body)["version"]
                self.answers, self.bytes = self.answers + 1, self.bytes + len(body)

    def close(self):
        """Prints, and returns the processor time of the server, its start left out."""
        spent, lasted = processor_seconds(self.watch.pid) - self.seconds, time.monotonic() - self.begun
        self.watch.terminate()
        self.watch.wait(10)
        print(f"serving it       {spent:.2f} s of the processor in {lasted:.0f} s, {100 * spent / lasted:.2f} % of a "
              f"core: {self.asked} questions, {self.answers} answers of {self.bytes / 1e6:.2f} MB together")
        return spent


def measure_server(arguments, scratch):
    """Beside the long run, which goes on by its own steps again."""
    run = scratch / "long"
    lines = (run / "metrics.jsonl").read_text().splitlines()
    page = Follower(arguments.bin / "oxbow", run)
    end, step = time.monotonic() + arguments.seconds, len(lines)
    with (run / "metrics.jsonl").open("a") as out:
        while time.monotonic() < end:
            line = {key: value for key, value in json.loads(lines[1 + step % (len(lines) - 1)]).items()
                    if not key.startswith("eval/")}
            out.write(json.dumps(dict(line, step=step)) + "\n")
            out.flush()
            step += 1
            page.ask()
            time.sleep(0.3)
    page.close()


def measure_live_server(arguments, scratch):
    oxbow = arguments.bin / "oxbow"
    train = subprocess.Popen([oxbow, "train", arguments.live, "--no-progress", f"--set=run.directory={scratch}",
                              "--name=live"], stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    while not (scratch / "live/metrics.jsonl").exists():
        time.sleep(0.2)
    page, of_run = Follower(oxbow, scratch / "live"), 0.0
    while train.poll() is None:
        page.ask()
        try:
            of_run = processor_seconds(train.pid)
        except OSError:
            pass  # A child has just ended.
        time.sleep(0.2)
    print(f"                 {100 * page.close() / of_run:.2f} % of the {of_run:.1f} s of the run")


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("run", type=Path)
    parser.add_argument("--bin", type=Path, default=Path("build/release/bin"))
    parser.add_argument("--steps", type=int, default=1000)
    parser.add_argument("--sheets", type=int, default=100)
    parser.add_argument("--seconds", type=float, default=60, help="how long the long run is followed")
    parser.add_argument("--live", help="a run file to train while a page is served, in place of following")
    arguments = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="oxbow-page-", ignore_cleanup_errors=True) as scratch:
        measure_page(arguments, Path(scratch))
        (measure_live_server if arguments.live else measure_server)(arguments, Path(scratch))


if __name__ == "__main__":
    main()
