# SPDX-License-Identifier: Apache-2.0
"""Compiles all kernels before anybody waits for them: seconds the first time on a machine, fractions later.

Compiling holds the interpreter's lock, so a process of its own does it, which runs
this module, and whoever began it then loads what it kept. Importing this loads no compiler.
"""

from __future__ import annotations

import functools
import logging
import signal
import subprocess
import sys
import time
from concurrent.futures import Future
from functools import partial
from pathlib import Path

import numpy as np

from paddle.optim.spec import OptimizerSpec, ParameterSpec, RowGradient
from paddle.pserver.sparse.initial import Initial
from paddle.pserver.sparse.mixing import segments_of
from paddle.pserver.sparse.spec import TableSpec
from paddle.threads import ServiceThread
from paddle_node.linux.prctl import end_with_parent

_log = logging.getLogger(__name__)

_TOLD_FROM_S = 1.0
_LIMIT_S = 60.0
_SEGMENT = 9
_RUNTIME = Path(__file__).resolve().parents[3]
_CHILD = (
    "import runpy, sys; sys.path.insert(0, sys.argv[1]); "
    "runpy.run_module('paddle.pserver.sparse.warming', run_name='__main__')"
)


@functools.cache
def warming() -> Future[None]:
    """Begin what `warm_up` does, in a thread; return at once."""
    done: Future[None] = Future()
    ServiceThread(partial(_warm_up_for, done), name="paddle-loops")
    return done


@functools.cache
def warm_up() -> None:
    """Do everything that a table does once, on a small one; at most once in a process."""
    from paddle.kernel_cache import made_once  # the compiler

    start = time.monotonic()
    with made_once("growing") as is_made:
        if not is_made and not _compiled_aside():
            _use_all()
    _use_all()
    took_s = time.monotonic() - start
    if took_s > _TOLD_FROM_S:
        _log.info("growing tables: compiled in %.1f s", took_s)


def _warm_up_for(done: Future[None]) -> None:
    try:
        warm_up()
    except Exception as error:  # noqa: BLE001 - raised again for whoever cannot do without compiled loops
        _log.exception(
            "growing tables: no compiled loops, so rows are changed one at a time, slowly, and checkpoints fail; "
            "see that numba and llvmlite are whole"
        )
        done.set_exception(error)
    else:
        done.set_result(None)


def _compiled_aside() -> bool:
    """Let a child compile, which ends with this process; whether it did."""
    argv = [sys.executable, "-P", "-c", _CHILD, str(_RUNTIME)]
    try:
        subprocess.run(
            argv,
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            timeout=_LIMIT_S,
            check=True,
        )
    except (OSError, subprocess.SubprocessError) as error:
        _log.warning("growing tables: %s; this process compiles instead", _reason(error))
        return False
    return True


def _reason(error: OSError | subprocess.SubprocessError) -> str:
    """Return one line on why a child did not compile, without its long command."""
    if isinstance(error, subprocess.TimeoutExpired):
        return f"the process that compiles them did not finish within {error.timeout:.0f} s"
    if isinstance(error, subprocess.CalledProcessError):
        last = (error.stderr or "").strip().splitlines()[-1:]
        return f"the process that compiles them exited with code {error.returncode}" + "".join(
            f": {each}" for each in last
        )
    return f"the process that compiles them did not start: {error}"


def _use_all() -> None:
    for rule in ("momentum", "decayed_adagrad"):  # one has a compiled formula, one has none
        _use(rule)


def _use(rule: str) -> None:
    from paddle.pserver.sparse.hash_table import HashTable  # the compiler
    from paddle.pserver.sparse.touching import touch

    spec = TableSpec(ParameterSpec("warming", (1, 2), sparse=True), Initial("normal"), entry=3, max_age=1)
    table = HashTable(spec, OptimizerSpec(rule))
    some = np.arange(10_000)
    ids = some[segments_of(some) == _SEGMENT][:2]
    values = np.zeros((2, 2), np.float32)
    from_the_wire = values.copy()
    from_the_wire.flags.writeable = False
    for gradient in (values, from_the_wire, values, from_the_wire):
        table.update([RowGradient(ids, gradient)], 0.0)
    table.lookup(ids)
    list(table.snapshot())
    touch(values)
    while len(table):  # until their segment's turn comes
        table.update([], 0.0)


if __name__ == "__main__":
    end_with_parent(signal.SIGKILL)
    _use_all()
