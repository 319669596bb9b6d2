# SPDX-License-Identifier: Apache-2.0
"""Optimizer: backward pass, clipping, decay, then one update operator a parameter, in the order of their names.

What an update keeps between steps are persistable variables `<parameter>_<name>_0` of the parameter's shape.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from numbers import Real
from typing import ClassVar, NamedTuple, cast
from weakref import WeakKeyDictionary

from paddle.fluid import backward
from paddle.fluid.clip import GradientClip, append_gradient_clip_ops
from paddle.fluid.errors import FluidError, FluidTypeError
from paddle.fluid.initializer import Constant
from paddle.fluid.layer_helper import LayerHelper
from paddle.fluid.program.block import Block
from paddle.fluid.program.defaults import default_main_program, default_startup_program, program_guard
from paddle.fluid.program.name_scopes import name_scope
from paddle.fluid.program.operator import Operator
from paddle.fluid.program.program import Program
from paddle.fluid.program.variable import Parameter, Variable
from paddle.fluid.regularizer import Regularizer, append_regularization_ops
from paddle.graph import unique_name
from paddle.graph.block import Name

Pair = tuple[Parameter, Variable]


class Accumulator(NamedTuple):
    """One variable that an update keeps for each parameter.

    Attributes:
        name: part of the variable's name.
        slot: of the operator; the output is `<out>`.
        out: output slot; None: the slot and Out, empty if the operator only reads it.
        fill: first value.
        single: one number instead of the parameter's shape.
    """

    name: str
    slot: str
    out: str | None = None
    fill: float = 0.0
    single: bool = False


class Optimizer:
    """Base of all optimizers: a rule is a row of class attributes, and a constructor that names its attributes.

    Attributes:
        op_type: the operator of an update.
        keeps: what an update keeps.
        has_rate: whether the operator takes the learning rate.
    """

    op_type: ClassVar[str]
    keeps: ClassVar[tuple[Accumulator, ...]] = ()
    has_rate: ClassVar[bool] = True

    def __init__(
        self,
        learning_rate: float | Variable,
        regularization: Regularizer | None = None,
        name: str | None = None,
        **attributes: object,
    ) -> None:
        """Begin; `attributes` are those of the update operators."""
        rate: object = learning_rate
        if isinstance(rate, bool) or not isinstance(rate, (Real, Variable)):
            raise FluidTypeError(f"learning_rate: expected a number or a Variable, got {learning_rate!r}")
        self._rate = learning_rate
        self._regularization = regularization
        self._name = name
        self._attributes = attributes
        self._rates: WeakKeyDictionary[Program, Variable] = WeakKeyDictionary()
        self._kept: dict[tuple[str, str], Variable] = {}

    def accumulators(self) -> Sequence[Accumulator]:
        """Return what an update keeps."""
        return self.keeps

    def attributes(self, parameter: Parameter) -> Mapping[str, object]:
        """Return the attributes of a parameter's update operator."""
        return self._attributes

    def minimize(
        self,
        loss: Variable,
        startup_program: Program | None = None,
        parameter_list: Sequence[Name] | None = None,
        no_grad_set: Collection[Name] | None = None,
        grad_clip: GradientClip | None = None,
    ) -> tuple[list[Operator], list[Pair]]:
        """Append all that makes a step, and return (update operators, [(parameter, gradient)]).

        Args:
            loss: what is made small.
            startup_program: gets the first values of what updates keep; None: the default one.
            parameter_list: what is trained; None: all trainable parameters.
            no_grad_set: what nothing is derived for.
            grad_clip: how all of its gradients are clipped; it goes before what `set_gradient_clip` and parameters say.

        Raises:
            FluidTypeError: grad_clip is no gradient clip.
        """
        if grad_clip is not None and not isinstance(grad_clip, GradientClip):
            raise FluidTypeError(
                f"minimize: expected grad_clip to be a clip of fluid.clip, got {grad_clip!r}"
            )
        pairs = self.backward(loss, startup_program, parameter_list, no_grad_set)
        if grad_clip is not None:
            for parameter, _ in pairs:
                parameter.with_attribute("gradient_clip_attr", grad_clip)
        return self.apply_optimize(loss, startup_program, pairs), pairs

    def backward(
        self,
        loss: Variable,
        startup_program: Program | None = None,
        parameter_list: Sequence[Name] | None = None,
        no_grad_set: Collection[Name] | None = None,
        callbacks: Sequence[object] | None = None,
    ) -> list[Pair]:
        """Append the backward pass and return [(parameter, gradient)]."""
        program = cast(Program, loss.block.program)
        with program_guard(program, startup_program or default_startup_program()):
            return backward.append_backward(loss, parameter_list, no_grad_set, callbacks)

    def apply_optimize(
        self, loss: Variable, startup_program: Program | None, params_grads: Sequence[Pair]
    ) -> list[Operator]:
        """Append the updates to the loss's program; see `apply_gradients`."""
        program = cast(Program, loss.block.program)
        with program_guard(program, startup_program or default_startup_program()):
            return self.apply_gradients(params_grads)

    def apply_gradients(self, params_grads: Sequence[Pair]) -> list[Operator]:
        """Append clipping, decay and updates to the default main program; return the update operators.

        Raises:
            FluidError: there is no gradient to apply.
            FluidTypeError: there is one of a variable that is no parameter.
        """
        if not params_grads:
            raise FluidError("the optimizer was given no gradients: is any parameter trainable?")
        for each, _ in params_grads:
            if not isinstance(each, Parameter):
                raise FluidTypeError(
                    f"an optimizer updates parameters, and {each!r} is none: append_backward gives its gradient alone"
                )
        pairs = sorted(params_grads, key=lambda pair: pair[0].name)
        table, pairs = self._without_table(pairs)
        ops = [self._update_table(*table)] if table else []
        pairs = append_regularization_ops(append_gradient_clip_ops(pairs), self._regularization)
        return self._updates(pairs) + ops

    def _updates(self, pairs: Sequence[Pair]) -> list[Operator]:
        program = default_main_program()
        block = program.global_block()
        before = len(block.ops)
        for parameter, _ in pairs:
            for accumulator in self.accumulators():
                self._keep(parameter, accumulator)
        self._global_rate()
        for parameter, grad in pairs:
            with program._optimized_guard([parameter, grad]), name_scope("optimizer"):
                self._update(block, parameter, grad)
        for parameter, grad in pairs:
            with program._optimized_guard([parameter, grad]), name_scope("optimizer"):
                self.finish(block, parameter)
        return [cast(Operator, op) for op in block.ops[before:]]

    def _update(self, block: Block, parameter: Parameter, grad: Variable) -> Operator:
        inputs: dict[str, Name] = {"Param": parameter, "Grad": grad}
        outputs: dict[str, Name] = {"ParamOut": parameter}
        if self.has_rate:
            inputs["LearningRate"] = self._rate_of(parameter)
        for accumulator in self.accumulators():
            kept = self.kept(accumulator.name, parameter)
            inputs[accumulator.slot] = kept
            out = f"{accumulator.slot}Out" if accumulator.out is None else accumulator.out
            if out:
                outputs[out] = kept
        return block.append_op(self.op_type, inputs, outputs, self.attributes(parameter))

    def finish(self, block: Block, parameter: Parameter) -> None:
        """Append what comes after all updates; nothing by default."""

    def kept(self, name: str, parameter: Parameter) -> Variable:
        """Return what the update keeps for a parameter under a name."""
        return self._kept[name, parameter.name]

    def _keep(self, parameter: Parameter, accumulator: Accumulator) -> None:
        if (accumulator.name, parameter.name) in self._kept:
            raise FluidError(
                f"{parameter.name!r} is updated twice by one optimizer: make one optimizer a loss"
            )
        own = f"{self._name}_{accumulator.name}" if self._name else accumulator.name
        helper = LayerHelper(self.op_type)
        variable = helper.create_global_variable(
            unique_name.generate(f"{parameter.name}_{own}"),
            (1,) if accumulator.single else parameter.shape,
            parameter.dtype,
            persistable=True,
        )
        helper.set_variable_initializer(variable, Constant(accumulator.fill))
        self._kept[accumulator.name, parameter.name] = variable

    def _global_rate(self) -> Variable:
        """Return the variable of the learning rate, made once a program."""
        if isinstance(self._rate, Variable):
            return self._rate
        program = default_main_program()
        if program not in self._rates:
            helper = LayerHelper(self.op_type)
            name = unique_name.generate("learning_rate")
            rate = helper.create_global_variable(name, (1,), "float32", persistable=True)
            helper.set_variable_initializer(rate, Constant(float(self._rate)))
            self._rates[program] = rate
        return self._rates[program]

    def _global_learning_rate(self, program: Program | None = None) -> Variable | None:
        """Return the variable of the learning rate in a program, None if there is none yet."""
        if isinstance(self._rate, Variable):
            return self._rate
        return self._rates.get(program or default_main_program())

    def _rate_of(self, parameter: Parameter) -> Variable:
        """Return the rate of a parameter: a number is a factor, a variable stands for itself."""
        factor = parameter.optimize_attr["learning_rate"]
        if isinstance(factor, Variable):
            return factor
        if factor == 1.0:
            return self._global_rate()
        program = default_main_program()
        with program._lr_schedule_guard(is_with_opt=True), name_scope("scale_with_param_lr"):
            return cast(Variable, self._global_rate() * factor)

    def _without_table(self, pairs: Sequence[Pair]) -> tuple[Pair | None, list[Pair]]:
        """Take the distributed table out, which is updated by plain gradient descent on the servers."""
        block = default_main_program().global_block()
        names = {
            op.inputs["W"][0] for op in block.ops if op.type == "lookup_table" and op.attrs["is_distributed"]
        }
        tables = [pair for pair in pairs if pair[0].name in names]
        if len(tables) > 1:
            raise FluidError(f"only one embedding can be distributed, got {', '.join(sorted(names))}")
        return (tables[0] if tables else None), [pair for pair in pairs if pair[0].name not in names]

    def _update_table(self, table: Parameter, grad: Variable) -> Operator:
        program = default_main_program()
        self._global_rate()
        with program._optimized_guard([table, grad]):
            return program.global_block().append_op(
                "sgd",
                {"Param": table, "Grad": grad, "LearningRate": self._rate_of(table)},
                {"ParamOut": table},
            )
