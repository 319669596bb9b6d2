# SPDX-License-Identifier: Apache-2.0
"""Creates the engines of one process and saves their state: in memory for the next process, and in checkpoints.

Both are copied in the engine's thread, in small steps; other threads write the copies. While trainers keep the engine's
thread busy, copying takes at most a fixed share of its time; while there are no requests, it can take all of it.
"""

from __future__ import annotations

import logging
import math
import re
import time
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from pathlib import Path

import numpy as np
import numpy.typing as npt

from paddle.errors import CheckpointError, ConfigError, PserverError
from paddle.optim.spec import optimizer_of, rule_of
from paddle.pserver.durable.checkpoint.folder import Checkpoint, checking, is_blank, newest
from paddle.pserver.durable.checkpoint.format import Manifest
from paddle.pserver.durable.checkpoint.restore import load
from paddle.pserver.durable.checkpoint.series import Periodic, Series
from paddle.pserver.durable.memory_copy import SavedState
from paddle.pserver.durable.process_state import Revival
from paddle.pserver.server.engine import Engine, Reply
from paddle.pserver.server.service import EngineOptions
from paddle.pserver.store.observer import Elements
from paddle.pserver.store.store import Store
from paddle.pserver.wire.configuration import Configuration
from paddle.pserver.wire.message import Message
from paddle.pserver.wire.verbs import PushPull
from paddle.reader.tasks import TaskQueues
from paddle_node.contract.classes import dataclass, regex, replace

_log = logging.getLogger(__name__)

_REST = 9.0  # multiple of the time that copying a slice took, if there are requests
_IDLE_S = 0.002  # without a request
_NOTHING_S = 0.0002
_POLL_S = 0.002
_NAMED = regex(r"(\d+)(?:\.([\w.-]+))?", re.ASCII)  # a checkpoint: its batch, and the job that wrote it


@dataclass(frozen=True, slots=True)
class Safety:
    """The settings for saved state: what is saved, where, and which checkpoint is loaded.

    Attributes:
        state: in-memory folder for this server's next process, or None.
        checkpoints: folder for checkpoints, or None.
        period: number of batches between checkpoints; 0 means no checkpoints are written.
        keep: number of checkpoints to keep.
        resume: which checkpoint to load: "" for none; "latest"; a version, optionally followed by a dot and the id of
            the job that wrote it; or "auto" for the latest if there is one.
        job: id of the job.
    """

    state: Path | None = None
    checkpoints: Path | None = None
    period: int = 0
    keep: int = 3
    resume: str = ""
    job: str = ""

    @classmethod
    def read(cls, flags: Mapping[str, object], job_id: str) -> Safety:
        """Return the settings for saved state from the flags of `paddle pserver`.

        Raises:
            ConfigError: the flags contradict each other.
        """
        folder, resume = str(flags["checkpoint_dir"]), str(flags["resume"])
        period, keep = (int(str(flags[name])) for name in ("checkpoint_period", "checkpoint_keep"))
        if period and not folder:
            raise ConfigError(
                "flag --checkpoint_period needs --checkpoint_dir, a directory that outlives the job"
            )
        if resume and not folder:
            raise ConfigError("flag --resume needs --checkpoint_dir, the directory of the checkpoints")
        if resume not in ("", "latest", "auto") and not _NAMED.fullmatch(resume):
            raise ConfigError(f"flag --resume: expected latest, auto or a batch number, got {resume!r}")
        job = re.sub(r"[^A-Za-z0-9_-]", "_", job_id)
        return cls(None, Path(folder) if folder else None, period, keep, resume, job)


class Safekeeper:
    """The keeper of one engine's state; see `service.Keeper`. Belongs to the engine's thread."""

    def __init__(self, safety: Safety, clock: Callable[[], float] = time.monotonic) -> None:
        self._safety, self._clock = safety, clock
        self._kept = SavedState(safety.state, clock) if safety.state is not None else None
        self._periodic: Periodic | None = None
        self._series: list[Series] = []
        self._engine: Engine | None = None
        self._replaying = False
        self._copy_soon = False  # True if the journal needs a checkpoint that may be removed later
        self._next_at = self._idle_at = 0.0
        self._handled = 0
        self.doing = ""

    @property
    def unsaved(self) -> str:
        """Return the reason why the last due checkpoint is missing, or an empty string; thread-safe."""
        return "" if self._periodic is None else self._periodic.unsaved

    @property
    def is_behind(self) -> bool:
        """Return whether a checkpoint is in progress or pending. Thread-safe."""
        return self._periodic is not None and self._periodic.is_behind

    def recover(self, engine: Engine) -> int:
        """Start saving a new engine's state; restore the state of the server's earlier process, if any.

        Returns:
            The number of batches that the engine has applied.

        Raises:
            PaddleError: the state of the earlier process is unusable.
        """
        self._engine = engine
        if self._kept is None:
            return 0
        self._replaying = True
        self.doing = "restoring the state of this server's previous process"
        requests = self._kept.recover(engine, self._watch)
        for request in requests:
            engine.handle(b"", _for_new_process(request))
        engine.miss_everyone()
        self._replaying = False
        self.doing = ""
        return engine.version

    def adopt(self, store: Store, configuration: Configuration) -> bool:
        """Start saving a new store, after resuming it from a checkpoint if there is one. See `Keeper.adopt`."""
        is_resumed = self._begins_with_a_checkpoint()
        if is_resumed:
            try:
                self._resume(store, configuration)
            finally:
                self.doing = ""
        self._watch(store, configuration)
        self._copy_soon = is_resumed
        return is_resumed

    def record(self, message: Message) -> None:
        """Record an executed request that changed the state; see `Keeper.record`."""
        if self._replaying or self._engine is None:
            return
        if self._kept is not None:
            is_free = self._periodic is None or not self._periodic.is_copying
            self._kept.record(message, self._engine, copy=self._copy_soon, may_copy=is_free)
            self._copy_soon = self._copy_soon and not (self._engine.is_quiet and is_free)
        self._begin_what_is_due()

    def _begin_what_is_due(self) -> bool:
        """Begin a checkpoint if one is due."""
        if self._periodic is None or self._engine is None or not self._engine.is_quiet:
            return False
        if not self._periodic.fall_due():
            return False
        if self._kept is not None:
            self._kept.give_way()
        self._periodic.begin(self._engine.facts())
        return True

    def background(self) -> float:
        """Do a small part of the deferred work; see `Keeper.background`."""
        now = self._clock()
        handled = 0 if self._engine is None else self._engine.handled
        is_busy, self._handled = handled != self._handled, handled
        if is_busy:
            self._idle_at = now + _IDLE_S
        if now < min(self._next_at, self._idle_at):
            return min(self._next_at, self._idle_at) - now
        any_busy = False
        for each in (self._kept, self._periodic):
            if each is not None and each.advance():
                any_busy = True
        if not self._replaying and self._begin_what_is_due():
            any_busy = True
        if not any_busy:
            return math.inf
        done = self._clock()
        if done - now < _NOTHING_S:
            # nothing to copy until the writing thread has made progress
            self._next_at = self._idle_at = done + _POLL_S
        else:
            self._next_at = done + _REST * (done - now)
        return max(min(self._next_at, self._idle_at) - done, 0.0)

    def close(self) -> None:
        """Cancel saves in progress; complete ones are not deleted."""
        if self._periodic is not None:
            self._periodic.close()

    def dense(self, elements: Elements) -> None:
        """Inform all series of checkpoints that these dense elements are about to change."""
        for series in self._series:
            series.dense(elements)

    def rows(self, name: str, rows: npt.NDArray[np.int64]) -> None:
        """Inform all series of checkpoints that these rows of a parameter are about to change."""
        for series in self._series:
            series.rows(name, rows)

    def _watch(self, store: Store, configuration: Configuration) -> None:
        safety = self._safety
        self._series.clear()
        if self._kept is not None:
            self._series.append(self._kept.adopt(store, configuration))
        if safety.checkpoints is not None and safety.period:
            self._periodic = Periodic(
                safety.checkpoints, safety.period, safety.keep, safety.job, store, configuration
            )
            self._series.append(self._periodic.series)
        store.be_watched(self)

    def _begins_with_a_checkpoint(self) -> bool:
        safety = self._safety
        if safety.resume == "auto" and safety.checkpoints is not None and is_blank(safety.checkpoints):
            _log.warning("no checkpoint in %s yet: the job starts from scratch", safety.checkpoints)
            return False
        return bool(safety.resume)

    def _resume(self, store: Store, configuration: Configuration) -> None:
        assert self._safety.checkpoints is not None
        started = self._clock()
        named = _NAMED.fullmatch(self._safety.resume)
        version, job = (int(named[1]), named[2]) if named else (None, None)
        c = configuration
        self.doing = "searching for a checkpoint"

        def report(version: int, text: str) -> None:
            self.doing = f"loading the checkpoint of batch {version}: {text}"

        found = newest(
            self._safety.checkpoints,
            version,
            (c.server, c.num_dense + c.num_sparse),
            accept=lambda each: _load(store, each, configuration, partial(report, each.version)),
            job=job,
        )
        _log.info(
            "resumed from the checkpoint of batch %d in %s, pass %d, in %.2f s",
            found.version,
            found.root,
            store.pass_id,
            self._clock() - started,
        )


def _for_new_process(request: Message) -> Message:
    """Return a request modified so that its answer contains values instead of their location in shared memory."""
    push = request.record
    return request._replace(record=push._replace(in_place=False)) if isinstance(push, PushPull) else request


def _load(
    store: Store, found: Checkpoint, configuration: Configuration, report: Callable[[str], None]
) -> None:
    """Load a checkpoint into a store, verifying its files while they are read, and those of other servers meanwhile.

    Raises:
        CheckpointError: a file is damaged; the store is unusable until another checkpoint is loaded.
        PserverError: the checkpoint is complete, but does not match the store.
    """
    mine = _parts_for(found, configuration)
    _check_rules(Configuration.from_text(mine[0].configuration), configuration)
    own = [file for part in mine for file in part.files]
    others = checking(found.root, [file for file in found.files if file not in own])
    try:
        load(store, found.root, mine, report)
    except CheckpointError as error:
        others.finish()
        checking(found.root, own).finish()
        raise PserverError(str(error)) from None
    others.finish()


def _check_rules(then: Configuration, now: Configuration) -> None:
    """Check that saved states belong to the same update rules, which equal names and shapes do not imply.

    Raises:
        PserverError: the rule of a parameter has changed, and at least one of the two rules has state.
    """
    before = {parameter.name: parameter for parameter in then.all_parameters}
    for parameter in now.all_parameters:
        earlier = before.get(parameter.name)
        if earlier is None or parameter.static:
            continue
        old, new = optimizer_of(earlier, then.optimizer), optimizer_of(parameter, now.optimizer)
        kept = [
            [*rule_of(each).states(has.momentum), *rule_of(each).row_keeps]
            for each, has in ((old, earlier), (new, parameter))
        ]
        if old.rule != new.rule and any(kept):
            raise PserverError(
                f"the checkpoint does not fit this model: parameter {parameter.name} was trained with "
                f"{old.rule}, whose states differ from those of {new.rule}; resume with {old.rule}, "
                "or start from scratch"
            )


def _parts_for(found: Checkpoint, configuration: Configuration) -> list[Manifest]:
    """Return the parts that a server needs: its own if the number of servers is unchanged, else all parts."""
    for mine in found.parts:
        then = Configuration.from_text(mine.configuration)
        if mine.server == configuration.server and (then.num_dense, then.num_sparse) == (
            configuration.num_dense,
            configuration.num_sparse,
        ):
            return [mine]
    return list(found.parts)


@dataclass(frozen=True, slots=True)
class Guarded:
    """An engine with its task queues, and the keeper that saves its state."""

    engine: Engine
    keeper: Safekeeper | None
    tasks: TaskQueues

    def recover(self, number: int) -> list[Reply]:
        """Restore an earlier process's state in the engine of the given port; return an empty list of replies.

        Raises:
            PaddleError: the state of the earlier process is unusable.
        """
        started = time.monotonic()
        version = 0 if self.keeper is None else self.keeper.recover(self.engine)
        if version:
            took_s = time.monotonic() - started
            _log.info(
                "parameterServer[%d]: restored the state of batch %d in %.2f s", number, version, took_s
            )
        return []

    def close(self) -> None:
        """Cancel the keeper's save in progress, and close the journal of tasks."""
        if self.keeper is not None:
            self.keeper.close()
        self.tasks.close()


def guarded(
    options: EngineOptions, safety: Safety, stamps: Sequence[int], revival: Revival | None
) -> list[Guarded]:
    """Create one engine per stamp; the caller must then call `recover` on each.

    Raises:
        PaddleError: the state of an earlier process is unusable.
    """
    found = []
    for number, stamp in enumerate(stamps):
        tasks = TaskQueues(options.num_trainers)
        if revival is not None:
            tasks.keep(revival.file_of("tasks", number))
        own = safety if revival is None else replace(safety, state=revival.folder_of(number))
        if own.state is None and own.checkpoints is None:
            found.append(Guarded(Engine(options, stamp, tasks=tasks), None, tasks))
            continue
        keeper = Safekeeper(own)
        found.append(Guarded(Engine(options, stamp, keeper=keeper, tasks=tasks), keeper, tasks))
    return found
