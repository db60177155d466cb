# SPDX-License-Identifier: Apache-2.0
"""Log lines as all oxbow services write them (docs/formats.md, log lines): an event, and fields."""
from __future__ import annotations

import json
import logging
import re
import sys
import time
from typing import Any

_LOGGER = logging.getLogger("oxbow.reward")
_TRACEPARENT = re.compile(r"00-([0-9a-f]{32})-[0-9a-f]{16}-[0-9a-f]{2}")
LEVELS = {"debug": logging.DEBUG, "info": logging.INFO, "warning": logging.WARNING, "error": logging.ERROR}


def event(level: int, text: str, **fields: Any) -> None:
    """Logs one line. Fields that are empty are left out."""
    kept = {name: str(value) for name, value in fields.items() if value not in ("", None)}
    _LOGGER.log(level, text, extra={"fields": kept})


def traces_of(metadata: Any) -> list[str]:
    """The trace ids of a call, one for each request if it is about several groups, from its headers `traceparent`."""
    found = [_TRACEPARENT.fullmatch(value) for key, value in metadata or ()
             if key == "traceparent" and isinstance(value, str)]
    return [match.group(1) for match in found if match] if all(found) else []


class _Line(logging.Formatter):
    def __init__(self, service: str, as_json: bool):
        super().__init__()
        self._service = service
        self._as_json = as_json

    def format(self, record: logging.LogRecord) -> str:
        fields: dict[str, str] = getattr(record, "fields", {})
        moment = time.gmtime(record.created)
        if self._as_json:
            at = f"{time.strftime('%Y-%m-%dT%H:%M:%S', moment)}.{int(record.msecs):03d}+00:00"
            return json.dumps({"time": at, "level": record.levelname.lower(), "service": self._service,
                               "event": record.getMessage(), **fields})
        text = "".join(f" {name}={_plain(value)}" for name, value in fields.items())
        return (f"{record.levelname[0]} {time.strftime('%H:%M:%S', moment)}.{int(record.msecs):03d} "
                f"{self._service}: {_plain(record.getMessage())}{text}")


def _plain(text: str) -> str:
    """Values come from other processes, too: none may end a line, or move the cursor of a terminal."""
    return "".join(c if c >= " " and c != "\x7f" else "\\n" if c == "\n" else f"\\x{ord(c):02x}" for c in text)


def to_stderr(service: str, level: str, format: str) -> None:
    """Sends what is logged from now on to stderr, also what rewards log themselves."""
    handler = logging.StreamHandler(sys.stderr)
    handler.setFormatter(_Line(service, format == "json"))
    logging.basicConfig(level=logging.WARNING, handlers=[handler])
    _LOGGER.setLevel(LEVELS[level])
