# SPDX-License-Identifier: Apache-2.0
"""Names that are not here: what the original had, what to use instead, and the nearest name for a misspelt one."""

from __future__ import annotations

import importlib
from pathlib import Path
from typing import Any

import pytest

import paddle.fluid as fluid
from paddle.fluid.errors import ABSENT

TABLE = Path(__file__).resolve().parents[4].parent / "shared" / "spec" / "fluid_names.tsv"


def lookup(dotted: str) -> Any:
    found: Any = fluid
    for part in dotted.split(".")[1:]:
        found = getattr(found, part)
    return found


def found_or_none(dotted: str) -> Any:
    try:
        return lookup(dotted)
    except AttributeError:
        return None


def public_names() -> list[str]:
    if not TABLE.exists():
        return []
    lines = TABLE.read_text(encoding="utf-8").splitlines()
    return [line.split("\t")[0] for line in lines if line.startswith("fluid.")]


@pytest.mark.skipif(not TABLE.exists(), reason="the table of the original's names is not here")
def test_every_name_of_the_original_is_here_or_answered_from_the_table() -> None:
    bare = []
    for name in public_names():
        module, _, _ = name.rpartition(".")
        if isinstance(found_or_none(module), type):
            continue  # what a class lacks, Python itself answers
        try:
            lookup(name)
        except AttributeError as error:
            if "not available: " not in str(error):
                bare.append(name)
    assert bare == []


def test_no_name_of_the_table_is_here() -> None:
    modules = [fluid, fluid.layers, fluid.io, fluid.optimizer, fluid.metrics, fluid.Executor]
    assert [name for name in ABSENT for each in modules if hasattr(each, name)] == []


def test_a_name_that_is_not_here_says_what_to_use() -> None:
    with pytest.raises(
        AttributeError, match=r"^not available: paddle.fluid.dygraph of Fluid 1.5; only static programs"
    ):
        _ = fluid.dygraph
    assert not hasattr(fluid, "dygraph")


def test_an_import_of_such_a_name_says_it_too() -> None:
    with pytest.raises(ImportError, match=r"^not available: paddle.fluid.dygraph of Fluid 1.5"):
        exec("from paddle.fluid import dygraph")


def test_a_misspelt_layer_is_answered_with_the_nearest() -> None:
    with pytest.raises(AttributeError, match="did you mean 'embedding'"):
        _ = fluid.layers.embeding


@pytest.mark.parametrize("module", ["nn", "tensor", "io", "control_flow", "ops", "metric_op"])
def test_modules_of_layers_have_what_other_modules_of_layers_have(module: str) -> None:
    found = importlib.import_module(f"paddle.fluid.layers.{module}")
    for name in ("concat", "fc", "data", "While", "sigmoid", "accuracy", "assign"):
        assert getattr(found, name) is getattr(fluid.layers, name)
