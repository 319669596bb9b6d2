# SPDX-License-Identifier: Apache-2.0
"""Variable and Parameter: the core's classes, with attributes for Fluid scripts and arithmetic operators.

`a + b` appends an operator to the current block of the variable's program and returns its output, `tmp_<n>`. A number
becomes a constant of shape [1] or, as the left operand of `-`, `/` or `**`, of the variable's shape. The result has the
dtype of the left variable. `==` and `!=` with a variable or number also append an operator that compares values; with
other objects, and for `in`, they compare identity. A variable is true, except that scripts cannot test a condition.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, NoReturn, cast

import numpy as np
import numpy.typing as npt

from paddle import graph
from paddle.fluid import errors
from paddle.fluid.errors import OF_TENSORS, FluidError, FluidTypeError, no_attribute
from paddle.fluid.program.descriptions import VariableDesc
from paddle.graph import unique_name
from paddle.graph.operator import PACKAGE, script_call
from paddle.ops.base.dtypes import VarType

if TYPE_CHECKING:
    from paddle.fluid.program.operator import Operator

_ORDERS = {"less_than": np.ceil, "less_equal": np.floor, "greater_than": np.floor, "greater_equal": np.ceil}
_EQUAL = {"equal": True, "not_equal": False}  # the result for a variable and itself
_NO_VALUE = OF_TENSORS["numpy"]
_END = 2**31 - 1  # of an axis of any size

__all__ = ["Parameter", "VarDesc", "VarType", "Variable", "binary", "cast_to"]


def binary(op_type: str, *, reverse: bool = False) -> Callable[..., Any]:
    """Return a method that applies a binary operator to its variable and another variable or a number.

    It raises FluidTypeError for an integer variable and a number with a fraction, unless it compares their order.
    """

    def method(self: Variable, other: Any) -> Any:
        if op_type in _EQUAL and not errors.compares(sys._getframe(1)):  # `in` or `list.index` calls it
            return NotImplemented
        if isinstance(other, (int, float, np.number)) and not isinstance(other, bool):
            number = float(other)
            if self.dtype.kind in "iu":
                number = float(_ORDERS.get(op_type, float)(number))  # integers below 2.5 are those below 3
                if not number.is_integer():
                    why = f"{op_type}: {self.describe()} contains integers, which cannot represent {other}"
                    raise FluidTypeError(f"{why}: convert it first with layers.cast(variable, 'float32')")
            other = _like(self, number) if reverse else _number(self, number)
        elif not hasattr(other, "block"):
            return NotImplemented
        if other.dtype != self.dtype:
            other = cast_to(other, self.dtype)
        left, right = (other, self) if reverse else (self, other)
        axis = 0 if right.shape and right.shape[0] == -1 else -1
        out = _temporary(self)
        _block(self).append_op(op_type, {"X": left, "Y": right}, {"Out": out}, {"axis": axis})
        return out

    return method


def cast_to(variable: Variable, dtype: npt.DTypeLike | VarType) -> Variable:
    """Append a cast of a variable to a given dtype; return the result."""
    out = _temporary(variable)
    attrs = {"in_dtype": VarType.of(variable.dtype), "out_dtype": VarType.of(dtype)}
    _block(variable).append_op("cast", {"X": variable}, {"Out": out}, attrs)
    return out


def sliced(variable: Variable, item: Any) -> Variable:
    """Append a slice of a variable and return its output; an integer index removes its axis.

    Raises:
        FluidTypeError: an index has an unsupported type, or an axis of unknown size has a step other than 1.
        IndexError: an index is out of range, or there are more indices than axes.
    """
    items = list(item) if isinstance(item, tuple) else [item]
    if Ellipsis in items:
        at = items.index(Ellipsis)
        items[at : at + 1] = [slice(None)] * (len(variable.shape) - len(items) + 1)
    if len(items) > len(variable.shape):
        raise IndexError(f"{variable.describe()} has fewer axes than the {len(items)} given indices")
    spans: list[tuple[int, int, int]] = []
    left_out = []
    for axis, each in enumerate(items):
        size = variable.shape[axis]
        if isinstance(each, slice):
            if each.step not in (None, 1):
                variable = _stepped(variable, axis, each)
            elif each != slice(None):
                start, end = each.start or 0, _END if each.stop is None else each.stop
                spans.append((axis, int(start), int(end)))
        elif isinstance(each, (int, np.integer)) and not isinstance(each, bool):
            place = int(each)
            if size >= 0 and not -size <= place < size:
                raise IndexError(
                    f"{variable.describe()}: expected an index of axis {axis} from {-size} to {size - 1}, got {place}"
                )
            spans.append((axis, place, _END if place == -1 else place + 1))
            left_out.append(axis)
        else:
            raise FluidTypeError(
                f"{variable.name}: an index must be an integer or a slice, got {each!r}; use "
                "layers.gather for variables"
            )
    if not spans:
        return variable
    axes, starts, ends = zip(*spans, strict=True)
    out = _temporary(variable)
    attrs = {"axes": axes, "starts": starts, "ends": ends, "decrease_axis": tuple(left_out)}
    _block(variable).append_op("slice", {"Input": variable}, {"Out": out}, attrs)
    return out


def _stepped(variable: Variable, axis: int, each: slice) -> Variable:
    """Append the selection of rows of an axis with constant numbers; return its output."""
    places = range(*each.indices(max(variable.shape[axis], 0)))
    if not places:
        raise FluidTypeError(
            f"{variable.describe()}: {each} of axis {axis} selects nothing, or the size of the axis is unknown"
        )
    block, rows = _block(variable), _temporary(variable)
    rows.stop_gradient = True
    attrs = {"shape": (len(places),), "dtype": VarType.INT32, "int32_values": tuple(places)}
    block.append_op("assign_value", {}, {"Out": rows}, attrs)

    def append(op_type: str, given: Mapping[str, Variable], attrs: Mapping[str, Any]) -> Variable:
        block.append_op(op_type, given, {"Out": (out := _temporary(variable))}, attrs)
        return out

    if not axis:
        return append("gather", {"X": variable, "Index": rows}, {})
    swap = {"axis": [axis, *range(1, axis), 0, *range(axis + 1, len(variable.shape))]}
    taken = append("gather", {"X": append("transpose2", {"X": variable}, swap), "Index": rows}, {})
    taken = append("transpose2", {"X": taken}, swap)
    return append("lod_reset", {"X": taken, "Y": variable}, {}) if variable.lod_level else taken


def _number(beside: Variable, value: float, shape: tuple[int, ...] = (1,)) -> Variable:
    out = _temporary(beside)
    out.stop_gradient = True
    attrs = {"shape": shape, "dtype": VarType.of(beside.dtype), "value": value}
    _block(beside).append_op("fill_constant", {}, {"Out": out}, attrs)
    return out


def _like(variable: Variable, value: float) -> Variable:
    if -1 not in variable.shape:
        return _number(variable, value, variable.shape)
    zeros, out = _temporary(variable), _temporary(variable)
    zeros.stop_gradient = out.stop_gradient = True
    _block(variable).append_op("fill_zeros_like", {"X": variable}, {"Out": zeros})
    _block(variable).append_op("scale", {"X": zeros}, {"Out": out}, {"bias": value})
    return out


def _temporary(variable: Variable) -> Variable:
    return cast(Variable, _block(variable).create_var(unique_name.generate("tmp")))


def _block(variable: Variable) -> graph.Block:
    return variable.block.program.current_block()


class VarDesc:
    """The class through which scripts name variable types and dtypes, such as `core.VarDesc.VarType.FP32`."""

    VarType = VarType


class Variable(graph.Variable):
    """A variable of a block: a named value with a shape and a dtype that operators read and write.

    Attributes:
        type: the variable's kind: LOD_TENSOR, SELECTED_ROWS, LOD_TENSOR_ARRAY, ...
        is_data: whether it is fed.
        has_batch: whether `layers.data` has prepended the batch size to its shape.
        is_from_file: whether a program file describes it.
        error_clip: an ErrorClip of `fluid.clip`, which clips the variable's gradient during backpropagation, or None.
        op: the operator that writes it, if an operator created it.
    """

    type: VarType = VarType.LOD_TENSOR
    is_data: bool = False
    has_batch: bool = False
    is_from_file: bool = False
    error_clip: Any = None
    op: Operator | None = None

    def __init__(
        self,
        block: graph.Block,
        type: VarType = VarType.LOD_TENSOR,
        name: str | None = None,
        shape: Sequence[int] | None = None,
        dtype: npt.DTypeLike | VarType | None = None,
        lod_level: int = 0,
        *,
        persistable: bool = False,
        error_clip: Any = None,
        stop_gradient: bool = False,
        is_data: bool = False,
    ) -> None:
        """Add a variable to the block, or become another handle on the block's variable of this name.

        Raises:
            FluidError: the existing variable differs in something that is given.
        """
        old = block.vars.get(name or "")
        super().__init__(
            block,
            name or unique_name.generate("_generated_var"),
            tuple(shape if shape is not None else old.shape if old else ()),
            old.dtype if dtype is None and old else VarType.of("float32" if dtype is None else dtype).numpy,
            persistable=persistable or (old is not None and old.persistable),
            stop_gradient=stop_gradient,
            lod_level=lod_level or (old.lod_level if old else 0),
        )
        self.type, self.error_clip, self.is_data = VarType(type), error_clip, is_data
        self._enter()

    __add__ = binary("elementwise_add")
    __radd__ = binary("elementwise_add")
    __sub__ = binary("elementwise_sub")
    __rsub__ = binary("elementwise_sub", reverse=True)
    __mul__ = binary("elementwise_mul")
    __rmul__ = binary("elementwise_mul")
    __truediv__ = binary("elementwise_div")
    __rtruediv__ = binary("elementwise_div", reverse=True)
    __pow__ = binary("elementwise_pow")
    __rpow__ = binary("elementwise_pow", reverse=True)
    __floordiv__ = binary("elementwise_floordiv")
    __mod__ = binary("elementwise_mod")

    def __neg__(self) -> Variable:
        return self * -1  # type: ignore[no-any-return]

    __lt__ = binary("less_than")
    __le__ = binary("less_equal")
    __gt__ = binary("greater_than")
    __ge__ = binary("greater_equal")
    __eq__ = binary("equal")
    __ne__ = binary("not_equal")
    __hash__ = object.__hash__
    __array_ufunc__ = None  # numpy's numbers leave operators to this class

    def __bool__(self) -> bool:
        """Return True; in a script, refuse a condition, because it has no value while the program is built.

        Raises:
            FluidTypeError: an operator computes the variable, which is the result of a comparison or of dtype bool.
        """
        if self.op is None or (self.dtype.kind != "b" and self.op.type not in _ORDERS):
            return True
        if self.op.type in _EQUAL and self.op.input("X") == self.op.input("Y"):
            return _EQUAL[self.op.type]
        caller = sys._getframe(1)
        if errors.tests(caller) and not caller.f_code.co_filename.startswith(PACKAGE):
            raise FluidTypeError(errors.untestable(self.name, script_call()))
        return self.op.type != "equal"

    def __float__(self) -> float:
        """Raise FluidTypeError: a variable has no value. Functions such as `np.mean` also call this method."""
        raise FluidTypeError(f"variable {self.name!r} is not a number: {_NO_VALUE}")

    def __array__(self, dtype: Any = None, *args: Any, **named: Any) -> Any:
        """Return an array of objects if that is asked for; otherwise raise FluidTypeError, as `__float__` does."""
        if dtype is not None and np.dtype(dtype) == object:
            holder = np.empty((), object)
            holder[()] = self
            return holder
        raise FluidTypeError(f"variable {self.name!r} is not an array: {_NO_VALUE}")

    if not TYPE_CHECKING:

        def __getattr__(self, name: str) -> NoReturn:
            raise no_attribute(self, name, OF_TENSORS)

    def __iter__(self) -> Any:
        """Raise TypeError: operators compute the items, so a loop would not end."""
        raise TypeError(f"variable {self.name!r} cannot be iterated over: use layers.split or layers.unstack")

    def __getitem__(self, item: Any) -> Any:
        """Append a slice operator and return its output.

        The index has integers or slices for the first axes.
        """
        return sliced(self, item)

    @property
    def desc(self) -> VariableDesc:
        """Return the variable's description, with the methods of the original's core."""
        return VariableDesc(self)

    @property
    def is_bare(self) -> bool:
        """Return whether only the variable's declaration sets its dtype, not a data layer, file, operator or scope."""
        return not (self.is_data or self.is_from_file or self.persistable or self.op is not None)

    def astype(self, dtype: npt.DTypeLike) -> Variable:
        """Append a cast to the given dtype; return the new variable."""
        return cast_to(self, dtype)

    @property
    def error_bounds(self) -> Mapping[str, float] | None:
        """Return the bounds that `error_clip` sets for the gradient, or None if it is not set."""
        return None if self.error_clip is None else self.error_clip.bounds

    def _set_error_clip(self, error_clip: Any) -> None:
        self.error_clip = error_clip

    set_error_clip = _set_error_clip

    def _enter(self) -> None:
        """Add the variable to its block; two variables of one name become handles that share all attributes."""
        old = cast(Variable, self.block.vars.setdefault(self.name, self))
        self.block.program.touch()
        if old is self:
            return
        if self.spec != old.spec or self.persistable != old.persistable:
            raise FluidError(
                f"the name {self.name!r} is already used by {old!r}, not {self!r}: choose another name, or that shape"
            )
        if self.type not in (VarType.LOD_TENSOR, old.type):
            raise FluidError(
                f"{old!r} has type {VarType(old.type).name} and cannot be redeclared as {self.type.name}"
            )
        self._replace(old)

    def _replace(self, old: Variable) -> None:
        old.is_data |= self.is_data
        self.__dict__ = old.__dict__

    def to_string(self, throw_on_error: bool = False, with_details: bool = False) -> str:
        """Format a description of the variable as readable text."""
        details = f" type={self.type.name} lod_level={self.lod_level}" if with_details else ""
        return self.describe() + details


class Parameter(Variable, graph.Parameter):
    """A variable that training updates, with optimizer settings that scripts can change before `minimize`.

    Attributes:
        optimize_attr: `learning_rate`: factor on the optimizer's rate, or a variable that replaces it.
        regularizer: overrides the optimizer's.
        gradient_clip_attr: the clip of its gradient, or None.
        do_model_average: whether model averaging includes the parameter.
    """

    def __init__(
        self,
        block: graph.Block,
        shape: Sequence[int],
        dtype: npt.DTypeLike | VarType = "float32",
        *,
        name: str | None = None,
        type: VarType = VarType.LOD_TENSOR,
        lod_level: int = 0,
        persistable: bool = True,
        stop_gradient: bool = False,
        error_clip: Any = None,
        trainable: bool = True,
        initializer: Callable[..., Any] | None = None,
        optimize_attr: dict[str, Any] | None = None,
        regularizer: Any = None,
        gradient_clip_attr: Any = None,
        do_model_average: bool = True,
    ) -> None:
        """Create a parameter, and add it to the block unless the block has a variable of this name.

        `persistable` is ignored: every parameter is persistable.
        """
        graph.Parameter.__init__(
            self,
            block,
            name or unique_name.generate("_generated_var"),
            tuple(shape),
            VarType.of(dtype).numpy,
            trainable=trainable,
            initializer=initializer,
        )
        self.type, self.error_clip, self.lod_level = VarType(type), error_clip, lod_level
        self.stop_gradient = self.stop_gradient or stop_gradient
        self.optimize_attr = {"learning_rate": 1.0} if optimize_attr is None else optimize_attr
        self.regularizer, self.gradient_clip_attr = regularizer, gradient_clip_attr
        self.do_model_average = do_model_average
        self._enter()

    def _replace(self, old: Variable) -> None:
        """Replace a variable of this name; the settings of the last declaration apply, as in the original."""
        self.type, self.lod_level, self.op = old.type, old.lod_level, old.op
        old.__dict__ = self.__dict__
        self.block.vars[self.name] = self
