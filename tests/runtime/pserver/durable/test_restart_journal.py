# SPDX-License-Identifier: Apache-2.0
"""State in memory: what a journal gives back, when copies replace it, and training without room for either."""

from __future__ import annotations

import resource
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from paddle.errors import PserverError
from paddle.optim.spec import OptimizerSpec
from paddle.pserver.client.session import TrainerSession
from paddle.pserver.durable.journal import Journal
from paddle.pserver.durable.memory_copy import SavedState
from paddle.pserver.recovery import Safety
from paddle.pserver.store.store import Store
from paddle.pserver.wire.configuration import Configuration
from paddle.pserver.wire.message import Message, Section
from paddle.pserver.wire.verbs import PushPull
from tests.runtime.pserver.in_process_job import Model
from tests.runtime.pserver.inproc import InprocServers
from tests.runtime.pserver.kept_job import DECAYED, MODEL, KeptJob

ADAGRAD = OptimizerSpec("adagrad", learning_rate=0.1, hyper={"epsilon": 1e-6})
LARGE = Model({"w": (2000, 1500), "b": (64,), "table": (300, 8)}, sparse=["table"])


def push(number: int, size: int = 1000) -> Message:
    values = np.full(size, number, np.float32)
    return Message(PushPull(8), 1, 2**63, number, 2**62, (Section("", values),))


def numbers(journal: Journal, after: int) -> list[int]:
    found = list(journal.read(after))
    assert all(np.all(message.section("").array == message.request) for message in found)
    return [message.request for message in found]


def test_a_journal_gives_back_what_was_written_across_files_that_are_used_again(tmp_path: Path) -> None:
    journal = Journal(tmp_path)
    for number in range(1, 41):
        journal.append(push(number, size=100 + 37 * (number % 5)))
        if number % 10 == 0:
            journal.rotate()
            journal.drop(number - 5)
    journal.close()
    assert numbers(Journal(tmp_path), 30) == list(range(31, 41))
    assert len(list(tmp_path.iterdir())) <= 3


@pytest.mark.parametrize("seed", range(5))
def test_a_record_that_was_cut_off_anywhere_is_not_there_and_those_before_it_are(
    seed: int, tmp_path: Path
) -> None:
    journal = Journal(tmp_path)
    ends = [0]
    for number in range(1, 9):
        journal.append(push(number))
        ends.append(journal.nbytes)
    journal.close()
    (path,) = tmp_path.iterdir()
    whole = path.read_bytes()
    for cut in np.random.default_rng(seed).integers(0, len(whole), 20):
        path.write_bytes(whole[:cut])
        expected = sum(end <= int(cut) for end in ends[1:])
        again = Journal(tmp_path)
        assert numbers(again, 0) == list(range(1, expected + 1))
        again.append(push(expected + 1))  # it goes on behind
        again.close()
        assert numbers(Journal(tmp_path), 0) == list(range(1, expected + 2))
        for other in tmp_path.iterdir():
            if other != path:
                other.unlink()


def test_a_copy_replaces_a_journal_that_has_grown_and_the_state_stays_the_same(tmp_path: Path) -> None:
    job = KeptJob(Safety(state=tmp_path), ADAGRAD, LARGE, num_dense=1)
    job.train(0, 9)  # 12 MB each, so that the journal passes its limit of 64 MB
    facts = job.engines[0].facts()
    (folder,) = tmp_path.iterdir()
    assert list(folder.glob("v*/part-*")), "no copy was made"
    (again,) = KeptJob.revived(Safety(state=tmp_path), 1)  # as if this process had been killed here
    assert again.version == 9
    assert again.facts() == facts
    client = TrainerSession(InprocServers({"d0": again}).connect(["d0"]), 0, trainer_id=0, num_trainers=1)
    with client, pytest.raises(PserverError, match=r"restart it between jobs.*shape="):
        client.configure(MODEL.parameters, ADAGRAD, MODEL.values(3))
    job.close()


class Idle:
    """An engine with nothing under way."""

    is_quiet = True

    def facts(self) -> dict[str, Any]:
        return {}

    def take_up(self, configuration: Configuration, store: Store, facts: dict[str, Any]) -> None: ...


def test_a_journal_of_many_small_requests_is_replaced_too(tmp_path: Path) -> None:
    configuration = Configuration((), ADAGRAD, 1, 0, 0)
    kept = SavedState(tmp_path)
    kept.adopt(Store(configuration.share(), configuration.optimizer), configuration)
    for number in range(1, 10_003):
        kept.record(push(number, size=1), Idle())
    while kept.advance():
        pass
    assert list(tmp_path.glob("v*/part-*")), "no copy was made"
    assert numbers(Journal(tmp_path), 10_001) == [10_002]


def test_training_goes_on_without_room_and_the_next_process_says_that_the_state_is_gone(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    job = KeptJob(Safety(state=tmp_path), ADAGRAD, DECAYED, num_dense=1)
    job.train(0, 2)
    before = resource.getrlimit(resource.RLIMIT_FSIZE)
    (folder,) = tmp_path.iterdir()
    size = sum(path.stat().st_size for path in folder.iterdir())
    resource.setrlimit(resource.RLIMIT_FSIZE, (size, before[1]))
    try:
        job.train(2, 6)
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, before)
    assert job.engines[0].version == 6
    assert "next attempt is in 60 s" in caplog.text
    with pytest.raises(PserverError, match="the state would be lost"):
        KeptJob.revived(Safety(state=tmp_path), 1)
    job.close()
