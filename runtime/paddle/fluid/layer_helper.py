# SPDX-License-Identifier: Apache-2.0
"""LayerHelper: creates a layer's names, parameters, temporaries, bias and activation.

The layer `fc_0` has parameters `fc_0.w_0` and `fc_0.b_0`, and temporaries `fc_0.tmp_0`, `fc_0.tmp_1`, ... The argument
`name` replaces `fc_0`.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence

import numpy.typing as npt

from paddle.fluid.errors import FluidError, FluidTypeError
from paddle.fluid.initializer import Constant, Initializer, Xavier
from paddle.fluid.param_attr import ParamAttr, ParamAttrLike, WeightNormParamAttr, to_attr
from paddle.fluid.program.block import Block, Names
from paddle.fluid.program.operator import Operator
from paddle.fluid.program.program import Program, default_main_program, default_startup_program, program_guard
from paddle.fluid.program.variable import Parameter, Variable, VarType
from paddle.graph import unique_name
from paddle.ops.base.registry import find, lookup
from paddle.signatures import advice

_ACTIVATIONS = (
    "relu",
    "sigmoid",
    "tanh",
    "softmax",
    "leaky_relu",
    "elu",
    "relu6",
    "softplus",
    "softsign",
    "swish",
)

__all__ = ["LayerHelper", "VarType", "append_LARS"]


class LayerHelper:
    """Helper for functions that build one layer in the current block of the default programs.

    Attributes:
        name: the name of the layer.
    """

    def __init__(
        self,
        layer_type: str,
        name: str | None = None,
        *,
        param_attr: ParamAttrLike = None,
        bias_attr: ParamAttrLike = None,
        act: str | None = None,
    ) -> None:
        self.layer_type = layer_type
        self.name = name or unique_name.generate(layer_type)
        self.param_attr = to_attr(param_attr)
        self.bias_attr = to_attr(bias_attr)
        self.act = act

    @property
    def main_program(self) -> Program:
        """The program that the layer is added to."""
        return default_main_program()

    @property
    def startup_program(self) -> Program:
        """The program that initializes the layer's parameters."""
        return default_startup_program()

    @property
    def block(self) -> Block:
        """The block that the layer is added to."""
        return self.main_program.current_block()

    @property
    def append_op(self) -> Callable[..., Operator]:
        """Append an operator to the current block, omitting slots and attributes that are None."""
        return self.block.append_op

    def apply(
        self, type: str, inputs: Names, attrs: Mapping[str, object] | None = None, stop_gradient: bool = False
    ) -> Variable:
        """Append an operator with one new output variable, and return that variable."""
        (result,) = self.apply_all(type, inputs, attrs)
        result.stop_gradient = stop_gradient
        return result

    def apply_all(
        self,
        type: str,
        inputs: Names,
        attrs: Mapping[str, object] | None = None,
        outs: Mapping[str, Variable | str] | None = None,
        fixed: Collection[str] = (),
        returns: Sequence[str] = (),
    ) -> list[Variable]:
        """Append an operator with the outputs that its table row defines; return some of them.

        Args:
            type: the operator.
            inputs: mapping from slots to variables; a slot with None is omitted.
            attrs: mapping from names to values; None stands for the default.
            outs: mapping from slots to the variable to write, or the name of a new variable; all other outputs are new
                variables.
            fixed: slots of outputs through which no gradient is propagated.
            returns: slots of the outputs to return, in this order; (): all that are not intermediate.
        """
        given = outs or {}
        names: dict[str, Variable | str] = {
            slot.name: given.get(slot.name) or unique_name.generate(f"{self.name}.tmp")
            for slot in lookup(type).outputs
            if not slot.intermediate or slot.name in returns
        }
        self.append_op(type, inputs, {**names, **given}, attrs)
        made: dict[str, Variable] = {
            slot: self.block.var(each) if isinstance(each, str) else each for slot, each in names.items()
        }
        for slot in made.keys() & {*fixed}:
            made[slot].stop_gradient = True
        return [made[slot] for slot in returns or made]

    def create_variable_for_type_inference(
        self, dtype: npt.DTypeLike | None = None, stop_gradient: bool = False
    ) -> Variable:
        """Add a temporary variable, whose shape is inferred from the operator that writes it, and return it."""
        name = unique_name.generate(f"{self.name}.tmp")
        return self.block.create_var(name, dtype=dtype, stop_gradient=stop_gradient)

    def create_global_variable(
        self,
        name: str | None = None,
        shape: Sequence[int] = (),
        dtype: npt.DTypeLike = "float32",
        persistable: bool = False,
        stop_gradient: bool = True,
    ) -> Variable:
        """Add a variable to block 0 of the main program and return it; without a name, `_generated_var_<n>`."""
        return self.main_program.global_block().create_var(
            name, shape, dtype, persistable=persistable, stop_gradient=stop_gradient
        )

    def set_variable_initializer(self, variable: Variable, initializer: Initializer) -> None:
        """Append an initializer for a persistable variable to the startup program."""
        block = self.startup_program.global_block()
        twin = block.create_var(variable.name, variable.shape, variable.dtype, persistable=True)
        initializer(twin, block)

    def create_parameter(
        self,
        attr: ParamAttrLike,
        shape: Sequence[int],
        dtype: npt.DTypeLike = "float32",
        is_bias: bool = False,
        default_initializer: Initializer | None = None,
    ) -> Parameter:
        """Add a parameter to both programs, or return the existing parameter of this name.

        Args:
            attr: the attributes that were passed to the layer; not False.
            shape: the parameter's shape; all dimensions must be known.
            dtype: the parameter's dtype.
            is_bias: whether to name it `.b_` and initialize it to 0, unless the attributes specify otherwise.
            default_initializer: initializer to use if `attr` has none; None: Xavier for weights, 0 for biases.
        """
        known = to_attr(attr)
        if known is None:
            raise FluidTypeError(
                f"layer {self.name!r} requires a {'bias' if is_bias else 'weight'}: "
                f"{'bias_attr' if is_bias else 'param_attr'} must not be False"
            )
        known.name = known.name or unique_name.generate(f"{self.name}.{'b' if is_bias else 'w'}")
        if known.initializer is None:
            known.initializer = default_initializer or (Constant(0.0) if is_bias else Xavier())
        if isinstance(known, WeightNormParamAttr):
            return _weight_normalized(self, known, tuple(shape), dtype)
        return self.plain_parameter(known, shape, dtype)

    def plain_parameter(self, attr: ParamAttr, shape: Sequence[int], dtype: npt.DTypeLike) -> Parameter:
        """Add a parameter to both programs, with the name and the initializer that `attr` gives."""
        assert attr.name is not None
        assert attr.initializer is not None
        known = attr.attributes()
        startup = self.startup_program.global_block()
        startup.create_parameter(attr.name, shape, dtype, attr.trainable, attr.initializer, **known)
        block = self.main_program.global_block()
        return block.create_parameter(attr.name, shape, dtype, attr.trainable, None, **known)

    def bias(self, shape: Sequence[int], dtype: npt.DTypeLike) -> Parameter | None:
        """Create the bias parameter and return it, or None if `bias_attr` is False."""
        return (
            None
            if self.bias_attr is None
            else self.create_parameter(self.bias_attr, shape, dtype, is_bias=True)
        )

    def append_bias_op(self, input_var: Variable, dim_start: int = 1, dim_end: int | None = None) -> Variable:
        """Add a bias of shape input_var.shape[dim_start:dim_end], unless `bias_attr` is False; return the sum."""
        bias = self.bias(input_var.shape[dim_start:dim_end], input_var.dtype)
        if bias is None:
            return input_var
        return self.apply("elementwise_add", {"X": input_var, "Y": bias}, {"axis": dim_start})

    def append_activation(self, input_var: Variable) -> Variable:
        """Apply the activation `act`, unless it is None; return the result.

        Raises:
            FluidTypeError: `act` is not an operator.
        """
        if self.act is None:
            return input_var
        if not isinstance(self.act, str) or find(self.act) is None:
            raise FluidTypeError(
                f"layer {self.name!r}: expected the name of an activation, got {self.act!r}; "
                + advice(str(self.act), _ACTIVATIONS, "common ones")
            )
        return self.apply(self.act, {"X": input_var})


def append_LARS(  # noqa: N802 - the original's name
    params_grads: Sequence[tuple[Parameter, Variable]], learning_rate: Variable, weight_decay: float
) -> None:
    """Replace each parameter's learning rate η with the LARS rate η |w| / (|g| + weight_decay |w|) (You et al., 2017).

    Raises:
        FluidError: a gradient is sparse.
    """
    helper = LayerHelper("lars")
    for parameter, grad in params_grads:
        if parameter.block.is_sparse(grad.name):  # type: ignore[attr-defined]
            raise FluidError(
                f"LARS_weight_decay needs the norm of a whole gradient, but the gradient of {parameter.name!r} is "
                "sparse: set is_sparse=False in its layer, or use LarsMomentumOptimizer"
            )
        with helper.main_program._optimized_guard([parameter, grad]):
            norm, norm_of_grad = (_norm(helper, each, None) for each in (parameter, grad))
            factor = parameter.optimize_attr["learning_rate"]
            rate = learning_rate if factor == 1.0 else learning_rate * factor
            parameter.optimize_attr["learning_rate"] = rate * norm / (norm_of_grad + norm * weight_decay)


def _weight_normalized(
    helper: LayerHelper, attr: WeightNormParamAttr, shape: tuple[int, ...], dtype: npt.DTypeLike
) -> Parameter:
    """Add `<name>_g` and `<name>_v` and return W = g V/||V||, which every run computes from them.

    Salimans and Kingma, 2016.

    g starts at ||V||, so that the initial W is the initializer's value.
    """

    def part(letter: str, initializer: Initializer | None, sizes: Sequence[int]) -> Parameter:
        plain = ParamAttr(
            f"{attr.name}_{letter}",
            initializer,
            attr.learning_rate,
            attr.regularizer,
            attr.trainable,
            attr.gradient_clip,
            attr.do_model_average,
        )
        return helper.plain_parameter(plain, sizes, dtype)

    dim = attr.dim
    v = part("v", attr.initializer, shape)
    g = part("g", _Norm(helper, v, dim), [size if axis == dim else 1 for axis, size in enumerate(shape)])
    flat = helper.apply("reshape", {"X": g}, {"shape": [-1]})
    factor = helper.apply("elementwise_div", {"X": flat, "Y": _norm(helper, v, dim)})
    axis = -1 if dim is None else dim
    return helper.apply("elementwise_mul", {"X": v, "Y": factor}, {"axis": axis})  # type: ignore[return-value]


class _Norm(Initializer):
    """Initializes a variable to the norm of a parameter over all axes but one."""

    def __init__(self, helper: LayerHelper, v: Variable, dim: int | None) -> None:
        self._helper, self._name, self._dim = helper, v.name, dim

    def __call__(self, var: Variable, block: Block) -> Operator:
        """Append the operators that compute the norm to `block`, and return the last one."""
        with program_guard(self._helper.startup_program):
            norm = _norm(self._helper, block.var(self._name), self._dim)
        return block.append_op("reshape", {"X": norm}, {"Out": var}, {"shape": var.shape})


def _norm(helper: LayerHelper, v: Variable, dim: int | None) -> Variable:
    others = [axis for axis in range(len(v.shape)) if axis != dim]
    attrs = {"dim": others, "keep_dim": False, "reduce_all": dim is None}
    square = helper.apply("square", {"X": v})
    return helper.apply("sqrt", {"X": helper.apply("reduce_sum", {"X": square}, attrs)})
