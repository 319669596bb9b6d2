# SPDX-License-Identifier: Apache-2.0
"""Optimizers: backward pass, clipping, decay, then one update operator per parameter, sorted by name.

The state of an update is stored in persistable variables `<parameter>_<name>_0` with the parameter's shape.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from inspect import Parameter as Argument
from inspect import Signature
from numbers import Real
from types import MappingProxyType
from typing import Any, ClassVar, cast
from weakref import WeakKeyDictionary

from paddle.fluid import backward
from paddle.fluid.averages import ExponentialMovingAverage, ModelAverage, load_values
from paddle.fluid.clip import GradientClip, append_gradient_clip_ops
from paddle.fluid.errors import FluidError, FluidTypeError, answering
from paddle.fluid.initializer import Constant
from paddle.fluid.layer_helper import LayerHelper
from paddle.fluid.parallel.dgc import Compression
from paddle.fluid.parallel.pipeline import PipelineOptimizer
from paddle.fluid.program.block import Block
from paddle.fluid.program.defaults import default_main_program, default_startup_program, program_guard
from paddle.fluid.program.name_scopes import name_scope
from paddle.fluid.program.operator import Operator
from paddle.fluid.program.program import Program
from paddle.fluid.program.variable import Parameter, Variable
from paddle.fluid.regularizer import Regularizer, append_regularization_ops
from paddle.graph import unique_name
from paddle.graph.block import Name
from paddle.optim.rules.table import FLUID, Fluid
from paddle.signatures import bound, parsed

Pair = tuple[Parameter, Variable]


class Optimizer:
    """Base class of optimizers; each row of `optim.rules` defines one subclass.

    Attributes:
        rule: the update operator and its state.
        decays: mapping from fields to the betas whose powers are part of the state.
        fills: mapping from names of state variables to their initial values.
        exempting: mapping from attributes to predicates of a parameter; the attribute is 0 where its predicate is true.
    """

    rule: ClassVar[Fluid]
    decays: Mapping[str, float] = MappingProxyType({})
    fills: Mapping[str, float] = MappingProxyType({})
    exempting: Mapping[str, Callable[[Parameter], bool]] = MappingProxyType({})

    def __init__(
        self,
        learning_rate: float | Variable,
        regularization: Regularizer | None = None,
        name: str | None = None,
        **attributes: object,
    ) -> None:
        """Create an optimizer; `attributes` are those of its update operators."""
        rate: object = learning_rate
        if isinstance(rate, bool) or not isinstance(rate, (Real, Variable)):
            raise FluidTypeError(f"learning_rate: expected a number or a Variable, got {learning_rate!r}")
        self._learning_rate = learning_rate
        self.regularization = regularization
        self._name = name
        self._attributes = attributes
        self._learning_rate_map: WeakKeyDictionary[Program, Variable] = WeakKeyDictionary()
        self._kept: dict[tuple[str, str], Variable] = {}

    def minimize(
        self,
        loss: Variable,
        startup_program: Program | None = None,
        parameter_list: Sequence[Name] | None = None,
        no_grad_set: Collection[Name] | None = None,
        grad_clip: GradientClip | None = None,
    ) -> tuple[list[Operator], list[Pair]]:
        """Append all operators of a training step; return (update operators, (parameter, gradient) pairs).

        Args:
            loss: the loss to minimize.
            startup_program: initializes the optimizer's state; None: the default startup program.
            parameter_list: the parameters to train; None: all trainable parameters.
            no_grad_set: variables that get no gradient.
            grad_clip: clip for all gradients; it overrides `set_gradient_clip` and the clips of parameters.

        Raises:
            FluidTypeError: grad_clip is not a gradient clip.
        """
        if grad_clip is not None and not isinstance(grad_clip, GradientClip):
            raise FluidTypeError(
                f"minimize: expected grad_clip to be a clip of fluid.clip, got {grad_clip!r}"
            )
        pairs = self.backward(loss, startup_program, parameter_list, no_grad_set)
        if grad_clip is not None:
            for parameter, _ in pairs:
                parameter.gradient_clip_attr = grad_clip
        return self.apply_optimize(loss, startup_program, pairs), pairs

    def backward(
        self,
        loss: Variable,
        startup_program: Program | None = None,
        parameter_list: Sequence[Name] | None = None,
        no_grad_set: Collection[Name] | None = None,
        callbacks: Sequence[object] | None = None,
    ) -> list[Pair]:
        """Append the backward pass; return (parameter, gradient) pairs."""
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
            FluidTypeError: a gradient belongs to a variable that is not a parameter.
        """
        if not params_grads:
            raise FluidError(
                "the optimizer has no gradients to apply; check that at least one parameter is trainable"
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
        return self._updates(pairs) + ops

    def get_opti_var_name_list(self) -> list[str]:
        """Return the names of the optimizer's state variables, in order of creation."""
        return [each.name for each in self._kept.values()]

    def load(self, stat_dict: Mapping[str, Any]) -> None:
        """Set the optimizer's state in the current scope from values by name; see `get_opti_var_name_list`.

        Raises:
            FluidError: a name is missing, or a value has a different shape.
        """
        load_values(self._kept.values(), stat_dict)

    def _updates(self, pairs: Sequence[Pair]) -> list[Operator]:
        program = default_main_program()
        block = program.global_block()
        before = len(block.ops)
        for parameter, _ in pairs:
            self._keep(parameter)
        self._global_rate()
        for parameter, grad in pairs:
            with program._optimized_guard([parameter, grad]), name_scope("optimizer"):
                self._update(block, parameter, grad)
        for parameter, grad in pairs:
            with program._optimized_guard([parameter, grad]), name_scope("optimizer"):
                self._finish(block, parameter)
        return [cast(Operator, op) for op in block.ops[before:]]

    def _update(self, block: Block, parameter: Parameter, grad: Variable) -> Operator:
        rule = self.rule
        inputs: dict[str, Name] = {"Param": parameter, "Grad": grad}
        outputs: dict[str, Name] = {"ParamOut": parameter}
        if "LearningRate" in rule.slots[0]:
            inputs["LearningRate"] = self._rate_of(parameter)
        for kept, out in zip(rule.kept, rule.slots[1][1:], strict=True):
            inputs[kept.slot] = outputs[out.rstrip("?")] = self._kept[kept.variable, parameter.name]
        for beta in self.decays:
            inputs[f"{beta.capitalize()}Pow"] = self._kept[f"{beta}_pow_acc", parameter.name]
        exempt = {name: 0.0 for name, is_exempt in self.exempting.items() if is_exempt(parameter)}
        return block.append_op(rule.op_type, inputs, outputs, {**self._attributes, **exempt})

    def _finish(self, block: Block, parameter: Parameter) -> None:
        """Append the operators that multiply the powers of the betas."""
        for beta, decay in self.decays.items():
            power = self._kept[f"{beta}_pow_acc", parameter.name]
            block.append_op("scale", {"X": power}, {"Out": power}, {"scale": decay})

    def _keep(self, parameter: Parameter) -> None:
        for kept in self.rule.kept:
            self._make(parameter, kept.variable, parameter.shape, self.fills.get(kept.name, 0.0))
        for beta, decay in self.decays.items():
            self._make(parameter, f"{beta}_pow_acc", (1,), decay)

    def _make(self, parameter: Parameter, name: str, shape: tuple[int, ...], fill: float) -> None:
        if (name, parameter.name) in self._kept:
            raise FluidError(
                f"{parameter.name!r} is updated twice by the same optimizer: create a separate "
                "optimizer for each loss"
            )
        own = unique_name.generate("_".join(filter(None, (parameter.name, self._name, name))))
        helper = LayerHelper(self.rule.op_type)
        variable = helper.create_global_variable(own, shape, parameter.dtype, persistable=True)
        helper.set_variable_initializer(variable, Constant(fill))
        self._kept[name, parameter.name] = variable

    def _global_rate(self) -> Variable:
        """Return the variable of the learning rate; it is created once per program."""
        program = default_main_program()
        if program not in self._learning_rate_map:
            if isinstance(self._learning_rate, Variable):
                return self._learning_rate
            helper = LayerHelper(self.rule.op_type)
            name = unique_name.generate("learning_rate")
            rate = helper.create_global_variable(name, (1,), "float32", persistable=True)
            helper.set_variable_initializer(rate, Constant(float(self._learning_rate)))
            self._learning_rate_map[program] = rate
        return self._learning_rate_map[program]

    def _global_learning_rate(self, program: Program | None = None) -> Variable | None:
        """Return the learning rate variable of a program, or None if there is none yet."""
        own = self._learning_rate if isinstance(self._learning_rate, Variable) else None
        return self._learning_rate_map.get(program or default_main_program(), own)

    def _rate_of(self, parameter: Parameter) -> Variable:
        """Return the learning rate of a parameter: a number is a factor, a variable replaces the rate."""
        factor = parameter.optimize_attr["learning_rate"]
        if isinstance(factor, Variable):
            return factor
        if factor == 1.0:
            return self._global_rate()
        program = default_main_program()
        with program._lr_schedule_guard(is_with_opt=True), name_scope("scale_with_param_lr"):
            return cast(Variable, self._global_rate() * factor)

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
        self._global_rate()
        with program._optimized_guard([table, grad]):
            return program.global_block().append_op(
                "sgd",
                {"Param": table, "Grad": grad, "LearningRate": self._rate_of(table)},
                {"ParamOut": table},
            )


def _optimizer(row: Fluid) -> type[Optimizer]:
    """Return the optimizer class of a table row."""
    name, parameters = parsed(row.optimizer)
    own = Argument("self", Argument.POSITIONAL_ONLY)
    signature = Signature([own, *parameters])
    known = {row.arguments.get(attr, attr): attr for attr in row.attrs}
    known.update((field, attr) for attr, field in row.names.items() if field)
    fills = {kept.fill: kept.name for kept in row.kept}

    def construct(self: Optimizer, *args: Any, **named: Any) -> None:
        given = bound(f"{name}Optimizer", signature, (self, *args), named)
        attributes = {}
        for argument, value in given.items():
            if argument in known:
                kind = row.attrs[known[argument]]
                attributes[known[argument]] = (kind if isinstance(kind, type) else type(kind))(value)
            elif argument in fills:
                self.fills = {fills[argument]: float(value)}
            elif argument.startswith("exclude_from_") and value is not None:
                self.exempting = {argument.removeprefix("exclude_from_").removesuffix("_fn"): value}
        self.decays = {beta: attributes[beta] for beta in row.powers}
        Optimizer.__init__(self, given["learning_rate"], given["regularization"], given["name"], **attributes)

    construct.__signature__ = signature  # type: ignore[attr-defined]
    body = {"__init__": construct, "__doc__": row.says, "__module__": __name__, "rule": row}
    return type(f"{name}Optimizer", (Optimizer,), body)


__all__ = ["ExponentialMovingAverage", "ModelAverage", "Optimizer", "PipelineOptimizer"]

for _, _row in FLUID:
    _made = _optimizer(_row)
    for _name in (_made.__name__, _made.__name__.removesuffix("Optimizer")):
        globals()[_name] = _made
        __all__ += [_name]

_Momentum: Any = globals()["MomentumOptimizer"]


class DGCMomentumOptimizer(_Momentum):  # type: ignore[misc]
    """Momentum that sends only part of each gradient with at least 16,384 elements; see `ops.update.dgc`.

    For trainers without servers (mode "nccl2"); a single trainer computes the same updates.
    """

    def __init__(
        self,
        learning_rate: float | Variable,
        momentum: float,
        rampup_begin_step: int,
        rampup_step: int = 1,
        sparsity: Sequence[float] = [0.999],
        use_nesterov: bool = False,
        local_grad_clip_norm: float | None = None,
        num_trainers: int | None = None,
        regularization: Regularizer | None = None,
        name: str | None = None,
    ) -> None:
        """Create the optimizer.

        Args:
            learning_rate: the learning rate; see `Optimizer`.
            momentum: momentum of updates before rampup_begin_step, then of the accumulated gradients.
            rampup_begin_step: first step with compressed gradients.
            rampup_step: number of steps over which `sparsity` is traversed.
            sparsity: shares of the elements that are not sent, each at least 0 and below 1.
            use_nesterov: whether to use Nesterov momentum.
            local_grad_clip_norm: with num_trainers: each trainer's gradient is clipped to norm / num_trainers².
            num_trainers: number of trainers, for local_grad_clip_norm.
            regularization: added to the sum of the sent gradients.
            name: prefix of the names of the optimizer's variables.

        Raises:
            FluidError: a step or share is out of range, or local_grad_clip_norm is given without num_trainers.
        """
        super().__init__(learning_rate, momentum, use_nesterov, regularization, name)
        if local_grad_clip_norm is not None and not num_trainers:
            raise FluidError("DGCMomentumOptimizer: local_grad_clip_norm needs num_trainers")
        norm = None if local_grad_clip_norm is None else local_grad_clip_norm / (num_trainers or 1) ** 2
        shares = tuple(float(each) for each in sparsity)
        self._compression = Compression(momentum, use_nesterov, rampup_begin_step, rampup_step, shares, norm)
        self._compressed: set[str] = set()

    def apply_gradients(self, params_grads: Sequence[Pair]) -> list[Operator]:
        """Append compression, clipping, decay and updates; return the update operators."""
        made = self._compression.append(params_grads)
        self._compressed |= {
            parameter.name
            for (parameter, before), (_, after) in zip(params_grads, made, strict=True)
            if before is not after
        }
        ops: list[Operator] = super().apply_gradients(made)
        return ops

    def _update(self, block: Block, parameter: Parameter, grad: Variable) -> Operator:
        if parameter.name not in self._compressed:
            op: Operator = super()._update(block, parameter, grad)
            return op
        velocity = self._kept["velocity", parameter.name]
        return block.append_op(
            "dgc_momentum",
            {
                "Param": parameter,
                "Grad": grad,
                "Velocity": velocity,
                "LearningRate": self._rate_of(parameter),
                "current_step": self._compression.counter(),
            },
            {"ParamOut": parameter, "VelocityOut": velocity},
            {**self._attributes, "rampup_begin_step": float(self._compression.begin)},
        )


__all__ += ["DGCMomentumOptimizer"]

__getattr__ = answering(__name__)
