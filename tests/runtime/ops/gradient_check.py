# SPDX-License-Identifier: Apache-2.0
"""Runs one operator as a program and compares its gradients with central differences in float64.

A `Case` is data: which operator, what goes into each slot, attributes. Values are drawn from a fixed seed.
"""

from __future__ import annotations

import functools
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from paddle.graph import Executor, Program, Scope, Variable, append_backward
from paddle.ops.base.lod import lod_of, offsets_of, plain, with_lod
from paddle.ops.base.registry import lookup

STEP = 1e-5


@dataclass(frozen=True)
class Values:
    """What to draw for one input.

    Attributes:
        kind: normal, positive, unit (inside of 0..1), probabilities (rows add up to 1), apart (no two values of a
            row are close, none is near zero), ids or booleans (not differentiated).
        high: ids are below it.
        kinks: normal values keep away from these points.
        lengths: of sequences, level by level; the value is then a LoDArray.
        given: the ids themselves, where they are not drawn.
    """

    shape: tuple[int, ...]
    kind: str = "normal"
    high: int = 0
    kinks: tuple[float, ...] = ()
    lengths: tuple[tuple[int, ...], ...] = ()
    given: tuple[int, ...] = ()

    @property
    def is_float(self) -> bool:
        return self.kind not in ("ids", "booleans")

    def draw(self, rng: np.random.Generator) -> Any:
        return with_lod(self._draw(rng), offsets_of(self.lengths))

    def _draw(self, rng: np.random.Generator) -> Any:
        if self.kind == "ids":
            if self.given:
                return np.array(self.given).reshape(self.shape)
            return rng.integers(0, self.high, self.shape)
        if self.kind == "booleans":
            return rng.integers(0, 2, self.shape).astype(bool)
        if self.kind == "apart":
            size = int(np.prod(self.shape))
            return (rng.permutation(size).reshape(self.shape) - size / 2 + 0.3) / max(size, 1) * 4
        if self.kind == "unit":
            return rng.uniform(0.1, 0.9, self.shape)
        if self.kind == "probabilities":
            drawn = rng.uniform(0.1, 1.0, self.shape)
            return drawn / drawn.sum(axis=-1, keepdims=True)
        drawn = rng.standard_normal(self.shape)
        if self.kind == "positive":
            return np.abs(drawn) + 0.3
        for kink in self.kinks:
            near = np.abs(drawn - kink) < 0.05
            drawn[near] = kink + 0.1
        return drawn


@dataclass(frozen=True, eq=False)
class Case:
    """One operator with inputs; a plain tuple of sizes means normal values, a list fills a slot that takes several."""

    op: str
    inputs: dict[str, Any]
    attrs: dict[str, Any] = field(default_factory=dict)
    parts: int = 1  # how many variables an output slot that takes several gets
    fixed: tuple[str, ...] = ()  # input slots that get no gradient although they hold floats
    scored: tuple[str, ...] = ()  # output slots the loss is made of; default: all of floats

    @functools.cached_property
    def name(self) -> str:
        shapes = "_".join(
            "x".join(map(str, value.shape)) or "scalar"
            for values in self.drawn().values()
            for value in values
        )
        attrs = "_".join(f"{key}={value}" for key, value in self.attrs.items())
        return f"{self.op}-{shapes}-{attrs}".rstrip("-").replace(" ", "")

    @property
    def has_lod(self) -> bool:
        return any(_values(each).lengths for slot in self.inputs for each in self.listed(slot)) or any(
            slot.lod for slot in lookup(self.op).outputs
        )

    @property
    def is_told(self) -> bool:
        """Whether a tensor decides about sizes or places."""
        return any(_values(each).given for slot in self.inputs for each in self.listed(slot))

    def drawn(self) -> dict[str, list[Any]]:
        rng = np.random.default_rng(20171)
        return {slot: [_values(each).draw(rng) for each in self.listed(slot)] for slot in self.inputs}

    def listed(self, slot: str) -> list[Any]:
        value = self.inputs[slot]
        return value if isinstance(value, list) else [value]

    def is_differentiated(self, slot: str) -> bool:
        return slot not in self.fixed and all(_values(each).is_float for each in self.listed(slot))


class OpProgram:
    """A program of one operator whose float outputs are weighed at random and added up to a loss."""

    def __init__(self, case: Case, dtype: str, *, batch_unknown: bool = False, device: str = "cpu") -> None:
        self.case, self.dtype = case, dtype
        self.program = Program()
        self.program.random_seed = 9
        self.block = self.program.global_block()
        self.executor = Executor(device)
        self.feed: dict[str, Any] = {}
        self.inputs: dict[str, list[Variable]] = {}
        for slot, values in case.drawn().items():
            self.inputs[slot] = [
                self._input(slot, at, value, batch_unknown) for at, value in enumerate(values)
            ]
        self.outputs = {
            slot.name: [f"{slot.name}_{at}" for at in range(case.parts if slot.many else 1)]
            for slot in lookup(case.op).outputs
        }
        self.block.append_op(case.op, self.inputs, self.outputs, case.attrs)

    def _input(self, slot: str, at: int, value: Any, batch_unknown: bool) -> Variable:
        name = f"{slot}_{at}"
        data = plain(value)
        self.feed[name] = with_lod(data.astype(self.dtype) if data.dtype.kind == "f" else data, lod_of(value))
        shape = (-1, *value.shape[1:]) if batch_unknown else value.shape
        fixed = not self.case.is_differentiated(slot)
        return self.block.create_var(
            name, shape, self.feed[name].dtype, stop_gradient=fixed, lod_level=len(lod_of(value))
        )

    def add_loss(self) -> Variable:
        rng = np.random.default_rng(7)
        outputs = self.executor.run(self.program, self.feed, self.float_outputs, Scope(), step=0)
        terms = []
        for name, value in zip(self.float_outputs, outputs, strict=True):
            weight = self.block.create_var(f"{name}_weight", value.shape, self.dtype, stop_gradient=True)
            self.feed[weight.name] = rng.uniform(0.5, 1.5, value.shape).astype(self.dtype)
            self.block.append_op("elementwise_mul", {"X": name, "Y": weight}, {"Out": f"{name}_weighed"})
            self.block.append_op(
                "reduce_sum", {"X": f"{name}_weighed"}, {"Out": f"{name}_sum"}, {"reduce_all": True}
            )
            terms.append(f"{name}_sum")
        self.block.append_op("sum", {"X": terms}, {"Out": "loss"})
        return self.block.var("loss")

    @property
    def float_outputs(self) -> list[str]:
        scored = self.case.scored or tuple(
            slot.name for slot in lookup(self.case.op).outputs if not slot.intermediate
        )
        names = [name for slot in scored for name in self.outputs[slot]]
        return [name for name in names if self.block.var(name).dtype.kind == "f"]

    @property
    def differentiated(self) -> list[str]:
        return [v.name for slot, vs in self.inputs.items() if self.case.is_differentiated(slot) for v in vs]

    def run(self, fetches: list[str]) -> list[Any]:
        return self.executor.run(self.program, self.feed, fetches, Scope(), step=0)


def analytic(case: Case, dtype: str, device: str = "cpu") -> dict[str, Any]:
    """Return the gradients that the operator's own gradient computes, on that device."""
    built = OpProgram(case, dtype, device=device)
    append_backward(built.add_loss())
    names = built.differentiated
    return dict(zip(names, built.run([f"{name}@GRAD" for name in names]), strict=True))


@functools.lru_cache(maxsize=1)  # the tests of a case with each dtype follow one another
def numeric(case: Case) -> dict[str, Any]:
    """Return the gradients by central differences in float64; callers must not change them."""
    built = OpProgram(case, "float64")
    built.add_loss()
    gradients = {}
    for name in built.differentiated:
        values = plain(built.feed[name])
        gradient = np.zeros(values.shape)
        for at in np.ndindex(values.shape):
            kept = values[at]
            sides = []
            for side in (kept + STEP, kept - STEP):
                values[at] = side
                sides.append(built.run(["loss"])[0].item())
            values[at] = kept
            gradient[at] = (sides[0] - sides[1]) / (2 * STEP)
        gradients[name] = gradient
    return gradients


def _values(each: Any) -> Values:
    return each if isinstance(each, Values) else Values(tuple(each))
