# SPDX-License-Identifier: Apache-2.0
"""warpctc: the connectionist temporal classification (CTC) cost of unaligned labels; ctc_align: best-path decoding.

Source: Graves et al., 2006. All sequences are processed together, step by step. Sums of probabilities are stored as
logarithms in float64. The states of the labels "c a a" are shown below. A state is reached from itself, from the
previous state, and from the one before that if its label is not the blank and differs (1 -> 3, but not 3 -> 5):

    state    0   1   2   3   4   5   6
    label    -   c   -   a   -   a   -
"""

from __future__ import annotations

from typing import Any

import numpy as np

from paddle.backend import Array, from_host, to_host
from paddle.kernels.library import Kernels, address
from paddle.ops.base import kernels
from paddle.ops.base.errors import InputError, ShapeError
from paddle.ops.base.lod import LoDArray, ends_of, sequences
from paddle.ops.base.registry import Spec, gradient, operator
from paddle.ops.base.segments import lengths, owners, positions, require_within, spread
from paddle_node.contract.classes import NamedTuple

KERNELS = Kernels(ctc="pnpppnnppp:i")
_NEVER = -np.inf
_ATTRS = {"blank": 0, "norm_by_times": False}


class _Boxes(NamedTuple):
    """Inputs of the recursion for n sequences, of at most T steps and S = 2 L + 1 states.

    Attributes:
        logs: (n, T, S) log probabilities of each state's label.
        states: (n, S) label of each state: blank, first label, blank, second label, ..., blank.
        skips: (n, S) whether a state may follow the one two before it, because its label is different.
        times: (n,) numbers of steps.
        ends: (n,) numbers of states.
    """

    logs: Any
    states: Any
    skips: Any
    times: Any
    ends: Any


def _infer(logits: Spec, label: Spec, *, blank: int) -> tuple[Spec, Spec]:
    if len(logits.shape) != 2 or not 0 <= blank < logits.shape[1]:
        raise ShapeError(
            f"expected Logits (rows, classes) and blank among the classes, got {logits.shape} and {blank}"
        )
    return Spec(logits.shape, logits.dtype), Spec((-1, 1), logits.dtype)


@operator("warpctc", "Logits+ Label+ -> WarpCTCGrad~ Loss", attrs=_ATTRS, infer=_infer)
def warpctc(logits: Any, label: Any, *, blank: int) -> tuple[Array, Array]:
    """Return the gradient of Logits for dLoss = 1, and the CTC costs (n, 1): -ln of each label sequence's probability.

    Labels that do not fit into their sequence, which needs one step per label and one between equal neighbors, have
    zero cost and no gradient, as in Paddle.

    Args:
        logits: (rows, classes), before softmax.
        label: (labels, 1) integers, without blanks.

    Raises:
        InputError: the numbers of label sequences and of sequences differ, or a label is not a class.
    """
    rows, offsets = sequences(logits, "Logits")
    labels, label_offsets = sequences(label, "Label")
    if (compiled := _compiled(rows, offsets, labels, label_offsets, blank)) is not None:
        return compiled
    data = to_host(rows).astype(np.float64)
    logs = data - _log_sum(data)
    boxes = _boxes(logs, offsets, to_host(labels).reshape(-1), label_offsets, blank)
    ahead, cost = _forward(boxes)
    back = _backward(boxes)
    # The probability of passing through a state at a time, given the labels; impossible labels have no gradient.
    with np.errstate(invalid="ignore"):
        passing = np.exp(ahead + back - boxes.logs + cost[:, None, None])
    passing = np.where(np.isfinite(passing), passing, 0.0)
    at = owners(offsets), positions(offsets)
    expected = np.zeros_like(data)
    picked = passing[at]
    for state in range(picked.shape[1]):
        expected[np.arange(len(data)), boxes.states[at[0], state]] += picked[:, state]
    found = np.where(np.isfinite(spread(cost, offsets))[:, None], np.exp(logs) - expected, 0.0)
    cost = np.where(_fits(boxes), cost, 0.0)
    return from_host(found.astype(rows.dtype), rows), from_host(cost.astype(rows.dtype)[:, None], rows)


def _compiled(
    rows: Array, offsets: Array, labels: Array, label_offsets: Array, blank: int
) -> tuple[Array, Array] | None:
    """Return the result of `warpctc`, accurate to about 1e-6, from the loop of `kernels/ctc.c`, or None.

    The loop stores probabilities instead of logarithms. None means that these are too small, or not finite, or that
    there is no compiled loop for the arrays: use the plain form.
    """
    count, numbers = len(offsets) - 1, labels.reshape(-1)
    if KERNELS.loaded is None or not kernels.are_served(rows) or count != len(label_offsets) - 1:
        return None
    if not len(rows) or ((numbers < 0) | (numbers >= rows.shape[1]) | (numbers == blank)).any():
        return None
    starts, ends = (np.ascontiguousarray(each, np.int64) for each in (offsets, label_offsets))
    numbers = np.ascontiguousarray(numbers, np.int64)
    times, states = lengths(starts), 2 * lengths(ends) + 1
    if starts[0] or starts[-1] != len(rows) or ends[0] or ends[-1] != len(numbers):
        return None
    if times.min() < 0 or states.min() < 1:
        return None
    room = np.empty(int((2 * (times + 1) * states).max()), np.float64)
    found, cost = np.empty_like(rows), np.empty((count, 1), rows.dtype)
    done = KERNELS.loaded.ctc(
        address(rows, rows.dtype),
        rows.shape[1],
        address(starts, starts.dtype),
        address(numbers, starts.dtype),
        address(ends, starts.dtype),
        count,
        blank,
        address(room, room.dtype),
        address(found, rows.dtype),
        address(cost, rows.dtype),
    )
    return (found, cost) if done else None


@gradient("warpctc", "Logits+ WarpCTCGrad Loss@GRAD -> Logits@GRAD")
def warpctc_grad(logits: Any, found: Array, dloss: Array, *, norm_by_times: bool) -> Array:
    """Return dLogits: WarpCTCGrad times dLoss of the sequence, divided by the sequence's length if norm_by_times."""
    _, offsets = sequences(logits, "Logits")
    share = dloss.reshape(-1, 1)
    if norm_by_times:
        share = share / from_host(np.maximum(lengths(offsets), 1).astype(found.dtype)[:, None], found)
    return found * spread(share, offsets)


@operator("ctc_align", "Input+ -> Output+", infer="-> Input(-1, 1, lod=max(Input, 1))")
def ctc_align(x: Any, *, blank: int = 0, merge_repeated: bool = True) -> LoDArray:
    """Return each label sequence without blanks and, if merge_repeated, without repetitions of the previous label."""
    rows, offsets = sequences(x, "Input")
    labels = to_host(rows).reshape(-1)
    kept = labels != blank
    if merge_repeated:
        first = np.ones(len(labels), bool)
        first[1:] = labels[1:] != labels[:-1]
        first[offsets[:-1][lengths(offsets) > 0]] = True
        kept &= first
    counts = np.bincount(owners(offsets)[kept], minlength=len(offsets) - 1)
    return LoDArray(from_host(labels[kept][:, None], rows), (ends_of(counts),))


def _boxes(logs: Any, offsets: Any, labels: Any, label_offsets: Any, blank: int) -> _Boxes:
    times, counts = lengths(offsets), lengths(label_offsets)
    if len(times) != len(counts):
        raise InputError(f"Logits has {len(times)} sequences, but Label has {len(counts)}")
    require_within(labels, logs.shape[1], "Label")
    ends = 2 * counts + 1
    states = np.full((len(times), int(ends.max(initial=1))), blank)
    states[owners(label_offsets), 2 * positions(label_offsets) + 1] = labels
    skips = np.zeros(states.shape, bool)
    skips[:, 2:] = (states[:, 2:] != blank) & (states[:, 2:] != states[:, :-2])
    box = np.zeros((len(times), int(times.max(initial=0)), states.shape[1]))
    at = owners(offsets), positions(offsets)
    box[at] = np.take_along_axis(logs, states[at[0]], axis=1)
    return _Boxes(box, states, skips, times, ends)


def _fits(boxes: _Boxes) -> Any:
    """Return whether each sequence has enough steps for its labels, (n,)."""
    labels = boxes.states[:, 1::2]
    counts = boxes.ends // 2
    again = (labels[:, 1:] == labels[:, :-1]) & (np.arange(1, labels.shape[1]) < counts[:, None])
    return counts + again.sum(axis=1) <= boxes.times


def _forward(boxes: _Boxes) -> tuple[Any, Any]:
    """Return log probabilities of reaching each state at each time (n, T, S), and the costs (n,)."""
    ahead = np.full_like(boxes.logs, _NEVER)
    count, steps, states = ahead.shape
    final = np.full(count, _NEVER)
    now = np.full((count, states), _NEVER)
    now[:, 0] = 0.0  # before the first step, so that its first two states can be reached
    for step in range(steps):
        now = _arrived(now, boxes.skips, first=step == 0) + boxes.logs[:, step]
        ahead[:, step] = now
        last = boxes.times == step + 1
        final[last] = _at_ends(now[last], boxes.ends[last])
    # Without any steps, only the empty labeling is possible.
    final[(boxes.times == 0) & (boxes.ends == 1)] = 0.0
    return ahead, -final


def _backward(boxes: _Boxes) -> Any:
    """Return log probabilities of completing from each state at each time, its own label included (n, T, S)."""
    back = np.full_like(boxes.logs, _NEVER)
    count, steps, states = back.shape
    places = np.arange(states)
    last = (places == boxes.ends[:, None] - 1) | (places == boxes.ends[:, None] - 2)
    skips = np.zeros_like(boxes.skips)
    skips[:, :-2] = boxes.skips[:, 2:]
    now = np.full((count, states), _NEVER)
    for step in reversed(range(steps)):
        going = _arrived(now[:, ::-1], skips[:, ::-1], first=False)[:, ::-1]
        begins = (boxes.times == step + 1)[:, None]
        now = np.where(begins, np.where(last, 0.0, _NEVER), going) + boxes.logs[:, step]
        back[:, step] = now
    return back


def _arrived(before: Any, skips: Any, *, first: bool) -> Any:
    """Return log probabilities of reaching each state from itself, the previous one, or the one before that."""
    one = np.full_like(before, _NEVER)
    one[:, 1:] = before[:, :-1]
    total = np.logaddexp(before, one)
    if first:
        return total
    two = np.full_like(before, _NEVER)
    two[:, 2:] = before[:, :-2]
    return np.where(skips, np.logaddexp(total, two), total)


def _at_ends(now: Any, ends: Any) -> Any:
    rows = np.arange(len(now))
    before = np.where(ends > 1, now[rows, np.maximum(ends - 2, 0)], _NEVER)
    return np.logaddexp(now[rows, ends - 1], before)


def _log_sum(rows: Any) -> Any:
    greatest = rows.max(axis=1, keepdims=True)
    return greatest + np.log(np.exp(rows - greatest).sum(axis=1, keepdims=True))
