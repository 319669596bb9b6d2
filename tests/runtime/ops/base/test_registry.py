# SPDX-License-Identifier: Apache-2.0
"""The table of operators is consistent with itself, and dtypes and devices are read strictly."""

from __future__ import annotations

import shutil
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

import paddle.ops
from paddle.backend import Device, DeviceError, array_module, from_host, to_host
from paddle.ops.base.dtypes import VarType
from paddle.ops.base.errors import OpError
from paddle.ops.base.registry import lookup, operator, registered


def test_gradients_read_and_write_slots_of_their_operator() -> None:
    for op_type in registered():
        rule = lookup(op_type).gradient
        if not isinstance(rule, str):
            continue
        forward, backward = lookup(op_type), lookup(rule)
        inputs, outputs = ({slot.name for slot in slots} for slots in (forward.inputs, forward.outputs))
        read = {slot.name for slot in backward.inputs}
        assert read <= inputs | outputs | {f"{name}@GRAD" for name in outputs}, op_type
        assert {slot.name for slot in backward.outputs} <= {f"{name}@GRAD" for name in inputs}, op_type


def test_every_operator_that_only_computes_and_is_no_gradient_infers_its_outputs() -> None:
    # How many outputs split_ids has is for its caller to say.
    free = {"body", "names"}
    plain = [op for op in registered() if not op.endswith("_grad") and free.isdisjoint(lookup(op).keywords)]
    without = [op for op in plain if lookup(op).infer is None and not lookup(op).has_effect]
    assert without == []


def test_operators_are_found_in_a_zip_file_where_plain_forms_do_the_work(tmp_path: Path) -> None:
    archive = shutil.make_archive(str(tmp_path / "runtime"), "zip", Path(paddle.ops.__file__).parents[2])
    script = (
        "import paddle.ops; from paddle.ops.base.registry import registered; "
        "from paddle.ops.base.kernels import KERNELS; "
        "print(paddle.ops.__file__, len(registered()), KERNELS.loaded)"
    )
    done = subprocess.run(
        [sys.executable, "-P", "-c", script],
        env={"PYTHONPATH": archive},
        capture_output=True,
        text=True,
        timeout=60,
        check=True,
    )
    place, count, compiled = done.stdout.split()
    assert place.startswith(archive)
    # Those that open files for Fluid's programs are not among the families.
    families = [op for op in registered() if lookup(op).kernel.__module__.startswith("paddle.ops.")]
    assert (int(count), compiled) == (len(families), "None")


def test_a_type_is_registered_once() -> None:
    with pytest.raises(OpError, match="'relu' is registered twice"):
        operator("relu", "X -> Out")(lambda x: x)


def test_a_kernel_cannot_name_an_attribute_it_does_not_have() -> None:
    def kernel(x: object, *, strenght: float) -> object:
        return x, strenght

    with pytest.raises(OpError, match="strenght"):
        operator("unheard_of", "X -> Out", attrs={"strength": 1.0})(kernel)
    assert "unheard_of" not in registered()


@pytest.mark.parametrize("dtype", ["float32", np.float32, np.dtype("float32"), 5, VarType.FP32])
def test_dtypes_go_by_number_name_or_numpy_type(dtype: object) -> None:
    assert VarType.of(dtype) is VarType.FP32
    assert VarType.of(dtype).numpy == np.float32


@pytest.mark.parametrize("dtype", ["complex64", 99, "no such type"])
def test_other_dtypes_are_refused(dtype: object) -> None:
    with pytest.raises(ValueError, match=r"dtype|VarType"):
        VarType.of(dtype)


def test_devices_are_named_strictly() -> None:
    assert not Device("cpu").is_gpu
    assert Device("gpu:3").index == 3
    for name in ("gpu", "cuda:0", "gpu:-1", ""):
        with pytest.raises(DeviceError, match="'cpu' or 'gpu:<index>'"):
            Device(name)


def test_host_arrays_stay_where_they_are_on_the_processor() -> None:
    value = np.zeros(2)
    assert array_module(value) is np
    assert from_host(value, Device("cpu")) is value
    assert to_host(value) is value
