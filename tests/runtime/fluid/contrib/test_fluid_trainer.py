# SPDX-License-Identifier: Apache-2.0
"""Trainer and Inferencer: events, metrics, stopping, checkpoints, and what they save."""

from __future__ import annotations

import importlib
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import paddle.fluid as fluid

X = np.random.default_rng(0).standard_normal((24, 4)).astype(np.float32)
Y = X.sum(1, keepdims=True)


def samples() -> Iterator[tuple[Any, Any]]:
    yield from zip(X, Y, strict=True)


reader: Any = fluid.io.batch(samples, batch_size=6)


def predict() -> Any:
    hidden = fluid.layers.batch_norm(fluid.layers.fc(fluid.layers.data("x", [4]), 3, act="tanh"))
    return fluid.layers.fc(hidden, 1)


def model() -> list[Any]:
    fluid.default_startup_program().random_seed = 3
    y_predict = predict()
    y = fluid.layers.data("y", [1])
    return [fluid.layers.mean(fluid.layers.square_error_cost(y_predict, y)), y_predict]


def rule() -> Any:
    return fluid.optimizer.Adam(0.05)


def trainer(**more: Any) -> Any:
    return fluid.Trainer(model, rule, place=fluid.CPUPlace(), **more)


def test_events_have_epochs_steps_and_metrics() -> None:
    seen: list[Any] = []
    losses: list[float] = []

    def handle(event: Any) -> None:
        seen.append((type(event).__name__, event.epoch, getattr(event, "step", None)))
        if isinstance(event, fluid.BeginStepEvent):
            event.fetch_metrics = event.step != 1
        if isinstance(event, fluid.EndStepEvent):
            assert [value.shape for value in event.metrics] == ([] if event.step == 1 else [(1,), (6, 1)])
            losses.extend(float(value[0]) for value in event.metrics[:1])

    trainer().train(num_epochs=20, event_handler=handle, reader=reader, feed_order=["x", "y"])
    steps = [(kind, 0, step) for step in range(4) for kind in ("BeginStepEvent", "EndStepEvent")]
    assert seen[:10] == [("BeginEpochEvent", 0, None), *steps, ("EndEpochEvent", 0, None)]
    assert len(seen) == 200
    assert losses[-1] < losses[0] / 3


def test_stop_ends_training_before_the_next_step() -> None:
    made, seen = trainer(), []

    def handle(event: Any) -> None:
        if isinstance(event, fluid.EndStepEvent):
            seen.append((event.epoch, event.step))
            if event.step == 2:
                made.stop()

    made.train(5, handle, reader, {"y": 1, "x": 0})
    assert seen == [(0, 0), (0, 1), (0, 2)]
    made.train(1, handle, reader)
    assert seen[3:] == [(0, 0), (0, 1), (0, 2)]


def test_a_saved_model_predicts_as_the_trainer_tests(tmp_path: Path) -> None:
    made = trainer()
    made.train(8, lambda event: None, reader, ["x", "y"])
    cost, first = made.test(reader, ["x", "y"])
    made.save_params(str(tmp_path / "params"))
    made.save_inference_model(str(tmp_path / "model"), ["x"], [1])
    inferencer = fluid.Inferencer(predict, str(tmp_path / "params"), place=fluid.CPUPlace())
    (values,) = inferencer.infer({"x": X})
    assert float(np.mean((values - Y) ** 2)) == pytest.approx(cost, rel=1e-5)
    assert float(np.mean(values[::6])) == pytest.approx(first, rel=1e-5)
    exe = fluid.Executor(fluid.CPUPlace())
    with fluid.scope_guard(fluid.Scope()):
        program, names, targets = fluid.io.load_inference_model(str(tmp_path / "model"), exe)
        (loaded,) = exe.run(program, {names[0]: X}, targets)
    np.testing.assert_array_equal(loaded, values)
    again = trainer(param_path=str(tmp_path / "params"))
    assert again.test(reader) == [cost, first]
    with pytest.raises(TypeError, match=r"Inferencer\.infer.*dict.*list"):
        inferencer.infer([X])


def test_training_goes_on_after_the_last_checkpoint_with_equal_bits(tmp_path: Path) -> None:
    def run(folder: Path, dies_at: tuple[int, int] | None) -> tuple[list[tuple[int, int]], Any]:
        made = trainer(checkpoint_config=fluid.CheckpointConfig(str(folder), 2, 1, 2))
        seen: list[tuple[int, int]] = []

        def handle(event: Any) -> None:
            if isinstance(event, fluid.EndStepEvent):
                seen.append((event.epoch, event.step))
                if seen[-1] == dies_at:
                    raise InterruptedError

        try:
            made.train(3, handle, reader, ["x", "y"])
        except InterruptedError:
            assert sorted(path.name for path in folder.iterdir()) == ["checkpoint_2", "checkpoint_3"]
        return seen, made.scope.get("fc_0.w_0")

    whole, expected = run(tmp_path / "whole", None)
    assert not list((tmp_path / "whole").iterdir())
    first, _ = run(tmp_path / "cut", (1, 3))
    (tmp_path / "cut" / ".checkpoint_4.part").mkdir()
    rest, got = run(tmp_path / "cut", None)
    assert first == whole[:8]
    assert rest == whole[7:]
    np.testing.assert_array_equal(got, expected)


def _break_off(folder: Path, steps: int) -> None:
    made = trainer(checkpoint_config=fluid.CheckpointConfig(str(folder), 3, 1, 1))

    def handle(event: Any) -> None:
        if isinstance(event, fluid.EndStepEvent) and event.step == steps - 1:
            raise InterruptedError

    with pytest.raises(InterruptedError):
        made.train(1, handle, reader)


def test_a_damaged_checkpoint_is_skipped_with_a_warning(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    _break_off(tmp_path, 3)
    weights = tmp_path / "checkpoint_2" / "__model__" / "fc_0.w_0"
    weights.write_bytes(weights.read_bytes()[:-1] + bytes([weights.read_bytes()[-1] ^ 1]))
    (tmp_path / "checkpoint_007").mkdir()
    (tmp_path / "checkpoint_007" / "_SUCCESS").touch()
    with caplog.at_level("WARNING"):
        made = trainer(checkpoint_config=fluid.CheckpointConfig(str(tmp_path)))
    assert (made.checkpoint_cfg.load_serial, made.checkpoint_cfg.step_id) == (1, 1)
    assert "checkpoint_2" in caplog.text
    assert "fc_0.w_0 is missing" in caplog.text
    for name in ("checkpoint_0", "checkpoint_1"):
        (tmp_path / name / "trainer_0" / "step_id").unlink()
    with pytest.raises(ValueError, match=r"all checkpoints in .* are damaged: delete them"):
        trainer(checkpoint_config=fluid.CheckpointConfig(str(tmp_path)))


def test_the_empty_list_of_the_original_is_not_checked(tmp_path: Path) -> None:
    _break_off(tmp_path, 2)
    (tmp_path / "checkpoint_1" / "_SUCCESS").write_text("")
    made = trainer(checkpoint_config=fluid.CheckpointConfig(str(tmp_path)))
    assert made.checkpoint_cfg.load_serial == 1


def test_a_second_training_runs_all_steps(tmp_path: Path) -> None:
    _break_off(tmp_path, 3)
    made = trainer(checkpoint_config=fluid.CheckpointConfig(str(tmp_path), 3, 1, 1))
    counts = []
    for _ in range(2):
        seen: list[Any] = []
        made.train(1, seen.append, reader)
        counts.append(sum(isinstance(event, fluid.EndStepEvent) for event in seen))
    assert counts == [1, 4]


def test_a_missing_directory_of_parameters_causes_a_warning(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    with caplog.at_level("WARNING"):
        trainer(param_path=str(tmp_path / "missing"))
    assert "missing' is not a directory" in caplog.text


def test_old_checkpoints_are_removed_whatever_a_killed_process_left(tmp_path: Path) -> None:
    made = trainer(checkpoint_config=fluid.CheckpointConfig(str(tmp_path), 5, 1, 1))
    for name in (".checkpoint_0.old", "checkpoint_3"):
        (tmp_path / name).mkdir()
        (tmp_path / name / "rest").touch()

    def handle(event: Any) -> None:
        if isinstance(event, fluid.EndStepEvent) and (event.epoch, event.step) == (1, 2):
            raise InterruptedError

    with pytest.raises(InterruptedError):
        made.train(2, handle, reader)
    assert sorted(path.parent.name for path in tmp_path.glob("*/_SUCCESS")) == [
        "checkpoint_10", "checkpoint_6", "checkpoint_7", "checkpoint_8", "checkpoint_9",
    ]  # fmt: skip
    (tmp_path / "checkpoint_10" / ".nfs0001").touch()
    again = trainer(checkpoint_config=fluid.CheckpointConfig(str(tmp_path)))
    assert again.checkpoint_cfg.load_serial == 10


def test_checkpoints_of_several_trainers_are_refused(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("PADDLE_TRAINING_ROLE", "TRAINER")
    monkeypatch.setenv("PADDLE_TRAINER_ENDPOINTS", "127.0.0.1:6170,127.0.0.1:6171")
    monkeypatch.setenv("PADDLE_CURRENT_ENDPOINT", "127.0.0.1:6170")
    with pytest.raises(ValueError, match=r"checkpoint_config.* job has 2"):
        trainer(checkpoint_config=fluid.CheckpointConfig(str(tmp_path)))


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: fluid.Trainer(lambda: 1, rule), "train_func must return variables, got 1"),
        (lambda: fluid.Trainer(model, lambda: 0.1), "optimizer_func must return an optimizer, got 0.1"),
        (lambda: fluid.Trainer(model, rule, place="cpu"), "expected a CPUPlace or CUDAPlace, got 'cpu'"),
        (lambda: fluid.CheckpointConfig(step_interval=0), "step_interval: expected at least 1, got 0"),
        (lambda: trainer().train(1, print), "reader: expected a function"),
        (lambda: trainer().train(1, print, reader, ["x", "z"]), r"'z'.*\['x', 'y'\]"),
        (lambda: trainer().train(1, print, reader, {"x": 0, "y": 2}), r"feed_order.*'y': 2"),
        (lambda: trainer().test(lambda: iter(())), "minibatches"),
    ],
)
def test_unsuitable_arguments_are_refused_by_name(make: Any, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        make()


def test_a_job_without_its_number_of_trainers_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PADDLE_TRAINING_ROLE", "TRAINER")
    monkeypatch.setenv("PADDLE_PSERVER_IPS", "127.0.0.1")
    for name in ("PADDLE_TRAINERS", "PADDLE_TRAINERS_NUM"):
        monkeypatch.delenv(name, raising=False)
    with pytest.raises(ValueError, match="PADDLE_TRAINERS: expected the number of trainers"):
        trainer()


@pytest.mark.parametrize("module", ["contrib.trainer", "trainer"])
def test_scripts_find_the_names_where_their_version_had_them(module: str) -> None:
    names = vars(importlib.import_module(f"paddle.fluid.{module}"))
    assert names["Trainer"] is fluid.Trainer is fluid.contrib.Trainer
    assert names["EndStepEvent"] is fluid.EndStepEvent
    assert importlib.import_module("paddle.fluid.inferencer").Inferencer is fluid.Inferencer
