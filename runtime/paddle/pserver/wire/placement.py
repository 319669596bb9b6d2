# SPDX-License-Identifier: Apache-2.0
"""The placement of parameters: which server holds which block or row. All processes compute the same one.

Dense parameters are cut into blocks of one size, sparse ones into rows. Block (or row) b of a parameter is stored on
server (b + hash of the name) mod n. Blocks are distributed round robin, starting at a different server for each
parameter. A server's dense blocks are stored one after the other in one array, its slab. On each machine, only as many
servers are used as the model is worth: see `idle_servers`.
"""

from __future__ import annotations

import hashlib
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

from paddle.errors import ConfigError
from paddle.optim.spec import ParameterSpec, rule_of
from paddle.pserver.sparse.serving import GrowingShare
from paddle.pserver.sparse.spec import TableSpec
from paddle.pserver.wire.message import MAX_FRAME_BYTES
from paddle_node.contract.classes import dataclass
from paddle_node.linux.inet import is_loopback

_MIN_BLOCK_BITS = 10
_BLOCKS_PER_SERVER_BITS = 7
SERVER_BYTES = 4 << 20
"""Bytes of parameters for which a further server on the same machine is used: each costs a message in every step."""


@dataclass(frozen=True, slots=True)
class DenseShare:
    """The blocks of one dense parameter on one server: every `stride`-th, starting with block `first`.

    Attributes:
        size: number of elements of the whole parameter.
        start, stop: the range of these blocks in the server's slab.
    """

    parameter: ParameterSpec
    size: int
    block: int
    first: int
    stride: int
    start: int
    stop: int

    def gather(self, flat: npt.NDArray[Any], slab: npt.NDArray[Any]) -> None:
        """Copy these blocks from the whole parameter `flat` (size,) to the server's slab."""
        part = slab[self.start : self.stop]
        if self.stride == 1:
            part[...] = flat
            return
        full, rest, tail = self._parts(flat)
        part[: full.size].reshape(full.shape)[...] = full
        part[full.size : full.size + tail] = rest

    def scatter(self, slab: npt.NDArray[Any], flat: npt.NDArray[Any]) -> None:
        """Copy these blocks from the server's slab to the whole parameter `flat` (size,)."""
        part = slab[self.start : self.stop]
        if self.stride == 1:
            flat[...] = part
            return
        full, rest, tail = self._parts(flat)
        full[...] = part[: full.size].reshape(full.shape)
        rest[...] = part[full.size : full.size + tail]

    def runs(self) -> Iterator[tuple[int, int, int]]:
        """Yield (start, stop, at): slab elements start to stop are the parameter's elements starting at `at`."""
        if self.stride == 1:
            yield self.start, self.stop, 0
            return
        start = self.start
        for at in range(self.first * self.block, self.size, self.stride * self.block):
            stop = start + min(self.block, self.size - at)
            yield start, stop, at
            start = stop

    def _parts(self, flat: npt.NDArray[Any]) -> tuple[npt.NDArray[Any], npt.NDArray[Any], int]:
        """Return views of the full blocks (count, block) and of the short last one, and the length of the latter."""
        num_full = self.size // self.block
        full = flat[: num_full * self.block].reshape(num_full, self.block)[self.first :: self.stride]
        mine = num_full % self.stride == self.first
        rest = flat[num_full * self.block :] if mine else flat[:0]
        return full, rest, rest.size


@dataclass(frozen=True, slots=True)
class RowShare:
    """The rows of one sparse parameter on one server: every `stride`-th, starting with row `first`."""

    parameter: ParameterSpec
    first: int
    stride: int

    @property
    def height(self) -> int:
        """The number of rows on this server."""
        return len(range(self.first, self.parameter.shape[0], self.stride))

    @property
    def width(self) -> int:
        """The number of elements per row."""
        return self.parameter.shape[1]

    def holds(self, rows: npt.NDArray[np.int64]) -> npt.NDArray[np.bool_]:
        """Return a mask (n,) of the row ids (n,) that are on this server."""
        mine: npt.NDArray[np.bool_] = rows % self.stride == self.first
        return mine

    def local(self, rows: npt.NDArray[np.int64]) -> npt.NDArray[np.int64]:
        """Return the position of each row id (n,) on this server; all ids must be on this server."""
        return (rows - self.first) // self.stride

    def span(self, start: int, stop: int) -> slice:
        """Return, as a slice, the row ids of the whole table at positions start .. stop-1 on this server."""
        return slice(self.first + start * self.stride, self.first + (stop - 1) * self.stride + 1, self.stride)


@dataclass(frozen=True, slots=True)
class ServerShare:
    """The dense blocks and sparse rows of all parameters on one server."""

    dense: tuple[DenseShare, ...]
    tables: tuple[RowShare, ...]
    growing: tuple[GrowingShare, ...] = ()

    @property
    def slab_size(self) -> int:
        """The number of elements of all dense blocks together."""
        return self.dense[-1].stop if self.dense else 0


def idle_servers(
    endpoints: Sequence[str],
    num_sparse: int,
    parameters: Sequence[ParameterSpec],
    growing: Sequence[TableSpec] = (),
) -> tuple[int, ...]:
    """Return the indices of the servers that hold no part of a model; server 0 is never idle.

    Servers on one machine share its network, so a small model would only exchange more messages with more of them.
    If all servers are on one machine, a model that needs only one of them is on server 0, including its sparse rows.
    Growing tables use all servers that can hold rows: their size is unknown, and their limits are those of one server.

    Args:
        endpoints: "ip:port" of the dense servers, followed by the `num_sparse` sparse ones. All loopback addresses
            belong to the same machine.
    """
    num_dense = len(endpoints) - num_sparse
    dense = rows = 0
    for parameter in parameters:
        if not parameter.static and parameter.sparse and num_sparse:
            rows += 4 * parameter.size
        elif not parameter.static:
            dense += 4 * parameter.size
    if (
        not growing
        and dense + rows <= SERVER_BYTES
        and len(_by_machine(range(len(endpoints)), endpoints)) == 1
    ):
        return tuple(range(1, len(endpoints)))
    used = _worth_using(range(num_dense), endpoints, max(dense, 1))
    used |= _worth_using(range(num_dense, len(endpoints)), endpoints, rows)
    if growing:
        used.update(range(num_dense, len(endpoints)) if num_sparse else range(num_dense))
    return tuple(index for index in range(len(endpoints)) if index not in used)


def _worth_using(servers: range, endpoints: Sequence[str], nbytes: int) -> set[int]:
    """Return the servers on each machine that `nbytes` of parameters need, those of different processes first.

    Each of several machines uses at least one: a machine's own checkpoints then fit those of earlier releases.
    """
    machines = _by_machine(servers, endpoints)
    needed = -(-nbytes // (SERVER_BYTES * max(len(machines), 1)))
    count = max(needed, len(machines) > 1)
    return {index for theirs in machines.values() for _, index in sorted(theirs)[:count]}


def _by_machine(servers: range, endpoints: Sequence[str]) -> dict[str, list[tuple[int, int]]]:
    """Return the servers on each machine, each with the number of its port among those of its address."""
    ports = Counter[str]()  # of each address; the ports of one process share the interpreter's lock
    machines: dict[str, list[tuple[int, int]]] = {}
    for index in servers:
        host = endpoints[index].rpartition(":")[0].strip("[]") or endpoints[index]
        machine = "localhost" if is_loopback(host) else host
        machines.setdefault(machine, []).append((ports[host], index))
        ports[host] += 1
    return machines


def place(
    parameters: Sequence[ParameterSpec],
    num_dense: int,
    num_sparse: int,
    *,
    whole: bool = False,
    growing: Sequence[TableSpec] = (),
) -> tuple[ServerShare, ...]:
    """Place dense parameters on `num_dense` servers, and sparse ones on the `num_sparse` servers after them.

    If `num_sparse` is 0, sparse parameters are placed on the dense servers. Static parameters are not placed. With
    `whole`, dense parameters are not cut, because an update rule needs their norms. Growing tables are placed like
    sparse parameters.

    Raises:
        ConfigError: the share of one server would be too large for a message.
    """
    dense = [p for p in parameters if not p.static and not p.sparse]
    tables = [p for p in parameters if not p.static and p.sparse]
    block = block_size(sum(p.size for p in dense), num_dense)
    blocks = {p.name: max(block, p.size) if _is_whole(p, whole) else block for p in dense}
    hosts = range(num_dense, num_dense + num_sparse) if num_sparse else range(num_dense)
    shares = []
    for server in range(num_dense + num_sparse):
        pieces = _dense_shares(dense, blocks, server, num_dense) if server < num_dense else ()
        rows = _row_shares(tables, server - hosts.start, len(hosts)) if server in hosts else ()
        grown = tuple(GrowingShare(t, server - hosts.start, len(hosts)) for t in growing)
        shares.append(ServerShare(pieces, rows, grown if server in hosts else ()))
        if shares[-1].slab_size * 4 > MAX_FRAME_BYTES:
            raise ConfigError(
                f"server {server} would hold {shares[-1].slab_size * 4} bytes of dense parameters, "
                f"but at most {MAX_FRAME_BYTES} fit into a message: use more servers or a larger "
                "ports_num"
            )
    return tuple(shares)


def block_size(total: int, num_servers: int) -> int:
    """Return the elements per dense block: a power of two, at least 1024, that gives about 128 blocks per server."""
    bits = (total // num_servers).bit_length()
    return 1 << max(bits - _BLOCKS_PER_SERVER_BITS, _MIN_BLOCK_BITS)


def offset(name: str, num_servers: int) -> int:
    """Return the server of a parameter's block 0, by a hash of its name that is the same in every process."""
    digest = hashlib.blake2b(name.encode(), digest_size=8).digest()
    return int.from_bytes(digest, "little") % num_servers


def _is_whole(parameter: ParameterSpec, whole: bool) -> bool:
    """Return whether a parameter must not be split; `whole`: whether this holds for the job's optimizer."""
    return whole if parameter.optimizer is None else rule_of(parameter.optimizer).needs_whole


def _dense_shares(
    parameters: Sequence[ParameterSpec], blocks: Mapping[str, int], server: int, num: int
) -> tuple[DenseShare, ...]:
    shares: list[DenseShare] = []
    start = 0
    for parameter in parameters:
        first, block = (server - offset(parameter.name, num)) % num, blocks[parameter.name]
        starts = range(first * block, parameter.size, num * block)
        length = sum(min(block, parameter.size - at) for at in starts)
        if length:
            shares.append(DenseShare(parameter, parameter.size, block, first, num, start, start + length))
            start += length
    return tuple(shares)


def _row_shares(parameters: Sequence[ParameterSpec], server: int, num: int) -> tuple[RowShare, ...]:
    shares = (
        RowShare(parameter, (server - offset(parameter.name, num)) % num, num) for parameter in parameters
    )
    return tuple(share for share in shares if share.height)
