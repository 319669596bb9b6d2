# SPDX-License-Identifier: Apache-2.0
"""Every update rule of v2 against its formula, written down element by element in double precision."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest

from paddle.errors import ConfigError
from paddle.optim.dense import DenseUpdater
from paddle.optim.spec import OptimizerSpec, ParameterSpec

STEPS = 40
SIZE = 37
BASE_RATE = 0.01


def clipped(g: float, clip: float) -> float:
    return max(-clip, min(clip, g)) if clip else g


def moved(w: float, d: float, s: dict[str, float], mu: float) -> float:
    s["m"] = mu * s.get("m", 0.0) - d
    return w + s["m"]


def momentum(
    w: float, g: float, s: dict[str, float], t: int, eta: float, l2: float, mu: float, h: Any
) -> Any:
    return moved(w, eta * (g + l2 * w), s, mu), 1.0


def adagrad(w: float, g: float, s: dict[str, float], t: int, eta: float, l2: float, mu: float, h: Any) -> Any:
    s["s"] = s.get("s", 0.0) + g**2
    r = 1 / math.sqrt(s["s"] + h["epsilon"])
    return moved(w, eta * r * (g + l2 * w), s, mu), r


def decayed_adagrad(
    w: float, g: float, s: dict[str, float], t: int, eta: float, l2: float, mu: float, h: Any
) -> Any:
    s["G"] = g**2 if t == 1 else h["rho"] * s["G"] + (1 - h["rho"]) * g**2
    r = 1 / math.sqrt(s["G"] + h["epsilon"])
    return moved(w, eta * r * (g + l2 * w), s, mu), r


def adadelta(
    w: float, g: float, s: dict[str, float], t: int, eta: float, l2: float, mu: float, h: Any
) -> Any:
    rho, eps = h["rho"], h["epsilon"]
    s["E"] = rho * s.get("E", 0.0) + (1 - rho) * g**2
    r = math.sqrt((s.get("D", 0.0) + eps) / (s["E"] + eps))
    s["D"] = rho * s.get("D", 0.0) + (1 - rho) * (g * r) ** 2
    return moved(w, eta * r * (g + l2 * w), s, mu), r


def rmsprop(w: float, g: float, s: dict[str, float], t: int, eta: float, l2: float, mu: float, h: Any) -> Any:
    rho, eps = h["rho"], h["epsilon"]
    s["G"] = g**2 if t == 1 else rho * s["G"] + (1 - rho) * g**2
    s["F"] = rho * s.get("F", 0.0) + (1 - rho) * g
    r = 1 / math.sqrt(s["G"] - s["F"] ** 2 + eps)
    return moved(w, eta * r * (g + l2 * w), s, mu), r


def adam(w: float, g: float, s: dict[str, float], t: int, eta: float, l2: float, mu: float, h: Any) -> Any:
    b1, b2 = h["beta1"], h["beta2"]
    s["m"] = b1 * s.get("m", 0.0) + (1 - b1) * g
    s["v"] = b2 * s.get("v", 0.0) + (1 - b2) * g**2
    alpha = eta * math.sqrt(1 - b2**t) / (1 - b1**t)
    return w - alpha * s["m"] / (math.sqrt(s["v"]) + h["epsilon"]), 1.0


def adamax(w: float, g: float, s: dict[str, float], t: int, eta: float, l2: float, mu: float, h: Any) -> Any:
    b1, b2 = h["beta1"], h["beta2"]
    s["m"] = b1 * s.get("m", 0.0) + (1 - b1) * g
    s["u"] = max(b2 * s.get("u", 0.0), abs(g))
    return w - eta / (1 - b1**t) * (s["m"] / s["u"] if s["u"] else 0.0), 1.0


REFERENCES = {
    "momentum": momentum,
    "sparse_momentum": momentum,
    "adagrad": adagrad,
    "decayed_adagrad": decayed_adagrad,
    "adadelta": adadelta,
    "rmsprop": rmsprop,
    "adam": adam,
    "adamax": adamax,
}
IGNORE_SCHEDULE = {"adagrad", "adamax"}


def soft_threshold(w: float, by: float) -> float:
    return math.copysign(max(abs(w) - by, 0.0), w)


def train_by_hand(
    optimizer: OptimizerSpec,
    parameter: ParameterSpec,
    start: np.ndarray,
    grads: np.ndarray,
    rates: list[float],
) -> list[float]:
    ends = []
    for element, w in enumerate(map(float, start)):
        state: dict[str, float] = {}
        for t, rate in enumerate(rates, 1):
            base = optimizer.learning_rate if optimizer.rule in IGNORE_SCHEDULE else rate
            eta = base * parameter.learning_rate
            g = clipped(float(grads[t - 1, element]), parameter.clip)
            l2 = 0.0 if parameter.l1 else parameter.l2
            w, r = REFERENCES[optimizer.rule](w, g, state, t, eta, l2, parameter.momentum, optimizer.hyper)
            if parameter.l1:
                w = soft_threshold(w, eta * r * parameter.l1)
                w *= 1 / (1 + eta * r * parameter.l2)
        ends.append(w)
    return ends


PARAMETERS: dict[str, dict[str, Any]] = {
    "plain": {},
    "momentum": {"momentum": 0.9},
    "l2": {"l2": 0.05},
    "l2 and momentum": {"l2": 0.05, "momentum": 0.5},
    "l1": {"l1": 0.02},
    "l1 and l2": {"l1": 0.02, "l2": 0.05},
    "clip": {"clip": 0.3},
    "twice the rate": {"learning_rate": 2.0},
    "all": {"learning_rate": 0.5, "momentum": 0.7, "l2": 0.01, "clip": 0.8},
}


@pytest.mark.parametrize("what", PARAMETERS)
@pytest.mark.parametrize("rule", REFERENCES)
def test_a_rule_follows_its_formula_over_many_steps(rule: str, what: str) -> None:
    rng = np.random.default_rng(7)
    optimizer = OptimizerSpec(rule, learning_rate=BASE_RATE)
    parameter = ParameterSpec("w", (SIZE,), **PARAMETERS[what])
    value = rng.standard_normal(SIZE).astype(np.float32)
    grads = rng.standard_normal((STEPS, SIZE)).astype(np.float32)
    rates = [BASE_RATE / (1 + 0.1 * step) for step in range(STEPS)]
    expected = train_by_hand(optimizer, parameter, value, grads, rates)
    updater = DenseUpdater(optimizer, parameter, SIZE)
    for grad, rate in zip(grads, rates, strict=True):
        updater.update(value, grad, rate)
    np.testing.assert_allclose(value, expected, rtol=2e-4, atol=2e-5)


@pytest.mark.parametrize("rule", REFERENCES)
def test_blocks_get_bit_for_bit_the_numbers_of_the_whole(rule: str) -> None:
    rng = np.random.default_rng(3)
    size, cut = 40_000, 12_345
    optimizer = OptimizerSpec(rule)
    parameter = ParameterSpec("w", (size,), momentum=0.9, l2=1e-3, clip=1.5)
    whole = rng.standard_normal(size).astype(np.float32)
    parts = [whole[:cut].copy(), whole[cut:].copy()]
    one = DenseUpdater(optimizer, parameter, size)
    two = [DenseUpdater(optimizer, parameter, len(part)) for part in parts]
    for _ in range(5):
        grad = rng.standard_normal(size).astype(np.float32)
        one.update(whole, grad, 0.01)
        two[0].update(parts[0], grad[:cut], 0.01)
        two[1].update(parts[1], grad[cut:], 0.01)
    assert np.array_equal(whole, np.concatenate(parts))


@pytest.mark.parametrize("rule", REFERENCES)
def test_a_gradient_of_zero_or_of_great_size_gives_finite_values(rule: str) -> None:
    value = np.ones(4, np.float32)
    updater = DenseUpdater(OptimizerSpec(rule), ParameterSpec("w", (4,)), 4)
    for size in (0.0, 0.0, 1e4, 1e4, 1e4, 1e4):
        updater.update(value, np.full(4, size, np.float32), 1e-6)
    assert np.isfinite(value).all()


@pytest.mark.parametrize("rule", REFERENCES)
def test_an_update_leaves_the_gradient_alone(rule: str) -> None:
    grad = np.array([3.0, -4.0], np.float32)
    grad.flags.writeable = False
    updater = DenseUpdater(OptimizerSpec(rule), ParameterSpec("w", (2,), clip=1.0), 2)
    updater.update(np.ones(2, np.float32), grad, 0.1)
    assert grad.tolist() == [3.0, -4.0]


def test_a_gradient_of_another_shape_or_dtype_is_refused() -> None:
    updater = DenseUpdater(OptimizerSpec(), ParameterSpec("fc.w", (3,)), 3)
    value = np.zeros(3, np.float32)
    with pytest.raises(
        ConfigError, match=r"gradient of parameter fc\.w: expected \(3,\) float32, got \(4,\) float32"
    ):
        updater.update(value, np.zeros(4, np.float32), 0.1)
    with pytest.raises(ConfigError, match=r"got .* float64"):
        updater.update(value, np.zeros(3), 0.1)  # type: ignore[arg-type]


def test_a_static_parameter_has_no_updater() -> None:
    with pytest.raises(ConfigError, match="mean is static"):
        DenseUpdater(OptimizerSpec(), ParameterSpec("mean", (3,), static=True), 3)
