# SPDX-License-Identifier: Apache-2.0
"""`paddle tables list|export|import`: exports and imports growing tables of a running job or of a checkpoint."""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Sequence
from pathlib import Path

from paddle.command_parser import PROGRAM, CommandParser
from paddle.pserver.exported.folder import Description
from paddle.pserver.exported.formats import FORMATS
from paddle.pserver.reader import Reader
from paddle.pserver.sparse.blocks import ROW_DTYPES
from paddle.pserver.tables import ListedTable, Saved, convert, export, listed
from paddle_node.contract.classes import asdict

_EPILOG = """The job's servers are given by --servers or PADDLE_PSERVERS_IP_PORT_LIST; its secret is read from the
variable PADDLE_JOB_KEY. GrowingTable(start=PATH) starts from an exported table or a file."""


def main(arguments: Sequence[str]) -> int:
    """Run one subcommand of `paddle tables` and return its exit code.

    Raises:
        PaddleError: the subcommand failed.
    """
    given = _parser().parse_args(list(arguments))
    if given.what == "import":
        made = convert(given.file, given.to, table=given.table, key=given.key, kind=given.format)
        _print_folder(made, is_json=given.json)
        return 0
    if given.checkpoint:
        saved = Saved(Path(given.checkpoint), given.batch)
        if given.what == "list":
            _show(saved.tables(), is_json=given.json)
        else:
            _export(saved, given)
        return 0
    servers = given.servers.split(",") if given.servers else None
    with Reader.connect(servers, timeout_s=given.timeout_s, wait_s=given.timeout_s) as reader:
        if given.what == "list":
            _show(listed(reader), is_json=given.json)
        else:
            _export(reader, given)
    return 0


def _export(source: Reader | Saved, given: argparse.Namespace) -> None:
    since: int | str | None = given.since
    if since is not None and str(since).isdigit():
        since = int(since)
    made = export(
        source, given.table, given.to, since=since, states=given.states, kind=given.format, dtype=given.dtype
    )
    _print_folder(made, is_json=given.json)


def _print_folder(folder: Path, *, is_json: bool) -> None:
    said = Description.read(folder)
    if is_json:
        _say(json.dumps({"folder": str(folder), **asdict(said)}, indent=1))
    else:
        _say(f"{folder}: {said.rows} rows of width {said.width}, digest {said.digest}")


def _show(tables: Sequence[ListedTable], *, is_json: bool) -> None:
    if is_json:
        _say(json.dumps([each._asdict() for each in tables], indent=1))
        return
    for each in tables:
        _say(
            f"{each.name}: rows of width {each.width}, {each.rule}, {each.servers} server{'s' * (each.servers > 1)}"
            f"{', float16' * (each.dtype == 'float16')}"
        )
    if not tables:
        _say("no growing tables")


def _parser() -> CommandParser:
    parser = CommandParser(f"{PROGRAM} tables", description=__doc__, epilog=_EPILOG, allow_abbrev=False)
    commands = parser.add_subparsers(dest="what", required=True, metavar="list|export|import")
    for name, text in (
        ("list", "print the growing tables"),
        ("export", "write the rows of a table into a new directory"),
        ("import", "write the rows of another program's file as an exported table"),
    ):
        one = commands.add_parser(name, help=text, description=text, allow_abbrev=False)
        one.add_argument("--json", action="store_true", help="print JSON")
        if name != "import":
            one.add_argument("--servers", default="", help="HOST:PORT of each server, separated by commas")
            one.add_argument(
                "--checkpoint", default="", help="read checkpoints in this directory instead of a job"
            )
            one.add_argument("--batch", type=int, help="the checkpoint of this batch; default: the newest")
            one.add_argument("--timeout_s", type=float, default=60.0, help="how long to wait for the servers")
        if name == "import":
            one.add_argument(
                "file", help="npz, safetensors or Parquet: ids and rows, or an embedding's weight"
            )
            one.add_argument("--key", default="", help="the weight's name, if the file has several")
        if name == "export":
            one.add_argument("--since", help="only rows changed after this batch or exported directory")
            one.add_argument("--dtype", choices=ROW_DTYPES, default="float32", help="of the rows in files")
            one.add_argument("--states", action="store_true", help="include the optimizer's states")
        if name != "list":
            one.add_argument("--table", required=True, help="its name")
            one.add_argument("--to", required=True, help="the directory of base-BATCH and delta-BATCH")
            one.add_argument("--format", choices=list(FORMATS), default="safetensors")
    return parser


def _say(text: str) -> None:
    sys.stdout.write(text + "\n")
