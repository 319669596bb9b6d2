# SPDX-License-Identifier: Apache-2.0
"""Each rule against its formula in plain numpy, dense and sparse; clips, decay and rates."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest

import paddle.fluid as fluid

Array = Any
Rule = Callable[[Array, Array, dict[str, Any], int], Array]
LR = 0.1


def sgd(w: Array, g: Array, s: dict[str, Any], t: int) -> Array:
    return w - LR * g


def momentum(w: Array, g: Array, s: dict[str, Any], t: int) -> Array:
    s["v"] = 0.9 * s.get("v", 0) + g
    return w - LR * s["v"]


def nesterov(w: Array, g: Array, s: dict[str, Any], t: int) -> Array:
    s["v"] = 0.9 * s.get("v", 0) + g
    return w - LR * (g + 0.9 * s["v"])


def lars(w: Array, g: Array, s: dict[str, Any], t: int) -> Array:
    norms = np.linalg.norm(w), np.linalg.norm(g)
    rate = LR * 0.001 * norms[0] / (norms[1] + 0.0005 * norms[0]) if min(norms) > 0 else LR
    s["v"] = 0.9 * s.get("v", 0) + rate * (g + 0.0005 * w)
    return w - s["v"]


def adagrad(w: Array, g: Array, s: dict[str, Any], t: int) -> Array:
    s["m"] = s.get("m", 0) + g * g
    return w - LR * g / (np.sqrt(s["m"]) + 1e-6)


def decayed_adagrad(w: Array, g: Array, s: dict[str, Any], t: int) -> Array:
    s["m"] = 0.95 * s.get("m", 0) + 0.05 * g * g
    return w - LR * g / (np.sqrt(s["m"]) + 1e-6)


def adadelta(w: Array, g: Array, s: dict[str, Any], t: int) -> Array:
    s["a"] = 0.95 * s.get("a", 0) + 0.05 * g * g
    u = -np.sqrt((s.get("b", 0) + 1e-6) / (s["a"] + 1e-6)) * g
    s["b"] = 0.95 * s.get("b", 0) + 0.05 * u * u
    return w + u


def averages(g: Array, s: dict[str, Any]) -> None:
    s["m"] = 0.9 * s.get("m", 0) + 0.1 * g
    s["v"] = 0.999 * s.get("v", 0) + 0.001 * g * g


def adam(w: Array, g: Array, s: dict[str, Any], t: int) -> Array:
    averages(g, s)
    rate = LR * np.sqrt(1 - 0.999**t) / (1 - 0.9**t)
    return w - rate * s["m"] / (np.sqrt(s["v"]) + 1e-8)


def lamb(w: Array, g: Array, s: dict[str, Any], t: int) -> Array:
    averages(g, s)
    r = s["m"] / (np.sqrt(s["v"]) + 1e-6) + 0.01 * w
    return w - LR * np.linalg.norm(w) / np.linalg.norm(r) * r


def adamax(w: Array, g: Array, s: dict[str, Any], t: int) -> Array:
    s["m"] = 0.9 * s.get("m", 0) + 0.1 * g
    s["n"] = np.maximum(0.999 * s.get("n", 0) + 1e-8, np.abs(g))
    return w - LR / (1 - 0.9**t) * s["m"] / s["n"]


def rmsprop(w: Array, g: Array, s: dict[str, Any], t: int) -> Array:
    s["s"] = 0.95 * s.get("s", 0) + 0.05 * g * g
    s["d"] = 0.5 * s.get("d", 0) + LR * g / np.sqrt(s["s"] + 1e-6)
    return w - s["d"]


def centred(w: Array, g: Array, s: dict[str, Any], t: int) -> Array:
    s["s"] = 0.95 * s.get("s", 0) + 0.05 * g * g
    s["a"] = 0.95 * s.get("a", 0) + 0.05 * g
    s["d"] = 0.5 * s.get("d", 0) + LR * g / np.sqrt(s["s"] - s["a"] ** 2 + 1e-6)
    return w - s["d"]


def ftrl(w: Array, g: Array, s: dict[str, Any], t: int) -> Array:
    n = s.get("n", np.zeros_like(w))
    after = n + g * g
    s["z"] = s.get("z", 0) + g - (after**0.5 - n**0.5) / LR * w
    s["n"], z = after, s["z"]
    return np.where(np.abs(z) > 0.01, (0.01 * np.sign(z) - z) / (after**0.5 / LR + 2 * 0.02), 0)


O = fluid.optimizer  # noqa: E741
RULES: dict[str, tuple[Rule, Callable[[], fluid.optimizer.Optimizer]]] = {
    "sgd": (sgd, lambda: O.SGD(LR)),
    "momentum": (momentum, lambda: O.Momentum(LR, 0.9)),
    "nesterov": (nesterov, lambda: O.Momentum(LR, 0.9, use_nesterov=True)),
    "lars": (lars, lambda: O.LarsMomentum(LR, 0.9)),
    "adagrad": (adagrad, lambda: O.Adagrad(LR)),
    "decayed_adagrad": (decayed_adagrad, lambda: O.DecayedAdagrad(LR)),
    "adadelta": (adadelta, lambda: O.Adadelta(LR)),
    "adam": (adam, lambda: O.Adam(LR)),
    "adamax": (adamax, lambda: O.Adamax(LR)),
    "lamb": (lamb, lambda: O.Lamb(LR)),
    "rmsprop": (rmsprop, lambda: O.RMSProp(LR, momentum=0.5)),
    "centred": (centred, lambda: O.RMSProp(LR, momentum=0.5, centered=True)),
    "ftrl": (ftrl, lambda: O.Ftrl(LR, l1=0.01, l2=0.02)),
}


def follow(
    optimizer: fluid.optimizer.Optimizer,
    grads: list[Array],
    attr: fluid.ParamAttr | None = None,
    dtype: str = "float32",
) -> Array:
    """Return the parameter, at first 0.5, 1.0, ..., of (4, 3) after steps with the given gradients."""
    g = fluid.layers.data("g", [4, 3], append_batch_size=False, dtype=dtype)
    attr = attr or fluid.ParamAttr()
    attr.name = "w"
    w = fluid.layers.create_parameter([4, 3], dtype, attr=attr)
    optimizer.minimize(fluid.layers.reduce_sum(fluid.layers.elementwise_mul(w, g)))
    exe = fluid.Executor(fluid.CPUPlace())
    exe.run(fluid.default_startup_program())
    fluid.global_scope().var("w").get_tensor().set(first().astype(dtype))
    for grad in grads:
        exe.run(feed={"g": grad.astype(dtype)})
    return np.array(fluid.global_scope().find_var("w").get_tensor())  # type: ignore[union-attr]


def first() -> npt.NDArray[np.float32]:
    return (np.arange(12).reshape(4, 3) * 0.5 + 0.5).astype("float32")


def gradients(steps: int) -> list[Array]:
    used = np.arange(12).reshape(4, 3) != 0  # where a gradient is 0, ε alone keeps Adam from 0/0
    return list(np.random.default_rng(3).standard_normal((steps, 4, 3)) * used)


@pytest.mark.parametrize(
    ("steps", "dtype", "rtol"), [(1, "float32", 2e-5), (5, "float32", 2e-5), (5, "float16", 0.02)]
)
@pytest.mark.parametrize("name", RULES)
def test_a_rule_follows_its_formula(name: str, steps: int, dtype: str, rtol: float) -> None:
    rule, make = RULES[name]
    got = follow(make(), gradients(steps), dtype=dtype)
    w, state = first().astype("float64"), dict[str, Any]()
    for t, grad in enumerate(gradients(steps), 1):
        w = rule(w, grad.astype("float32").astype("float64"), state, t)
    assert got.dtype == dtype
    np.testing.assert_allclose(got, w, rtol=rtol, atol=rtol / 20)


def sparse_steps(optimizer: fluid.optimizer.Optimizer, is_sparse: bool) -> Array:
    ids = fluid.layers.data("ids", [1], dtype="int64")
    rows = fluid.layers.embedding(ids, [6, 2], is_sparse=is_sparse, param_attr="table")
    optimizer.minimize(fluid.layers.reduce_sum(fluid.layers.square(rows)))
    exe = fluid.Executor(fluid.CPUPlace())
    exe.run(fluid.default_startup_program())
    table = np.linspace(-1, 1, 12, dtype="float32").reshape(6, 2)
    fluid.global_scope().var("table").get_tensor().set(table)
    for batch in ([[1], [3], [1]], [[0], [3], [5]], [[1], [1], [1]]):
        exe.run(feed={"ids": np.array(batch, "int64")})
    return np.array(fluid.global_scope().find_var("table").get_tensor())  # type: ignore[union-attr]


@pytest.mark.parametrize("name", ["sgd", "momentum", "adagrad", "adam", "rmsprop"])
def test_a_sparse_gradient_gives_the_numbers_of_the_dense_one(name: str) -> None:
    with fluid.program_guard(fluid.Program(), fluid.Program()), fluid.scope_guard(fluid.Scope()):
        dense = sparse_steps(RULES[name][1](), False)
    np.testing.assert_allclose(sparse_steps(RULES[name][1](), True), dense, rtol=1e-5, atol=1e-6)


def test_lazy_adam_moves_the_rows_of_the_gradient_alone() -> None:
    table = np.linspace(-1, 1, 12, dtype="float32").reshape(6, 2)
    got = sparse_steps(O.Adam(LR, lazy_mode=True), True)
    np.testing.assert_array_equal(got[[2, 4]], table[[2, 4]])
    assert (got[[0, 1, 3, 5]] != table[[0, 1, 3, 5]]).all()


def test_a_rate_of_its_own_is_a_factor() -> None:
    grad = gradients(1)
    got = follow(O.SGD(LR), grad, fluid.ParamAttr(learning_rate=3.0))
    np.testing.assert_allclose(got, first() - 3 * LR * grad[0], rtol=1e-5)


def test_l2_decay_adds_the_weight_itself_without_a_half() -> None:
    grad = gradients(1)
    got = follow(O.SGD(LR, regularization=fluid.regularizer.L2Decay(0.2)), grad)
    np.testing.assert_allclose(got, first() - LR * (grad[0] + 0.2 * first()), rtol=1e-5)


def test_l1_decay_of_the_parameter_goes_before_the_optimizers() -> None:
    grad = gradients(1)
    attr = fluid.ParamAttr(regularizer=fluid.regularizer.L1Decay(0.2))
    got = follow(O.SGD(LR, regularization=fluid.regularizer.L2Decay(9.0)), grad, attr)
    np.testing.assert_allclose(got, first() - LR * (grad[0] + 0.2), rtol=1e-5)


@pytest.mark.parametrize(
    ("clip", "expected"),
    [
        (fluid.clip.GradientClipByValue(0.3), lambda g: np.clip(g, -0.3, 0.3)),
        (fluid.clip.GradientClipByNorm(0.5), lambda g: g * 0.5 / np.linalg.norm(g)),
        (fluid.clip.GradientClipByGlobalNorm(0.5), lambda g: g * 0.5 / np.linalg.norm(g)),
        (fluid.clip.GradientClipByGlobalNorm(1e3), lambda g: g),
    ],
)
def test_gradients_are_clipped_before_decay(clip: Any, expected: Callable[[Array], Array]) -> None:
    grad = gradients(1)
    attr = fluid.ParamAttr(gradient_clip=clip)
    got = follow(O.SGD(LR, regularization=fluid.regularizer.L2Decay(0.1)), grad, attr)
    np.testing.assert_allclose(got, first() - LR * (expected(grad[0]) + 0.1 * first()), rtol=1e-5)


_IDS = ([[1], [3], [1], [1]], [[0], [3], [5], [0]], [[2], [2], [2], [2]])


def _together(grads: dict[str, Array], bound: float) -> dict[str, Array]:
    norm = np.sqrt(sum((grad**2).sum() for grad in grads.values()))
    return {name: grad * bound / max(bound, norm) for name, grad in grads.items()}


def _alone(grads: dict[str, Array], bound: float) -> dict[str, Array]:
    return {name: _together({name: grad}, bound)[name] for name, grad in grads.items()}


@pytest.mark.parametrize("optimized", [False, True])
@pytest.mark.parametrize(
    ("decay", "decayed"),
    [
        (None, lambda w: 0 * w),
        (fluid.regularizer.L2Decay(0.2), lambda w: 0.2 * w),
        (fluid.regularizer.L1Decay(0.2), lambda w: 0.2 * np.sign(w)),
    ],
)
@pytest.mark.parametrize(
    ("clip", "clipped"),
    [
        (None, lambda grads: grads),
        (fluid.clip.GradientClipByValue(0.3), lambda gs: {n: np.clip(g, -0.3, 0.3) for n, g in gs.items()}),
        (fluid.clip.GradientClipByValue(0.5, 0.1), None),
        (fluid.clip.GradientClipByNorm(0.5), lambda grads: _alone(grads, 0.5)),
        (fluid.clip.GradientClipByGlobalNorm(0.5), lambda grads: _together(grads, 0.5)),
        (fluid.clip.GradientClipByGlobalNorm(50.0), lambda grads: _together(grads, 50.0)),
    ],
)
def test_clips_and_decay_of_a_sparse_table_follow_the_formula_of_the_dense_one(
    clip: Any,
    clipped: Callable[[dict[str, Array]], dict[str, Array]] | None,
    decay: Any,
    decayed: Callable[[Array], Array],
    optimized: bool,
) -> None:
    ids = fluid.layers.data("ids", [1], dtype="int64")
    g = fluid.layers.data("g", [4, 2], append_batch_size=False)
    rows = fluid.layers.embedding(ids, [6, 2], is_sparse=True, param_attr="table")
    factor = fluid.layers.create_parameter([4, 2], "float32", attr=fluid.ParamAttr(name="w"))
    loss = fluid.layers.reduce_sum((rows + factor) * g)
    if clip is not None:
        fluid.clip.set_gradient_clip(clip)
    O.Momentum(LR, 0.9, regularization=decay).minimize(loss)
    if optimized:
        fluid.memory_optimize(fluid.default_main_program())
    exe = fluid.Executor(fluid.CPUPlace())
    exe.run(fluid.default_startup_program())
    values = {
        "table": np.linspace(-1, 1, 12, dtype="float32").reshape(6, 2),
        "w": np.linspace(-2, 1, 8, dtype="float32").reshape(4, 2),
    }
    for name, value in values.items():
        fluid.global_scope().var(name).get_tensor().set(value)
    speeds = {name: np.zeros_like(value) for name, value in values.items()}
    for batch, grad in zip(_IDS, np.random.default_rng(3).standard_normal((3, 4, 2)), strict=True):
        found = exe.run(
            feed={"ids": np.array(batch, "int64"), "g": grad.astype("float32")}, fetch_list=[loss]
        )
        places = np.array(batch)[:, 0]
        np.testing.assert_allclose(
            found[0], ((values["table"][places] + values["w"]) * grad).sum(), rtol=1e-4, atol=1e-5
        )
        grads = {"table": np.zeros((6, 2)), "w": grad.copy()}
        np.add.at(grads["table"], places, grad)
        if clipped is not None:
            grads = clipped(grads)
        else:  # rows that are not there stay 0, whatever the least value is
            grads["w"] = grads["w"].clip(0.1, 0.5)
            grads["table"][places] = grads["table"][places].clip(0.1, 0.5)
        for name in values:
            speeds[name] = 0.9 * speeds[name] + grads[name] + decayed(values[name])
            values[name] = values[name] - LR * speeds[name]
    for name, expected in values.items():
        got = np.array(fluid.global_scope().find_var(name).get_tensor())  # type: ignore[union-attr]
        np.testing.assert_allclose(got, expected, rtol=1e-4, atol=1e-5)


def test_each_parameter_has_its_own_clip() -> None:
    x = fluid.layers.data("x", [4])
    loss = fluid.layers.mean(fluid.layers.fc(x, 2, param_attr="w", bias_attr="b"))
    fluid.clip.set_gradient_clip(fluid.clip.GradientClipByValue(0.1), ["w"])
    O.SGD(LR).minimize(loss)
    clips = [op for op in fluid.default_main_program().global_block().ops if op.type == "clip"]
    assert [op.attrs["op_role_var"] for op in clips] == [("w", "w@GRAD")]


def test_a_clip_given_to_minimize_is_that_of_all_its_gradients() -> None:
    x = fluid.layers.data("x", [4])
    hidden = fluid.layers.fc(
        x, 2, param_attr=fluid.ParamAttr("w", gradient_clip=fluid.clip.GradientClipByValue(0.1))
    )
    start = fluid.initializer.Constant(1.0)
    loss = fluid.layers.mean(
        fluid.layers.fc(hidden, 1, param_attr=fluid.ParamAttr("v", start), bias_attr=False)
    )
    O.SGD(1.0).minimize(loss, grad_clip=fluid.clip.GradientClipByGlobalNorm(0.25))
    executor = fluid.Executor(fluid.CPUPlace())
    executor.run(fluid.default_startup_program())
    names = [each.name for each in fluid.default_main_program().global_block().all_parameters()]
    before = {name: fluid.global_scope().get(name).copy() for name in names}
    executor.run(feed={"x": np.ones((2, 4), "float32")})
    moved = [((fluid.global_scope().get(name) - before[name]) ** 2).sum() for name in names]
    assert len(names) == 3
    assert np.sqrt(sum(moved)) == pytest.approx(0.25, rel=1e-5)
    with pytest.raises(TypeError, match=r"expected grad_clip to be a clip of fluid.clip, got 0.5"):
        O.SGD(1.0).minimize(loss, grad_clip=0.5)


def test_members_of_a_clip_group_need_one_norm() -> None:
    x = fluid.layers.data("x", [4])
    loss = fluid.layers.mean(fluid.layers.fc(x, 2, param_attr="w", bias_attr="b"))
    for norm, name in ((1.0, "w"), (2.0, "b")):
        fluid.clip.set_gradient_clip(fluid.clip.GradientClipByGlobalNorm(norm), [name])
    with pytest.raises(ValueError, match="all members need the same clip_norm"):
        O.SGD(LR).minimize(loss)


def test_a_learning_rate_must_be_a_number_or_a_variable() -> None:
    with pytest.raises(TypeError, match="learning_rate"):
        O.SGD("0.1")


def rates(make: Callable[[], Any], steps: list[int]) -> list[float]:
    rate = make()
    exe = fluid.Executor(fluid.CPUPlace())
    exe.run(fluid.default_startup_program())
    seen = [float(exe.run(fetch_list=[rate])[0][0]) for _ in range(max(steps) + 1)]
    return [seen[step] for step in steps]


L = fluid.layers


@pytest.mark.parametrize(
    ("make", "steps", "expected"),
    [
        (lambda: L.exponential_decay(0.1, 10, 0.5), [0, 5, 10], [0.1, 0.0707107, 0.05]),
        (lambda: L.exponential_decay(0.1, 10, 0.5, staircase=True), [9, 10], [0.1, 0.05]),
        (lambda: L.noam_decay(512, 4000), [0], [1.74693e-07]),
        (lambda: L.polynomial_decay(0.1, 100, 0.01), [50, 100, 120], [0.055, 0.01, 0.01]),
        (lambda: L.natural_exp_decay(0.1, 10, 0.5), [10], [0.1 * np.exp(-0.5)]),
        (lambda: L.inverse_time_decay(0.1, 10, 0.5), [10], [0.1 / 1.5]),
        (lambda: L.piecewise_decay([2, 4], [1.0, 0.5, 0.1]), [1, 2, 3, 4], [1.0, 0.5, 0.5, 0.1]),
        (lambda: L.linear_lr_warmup(0.1, 4, 0.0, 0.2), [0, 1, 3, 4], [0.0, 0.05, 0.15, 0.1]),
        (lambda: L.polynomial_decay(0.1, 10, 0.01, cycle=True), [0, 5, 15], [0.1, 0.055, 0.0325]),
        (lambda: L.cosine_decay(0.1, 5, 4), [0, 10], [0.1, 0.05 * (np.cos(np.pi / 2) + 1)]),
    ],
)
def test_rates_follow_their_schedule(
    make: Callable[[], Any], steps: list[int], expected: list[float]
) -> None:
    np.testing.assert_allclose(rates(make, steps), expected, rtol=1e-4)


def test_what_updates_keep_is_listed_and_loaded() -> None:
    loss = fluid.layers.mean(fluid.layers.fc(fluid.layers.data("x", [2]), 1, param_attr="w", bias_attr=False))
    optimizer = fluid.optimizer.Adam(0.1)
    optimizer.minimize(loss)
    names = optimizer.get_opti_var_name_list()
    assert names == ["w_moment1_0", "w_moment2_0", "w_beta1_pow_acc_0", "w_beta2_pow_acc_0"]
    exe = fluid.Executor(fluid.CPUPlace())
    exe.run(fluid.default_startup_program())
    feed = {"x": np.ones((1, 2), "float32")}
    exe.run(feed=feed)
    kept = {name: np.array(fluid.global_scope().get(name)) for name in names}
    exe.run(feed=feed)
    optimizer.load(kept)
    assert all(np.array_equal(fluid.global_scope().get(name), kept[name]) for name in names)
    with pytest.raises(ValueError, match="'w_moment2_0'"):
        optimizer.load({"w_moment1_0": kept["w_moment1_0"]})
    with pytest.raises(ValueError, match=r"a value of shape \(3,\)"):
        optimizer.load({**kept, "w_moment1_0": np.zeros(3)})
