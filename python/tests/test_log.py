# SPDX-License-Identifier: Apache-2.0
"""Log lines have the shape of all services, and no value forges one."""
import io
import json
import logging
import unittest

from oxbow.reward import log

TRACE = "0123456789abcdef0123456789abcdef"


class LogTest(unittest.TestCase):
    def line(self, as_json, text, **fields):
        stream = io.StringIO()
        handler = logging.StreamHandler(stream)
        handler.setFormatter(log._Line("reward_server", as_json))
        logger = logging.getLogger("oxbow.reward")
        level, logger.propagate = logger.level, False
        logger.addHandler(handler)
        logger.setLevel(logging.INFO)
        try:
            log.event(logging.WARNING, text, **fields)
        finally:
            logger.removeHandler(handler)
            logger.setLevel(level)
            logger.propagate = True
        return stream.getvalue()

    def test_text(self):
        self.assertRegex(self.line(False, "images not scored", images=3, reason="a b", trace=""),
                         r"^W \d\d:\d\d:\d\d\.\d\d\d reward_server: images not scored images=3 reason=a b\n$")

    def test_json(self):
        read = json.loads(self.line(True, "images not scored", images=3, trace=TRACE))
        self.assertRegex(read.pop("time"), r"^\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{3}\+00:00$")
        self.assertEqual(read, {"level": "warning", "service": "reward_server", "event": "images not scored",
                                "images": "3", "trace": TRACE})

    def test_no_value_forges_a_line(self):
        line = self.line(False, "x", reason="a\nE 00:00:00.000 forged\x1b[2J")
        self.assertEqual((line.count("\n"), "\x1b" in line), (1, False))

    def test_traces_are_read_from_their_headers_in_order(self):
        header = f"00-{TRACE}-0123456789abcdef-01"
        other = TRACE[::-1]
        self.assertEqual(log.traces_of((("a", "b"), ("traceparent", header))), [TRACE])
        self.assertEqual(log.traces_of((("traceparent", f"00-{other}-0123456789abcdef-01"), ("traceparent", header))),
                         [other, TRACE])
        for wrong in ("", "00-1-2-01", f"{header}\n", TRACE):
            self.assertEqual(log.traces_of((("traceparent", wrong),)), [])
            self.assertEqual(log.traces_of((("traceparent", header), ("traceparent", wrong))), [])
        self.assertEqual(log.traces_of(None), [])


if __name__ == "__main__":
    unittest.main()
