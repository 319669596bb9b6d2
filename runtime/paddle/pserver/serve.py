# SPDX-License-Identifier: Apache-2.0
"""`paddle serve`: follows growing tables of a running job and answers lookups over HTTP: see `http_server`."""

from __future__ import annotations

import contextlib
import os
import signal
import sys
from argparse import ArgumentTypeError
from collections.abc import Sequence
from pathlib import Path

from paddle.command_parser import PROGRAM, CommandParser
from paddle.errors import ConfigError
from paddle.pserver.http_server import TableHTTPServer, check_token
from paddle.pserver.reader import Reader

_TOKEN = "PADDLE_SERVE_TOKEN"  # noqa: S105 - the variable's name


def main(arguments: Sequence[str]) -> int:
    """Serve lookups until a signal arrives; return the exit code.

    Args:
        arguments: the command line after `serve`.

    Raises:
        PaddleError: the servers cannot be read, or the address cannot be used.
    """
    given = _parser().parse_args(list(arguments))
    token = _token(given.token_file) if given.token_file else os.environ.get(_TOKEN, "")
    check_token(given.host, token)
    servers = given.servers.split(",") if given.servers else None
    signal.signal(signal.SIGTERM, lambda *_: signal.raise_signal(signal.SIGINT))
    with contextlib.suppress(KeyboardInterrupt), contextlib.ExitStack() as stack:
        with Reader.connect(servers, timeout_s=given.timeout_s, wait_s=given.timeout_s) as reader:
            names = [name for name, info in reader.tensors.items() if info.growing]
            wanted = given.tables.split(",") if given.tables else names
            if not wanted:
                raise ConfigError("serve: the job has no growing table; only growing tables can be served")
            tables = {
                name: stack.enter_context(
                    reader.follow(name, within_s=given.within_s, max_bytes=given.max_bytes)
                )
                for name in wanted
            }
        server = stack.enter_context(TableHTTPServer(tables, given.host, given.port, token))
        sys.stdout.write(f"serving {', '.join(tables)} at http://{given.host}:{server.server_port}\n")
        sys.stdout.flush()
        server.serve_forever()
    return 0


def _token(path: str) -> str:
    try:
        return Path(path).read_text(encoding="utf-8").strip()
    except (OSError, UnicodeError) as error:
        reason = error.strerror if isinstance(error, OSError) else "not UTF-8"
        raise ConfigError(f"serve: --token_file: cannot read {path}: {reason}") from error


def _port(text: str) -> int:
    if not (text.isascii() and text.isdigit() and int(text) < 1 << 16):
        raise ArgumentTypeError(f"expected a port from 1 to 65535, or 0 for any free port, got {text!r}")
    return int(text)


def _parser() -> CommandParser:
    epilog = (
        f"The token is read from the variable {_TOKEN} or from a file; the job's secret is PADDLE_JOB_KEY."
    )
    parser = CommandParser(f"{PROGRAM} serve", description=__doc__, epilog=epilog, allow_abbrev=False)
    parser.add_argument(
        "--servers", default="", help="HOST:PORT of each server; default: PADDLE_PSERVERS_IP_PORT_LIST"
    )
    parser.add_argument(
        "--tables", default="", help="names, separated by commas; default: all growing tables"
    )
    parser.add_argument(
        "--within_s", type=float, default=5.0, help="maximum age of rows; lookups of older rows are refused"
    )
    parser.add_argument("--max_bytes", type=int, default=0, help="memory limit for the copy of each table")
    parser.add_argument("--host", default="127.0.0.1", help="address; any other than 127.0.0.1 needs a token")
    parser.add_argument("--port", type=_port, default=8500)
    parser.add_argument("--token_file", default="")
    parser.add_argument("--timeout_s", type=float, default=60.0, help="how long to wait for the servers")
    return parser
