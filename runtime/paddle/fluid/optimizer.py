# SPDX-License-Identifier: Apache-2.0
"""Optimizers, which append the backward pass, clipping, weight decay, and an update operator for each parameter.

The state of an update is stored in persistable variables `<parameter>_<name>_0` with the parameter's shape.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable, Collection, Mapping, Sequence
from inspect import Parameter as Argument
from inspect import Signature
from types import MappingProxyType
from typing import Any, ClassVar, cast
from weakref import WeakKeyDictionary

import numpy.typing as npt

from paddle.fluid import backward
from paddle.fluid.averages import ExponentialMovingAverage, ModelAverage, load_values
from paddle.fluid.clip import BaseGradientClipAttr, append_gradient_clip_ops
from paddle.fluid.errors import FluidError, FluidTypeError, answering
from paddle.fluid.initializer import Constant
from paddle.fluid.layer_helper import LayerHelper, append_LARS
from paddle.fluid.parallel.dgc import DeepGradientCompression
from paddle.fluid.parallel.pipeline import PipelineOptimizer
from paddle.fluid.program.block import Block
from paddle.fluid.program.misuse import MISUSE, FixedRate, check_arguments
from paddle.fluid.program.operator import Operator
from paddle.fluid.program.program import (
    Program,
    default_main_program,
    default_startup_program,
    name_scope,
    program_guard,
)
from paddle.fluid.program.variable import Parameter, Variable
from paddle.fluid.regularizer import WeightDecayRegularizer, append_regularization_ops
from paddle.graph import unique_name
from paddle.graph.block import Name
from paddle.optim.rules.table import FLUID, Fluid
from paddle.signatures import bound, parsed

Pair = tuple[Parameter, Variable]


class Optimizer(FixedRate):
    """Base class of optimizers; each row of `optim.rules` defines one subclass.

    Subclasses in scripts override the original's methods: `_create_accumulators`, which calls `_add_accumulator`,
    `_append_optimize_op`, `_finish_update` and `_create_global_learning_rate`.

    Attributes:
        rule: the update operator and its state; None means subclasses append their own operators.
        fields: mapping from the operator's attributes to fields without `_`, whose values at `minimize` are used.
        fills: mapping from names of state variables to their initial values.
        exempting: mapping from attributes to predicates; an attribute is 0 for parameters for which its predicate is
            true.
    """

    rule: ClassVar[Fluid | None] = None
    fields: ClassVar[Mapping[str, str]] = MappingProxyType({})
    fills: Mapping[str, float] = MappingProxyType({})
    exempting: Mapping[str, Callable[[Parameter], bool]] = MappingProxyType({})
    _lars_decay = 0.0

    def __init__(
        self,
        learning_rate: float | Variable,
        regularization: WeightDecayRegularizer | None = None,
        name: str | None = None,
    ) -> None:
        """Create an optimizer."""
        check_arguments(learning_rate, regularization)
        self._learning_rate = learning_rate
        self.regularization = regularization
        self._name = name
        self._learning_rate_map: WeakKeyDictionary[Program, Variable] = WeakKeyDictionary()
        self._accumulators: dict[str, dict[str, Variable]] = {}
        self._states: list[Variable] = []
        MISUSE.made()
        self.type = self.rule.op_type if self.rule else type(self).__name__

    def minimize(
        self,
        loss: Variable,
        startup_program: Program | None = None,
        parameter_list: Sequence[Name] | None = None,
        no_grad_set: Collection[Name] | None = None,
        grad_clip: BaseGradientClipAttr | None = None,
    ) -> tuple[list[Operator], list[Pair]]:
        """Append all operators of a training step; return (update operators, (parameter, gradient) pairs).

        Args:
            loss: the loss to minimize.
            startup_program: initializes the optimizer's state; None means the default startup program.
            parameter_list: the parameters to train; None means all trainable parameters.
            no_grad_set: variables that get no gradient.
            grad_clip: clip for all gradients; it overrides `set_gradient_clip` and the clips of parameters.

        Raises:
            FluidTypeError: grad_clip is not a gradient clip.
        """
        if grad_clip is not None and not isinstance(grad_clip, BaseGradientClipAttr):
            raise FluidTypeError(
                f"minimize: expected grad_clip to be a clip of fluid.clip, got {grad_clip!r}"
            )
        if not isinstance(loss, Variable):
            raise FluidTypeError(
                f"minimize: the loss must be a Variable, such as layers.mean(cost), got {loss!r}"
            )
        block = loss.block
        is_again = block.has_var(f"{loss.name}@GRAD")
        updated = {name for op in block.ops for name in op.inputs.get("Param", ())}
        pairs = self.backward(
            loss,
            startup_program=startup_program,
            parameter_list=parameter_list,
            no_grad_set=no_grad_set,
        )
        if is_again and not updated.isdisjoint(parameter.name for parameter, _ in pairs):
            warnings.warn(
                f"minimize was called for {loss.name!r} before, so each run of the program updates its parameters "
                "twice: call it once, or build the program again",
                stacklevel=2,
            )
        if grad_clip is not None:
            for parameter, _ in pairs:
                parameter.gradient_clip_attr = grad_clip
        return self.apply_optimize(loss, startup_program=startup_program, params_grads=pairs), pairs

    def backward(
        self,
        loss: Variable,
        startup_program: Program | None = None,
        parameter_list: Sequence[Name] | None = None,
        no_grad_set: Collection[Name] | None = None,
        callbacks: Sequence[object] | None = None,
    ) -> list[Pair]:
        """Append the backward pass; return (parameter, gradient) pairs."""
        MISUSE.rule_out()
        program = cast(Program, loss.block.program)
        with program_guard(program, startup_program or default_startup_program()):
            return backward.append_backward(loss, parameter_list, no_grad_set, callbacks)

    def apply_optimize(
        self, loss: Variable, startup_program: Program | None, params_grads: Sequence[Pair]
    ) -> list[Operator]:
        """Append the operators that update parameters to the loss's program; see `apply_gradients`."""
        program = cast(Program, loss.block.program)
        with program_guard(program, startup_program or default_startup_program()):
            return self.apply_gradients(params_grads)

    def apply_gradients(self, params_grads: Sequence[Pair]) -> list[Operator]:
        """Append clipping, weight decay and updates to the default main program; return the update operators.

        Raises:
            FluidError: the list of gradients is empty.
            FluidTypeError: a gradient belongs to a variable that is not a parameter.
        """
        MISUSE.rule_out()
        if not params_grads:
            raise FluidError(
                "the optimizer has no gradients to apply; check that at least one parameter is trainable, and that "
                "input and label of the cost are not exchanged"
            )
        for each, _ in params_grads:
            if not isinstance(each, Parameter):
                raise FluidTypeError(
                    f"{each!r} is not a parameter, so an optimizer cannot update it; use "
                    "append_backward to compute its gradient"
                )
        pairs = sorted(params_grads, key=lambda pair: pair[0].name)
        tables, pairs = self._without_tables(pairs)
        ops = [self._update_table(*table) for table in tables]
        pairs = append_regularization_ops(append_gradient_clip_ops(pairs), self.regularization)
        return self._create_optimization_pass(pairs) + ops

    def get_opti_var_name_list(self) -> list[str]:
        """Return the names of the optimizer's state variables, in order of creation."""
        return [each.name for each in self._states]

    def load(self, stat_dict: Mapping[str, Any]) -> None:
        """Load the optimizer's state into the current scope from arrays by name; see `get_opti_var_name_list`.

        Raises:
            FluidError: a name is missing, or a value has a different shape.
        """
        load_values(self._states, stat_dict)

    def _create_optimization_pass(self, parameters_and_grads: Sequence[Pair]) -> list[Operator]:
        program = default_main_program()
        block = program.global_block()
        before = len(block.ops)
        self._create_accumulators(block, [parameter for parameter, _ in parameters_and_grads])
        self._create_global_learning_rate()
        if self._lars_decay:
            rate = cast(Variable, self._global_learning_rate())
            append_LARS(parameters_and_grads, rate, self._lars_decay)
        for pair in parameters_and_grads:
            with program._optimized_guard(pair), name_scope("optimizer"):
                self._append_optimize_op(block, pair)
        with program._optimized_guard([]):
            self._finish_update(block, parameters_and_grads)
        return [cast(Operator, op) for op in block.ops[before:]]

    def _append_optimize_op(self, block: Block, param_and_grad: Pair) -> Any:
        """Append the operator that updates a parameter; return it."""
        rule, (parameter, grad) = self.rule, param_and_grad
        if rule is None:
            raise FluidError(
                f"{type(self).__name__} has no update: define _append_optimize_op(block, param_and_grad), or derive "
                "the class from an optimizer such as SGDOptimizer"
            )
        inputs: dict[str, Name] = {"Param": parameter, "Grad": grad}
        outputs: dict[str, Name] = {"ParamOut": parameter}
        if "LearningRate" in rule.slots[0]:
            inputs["LearningRate"] = self._create_param_lr(param_and_grad)
        for kept, out in zip(rule.kept, rule.slots[1][1:], strict=True):
            inputs[kept.slot] = outputs[out.rstrip("?")] = self._get_accumulator(kept.variable, parameter)
        for beta in rule.powers:
            inputs[f"{beta.capitalize()}Pow"] = self._get_accumulator(f"{beta}_pow_acc", parameter)
        exempt = {name: 0.0 for name, is_exempt in self.exempting.items() if is_exempt(parameter)}
        return block.append_op(rule.op_type, inputs, outputs, {**self._attributes(), **exempt})

    def _finish_update(self, block: Block, parameters_and_grads: Sequence[Pair]) -> Any:
        """Append the operators that follow all updates, which multiply the powers of the betas."""
        program = cast(Program, block.program)
        for parameter, grad in parameters_and_grads:
            with program._optimized_guard([parameter, grad]), name_scope("optimizer"):
                for beta in self.rule.powers if self.rule else ():
                    power = self._get_accumulator(f"{beta}_pow_acc", parameter)
                    block.append_op(
                        "scale", {"X": power}, {"Out": power}, {"scale": self._attributes()[beta]}
                    )

    def _create_accumulators(self, block: Block, parameters: Sequence[Parameter]) -> Any:
        """Create the variables that hold the optimizer's state."""
        rule = self.rule
        if rule is None:
            return
        for parameter in parameters:
            for kept in rule.kept:
                self._add_accumulator(kept.variable, parameter, fill_value=self.fills.get(kept.name, 0.0))
            for beta in rule.powers:
                self._add_accumulator(
                    f"{beta}_pow_acc", parameter, fill_value=self._attributes()[beta], shape=[1]
                )

    def _add_accumulator(
        self,
        name: str,
        param: Parameter,
        dtype: npt.DTypeLike | None = None,
        fill_value: float = 0.0,
        shape: Sequence[int] | None = None,
    ) -> Variable:
        """Create and return a persistable variable for a parameter's state, by default with its shape and dtype."""
        own = self._accumulators.setdefault(name, {})
        if param.name in own:
            raise FluidError(
                f"{param.name!r} is updated twice by the same optimizer: create a separate optimizer for each loss"
            )
        helper = LayerHelper(self.type)
        variable = helper.create_global_variable(
            unique_name.generate("_".join(filter(None, (param.name, self._name, name)))),
            param.shape if shape is None else shape,
            param.dtype if dtype is None else dtype,
            persistable=True,
        )
        helper.set_variable_initializer(variable, Constant(float(fill_value)))
        own[param.name] = variable
        self._states.append(variable)
        return variable

    def _get_accumulator(self, name: str, param: Parameter) -> Variable:
        """Return a variable that `_add_accumulator` created.

        Raises:
            FluidError: there is none.
        """
        found = self._accumulators.get(name, {}).get(param.name)
        if found is None:
            raise FluidError(
                f"{type(self).__name__} has no accumulator {name!r} of {param.name!r}: create it in "
                "_create_accumulators with _add_accumulator"
            )
        return found

    def _attributes(self) -> dict[str, Any]:
        """Return the attributes of the update operators."""
        return {attr: getattr(self, f"_{field}") for attr, field in self.fields.items()}

    def _create_global_learning_rate(self) -> Any:
        """Create the variable of the learning rate, once per program."""
        program = default_main_program()
        if program in self._learning_rate_map or isinstance(self._learning_rate, Variable):
            return
        helper = LayerHelper(self.type)
        name = unique_name.generate("learning_rate")
        rate = helper.create_global_variable(name, (1,), "float32", persistable=True)
        helper.set_variable_initializer(rate, Constant(float(self._learning_rate)))
        self._learning_rate_map[program] = rate

    def _global_learning_rate(self, program: Program | None = None) -> Variable | None:
        """Return the learning rate variable of a program, or None if there is none yet."""
        own = self._learning_rate if isinstance(self._learning_rate, Variable) else None
        return self._learning_rate_map.get(program or default_main_program(), own)

    def _create_param_lr(self, param_and_grad: Pair) -> Variable:
        """Return the variable of a parameter's learning rate.

        A number in its attributes is a factor, a variable replaces it.
        """
        factor = param_and_grad[0].optimize_attr["learning_rate"]
        if isinstance(factor, Variable):
            return factor
        rate = cast(Variable, self._global_learning_rate())
        if factor == 1.0:
            return rate
        program = default_main_program()
        with program._lr_schedule_guard(is_with_opt=True), name_scope("scale_with_param_lr"):
            return cast(Variable, rate * factor)

    def _without_tables(self, pairs: Sequence[Pair]) -> tuple[list[Pair], list[Pair]]:
        """Remove distributed tables from the pairs; the servers update these by plain gradient descent."""
        block = default_main_program().global_block()
        names = {
            op.inputs["W"][0] for op in block.ops if op.type == "lookup_table" and op.attrs["is_distributed"]
        }
        tables = [pair for pair in pairs if pair[0].name in names]
        return tables, [pair for pair in pairs if pair[0].name not in names]

    def _update_table(self, table: Parameter, grad: Variable) -> Operator:
        program = default_main_program()
        self._create_global_learning_rate()
        with program._optimized_guard([table, grad]):
            return program.global_block().append_op(
                "sgd",
                {"Param": table, "Grad": grad, "LearningRate": self._create_param_lr((table, grad))},
                {"ParamOut": table},
            )


def _optimizer(row: Fluid) -> type[Optimizer]:
    """Return the optimizer class of a table row."""
    name, parameters = parsed(row.optimizer)
    own = Argument("self", Argument.POSITIONAL_ONLY)
    signature = Signature([own, *parameters])
    known = {row.arguments.get(attr, attr): attr for attr in row.attrs}
    known.update((field, attr) for attr, field in row.names.items() if field)
    fields = {known[argument.name]: argument.name for argument in parameters if argument.name in known}
    fills = {kept.fill: kept.name for kept in row.kept}

    def construct(self: Optimizer, *args: Any, **named: Any) -> None:
        self._lars_decay = float(named.pop("LARS_weight_decay", 0.0))  # an argument until 0.14
        given = bound(f"{name}Optimizer", signature, (self, *args), named)
        for argument, value in given.items():
            if argument in known:
                kind = row.attrs[known[argument]]
                setattr(self, f"_{argument}", (kind if isinstance(kind, type) else type(kind))(value))
            elif argument in fills:
                self.fills = {fills[argument]: float(value)}
            elif argument.startswith("exclude_from_") and value is not None:
                self.exempting = {argument.removeprefix("exclude_from_").removesuffix("_fn"): value}
        Optimizer.__init__(self, given["learning_rate"], given["regularization"], given["name"])

    construct.__signature__ = signature  # type: ignore[attr-defined]
    states = {f"_{kept.variable.strip('_')}_acc_str": kept.variable for kept in row.kept}
    states.update((f"_{beta}_pow_acc_str", f"{beta}_pow_acc") for beta in row.powers)
    body = {"__init__": construct, "__doc__": row.says, "__module__": __name__, "rule": row, "fields": fields}
    return type(f"{name}Optimizer", (Optimizer,), {**body, **states})


__all__ = ["ExponentialMovingAverage", "ModelAverage", "Optimizer", "PipelineOptimizer"]

for _, _row in FLUID:
    _made = _optimizer(_row)
    for _name in (_made.__name__, _made.__name__.removesuffix("Optimizer")):
        globals()[_name] = _made
        __all__ += [_name]

_Momentum: Any = globals()["MomentumOptimizer"]


class DGCMomentumOptimizer(DeepGradientCompression, _Momentum):  # type: ignore[misc]
    """Momentum with deep gradient compression (Lin et al., 2018); see `DeepGradientCompression`."""


__all__ += ["DGCMomentumOptimizer"]

__getattr__ = answering(__name__)
