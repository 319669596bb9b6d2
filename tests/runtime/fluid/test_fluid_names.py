# SPDX-License-Identifier: Apache-2.0
"""Names that scripts import and pass: arguments by the original's names, its error class."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import paddle.fluid as fluid
from paddle.fluid import core


def test_a_script_passes_arguments_by_the_original_names() -> None:
    with fluid.unique_name.guard(new_generator="left_"):
        x = fluid.layers.data("x", [3, 2], append_batch_size=False)
        rnn = fluid.layers.StaticRNN()
        with rnn.step():
            step = rnn.step_input(x)
            memory = rnn.memory(shape=[-1], batch_ref=x, ref_batch_dim_idx=1)
            total = step + memory
            rnn.update_memory(mem=memory, var=total)
            rnn.step_output(total)
        out: Any = rnn()
    text = fluid.default_main_program().serialize_to_string()
    program = fluid.CompiledProgram(program_or_graph=fluid.Program.parse_from_string(binary_str=text))
    exe = fluid.Executor(fluid.CPUPlace())
    (found,) = exe.run(program, feed={"x": np.ones((3, 2), "float32")}, fetch_list=[out.name])
    assert found.tolist() == [[1, 1], [2, 2], [3, 3]]


def test_a_generator_of_names_is_switched_and_switched_back() -> None:
    before = fluid.unique_name.generate("fc")
    old = fluid.unique_name.switch()
    assert fluid.unique_name.generate("fc") == "fc_0"
    fluid.unique_name.switch(new_generator=old)
    assert [before, fluid.unique_name.generate("fc")] == ["fc_0", "fc_1"]


def test_the_first_argument_of_a_normalised_weight_is_its_dimension() -> None:
    attr = fluid.WeightNormParamAttr(0, "w", learning_rate=0.5)
    assert (attr.dim, attr.name, attr.learning_rate, attr.do_model_average) == (0, "w", 0.5, False)
    assert attr.named("v").dim == 0


def fails_in_an_operator(exe: fluid.Executor) -> None:
    table = fluid.layers.embedding(fluid.layers.data("ids", [1], dtype="int64"), [3, 2])
    exe.run(fluid.default_startup_program())
    exe.run(feed={"ids": np.array([[7]])}, fetch_list=[table])


def fed_another_dtype(exe: fluid.Executor) -> None:
    exe.run(
        feed={"x": np.ones((2, 4), "float64")}, fetch_list=[fluid.layers.mean(fluid.layers.data("x", [4]))]
    )


def without_first_values(exe: fluid.Executor) -> None:
    out = fluid.layers.fc(fluid.layers.data("x", [4]), 2)
    exe.run(feed={"x": np.ones((2, 4), "float32")}, fetch_list=[out])


def built_of_what_does_not_fit(exe: fluid.Executor) -> None:
    fluid.layers.elementwise_add(fluid.layers.data("x", [4]), fluid.layers.data("y", [4, 3, 2]))


@pytest.mark.parametrize(
    "fails", [fails_in_an_operator, fed_another_dtype, without_first_values, built_of_what_does_not_fit]
)
def test_what_fails_is_caught_as_the_original_error(fails: Callable[[fluid.Executor], None]) -> None:
    with pytest.raises(core.EnforceNotMet):
        fails(fluid.Executor(fluid.CPUPlace()))


def test_the_end_of_a_pass_is_no_failure() -> None:
    assert not issubclass(core.EOFException, core.EnforceNotMet)


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (
            lambda exe, loss: fluid.io.save_persistables("m", exe),
            "got 'm' as executor, but it fits dirname: exchange",
        ),
        (lambda exe, loss: fluid.io.load_params("m", exe), r"order is load_params\(executor, dirname, "),
        (
            lambda exe, loss: fluid.io.load_inference_model(exe, "m"),  # type: ignore[arg-type]
            "as dirname, but it fits executor",
        ),
        (
            lambda exe, loss: loss.item(),
            "has no attribute 'item': it has no value while the program is built",
        ),
        (lambda exe, loss: loss.nix, "'Variable' object has no attribute 'nix'$"),
        (
            lambda exe, loss: fluid.optimizer.SGD(0.1).zero_grad(),
            "gradients are new in each run: omit the call",
        ),
        (
            lambda exe, loss: fluid.Scope().find_var("w").get_tensor(),  # type: ignore[union-attr]
            "no variable 'w': run the startup program",
        ),
    ],
)
def test_a_call_that_another_object_or_order_needs_is_named(
    call: Callable[[Any, Any], object], message: str
) -> None:
    with pytest.raises((TypeError, AttributeError), match=message):
        call(fluid.Executor(), fluid.layers.data("x", [1]))
    assert fluid.Scope().find_var("w") is None
