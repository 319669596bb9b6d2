# SPDX-License-Identifier: Apache-2.0
"""State files of the launcher and of nodes: anything may have written them, and no command stops at one."""

from __future__ import annotations

import contextlib
import io
import json
import os
import socket
import tempfile
import zlib
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

from hypothesis import strategies as st

from paddle_cluster.cli.main import main
from paddle_cluster.control import store
from paddle_cluster.dashboard import changes
from paddle_cluster.dashboard.job_board import JobBoard
from paddle_cluster.errors import ExitCode
from paddle_cluster.system.digests import Digests, load_cached
from paddle_cluster.system.state_dir import FAILURE_FILE, JOB_FILE, STATUS_FILE, StatePlaces, make_job_dir
from paddle_node.agent import registry
from paddle_node.agent.files import disk
from paddle_node.agent.node import checkpoints, known_python
from paddle_node.contract.job_file import JobFile
from paddle_node.contract.records import fitting
from paddle_node.linux import proc, process_tree
from tests.fuzz.shapes import damaged, spoiled
from tests.launcher.control.test_odd_files import JOB, RECORD, STATUS

_COMMANDS = (
    ("status",),
    ("status", "--json"),
    ("status", JOB),
    ("attach", JOB),
    ("logs", JOB),
    ("logs", JOB, "--since=1h"),
    ("stop", "--force"),
)
_OURS = {int(one) for one in ExitCode}


def _written(template: Any) -> st.SearchStrategy[bytes]:
    """A file with wrong parts, cut off or damaged."""
    return st.one_of(
        spoiled(template).map(lambda value: json.dumps(value).encode()),
        damaged(st.just(json.dumps(template).encode())),
    )


# -- the launcher's

_ENDED = {**STATUS, "phase": "ended", "exit_code": 1, "curve": {"process": "trainer-0", "points": [[1, 0.5]]}}
_GONE = {**RECORD, "launcher": {"host": socket.gethostname(), "pid": 7, "start": 7, "boot_id": "x"}}
_FAILURE: dict[str, Any] = {
    "schema_version": 1,
    "job_id": JOB,
    "first_cause": {"kind": "exit", "log_end": ["x"], "stacks": {"trainer-0": "x"}, "code": 1},
    "same": [{"node": "a"}],
}
state_files = st.tuples(
    st.one_of(_written(RECORD), _written(_GONE)),
    st.one_of(_written(STATUS), _written(_ENDED)),
    _written(_FAILURE),
)
commands = st.tuples(state_files, st.sampled_from(_COMMANDS))


@contextlib.contextmanager
def _written_state(found: tuple[bytes, bytes, bytes]) -> Iterator[StatePlaces]:
    with tempfile.TemporaryDirectory() as folder:
        where = StatePlaces(Path(folder, "jobs"), Path(folder, "short"))
        directory = make_job_dir(where, JOB)
        for name, data in zip((JOB_FILE, STATUS_FILE, FAILURE_FILE), found, strict=True):
            (directory / name).write_bytes(data)
        yield where


def show_state_files(found: tuple[bytes, bytes, bytes]) -> None:
    """What is in them is shown by the dashboard or left out; what is left out is told."""
    with _written_state(found) as where:
        jobs = store.all_jobs(where)
        assert len(jobs) + len(store.unreadable(where)) == 1
        changes.as_text(changes.everything(JobBoard(where), JOB))
        for job in jobs:
            changes.as_text({"failure": changes.failure(job)})
        store.prune(where)


def run_commands(found: tuple[tuple[bytes, bytes, bytes], Sequence[str]]) -> None:
    """Every command that reads them ends with an exit code of ours."""
    files, argv = found
    before = os.environ.get("PADDLE_STATE_DIR")
    with (
        _written_state(files) as where,
        contextlib.redirect_stdout(io.StringIO()) as out,
        contextlib.redirect_stderr(io.StringIO()) as err,
    ):
        os.environ["PADDLE_STATE_DIR"] = str(where.jobs)
        try:
            assert main(argv) in _OURS
        finally:
            del os.environ["PADDLE_STATE_DIR"]
            if before is not None:
                os.environ["PADDLE_STATE_DIR"] = before
        assert "\x1b" not in out.getvalue() + err.getvalue()


_DIGESTS = {"form": 1, "files": {"/a": ["1 2 3 4 5", "d" * 64]}}
memories = _written(_DIGESTS)


def recall_digests(data: bytes) -> None:
    """What is remembered of a tree may be anything, in the place of a cache too."""
    with tempfile.TemporaryDirectory() as folder:
        memory = Path(folder, "m.json")
        memory.write_bytes(data)
        memory.chmod(0o600)
        Digests(memory).of([(str(memory), memory.stat())])
        assert load_cached(memory) is None


# -- of nodes

_RECORD: dict[str, Any] = {
    "job_id": "J",
    "node_id": 0,
    "submitter": {"user": "u", "host": "h", "pid": 7, "start": 7, "boot_id": "b", "collected": "/c"},
    "keeps_state": False,
    "saves_as": "J",
    "processes": [{"name": "trainer-0", "role": "trainer", "rank": 0}],
    "job_dir": "/r/J",
    "group": "/g/paddle-J",
    "root_dir": "/r",
    "agent": {"pid": 7, "start": 7, "boot_id": proc.boot_id()},
    "hostname": socket.gethostname(),
    "since": 1e9,
    "ended": {"at": 1e9, "how": "x", "settled": True},
}
node_records = st.lists(_written(_RECORD), min_size=1, max_size=3)
_BODY: dict[str, Any] = {"numbers": {"": {"pass_id": 1}}, "files": [{"path": "p", "nbytes": 1}]}
manifests = st.one_of(
    _written(_BODY),
    spoiled(_BODY).map(lambda body: json.dumps({"crc32": 0, "body": json.dumps(body)}).encode()),
    _written({"crc32": 0, "body": "{}"}),
)
known_pythons = _written({"version": "3.11", "files": [["/bin/sh", 1, 2, 3, 4]], "libraries": ""})


def tell_node_records(found: list[bytes]) -> None:
    """A node tells its jobs, and which of their directories may go, whatever it has written down of them."""
    with tempfile.TemporaryDirectory() as root:
        folder = root + registry.FOLDER
        os.makedirs(folder)
        for number, data in enumerate(found):
            Path(folder, f"J{number}.0.json").write_bytes(data)
        json.dumps(registry.describe(root))
        registry.cleanable(root, 0.0)
        registry.outlived(JobFile(**fitting(JobFile, {**_RECORD, "root_dir": root})), 0)
        registry.prune(folder)
        for known in registry.known(root):
            assert known.agent is None or isinstance(known.agent, process_tree.FoundProcess)


def list_manifest(data: bytes) -> None:
    """A node lists a checkpoint, or says why it cannot be read."""
    with contextlib.suppress(ValueError):  # a body with the checksum that belongs to it
        outer = json.loads(data)
        if isinstance(outer, dict) and isinstance(outer.get("body"), str):
            outer["crc32"] = zlib.crc32(outer["body"].encode("utf-8", "replace"))
            data = json.dumps(outer).encode()
    with tempfile.TemporaryDirectory() as folder:
        part = Path(folder, "v000000000007.J", "part-0-of-1")
        part.mkdir(parents=True)
        (part / "manifest.json").write_bytes(data)
        assert len(checkpoints.list_all(folder, folder)["parts"]) == 1


def recall_python(data: bytes) -> None:
    """What a node remembers of its Python counts or does not."""
    with tempfile.TemporaryDirectory() as root:
        disk.own_folder(root + "/.paddle")
        Path(root + known_python.FILE).write_bytes(data)
        known_python.recall(root, "sh", {"PATH": "/bin"})
