# SPDX-License-Identifier: Apache-2.0
"""What `name=` of a layer names: parameters and temporaries, or the output itself; scripts fetch by these names."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import paddle.fluid as fluid

layers = fluid.layers


def _row(name: str = "a") -> Any:
    return layers.data(name, [4])


def _image() -> Any:
    return layers.data("image", [4, 6, 6])


# Layer -> number of the temporary that it returns with a name.
TEMPORARIES: dict[str, tuple[Callable[..., Any], int]] = {
    "fc": (lambda **name: layers.fc(_row(), 3, act="relu", **name), 2),
    "fc of two": (lambda **name: layers.fc([_row(), _row("b")], 3, **name), 3),
    "conv2d": (lambda **name: layers.conv2d(_image(), 2, 3, act="relu", **name), 2),
    "pool2d": (lambda **name: layers.pool2d(_image(), 2, **name), 0),
    "dropout": (lambda **name: layers.dropout(_row(), 0.5, **name), 0),
    "softmax": (lambda **name: layers.softmax(_row(), **name), 0),
    "relu": (lambda **name: layers.relu(_row(), **name), 0),
    "tanh": (lambda **name: layers.tanh(_row(), **name), 0),
    "concat": (lambda **name: layers.concat([_row(), _row("b")], 1, **name), 0),
    "matmul": (lambda **name: layers.matmul(_row(), _row("b"), transpose_y=True, **name), 0),
    "reduce_sum": (lambda **name: layers.reduce_sum(_row(), **name), 0),
}
OUTPUTS: dict[str, Callable[..., Any]] = {
    "mean": lambda **name: layers.mean(_row(), **name),
    "scale": lambda **name: layers.scale(_row(), 2.0, **name),
    "clip": lambda **name: layers.clip(_row(), 0.0, 1.0, **name),
    "clip_by_norm": lambda **name: layers.clip_by_norm(_row(), 1.0, **name),
    "elementwise_add": lambda **name: layers.elementwise_add(_row(), _row("b"), **name),
    "elementwise_max": lambda **name: layers.elementwise_max(_row(), _row("b"), **name),
    "logical_not": lambda **name: layers.logical_not(_row() > 0.0, **name),
    "maxout": lambda **name: layers.maxout(_image(), 2, **name),
    "space_to_depth": lambda **name: layers.space_to_depth(_image(), 2, **name),
    "affine_channel": lambda **name: layers.affine_channel(
        _image(), *(layers.create_parameter([4], "float32", letter) for letter in "sb"), **name
    ),
    "sigmoid_cross_entropy": lambda **name: layers.sigmoid_cross_entropy_with_logits(
        _row(), _row("b"), **name
    ),
}


@pytest.mark.parametrize("layer", TEMPORARIES)
def test_a_name_begins_those_of_temporaries_and_parameters(layer: str) -> None:
    make, number = TEMPORARIES[layer]
    assert make(name="x").name == f"x.tmp_{number}"
    parameters = [each.name for each in fluid.default_main_program().global_block().all_parameters()]
    assert all(name in ("x.w_0", "x.w_1", "x.b_0") for name in parameters)


@pytest.mark.parametrize("layer", OUTPUTS)
def test_a_name_is_that_of_the_output(layer: str) -> None:
    assert OUTPUTS[layer](name="x").name == "x"


def test_an_activation_follows_the_named_output_and_both_are_fetched_by_name() -> None:
    both = layers.elementwise_sub(_row(), _row("b"), act="relu", name="apart")
    loss = layers.mean(both, name="loss")
    assert (both.name, loss.name) == ("apart.tmp_0", "loss")
    feed = {"a": np.array([[1, 2, 3, 4]], "float32"), "b": np.full((1, 4), 3, "float32")}
    apart, cost = fluid.Executor(fluid.CPUPlace()).run(feed=feed, fetch_list=["apart", "loss"])
    assert apart.tolist() == [[-2.0, -1.0, 0.0, 1.0]]
    assert cost.tolist() == [0.25]


def test_counts_of_auc_and_global_variables_have_the_originals_names_in_files_and_scripts() -> None:
    chosen = layers.fc(_row(), 2, act="softmax")
    of_all, of_last, counts = layers.auc(chosen, layers.data("label", [1], dtype="int64"), slide_steps=3)
    assert (of_all.name, of_last.name) == ("auc_0.tmp_0", "auc_0.tmp_1")
    assert {each.name: each.shape[0] for each in counts} == {
        "_generated_var_0": 3,
        "_generated_var_1": 3,
        "_generated_var_2": 1,
        "_generated_var_3": 1,
    }
    kept = layers.create_global_var([1], 2.0, "float32", persistable=True)
    assert kept.name == "_generated_var_4"
