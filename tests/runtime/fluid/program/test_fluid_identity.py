# SPDX-License-Identifier: Apache-2.0
"""What takes variables tells them apart by identity or name: `==` would append an operator, and be true of any two."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import paddle.fluid as fluid

layers = fluid.layers
PAIR = {"equal", "not_equal"}
OPTIMIZERS: dict[str, Callable[..., Any]] = {
    "sgd": lambda **given: fluid.optimizer.SGD(0.1, **given),
    "momentum": lambda **given: fluid.optimizer.Momentum(0.1, 0.9, **given),
    "adam": lambda **given: fluid.optimizer.Adam(0.1, **given),
    "ftrl": lambda **given: fluid.optimizer.Ftrl(0.1, **given),
    "lamb": lambda **given: fluid.optimizer.Lamb(0.1, **given),
    "dgc": lambda **given: fluid.optimizer.DGCMomentumOptimizer(0.1, 0.9, 0, **given),
}


class Net:
    """Two layers of which one parameter has a rate and a bound of its own."""

    def __init__(self) -> None:
        self.x, self.y = layers.data("x", [4]), layers.data("y", [1])
        attr = fluid.ParamAttr(learning_rate=0.5, regularizer=fluid.regularizer.L2Decay(0.1))
        self.hidden = layers.fc(self.x, 3, act="tanh", param_attr=attr)
        self.out = layers.fc([self.hidden, self.x], 1)
        self.loss = layers.mean(layers.square_error_cost(self.out, self.y))

    @property
    def program(self) -> Any:
        return fluid.default_main_program()

    @property
    def parameters(self) -> list[Any]:
        return list(self.program.global_block().all_parameters())


@pytest.fixture
def net() -> Any:
    """A net; no program that is derived from it compares anything."""
    made = Net()
    yield made
    for program in (made.program, fluid.default_startup_program()):
        assert not PAIR & {op.type for block in program.blocks for op in block.ops}


@pytest.mark.parametrize("name", OPTIMIZERS)
def test_optimizers_take_variables(net: Net, name: str) -> None:
    first, *others = net.parameters
    fluid.clip.set_gradient_clip(fluid.clip.GradientClipByGlobalNorm(1.0), param_list=others)
    made = OPTIMIZERS[name](regularization=fluid.regularizer.L1Decay(0.1))
    _, pairs = made.minimize(net.loss, parameter_list=[*others, first], no_grad_set={others[-1]})
    assert {parameter.name for parameter, _ in pairs} == {each.name for each in (first, *others[:-1])}
    exe = fluid.Executor(fluid.CPUPlace())
    exe.run(fluid.default_startup_program())
    feed = fluid.DataFeeder([net.x, net.y], fluid.CPUPlace()).feed([([1.0] * 4, [2.0]), ([0.0] * 4, [1.0])])
    found = exe.run(feed=feed, fetch_list=[net.loss, net.out, net.loss, net.out])
    np.testing.assert_array_equal(found[0], found[2])
    np.testing.assert_array_equal(found[1], found[3])
    assert found[1].shape == (2, 1)


def test_derivations_take_variables(net: Net) -> None:
    found = fluid.gradients([net.loss, net.out], [net.x, net.hidden], no_grad_set={net.y})
    pairs = fluid.backward.append_backward(net.loss, parameter_list=net.parameters[:1], no_grad_set={net.y})
    assert [each.shape for each in found if each is not None] == [net.x.shape, net.hidden.shape]
    assert [parameter.name for parameter, _ in pairs] == [net.parameters[0].name]


def test_files_and_copies_take_variables(net: Net, tmp_path: Path) -> None:
    fluid.optimizer.Adam(0.1).minimize(net.loss)
    exe = fluid.Executor(fluid.CPUPlace())
    exe.run(fluid.default_startup_program())
    chosen = net.parameters[1:3]
    fluid.io.save_vars(exe, str(tmp_path / "some"), vars=chosen)
    fluid.io.load_vars(exe, str(tmp_path / "some"), vars=chosen[::-1])
    assert {each.name for each in (tmp_path / "some").iterdir()} == {each.name for each in chosen}
    fluid.io.save_inference_model(str(tmp_path / "model"), ["x"], [net.out, net.hidden], exe)
    copy = net.program.clone(for_test=True)
    pruned = net.program._prune([net.out])
    for each in (copy, pruned):
        assert not PAIR & {op.type for op in each.global_block().ops}


@pytest.mark.parametrize("slices", [True, False])
def test_transpiled_programs_compare_nothing(net: Net, slices: bool) -> None:
    fluid.optimizer.Momentum(layers.exponential_decay(0.1, 10, 0.9), 0.9).minimize(net.loss)
    config = fluid.DistributeTranspilerConfig()
    config.slice_var_up, config.wait_port = slices, False
    transpiler = fluid.DistributeTranspiler(config)
    servers = "127.0.0.1:6174,127.0.0.1:6175"
    transpiler.transpile(0, pservers=servers, trainers=2)
    made = [transpiler.get_trainer_program()]
    for server in servers.split(","):
        made += transpiler.get_pserver_programs(server)
    assert not PAIR & {op.type for each in made for block in each.blocks for op in block.ops}


def test_containers_tell_variables_apart(net: Net) -> None:
    x, y = net.x, net.y
    count = len(net.program.global_block().ops)
    assert {x: 1, y: 2}[y] == 2
    assert {x, y} - {x} == {y}
    assert Counter([x, y, x]).most_common(1)[0][1] == 2
    assert (x, y) == (x, y)
    assert [x, y].index(x) == 0
    assert len(net.program.global_block().ops) == count
