# SPDX-License-Identifier: Apache-2.0
"""--mode=v1: trainers are `paddle train` with a configuration, pservers those of v2."""

from __future__ import annotations

from pathlib import Path

import pytest

from paddle_cluster.config.options import Mode
from paddle_cluster.errors import UsageError
from tests.launcher.planning import THREE, Planned, all_processes

FLAGS = ("--config=./trainer_config.py", "--num_passes=10", "--save_dir=./output")


@pytest.fixture
def package(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    folder = tmp_path / "ws"
    folder.mkdir()
    monkeypatch.chdir(tmp_path)
    (folder / "trainer_config.py").write_text("")
    return folder


@pytest.mark.parametrize("between", [(), ("--",)])
def test_a_configuration_without_a_script_is_trained_by_paddle_train(
    planned: Planned, package: Path, between: tuple[str, ...]
) -> None:
    plan = planned(THREE, *between, *FLAGS)
    assert plan.mode is Mode.V1
    assert plan.settings.job.entry.path == "trainer_config.py"
    pservers, trainers = (
        [each for each in all_processes(plan) if each.role.value == role] for role in ("pserver", "trainer")
    )
    assert [each.argv[1:5] for each in pservers] == [("-P", "-m", "paddle", "pserver")] * 3
    assert [each.argv[1:] for each in trainers] == [("-u", "-P", "-m", "paddle", "train", *FLAGS)] * 3
    assert [each.env["PADDLE_INIT_TRAINER_ID"] for each in trainers] == ["0", "1", "2"]


def test_a_script_that_is_there_is_run_unless_the_mode_says_otherwise(
    planned: Planned, package: Path
) -> None:
    (package / "train.py").write_text("import paddle.v2\n")
    assert planned(THREE, *FLAGS).mode is Mode.V2
    assert planned(THREE, "--mode=v1", *FLAGS).mode is Mode.V1


@pytest.mark.parametrize(
    ("given", "why"),
    [
        (["--mode=v1"], "give --config=trainer_config.py"),
        (["--mode=v1", "--entry=train.py", *FLAGS], "and omit --entry"),
        (["--mode=v1", "--config=../trainer_config.py"], "--config: expected a path inside the workspace"),
    ],
)
def test_the_mode_needs_a_configuration_in_the_workspace(
    planned: Planned, package: Path, given: list[str], why: str
) -> None:
    with pytest.raises(UsageError, match=why):
        planned(THREE, *given)


def test_checkpoints_are_those_of_the_pservers(planned: Planned, package: Path) -> None:
    kept = ("--checkpoint_dir=/data/c", "--checkpoint_period=10")
    plan = planned(THREE, *FLAGS, *kept)
    argv = next(each.argv for each in all_processes(plan) if each.role.value == "pserver")
    assert set(kept) <= set(argv)
