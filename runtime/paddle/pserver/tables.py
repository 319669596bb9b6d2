# SPDX-License-Identifier: Apache-2.0
"""Growing tables as files: exports them from a running job or a checkpoint, and imports other programs' files.

    with Reader.connect() as reader:
        base = export(reader, "user", "exported")                    # exported/base-000000012000
        ...
        export(reader, "user", "exported", since=base)               # exported/delta-000000012500

    client.create({"user": GrowingTable(16, start="exported")}, optimizer)      # any number of servers

A running job continues to train during an export, so pieces of rows are from different times; a checkpoint's rows are
from a single batch.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path

import numpy as np
import numpy.typing as npt

from paddle.errors import CheckpointError, ConfigError, PserverError
from paddle.optim.spec import optimizer_of
from paddle.pserver.durable.checkpoint.folder import Checkpoint, newest
from paddle.pserver.durable.checkpoint.format import Manifest
from paddle.pserver.durable.checkpoint.reader import Reading
from paddle.pserver.durable.checkpoint.snapshot import NUMBERS
from paddle.pserver.exported.folder import BASE, DELTA, Description, FolderWriter
from paddle.pserver.exported.formats import read_file
from paddle.pserver.reader import Reader
from paddle.pserver.sparse.blocks import NO_IDS, ROW_DTYPES, Header, Lineage, Sightings
from paddle.pserver.sparse.serving import ServedTable
from paddle.pserver.sparse.walk import Cursor, Source, TableRows
from paddle.pserver.wire.configuration import Configuration
from paddle_node.contract.classes import NamedTuple, dataclass, field, replace

_AT_ONCE = 1 << 14


class ListedTable(NamedTuple):
    """A row of `paddle tables list`: a growing table's name, width, update rule, number of servers, and dtype."""

    name: str
    width: int
    rule: str
    servers: int
    dtype: str


@dataclass(slots=True)
class _SavedWalk:
    table: ServedTable
    since: int | None
    states: bool
    clock: int
    lineage: Lineage
    left: npt.NDArray[np.int64] = field(default_factory=lambda: NO_IDS)

    def __iter__(self) -> Iterator[TableRows]:
        at, since = Cursor(), self.since
        left = NO_IDS if since is None else self.table.table.left_since(since)
        if left is None:
            since = None
        else:
            self.left = left
        while not at.is_over:
            found, at, self.since = self.table.table.walk(at, since, _AT_ONCE, with_states=self.states)
            yield found


class Saved:
    """The growing tables in a checkpoint, as a `Source`.

    At any time, only one server's rows of one table are in memory.
    """

    def __init__(self, root: Path, version: int | None = None) -> None:
        """Open the newest complete checkpoint in a folder, or the checkpoint of the given batch.

        Raises:
            CheckpointError: there is none.
        """
        self._found: Checkpoint = newest(root, version)
        self._models = [Configuration.from_text(part.configuration) for part in self._found.parts]
        self._specs = {table.name: table for table in self._models[0].tables}

    def tables(self) -> list[ListedTable]:
        """Return the growing tables of the checkpoint, by name."""
        return [
            ListedTable(name, spec.width, self.rule(name), len(self.holders(name)), spec.dtype)
            for name, spec in self._specs.items()
        ]

    def rule(self, name: str) -> str:
        """Return the update rule of a table; see `Source.rule`. Raises ConfigError if the table does not exist."""
        if name not in self._specs:
            raise ConfigError(
                f"the checkpoint has no growing table {name}; it has {', '.join(self._specs) or 'none'}"
            )
        return optimizer_of(self._specs[name].parameter, self._models[0].optimizer).rule

    def holders(self, name: str) -> list[int]:
        """Return the numbers of the servers that have rows of a table; see `Source.holders`."""
        self.rule(name)
        return [i for i, part in enumerate(self._found.parts) if name in part.numbers]

    def walk(self, name: str, server: int, since: int | None = None, *, states: bool = False) -> _SavedWalk:
        """Return one server's rows; see `Source.walk`. Raises CheckpointError if the files are damaged."""
        part, model = self._found.parts[server], self._models[server]
        share = next(each for each in model.share().growing if each.spec.name == name)
        unbounded = replace(share.spec.budget, memory=0, disk="")
        share = replace(share, spec=replace(share.spec, budget=unbounded))
        served = ServedTable(share, optimizer_of(share.spec.parameter, model.optimizer))
        self._fill(served, part)
        return _SavedWalk(served, since, states, served.table.clock, Lineage(served.table.lineage.earlier))

    def _fill(self, served: ServedTable, part: Manifest) -> None:
        name = served.share.spec.name
        try:
            with Reading(self._found.root, part.files) as reading:
                for _, piece in reading:
                    if piece.parameter == name and not piece.place:
                        served.fill(piece.arrays)
        except (KeyError, ValueError, PserverError) as error:
            raise CheckpointError(f"{part.folder}: cannot read rows of {name}: {error}") from None
        none = Sightings(np.zeros(0, np.int64), np.zeros(0, np.uint32))
        numbers = part.numbers[name]
        clock, caught_up, hand, own = (int(numbers.get(what, 0)) for what in NUMBERS)
        served.table.resume(Header(clock, caught_up, (none, none), hand, generation=own))


def listed(reader: Reader) -> list[ListedTable]:
    """Return the growing tables of a running job, by name."""
    return [
        ListedTable(
            name, info.shape[1], reader.rule(name), len(reader.holders(name)), reader.table(name).dtype
        )
        for name, info in reader.tensors.items()
        if info.growing
    ]


def export(
    source: Source,
    table: str,
    to: str | Path,
    *,
    since: int | str | Path | None = None,
    states: bool = False,
    kind: str = "safetensors",
    dtype: str = "float32",
) -> Path:
    """Write a table's rows into a new folder in `to`, one file per server; return the folder.

    Args:
        source: a `Reader` of a running job, or a `Saved` checkpoint.
        table: the name of the table.
        to: the parent directory. The folder is named base-BATCH or delta-BATCH, and appears only when it is complete.
        since: export only rows that changed, and ids of rows that left the table, after this batch or this exported
            folder; None means all rows. A batch stands for its folder in `to`, if there is one.
        states: whether to also write the optimizer's state of each row.
        kind: "safetensors", "npz" or "parquet", which needs pyarrow.
        dtype: dtype of the rows in files: "float32", or "float16", which is rounded and half the size; states are
            float32.

    Raises:
        ConfigError: an argument is invalid, a value is beyond the range of float16, or files cannot be written.
        PserverError, CheckpointError: the rows cannot be read.
    """
    if dtype not in ROW_DTYPES:
        raise ConfigError(f"export: dtype: expected one of {', '.join(ROW_DTYPES)}, got {dtype!r}")
    servers = source.holders(table)
    earlier = _earlier(since, table, Path(to))
    asked = _batches(since if earlier is None else earlier, len(servers))
    clocks: list[int] = []
    reached: list[int | None] = []
    lineages: list[Lineage] = []
    width, kept = 0, None
    with FolderWriter(Path(to), kind) as folder:
        for number, server in enumerate(servers):
            walk = source.walk(table, server, asked[number], states=states)
            pieces = iter(walk)
            first = next(pieces)
            width = first.rows.shape[1]
            kept = first.states.shape[1] or None if first.states is not None else None
            with folder.spool(width, kept, dtype) as spool:
                spool.add(first)
                for piece in pieces:
                    spool.add(piece)
                folder.write(number, len(servers), spool)
            folder.remove(walk.left)
            clocks.append(walk.clock)
            reached.append(walk.since)
            lineages.append(walk.lineage)
        changed = tuple(batch for batch in reached if batch is not None) if since is not None else ()
        generations = tuple(each.at(clock) for each, clock in zip(lineages, clocks, strict=True))
        follows = tuple(each.at(batch) for each, batch in zip(lineages, changed, strict=False))
        if earlier is not None:
            _check_run(f"{since}", table, earlier, lineages)
            follows = earlier.generations
        if since is not None and None in reached:
            raise ConfigError(_unknown(since, table, asked, clocks))
        said = Description(
            table,
            width,
            kept,
            source.rule(table),
            changed,
            tuple(clocks),
            generations=generations,
            follows=follows,
        )
        return folder.publish(said)


def convert(
    path: str | Path, to: str | Path, *, table: str, key: str = "", kind: str = "safetensors"
) -> Path:
    """Convert another program's file into an exported table in `to`; return the new folder.

    Args:
        path: npz, safetensors or Parquet with `ids` and `rows`, or with the weight of an nn.Embedding.
        key: key of the weight, if there are several.

    Raises:
        ConfigError: the file cannot be read or written.
    """
    with FolderWriter(Path(to), kind) as folder:
        pieces = read_file(Path(path), key, is_foreign=True)
        first = next(pieces, None)
        if first is None:
            raise ConfigError(f"{path} contains no rows")
        width = first.rows.shape[1]
        with folder.spool(width, None) as spool:
            spool.add(first)
            for piece in pieces:
                spool.add(piece)
            folder.write(0, 1, spool)
        return folder.publish(Description(table, width, None, "", (), (0,)))


def _earlier(since: int | str | Path | None, table: str, to: Path) -> Description | None:
    """Return the description of the exported folder to which `since` refers; None means there is none."""
    if since is None:
        return None
    if isinstance(since, int):
        for path in (to / f"{kind}-{since:012d}" for kind in (DELTA, BASE)):
            if path.is_dir() and (said := Description.read(path)).table == table:
                return said
        return None
    said = Description.read(Path(since))
    if said.table != table:
        raise ConfigError(f"{since} was exported from table {said.table}, not from {table}")
    return said


def _batches(since: int | str | Path | Description | None, servers: int) -> Sequence[int | None]:
    """Return, for each server, the batch after which changed rows are exported."""
    if isinstance(since, Description):
        return since.clocks if len(since.clocks) == servers else [min(since.clocks)] * servers
    return [since if isinstance(since, int) else None] * servers


def _check_run(what: str, table: str, earlier: Description, lineages: Sequence[Lineage]) -> None:
    """Check that an exported folder belongs to the run whose changes are exported.

    Raises:
        ConfigError: it is of another one, or of a batch that was lost when the servers were restarted.
    """
    if not any(earlier.generations):
        return
    if len(earlier.generations) != len(lineages):
        raise ConfigError(
            f"{what}: the table was exported from {len(earlier.generations)} servers, but table {table} now has "
            f"{len(lineages)}; export all rows (without since)"
        )
    for lineage, generation, clock in zip(lineages, earlier.generations, earlier.clocks, strict=True):
        if not lineage.has(generation, clock):
            raise ConfigError(
                f"{what}: batch {clock} does not belong to this run of table {table}: since that batch, the job was "
                "started from scratch, from an earlier checkpoint, or more than once. Export all rows (without since)"
            )


def _unknown(since: int | str | Path, table: str, asked: Sequence[int | None], clocks: Sequence[int]) -> str:
    if any(batch is not None and batch > clock for batch, clock in zip(asked, clocks, strict=True)):
        return (
            f"table {table} is at batch {min(clocks)}, so batch {since} belongs to a different run: "
            "export all rows (without since)"
        )
    return (
        f"table {table}: the changes after batch {since} are no longer known, because pending decay "
        "was applied to all rows, too many rows were dropped, or the servers were restarted: export "
        "all rows (without since)"
    )
