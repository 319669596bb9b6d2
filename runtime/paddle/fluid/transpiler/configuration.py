# SPDX-License-Identifier: Apache-2.0
"""DistributeTranspilerConfig, the settings of the transpiler, and dispatchers, which assign slices to servers."""

from __future__ import annotations

import hashlib
import re
from abc import ABC, abstractmethod
from collections.abc import Sequence
from types import MappingProxyType
from typing import Protocol

from paddle.fluid.parallel.strategies import Options
from paddle.signatures import explained
from paddle_node.contract.classes import dataclass


class Named(Protocol):
    """The interface of objects with a name, such as variables, that dispatchers assign to servers."""

    name: str


class PSDispatcher(ABC):
    """Base class of dispatchers, which assign variables or slices to servers; scripts can define subclasses."""

    def __init__(self, pserver_endpoints: Sequence[str]) -> None:
        self._eps = list(pserver_endpoints)
        self._step = 0

    @property
    def eps(self) -> list[str]:
        """The endpoints of the servers, "ip:port" each."""
        return self._eps

    def reset(self) -> None:
        """Restart the assignment at the first server."""
        self._step = 0

    @abstractmethod
    def dispatch(self, varlist: Sequence[Named]) -> list[str]:
        """Return the endpoint of the server to which each variable is assigned, in order."""


class RoundRobin(PSDispatcher):
    """A dispatcher that assigns variables to the servers in turn, continuing after the previous call's last server."""

    def dispatch(self, varlist: Sequence[Named]) -> list[str]:
        """Return the endpoint of the next server in turn for each variable."""
        chosen = []
        for _ in varlist:
            chosen.append(self._eps[self._step])
            self._step = (self._step + 1) % len(self._eps)
        return chosen


class HashName(PSDispatcher):
    """A dispatcher that assigns a slice by a hash of its name, equal in every process and for its gradient."""

    def dispatch(self, varlist: Sequence[Named]) -> list[str]:
        """Return the endpoint of the server that each variable's name hashes to."""
        names = [re.sub(r"@GRAD|\.trainer_\d+$", "", variable.name) for variable in varlist]
        return [self._eps[_hash(name) % len(self._eps)] for name in names]


def _hash(name: str) -> int:
    # No CRC: names that differ in a last digit, as those of slices do, have CRCs of the same parity.
    return int.from_bytes(hashlib.blake2b(name.encode(), digest_size=8).digest(), "little")


@explained
@dataclass
class DistributeTranspilerConfig(Options):
    """Settings of `DistributeTranspiler`; other names are refused, because a misspelled one would have no effect.

    Attributes:
        slice_var_up: whether to cut large parameters into slices for several servers.
        split_method: dispatcher class that assigns slices to servers; None: RoundRobin.
        min_block_size: minimum number of elements of a slice, at least 8192.
        enable_dc_asgd: whether to compensate for delay; only in asynchronous mode.
        mode: "pserver" or "nccl2".
        print_log: ignored.
        wait_port: whether `get_trainer_program` waits for the servers.
        runtime_split_send_recv: ignored: operators split gradients.
        sync_mode: False for asynchronous training; otherwise, `transpile` decides.
        nccl_comm_num: number of connections between ranks.
        use_hierarchical_allreduce: whether to reduce within groups first.
        hierarchical_allreduce_inter_nranks: number of ranks per group.
        hierarchical_allreduce_exter_nranks: number of groups.
        table_rule: update rule of the distributed embedding. "sgd": plain gradient descent with the sum of the
            trainers' gradients, as in the original. "own": the optimizer's rule with the mean of the gradients, on the
            batch's rows.
        k_steps: in mode "nccl2", number of steps between averages of the trainers' parameters. At an average,
            synchronous trainers wait for each other (local SGD); with 1, they sum gradients instead. Asynchronous
            trainers never wait for each other's steps.
    """

    later = MappingProxyType(
        {
            "geo_sgd_mode": False,
            "geo_sgd_need_push_nums": 100,
            "completely_not_async": False,
            "half_async": False,
        }
    )
    slice_var_up: bool = True
    split_method: type[PSDispatcher] | None = None
    min_block_size: int = 8192
    enable_dc_asgd: bool = False
    mode: str = "pserver"
    print_log: bool = False
    wait_port: bool = True
    runtime_split_send_recv: bool = False
    sync_mode: bool = True
    nccl_comm_num: int = 1
    use_hierarchical_allreduce: bool = False
    hierarchical_allreduce_inter_nranks: int = 0
    hierarchical_allreduce_exter_nranks: int = 0
    k_steps: int = 1
    table_rule: str = "sgd"
