# SPDX-License-Identifier: Apache-2.0
"""oxbow-reward: serve, check and score rewards of a Python file."""
from __future__ import annotations

import argparse
import logging
import os
import sys
from pathlib import Path
from typing import Sequence

from ..command_line import parser_of
from .assembly import Limits
from .contract.case import Setting
from .log import LEVELS
from .reward_file import read_rewards
from .server import PROGRAM, Options, check_names, run, running
from .scoring_files import checked_metadata, score_files
from .status import EXIT_OK, SetupError
from .tls import Tls

_CODES = """exit codes:
  0  done; for check: no check failed
  1  a check failed; a reward's load() failed; pictures were not scored
  2  a bad flag, a file without rewards, a name twice
  3  a port is in use; no server answers
  4  a file is missing or cannot be read: rewards, certificates, pictures"""


def main(arguments: Sequence[str] | None = None) -> None:
    sys.exit(command(sys.argv[1:] if arguments is None else arguments))


def command(arguments: Sequence[str]) -> int:
    """Runs the command line and returns its exit code; errors are one line on stderr."""
    flags = _parser().parse_args(arguments)
    try:
        return int(flags.run(flags))
    except SetupError as error:
        print(f"{PROGRAM}: {error}", file=sys.stderr)
        return error.exit_code
    except KeyboardInterrupt:
        return 130


def _parser() -> argparse.ArgumentParser:
    parser = parser_of(PROGRAM, __doc__, _CODES)
    commands = parser.add_subparsers(required=True, metavar="COMMAND")

    serve = commands.add_parser("serve", help="serve the rewards of FILE.py until SIGTERM")
    serve.add_argument("file", type=Path, metavar="FILE.py")
    serve.add_argument("--listen", default="127.0.0.1:0", metavar="HOST:PORT", help="port 0: any")
    serve.add_argument("--metrics-listen", default="127.0.0.1:0", metavar="HOST:PORT")
    serve.add_argument("--batch-max", type=_positive, default=Limits.batch_max, help="items of one request")
    serve.add_argument("--items-waiting-max", type=_positive, default=Limits.items_waiting_max,
                       help="items that wait or are scored; further requests are RESOURCE_EXHAUSTED")
    serve.add_argument("--bytes-waiting-max", type=_positive, default=Limits().bytes_waiting_max,
                       help="the same in bytes of pixels")
    serve.add_argument("--log-level", choices=tuple(LEVELS), default="info")
    serve.add_argument("--log-format", choices=("text", "json"), default="text")
    serve.add_argument("--plaintext", action="store_true",
                       default=os.environ.get("OXBOW_PLAINTEXT", "") not in ("", "0", "false"),
                       help="listen beyond loopback without TLS, on a network that can be trusted")
    _add_tls(serve)
    serve.set_defaults(run=_serve)

    check = commands.add_parser("check", help="check the rewards of FILE.py, or a server, against the contract")
    check.add_argument("file", type=Path, nargs="?", metavar="FILE.py")
    check.add_argument("--server", metavar="HOST:PORT", help="check what runs there instead of a file")
    check.add_argument("--rewards", type=lambda text: tuple(text.split(",")), default=(), metavar="A,B",
                       help="check these alone")
    check.add_argument("--old", action="store_true", help="the server is of the protocol before outcomes")
    check.add_argument("--size", type=_size, default=(64, 64), metavar="WxH", help="size of the pictures")
    check.add_argument("--channels", type=int, choices=(1, 3), default=3)
    check.add_argument("--tolerance", type=float, default=Setting.tolerance,
                       help="of values that must be equal, relative to the reward's range")
    check.add_argument("--timeout", type=float, default=120.0, help="seconds of one call")
    _add_prompt(check)
    _add_tls(check)
    check.set_defaults(run=_check)

    score = commands.add_parser("score", help="score PNG and JPEG files with the rewards of FILE.py")
    score.add_argument("file", type=Path, metavar="FILE.py")
    score.add_argument("pictures", type=Path, nargs="+", metavar="PICTURE")
    _add_prompt(score)
    score.set_defaults(run=_score)
    return parser


def _add_prompt(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--prompt", default=Setting.prompt)
    parser.add_argument("--metadata", default="", metavar="JSON", help="the prompt's metadata")


def _add_tls(parser: argparse.ArgumentParser) -> None:
    default = Tls.from_environment()
    for flag, what in (("ca", "PEM file of the authorities to believe"),
                       ("cert", "PEM file of this process's certificate"), ("key", "PEM file of its private key"),
                       ("name", "DNS name in every certificate of the fleet"),
                       ("revoked", "file of certificates that are refused")):
        parser.add_argument(f"--tls-{flag}", default=getattr(default, flag), help=what)
    parser.add_argument("--tls-roles", choices=("required", "off"), default="required" if default.roles else "off")


def _tls(flags: argparse.Namespace) -> Tls:
    return Tls(flags.tls_ca, flags.tls_cert, flags.tls_key, flags.tls_name, flags.tls_roles == "required",
               flags.tls_revoked)


def _serve(flags: argparse.Namespace) -> int:
    limits = Limits(batch_max=flags.batch_max, items_waiting_max=flags.items_waiting_max,
                    bytes_waiting_max=flags.bytes_waiting_max)
    run(read_rewards(flags.file), Options(flags.listen, flags.metrics_listen, _tls(flags), flags.plaintext, limits,
                                          flags.log_level, flags.log_format))
    return EXIT_OK


def _check(flags: argparse.Namespace) -> int:
    from .contract import suite
    from .contract.client import Client

    if (flags.file is None) == (flags.server is None):
        raise SetupError("check takes FILE.py or --server HOST:PORT, one of them")
    checked_metadata(flags.metadata)
    width, height = flags.size
    setting = Setting(prompt=flags.prompt, metadata=flags.metadata, width=width, height=height,
                      channels=flags.channels, tolerance=flags.tolerance, old=flags.old, rewards=flags.rewards)
    if flags.server is not None:
        tls = _tls(flags)
        tls.check()
        return suite.run(Client(flags.server, tls, flags.timeout), setting)
    logging.getLogger("oxbow.reward").setLevel(logging.ERROR)  # Half of the checks are refusals.
    with running(read_rewards(flags.file)) as server:
        client = Client(server.endpoint, Tls(), flags.timeout)
        try:
            return suite.run(client, setting)
        finally:
            client.close()


def _score(flags: argparse.Namespace) -> int:
    rewards = read_rewards(flags.file)
    check_names(rewards)
    return score_files(rewards, flags.pictures, flags.prompt, flags.metadata)


def _positive(text: str) -> int:
    if not text.isdigit() or int(text) == 0:
        raise argparse.ArgumentTypeError(f"not a positive number: {text}")
    return int(text)


def _size(text: str) -> tuple[int, int]:
    width, _, height = text.partition("x")
    return _positive(width), _positive(height)


if __name__ == "__main__":
    main()
