# SPDX-License-Identifier: Apache-2.0
"""Cases of operators on volumes and channels, of resizing and padding images, of shrinking activations, and others."""

from __future__ import annotations

from tests.runtime.ops.gradient_check import Case, Values


def _ids(*shape: int, high: int) -> Values:
    return Values(shape, "ids", high)


def _activations() -> list[Case]:
    kinks = {
        "tanh_shrink": (),
        "softshrink": (-0.5, 0.5),
        "hard_shrink": (-0.5, 0.5),
        "thresholded_relu": (1.0,),
    }
    return [
        Case(op, {"X": Values(shape, kinks=found)})
        for op, found in {**kinks, "selu": (0.0,)}.items()
        for shape in [(3, 4), (2, 3, 2), (0, 4)]
    ]


def _volumes() -> list[Case]:
    moved: dict[str, object] = {"strides": [2, 1, 1], "paddings": [1, 0, 1], "dilations": [1, 2, 1]}
    pooled: dict[str, object] = {"ksize": [2, 2, 2], "strides": [2, 1, 2], "paddings": [1, 0, 1]}
    return [
        Case("conv3d", {"Input": (2, 2, 3, 3, 2), "Filter": (3, 2, 2, 2, 1)}),
        Case("conv3d", {"Input": (1, 4, 3, 4, 2), "Filter": (2, 2, 2, 2, 2)}, {**moved, "groups": 2}),
        Case("conv3d", {"Input": (0, 2, 3, 3, 2), "Filter": (3, 2, 2, 2, 1)}),
        Case(
            "conv3d_transpose", {"Input": (1, 2, 2, 2, 2), "Filter": (2, 3, 2, 1, 2)}, {"strides": [2, 1, 2]}
        ),
        Case(
            "conv3d_transpose", {"Input": (1, 4, 2, 2, 2), "Filter": (4, 1, 2, 2, 2)}, {**moved, "groups": 2}
        ),
        Case("pool3d", {"X": Values((1, 2, 3, 3, 4), "apart")}, {"pooling_type": "max", **pooled}),
        Case("pool3d", {"X": (2, 1, 3, 3, 4)}, {"pooling_type": "avg", **pooled}),
        Case("pool3d", {"X": (2, 1, 3, 3, 4)}, {"pooling_type": "avg", "exclusive": False, **pooled}),
        Case(
            "pool3d",
            {"X": (2, 1, 2, 3, 2)},
            {"pooling_type": "avg", "ksize": [1, 1, 1], "global_pooling": True},
        ),
        Case("pool3d", {"X": (0, 1, 3, 3, 4)}, {"pooling_type": "max", **pooled}),
        *(
            Case(
                "pool3d",
                {"X": Values((2, 1, 3, 5, 4), "apart")},
                {"ksize": [2, 3, 2], "adaptive": True, "pooling_type": kind},
            )
            for kind in ("max", "avg")
        ),
    ]


def _images() -> list[Case]:
    around = {"paddings": [1, 2, 0, 1]}
    cells: dict[str, object] = {"ksize": [3, 2], "adaptive": True}
    wide: dict[str, object] = {"ksize": [5, 5], "strides": [3, 3]}
    sizes: list[dict[str, object]] = [
        {"out_h": 5, "out_w": 2},
        {"out_h": 2, "out_w": 7, "align_corners": False},
        {"out_h": 1, "out_w": 3, "align_corners": False, "align_mode": 0},
        {"scale": 1.5},
    ]
    return [
        *(
            Case("pad2d", {"X": (2, 2, 3, 4)}, {**around, "mode": mode})
            for mode in ("constant", "reflect", "edge")
        ),
        Case("pad2d", {"X": (2, 3, 4, 2)}, {**around, "mode": "edge", "data_format": "NHWC"}),
        Case("pad2d", {"X": (0, 2, 3, 4)}, {**around, "mode": "reflect"}),
        *(
            Case(
                "pad2d",
                {"X": (1, 2, 3, 4), "Paddings": Values((4,), "ids", given=(1, 0, 2, 1))},
                {"mode": mode, "data_format": layout},
            )
            for mode in ("constant", "edge")
            for layout in ("NCHW", "NHWC")
        ),
        *(Case("bilinear_interp", {"X": (2, 2, 3, 4)}, size) for size in sizes),
        *(Case("nearest_interp", {"X": (2, 2, 3, 4)}, size) for size in (sizes[0], sizes[-1])),
        Case("nearest_interp", {"X": (0, 2, 3, 4)}, {"out_h": 5, "out_w": 2, "align_corners": False}),
        Case("pool2d", {"X": (2, 2, 5, 4)}, {**cells, "pooling_type": "avg"}),
        Case("pool2d", {"X": Values((2, 2, 5, 4), "apart")}, {**cells, "pooling_type": "max"}),
        *(
            Case("pool2d", {"X": Values((2, 2, 3, 4), "apart")}, {**wide, "pooling_type": kind})
            for kind in ("max", "avg")
        ),
        Case("conv2d", {"Input": (2, 2, 3, 4), "Filter": (3, 2, 5, 5)}, {"strides": [3, 3]}),
        Case("pool2d", {"X": (0, 2, 5, 4)}, {**cells, "pooling_type": "max"}),
        Case("space_to_depth", {"X": (2, 8, 4, 2)}, {"blocksize": 2}),
        Case("space_to_depth", {"X": (0, 4, 4, 2)}, {"blocksize": 2}),
        Case("shuffle_channel", {"X": (2, 6, 2, 1)}, {"group": 3}),
        Case("shuffle_channel", {"X": (0, 4, 2, 1)}, {"group": 2}),
        Case("pixel_shuffle", {"X": (2, 8, 2, 3)}, {"upscale_factor": 2}),
        Case("pixel_shuffle", {"X": (0, 4, 2, 3)}, {"upscale_factor": 2}),
        Case("affine_channel", {"X": (2, 3, 2, 2), "Scale": (3,), "Bias": (3,)}),
        Case("affine_channel", {"X": (0, 3), "Scale": (3,), "Bias": (3,)}),
        Case("affine_channel", {"X": (2, 2, 4, 3), "Scale": (3,), "Bias": (3,)}, {"data_layout": "NHWC"}),
    ]


def _others() -> list[Case]:
    likely = {"X": (3, 4), "Target": Values((3, 4), "probabilities")}
    ways = ("mean", "sum", "batchmean", "none")
    steps, labels = ((5, 3, 1),), ((2, 1, 0),)
    logits, label = Values((9, 4), lengths=steps), Values((3, 1), "ids", 3, lengths=labels)
    ctc = {"Logits": logits, "Label": label}
    return [
        *(Case("kldiv_loss", likely, {"reduction": way}, fixed=("Target",)) for way in ways),
        Case("kldiv_loss", {"X": (0, 4), "Target": Values((0, 4), "unit")}, fixed=("Target",)),
        Case("print", {"In": (2, 1)}, {"summarize": 1}),
        Case("diag", {"Diagonal": (4,)}),
        Case("diag", {"Diagonal": (0,)}),
        Case("unstack", {"X": (2, 3, 2)}, {"axis": 1}, parts=3),
        Case("unstack", {"X": (0, 2)}, {"axis": -1}, parts=2),
        Case("bilinear_tensor_product", {"X": (3, 2), "Y": (3, 4), "Weight": (5, 2, 4), "Bias": (1, 5)}),
        Case("bilinear_tensor_product", {"X": (0, 2), "Y": (0, 3), "Weight": (2, 2, 3)}),
        Case(
            "cross_entropy2",
            {"X": Values((4, 3), "probabilities"), "Label": _ids(4, 1, high=3)},
            scored=("Y",),
        ),
        Case("cross_entropy2", {"X": Values((0, 3), "unit"), "Label": _ids(0, 1, high=3)}, scored=("Y",)),
        Case("warpctc", ctc, {"blank": 3}, scored=("Loss",)),
        Case("warpctc", ctc, {"blank": 3, "norm_by_times": False}, scored=("Loss",)),
    ]


def _regions() -> list[Case]:
    # Whole numbers: a grid's cells do not move with small steps, and images are far apart in value.
    grid: dict[str, object] = {"pooled_height": 2, "pooled_width": 3, "spatial_scale": 0.5}
    rois = Values((3, 4), "ids", 8, lengths=((2, 1),))
    return [Case("roi_pool", {"X": Values((2, 2, 4, 5), "apart"), "ROIs": rois}, grid, scored=("Out",))]


BREADTH_CASES = [*_activations(), *_volumes(), *_images(), *_others(), *_regions()]
