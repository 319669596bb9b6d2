# SPDX-License-Identifier: Apache-2.0
"""Layer: a layer object, which creates its parameters in its first call and reuses them in later calls."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Mapping, Sequence
from typing import Any, TypeVar

import numpy as np
import numpy.typing as npt

from paddle.backend import to_host
from paddle.fluid.errors import FluidError, FluidTypeError
from paddle.fluid.layer_helper import LayerHelper
from paddle.fluid.param_attr import ParamAttrLike
from paddle.fluid.program.variable import Parameter, Variable, VarType
from paddle.fluid.run.scope import global_scope
from paddle.graph import unique_name

__all__ = ["Layer"]

_T = TypeVar("_T")


class Layer:
    """Base class of layer objects, whose `forward` appends operators to the default programs.

    `train`, `eval` and `clear_gradients` belong to the original's imperative mode, in which operators run immediately;
    in this package, they do nothing. `Program.clone(for_test=True)` makes a program for inference.
    """

    def __init__(self, name_scope: str, dtype: npt.DTypeLike = "float32") -> None:
        self._full_name = unique_name.generate(f"{name_scope}/{type(self).__name__}")
        self._helper = LayerHelper(self._full_name, self._full_name)
        self._dtype = dtype
        self._is_built = False
        self._parameters: OrderedDict[str, Parameter] = OrderedDict()
        self._sub_layers: OrderedDict[str, Layer] = OrderedDict()

    def __call__(self, *inputs: Any) -> Any:
        """Append the layer and return its outputs.

        The first call creates parameters that fit the sizes of the inputs.
        """
        if not self._is_built:
            self._build_once(*inputs)
            self._is_built = True
        return self.forward(*inputs)

    def _build_once(self, *inputs: Any) -> None:
        """Create parameters that fit the sizes of the inputs."""

    def forward(self, *inputs: Any) -> Any:
        """Append the layer's operators and return its outputs."""
        raise NotImplementedError(f"{type(self).__name__}: a subclass must define forward")

    def backward(self, *inputs: Any) -> None:
        """Raise FluidError: the backward pass is derived from the operators that `forward` appended.

        Raises:
            FluidError: always.
        """
        raise FluidError(
            f"{self._full_name}: a layer has no backward method; call minimize or append_backward"
        )

    def full_name(self) -> str:
        """Return the prefix of the parameters' names."""
        return self._full_name

    def create_parameter(
        self,
        attr: ParamAttrLike,
        shape: Sequence[int],
        dtype: npt.DTypeLike,
        is_bias: bool = False,
        default_initializer: Any = None,
    ) -> Parameter:
        """Add a parameter to both default programs; see `LayerHelper.create_parameter`."""
        made = self._helper.create_parameter(attr, shape, dtype, is_bias, default_initializer)
        return self.add_parameter(made.name, made)

    def create_variable(
        self,
        name: str | None = None,
        persistable: bool | None = None,
        dtype: npt.DTypeLike | None = None,
        type: VarType = VarType.LOD_TENSOR,
    ) -> Variable:
        """Add a variable to the current block and return it."""
        own = name or unique_name.generate(f"{self._full_name}._generated_var")
        return self._helper.block.create_var(own, dtype=dtype, persistable=bool(persistable), type=type)

    def add_parameter(self, name: str, parameter: Parameter) -> Parameter:
        """Add a parameter to this layer and return it.

        Raises:
            FluidTypeError: the value is not a parameter.
        """
        self._parameters[name] = _checked(parameter, Parameter, "add_parameter")
        return parameter

    def add_sublayer(self, name: str, sublayer: Layer) -> Layer:
        """Add a sublayer, whose parameters then belong to this layer too, and return it.

        Raises:
            FluidTypeError: the value is not a Layer.
        """
        self._sub_layers[name] = _checked(sublayer, Layer, "add_sublayer")
        return sublayer

    def parameters(self, include_sublayers: bool = True) -> list[Parameter]:
        """Return the parameters of this layer and, if `include_sublayers`, of its sublayers."""
        inner = self.sublayers() if include_sublayers else []
        return [each for layer in (self, *inner) for each in layer._parameters.values()]

    def sublayers(self, include_sublayers: bool = True) -> list[Layer]:
        """Return all sublayers, at every depth."""
        found = []
        for each in self._sub_layers.values():
            found += [each, *(each.sublayers() if include_sublayers else [])]
        return found

    def state_dict(
        self, destination: dict[str, Any] | None = None, include_sublayers: bool = True
    ) -> dict[str, Any]:
        """Return the parameters' values in the current scope, as a dict from names to arrays.

        Args:
            destination: dict that the values are added to; None means a new dict.
            include_sublayers: whether to include the parameters of sublayers.
        """
        found = OrderedDict() if destination is None else destination
        for each in self.parameters(include_sublayers):
            found[each.name] = np.array(to_host(global_scope().get(each.name)))
        return found

    def load_dict(self, stat_dict: Mapping[str, Any], include_sublayers: bool = True) -> None:
        """Set parameters in the current scope from a dict of arrays by name; other parameters stay unchanged.

        Raises:
            FluidError: a value has a different shape.
        """
        for each in self.parameters(include_sublayers):
            if each.name in stat_dict:
                value = np.array(stat_dict[each.name], each.dtype)
                if value.shape != each.shape:
                    raise FluidError(
                        f"load_dict: {each.describe()} cannot hold a value of shape {value.shape}"
                    )
                global_scope().set(each.name, value)

    def train(self) -> None:
        """Do nothing; test mode is a property of programs. See the class."""

    def eval(self) -> None:
        """Do nothing; test mode is a property of programs. See the class."""

    def clear_gradients(self) -> None:
        """Do nothing: every run computes new gradients."""


def _checked(given: object, kind: type[_T], what: str) -> _T:
    if not isinstance(given, kind):
        raise FluidTypeError(f"{what}: expected a {kind.__name__}, got {given!r}")
    return given
