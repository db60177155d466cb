# SPDX-License-Identifier: Apache-2.0
"""A headless Chromium that stays open, driven over its debugging pipe: how soon it paints a page in a new tab."""
import itertools
import json
import os
import subprocess
import time

COMMAND = ["chromium", "--headless=new", "--no-sandbox", "--disable-gpu", "--window-size=1400,1000",
           "--remote-debugging-pipe"]
# The first paint with content, in milliseconds since the navigation; null before the page is complete.
PAINT = """document.readyState === 'complete' &&
           (performance.getEntriesByName('first-contentful-paint')[0] || {}).startTime || null"""


class OpenBrowser:
    """profile: a directory for the browser's own files."""

    def __init__(self, profile):
        to_browser, self.into = os.pipe()
        self.out_of, from_browser = os.pipe()

        def connect():  # Chromium reads descriptor 3 and writes 4.
            os.dup2(to_browser, 103), os.dup2(from_browser, 104)
            os.dup2(103, 3), os.dup2(104, 4)

        self.process = subprocess.Popen(COMMAND + [f"--user-data-dir={profile}", "about:blank"], close_fds=False,
                                        preexec_fn=connect, stderr=subprocess.DEVNULL)
        os.close(to_browser), os.close(from_browser)
        self.numbers, self.read = itertools.count(1), b""

    def call(self, method, session=None, **parameters):
        number = next(self.numbers)
        message = {"id": number, "method": method, "params": parameters}
        os.write(self.into, json.dumps(message | ({"sessionId": session} if session else {})).encode() + b"\0")
        while True:
            while b"\0" not in self.read:
                self.read += os.read(self.out_of, 1 << 20) or self.gone()
            line, self.read = self.read.split(b"\0", 1)
            answer = json.loads(line)
            if answer.get("id") == number:
                return answer["result"]

    def gone(self):
        raise SystemExit("the browser has ended")

    def painted(self, url, seconds=20):
        """Milliseconds from the navigation to the first paint with content, in a new tab."""
        tab = self.call("Target.createTarget", url="about:blank")["targetId"]
        session = self.call("Target.attachToTarget", targetId=tab, flatten=True)["sessionId"]
        self.call("Page.enable", session)
        time.sleep(0.3)  # The tab's own start is over.
        self.call("Page.navigate", session, url=url)
        end = time.monotonic() + seconds
        while time.monotonic() < end:
            time.sleep(0.1)
            found = self.call("Runtime.evaluate", session, expression=PAINT)["result"].get("value")
            if found:
                self.call("Target.closeTarget", targetId=tab)
                return found
        raise SystemExit(f"no paint of {url} in {seconds} s")

    def close(self):
        self.process.terminate()
        self.process.wait(10)
        os.close(self.into), os.close(self.out_of)
