# SPDX-License-Identifier: Apache-2.0
"""Which variables of a job's processes belong to the job, and why nobody else may set them."""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType

_MARKS = """
    PADDLE_JOB_ID PADDLE_JOB_DIR PADDLE_JOB_KEY PADDLE_NODE_ID PADDLE_PROC PADDLE_REPORT_FD PADDLE_RESTART_COUNT
    PADDLE_STACKS_SIGNAL
"""
_RANKS = """
    RANK LOCAL_RANK NODE_RANK WORLD_SIZE LOCAL_WORLD_SIZE OMPI_COMM_WORLD_RANK OMPI_COMM_WORLD_SIZE
    OMPI_COMM_WORLD_LOCAL_RANK OMPI_COMM_WORLD_LOCAL_SIZE OMPI_COMM_WORLD_NODE_RANK PADDLE_TRAINER_ID
    PADDLE_TRAINERS_NUM PADDLE_TRAINERS TRAINING_ROLE PADDLE_TRAINING_ROLE PADDLE_CLUSTER_TRAIN
"""
_PLACES = """
    MASTER_ADDR MASTER_PORT POD_IP PADDLE_CURRENT_IP PADDLE_CURRENT_ENDPOINT PADDLE_TRAINER_ENDPOINTS
    PADDLE_PSERVERS_IP_PORT_LIST PADDLE_PSERVERS_SPARSE_IP_PORT_LIST PADDLE_PSERVERS PADDLE_PSERVER_IPS
    PADDLE_PORT PADDLE_PSERVER_PORT
"""
_LOGS = "GLOG_logtostderr GLOG_log_dir"

_REASONS = {
    _MARKS: "by it the job's processes are found, told apart and trusted",
    _RANKS: "it follows from PSERVERS, TRAINERS and --nproc_per_node, and a second value would part the trainers",
    _PLACES: "it follows from HOSTS, PADDLE_NIC and the ports that are free",
    _LOGS: "the logs are collected from where it points",
    "PADDLE_WIRE": "give --wire instead",
    "PADDLE_PYTHON": "set PYTHON in conf.py instead",
}

RESERVED: Mapping[str, str] = MappingProxyType(
    {name: reason for names, reason in _REASONS.items() for name in names.split()}
)
"""Name -> why it is the job's."""

REPLACEABLE = frozenset(
    (
        "GLOG_max_log_size",
        "PYTHONPATH",
        "PYTHONUNBUFFERED",
        "PYTHONFAULTHANDLER",
        "LD_LIBRARY_PATH",
        "CUDA_VISIBLE_DEVICES",
        "FLAGS_selected_gpus",
        "OMP_NUM_THREADS",
        "PADDLE_PSERVER_PATIENCE_S",
        "PADDLE_PSERVER_STATE_DIR",
        "OPENBLAS_NUM_THREADS",
        "MKL_NUM_THREADS",
    )
)
"""What a plan sets and the user may set instead."""

_INIT = "PADDLE_INIT_"


def refusal(name: str) -> str:
    """Why a user may not set this variable, or nothing."""
    if name.startswith(_INIT):
        return f"give the flag --{name.removeprefix(_INIT).lower()}=VALUE instead"
    return RESERVED.get(name, "")
