# SPDX-License-Identifier: Apache-2.0
"""Convolutions without columns agree with those by columns, whatever the window, and with themselves on any threads."""

from __future__ import annotations

import os
from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest

from paddle.ops.base.threads import COMPUTE, ComputeThreads
from paddle.ops.conv import direct, im2col
from paddle.ops.conv.window import Window, window_of

_RNG = np.random.default_rng(7)
# images, channels, size, filters, kernel, strides, paddings, dilations
_CASES = {
    "as in ResNet": (5, 16, (32, 32), 24, (3, 3), (1, 1), (1, 1), (1, 1)),
    "strides": (6, 16, (33, 32), 24, (3, 3), (2, 2), (1, 1), (1, 1)),
    "strides of their own": (6, 9, (40, 31), 17, (4, 3), (3, 2), (2, 0), (1, 1)),
    "more stride than kernel": (20, 40, (32, 33), 40, (1, 1), (2, 3), (0, 0), (1, 1)),
    "dilated": (5, 7, (37, 41), 19, (3, 5), (1, 1), (2, 3), (2, 1)),
    "dilated with strides": (9, 8, (37, 41), 23, (3, 3), (2, 1), (2, 2), (3, 2)),
    "more padding than kernel": (5, 12, (30, 31), 18, (2, 1), (1, 1), (3, 2), (1, 1)),
    "no padding": (7, 1, (28, 28), 50, (5, 5), (1, 1), (0, 0), (1, 1)),
    "small images, many filters": (9, 70, (4, 5), 260, (3, 3), (1, 1), (1, 1), (1, 1)),
    "a window over the edge": (40, 32, (9, 9), 32, (5, 5), (3, 3), (0, 0), (1, 1)),
}


@pytest.fixture(autouse=True)
def _threads() -> Iterator[None]:
    yield
    COMPUTE.resize(None)


def _arrays(name: str) -> tuple[Any, Any, Any, Window]:
    images, channels, size, count, kernel, strides, paddings, dilations = _CASES[name]
    window = window_of(kernel, strides, paddings, dilations)
    filters = _RNG.standard_normal((count, channels, *window.kernel), np.float32)
    dout = _RNG.standard_normal((images, count, *window.places(size)), np.float32)
    return _RNG.standard_normal((images, channels, *size), np.float32), filters, dout, window


def _products(form: Any, x: Any, filters: Any, dout: Any, window: Window, groups: int = 1) -> tuple[Any, ...]:
    return (
        form.convolve(x, filters, window, groups),
        form.image_gradient(filters, dout, x.shape[2:], window, groups),
        form.filter_gradient(x, dout, filters, window, groups),
    )


@pytest.mark.parametrize("name", _CASES)
def test_both_forms_agree_and_threads_change_no_bit(name: str) -> None:
    x, filters, dout, window = _arrays(name)
    COMPUTE.resize(1)
    found = _products(direct, x, filters, dout, window)
    COMPUTE.resize(3)
    again = _products(direct, x, filters, dout, window)
    for one, several in zip(found, again, strict=True):
        np.testing.assert_array_equal(one, several)
    exact = _products(im2col, x.astype(float), filters.astype(float), dout.astype(float), window)
    for one, right in zip(found, exact, strict=True):
        assert one.dtype == np.float32
        assert one.flags.c_contiguous
        np.testing.assert_allclose(one, right, rtol=0, atol=4e-6 * np.abs(right).max())


def _unaligned(array: Any) -> Any:
    copy = np.zeros(array.nbytes + 1, np.uint8)[1:].view(array.dtype).reshape(array.shape)
    copy[...] = array
    return copy


def test_what_the_direct_form_does_not_serve_goes_by_columns() -> None:
    x, filters, dout, window = _arrays("as in ResNet")
    wide = x.astype(float), filters.astype(float), dout.astype(float)
    grouped = x, np.ascontiguousarray(filters[:, :8]), dout
    unaligned = tuple(map(_unaligned, (x, filters, dout)))
    assert not any(array.flags.aligned for array in unaligned)
    for (a, b, c), groups in ((wide, 1), (grouped, 2), (unaligned, 1)):
        for one, other in zip(
            _products(direct, a, b, c, window, groups),
            _products(im2col, a, b, c, window, groups),
            strict=True,
        ):
            np.testing.assert_array_equal(one, other)


def test_a_forked_child_convolves_on_threads_of_its_own() -> None:
    x, filters, _, window = _arrays("as in ResNet")
    COMPUTE.resize(2)
    here = direct.convolve(x, filters, window, 1)
    child = os.fork()
    if not child:
        os._exit(0 if np.array_equal(direct.convolve(x, filters, window, 1), here) else 1)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0


def test_an_operator_within_an_operators_work_does_all_of_it_itself() -> None:
    threads, found = ComputeThreads(2), []
    threads.run(lambda outer: threads.run(lambda inner: found.append((outer, inner)), 3), 2)
    threads.resize(1)
    assert sorted(found) == [(outer, inner) for outer in range(2) for inner in range(3)]


def test_what_goes_wrong_in_a_piece_is_told_to_who_asked() -> None:
    def work(piece: int) -> None:
        if piece == 3:
            raise ArithmeticError

    threads = ComputeThreads(2)
    with pytest.raises(ArithmeticError):
        threads.run(work, 8)
    threads.resize(1)
