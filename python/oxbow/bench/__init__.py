# SPDX-License-Identifier: Apache-2.0
"""`oxbow bench learning`: several recipes with several seeds, and which one learns fastest (docs/formats/run_files.md)."""


class Refused(Exception):
    """Ends the command: one line for a person, and the exit code (docs/formats.md, exit codes)."""

    def __init__(self, code: int, line: str):
        super().__init__(line)
        self.code = code


EXIT_FAILURE, EXIT_USAGE, EXIT_UNAVAILABLE, EXIT_DATA, EXIT_FULL = 1, 2, 3, 4, 5
