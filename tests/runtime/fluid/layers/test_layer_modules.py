# SPDX-License-Identifier: Apache-2.0
"""Scripts import layers from the modules that the original has them in."""

from __future__ import annotations

import importlib
from types import ModuleType

import pytest

import paddle.fluid as fluid
from paddle.fluid.errors import FluidTypeError
from paddle.fluid.layers.device import get_places

# module -> what the original has there, of 1.0 to 1.5; all other layers are in `nn`
ORIGINAL = {
    "control_flow": """
        While Switch IfElse DynamicRNN StaticRNN ConditionalBlock ParallelDo increment array_write
        create_array array_read array_length less_than less_equal greater_than greater_equal equal not_equal
        lod_rank_table max_sequence_len lod_tensor_to_array array_to_lod_tensor split_lod_tensor
        merge_lod_tensor shrink_memory reorder_lod_tensor_by_rank Print is_empty
    """,
    "io": """
        data open_files read_file shuffle batch double_buffer random_data_generator py_reader
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
