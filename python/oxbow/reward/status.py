# SPDX-License-Identifier: Apache-2.0
"""Errors with a gRPC status code, and the exit codes of the command (docs/formats.md, exit codes)."""
from __future__ import annotations

import math
import sys
from typing import NoReturn

import grpc

EXIT_OK, EXIT_FAILURE, EXIT_USAGE, EXIT_UNAVAILABLE, EXIT_DATA, EXIT_FULL = 0, 1, 2, 3, 4, 5


class StatusError(Exception):
    """The answer to a peer: a code and one line, and after how many seconds it may ask again."""

    def __init__(self, code: grpc.StatusCode, message: str, retry_after: float = 0.0):
        super().__init__(message)
        self.code = code
        self.message = message
        self.retry_after = retry_after

    @property
    def trailing(self) -> tuple[tuple[str, str], ...]:
        """Trailing metadata of the call that ends with it."""
        return (("retry-after-ms", str(math.ceil(1000 * self.retry_after))),) if self.retry_after > 0 else ()

    @property
    def number(self) -> int:
        return int(self.code.value[0])


class SetupError(Exception):
    """Why this program cannot start, in one line, and its exit code."""

    def __init__(self, message: str, exit_code: int = EXIT_USAGE):
        super().__init__(message)
        self.exit_code = exit_code


def invalid(message: str) -> StatusError:
    return StatusError(grpc.StatusCode.INVALID_ARGUMENT, message)


def one_line(error: BaseException) -> str:
    """`ValueError: what it says`, in one line of bounded length."""
    text = " ".join(str(error).split())
    name = type(error).__name__
    return (f"{name}: {text}" if text else name)[:500]


def end(program: str, error: SetupError) -> NoReturn:
    print(f"{program}: {error}", file=sys.stderr)
    raise SystemExit(error.exit_code)
