# SPDX-License-Identifier: Apache-2.0
"""Control-flow layers that run blocks of operators: While, Switch, ConditionalBlock, IfElse and ParallelDo."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext

from paddle.fluid.errors import FluidError, FluidTypeError
from paddle.fluid.layer_helper import LayerHelper
from paddle.fluid.program import bodies
from paddle.fluid.program.variable import Variable
from paddle.fluid.run.places import Place

__all__ = ["ConditionalBlock", "IfElse", "ParallelDo", "Switch", "While"]


class While:
    """A loop: `with While(cond).block():` repeats the block as long as `cond`, which the block must update, is true.

    After the loop, outer variables have the values that the block wrote.
    """

    def __init__(self, cond: Variable, is_test: bool = False, name: str | None = None) -> None:
        if cond.dtype != bool:
            raise FluidTypeError(f"the condition of a While must be bool, got {cond.describe()}")
        self._cond = cond
        self._is_test = is_test
        self._helper = LayerHelper("while", name)

    @contextmanager
    def block(self) -> Iterator[None]:
        """Collect the operators of the loop's body in a `with` statement."""
        inner = bodies.begin()
        yield
        body = bodies.end(inner)
        if self._cond.name not in body.writes:
            raise FluidError(
                f"the body of a While must write its condition {self._cond.name!r}, otherwise the loop never ends"
            )
        read = [name for name in body.reads if bodies.has_value(body.outer, name)]
        body.outer.append_op(
            "while",
            {"X": list(dict.fromkeys([*read, *body.kept])), "Condition": self._cond},
            {"Out": body.writes, "StepScopes": bodies.scopes(body.outer)},
            {"sub_block": body.idx, "is_test": self._is_test},
        )


class ConditionalBlock:
    """Runs a block only if `cond` is true: `with ConditionalBlock([cond], is_scalar_condition=True).block(): ...`."""

    def __init__(
        self, inputs: Sequence[Variable], is_scalar_condition: bool = False, name: str | None = None
    ) -> None:
        self._inputs = list(inputs)
        self._scalar = is_scalar_condition
        self._helper = LayerHelper("conditional_block", name)

    @contextmanager
    def block(self) -> Iterator[None]:
        """Collect the operators of the block in a `with` statement."""
        inner = bodies.begin()
        yield
        body = bodies.end(inner)
        given = list(dict.fromkeys([*body.reads, *body.kept]))
        body.outer.append_op(
            "conditional_block",
            {"Cond": self._inputs, "Input": given},
            {"Out": body.writes, "Scope": bodies.scopes(body.outer)},
            {"sub_block": body.idx, "is_scalar_condition": self._scalar},
        )


def _when(condition: Variable) -> AbstractContextManager[None]:
    return ConditionalBlock([condition], is_scalar_condition=True).block()


class Switch:
    """Runs the first of several blocks whose condition is true (if, elif, else).

    Inside `with Switch() as switch:`, use `with switch.case(cond): ...` and `with switch.default(): ...`.
    """

    def __init__(self, name: str | None = None) -> None:
        self._helper = LayerHelper("switch", name)
        self._none_before: Variable | None = None
        self._is_open = False

    def __enter__(self) -> Switch:
        self._is_open = True
        return self

    def __exit__(self, *error: object) -> None:
        self._is_open = False

    def case(self, condition: Variable) -> AbstractContextManager[None]:
        """Return a case that runs if `condition` is true; fill its block in a `with` statement."""
        if not self._is_open:
            raise FluidError("case must be called inside `with Switch() as switch:`")
        fails = self._helper.apply("logical_not", {"X": condition})
        if self._none_before is None:
            self._none_before = fails
            return _when(condition)
        before = self._none_before
        self._none_before = self._helper.apply("logical_and", {"X": before, "Y": fails})
        return _when(self._helper.apply("logical_and", {"X": before, "Y": condition}))

    def default(self) -> AbstractContextManager[None]:
        """Return the case that runs if no condition is true; fill its block in a `with` statement."""
        if self._none_before is None:
            raise FluidError("default must come after the first case")
        return _when(self._none_before)


class IfElse:
    """Computes each row in one of two branches, chosen by a bool condition (rows, 1).

    Use `with ie.true_block(): x = ie.input(a); ie.output(f(x))` and a `false_block` in the same way. Then `ie()`
    returns the outputs with their rows in the original order. Both branches run, each on its own rows,
    even if there are none.
    """

    def __init__(self, cond: Variable, name: str | None = None) -> None:
        self._cond = cond
        self._helper = LayerHelper("ifelse", name)
        self._inputs: dict[str, tuple[Variable, Variable]] = {}
        self._outputs: dict[bool, list[Variable]] = {True: [], False: []}
        self._way: bool | None = None

    @contextmanager
    def true_block(self) -> Iterator[None]:
        """Collect the operators for the rows whose condition is true, in a `with` statement."""
        yield from self._along(True)

    @contextmanager
    def false_block(self) -> Iterator[None]:
        """Collect the operators for the rows whose condition is false, in a `with` statement."""
        yield from self._along(False)

    def input(self, x: Variable) -> Variable:
        """Return the rows of x that belong to this branch."""
        if self._way is None:
            raise FluidError("IfElse.input must be called inside true_block or false_block")
        if x.name not in self._inputs:
            parts = (
                self._helper.create_variable_for_type_inference(x.dtype),
                self._helper.create_variable_for_type_inference(x.dtype),
            )
            self._helper.append_op(
                "split_lod_tensor", {"X": x, "Mask": self._cond}, {"OutTrue": parts[0], "OutFalse": parts[1]}
            )
            self._inputs[x.name] = parts
        return self._inputs[x.name][0 if self._way else 1]

    def output(self, *outs: Variable) -> None:
        """Declare the outputs of this branch; both branches must declare the same number."""
        if self._way is None:
            raise FluidError("IfElse.output must be called inside true_block or false_block")
        self._outputs[self._way] += outs

    def __call__(self) -> list[Variable]:
        """Return the outputs of both branches, merged."""
        yes, no = self._outputs[True], self._outputs[False]
        if len(yes) != len(no) or not yes:
            raise FluidError(
                "IfElse: both branches need the same number of outputs, at least 1; "
                f"got {len(yes)} in true_block and {len(no)} in false_block"
            )
        return [
            self._helper.apply("merge_lod_tensor", {"X": t, "Mask": self._cond, "InTrue": t, "InFalse": f})
            for t, f in zip(yes, no, strict=True)
        ]

    def _along(self, way: bool) -> Iterator[None]:
        self._way = way
        try:
            yield
        finally:
            self._way = None


class ParallelDo:
    """Runs a block on the whole batch; exists for scripts of Fluid 0.x, which divided the batch among `places`.

    Use `with pd.do(): pd.write_output(f(pd.read_input(x)))`; then `pd()` returns the outputs.

    To divide the batch, run the program as a `CompiledProgram`. `use_nccl` is ignored.
    """

    def __init__(self, places: Sequence[Place], use_nccl: bool = False, name: str | None = None) -> None:
        self._outputs: list[Variable] = []

    def do(self) -> AbstractContextManager[None]:
        """Return the block, which is filled in a `with` statement."""
        return nullcontext()

    def read_input(self, var: Variable) -> Variable:
        """Return an input of the block: the variable itself."""
        return var

    def write_output(self, var: Variable) -> None:
        """Declare an output of the block."""
        self._outputs.append(var)

    def __call__(self) -> Variable | list[Variable]:
        """Return the outputs: one variable, or a list."""
        if not self._outputs:
            raise FluidError("ParallelDo: the block has no output; call write_output in it")
        return self._outputs[0] if len(self._outputs) == 1 else self._outputs
