# SPDX-License-Identifier: Apache-2.0
"""The environment of a process, read strictly, and the only place that reads it."""

from __future__ import annotations

import ast
import os
from pathlib import Path

import pytest

from paddle.env import JobEnvironment, compute_threads
from paddle.errors import ConfigError

RUNTIME = Path(__file__).resolve().parents[2] / "runtime" / "paddle"

FULL = {
    "PADDLE_JOB_ID": "JOB20170101000000-abcdef",
    "PADDLE_JOB_DIR": "/jobs/JOB1",
    "PADDLE_NODE_ID": "2",
    "PADDLE_JOB_KEY": "5e" * 32,
    "PADDLE_WIRE": "curve",
    "PADDLE_REPORT_FD": "7",
    "PADDLE_CLUSTER_TRAIN": "True",
    "TRAINING_ROLE": "TRAINER",
    "POD_IP": "10.0.0.3",
    "PADDLE_CURRENT_ENDPOINT": "10.0.0.3:7164",
    "PADDLE_INIT_TRAINER_ID": "2",
    "PADDLE_INIT_PSERVERS": "10.0.0.1,10.0.0.2",
    "PADDLE_INIT_USE_GPU": "False",
    "PADDLE_PSERVERS_IP_PORT_LIST": "10.0.0.1:7164,10.0.0.2:7164",
    "PADDLE_PSERVERS_SPARSE_IP_PORT_LIST": "10.0.0.1:7165",
    "PADDLE_TRAINER_ID": "2",
    "PADDLE_TRAINERS_NUM": "3",
    "PADDLE_TRAINER_ENDPOINTS": "a:1,b:1,c:1",
    "GLOG_logtostderr": "0",
    "GLOG_log_dir": "./log",
    "HOME": "/root",
}


def test_everything_the_launcher_sets_is_read() -> None:
    env = JobEnvironment.read(FULL)
    assert env.job_id == "JOB20170101000000-abcdef"
    assert env.job_dir == Path("/jobs/JOB1")
    assert (env.node_id, env.trainer_id, env.num_trainers, env.report_fd) == (2, 2, 3, 7)
    assert (env.wire, env.role, env.pod_ip) == ("curve", "TRAINER", "10.0.0.3")
    assert env.cluster_train
    assert env.endpoints == ("10.0.0.1:7164", "10.0.0.2:7164")
    assert env.sparse_endpoints == ("10.0.0.1:7165",)
    assert dict(env.init_flags) == {"trainer_id": "2", "pservers": "10.0.0.1,10.0.0.2", "use_gpu": "False"}
    assert env.glog_to_stderr is False
    assert env.glog_log_dir == Path("log")


def test_a_process_started_by_hand_has_nothing() -> None:
    env = JobEnvironment.read({"HOME": "/root", "PADDLE_NODE_ID": "", "PADDLE_JOB_KEY": ""})
    assert env == JobEnvironment()
    assert env.glog_to_stderr is None


def test_the_key_is_in_no_text_representation_of_the_environment() -> None:
    env = JobEnvironment.read(FULL)
    assert env.job_key == "5e" * 32
    assert "5e5e" not in f"{env} {env!r}"


@pytest.mark.parametrize(
    ("name", "value", "why"),
    [
        ("PADDLE_TRAINER_ID", "two", "PADDLE_TRAINER_ID: expected a whole number, got 'two'"),
        ("PADDLE_NODE_ID", "-1", "PADDLE_NODE_ID: expected a whole number"),
        ("PADDLE_TRAINERS_NUM", "३", "PADDLE_TRAINERS_NUM"),
        ("PADDLE_WIRE", "tls", "PADDLE_WIRE: expected curve or plain, got 'tls'"),
        ("TRAINING_ROLE", "MASTER", "TRAINING_ROLE: expected TRAINER or PSERVER"),
        ("PADDLE_CLUSTER_TRAIN", "maybe", "PADDLE_CLUSTER_TRAIN: expected one of"),
        ("GLOG_logtostderr", "2", "GLOG_logtostderr"),
    ],
)
def test_a_value_that_cannot_be_read_is_named(name: str, value: str, why: str) -> None:
    with pytest.raises(ConfigError, match=why):
        JobEnvironment.read({name: value})


def test_what_the_launcher_sets_is_read_nowhere_else() -> None:
    readers = {
        path.relative_to(RUNTIME).as_posix()
        for path in RUNTIME.rglob("*.py")
        if "env" in (text := path.read_text(encoding="utf-8"))  # most are not worth parsing
        for node in ast.walk(ast.parse(text))
        if (isinstance(node, ast.Attribute) and node.attr in ("environ", "getenv"))
        or (isinstance(node, ast.alias) and node.name in ("environ", "getenv"))
    }
    # The data sets' folder, and whether plots are drawn, are settings of the user, not of the job. The hooks are in
    # every Python, or in every JAX; paddle is not. Fluid asks for its places when it is called, as scripts that set
    # CPU_NUM first expect; how long a rank or a transpiled program waits is for users to say. launch hands its own
    # environment on, and so do datasets to pipe commands and unpackers; mpirun says that it is there; users tune the C
    # library, set FLAGS_, and give `serve` its token. The checks of a job report missing kernels for all processes.
    assert readers <= {
        "env.py",
        "collective/membership.py",
        "collective/group.py",
        "dataset/download.py",
        "dataset/mq2007.py",
        "distributed/script.py",
        "fluid/multislot/source.py",
        "fluid/run/flags.py",
        "fluid/run/places.py",
        "fluid/remote/distribution.py",
        "freed_memory.py",
        "hooks/jax_plugins/paddle_interface.py",
        "hooks/sitecustomize.py",
        "kernels/library.py",
        "pserver/serve.py",
        "v2/plot.py",
    }


@pytest.mark.parametrize(("text", "count"), [("3", 3), ("2,4", 2), ("", None), ("0", None), ("many", None)])
def test_what_computes_has_as_many_threads_as_openmp_or_cores(text: str, count: int | None) -> None:
    assert compute_threads({"OMP_NUM_THREADS": text}) == (count or len(os.sched_getaffinity(0)))
