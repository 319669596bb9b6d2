# SPDX-License-Identifier: Apache-2.0
"""Scripts whose results are wrong without an error are warned of at their line; correct scripts are not."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from tests.nursery import Forked

ROOT = Path(__file__).resolve().parents[3]
_TWICE = """
import numpy as np
import paddle.fluid as fluid

def network():
    x = fluid.layers.data("x", [8])
    label = fluid.layers.data("label", [{width}], dtype="{dtype}")
    {network}
    return fluid.layers.mean(fluid.layers.cross_entropy(pred, label, soft_label={soft}))

startup, train, test = fluid.Program(), fluid.Program(), fluid.Program()
with fluid.program_guard(train, startup){guard}:
    loss = network()
    fluid.optimizer.SGD(0.1).minimize(loss)
with fluid.program_guard(test, startup){guard}:
    test_loss = network()
{build}
exe = fluid.Executor(fluid.CPUPlace())
exe.run({startup})
feed = {{"x": np.ones((4, 8), "float32"), "label": np.ones((4, {width}), "{dtype}")}}
{before}
exe.run(train, feed=feed, fetch_list=[loss])
{later}
for _ in range(3):
    exe.run(test, feed=feed, fetch_list=[test_loss])
"""
_SOFTMAX = 'pred = fluid.layers.fc(x, 4, act="softmax")'


def _stderr(
    network: str = _SOFTMAX,
    guard: str = "",
    build: str = "",
    before: str = "",
    later: str = "",
    startup: str = "startup",
    soft: bool = False,
) -> str:
    code = _TWICE.format(
        network=network,
        guard=guard,
        build=build,
        before=before,
        later=later,
        startup=startup,
        soft=soft,
        width=4 if soft else 1,
        dtype="float32" if soft else "int64",
    )
    made = Forked("fluid", ["-c", code], {"PYTHONPATH": str(ROOT / "runtime")}, None, apart=True)
    return made.communicate(100)[1]


_GUARD = ", fluid.unique_name.guard()"


@pytest.mark.parametrize("soft", [False, True])
def test_cross_entropy_of_logits_is_warned_of_at_its_line(soft: bool) -> None:
    said = _stderr("pred = fluid.layers.scale(fluid.layers.fc(x, 4), 1, 9.)", _GUARD, soft=soft)
    assert said.count("cross_entropy expects probabilities") == 1
    assert "<string>:9: UserWarning" in said
    assert 'act="softmax", or use softmax_with_cross_entropy' in said


@pytest.mark.parametrize("soft", [False, True])
def test_cross_entropy_of_probabilities_is_not_warned_of(soft: bool) -> None:
    assert "Warning" not in _stderr(guard=_GUARD, soft=soft)
    rounded = f"{_SOFTMAX}; pred = fluid.layers.scale(pred, 0.1, 0.9005)"
    assert "Warning" not in _stderr(_SOFTMAX if soft else rounded, _GUARD, soft=soft)


def test_the_first_loss_that_is_nan_names_the_flag_once() -> None:
    later = "feed['x'][:] = np.nan\nfor _ in range(3): exe.run(train, feed=feed, fetch_list=[loss])"
    said = _stderr(guard=_GUARD, later=later)
    assert said.count("FLAGS_check_nan_inf=1") == 1
    assert "the loss 'mean_0.tmp_0' is NaN at <string>:24: set" in said


def test_a_second_copy_of_a_trained_network_is_warned_of_once() -> None:
    said = _stderr()
    assert (
        said.count("no program trains the parameters of this program, run at <string>:25, such as 'fc_1.w_0'")
        == 1
    )
    assert "trained as 'fc_0.w_0'" in said


_SET = (
    'fluid.global_scope().find_var("fc_1.w_0").get_tensor().set(np.ones((8, 4), "float32"), fluid.CPUPlace())'
)
_COPY = """copy = fluid.Program()
for name in ("fc_0.w_0", "fc_0.b_0"):
    one = train.global_block().var(name)
    to = copy.global_block().create_parameter(list(one.shape), "float32", name=name.replace("0", "1", 1))
    source = copy.global_block().create_var(name=name, shape=one.shape, dtype="float32", persistable=True)
    with fluid.program_guard(copy):
        fluid.layers.assign(source, to)
"""
_WIDER = 'pred = fluid.layers.fc(x, 4 + len(startup.global_block().ops), act="softmax")'


@pytest.mark.parametrize(
    "changed",
    [
        {"guard": _GUARD},
        {"later": _SET},
        {"build": _COPY, "later": "exe.run(copy)"},
        {"build": _COPY, "later": "exe.run(copy); del copy"},
        {"build": _COPY},
        {"build": "with fluid.program_guard(test.clone()): fluid.optimizer.SGD(.1).minimize(test_loss)"},
        {"build": "test = train.clone(for_test=True); test._remove_training(); test_loss = loss"},
        {"network": _WIDER},
    ],
)
def test_networks_with_values_of_their_own_are_not_warned_of(changed: dict[str, Any]) -> None:
    assert "no program trains" not in _stderr(**changed)


def test_a_startup_program_other_than_the_default_one_is_named() -> None:
    said = _stderr(startup="fluid.default_startup_program()")
    assert (
        "default_startup_program() does not initialize it. Run the startup program of the program_guard"
        in said
    )
    assert "in effect at <string>:8" in said
