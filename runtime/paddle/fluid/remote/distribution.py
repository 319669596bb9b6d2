# SPDX-License-Identifier: Apache-2.0
"""What a program says of the servers it talks to."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from paddle import graph
from paddle.fluid.errors import FluidError

SENDING = (
    "send",
    "send_barrier",
    "recv",
    "fetch_barrier",
    "prefetch",
    "distributed_lookup_table",
    "checkpoint_notify",
)
SERVING = "listen_and_serv"


@dataclass(frozen=True, slots=True)
class Distribution:
    """A trainer's place among trainers and servers.

    Attributes:
        trainer_id: rank of this trainer.
        trainers: how many there are; 0: as many as the servers say.
        endpoints: "host:port" of all servers, the same list in every trainer.
    """

    trainer_id: int
    trainers: int
    endpoints: tuple[str, ...]


def distribution_of(program: graph.Program) -> Distribution:
    """Return what the operators of block 0 say; for programs that no transpiler made, or that were read from files.

    Raises:
        FluidError: they name several trainer ids.
    """
    trainers: set[int] = set()
    endpoints: dict[str, None] = {}
    for op in program.global_block().ops:
        if op.type in SENDING:
            for attr in ("epmap", "endpoints"):
                named = op.attrs.get(attr, ())
                assert isinstance(named, tuple)
                endpoints.update(dict.fromkeys(named))
            trainers.add(int(str(op.attrs.get("trainer_id", 0))))
    if len(trainers) > 1:
        raise FluidError(f"operators of one program name several trainers: {sorted(trainers)}")
    return Distribution(min(trainers, default=0), 0, tuple(endpoints))


def received_names(program: graph.Program) -> Mapping[str, tuple[str, ...]]:
    """Return which values a run receives: endpoint -> names, in the order of the operators."""
    wanted: dict[str, dict[str, None]] = {}
    for op in program.global_block().ops:
        if op.type == "recv":
            epmap, varnames = op.attrs["epmap"], op.attrs["varnames"]
            assert isinstance(epmap, tuple)
            assert isinstance(varnames, tuple)
            for name, endpoint in zip(varnames or op.outputs["Out"], epmap, strict=True):
                wanted.setdefault(endpoint, {})[name] = None
    return {endpoint: tuple(names) for endpoint, names in wanted.items()}
