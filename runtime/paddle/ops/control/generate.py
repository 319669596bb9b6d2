# SPDX-License-Identifier: Apache-2.0
"""generate: a beam search for the most probable sentences, which a body generates word by word.

A path ends with the end word, or at the maximum length. A sample's search ends when the requested number of paths has
ended with better scores than any path that still continues.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from paddle.backend import Array, array_module, from_host, to_host
from paddle.ops.base.body import Body
from paddle.ops.base.errors import InputError
from paddle.ops.base.lod import plain
from paddle.ops.base.registry import operator
from paddle.ops.base.segments import as_before, count_of, taken
from paddle_node.contract.classes import dataclass, field

_ATTRS = {
    "sub_block": int,
    "word": str,
    "prob": str,
    "before": (),
    "after": (),
    "bos_id": int,
    "eos_id": int,
    "beam_size": int,
    "max_length": int,
    "num_results": int,
}
_FLOAT32, _INT64 = np.dtype("float32"), np.dtype("int64")


@dataclass
class _Sample:
    """The search for one sample: its active paths, best first, and its ended paths."""

    live: list[tuple[float, tuple[int, ...]]] = field(default_factory=lambda: [(0.0, ())])
    ended: list[tuple[float, tuple[int, ...]]] = field(default_factory=list)

    def advance(self, logs: Array, beam_size: int, eos_id: int, wanted: int) -> list[int]:
        """Extend by the best continuations; return, for each active path, the index of the path it continues.

        Args:
            logs: (paths, words) log probability of each word after each path.
            wanted: the number of ended paths that suffices, if they are better than all active ones.
        """
        scores = np.array([score for score, _ in self.live])[:, None] + logs
        best = np.argsort(-scores, axis=None, kind="stable")[:beam_size]
        before, parents = self.live, []
        self.live = []
        for path, word in zip(*np.divmod(best, scores.shape[1]), strict=True):
            found = float(scores[path, word]), (*before[path][1], int(word))
            if word == eos_id:
                self.ended.append(found)
            else:
                self.live.append(found)
                parents.append(int(path))
        self.ended = sorted(self.ended, key=lambda each: -each[0])[:wanted]
        enough = len(self.ended) == wanted
        if enough and (not self.live or self.live[0][0] <= self.ended[-1][0]):
            self.live, parents = [], []
        return parents


@operator(
    "generate",
    "Statics+*? States+*? Parameters+*? -> Prob Ids",
    attrs=_ATTRS,
    infer="-> float32(-1, num_results), int64(-1)",
    shares_lod=False,
)
def generate(
    statics: list[Any],
    first: list[Any],
    parameters: list[Any],
    *,
    word: str,
    prob: str,
    before: tuple[str, ...],
    after: tuple[str, ...],
    bos_id: int,
    eos_id: int,
    beam_size: int,
    max_length: int,
    num_results: int,
    body: Body,
    names: Mapping[str, Sequence[str]],
) -> tuple[Array, Array]:
    """Generate the most probable sentences; return log probabilities (samples, num_results), best first, and the words.

    The words of all results are one vector. With one result per sample, it holds only words; otherwise each result is
    its length, its words, and -1. A missing result has the log probability -inf and no words.
    """
    like = first[0] if first else statics[0]
    samples = [_Sample() for _ in range(count_of(like))]
    fixed = dict(zip(names["Parameters"], parameters, strict=True))
    owner, states = np.arange(len(samples)), list(first)
    for turn in range(max_length):
        if not len(owner):
            break
        last = [path[-1] if path else bos_id for sample in samples for _, path in sample.live]
        values = dict(fixed)
        values[word] = from_host(np.array(last, _INT64)[:, None], plain(like))
        values.update(zip(before, states, strict=True))
        values.update(
            (name, _taken(value, owner)) for name, value in zip(names["Statics"], statics, strict=True)
        )
        body.run(values, turn)
        with np.errstate(divide="ignore"):
            logs = np.log(to_host(plain(values[prob])).astype(np.float64))
        parents, start = [], 0
        for sample in samples:
            count = len(sample.live)
            if count:
                going = sample.advance(logs[start : start + count], beam_size, eos_id, num_results)
                parents += [start + path for path in going]
            start += count
        chosen = np.array(parents, _INT64)
        owner = owner[chosen]
        states = [
            _taken(as_before(values[name], values[one]), chosen)
            for name, one in zip(after, before, strict=True)
        ]
    results = [_best(sample, num_results) for sample in samples]
    xp = array_module(plain(like))
    scores = np.array([[score for score, _ in found] for found in results], _FLOAT32)
    return xp.asarray(scores.reshape(len(samples), num_results)), xp.asarray(_written(results, num_results))


def _best(sample: _Sample, wanted: int) -> list[tuple[float, tuple[int, ...]]]:
    """Return the best paths; unfinished ones are returned unchanged."""
    found = sorted([*sample.ended, *sample.live], key=lambda each: -each[0])[:wanted]
    return found + [(-np.inf, ())] * (wanted - len(found))


def _written(results: Sequence[Sequence[tuple[float, tuple[int, ...]]]], wanted: int) -> Array:
    paths = [path for found in results for _, path in found]
    if wanted == 1:
        return np.array([word for path in paths for word in path], _INT64)
    return np.array([number for path in paths for number in (len(path), *path, -1)], _INT64)


def _taken(value: Any, owner: Array) -> Any:
    """Return a row or sequence for each path, taken from its sample or from its predecessor."""
    if count_of(value) <= int(owner.max(initial=-1)):
        raise InputError(f"an input or state has {len(value)} rows; expected one per sample")
    return taken(value, owner)
