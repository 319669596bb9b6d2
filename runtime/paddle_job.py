# SPDX-License-Identifier: Apache-2.0
"""Reports the progress of a training script to its job, for the screen, `status`, the dashboard and TensorBoard.

    from paddle_job import report

    report(step=step, loss=loss, samples=len(batch))

Numbers can have any names; `samples` is the number of samples since the last report. Outside a job, nothing happens. A
report never waits for the job and never raises; a number that cannot be reported is named once on standard error.
"""

import atexit
import contextlib
import json
import os
import stat
import sys
import threading
import time

_INTERVAL_S = 0.05  # between lines; numbers that come faster are merged, and the newest of each name counts
_LONGEST = 4096  # bytes that a pipe takes as a whole: a process may have other writers
_NAME = 100  # characters


def report(**numbers):
    """Report numbers: Python or numpy numbers, or tensors with one element (`float` waits for a GPU tensor)."""
    if _descriptor < 0 or os.getpid() != _pid:
        return
    with _lock:
        for name, value in numbers.items():
            _add(name, value)
        if time.monotonic() >= _next_at:
            _write()


def _open():
    """Return the pipe to the agent and its identity, or -1 if the descriptor is another file, as in some children."""
    try:
        descriptor = int(os.environ["PADDLE_REPORT_FD"])
        pipe = _identity(descriptor)
        is_pipe = stat.S_ISFIFO(os.fstat(descriptor).st_mode)
        if not is_pipe or (os.environ.get("PADDLE_REPORT_PIPE") or pipe) != pipe:
            return -1, None
        os.set_blocking(descriptor, False)
        os.set_inheritable(descriptor, False)
        return descriptor, pipe
    except (KeyError, ValueError, OSError):
        return -1, None


def _identity(descriptor):
    status = os.fstat(descriptor)
    return f"{status.st_dev}:{status.st_ino}"


def _add(name, value):
    global _samples
    try:
        detach = getattr(value, "detach", None)  # PyTorch warns about float() of a tensor with a gradient
        number = float(value if detach is None else detach())
    except OverflowError:
        _complain(name, "the number is too large for a float")
        return
    except Exception:  # noqa: BLE001 - whatever a tensor of any library raises
        _complain(name, f"expected a number, got {_shown(value)}")
        return
    if number - number != 0.0:
        _complain(name, f"{number!r} is not finite")
    elif len(name) > _NAME:
        _complain(name, f"the name has more than {_NAME} characters")
    else:
        _samples += number if name == "samples" else 0.0
        _waiting[name] = _samples if name == "samples" else number


def _write():
    """Write a line, or store its numbers for the next line if the pipe is full."""
    global _descriptor, _next_at
    line = json.dumps({"event": "numbers", "values": _waiting}).encode() + b"\n"
    try:
        if len(line) > _LONGEST:
            what = f"{len(_waiting)} names take more than {_LONGEST} bytes; report fewer"
            _complain("a report", what)
        elif _waiting:
            if _identity(_descriptor) != _pipe:
                raise OSError(
                    "the script closed the report pipe, and the descriptor now belongs to a different file"
                )
            os.write(_descriptor, line)
    except BlockingIOError:
        return
    except OSError:  # the agent has exited, or the script closed the pipe
        _descriptor = -1
    _waiting.clear()
    _next_at = time.monotonic() + _INTERVAL_S


def _shown(value):
    try:
        return f"{value!r:.80}"
    except Exception:  # noqa: BLE001 - a `__repr__` of any library
        return f"a value of type {type(value).__name__}"


def _complain(name, why):
    if name in _complained:
        return
    _complained.add(name)
    with contextlib.suppress(Exception):  # it may be closed, replaced or None
        sys.stderr.write(f"paddle_job.report: {name:.100} is left out: {why}\n")


def _flush():
    with _lock:
        if _descriptor >= 0 and os.getpid() == _pid:
            _write()


_pid = os.getpid()
_lock = threading.RLock()  # a signal handler may report while its thread does
_waiting = {}  # name -> its newest number; of `samples` their sum
_samples = 0.0  # of all reports: a line that is lost takes none with it
_complained = set()
_next_at = 0.0
_descriptor, _pipe = _open()  # -1 once the reader has closed it; device and inode
if _descriptor >= 0:
    atexit.register(_flush)
