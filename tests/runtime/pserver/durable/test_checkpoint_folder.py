# SPDX-License-Identifier: Apache-2.0
"""What a folder of checkpoints keeps, what a job may go on from, and what costs a checkpoint and nothing else."""

from __future__ import annotations

import re
import resource
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import numpy as np
import pytest

from paddle.errors import CheckpointError, ConfigError, PserverError
from paddle.pserver.durable.checkpoint.folder import newest
from paddle.pserver.durable.checkpoint.series import Series
from paddle.pserver.recovery import Safety
from tests.runtime.pserver.durable.written_checkpoints import ADAGRAD, PERIOD, written
from tests.runtime.pserver.in_process_job import Model
from tests.runtime.pserver.kept_job import DECAYED, KeptJob, same_bits


def test_a_job_does_not_begin_anew_when_no_checkpoint_is_whole(tmp_path: Path) -> None:
    written(tmp_path)
    for path in tmp_path.glob("v*/part-0-of-2/state.bin"):
        path.write_bytes(b"")
    with pytest.raises(PserverError, match=r"no complete checkpoint in .*expected \d+ bytes, got 0"):
        KeptJob(Safety(checkpoints=tmp_path, resume="latest"), ADAGRAD, DECAYED)
    with pytest.raises(PserverError, match="no complete checkpoint of batch 7"):
        KeptJob(Safety(checkpoints=tmp_path, resume="7"), ADAGRAD, DECAYED)


def test_a_job_that_a_queue_starts_again_goes_on_once_there_is_a_checkpoint(tmp_path: Path) -> None:
    (tmp_path / "none" / "v000000000005").mkdir(parents=True)  # its servers ended before they wrote a part
    first = KeptJob(Safety(checkpoints=tmp_path / "none", period=PERIOD, resume="auto"), ADAGRAD, DECAYED)
    assert {engine.version for engine in first.engines} == {0}
    first.train(0, 7)
    first.close()
    again = KeptJob(Safety(checkpoints=tmp_path / "none", period=PERIOD, resume="auto"), ADAGRAD, DECAYED)
    assert {engine.version for engine in again.engines} == {5}
    again.close()
    for path in tmp_path.glob("none/v*/part-0-of-2/state.bin"):
        path.write_bytes(b"")
    with pytest.raises(PserverError, match=r"no complete checkpoint in .*expected \d+ bytes, got 0"):
        KeptJob(Safety(checkpoints=tmp_path / "none", resume="auto"), ADAGRAD, DECAYED)


def test_a_checkpoint_of_another_model_is_refused(tmp_path: Path) -> None:
    written(tmp_path)
    other = Model({"w": (90, 51), "b": (64,), "table": (300, 8)}, sparse=["table"])
    with pytest.raises(
        PserverError, match="parameter w: expected 4590 elements, but the checkpoint has 4500"
    ):
        KeptJob(Safety(checkpoints=tmp_path, resume="latest"), ADAGRAD, other, 1, 0)


def test_old_checkpoints_go_and_what_newer_ones_build_upon_stays(tmp_path: Path) -> None:
    written(tmp_path, 60)
    versions = sorted(int(path.name[1:]) for path in tmp_path.glob("v*"))
    assert versions[-3:] == [50, 55, 60]
    for version in versions[-3:]:
        assert newest(tmp_path, version).version == version
    assert not list(tmp_path.glob(".unfinished*"))


@contextmanager
def small_files(nbytes: int) -> Iterator[None]:
    before = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (nbytes, before[1]))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, before)


def test_a_disk_without_room_costs_a_checkpoint_and_nothing_else(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    job = KeptJob(Safety(checkpoints=tmp_path, period=PERIOD), ADAGRAD, DECAYED)
    job.train(0, 7)
    with small_files(4096):
        job.train(7, 13)
    assert newest(tmp_path).version == 5
    assert "no checkpoint of batch 10" in caplog.text
    assert "bytes are free" in caplog.text
    assert re.search("last checkpoint is of batch 5.*next attempt is at batch 15", caplog.text)
    assert not list(tmp_path.glob(".unfinished*"))
    job.train(13, 17)
    expected = job.values()
    job.close()
    again = KeptJob(Safety(checkpoints=tmp_path, resume="latest"), ADAGRAD, DECAYED)
    assert {engine.version for engine in again.engines} == {15}
    again.train(15, 17)
    assert same_bits(again.values(), expected)
    again.close()


def test_the_last_checkpoint_is_made_up_for_when_the_one_before_took_too_long(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    job = KeptJob(Safety(checkpoints=tmp_path, period=PERIOD), ADAGRAD, DECAYED)
    job.train(0, 2 * PERIOD - 1)
    with monkeypatch.context() as slow:
        slow.setattr(Series, "is_busy", True)
        job.step(2 * PERIOD - 1)
    assert caplog.text.count("no checkpoint of batch 10") == len(job.engines)
    assert all("batch 10" in keeper.unsaved and keeper.is_behind for keeper in job.keepers)
    job.finish_background()
    assert newest(tmp_path).version == 10
    assert not any(keeper.unsaved or keeper.is_behind for keeper in job.keepers)
    job.close()


def test_training_between_the_copying_does_not_get_into_a_checkpoint(tmp_path: Path) -> None:
    job = KeptJob(Safety(checkpoints=tmp_path, period=PERIOD, keep=100), ADAGRAD, DECAYED)
    states = {}
    for number in range(15):
        job.step(number)  # copies what the step touches and no more
        if (number + 1) % PERIOD == 0:
            states[number + 1] = {name: np.array(array) for name, array in job.values().items()}
        if (number + 1) % PERIOD == 3:
            job.finish_background()
    job.finish_background()
    job.close()
    for version, expected in states.items():
        again = KeptJob(Safety(checkpoints=tmp_path, resume=str(version)), ADAGRAD, DECAYED)
        assert same_bits(again.values(), expected), version
        again.close()


@pytest.mark.parametrize(
    ("flags", "text"),
    [
        ({"checkpoint_period": 5}, "needs --checkpoint_dir"),
        ({"resume": "latest"}, "needs --checkpoint_dir"),
        ({"resume": "newest", "checkpoint_dir": "/x"}, "expected latest, auto"),
    ],
)
def test_flags_that_do_not_fit_together_are_refused(flags: dict[str, object], text: str) -> None:
    given = {"checkpoint_dir": "", "resume": "", "checkpoint_period": 0, "checkpoint_keep": 3, **flags}
    with pytest.raises(ConfigError, match=text):
        Safety.read(given, "")


def test_an_empty_folder_is_no_checkpoint(tmp_path: Path) -> None:
    with pytest.raises(CheckpointError, match="no complete checkpoint"):
        newest(tmp_path / "nowhere")
