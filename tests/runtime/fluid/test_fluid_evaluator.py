# SPDX-License-Identifier: Apache-2.0
"""Evaluators add up in variables of the program, from a reset on; run_check trains."""

from __future__ import annotations

import numpy as np
import pytest

import paddle.fluid as fluid
from paddle.fluid import evaluator
from paddle.fluid.errors import FluidError

PLACE = fluid.CPUPlace()


def sequences(name: str) -> fluid.framework.Variable:
    return fluid.layers.data(name, [1], dtype="int64", lod_level=1)


def fed(ids: list[int], lengths: list[int]) -> fluid.LoDTensor:
    return fluid.create_lod_tensor(np.array(ids).reshape(-1, 1), [lengths], PLACE)


def test_edit_distances_are_added_up_from_a_reset_on() -> None:
    measure = evaluator.EditDistance(sequences("a"), sequences("b"), ignored_tokens=[9])
    exe = fluid.Executor(PLACE)
    exe.run(fluid.default_startup_program())
    right = {"a": fed([1, 2], [2]), "b": fed([1, 9, 2], [3])}
    wrong = {"a": fed([1, 2, 3, 4], [2, 2]), "b": fed([1, 5, 3, 4], [2, 2])}
    measure.reset(exe)
    exe.run(feed=wrong)
    measure.reset(exe)
    for feed in (right, wrong, right):
        distances, _ = exe.run(feed=feed, fetch_list=measure.metrics)
        assert distances.shape[1] == 1
    mean, share = measure.eval(exe)
    assert (mean.shape, share.shape) == ((1,), (1,))
    assert [float(mean), float(share)] == pytest.approx([0.5 / 4, 1 / 4])


def test_right_answers_are_added_up_over_minibatches_of_any_size() -> None:
    chances, label = fluid.layers.data("chances", [3]), fluid.layers.data("label", [1], dtype="int64")
    measure = evaluator.Accuracy(input=chances, label=label)
    fluid.layers.mean(fluid.layers.data("never_fed", [1]))
    program = fluid.io.get_inference_program(measure.metrics + measure.states)
    exe = fluid.Executor(PLACE)
    exe.run(fluid.default_startup_program())
    for rows, share in ((np.eye(3)[[0, 1]], 0.5), (np.eye(3)[[0]], 1.0), (np.eye(3)[[1]], 0.0)):
        feed = {"chances": rows.astype("float32"), "label": np.zeros((len(rows), 1), "int64")}
        (found,) = exe.run(program, feed=feed, fetch_list=measure.metrics)
        assert found == share
    assert measure.eval(exe) == pytest.approx(0.5)
    assert "mean" not in [op.type for op in program.global_block().ops]
    measure.reset(exe)
    with pytest.raises(FluidError, match="no batch"):
        measure.eval(exe)


def test_a_mean_distance_of_nothing_is_refused() -> None:
    measure = evaluator.EditDistance(sequences("a"), sequences("b"))
    exe = fluid.Executor(PLACE)
    exe.run(fluid.default_startup_program())
    with pytest.raises(ValueError, match="no batch"):
        measure.eval(exe)


def test_chunks_are_counted_over_minibatches() -> None:
    measure = evaluator.ChunkEvaluator(sequences("found"), sequences("label"), "IOB", num_chunk_types=2)
    exe = fluid.Executor(PLACE)
    exe.run(fluid.default_startup_program())
    measure.reset(exe)
    assert [float(each) for each in measure.eval(exe)] == [0, 0, 0]
    # Tags: 0 and 2 begin a chunk of type 0 and 1, 1 and 3 go on, 4 is outside.
    exe.run(feed={"found": fed([0, 1, 4, 2], [4]), "label": fed([0, 1, 4, 4], [4])})
    exe.run(feed={"found": fed([4, 2], [2]), "label": fed([0, 2], [2])})
    precision, recall, f1 = measure.eval(exe)
    assert [float(precision), float(recall), float(f1)] == pytest.approx([2 / 3, 2 / 3, 2 / 3])
    assert len(measure.metrics) == 3


def test_an_installation_is_checked_without_a_trace(capsys: pytest.CaptureFixture[str]) -> None:
    fluid.install_check.run_check()
    assert "installed successfully" in capsys.readouterr().out
    assert fluid.default_main_program().global_block().ops == []
    assert fluid.global_scope().names() == []
    assert fluid.unique_name.generate("fc") == "fc_0"
