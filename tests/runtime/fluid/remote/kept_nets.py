# SPDX-License-Identifier: Apache-2.0
"""Nets whose servers are killed, and such a server as a process: `kept_nets.py PARENT NET ENDPOINT TRAINERS`."""

from __future__ import annotations

import ctypes
import os
import sys
from collections.abc import Callable, Mapping
from types import MappingProxyType
from typing import Any

import paddle.fluid as fluid
from tests.runtime.fluid.transpiled_job import TranspiledJob

HEIGHT = 40


def rows() -> Any:
    """Gradients of some rows, and of all else; two rules with states, and a rate that falls."""
    return _with_table(is_distributed=False)


def clipped() -> Any:
    """The same, whose gradients are clipped by the norm of all: each step takes two requests of a trainer."""
    return _with_table(is_distributed=False, norm=0.05)


def table() -> Any:
    """A table that grows."""
    return _with_table(is_distributed=True)


def own_table() -> Any:
    """A table that grows, with two arrays of a rule for each row."""
    return _with_table(is_distributed=True, has_rule=True)


def count() -> Any:
    """Each step takes 1 off every element of "w", whatever it is."""
    x = fluid.layers.data("x", [3])
    attr = fluid.ParamAttr("w", fluid.initializer.Constant(0.0))
    loss = fluid.layers.mean(fluid.layers.fc(x, 1, param_attr=attr, bias_attr=False))
    fluid.optimizer.SGD(1.0).minimize(loss)
    return loss


def _with_table(is_distributed: bool, norm: float = 0.0, has_rule: bool = False) -> Any:
    ids, y = fluid.layers.data("ids", [1], dtype="int64"), fluid.layers.data("y", [1])
    attr = fluid.ParamAttr("table", fluid.initializer.Uniform(-0.1, 0.1, seed=5))
    found = fluid.layers.embedding(ids, [HEIGHT, 4], True, is_distributed, param_attr=attr)
    guess = fluid.layers.fc(fluid.layers.fc(found, 8, act="tanh"), 1)
    loss = fluid.layers.mean(fluid.layers.square_error_cost(guess, y))
    rate = fluid.layers.exponential_decay(0.1, 4, 0.8)
    is_plain = is_distributed and not has_rule
    rule = fluid.optimizer.SGD(rate) if is_plain else fluid.optimizer.Adam(rate)
    if norm:
        fluid.clip.set_gradient_clip(fluid.clip.GradientClipByGlobalNorm(norm))
    rule.minimize(loss)
    return loss


NETS: Mapping[str, Callable[[], Any]] = MappingProxyType(
    {"rows": rows, "clipped": clipped, "table": table, "own_table": own_table, "count": count}
)


def job(net: str, trainers: int, endpoint: str = "") -> TranspiledJob:
    """Return a job with one server; that of "count" is asynchronous."""
    endpoints = [endpoint] if endpoint else []
    config = fluid.DistributeTranspilerConfig(table_rule="own" if net == "own_table" else "sgd")
    return TranspiledJob(
        NETS[net], trainers, servers=1, sync=net != "count", config=config, endpoints=endpoints
    )


def main(parent: str, net: str, endpoint: str, trainers: str) -> None:
    if parent:
        ctypes.CDLL(None).prctl(1, 9)  # dies with the test runner, however that ends
        if os.getppid() != int(parent):
            sys.exit("the test runner is gone")
    job(net, int(trainers), endpoint).serve(endpoint)


if __name__ == "__main__":
    main(*sys.argv[1:])
