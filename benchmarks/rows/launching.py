# SPDX-License-Identifier: Apache-2.0
"""Whole commands, files, the first step and lines: `paddle.py` compared with OpenSSH and tools based on it."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager
from dataclasses import replace
from functools import partial

from benchmarks.launching import start
from benchmarks.launching.dispatch import BIG, COLD, SMALL, UNCHANGED, Field, Payload
from benchmarks.launching.first_step import FirstStep
from benchmarks.launching.lines import by_ours, by_ssh
from benchmarks.launching.rivals import lacking
from benchmarks.rows.row import Lacking, Row, Sides, Versus, Work
from benchmarks.timing import Contender
from tests.cluster.host import interpreter
from tests.cluster.hosts import Cluster, missing_tools

_LOGIN = "the launcher and one agent per host run in addition to the logins, on the same cores"


@contextmanager
def _cluster(work: Work, count: int) -> Iterator[Cluster]:
    if why := missing_tools():
        raise RuntimeError(why)
    with Cluster(work.hosts(count)) as cluster:
        yield cluster


@contextmanager
def _whole(work: Work, count: int) -> Iterator[Sides]:
    """Yield the sides that measure `true` on every host, with all files cached, from the command to the prompt."""
    with _cluster(work, count) as cluster:
        ours = partial(start.whole, cluster, work.run())
        sides = {
            "ours": ours(),
            "ours_by_ssh": ours(SSH_CLIENT="openssh"),
            "ours_resident": ours(RESIDENT_S=300),
            **start.others(cluster),
        }
        yield [
            Lacking(name, turn) if isinstance(turn, str) else Contender(name, turn)
            for name, turn in sides.items()
        ]


@contextmanager
def _files(work: Work, payload: Payload, case: str) -> Iterator[Sides]:
    """Yield the sides that measure a workspace for sixteen hosts, from the command until it is published."""
    with _cluster(work, 16) as cluster:
        run = work.run()
        field = Field(run, cluster, payload)
        contenders = field.contenders(case, {"openssh_tar": field.tar, "rsync": field.rivals.rsync})
        before = len(f"{case}_{len(cluster.hosts)}_{payload.name}_")
        missing = [Lacking(figure[before:], why) for figure, why in run.report.missing.items()]
        yield [*missing, *(replace(each, name=each.name[before:]) for each in contenders)]
        field.close()


@contextmanager
def _first_step(work: Work, *, is_first: bool) -> Iterator[Sides]:
    """Yield the sides that measure the first batch of three trainers and three pservers."""
    with _cluster(work, 3) as cluster:
        both = FirstStep(cluster, work.scratch, interpreter())

        def prepare(turn: int) -> None:
            if is_first:
                both.forget()

        why = lacking("rsync")
        yield [
            Contender("ours", lambda turn: both.ours(), prepare),
            Lacking("rsync_ssh", why) if why else Contender("rsync_ssh", lambda turn: both.theirs(), prepare),
        ]


@contextmanager
def _lines(work: Work) -> Iterator[Sides]:
    """Yield the sides that measure the median line that three hosts print."""
    with _cluster(work, 3) as cluster:
        seconds = 1.0 if work.is_quick else 5.0
        yield [
            Contender("ours", lambda turn: by_ours(cluster, work.run(), seconds)),
            Contender("openssh", lambda turn: by_ssh(cluster, work.run(), seconds)),
        ]


@contextmanager
def _before_connecting(work: Work) -> Iterator[Sides]:
    """Yield the side that measures the launcher's CPU time until its first connection, with imports and conf.py."""
    with _cluster(work, 3) as cluster:
        yield [Contender("ours", lambda turn: 1e3 * start.agents(cluster, work.run())["before_cpu_s"])]


@contextmanager
def _logins(work: Work) -> Iterator[Sides]:
    """Yield the sides that measure the launcher's CPU time per host, until the agent has answered."""
    with _cluster(work, 16) as cluster:
        yield [
            Contender("ours", lambda turn: 1e3 * start.agents(cluster, work.run())["cpu_s"]),
            Contender("paramiko", lambda turn: 1e3 * start.bare_logins(cluster, work.run())),
        ]


def _command(count: int, turns: int) -> Row:
    return Row(
        f"whole_{count}",
        f"run `true` on {count} hosts (whole command, cached)",
        "s",
        partial(_whole, count=count),
        (
            Versus("ours", "openssh", 0.5),
            Versus("ours_by_ssh", "openssh"),
            Versus("ours_resident", "openssh"),
            Versus("ours", "bare_python"),
            Versus("ours", "pdsh"),
            Versus("ours", "parallel_ssh"),
            Versus("ours", "mpirun"),
            Versus("ours_resident", "mpirun"),
        ),
        {"ours_resident": 0.3} if count == 16 else None,
        turns=turns,
        why=_LOGIN,
    )


def _sent(name: str, what: str, payload: Payload, case: str, versus: Versus, why: str) -> Row:
    def sides(work: Work) -> AbstractContextManager[Sides]:
        return _files(work, payload, case)

    return Row(name, what, "s", sides, (versus,), turns=3, warm_up=False, why=why)


_SENDING = f"{_LOGIN}; every file is checked and published in a new directory by rename"
ROWS = (
    _command(3, 9),
    _command(16, 5),
    _command(64, 3),
    Row(
        "launcher_start",
        "CPU time of the launcher until its first connection, with imports",
        "ms",
        _before_connecting,
        at_most={"ours": 220.0},
        turns=9,
        why="imports, of which paramiko and its cryptography need two thirds",
    ),
    Row(
        "launcher_host",
        "CPU time of the launcher per host (16 hosts), from the first connection until the agent has answered",
        "ms",
        _logins,
        (Versus("ours", "paramiko"),),
        {"ours": 7.0},
        turns=9,
    ),
    _sent(
        "cold_2MB",
        "send 200 files (2 MB) to 16 hosts that have none of them",
        SMALL,
        COLD,
        Versus("ours", "openssh_tar", 0.67),
        f"{_SENDING}; the runtime is sent too",
    ),
    _sent(
        "unchanged_2MB",
        "send the same files again, unchanged",
        SMALL,
        UNCHANGED,
        Versus("ours", "rsync", 0.67),
        _SENDING,
    ),
    _sent(
        "unchanged_100MB",
        "send 100 MB to 16 hosts that already have these files",
        BIG,
        UNCHANGED,
        Versus("ours", "rsync", 0.67),
        _LOGIN,
    ),
    Row(
        "first_step",
        "first trained batch with 3 trainers and 3 pservers on 3 hosts, all files cached",
        "s",
        partial(_first_step, is_first=False),
        (Versus("ours", "rsync_ssh", 1.0),),
        turns=5,
        why="the launcher's 0.4 s of CPU and one agent per host; trainers start after pservers have answered",
    ),
    Row(
        "first_step_first_job",
        "the same on hosts that have never run a job",
        "s",
        partial(_first_step, is_first=True),
        (Versus("ours", "rsync_ssh", 0.91),),
        turns=3,
        warm_up=False,
        why="the same; and the runtime is checked file by file",
    ),
    Row(
        "line",
        "a line from `print` on one of 3 hosts to the screen (median)",
        "ms",
        _lines,
        (Versus("ours", "openssh"),),
        {"ours": 10.0},
        turns=3,
        warm_up=False,
    ),
)
