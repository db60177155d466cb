#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""What the page of a long run weighs, how soon a browser paints it, and what serving it costs a run.

  bench/report_page.py RUN [--bin build/release/bin] [--steps 1000] [--sheets 100] [--live CONFIG.yaml]

RUN is the directory of an ended run. Its metrics and sheets, again and again, make a run of --steps steps and --sheets
sheets, whose report.html is written and opened from disk, and which `oxbow watch` serves. Prints the page's size, the
time to the first paint with content (headless Chromium, the median of five cold starts), the requests of the page and
the lines on its console. With --live a run of CONFIG.yaml is trained while a page asks its server for news every two
seconds, as the page's script does; prints the processor time of the server over that of the run.
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
    runs = [painted(with_probe(page, run / "probed.html"), scratch) for _ in range(5)]
    print(f"from disk        first paint {statistics.median(one[0] for one in runs):.0f} ms "
          f"({min(one[0] for one in runs):.0f} to {max(one[0] for one in runs):.0f}), "
          f"{runs[0][1]} requests, {len(runs[0][2])} lines on the console")
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


def measure_server(arguments, scratch):
    oxbow = arguments.bin / "oxbow"
    train = subprocess.Popen([oxbow, "train", arguments.live, "--no-progress", f"--set=run.directory={scratch}",
                              "--name=live"], stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    while not (scratch / "live/metrics.jsonl").exists():
        time.sleep(0.2)
    watch, address = served(oxbow, scratch / "live")
    have, asked, of_run, of_server = "", 0, 0.0, 0.0
    while train.poll() is None:
        with urllib.request.urlopen(f"{address}state.json?have={have}") as answer:
            if answer.status == 200:
                have = json.loads(answer.read())["version"]
        asked += 1
        try:
            of_run, of_server = processor_seconds(train.pid), processor_seconds(watch.pid)
        except OSError:
            pass  # A child has just ended.
        time.sleep(2)
    watch.terminate()
    watch.wait(10)
    print(f"serving a run    {of_server:.2f} s of the processor beside {of_run:.1f} s of the run: "
          f"{100 * of_server / of_run:.2f} % ({asked} questions)")


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("run", type=Path)
    parser.add_argument("--bin", type=Path, default=Path("build/release/bin"))
    parser.add_argument("--steps", type=int, default=1000)
    parser.add_argument("--sheets", type=int, default=100)
    parser.add_argument("--live", help="a run file to train while a page is served")
    arguments = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="oxbow-page-", ignore_cleanup_errors=True) as scratch:
        measure_page(arguments, Path(scratch))
        if arguments.live:
            measure_server(arguments, Path(scratch))


if __name__ == "__main__":
    main()
