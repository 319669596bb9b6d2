# SPDX-License-Identifier: Apache-2.0
"""Infers shapes before kernels run, and checks whether operators accept fed values of other shapes.

Declared shapes of fed variables are placeholders: a padded batch can be shorter than the declaration. Operators then
get other shapes than when the program was built, and check them again.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from paddle.graph.block import Block
from paddle.graph.operator import EMPTY, Operator
from paddle.ops.base.errors import OpError
from paddle.ops.base.registry import Spec


class Misfits:
    """Checks fed values whose shapes differ from their declarations; each set of shapes is checked one time."""

    def __init__(self, block: Block, ops: Iterable[tuple[int, Operator]]) -> None:
        self._infer = _Inference({name: each.spec for name, each in block.visible_vars().items()}, tuple(ops))
        self._passed: set[tuple[tuple[str, tuple[int, ...]], ...]] = set()

    def odd(self, values: Mapping[str, Any]) -> dict[str, tuple[int, ...]]:
        """Return the shapes that differ from the declarations."""
        specs = self._infer.specs
        return {
            name: tuple(value.shape)
            for name, value in values.items()
            if not shape_fits(value.shape, specs[name].shape)
        }

    def refusal(
        self, values: Mapping[str, Any], odd: Mapping[str, tuple[int, ...]]
    ) -> tuple[int, OpError] | None:
        """Return the index of the first operator that does not accept these values, and why; None: all do."""
        key = tuple(odd.items())
        if key in self._passed:
            return None
        specs = self._infer.specs
        batch = {name: specs[name]._replace(shape=tuple(value.shape)) for name, value in values.items()}
        failed = self._infer.first_failure(batch)
        if failed is None and len(self._passed) < _MOST:
            self._passed.add(key)
        return failed


_MOST = 10_000  # cached sets of shapes


class _Inference:
    # Specs and not variables: those know their program, which a cached plan must not keep alive.
    def __init__(self, specs: Mapping[str, Spec], ops: tuple[tuple[int, Operator], ...]) -> None:
        self.specs, self._ops = specs, ops

    def first_failure(self, given: Mapping[str, Spec]) -> tuple[int, OpError] | None:
        seen: dict[str, Spec | None] = dict(given)  # shapes that differ from the declarations; None: unknown

        def spec_of(name: str) -> Spec:
            found = seen.get(name)
            return self.specs[name] if found is None else found

        for at, (_, op) in enumerate(self._ops):
            touched = [name for name in op.input_names if name in seen]
            if not touched:
                for name in op.output_names:
                    seen.pop(name, None)
                continue
            if op.definition.infer is None or any(seen[name] is None for name in touched):
                seen.update(dict.fromkeys(op.output_names))
                continue
            try:
                results = Block.inferred(op, spec_of)
            except OpError as error:
                return at, error
            for names, specs in zip(op.outputs.values(), results, strict=True):
                seen.update((name, spec) for name, spec in zip(names, specs, strict=True) if name != EMPTY)
        return None


def shape_fits(shape: tuple[int, ...], declared: tuple[int, ...]) -> bool:
    """Return whether a value has the declared shape."""
    return shape == declared or (
        len(shape) == len(declared)
        and all(want in (-1, got) for got, want in zip(shape, declared, strict=True))
    )
