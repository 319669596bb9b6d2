# SPDX-License-Identifier: Apache-2.0
"""Operators that talk to other processes: programs carry them, and an executor that is connected runs them.

Without a connection they fail with an error that says so.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from paddle.ops.errors import OpError
from paddle.ops.registry import operator

_ENDPOINT = "127.0.0.1:6164"


def _unconnected(op_type: str) -> Callable[..., Any]:
    def kernel(*values: Any) -> Any:
        raise OpError(f"{op_type} needs parameter servers, and this executor is connected to none")

    kernel.__name__ = op_type
    return kernel


def _remote(op_type: str, signature: str, attrs: Mapping[str, object]) -> None:
    operator(op_type, signature, attrs=attrs, has_effect=True)(_unconnected(op_type))


_remote(
    "send",
    "X* -> Out*",
    {"trainer_id": 0, "epmap": (_ENDPOINT,), "sections": (), "send_varnames": (), "num": 0},
)
_remote(
    "recv",
    "X*? -> Out*",
    {
        "epmap": (),
        "trainer_id": 0,
        "with_barrier": True,
        "varnames": (),
        "recv_varnames": (),
        "do_not_run": 0,
    },
)
_remote("send_barrier", "X*? -> Out*", {"trainer_id": 0, "endpoints": (_ENDPOINT,)})
_remote("fetch_barrier", "-> Out*?", {"trainer_id": 0, "endpoints": (_ENDPOINT,)})
_remote(
    "listen_and_serv",
    "X*? ->",
    {
        "endpoint": _ENDPOINT,
        "grad_to_block_id": (),
        "sync_mode": True,
        "dc_asgd": False,
        "optimize_blocks": (),
        "prefetch_var_name_to_block_id": (),
        "sparse_grad_to_param": (),
        "Fanin": 1,
        "checkpint_block_id": -1,
    },
)
_remote(
    "gen_nccl_id",
    "-> NCCLID",
    {
        "trainers": (),
        "trainer_id": int,
        "nccl_comm_num": 1,
        "use_hierarchical_allreduce": False,
        "hierarchical_allreduce_inter_nranks": -1,
    },
)
