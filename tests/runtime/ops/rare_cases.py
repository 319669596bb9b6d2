# SPDX-License-Identifier: Apache-2.0
"""Cases of operators that few programs have: distillation, grids, trees, pooling with places, cuDNN's LSTM."""

from __future__ import annotations

from tests.runtime.ops.gradient_check import Case, Values


def _told(*numbers: int) -> Values:
    return Values((len(numbers),), "ids", given=numbers)


def _products() -> list[Case]:
    fc = {"Input": (3, 2, 2), "W": (4, 5)}
    return [
        *(Case("gelu", {"X": shape}) for shape in [(3, 4), (2, 3, 2), (0, 4)]),
        Case("rnn_memory_helper", {"X": (3, 4)}),
        Case("minus", {"X": (3, 4), "Y": (3, 4)}),
        Case("minus", {"X": (0, 4), "Y": (0, 4)}),
        Case("fc", {**fc, "Bias": (5,)}),
        Case("fc", {**fc, "Bias": (1, 5)}),
        Case("fc", {"Input": (2, 3, 4), "W": (4, 2)}, {"in_num_col_dims": 2}),
        Case("fc", {**fc, "Bias": (5,)}, {"activation_type": "relu"}),
        Case("fc", {"Input": (0, 4), "W": (4, 5), "Bias": (5,)}),
        Case("fsp", {"X": (2, 3, 2, 4), "Y": (2, 2, 2, 4)}),
        Case("fsp", {"X": (0, 3, 2, 2), "Y": (0, 1, 2, 2)}),
        Case("conv_shift", {"X": (2, 5), "Y": (2, 3)}),
        Case("conv_shift", {"X": (2, 5), "Y": (2, 5)}),
        Case("conv_shift", {"X": (0, 4), "Y": (0, 1)}),
        Case("pad_constant_like", {"X": (3, 4), "Y": (2, 4)}, {"pad_value": 2.0}, fixed=("X",)),
        Case("pad_constant_like", {"X": (3, 4), "Y": (0, 1)}, fixed=("X",)),
        Case("add_position_encoding", {"X": (2, 3, 4)}, {"alpha": 0.5, "beta": 2.0}),
        Case("add_position_encoding", {"X": Values((6, 2), lengths=((3, 0, 1, 2),))}, {"alpha": 2.0}),
    ]


def _images() -> list[Case]:
    moved: dict[str, object] = {"ksize": [3, 2], "strides": [2, 1], "paddings": [1, 1]}
    volume: dict[str, object] = {"ksize": [2, 2, 2], "strides": [2, 1, 2], "paddings": [1, 0, 1]}
    image = {"X": Values((2, 2, 5, 4), "apart")}
    places = Values((1, 1, 2, 2), "ids", given=(0, 3, 9, 14))
    return [
        Case("max_pool2d_with_index", image, moved, scored=("Out",)),
        Case("max_pool2d_with_index", image, {"ksize": [3, 2], "adaptive": True}, scored=("Out",)),
        Case("max_pool2d_with_index", image, {"ksize": [1, 1], "global_pooling": True}, scored=("Out",)),
        Case("max_pool2d_with_index", {"X": (0, 2, 5, 4)}, moved, scored=("Out",)),
        Case("max_pool3d_with_index", {"X": Values((1, 2, 3, 3, 4), "apart")}, volume, scored=("Out",)),
        Case(
            "unpool",
            {"X": (1, 1, 2, 2), "Indices": places},
            {"ksize": [2, 2], "strides": [2, 2], "unpooling_type": "max"},
        ),
        *(
            Case("spp", {"X": Values(shape, "apart")}, {"pyramid_height": 3, "pooling_type": kind})
            for kind in ("max", "avg")
            for shape in [(2, 2, 5, 4), (1, 1, 8, 7)]
        ),
        Case("spp", {"X": (0, 2, 4, 4)}, {"pyramid_height": 2, "pooling_type": "max"}),
        Case("affine_grid", {"Theta": (2, 2, 3)}, {"output_shape": [2, 3, 3, 4]}),
        Case("affine_grid", {"Theta": (1, 2, 3), "OutputShape": _told(1, 1, 2, 1)}),
        Case("grid_sampler", {"X": (2, 2, 3, 4), "Grid": Values((2, 3, 2, 2))}),
        Case("grid_sampler", {"X": (0, 2, 3, 4), "Grid": (0, 1, 2, 2)}),
        Case("temporal_shift", {"X": (6, 5, 2, 1)}, {"seg_num": 3, "shift_ratio": 0.3}),
        Case("temporal_shift", {"X": (2, 4, 1, 1)}, {"seg_num": 1}),
        Case("temporal_shift", {"X": (0, 4, 2, 1)}, {"seg_num": 2}),
        Case(
            "depthwise_conv2d_transpose",
            {"Input": (2, 3, 3, 2), "Filter": (3, 1, 2, 3)},
            {"groups": 3, "strides": [2, 1], "paddings": [1, 0]},
        ),
        Case(
            "tree_conv",
            {
                "NodesVector": (2, 5, 3),
                "EdgeSet": Values((2, 4, 2), "ids", given=(1, 2, 1, 3, 1, 4, 2, 5, 1, 2, 2, 3, 0, 0, 0, 0)),
                "Filter": (3, 3, 2, 2),
            },
            {"max_depth": 3},
        ),
    ]


def _losses_and_norms() -> list[Case]:
    counts = {slot: Values((3,), "positive") for slot in ("BatchSize", "BatchSum", "BatchSquareSum")}
    found = tuple(counts)
    one = {"X": (5, 1), "Label": Values((5, 1), "unit")}
    return [
        Case(
            "modified_huber_loss",
            {"X": Values((6, 1), kinks=(-1.0, 1.0)), "Y": Values((6, 1), "booleans")},
            scored=("Out",),
        ),
        Case("modified_huber_loss", {"X": (0, 1), "Y": (0, 1)}, fixed=("Y",), scored=("Out",)),
        Case("teacher_student_sigmoid_loss", one, fixed=("Label",)),
        Case("teacher_student_sigmoid_loss", {"X": (6, 1), "Label": (6, 1)}, fixed=("Label",)),
        Case("teacher_student_sigmoid_loss", {"X": (0, 1), "Label": (0, 1)}, fixed=("Label",)),
        Case("data_norm", {"X": (4, 3), **counts}, fixed=found, scored=("Y",)),
        Case("data_norm", {"X": (0, 3), **counts}, fixed=found, scored=("Y",)),
        *(
            Case(
                "spectral_norm",
                {"Weight": shape, "U": (shape[dim],), "V": (width,)},
                {"dim": dim, "power_iters": 0},
                fixed=("U", "V"),
            )
            for shape, dim, width in [((3, 4), 0, 4), ((2, 3, 2), 1, 4)]
        ),
    ]


def _cudnn() -> list[Case]:
    def sized(length: int, rows: int, inputs: int, hidden: int, layers: int, ways: int) -> dict[str, object]:
        sizes = [inputs, *[hidden * ways] * (layers - 1)]
        weights = sum(ways * 4 * hidden * (size + hidden + 2) for size in sizes)
        states = (layers * ways, rows, hidden)
        return {"Input": (length, rows, inputs), "InitH": states, "InitC": states, "W": (weights,)}

    def case(length: int, rows: int, layers: int, ways: int) -> Case:
        attrs = {
            "max_len": 3,
            "input_size": 2,
            "hidden_size": 2,
            "num_layers": layers,
            "is_bidirec": ways == 2,
        }
        return Case("cudnn_lstm", sized(length, rows, 2, 2, layers, ways), attrs)

    return [case(3, 2, 1, 1), case(2, 2, 2, 2), case(0, 2, 1, 1), case(2, 0, 1, 2)]


RARE_CASES: list[Case] = [*_products(), *_images(), *_losses_and_norms(), *_cudnn()]
