# SPDX-License-Identifier: Apache-2.0
"""Which operators are checked, over which shapes and attributes."""

from __future__ import annotations

from itertools import product
from typing import Any

from tests.runtime.ops.breadth_cases import BREADTH_CASES
from tests.runtime.ops.detection_cases import DETECTION_CASES
from tests.runtime.ops.family_cases import DENSE_CASES, LOSS_CASES, RECURRENT_CASES, SAMPLED_CASES
from tests.runtime.ops.gradient_check import Case, Values
from tests.runtime.ops.rare_cases import RARE_CASES
from tests.runtime.ops.sequence_cases import SEQUENCE_CASES


def _ids(*shape: int, high: int) -> Values:
    return Values(shape, "ids", high)


def _told(*numbers: int) -> Values:
    return Values((len(numbers),), "ids", given=numbers)


def _unary(op: str, kind: str = "normal", kinks: tuple[float, ...] = (), **attrs: object) -> list[Case]:
    shapes = [(3, 4), (2, 3, 2), (0, 4)]
    return [Case(op, {"X": Values(shape, kind, kinks=kinks)}, dict(attrs)) for shape in shapes]


def _elementwise() -> list[Case]:
    spreads = [
        ((3, 4), (3, 4), -1),
        ((3, 4), (4,), 1),
        ((3, 4), (4,), -1),
        ((3, 4), (3, 1), 0),
        ((2, 3, 2, 2), (3,), 1),
        ((2, 3, 2), (1,), -1),
        ((0, 4), (4,), 1),
    ]
    kinds = {"add": "normal", "sub": "normal", "mul": "normal", "div": "positive", "pow": "positive"}
    cases = [
        Case(f"elementwise_{name}", {"X": Values(x, kind), "Y": Values(y, kind)}, {"axis": axis})
        for name, kind in kinds.items()
        for x, y, axis in spreads
    ]
    for name, (x, y, axis) in product(("max", "min"), spreads):
        cases.append(Case(f"elementwise_{name}", {"X": Values(x, "apart"), "Y": y}, {"axis": axis}))
    return cases


def _reductions() -> list[Case]:
    attrs: list[dict[str, object]] = [
        {"dim": [0]},
        {"dim": [1], "keep_dim": True},
        {"dim": [-1]},
        {"dim": [0, 2]},
        {"reduce_all": True},
    ]
    kinds = {"sum": "normal", "mean": "normal", "max": "apart", "min": "apart", "prod": "positive"}
    cases = [
        Case(f"reduce_{name}", {"X": Values((2, 3, 2), kind)}, each)
        for (name, kind), each in product(kinds.items(), attrs)
    ]
    return [
        *cases,
        Case("reduce_sum", {"X": (0, 3)}, {"dim": [1]}),
        Case("reduce_sum", {"X": (0, 3)}, {"dim": [0]}),
    ]


def _convolutions() -> list[Case]:
    cases = []
    plain: list[tuple[tuple[int, ...], tuple[int, ...], dict[str, object]]] = [
        ((2, 3, 5, 5), (4, 3, 3, 3), {}),
        ((2, 3, 5, 6), (4, 3, 3, 2), {"strides": [2, 1], "paddings": [1, 2]}),
        ((1, 2, 7, 7), (2, 2, 3, 3), {"dilations": [2, 2], "paddings": [1, 1]}),
        ((2, 4, 4, 4), (6, 2, 3, 3), {"groups": 2, "paddings": [1, 1]}),
        ((2, 3, 4, 4), (5, 3, 1, 1), {}),
        ((2, 3, 4, 4), (5, 3, 1, 1), {"strides": [2, 2]}),
        ((0, 3, 5, 5), (4, 3, 3, 3), {"paddings": [1, 1]}),
        ((1, 32, 3, 3), (2, 32, 3, 3), {"paddings": [1, 1]}),
        ((1, 2, 8, 9), (3, 2, 3, 3), {"strides": [1, 1], "paddings": [1, 1]}),
        ((1, 32, 7, 6), (1, 32, 2, 2), {"paddings": [1, 1]}),
        ((1, 64, 3, 3), (4, 32, 2, 2), {"groups": 2, "paddings": [1, 1]}),
    ]
    for x, filters, attrs in plain:
        cases.append(Case("conv2d", {"Input": x, "Filter": filters}, dict(attrs)))
    cases.append(Case("depthwise_conv2d", {"Input": (2, 3, 5, 5), "Filter": (3, 1, 3, 3)}, {"groups": 3}))
    cases.append(
        Case(
            "depthwise_conv2d",
            {"Input": (1, 2, 4, 4), "Filter": (4, 1, 3, 3)},
            {"groups": 2, "paddings": [1, 1]},
        )
    )
    transposed: list[tuple[tuple[int, ...], tuple[int, ...], dict[str, object]]] = [
        ((2, 3, 3, 3), (3, 4, 3, 3), {}),
        ((2, 3, 3, 4), (3, 2, 3, 2), {"strides": [2, 1], "paddings": [1, 0]}),
        ((1, 4, 3, 3), (4, 2, 3, 3), {"groups": 2}),
        ((1, 2, 3, 3), (2, 2, 3, 3), {"strides": [2, 2], "output_size": [8, 8]}),
        ((1, 2, 3, 3), (2, 2, 2, 2), {"dilations": [2, 2]}),
    ]
    for x, filters, attrs in transposed:
        cases.append(Case("conv2d_transpose", {"Input": x, "Filter": filters}, dict(attrs)))
    return cases


def _pools() -> list[Case]:
    attrs: list[dict[str, object]] = [
        {"ksize": [2, 2], "strides": [2, 2]},
        {"ksize": [3, 3], "strides": [2, 2]},
        {"ksize": [3, 2], "strides": [1, 2], "paddings": [1, 1]},
        {"ksize": [3, 3], "strides": [2, 2], "ceil_mode": True},
        {"ksize": [2, 2], "strides": [2, 2], "paddings": [1, 1], "ceil_mode": True, "exclusive": False},
        {"ksize": [1, 1], "global_pooling": True},
    ]
    cases = [
        Case("pool2d", {"X": Values((2, 2, 5, 6), "apart")}, {"pooling_type": kind, **each})
        for kind, each in product(("max", "avg"), attrs)
    ]
    return [*cases, Case("pool2d", {"X": (0, 2, 4, 4)}, {"pooling_type": "max", "ksize": [2, 2]})]


def _batch_norms() -> list[Case]:
    cases = []
    settings: list[tuple[tuple[int, ...], dict[str, object]]] = [
        ((4, 3), {}),
        ((3, 2, 3, 2), {}),
        ((3, 2, 2, 3), {"data_layout": "NHWC"}),
        ((4, 3), {"use_global_stats": True}),
        ((3, 2, 2, 2), {"is_test": True}),
        ((0, 3), {}),
    ]
    for shape, attrs in settings:
        channels = (shape[-1] if attrs.get("data_layout") == "NHWC" else shape[1],)
        inputs: dict[str, Any] = {"X": shape, "Scale": channels, "Bias": channels}
        inputs |= {"Mean": channels, "Variance": Values(channels, "positive")}
        for op in ("batch_norm", "sync_batch_norm"):
            cases.append(Case(op, inputs, dict(attrs), fixed=("Mean", "Variance"), scored=("Y",)))
    return cases


def _activations() -> list[Case]:
    smooth = (
        "sigmoid",
        "logsigmoid",
        "tanh",
        "exp",
        "square",
        "softsign",
        "softplus",
        "stanh",
        "soft_relu",
        "swish",
    )
    groups = [_unary(op) for op in smooth]
    groups += [_unary(op, "positive") for op in ("log", "sqrt", "reciprocal", "rsqrt")]
    groups += [_unary(op) for op in ("cos", "sin", "atan", "squared_l2_norm")]
    groups += [_unary("l1_norm", kinks=(0.0,)), _unary("clip_by_norm", max_norm=0.5)]
    groups += [_unary("clip_by_norm", max_norm=1e3)]
    groups += [_unary(op, "unit") for op in ("acos", "asin")]
    groups += [_unary(op, kinks=(0.0,)) for op in ("relu", "abs", "leaky_relu", "elu", "sign")]
    groups += [_unary("leaky_relu", kinks=(0.0,), alpha=0.3), _unary("elu", kinks=(0.0,), alpha=0.5)]
    groups += [
        _unary("brelu", kinks=(-0.5, 0.5), t_min=-0.5, t_max=0.5),
        _unary("clip", kinks=(0.0,), min=0.0, max=9.0),
    ]
    groups += [
        _unary("relu6", kinks=(0.0, 1.0), threshold=1.0),
        _unary("soft_relu", kinks=(1.0, -1.0), threshold=1.0),
    ]
    groups += [
        _unary("pow", "positive", factor=2.5),
        _unary("hard_sigmoid", kinks=(-2.5, 2.5)),
        _unary("error_clip", threshold=100.0),
        _unary("swish", beta=0.5),
    ]
    groups += [_unary(op, kinks=(-1.0, 0.0, 1.0)) for op in ("floor", "ceil")]
    groups += [_unary("round", kinks=(-1.5, -0.5, 0.5, 1.5)), _unary("mean"), _unary("assign")]
    groups += [
        _unary("scale", scale=2.0, bias=1.0),
        _unary("scale", scale=2.0, bias=1.0, bias_after_scale=False),
    ]
    groups += [_unary("softmax")]
    return [case for group in groups for case in group]


def _shapes() -> list[Case]:
    return [
        Case("concat", {"X": [(2, 3), (2, 1), (2, 2)]}, {"axis": 1}),
        Case("concat", {"X": [(2, 3, 2), (1, 3, 2)]}, {"axis": 0}),
        Case("concat", {"X": [(2, 3), (2, 1)]}, {"axis": -1}),
        Case("concat", {"X": [(0, 3), (0, 1)]}, {"axis": 1}),
        Case("split", {"X": (4, 6)}, {"num": 3, "axis": 1}, parts=3),
        Case("split", {"X": (5, 2)}, {"sections": [1, 4], "axis": 0}, parts=2),
        Case("split", {"X": (2, 6)}, {"sections": [2, 4], "axis": -1}, parts=2),
        Case("stack", {"X": [(2, 3), (2, 3)]}, {"axis": 1}),
        Case("stack", {"X": [(3,), (3,), (3,)]}, {"axis": -1}),
        Case("reshape", {"X": (4, 6)}, {"shape": [-1, 2, 3]}),
        Case("reshape2", {"X": (4, 6)}, {"shape": [0, 3, 2]}),
        Case("reshape2", {"X": (0, 6)}, {"shape": [-1, 3, 2]}),
        Case("squeeze", {"X": (3, 1, 2)}, {"axes": [1]}),
        Case("squeeze2", {"X": (1, 3, 1)}, {"axes": []}),
        Case("unsqueeze", {"X": (3, 2)}, {"axes": [1]}),
        Case("unsqueeze2", {"X": (3, 2)}, {"axes": [0, 3]}),
        Case("flatten", {"X": (2, 3, 2)}, {"axis": 2}),
        Case("flatten2", {"X": (2, 3, 2)}, {"axis": 0}),
        Case("transpose", {"X": (2, 3, 4)}, {"axis": [2, 0, 1]}),
        Case("transpose2", {"X": (0, 3)}, {"axis": [1, 0]}),
        Case("expand", {"X": (2, 1, 3)}, {"expand_times": [2, 3, 1]}),
        Case("expand", {"X": (0, 2)}, {"expand_times": [1, 2]}),
        Case("expand", {"X": (2, 1, 3), "ExpandTimes": _told(2, 3, 1)}),
        Case("expand", {"X": (2, 3), "expand_times_tensor": [_told(3), _told(1)]}, {"expand_times": [-1, 1]}),
        Case("reshape2", {"X": (2, 6), "Shape": _told(3, -1)}, {"shape": [-1, 4]}),
        Case(
            "reshape2", {"X": (2, 6), "ShapeTensor": [_told(0), _told(2), _told(3)]}, {"shape": [0, -1, -1]}
        ),
        Case("reshape", {"X": (0, 6), "Shape": _told(0, 3, 2)}, {"shape": [0, 3, 2]}),
        Case("gather", {"X": (4, 3), "Index": _ids(6, high=4)}),
        Case("gather", {"X": (4, 2, 2), "Index": _ids(3, 1, high=4)}),
        Case("gather", {"X": (4, 3), "Index": _ids(0, high=4)}),
        Case("scatter", {"X": (3, 2), "Ids": _ids(1, high=3), "Updates": (1, 2)}),
        Case("scatter", {"X": (3, 2), "Ids": _ids(5, high=3), "Updates": (5, 2)}, {"overwrite": False}),
        Case("pad", {"X": (2, 3)}, {"paddings": [1, 0, 2, 1], "pad_value": 0.5}),
        Case("crop", {"X": (4, 5)}, {"offsets": [1, 2], "shape": [2, 3]}),
        Case("crop", {"X": (4, 5), "Y": (2, 2)}, {"offsets": [0, 3]}, fixed=("Y",)),
        Case("crop", {"X": (4, 5), "Offsets": _told(2, 1)}, {"shape": [2, -1]}),
        Case("crop", {"X": (4, 5), "Y": (2, 2), "Offsets": _told(0, 3)}, fixed=("Y",)),
        Case(
            "slice",
            {"Input": (4, 5), "StartsTensor": _told(1, -3), "EndsTensor": _told(3, 9)},
            {"axes": [0, 1], "starts": [], "ends": []},
        ),
        Case(
            "slice",
            {"Input": (4, 5), "StartsTensorList": [_told(1), _told(0)]},
            {"axes": [0, 1], "starts": [-1, 0], "ends": [3, -1], "infer_flags": [-1, 1]},
        ),
        Case(
            "slice",
            {"Input": (4, 5), "EndsTensorList": [_told(3)]},
            {"axes": [0], "starts": [2], "ends": [-1], "decrease_axis": [0]},
        ),
        Case("slice", {"Input": (4, 5, 2)}, {"axes": [0, 1], "starts": [1, -3], "ends": [3, 9]}),
        Case("slice", {"Input": (4, 5)}, {"axes": [0], "starts": [2], "ends": [3], "decrease_axis": [0]}),
        Case("maxout", {"X": Values((2, 6, 2, 2), "apart")}, {"groups": 3}),
        Case("maxout", {"X": Values((2, 4), "apart")}, {"groups": 2}),
        Case("cast", {"X": (2, 3)}, {"in_dtype": "float64", "out_dtype": "float64"}),
    ]


def _others() -> list[Case]:
    return [
        Case("mul", {"X": (3, 4), "Y": (4, 5)}),
        Case("mul", {"X": (2, 3, 4), "Y": (4, 5)}, {"x_num_col_dims": 2}),
        Case("mul", {"X": (2, 3, 4), "Y": (3, 4, 2, 2)}, {"y_num_col_dims": 2}),
        Case("mul", {"X": (0, 4), "Y": (4, 5)}),
        Case("matmul", {"X": (3, 4), "Y": (4, 5)}),
        Case("matmul", {"X": (4, 3), "Y": (5, 4)}, {"transpose_X": True, "transpose_Y": True, "alpha": 0.5}),
        Case("matmul", {"X": (2, 3, 4), "Y": (2, 4, 5)}),
        Case("matmul", {"X": (2, 3, 4), "Y": (2, 5, 4)}, {"transpose_Y": True}),
        Case("matmul", {"X": (2, 3, 4), "Y": (4, 5)}),
        Case("matmul", {"X": (3, 4), "Y": (2, 4, 5)}),
        Case("matmul", {"X": (4,), "Y": (4,)}),
        Case("matmul", {"X": (2, 3, 4), "Y": (4,)}),
        Case("matmul", {"X": (4,), "Y": (4, 5)}),
        Case("matmul", {"X": (4,), "Y": (5,)}, {"transpose_X": True, "transpose_Y": True, "alpha": 0.5}),
        Case("matmul", {"X": (4,), "Y": (2, 1, 5)}, {"transpose_X": True}),
        Case("matmul", {"X": (2, 3, 1), "Y": (4,)}, {"transpose_Y": True}),
        Case("sum", {"X": [(2, 3), (2, 3), (2, 3)]}),
        Case("sum", {"X": [(2, 3)]}),
        Case("sum", {"X": [(0, 3), (0, 3)]}),
        Case("softmax", {"X": (2, 3, 4)}, {"axis": 1}),
        Case("softmax", {"X": (2, 3, 4)}, {"axis": 2}),
        Case("lookup_table", {"W": (5, 3), "Ids": _ids(4, 1, high=5)}),
        Case("lookup_table", {"W": (5, 3), "Ids": _ids(4, 2, 1, high=5)}, {"padding_idx": 2}),
        Case("lookup_table", {"W": (5, 3), "Ids": _ids(0, 1, high=5)}),
        Case("dropout", {"X": (4, 5)}, {"dropout_prob": 0.4}),
        Case("dropout", {"X": (4, 5)}, {"dropout_prob": 0.4, "dropout_implementation": "upscale_in_train"}),
        Case("dropout", {"X": (4, 5)}, {"dropout_prob": 0.4, "is_test": True}),
        Case("dropout", {"X": (4, 5)}, {"dropout_prob": 1.0}),
        Case("dropout", {"X": (0, 5)}, {"dropout_prob": 0.5}),
        Case("lrn", {"X": (2, 6, 2, 2)}, {"n": 5, "alpha": 0.1}, scored=("Out",)),
        Case("lrn", {"X": (2, 5, 2, 2)}, {"n": 4, "alpha": 0.5, "k": 1.0}, scored=("Out",)),
        Case("lrn", {"X": (1, 2, 2, 2)}, {"n": 5, "alpha": 0.5}, scored=("Out",)),
        Case("norm", {"X": (3, 4)}, {"axis": 1}),
        Case("norm", {"X": (2, 3, 2)}, {"axis": -2, "epsilon": 1e-2}),
        Case("cos_sim", {"X": (3, 4), "Y": (3, 4)}),
        Case("cos_sim", {"X": (3, 4), "Y": (1, 4)}),
        Case("cos_sim", {"X": (3, 2, 2), "Y": (3, 2, 2)}),
        Case("cos_sim", {"X": (3, 2, 1, 2), "Y": (1, 2, 1, 2)}),
        Case("cos_sim", {"X": (0, 4), "Y": (0, 4)}),
        Case("prelu", {"X": Values((2, 3, 2, 2), kinks=(0.0,)), "Alpha": (1,)}, {"mode": "all"}),
        Case("prelu", {"X": Values((2, 3, 2, 2), kinks=(0.0,)), "Alpha": (3,)}, {"mode": "channel"}),
        Case("prelu", {"X": Values((2, 3), kinks=(0.0,)), "Alpha": (1, 3)}, {"mode": "element"}),
    ]


CASES: list[Case] = [
    *_activations(),
    *_elementwise(),
    *_reductions(),
    *LOSS_CASES,
    *_shapes(),
    *_others(),
    *_convolutions(),
    *_pools(),
    *_batch_norms(),
    *RECURRENT_CASES,
    *SAMPLED_CASES,
    *BREADTH_CASES,
    *DETECTION_CASES,
    *DENSE_CASES,
    *SEQUENCE_CASES,
    *RARE_CASES,
]
