# SPDX-License-Identifier: Apache-2.0
"""The model of a running job as a reader learns it: every server describes the same one, and its own place in it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

from paddle.errors import PserverError
from paddle.optim.spec import rule_of
from paddle.pserver.client.layout import Layout
from paddle.pserver.wire.configuration import Configuration
from paddle.pserver.wire.message import Message


@dataclass(frozen=True, slots=True)
class TensorInfo:
    """One tensor of a job.

    Attributes:
        shape: of the whole; of a growing table (0, width), since it has no height.
        dtype: always "float32".
        sparse: whether its rows can be looked up.
        growing: whether it has rows for any int64 id, and no whole.
    """

    shape: tuple[int, ...]
    dtype: str = "float32"
    sparse: bool = False
    growing: bool = False


def read_model(replies: Mapping[int, Message], endpoints: Sequence[str]) -> Configuration:
    """Return what all servers describe.

    Raises:
        PserverError: they are of several jobs, or not all of one, or in another order than trainers have them.
    """
    found = {i: Configuration.from_text(reply.section("").as_text()) for i, reply in replies.items()}
    first = found[0]
    for index, each in found.items():
        theirs = (each.server, each.num_dense + each.num_sparse)
        if theirs != (index, len(endpoints)):
            raise PserverError(
                f"pserver {endpoints[index]} is number {theirs[0]} of {theirs[1]} in its job, given as number "
                f"{index} of {len(endpoints)}: give endpoints and sparse_endpoints as the job's trainers have them",
                endpoints[index],
            )
        difference = first.difference(replace(each, server=first.server))
        if difference:
            raise PserverError(
                f"pservers {endpoints[0]} and {endpoints[index]} are of different jobs: {difference}",
                endpoints[index],
            )
    return first


def layout_of(model: Configuration) -> Layout:
    """Return where everything lies."""
    return Layout(
        model.parameters,
        model.num_dense,
        model.num_sparse,
        whole=rule_of(model.optimizer).needs_whole,
        growing=model.tables,
    )


def tensors_of(layout: Layout) -> dict[str, TensorInfo]:
    """Return what can be read, by name."""
    found = {name: TensorInfo(p.shape, sparse=p.sparse) for name, p in layout.parameters.items()}
    for name, table in layout.growing.items():
        found[name] = TensorInfo((0, table.width), sparse=True, growing=True)
    return found
