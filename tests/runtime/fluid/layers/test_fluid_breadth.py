# SPDX-License-Identifier: Apache-2.0
"""Every layer appends operators that run, and scripts find it in the module that the original has it in."""

from __future__ import annotations

import importlib
from collections.abc import Callable
from types import ModuleType
from typing import Any

import numpy as np
import pytest

import paddle.fluid as fluid
from paddle.fluid import layers
from paddle.fluid.errors import FluidTypeError
from paddle.fluid.layers.device import get_places
from paddle.ops.base.lod import LoDArray, offsets_of

_RNG = np.random.default_rng(5)
_IMAGES = _RNG.standard_normal((2, 4, 6, 8)).astype("float32")
# module -> what the original has there, of 1.0 to 1.5; all other layers are in `nn`
ORIGINAL = {
    "control_flow": """
        While Switch IfElse DynamicRNN StaticRNN ConditionalBlock ParallelDo increment array_write
        create_array array_read array_length less_than less_equal greater_than greater_equal equal not_equal
        lod_rank_table max_sequence_len lod_tensor_to_array array_to_lod_tensor split_lod_tensor
        merge_lod_tensor shrink_memory reorder_lod_tensor_by_rank Print is_empty
    """,
    "detection": """
        prior_box density_prior_box multi_box_head bipartite_match target_assign detection_output ssd_loss detection_map
        rpn_target_assign retinanet_target_assign sigmoid_focal_loss anchor_generator roi_perspective_transform
        generate_proposal_labels generate_proposals generate_mask_labels iou_similarity box_coder
        polygon_box_transform yolov3_loss yolo_box box_clip multiclass_nms retinanet_detection_output
        distribute_fpn_proposals box_decoder_and_assign collect_fpn_proposals
    """,
    "io": """
        data open_files open_recordio_file read_file shuffle batch double_buffer random_data_generator py_reader
        create_py_reader_by_data Preprocessor load
    """,
    "learning_rate_scheduler": """
        exponential_decay natural_exp_decay inverse_time_decay polynomial_decay piecewise_decay noam_decay
        append_LARS cosine_decay linear_lr_warmup
    """,
    "metric_op": """
        accuracy auc
    """,
    "ops": """
        exp tanh_shrink softshrink sqrt rsqrt abs ceil floor cos acos asin sin atan round reciprocal square
        softplus softsign tanh sigmoid logsigmoid uniform_random hard_shrink cumsum thresholded_relu
    """,
    "tensor": """
        create_tensor create_parameter create_global_var cast tensor_array_to_tensor concat sums assign
        fill_constant_batch_size_like fill_constant argmin argmax argsort ones zeros reverse has_inf has_nan
        isfinite range linspace zeros_like diag
    """,
}
ELSEWHERE = {name for names in ORIGINAL.values() for name in names.split()}


def _run(feed: dict[str, Any], fetches: list[Any]) -> list[Any]:
    executor = fluid.Executor(fluid.CPUPlace())
    executor.run(fluid.default_startup_program())
    return executor.run(feed=feed, fetch_list=fetches, return_numpy=False)


@pytest.mark.parametrize(
    ("layer", "shape"),
    [
        (lambda x: layers.image_resize(x, [3, 5]), (2, 4, 3, 5)),
        (lambda x: layers.resize_bilinear(x, scale=0.5), (2, 4, 3, 4)),
        (lambda x: layers.resize_nearest(x, [12, 16], align_corners=False), (2, 4, 12, 16)),
        (lambda x: layers.image_resize_short(x, 3), (2, 4, 3, 4)),
        (lambda x: layers.pad2d(x, [1, 2, 3, 4], "reflect"), (2, 4, 9, 15)),
        (lambda x: layers.space_to_depth(x, 2), (2, 16, 3, 4)),
        (lambda x: layers.pixel_shuffle(x, 2), (2, 1, 12, 16)),
        (lambda x: layers.shuffle_channel(x, 2), (2, 4, 6, 8)),
        (lambda x: layers.softshrink(layers.tanh_shrink(layers.selu(x))), (2, 4, 6, 8)),
        (lambda x: layers.hard_shrink(layers.thresholded_relu(x, 0.1), 0.2), (2, 4, 6, 8)),
        (lambda x: layers.unstack(x, axis=1)[3], (2, 6, 8)),
        (lambda x: layers.adaptive_pool2d(x, [5, 3], "avg"), (2, 4, 5, 3)),
        (lambda x: layers.im2sequence(x, [2, 2], [2, 2]), (24, 16)),
        (lambda x: layers.reduce_any(layers.reduce_all(layers.isfinite(x))), (1,)),
        (lambda x: layers.rank(x), (1,)),
        (lambda x: layers.conv2d_transpose(x, 3, output_size=[12, 16], stride=2), (2, 3, 12, 16)),
        (lambda x: layers.Print(x, message="seen", summarize=2), (2, 4, 6, 8)),
        (
            lambda x: layers.elementwise_mod(layers.abs(x), layers.fill_constant([1], "float32", 2.0)),
            (2, 4, 6, 8),
        ),
    ],
)
def test_a_layer_of_images_gives_its_shape(
    layer: Callable[[Any], Any], shape: tuple[int, ...], capfd: pytest.CaptureFixture[str]
) -> None:
    images = layers.data("images", [4, 6, 8])
    out = layer(images)
    (value,) = _run({"images": _IMAGES}, [out])
    assert tuple(value.shape()) == shape
    assert all(declared in (-1, size) for declared, size in zip(out.shape, shape, strict=True))


def test_print_shows_what_passes_by(capfd: pytest.CaptureFixture[str]) -> None:
    x = layers.data("x", [3])
    _run({"x": np.array([[1.5, 2.5, 3.5]], "float32")}, [layers.Print(x, message="here", summarize=2)])
    assert "here Tensor: x shape: [1, 3] dtype: float32 data: [1.5,2.5]" in capfd.readouterr().err


@pytest.mark.parametrize(("phase", "shown"), [("forward", [0]), ("backward", [1]), ("both", [0, 1])])
def test_print_shows_gradients_in_their_phase(
    phase: str, shown: list[int], capfd: pytest.CaptureFixture[str]
) -> None:
    x = layers.data("x", [2], stop_gradient=False)
    loss = layers.reduce_sum(layers.scale(layers.Print(x, print_phase=phase, print_tensor_shape=False), 3.0))
    (grad,) = fluid.gradients([loss], [x])
    (found,) = _run({"x": np.array([[1.5, 2.5]], "float32")}, [grad])
    assert np.array(found).tolist() == [[3, 3]]
    lines = [line for line in capfd.readouterr().err.splitlines() if "Tensor:" in line]
    assert [["1.5,2.5", "3.,3."].index(line.split("[")[1].rstrip("]")) for line in lines] == shown


@pytest.mark.parametrize("kind", ["bilinear", "nearest"])
def test_programs_of_1_5_name_how_they_resize(kind: str) -> None:
    x = layers.data("x", [1, 4, 4])
    block = fluid.default_main_program().global_block()
    out = block.create_var(name="out", dtype="float32")
    attrs = {
        "out_h": 2,
        "out_w": 2,
        "scale": 0.0,
        "interp_method": kind,
        "align_corners": True,
        "align_mode": 1,
    }
    block.append_op(type=f"{kind}_interp", inputs={"X": x}, outputs={"Out": out}, attrs=attrs)
    image = np.arange(16, dtype="float32").reshape(1, 1, 4, 4)
    (found,) = _run({"x": image}, [out])
    assert np.array(found)[0, 0].tolist() == [[0, 3], [12, 15]]


def test_numbers_are_counted_off_and_chosen() -> None:
    numbers, even = layers.range(0, 5, 2, "int64"), layers.linspace(0.0, 1.0, 3, "float32")
    rows = layers.data("rows", [2])
    chosen = layers.multiplex([rows, layers.scale(rows, 10.0)], layers.data("which", [1], dtype="int64"))
    hashed = layers.hash(layers.data("ids", [2], dtype="int64"), 50, num_hash=3)
    feed = {
        "rows": np.ones((2, 2), "float32"),
        "which": np.array([[1], [0]]),
        "ids": np.array([[1, 2], [3, 4]]),
    }
    found = [np.array(each) for each in _run(feed, [numbers, even, chosen, hashed])]
    assert found[0].tolist() == [0, 2, 4]
    assert found[1].tolist() == [0.0, 0.5, 1.0]
    assert found[2].tolist() == [[10, 10], [1, 1]]
    assert found[3].shape == (2, 3, 1)


def test_sequences_go_apart_by_time_and_come_together_again() -> None:
    rows = layers.data("rows", [2], lod_level=1)
    table = layers.lod_rank_table(rows)
    steps = layers.lod_tensor_to_array(rows, table)
    back = layers.array_to_lod_tensor(steps, table)
    ranked = layers.reorder_lod_tensor_by_rank(rows, table)
    value = LoDArray(np.arange(10, dtype="float32").reshape(5, 2), offsets_of([[2, 3]]))
    found = _run({"rows": value}, [back, ranked])
    np.testing.assert_array_equal(np.array(found[0]), value.data)
    np.testing.assert_array_equal(np.array(found[1]), value.data[[2, 3, 4, 0, 1]])


def _volumes() -> tuple[Any, dict[str, Any]]:
    x, label = layers.data("x", [1, 4, 4, 4]), layers.data("label", [1], dtype="int64")
    hidden = layers.pool3d(layers.conv3d(x, 4, 3, padding=1, act="relu"), 2, "avg", 2)
    grown = layers.conv3d_transpose(hidden, 2, filter_size=2, stride=2, act="tanh")
    score = layers.fc(grown, 2, act="softmax")
    given = _RNG.standard_normal((24, 1, 4, 4, 4)).astype("float32")
    target = (given.mean(axis=(1, 2, 3, 4)) > 0).astype("int64")[:, None]
    return layers.mean(layers.cross_entropy(score, label)), {"x": given, "label": target}


def _pairs() -> tuple[Any, dict[str, Any]]:
    x, y, target = layers.data("x", [3]), layers.data("y", [2]), layers.data("target", [1])
    out = layers.bilinear_tensor_product(x, y, 1)
    left, right = _RNG.standard_normal((24, 3)), _RNG.standard_normal((24, 2))
    wanted = left[:, :1] * right[:, 1:]
    feed = {"x": left, "y": right, "target": wanted}
    return layers.mean(layers.square_error_cost(out, target)), {
        name: value.astype("float32") for name, value in feed.items()
    }


def _unplaced() -> tuple[Any, dict[str, Any]]:
    rows, label = layers.data("rows", [4], lod_level=1), layers.data("label", [1], dtype="int64", lod_level=1)
    scores = layers.fc(rows, 4)
    lengths = [6, 5, 7]
    spoken = [[1, 2], [3], [2, 2, 1]]
    given = _RNG.standard_normal((18, 4)).astype("float32")
    flat = np.array([each for some in spoken for each in some])[:, None]
    return layers.mean(layers.warpctc(scores, label)), {
        "rows": LoDArray(given, offsets_of([lengths])),
        "label": LoDArray(flat, offsets_of([[len(some) for some in spoken]])),
    }


@pytest.mark.parametrize("net", [_volumes, _pairs, _unplaced])
def test_a_net_learns(net: Callable[[], tuple[Any, dict[str, Any]]]) -> None:
    loss, feed = net()
    fluid.default_startup_program().random_seed = 3
    fluid.optimizer.Adam(0.05).minimize(loss)
    executor = fluid.Executor(fluid.CPUPlace())
    executor.run(fluid.default_startup_program())
    costs = [float(executor.run(feed=feed, fetch_list=[loss])[0][0]) for _ in range(40)]
    assert costs[-1] < 0.5 * costs[0]


@pytest.mark.parametrize("true", [1, 2])
def test_a_softmax_over_drawn_classes_learns_what_one_over_all_does(true: int) -> None:
    x, label = layers.data("x", [8]), layers.data("label", [true], dtype="int64")
    scores = layers.fc(x, 40)
    loss = layers.mean(layers.sampled_softmax_with_cross_entropy(scores, label, 10, num_true=true))
    fluid.default_startup_program().random_seed = fluid.default_main_program().random_seed = 3
    fluid.optimizer.Adam(0.05).minimize(loss)
    executor = fluid.Executor(fluid.CPUPlace())
    executor.run(fluid.default_startup_program())
    classes = np.arange(8)[:, None] * 4 + np.arange(true)
    feed = {"x": np.eye(8, dtype="float32"), "label": classes}
    for _ in range(120):
        executor.run(feed=feed, fetch_list=[loss])
    (found,) = executor.run(feed=feed, fetch_list=[scores])
    best = np.sort(np.argsort(-found, axis=1)[:, :true], axis=1)
    assert (best == classes).all()


def test_the_best_path_through_scores_is_decoded() -> None:
    scores = layers.data("scores", [3], lod_level=1)
    decoded = layers.ctc_greedy_decoder(scores, blank=0)
    given = LoDArray(np.eye(3, dtype="float32")[[1, 1, 0, 1, 2, 2]], offsets_of([[4, 2]]))
    (found,) = _run({"scores": given}, [decoded])
    assert np.array(found)[:, 0].tolist() == [1, 1, 2]
    assert found.recursive_sequence_lengths() == [[2, 1]]


def test_overlap_of_regions_is_a_loss() -> None:
    chances, label = layers.data("chances", [4, 2]), layers.data("label", [4, 1], dtype="int64")
    loss = layers.dice_loss(chances, label)
    given = np.zeros((1, 4, 2), "float32")
    given[0, :, 1] = 1
    (found,) = _run({"chances": given, "label": np.array([[[1], [1], [0], [0]]])}, [loss])
    assert float(found) == pytest.approx(1 - 2 * 2 / (4 + 4), abs=1e-4)


def module(name: str) -> ModuleType:
    return importlib.import_module(f"paddle.fluid.layers.{name}")


@pytest.mark.parametrize("name", ORIGINAL)
def test_a_module_has_the_layers_that_the_original_has_there(name: str) -> None:
    assert set(module(name).__all__) == set(ORIGINAL[name].split()) & set(fluid.layers.__all__)


def test_all_other_layers_are_in_nn() -> None:
    assert set(fluid.layers.nn.__all__) == set(fluid.layers.__all__) - ELSEWHERE


@pytest.mark.parametrize("name", [*ORIGINAL, "nn"])
def test_a_layer_is_the_same_wherever_it_is_imported_from(name: str) -> None:
    assert [
        layer
        for layer in module(name).__all__
        if getattr(module(name), layer) is not getattr(fluid.layers, layer)
    ] == []


def test_device_gives_the_places_that_there_are(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("CPU_NUM", "3")
    assert get_places(device_type="CPU") == fluid.cpu_places(3)
    assert get_places(2, "cpu") == fluid.cpu_places(2)
    monkeypatch.setenv("FLAGS_selected_gpus", "4,6")
    assert get_places(1, "CUDA") == [fluid.CUDAPlace(4)]
    with pytest.raises(FluidTypeError, match="expected device_type CPU or CUDA, got 'TPU'"):
        get_places(device_type="TPU")


def test_a_block_of_parallel_do_runs_on_the_whole_batch() -> None:
    parallel = layers.ParallelDo(get_places(2, "cpu"))
    with parallel.do():
        parallel.write_output(layers.mean(parallel.read_input(layers.data("x", [1]))))
    loss: Any = parallel()
    (found,) = fluid.Executor().run(feed={"x": np.array([[1], [5]], "float32")}, fetch_list=[loss])
    assert found.tolist() == [3]
    with pytest.raises(fluid.core.EnforceNotMet, match=r"ParallelDo.*write_output"):
        layers.ParallelDo(())()


def test_names_of_fluid_1_6_take_ids_of_any_shape() -> None:
    ids = fluid.data("ids", [None, 3], dtype="int64")
    words = fluid.data("words", [None], dtype="int64", lod_level=1)
    table = fluid.ParamAttr("table", fluid.initializer.NumpyArrayInitializer(np.eye(5, 4, dtype="float32")))
    rows = fluid.embedding(ids, [5, 4], padding_idx=0, param_attr=table)
    first = layers.sequence_first_step(fluid.embedding(words, [5, 4], param_attr="table"))
    results = [rows, fluid.one_hot(ids, 5), first]
    exe = fluid.Executor()
    exe.run(fluid.default_startup_program())
    feed = {"ids": np.array([[0, 1, 4]]), "words": fluid.create_lod_tensor(np.array([3, 1]), [[2]])}
    found = exe.run(feed=feed, fetch_list=results)
    expected = np.array([[[0, 0, 0, 0], [0, 1, 0, 0], [0, 0, 0, 0]]])
    assert rows.shape == (-1, 3, 4)
    np.testing.assert_array_equal(found[0], expected)
    np.testing.assert_array_equal(found[1], np.eye(5)[[[0, 1, 4]]])
    np.testing.assert_array_equal(found[2], [[0, 0, 0, 1]])
    open_ = fluid.one_hot(ids, 5, allow_out_of_range=True)
    (found,) = exe.run(feed={"ids": np.array([[4, 5, -1]])}, fetch_list=[open_])
    np.testing.assert_array_equal(found, [[[0, 0, 0, 0, 1], [0] * 5, [0] * 5]])
