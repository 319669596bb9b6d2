# SPDX-License-Identifier: Apache-2.0
"""What the book's scripts write works as it stands in them."""

from __future__ import annotations

import math
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

import paddle
import paddle.fluid as fluid


def test_the_package_alone_has_batches_readers_and_data_sets() -> None:
    script = (
        "import sys, paddle\n"
        "assert 'numpy' not in sys.modules\n"
        "read = paddle.batch(paddle.reader.shuffle(lambda: iter(range(5)), 5), 2, drop_last=True)\n"
        "print(sorted(map(len, read())), paddle.dataset.uci_housing.train, paddle.fluid.Program)\n"
    )
    runtime = str(Path(paddle.__file__).parent.parent)
    ran = subprocess.run(
        [sys.executable, "-c", script],
        env={"PYTHONPATH": runtime},
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert ran.stdout.startswith("[2, 2] <function train"), ran.stderr


def test_a_fetched_loss_converts_to_a_number_though_it_has_shape_1() -> None:
    x = fluid.layers.data("x", [2])
    loss = fluid.layers.mean(x)
    exe = fluid.Executor(fluid.CPUPlace())
    one, many = exe.run(feed={"x": np.array([[1, 3]], np.float32)}, fetch_list=[loss, x])
    assert one.shape == (1,)
    assert (float(one), int(one), math.isnan(one), f"{one}") == (2.0, 2, False, "[2.]")
    assert repr([one]) == "[array([2.], dtype=float32)]"
    with pytest.raises((TypeError, ValueError)):
        float(many)
