# SPDX-License-Identifier: Apache-2.0
"""Fluid's update rules against their formulas, written down for whole vectors in double precision."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, TypeAlias

import numpy as np
import pytest

from paddle.errors import ConfigError
from paddle.optim.dense import DenseUpdater
from paddle.optim.rules.table import RULES
from paddle.optim.spec import OptimizerSpec, ParameterSpec

STEPS = 120
SIZE = 37
V2_RULES = {
    "momentum",
    "sparse_momentum",
    "adagrad",
    "decayed_adagrad",
    "adadelta",
    "rmsprop",
    "adam",
    "adamax",
}

Vector: TypeAlias = Any  # float64
State: TypeAlias = dict[str, Any]
Hyper: TypeAlias = Mapping[str, float]


def sgd(p: Vector, g: Vector, s: State, t: int, lr: float, h: Hyper) -> Vector:
    return p - lr * g


def fluid_momentum(p: Vector, g: Vector, s: State, t: int, lr: float, h: Hyper) -> Vector:
    mu = h["momentum"]
    s["v"] = mu * s.get("v", 0.0) + g
    return p - lr * (g + mu * s["v"]) if h["nesterov"] else p - lr * s["v"]


def lars_momentum(p: Vector, g: Vector, s: State, t: int, lr: float, h: Hyper) -> Vector:
    wd, norm_p, norm_g = h["lars_weight_decay"], np.linalg.norm(p), np.linalg.norm(g)
    local = lr * h["lars_coeff"] * norm_p / (norm_g + wd * norm_p) if norm_p > 0 and norm_g > 0 else lr
    s["v"] = h["momentum"] * s.get("v", 0.0) + local * (g + wd * p)
    return p - s["v"]


def fluid_adagrad(p: Vector, g: Vector, s: State, t: int, lr: float, h: Hyper) -> Vector:
    s["m"] = s.get("m", h["initial_accumulator_value"]) + g**2
    return p - lr * g / (np.sqrt(s["m"]) + h["epsilon"])


def proximal_gd(p: Vector, g: Vector, s: State, t: int, lr: float, h: Hyper) -> Vector:
    moved = p - lr * g
    return np.sign(moved) * np.maximum(np.abs(moved) - lr * h["l1"], 0) / (1 + lr * h["l2"])


def proximal_adagrad(p: Vector, g: Vector, s: State, t: int, lr: float, h: Hyper) -> Vector:
    s["m"] = s.get("m", 0.0) + g**2
    moved = p - lr * g / np.sqrt(np.where(s["m"] > 0, s["m"], 1))
    return np.sign(moved) * np.maximum(np.abs(moved) - lr * h["l1"], 0) / (1 + lr * h["l2"])


def fluid_decayed_adagrad(p: Vector, g: Vector, s: State, t: int, lr: float, h: Hyper) -> Vector:
    s["m"] = h["decay"] * s.get("m", 0.0) + (1 - h["decay"]) * g**2
    return p - lr * g / (np.sqrt(s["m"]) + h["epsilon"])


def fluid_adadelta(p: Vector, g: Vector, s: State, t: int, lr: float, h: Hyper) -> Vector:
    rho, eps, b = h["rho"], h["epsilon"], s.get("b", 0.0)
    s["a"] = rho * s.get("a", 0.0) + (1 - rho) * g**2
    u = -np.sqrt((b + eps) / (s["a"] + eps)) * g
    s["b"] = rho * b + (1 - rho) * u**2
    return p + u


def fluid_rmsprop(p: Vector, g: Vector, s: State, t: int, lr: float, h: Hyper) -> Vector:
    rho, eps = h["rho"], h["epsilon"]
    s["s"] = rho * s.get("s", 0.0) + (1 - rho) * g**2
    s["mg"] = rho * s.get("mg", 0.0) + (1 - rho) * g
    under = s["s"] - s["mg"] ** 2 + eps if h["centered"] else s["s"] + eps
    s["mom"] = h["momentum"] * s.get("mom", 0.0) + lr * g / np.sqrt(under)
    return p - s["mom"]


def moments(g: Vector, s: State, h: Hyper) -> tuple[Vector, Vector]:
    s["m1"] = h["beta1"] * s.get("m1", 0.0) + (1 - h["beta1"]) * g
    s["m2"] = h["beta2"] * s.get("m2", 0.0) + (1 - h["beta2"]) * g**2
    return s["m1"], s["m2"]


def fluid_adam(p: Vector, g: Vector, s: State, t: int, lr: float, h: Hyper) -> Vector:
    m1, m2 = moments(g, s, h)
    b1pow, b2pow = s.setdefault("b1pow", h["beta1"]), s.setdefault("b2pow", h["beta2"])
    lr_t = lr * np.sqrt(1 - b2pow) / (1 - b1pow)
    s["b1pow"], s["b2pow"] = b1pow * h["beta1"], b2pow * h["beta2"]
    return p - lr_t * m1 / (np.sqrt(m2) + h["epsilon"])


def fluid_adamax(p: Vector, g: Vector, s: State, t: int, lr: float, h: Hyper) -> Vector:
    s["m"] = h["beta1"] * s.get("m", 0.0) + (1 - h["beta1"]) * g
    s["n"] = np.maximum(h["beta2"] * s.get("n", 0.0) + h["epsilon"], np.abs(g))
    return p - lr / (1 - h["beta1"] ** t) * s["m"] / s["n"]


def ftrl(p: Vector, g: Vector, s: State, t: int, lr: float, h: Hyper) -> Vector:
    n, lp = s.get("n", np.zeros_like(p)), h["lr_power"]
    new = n + g**2
    s["z"] = s.get("z", 0.0) + g - (new**-lp - n**-lp) / lr * p
    s["n"] = new
    z, l1 = s["z"], h["l1"]
    return np.where(np.abs(z) > l1, (l1 * np.sign(z) - z) / (new**-lp / lr + 2 * h["l2"]), 0.0)


def lamb(p: Vector, g: Vector, s: State, t: int, lr: float, h: Hyper) -> Vector:
    m1, m2 = moments(g, s, h)
    r = m1 / (np.sqrt(m2) + h["epsilon"]) + h["weight_decay"] * p
    return p - lr * np.linalg.norm(p) / np.linalg.norm(r) * r


REFERENCES: dict[str, Callable[[Vector, Vector, State, int, float, Hyper], Vector]] = {
    "sgd": sgd,
    "fluid_momentum": fluid_momentum,
    "lars_momentum": lars_momentum,
    "fluid_adagrad": fluid_adagrad,
    "fluid_decayed_adagrad": fluid_decayed_adagrad,
    "fluid_adadelta": fluid_adadelta,
    "fluid_rmsprop": fluid_rmsprop,
    "fluid_adam": fluid_adam,
    "lazy_adam": fluid_adam,
    "fluid_adamax": fluid_adamax,
    "ftrl": ftrl,
    "lamb": lamb,
    "proximal_gd": proximal_gd,
    "proximal_adagrad": proximal_adagrad,
}
FOR_ROWS = {"row_adagrad"}  # tests/runtime/optim/test_row_rules.py
BY_NORMS = {"lars_momentum", "lamb"}
CASES: list[tuple[str, dict[str, float]]] = [(rule, {}) for rule in REFERENCES] + [
    ("fluid_momentum", {"momentum": 0.7, "nesterov": 1}),
    ("lars_momentum", {"lars_coeff": 0.1, "lars_weight_decay": 0.05}),
    ("fluid_adagrad", {"initial_accumulator_value": 0.3}),
    ("fluid_rmsprop", {"rho": 0.9, "momentum": 0.8}),
    ("fluid_rmsprop", {"centered": 1, "momentum": 0.5, "epsilon": 1e-4}),
    ("ftrl", {"l1": 0.4, "l2": 0.2}),
    ("ftrl", {"lr_power": -0.7, "l2": 0.1}),
    ("lamb", {"weight_decay": 0.0}),
    *((f"proximal_{kind}", {"l1": 0.3, "l2": 0.2}) for kind in ("gd", "adagrad")),
]


@pytest.mark.parametrize(
    "more",
    [{}, {"l2": 0.05}, {"l1": 0.02, "l2": 0.01}, {"clip": 0.5, "l2": 0.05}, {"learning_rate": 2.0}],
    ids=str,
)
@pytest.mark.parametrize(("rule", "hyper"), CASES, ids=str)
def test_a_rule_follows_its_formula_over_many_steps(
    rule: str, hyper: dict[str, float], more: dict[str, float]
) -> None:
    rng = np.random.default_rng(11)
    optimizer = OptimizerSpec(rule, hyper, learning_rate=0.02)
    parameter = ParameterSpec("w", (SIZE,), **more)  # type: ignore[arg-type]
    updater = DenseUpdater(optimizer, parameter, SIZE)
    value = rng.standard_normal(SIZE).astype(np.float32)
    p, state = value.astype(np.float64), State()
    for t in range(1, STEPS + 1):
        grad, rate = rng.standard_normal(SIZE).astype(np.float32), 0.02 / (1 + 0.05 * t)
        updater.update(value, grad, rate)
        g = grad.astype(np.float64)
        g = np.clip(g, -parameter.clip, parameter.clip) if parameter.clip else g
        g = g + parameter.l1 * np.sign(p) + parameter.l2 * p  # clipped first, and without a half
        p = REFERENCES[rule](p, g, state, t, rate * parameter.learning_rate, optimizer.hyper)
    np.testing.assert_allclose(value, p, rtol=5e-4, atol=5e-5)


def test_every_rule_has_a_reference() -> None:
    assert set(REFERENCES) | V2_RULES | FOR_ROWS == set(RULES)


def steps(rule: str, hyper: dict[str, float], rate: float, start: float, *grads: float) -> list[float]:
    updater = DenseUpdater(OptimizerSpec(rule, hyper), ParameterSpec("p", (1,)), 1)
    value, seen = np.array([start], np.float32), []
    for grad in grads:
        updater.update(value, np.array([grad], np.float32), rate)
        seen.append(float(value[0]))
    return seen


@pytest.mark.parametrize(
    ("got", "expected"),
    [
        (steps("fluid_adam", {}, 0.001, 1.0, 0.1), [0.9990000]),
        (steps("fluid_momentum", {"momentum": 0.9}, 0.1, 1.0, 1.0, 1.0), [0.9, 0.71]),
        (steps("fluid_momentum", {"momentum": 0.9, "nesterov": 1}, 0.1, 1.0, 1.0), [0.81]),
        (steps("fluid_adagrad", {}, 0.1, 1.0, 2.0), [0.90000005]),
        (steps("fluid_rmsprop", {"rho": 0.95}, 0.1, 1.0, 1.0), [1 - 0.447209]),
    ],
)
def test_the_worked_numbers_come_out(got: list[float], expected: list[float]) -> None:
    assert got == pytest.approx(expected, abs=1e-6)


@pytest.mark.parametrize("rule", sorted(set(REFERENCES) - BY_NORMS))
def test_blocks_get_bit_for_bit_the_numbers_of_the_whole(rule: str) -> None:
    rng = np.random.default_rng(3)
    size, cut = 40_000, 12_345
    parameter = ParameterSpec("w", (size,), l2=1e-3, clip=1.5)
    whole = rng.standard_normal(size).astype(np.float32)
    parts = [whole[:cut].copy(), whole[cut:].copy()]
    one, two, three = (DenseUpdater(OptimizerSpec(rule), parameter, n) for n in (size, cut, size - cut))
    for _ in range(5):
        grad = rng.standard_normal(size).astype(np.float32)
        one.update(whole, grad, 0.01)
        two.update(parts[0], grad[:cut], 0.01)
        three.update(parts[1], grad[cut:], 0.01)
    assert np.array_equal(whole, np.concatenate(parts))


@pytest.mark.parametrize("rule", sorted(BY_NORMS))
def test_a_rule_with_norms_sees_the_whole_of_a_large_parameter(rule: str) -> None:
    size = 50_000  # several of the slices that other rules work in
    rng = np.random.default_rng(5)
    optimizer, state = OptimizerSpec(rule, learning_rate=0.1), State()
    value = rng.standard_normal(size).astype(np.float32) * np.linspace(0, 2, size, dtype=np.float32)
    p = value.astype(np.float64)
    updater = DenseUpdater(optimizer, ParameterSpec("w", (size,)), size)
    for t in range(1, 6):
        grad = rng.standard_normal(size).astype(np.float32)
        updater.update(value, grad, 0.1)
        p = REFERENCES[rule](p, grad.astype(np.float64), state, t, 0.1, optimizer.hyper)
    np.testing.assert_allclose(value, p, rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("rule", REFERENCES)
def test_gradients_of_zero_and_of_great_size_give_finite_values(rule: str) -> None:
    value = np.ones(4, np.float32)
    updater = DenseUpdater(OptimizerSpec(rule), ParameterSpec("w", (4,)), 4)
    for size in (0.0, 0.0, 1e-30, 1e4, 1e4, 1e4):
        updater.update(value, np.full(4, size, np.float32), 1e-6)
    assert np.isfinite(value).all()


@pytest.mark.parametrize("rule", sorted(set(REFERENCES) - {"fluid_adadelta"}))  # which has no rate
def test_a_rate_of_zero_changes_nothing(rule: str) -> None:
    value = np.arange(1, 5, dtype=np.float32)
    updater = DenseUpdater(OptimizerSpec(rule), ParameterSpec("w", (4,)), 4)
    for _ in range(3):
        updater.update(value, np.ones(4, np.float32), 0.0)
    assert value.tolist() == [1, 2, 3, 4]


def test_lars_takes_the_plain_rate_when_a_norm_is_zero() -> None:
    assert steps("lars_momentum", {}, 0.1, 0.0, 2.0) == pytest.approx([-0.2])


def test_ftrl_keeps_weights_at_exactly_zero_until_their_gradients_outweigh_l1() -> None:
    assert steps("ftrl", {"l1": 1.0}, 0.1, 0.0, 0.4, 0.4)[:2] == [0.0, 0.0]
    assert steps("ftrl", {"l1": 1.0}, 0.1, 0.0, 0.4, 0.4, 0.4)[2] < 0.0


def test_a_parameters_own_momentum_is_refused_where_the_rule_has_one() -> None:
    with pytest.raises(ConfigError, match=r"parameter w: fluid_momentum does not use .* got 0\.9"):
        DenseUpdater(OptimizerSpec("fluid_momentum"), ParameterSpec("w", (3,), momentum=0.9), 3)


@pytest.mark.parametrize(
    ("rule", "hyper", "why"),
    [
        ("fluid_momentum", {"nesterov": 0.5}, "nesterov: expected 0 or 1, got 0.5"),
        ("fluid_momentum", {"momentum": -0.1}, "momentum: expected 0 or more"),
        ("ftrl", {"lr_power": 0.5}, "ftrl lr_power: expected 0 or less"),
        ("lars_momentum", {"lars_coeff": 0}, "lars_coeff: expected more than 0"),
        ("fluid_adagrad", {"initial_accumulator_value": -1}, "initial_accumulator_value: expected 0 or more"),
        ("fluid_decayed_adagrad", {"decay": 1.0}, "decay: expected 0 or more and less than 1"),
        ("lamb", {"beta": 0.5}, "hyperparameter of lamb: expected one of"),
    ],
)
def test_a_hyperparameter_out_of_range_is_named(rule: str, hyper: dict[str, float], why: str) -> None:
    with pytest.raises(ConfigError, match=why):
        OptimizerSpec(rule, hyper)
