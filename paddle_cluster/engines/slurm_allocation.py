# SPDX-License-Identifier: Apache-2.0
"""A Slurm allocation that lasts as long as the launcher: salloc runs a command that reads from the launcher.

When this process exits for any reason, even `kill -9`, that command exits, which ends salloc and the allocation.
"""

from __future__ import annotations

import contextlib
import os
import queue
import selectors
import signal
import subprocess
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from typing import Any

from paddle_cluster.config.settings import Settings
from paddle_cluster.errors import PreflightError, UsageError
from paddle_cluster.system import signals
from paddle_cluster.text.wrapping import visible
from paddle_node.contract.classes import regex

ANSWER_S = 10.0  # of squeue and scancel
GONE_S = 10.0  # for salloc to release the nodes
LOOK_S, LOOK_MOST_S = 2.0, 30.0  # between queries why a job waits; each is work for Slurm's controller
TIME_LOOK_S = 30.0
MARGIN_S = 60.0  # between this launcher's stop and the time limit
SHOWN = 400
READ_SIZE = 1 << 16

_HOLD = "env -0; printf 'paddle\\0'; exec cat >/dev/null"
_ASK = (
    "; `sinfo` shows whether Slurm responds on this machine and which partitions it has. "
    "SLURM_OPTIONS in conf.py are passed to salloc"
)
_NO_CONF = regex("Could not establish a configuration source|fetch_config: DNS SRV")
_CONF = "; this machine has no slurm.conf: run on a login node of the cluster, or name the file in SLURM_CONF"
_HELD = b"\0paddle\0"
_JOB = regex(rb"job allocation ([0-9]+)")
_TIME = regex(r"(?:([0-9]+)-)?(?:([0-9]+):)?([0-9]+):([0-9]+)")


def salloc(settings: Settings) -> list[str]:
    """Return the salloc command; the user's options come last and thus take precedence."""
    count = len(settings.cluster.hosts)
    outlives = [] if settings.job.min_trainers is None else ["--no-kill"]  # the job handles the loss of nodes
    options = settings.engines.slurm_options
    return ["salloc", f"--nodes={count}", "--job-name=paddle", "--no-bell", *outlives, *options]


@contextlib.contextmanager
def allocated(
    argv: Sequence[str], timeout_s: float, report: Callable[[str], None]
) -> Iterator[dict[str, str]]:
    """Request a Slurm allocation and wait for it; release it when the context ends.

    Args:
        argv: the `salloc` command.
        report: receives messages for the user in the meantime.

    Yields:
        The variables of the allocation.

    Raises:
        PreflightError: Slurm refuses, or nodes were not available in time; the message contains the reason.
        UsageError: salloc is not installed.
    """
    try:
        process = subprocess.Popen(
            [*argv, "sh", "-c", _HOLD],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            start_new_session=True,  # Ctrl+C at the terminal only reaches the launcher
        )
    except OSError as error:
        raise UsageError(
            f"cannot start salloc: {error.strerror}; run --engine=slurm on a machine that can "
            "submit jobs to Slurm"
        ) from error
    waiting = _Waiting(process, report)
    try:
        found = waiting.run(time.monotonic() + timeout_s, timeout_s)
        report(f"Slurm: job {waiting.job} has {found.get('SLURM_JOB_NODELIST', 'its nodes')}")
        yield found
    finally:
        _give_back(process, waiting)


class _Waiting:
    """Waits until salloc has its allocation.

    Attributes:
        job: Slurm's job ID, once known.
        is_held: the nodes are allocated.
    """

    def __init__(self, process: subprocess.Popen[bytes], report: Callable[[str], None]) -> None:
        self.job = ""
        self.is_held = False
        self._process = process
        self._report = report
        self._last_reason = ""
        self._output = b"\0"
        self._recent_output = b""

    def run(self, deadline: float, timeout_s: float) -> dict[str, str]:
        """Wait for the allocation and return its variables. Regularly query the reason for the wait."""
        assert self._process.stdout is not None
        assert self._process.stderr is not None
        pause_s, look_at = LOOK_S, time.monotonic() + LOOK_S
        with selectors.DefaultSelector() as ready:
            for stream in (self._process.stdout, self._process.stderr):
                ready.register(stream, selectors.EVENT_READ)
            while True:
                for key, _ in ready.select(max(0.0, min(deadline, look_at) - time.monotonic())):
                    data = os.read(key.fd, READ_SIZE)
                    self._take(data, key.fileobj is self._process.stdout)
                    if not data:
                        ready.unregister(key.fileobj)
                if _HELD in self._output:
                    self.is_held = True
                    return self._variables()
                if not ready.get_map():
                    messages = self._output_line()
                    advice = _CONF if _NO_CONF.search(messages) else _ASK
                    raise PreflightError(f"Slurm refused the allocation: {messages}{advice}")
                if time.monotonic() >= deadline:
                    raise PreflightError(
                        f"no allocation from Slurm within {timeout_s:.0f} s (SLURM_QUEUE_TIMEOUT_S); "
                        f"Slurm reports: {self._query_reason() or self._output_line()}"
                    )
                if time.monotonic() >= look_at:
                    if self.job and (never := why_never(self.job)):
                        raise PreflightError(f"Slurm can never start this job: {never}")
                    pause_s = min(LOOK_MOST_S, 1.5 * pause_s)
                    look_at = time.monotonic() + pause_s
                    self._report_reason()

    def _take(self, data: bytes, is_output: bool) -> None:
        if is_output:
            self._output += data
            return
        self._recent_output = (self._recent_output + data)[-READ_SIZE:]
        found = _JOB.search(self._recent_output)
        if found:
            self.job = found[1].decode()

    def _variables(self) -> dict[str, str]:
        texts = self._output.decode("utf-8", "surrogateescape").split("\0")
        pairs = (text.partition("=") for text in texts if text.startswith("SLURM_"))
        return {name: value for name, _, value in pairs}

    def _output_line(self) -> str:
        lines = self._recent_output.decode("utf-8", "replace").splitlines()
        messages = " | ".join(line.removeprefix("salloc: ").removeprefix("error: ") for line in lines)
        return visible(messages[-SHOWN:]) or "salloc exited without a message"

    def _report_reason(self) -> None:
        why = self._query_reason()
        if why and why != self._last_reason:
            self._last_reason = why
            self._report(f"Slurm: {why}")

    def _query_reason(self) -> str:
        """Return why the job waits, and when it is expected to start."""
        if not self.job:
            return ""
        state, _, rest = asked("squeue", "-h", "-j", self.job, "-o", "%T|%r|%S").partition("|")
        reason, _, start = rest.partition("|")
        if not state:
            return ""
        begins = f", expected to start {start}" if start[:1].isdigit() else ""
        return visible(f"job {self.job} is {state.lower()}: {reason}{begins}")


def _give_back(process: subprocess.Popen[bytes], waiting: _Waiting) -> None:
    """End salloc, and cancel the job if salloc does not."""
    assert process.stdin is not None
    with signals.ignored():
        with contextlib.suppress(OSError):
            process.stdin.close()  # once it has nodes, salloc waits for this
        if not waiting.is_held:
            process.terminate()
        for end in (process.terminate, process.kill, None):
            try:
                process.wait(GONE_S)
                break
            except subprocess.TimeoutExpired:
                if end is not None:
                    end()
        for stream in (process.stdout, process.stderr):  # not earlier: a closed pipe would kill it
            if stream is not None:
                stream.close()
        if waiting.job and process.returncode != 0:
            asked("scancel", waiting.job)


def why_never(job: str) -> str:
    """Return why a pending job can never start, such as a request beyond its partition's size; "" if it can."""
    reason, _, rest = asked("squeue", "-h", "-j", job, "-o", "%r|%P|%D|%l").partition("|")
    partition, _, rest = rest.partition("|")
    count, _, time_limit = rest.partition("|")
    if reason in ("PartitionNodeLimit", "PartitionConfig"):
        total, _, sizes = asked("sinfo", "-h", "-p", partition, "-o", "%D|%s").partition("|")
        least, _, most = sizes.partition("-")
        limits = [int(text) for text in (total, most or least) if text.isdecimal()]
        if limits and count.isdecimal() and int(count) > min(limits):  # squeue prints 2K for 2048
            return f"partition {partition} has {total} nodes and allows {sizes} per job, fewer than --nnodes={count}"
    if reason == "PartitionTimeLimit":
        most = asked("sinfo", "-h", "-p", partition, "-o", "%l")
        return f"its time limit is {time_limit}, but partition {partition} allows only {most} (--time in SLURM_OPTIONS)"
    return ""


def asked(*argv: str) -> str:
    """Run a Slurm command and return its standard output; "" if it fails."""
    try:
        done = subprocess.run(argv, capture_output=True, text=True, timeout=ANSWER_S, check=True)
    except (OSError, subprocess.SubprocessError):
        return ""
    return done.stdout.strip()


@contextlib.contextmanager
def stopped_in_time(job: str, events: queue.SimpleQueue[Any]) -> Iterator[None]:
    """Return a context in which the launcher is stopped shortly before Slurm's time limit, which may still change.

    Args:
        job: Slurm's job ID; if it is empty, nothing happens.
        events: receives a SignalEvent, as if the user had requested the stop.
    """
    if not job:
        yield
        return
    over = threading.Event()
    watching = threading.Thread(target=_watch_time, args=(job, events, over), name="time limit", daemon=True)
    watching.start()
    try:
        yield
    finally:
        over.set()
        watching.join(ANSWER_S)


def _watch_time(job: str, events: queue.SimpleQueue[Any], over: threading.Event) -> None:
    margin_s: float | None = None
    while True:
        left_s = seconds_left(asked("squeue", "-h", "-j", job, "-o", "%L"))
        if left_s is not None:
            margin_s = min(MARGIN_S, left_s / 2) if margin_s is None else margin_s
            if left_s <= margin_s:
                events.put(signals.SignalEvent(signal.SIGTERM, 1, "the time limit of Slurm's job"))
                return
        if over.wait(
            TIME_LOOK_S if left_s is None or margin_s is None else min(TIME_LOOK_S, left_s - margin_s)
        ):
            return


def seconds_left(text: str) -> float | None:
    """Convert squeue's remaining time to seconds; None means no limit, or no answer."""
    found = _TIME.fullmatch(text)
    if not found:
        return None
    days, hours, minutes, seconds = (int(part or 0) for part in found.groups())
    return float(((days * 24 + hours) * 60 + minutes) * 60 + seconds)
