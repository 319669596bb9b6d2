# SPDX-License-Identifier: Apache-2.0
"""Runs the phases of a job: connect, check, dispatch, start, watch, stop, collect.

Phases run sequentially on the main thread; while one waits, the loop handles every event. After any end of a phase
(success, an error, a signal), the shutdown runs and reports what remains.
"""

from __future__ import annotations

import contextlib
import os
import queue
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from paddle_cluster.config import entry as entries
from paddle_cluster.config.settings import Settings
from paddle_cluster.control.control import Control
from paddle_cluster.control.views import shortened
from paddle_cluster.errors import ExitCode, LauncherError, PreflightError
from paddle_cluster.files.collect_limits import CollectLimits
from paddle_cluster.files.collector_thread import CollectorThread
from paddle_cluster.files.payload import Payload
from paddle_cluster.job import checkpoint_choice, failure_report
from paddle_cluster.job.causes import Conclusion, first_cause, hidden_errors, judge, last_error
from paddle_cluster.job.context import JobContext
from paddle_cluster.job.failure_report import report
from paddle_cluster.job.handlers.files import DispatchHandlers
from paddle_cluster.job.handlers.nodes import NodeHandlers
from paddle_cluster.job.handlers.processes import ProcessHandlers
from paddle_cluster.job.handlers.stop import Stopped
from paddle_cluster.job.handlers.table import handlers
from paddle_cluster.job.recovery import JobFailed
from paddle_cluster.job.shutdown import Shutdown, Undone
from paddle_cluster.job.watch import Watch
from paddle_cluster.nodes import preflight
from paddle_cluster.nodes.connector import Connector
from paddle_cluster.nodes.examination import Examination
from paddle_cluster.nodes.failure import LEFT_OUT, Failure, FailureKind
from paddle_cluster.nodes.loop import Loop
from paddle_cluster.nodes.node_record import NodeRecord
from paddle_cluster.nodes.phases import PhaseClock
from paddle_cluster.nodes.roster import Roster
from paddle_cluster.plan import checkpoints, plan_text
from paddle_cluster.plan.plan import Plan
from paddle_cluster.screen.console import Console
from paddle_cluster.screen.job_log import JobLog
from paddle_cluster.system import signals
from paddle_cluster.system.installation import PROGRAM
from paddle_cluster.text.sizes import counted, some

_MOST_LISTED = 4
_AFTER_STOP = {
    ExitCode.INTERRUPTED: "; Ctrl+C again kills all processes immediately",
    ExitCode.HANGUP: "; a job started with --detach continues when its terminal closes",
}
_PREFLIGHT = "preflight\n  "
_TOLD_ON_SCREEN = frozenset((ExitCode.USAGE, ExitCode.PREFLIGHT))  # nothing was started or collected


class Job:
    """A job in execution: one run of a plan."""

    def __init__(
        self,
        plan: Plan,
        collected: Path,
        payload: Payload,
        connector: Connector,
        events: queue.SimpleQueue[Any],
        console: Console,
        clock: PhaseClock,
        control: Control,
    ) -> None:
        self._plan = plan
        self._settings = plan.settings
        self._payload = payload
        self._console = console
        self._clock = clock
        self._control = control
        self._key = os.urandom(32).hex()
        self._collected = collected
        self._collector = CollectorThread(self._collected, events, self._collect_limits())
        self._job_log = JobLog(self._settings.limits.log_limit_mb << 20)
        console.watch(self._job_log.take)
        self._roster = Roster({node.node_id: NodeRecord(node) for node in plan.nodes}, self._collected)
        self._context = JobContext(
            plan, payload, self._roster, connector, events, self._collector, console, clock, self._job_log
        )
        self._to_dispatch = DispatchHandlers(self._context)
        self._to_nodes = NodeHandlers(self._context, self._to_dispatch)
        to_processes = ProcessHandlers(self._context, self._to_dispatch)
        table = handlers(self._context, self._to_nodes, self._to_dispatch, to_processes)
        table = control.observe(table, self._roster)
        self._loop = Loop(events, self._roster, self._settings.limits.lease_s, table)
        self._shutdown = Shutdown(self._context, self._loop, self._to_nodes, self._enter)

    def _collect_limits(self) -> CollectLimits:
        limits = self._settings.limits
        return CollectLimits(limits.collect_limit_gb << 30, limits.collect_limit_files)

    def run(self) -> ExitCode:
        """Run all phases and return the exit code; every exit path goes through the shutdown."""
        code, cause, lines, has_failed = ExitCode.DONE, "", list[str](), False
        labels = {record.node.node_id: record.name for record in self._roster.all()}
        self._console.nodes(labels, self._settings.job.name)
        self._console.note(plan_text.opening(self._plan))
        package = self._settings.job.package
        place = _identity(package)
        watch = Watch(self._context, self._loop, self._key, self._enter)
        try:
            self._arrive()
            self._dispatch()
            watch.run()
        except Stopped as stop:
            code = stop.event.exit_code
            self._console.note(f"stopping: {stop}{_AFTER_STOP.get(code, '')}")
            self._context.stopping = True
            with contextlib.suppress(LauncherError):  # of a node that is lost now
                watch.explain_silence(lambda: self._context.forced)
        except JobFailed:
            code, has_failed = first_cause(self._roster.failures).exit_code, True
        except LauncherError as error:
            code, cause = error.exit_code, _cause(error)
            lines = _explain_error(error, self._roster, self._plan.job_id)
        undone = self._shutdown.run()
        has_saved = any(record.traces.has_saved for record in self._roster.all())
        unnamed = self._plan.job_id if has_saved and not self._settings.job.saving.collect else ""
        hint = checkpoints.resume_hint(self._settings, unnamed)
        job = self._settings.job
        if has_failed:  # the shutdown may report further failures
            conclusion = judge([*self._roster.failures, *self._roster.late])
            cause = failure_report.headline(conclusion.cause)
            others = [each for each in self._roster.all() if each.name != conclusion.cause.node]
            written = [(name, each.name) for each in others for name in each.traces.uncollected]
            what = last_error(conclusion.cause) or conclusion.cause.what
            left = [(each.process.rank, each.left_at) for each in self._roster.trainers() if each.left_at]
            advice = failure_report.early_exits_advice(conclusion.cause, left)
            advice = advice or failure_report.local_advice(what, job.entry, job.package, written)
            lines = _explain(conclusion, self._roster, self._plan.job_id, code, advice)
            lines += [f"  {line}" for line in hint if code is ExitCode.LOST or unnamed]
        else:
            ended = [(one.process.name, one.last_lines) for one in self._roster.trainers() if one.left_at]
            lines += hidden_errors(ended, entries.shell_lines(job.entry, job.package))
            lines += [*_warnings(self._roster), *unmatched(self._roster, self._settings.monitoring.progress)]
            lines += unsaved(self._roster, self._settings)
            lines += _unmatched(self._collector.unmatched(self._settings.job.saving.collect))
            lines += _left_on_nodes(self._roster) if self._settings.job.workspace is None else []
            lines += hint if unnamed and code is ExitCode.DONE else []
        if _identity(package) != place:
            lines.append(
                f"WARNING: {package} was removed or renamed while the job ran; a new one has its results"
            )
        code = self._weigh(code, undone)
        if code in signals.EXIT_CODES.values():
            self._console.note("\n".join(_stopped_by_hand(self._roster, hint)))
        self._console.times(self._clock.times())
        self._console.summary(
            job_id=self._plan.job_id,
            code=code,
            cause=cause,
            logs=self._collected / "log" if any(r.traces.used for r in self._roster.all()) else None,
            output=self._collected / "output" if self._collector.has_output else None,
            lines=[
                *undone.excused,
                *shortened(undone.unclean, self._plan.job_id),
                *shortened(undone.missing, self._plan.job_id),
                *lines,
                *discards(self._roster),
                *idle(self._roster),
            ],
        )
        self._job_log.close()
        self._control.end(code, (*undone.unclean, *undone.missing), lines)
        return code

    def _weigh(self, code: ExitCode, undone: Undone) -> ExitCode:
        """Return the exit code after the shutdown; a failed job retains the code of its failure."""
        if code is not ExitCode.DONE and code not in signals.EXIT_CODES.values():
            return code
        if undone.unclean:
            return ExitCode.NOT_CLEAN
        asked = self._context.asked_again
        if code is ExitCode.DONE and asked is not None:  # its results were being collected
            return asked.exit_code
        if code is ExitCode.DONE and (undone.missing or not undone.is_proven):
            return ExitCode.NOT_CLEAN  # exit code 0 means that every file listed by a node was verified
        return code

    # Phases

    def _enter(self, phase: str) -> None:
        self._clock.enter(phase)
        self._console.phase(phase)

    def _arrive(self) -> None:
        """Connect and check.

        Raises:
            PreflightError: a node cannot take part; nothing was copied or started.
        """
        connect = self._to_nodes.connect
        examined = Examination(self._plan, self._roster, self._loop, connect, self._enter).run()
        result = examined.result
        self._console.table(preflight.HEADERS, result.rows, result.red)
        if len(examined.replies) > len(result.rows):
            others = len(examined.replies) - len(result.red)
            self._console.note(
                f"({others} of {len(examined.replies)} nodes are ok; `{PROGRAM} doctor` shows all nodes)"
            )
        for remark in result.remarks:
            self._console.note(remark)
        if result.problems:
            raise PreflightError(_PREFLIGHT + "\n  ".join(result.problems))
        checkpoint_choice.choose(self._plan, self._roster, self._loop, self._console, self._enter)
        if self._settings.job.bootstrap:
            self._enter("bootstrap")
            from paddle_cluster.job import environments  # imports packaging, which other jobs do not need

            prepared = environments.prepare(self._plan, self._roster, self._loop, self._console)
            if prepared.problems:
                raise PreflightError(_PREFLIGHT + "\n  ".join(prepared.problems))
            self._payload.environments = prepared.environments

    def _dispatch(self) -> None:
        self._enter("dispatch")
        for record in self._roster.all():
            self._to_dispatch.offer(record)
        self._loop.until(self._to_dispatch.is_over)
        self._console.note(self._to_dispatch.finish())
        _forget_earlier(self._collected / "log")
        for earlier in (self._collected / "log").glob("node_*"):  # of a job that may have had more nodes
            if earlier.name.removeprefix("node_").isdigit():
                _remove(earlier)
        self._job_log.begin(self._collected / "log" / "job.log")


def _remove(earlier: Path) -> None:
    """Remove the results of an earlier job, without following a link."""
    if earlier.is_symlink() or not earlier.is_dir():
        with contextlib.suppress(OSError):
            earlier.unlink()
    else:
        import shutil  # imports compression; the first job in a workspace does not need it

        shutil.rmtree(earlier, ignore_errors=True)


def _identity(directory: Path | None) -> tuple[int, int] | None:
    """Return the device and inode of a directory; None if there is none."""
    try:
        found = None if directory is None else os.stat(directory)
    except OSError:
        return None
    return found and (found.st_dev, found.st_ino)


def _cause(error: LauncherError) -> str:
    """Return the first line of an error; preflight may have found several."""
    first, *more = str(error).removeprefix(_PREFLIGHT).splitlines() or [""]
    return first.strip() + (f" (and {len(more)} more)" if more and isinstance(error, PreflightError) else "")


def _explain(conclusion: Conclusion, roster: Roster, job_id: str, code: ExitCode, advice: str) -> list[str]:
    """Return the lines for a failed job and write `failure.json`; called after the shutdown, which may add failures."""
    log_dir = roster.collected / "log"
    problem = failure_report.write(
        log_dir,
        job_id=job_id,
        code=code,
        conclusion=conclusion,
        incidents=roster.incidents,
        stacks={name: record.stacks for name, record in roster.processes.items() if record.stacks},
        advice=advice,
    )
    lines = report(conclusion, [incident.text for incident in roster.incidents], advice)
    return [*lines, f"  {problem}" if problem else f"  details (JSON): {log_dir / failure_report.NAME}"]


def _explain_error(error: LauncherError, roster: Roster, job_id: str) -> list[str]:
    """Return the lines for an error of the launcher; write `failure.json` only if something was sent to nodes."""
    lines = f"FIRST ERROR: {error}".split("\n")
    if error.exit_code in _TOLD_ON_SCREEN:
        return lines
    node = str(getattr(error, "node", ""))
    cause = Failure(FailureKind.REFUSED, node, "", str(error).removeprefix(f"{node}: "), at=time.time())
    problem = failure_report.write(
        roster.collected / "log",
        job_id=job_id,
        code=error.exit_code,
        conclusion=judge([cause]),
        incidents=roster.incidents,
        stacks={},
    )
    return [*lines, f"  {problem}"] if problem else lines


def _warnings(roster: Roster) -> list[str]:
    """Return the lines for a job that finished without some of its initial participants."""
    lost = [incident.text for incident in roster.incidents if incident.kind == LEFT_OUT]
    return [f"WARNING: {text}" for text in lost]


def _unmatched(patterns: Sequence[str]) -> list[str]:
    """Return a warning, as lines, about patterns of --collect that match no file."""
    named = ", ".join(map(repr, patterns))
    return [
        f"WARNING: --collect: {named} matched no file on any node: save files below the directory "
        "PADDLE_CHECKPOINT_DIR; patterns are relative to it"
    ] * bool(patterns)


def _left_on_nodes(roster: Roster) -> list[str]:
    """Return a warning, as lines, about new files in job directories that are not collected."""
    found = [record for record in roster.all() if record.traces.uncollected]
    names = [f"{name} on {record.name}" for record in found for name in record.traces.uncollected]
    place = f"{found[0].node.job_dir} on {found[0].name}" if found else ""
    step = (
        "save results on rank 0, or below the directory PADDLE_CHECKPOINT_DIR with --collect=PATTERN"
        if any(name.startswith("output/") for name in names)
        else "write results to output/"
    )
    return [
        f"WARNING: not copied back: {some(names, _MOST_LISTED)}. Only node 0's output/ and files that match --collect "
        f"are: {step}. The job directories, such as {place}, stay there until later jobs or `clean` remove them"
    ] * bool(names)


def _stopped_by_hand(roster: Roster, hint: Sequence[str]) -> list[str]:
    """Return what remains of a job that its user stopped, and how it can be continued."""
    used = [record for record in roster.all() if record.traces.used]
    if not used:
        return ["no process had been started on any node"]
    left = [record for record in used if not record.traces.stopped or record.traces.left]
    where = f"{len(used) - len(left)} of {counted(len(used), 'node')}" if left else counted(len(used), "node")
    return [f"all processes on {where} have exited", *hint]


def discards(roster: Roster) -> list[str]:
    """Format the number of gradients discarded per trainer, largest first, as one line; no line if there are none."""
    found = [(one.discarded, one.pushed, trainer) for trainer, one in roster.gradients().items()]
    found = sorted((one for one in found if one[0]), key=lambda one: (-one[0], one[2]))
    if not found:
        return []
    listed, rest = found[:_MOST_LISTED], found[_MOST_LISTED:]
    parts = [f"trainer {trainer}: {discarded} of {pushed}" for discarded, pushed, trainer in listed]
    parts[0] += " gradients were discarded as too old"
    if rest:
        discarded, pushed, _ = map(sum, zip(*rest, strict=True))
        parts.append(f"{counted(len(rest), 'more trainer')}: {discarded} of {pushed}")
    return ["; ".join(parts)]


def idle(roster: Roster) -> list[str]:
    """Return a warning that names the trainers that processed no samples, as one line; no line if there are none."""
    found = [name for name, one in roster.processes.items() if not one.has_samples]
    if not found:
        return []
    return [
        f"WARNING: {some(found, _MOST_LISTED)} of {counted(len(roster.trainers()), 'trainer')} received no samples: "
        "give each trainer its own part of the data"
    ]


def unmatched(roster: Roster, patterns: Sequence[str]) -> list[str]:
    """Return a warning, as lines, if trainers wrote output but neither PROGRESS nor a report yielded a number."""
    trainers = roster.trainers()
    has_numbers = any(one.facts.progress or one.facts.metrics for one in trainers)
    if not patterns or has_numbers or not any(one.output is not None for one in trainers):
        return []
    return [
        "WARNING: PROGRESS in conf.py matched no line of the trainers: compare its patterns with their logs "
        f"(`{PROGRAM} help progress`)"
    ]


def unsaved(roster: Roster, settings: Settings) -> list[str]:
    """Return a warning, as lines, if trainers trained fewer batches than the period of the pservers' checkpoints.

    A trainer that was started again has counted only a part of its batches.
    """
    flags = dict(settings.job.flags) if settings.job.mode.has_pserver_command else {}
    # without synchronization, the batches of all trainers count; pservers then report their pushes
    count = sum if any(one.facts.pushes for one in roster.processes.values()) else max
    steps = count([one.facts.progress.step for one in roster.trainers() if one.facts.progress] or [0])
    period = int(flags.get("checkpoint_period", "0"))
    started = [one.restarts for one in roster.trainers()]
    if any(started) or not 0 < steps < period:
        return []
    return [
        f"WARNING: no checkpoint was written: --checkpoint_period={period}, but trainers trained only "
        f"{counted(steps, 'batch')}; give a smaller number"
    ]


def _forget_earlier(log_dir: Path) -> None:
    """Remove the `failure.json` that an earlier job wrote."""
    (log_dir / failure_report.NAME).unlink(missing_ok=True)
