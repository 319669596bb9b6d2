# SPDX-License-Identifier: Apache-2.0
"""The faults: how each is injected into a job, and the checks of its outcome."""

from __future__ import annotations

import random
import signal
import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

from benchmarks.chaos.ground import LEASE_S, NODES, Ground, Job, first_error, kill, wait_for_beats
from tests.cluster.deadline import wait_for
from tests.cluster.host import HOME
from tests.cluster.launch import Launch

CLEAN_S = 15.0
BATCHES = 14  # per pass, of three passes
FLOOD = 9000  # files of trainer 0, more than a connection's window holds
_BEATS = 3 * BATCHES * NODES
_STARTED_S = _ENDED_S = 90.0
_PATH_TOLD_S = 30.0  # 10 on an otherwise idle machine
_SETTING_UP_S, _LATEST_S = 2.0, 8.0
_SIGNALS = {"INT": 130, "TERM": 143, "HUP": 129, "KILL": -int(signal.SIGKILL)}


@dataclass(frozen=True)
class Blow:
    """The fault for one job; the same seed and number give the same one.

    Attributes:
        fault: name of a fault.
        node: index among the three; the trainer and the parameter server of that number are on it.
        step: strike after this many steps of all trainers; signals to the launcher strike after `moment_s` instead.
        moment_s: seconds after the start of the launcher.
        cut_s: how long a link or a path is cut.
        number: name of the signal.
        hostile: whether trainers have grandchildren that escape.
    """

    fault: str
    node: int
    step: int
    moment_s: float
    cut_s: float
    number: str
    hostile: bool


@dataclass(frozen=True)
class Struck:
    """A job after its fault.

    Attributes:
        at: time.monotonic() of the strike, or of the moment when a link was restored.
        beats: steps of all trainers at that time.
    """

    ground: Ground
    launch: Launch
    blow: Blow
    at: float
    beats: int


class Missed(Exception):
    """The fault was not injected: the job had ended, or the target did not exist."""


def launcher_signalled(ground: Ground, launch: Launch, blow: Blow) -> None:
    """End the launcher by a signal, as a user or the machine does."""
    wait_for(
        "the moment", lambda: launch.age_s >= blow.moment_s or launch.poll() is not None, _STARTED_S, 0.005
    )
    pid = ground.launcher(launch)
    if pid is None or launch.poll() is not None:
        raise Missed
    kill(pid, signal.Signals[f"SIG{blow.number}"])


def process_struck(role: str, number: int, ground: Ground, launch: Launch, blow: Blow) -> None:
    """Send a signal to a trainer or a parameter server while it works."""
    _wait_for_step(ground, launch, blow)
    process = ground.process(f"{role}-{blow.node}", blow.node)
    if process is None:
        raise Missed
    kill(process.pid, number)


def agents_struck(which: tuple[int, ...], number: int, ground: Ground, launch: Launch, blow: Blow) -> None:
    """Send a signal to a node's agent (0), its guard (1), its watcher (2), or several of them."""
    _wait_for_step(ground, launch, blow)
    found = ground.agent(blow.node)
    if len(found) <= max(which):
        raise Missed
    for each in which:
        kill(found[each], number)


def disk_stalled(ground: Ground, launch: Launch, blow: Blow) -> None:
    """Block the submitter's disk for a while."""
    _wait_for_step(ground, launch, blow)
    ground.freeze()
    time.sleep(blow.cut_s)  # the fault itself
    ground.thaw()


def files_flooded(ground: Ground, launch: Launch, blow: Blow) -> None:
    """Have trainer 0 write many small files, and block the submitter's disk during their transfer."""
    first = ground.workspace / "output"
    wait_for("a collected file", lambda: any(first.rglob("file-*")) or launch.poll() is not None, _ENDED_S)
    if launch.poll() is None:
        disk_stalled(ground, launch, blow)


def rank_left(ground: Ground, launch: Launch, blow: Blow) -> None:
    """End one rank of a collective program with exit code 0 while the others continue."""
    _wait_for_step(ground, launch, blow)
    ground.host(blow.node).path(f"{HOME}/leave-{blow.node}").touch()


def link_cut(ground: Ground, launch: Launch, blow: Blow) -> None:
    """Disconnect the cable of a host for a while."""
    _wait_for_step(ground, launch, blow)
    host = ground.host(blow.node)
    host.cut()
    time.sleep(blow.cut_s)  # the fault itself
    host.heal()


def link_lost(ground: Ground, launch: Launch, blow: Blow) -> None:
    """Disconnect the cable of a host permanently."""
    _wait_for_step(ground, launch, blow)
    ground.host(blow.node).cut()


def path_cut(ground: Ground, launch: Launch, blow: Blow) -> None:
    """Drop packets from one host to another for a while; both can reach all others."""
    _wait_for_step(ground, launch, blow)
    host, other = ground.host(blow.node), ground.host(_next(blow.node))
    host.part(other.address)
    time.sleep(blow.cut_s)  # the fault itself
    host.rejoin(other.address)


def path_lost(ground: Ground, launch: Launch, blow: Blow) -> None:
    """Drop packets from one host to another permanently; both can reach all others."""
    _wait_for_step(ground, launch, blow)
    ground.host(blow.node).part(ground.host(_next(blow.node)).address)


def _next(node: int) -> int:
    return (node + 1) % NODES


def _wait_for_step(ground: Ground, launch: Launch, blow: Blow) -> None:
    if not wait_for_beats(ground, launch, blow.step, _STARTED_S):
        raise Missed


# -- verdicts: raise AssertionError, or return what the recovery time measures and its value


def ends_at_once(struck: Struck) -> tuple[str, float]:
    """Check that the launcher exits with the signal's code and no process of the job remains."""
    name = struck.blow.number
    expected = {
        _SIGNALS[name],
        -int(signal.Signals[f"SIG{name}"]),
    }  # before Python has installed its handlers: default action
    code = struck.launch.wait(_ENDED_S)
    # a job that finished a moment before ends successfully
    is_done = code == 0 and struck.beats >= _BEATS - NODES
    assert code in expected or is_done, f"exit code {code} after SIG{name}"
    struck.ground.wait_for_clean(CLEAN_S)
    took_s = time.monotonic() - struck.at
    return ("launcher killed to nodes clean" if name == "KILL" else "signal to exit"), took_s


def names_the_process(role: str, struck: Struck) -> tuple[str, float]:
    """Check that the job ends and names the failed process as the first cause."""
    code = struck.launch.wait(_ENDED_S)
    took_s = time.monotonic() - struck.at
    wanted = f"{role} {struck.blow.node} on {struck.ground.label(struck.blow.node)}"
    _check_cause(struck, code, 1, wanted)
    return f"{role} failure to end of job", took_s


def names_the_rank(struck: Struck) -> tuple[str, float]:
    """Check that the job ends and names the rank that left, with its exit code, as the first cause."""
    code = struck.launch.wait(_ENDED_S)
    took_s = time.monotonic() - struck.at
    _check_cause(struck, code, 1, f"trainer {struck.blow.node} on {struck.ground.label(struck.blow.node)}")
    assert "exit code 0" in first_error(struck.launch.output), first_error(struck.launch.output)
    return "exit of rank to end of job", took_s


def names_the_node(struck: Struck) -> tuple[str, float]:
    """Check that the job ends as lost and names the node, which cleans up even if it is unreachable."""
    code = struck.launch.wait(_ENDED_S)
    took_s = time.monotonic() - struck.at
    if struck.blow.fault == "link lost":
        struck.ground.wait_for_clean_without_cable(struck.blow.node, LEASE_S + CLEAN_S)
    _check_cause(struck, code, 5, f"node {struck.ground.label(struck.blow.node)}")
    return f"{struck.blow.fault} to end of job", took_s


def names_the_path(struck: Struck) -> tuple[str, float]:
    """Check that the job reports the path while waiting, then ends as lost with the path as the first cause."""
    at_fault, other = (struck.ground.label(node) for node in (struck.blow.node, _next(struck.blow.node)))
    ways = (f"{at_fault} cannot reach {other} at ", f"{other} cannot reach {at_fault} at ")
    wait_for("a report of the path", lambda: any(way in struck.launch.output for way in ways), _PATH_TOLD_S)
    took_s = time.monotonic() - struck.at
    code = struck.launch.wait(_ENDED_S)
    cause = first_error(struck.launch.output)
    assert code == 5, f"exit code {code}, expected 5; first error: {cause!r}"
    assert any(f"node {way.replace(' cannot', ': it cannot')}" in cause for way in ways), (
        f"the first error is {cause!r}, expected one of {ways}"
    )
    struck.ground.wait_for_clean(CLEAN_S)
    return "path lost to its report", took_s


def goes_on(of: str, expected: Callable[[], str], struck: Struck) -> tuple[str, float]:
    """Check that the job ends successfully, with the same bits as one without faults."""
    # a running step may end without the target, one per trainer
    wait_for_beats(struck.ground, struck.launch, struck.beats + NODES, _ENDED_S)
    took_s = time.monotonic() - struck.at
    code = struck.launch.wait(_ENDED_S)
    assert code == 0, f"exit code {code}"
    assert not first_error(struck.launch.output), "it reported a first error"
    assert struck.ground.parameters() == {expected()}, f"parameters: {struck.ground.parameters()}"
    struck.ground.wait_for_clean(CLEAN_S)
    return of, took_s


def brings_all_files(expected: Callable[[], str], struck: Struck) -> tuple[str, float]:
    """Check the same as `goes_on`, and that every file and line arrives unchanged."""
    code = struck.launch.wait(_ENDED_S)
    took_s = time.monotonic() - struck.at
    assert code == 0, f"exit code {code}"
    assert struck.ground.parameters() == {expected()}, f"parameters: {struck.ground.parameters()}"
    output = struck.ground.workspace / "output"
    wrong = [
        path
        for number in range(FLOOD)
        if _content(path := output / f"{number // 1000}/file-{number}") != f"{number}\n".encode()
    ]
    wrong += [
        path
        for number in range(FLOOD // 1000)
        if _content(path := output / f"large-{number}") != str(number % 10).encode() * 3_000_000
    ]
    assert not wrong, f"{len(wrong)} files differ from what the trainers wrote, first {wrong[0]}"
    check_lines(struck)
    struck.ground.wait_for_clean(CLEAN_S)
    return "disk restored to end of job, with all files", took_s


def loses_no_line(of: str, expected: Callable[[], str], struck: Struck) -> tuple[str, float]:
    """Check the same as `goes_on`, and that the collected logs contain every step of every trainer."""
    found = goes_on(of, expected, struck)
    check_lines(struck)
    return found


def check_lines(struck: Struck) -> None:
    """Raise AssertionError unless the collected logs of the trainers contain each step exactly once."""
    logs = b"".join(path.read_bytes() for path in struck.ground.workspace.rglob("log/**/train*.log"))
    missing = [
        line
        for each in range(3 * BATCHES * NODES)
        if logs.count(
            line
            := f"pass {each // NODES // BATCHES}, batch {each // NODES % BATCHES}, trainer {each % NODES}\n".encode()
        )
        != 1
    ]
    assert not missing, (
        f"{len(missing)} lines are not exactly once in the collected logs, first {missing[0]!r}"
    )


def _content(path: Path) -> bytes:
    return path.read_bytes() if path.is_file() else b"not there"


def _check_cause(struck: Struck, code: int, expected: int, wanted: str) -> None:
    cause = first_error(struck.launch.output)
    assert code == expected, f"exit code {code}, expected {expected}; first error: {cause!r}"
    assert cause.startswith(wanted), f"the first error is {cause!r}, expected {wanted}"
    struck.ground.wait_for_clean(LEASE_S + CLEAN_S)


@dataclass(frozen=True)
class Fault:
    """A kind of fault.

    Attributes:
        strike: injects the fault, or raises Missed.
        check: see above.
        share: relative frequency in the draw.
        only_ssh: whether it needs hosts with cables.
        entry: the program of the job.
        files: number of files that trainer 0 writes at its end.
    """

    strike: Callable[[Ground, Launch, Blow], None]
    check: Callable[[Struck], tuple[str, float]]
    share: int = 1
    only_ssh: bool = False
    entry: str = "train.py"
    files: int = 0

    def job(self, hostile: bool) -> Job:
        """Return the job for this fault."""
        return Job(self.entry, BATCHES, self.files, hostile)


def faults(expected: Callable[[], str]) -> Mapping[str, Fault]:
    """Return all faults by name; `expected` returns the digest of a job without faults."""

    def process(role: str, name: str) -> Callable[[Ground, Launch, Blow], None]:
        number = int(signal.Signals[f"SIG{name}"])
        return lambda ground, launch, blow: process_struck(role, number, ground, launch, blow)

    def agents(*which: int, name: str = "KILL") -> Callable[[Ground, Launch, Blow], None]:
        number = int(signal.Signals[f"SIG{name}"])
        return lambda ground, launch, blow: agents_struck(which, number, ground, launch, blow)

    def well(of: str) -> Callable[[Struck], tuple[str, float]]:
        return lambda struck: goes_on(of, expected, struck)

    def trainer(struck: Struck) -> tuple[str, float]:
        return names_the_process("trainer", struck)

    return {
        "launcher signalled": Fault(launcher_signalled, ends_at_once, share=8),
        "trainer killed": Fault(process("trainer", "KILL"), trainer, share=2),
        "trainer crashed": Fault(process("trainer", "SEGV"), trainer),
        "trainer stopped": Fault(process("trainer", "STOP"), trainer),
        "pserver killed": Fault(process("pserver", "KILL"), well("pserver killed to next batch"), share=4),
        "pserver stopped": Fault(process("pserver", "STOP"), well("pserver stopped to next batch")),
        "agent killed": Fault(agents(0), names_the_node),
        "guard killed": Fault(agents(1), names_the_node),
        "agent and guard killed": Fault(agents(1, 0), names_the_node),
        "all agents killed": Fault(agents(2, 1, 0), names_the_node),
        "all agents stopped": Fault(agents(2, 1, 0, name="STOP"), names_the_node),
        "rank left": Fault(rank_left, names_the_rank, entry="ranks.py"),
        "disk stalled": Fault(
            disk_stalled, lambda struck: loses_no_line("disk restored to next batch", expected, struck)
        ),
        "files flooded": Fault(files_flooded, lambda struck: brings_all_files(expected, struck), files=FLOOD),
        "link cut": Fault(link_cut, well("link restored to next batch"), share=4, only_ssh=True),
        "link lost": Fault(link_lost, names_the_node, only_ssh=True),
        "path cut": Fault(path_cut, well("path restored to next batch"), share=2, only_ssh=True),
        "path lost": Fault(path_lost, names_the_path, only_ssh=True),
    }


def blows(seed: int, runs: int, where: str) -> Iterator[Blow]:
    """Yield the faults, the same for the same seed and place; every second one has hostile grandchildren."""
    dice = random.Random(f"{seed}/{where}")
    table = {name: fault for name, fault in faults(str).items() if where == "ssh" or not fault.only_ssh}
    names, shares = list(table), [fault.share for fault in table.values()]
    for number in range(runs):
        yield Blow(
            dice.choices(names, shares)[0],
            dice.randrange(NODES),
            dice.randrange(1, _BEATS - 4 * NODES),
            round(dice.uniform(0.05, dice.choice((_SETTING_UP_S, _LATEST_S))), 3),
            round(dice.uniform(0.2, LEASE_S - 1), 1),
            dice.choice(list(_SIGNALS)),
            number % 2 == 1,
        )
