# SPDX-License-Identifier: Apache-2.0
"""Names that are not here: what the original had, what to use instead, and the nearest name for a misspelt one."""

from __future__ import annotations

import importlib
import re
from pathlib import Path
from typing import Any

import pytest

import paddle.fluid as fluid
from paddle.fluid.errors import ABSENT, NEWER

DOCS = Path(__file__).resolve().parents[4] / "docs"
TABLE = Path(__file__).resolve().parents[4].parent / "shared" / "spec" / "fluid_names.tsv"


def lookup(dotted: str) -> Any:
    """Return what a script gets by a name of the table."""
    first, *rest = dotted.removeprefix("paddle.").split(".")
    found = importlib.import_module(f"paddle.{first}")
    for part in rest:
        found = getattr(found, part)
    return found


def missing(dotted: str) -> str | None:
    """Return why a name is not here; None if it is."""
    try:
        lookup(dotted)
    except AttributeError as error:
        return str(error)
    return None


@pytest.mark.skipif(not TABLE.exists(), reason="the table of the original's names is not here")
def test_every_name_of_the_original_is_here_or_left_out_with_a_reason() -> None:
    lines = TABLE.read_text(encoding="utf-8").splitlines()
    names = [line.split("\t")[0] for line in lines if line and not line.startswith("#")]
    assert len(names) > 600
    absent = {name: why for name in names if (why := missing(name)) is not None}
    # Python itself answers for what a class lacks.
    assert [name for name in absent if ABSENT.keys().isdisjoint(name.split("."))] == []
    bare = [
        name
        for name, why in absent.items()
        if "not available; " not in why and not isinstance(found_or_none(name.rpartition(".")[0]), type)
    ]
    assert bare == []


def found_or_none(dotted: str) -> Any:
    return None if missing(dotted) else lookup(dotted)


def test_what_is_left_out_stands_on_a_page_with_the_reason() -> None:
    pages = "".join((DOCS / name).read_text(encoding="utf-8") for name in ("fluid.md", "inside-fluid.md"))
    parts_of_detection = {name for name, why in ABSENT.items() if "detection" in why}
    assert [name for name in ABSENT.keys() - parts_of_detection if name not in pages] == []


def test_no_name_of_the_table_is_here() -> None:
    modules = [fluid, fluid.layers, fluid.io, fluid.optimizer, fluid.metrics, fluid.Executor]
    assert [name for name in ABSENT for each in modules if hasattr(each, name)] == []


def test_a_name_that_is_not_here_says_what_to_use() -> None:
    with pytest.raises(
        AttributeError, match=r"paddle.fluid.dygraph of Fluid 1.5 is not available; only static programs"
    ):
        _ = fluid.dygraph
    assert not hasattr(fluid, "dygraph")


def test_an_import_of_such_a_name_says_it_too() -> None:
    with pytest.raises(ImportError, match=r"paddle.fluid.dygraph .*not available"):
        exec("from paddle.fluid import dygraph")


@pytest.mark.parametrize(
    ("use", "told"),
    [
        (lambda: fluid.layers.while_loop, "Fluid 1.6 .*layers.While"),
        (lambda: fluid.layers.cond, "layers.IfElse"),
        (lambda: fluid.optimizer.RecomputeOptimizer, "the optimizer that it wraps"),
        (lambda: fluid.save, "save_persistables"),
        (lambda: importlib.import_module("paddle.fluid.dygraph.nn"), "static programs"),
        (lambda: importlib.import_module("paddle.nn"), r"paddle.fluid or paddle.v2.*2\.0"),
        (lambda: importlib.import_module("paddle").enable_static, r"no PaddlePaddle 2\.0 API"),
    ],
)
def test_a_name_of_a_later_version_is_answered_with_its_replacement(use: Any, told: str) -> None:
    with pytest.raises((AttributeError, ImportError), match=told):
        use()


def test_what_is_recommended_exists() -> None:
    for name, instead in NEWER.items():
        for dotted in re.findall(r"\b(?:layers|contrib|fluid)(?:\.\w+)+", instead):
            assert missing("paddle.fluid." + dotted.removeprefix("fluid.")) is None, (name, dotted)


def test_a_misspelt_layer_is_answered_with_the_nearest() -> None:
    with pytest.raises(AttributeError, match="did you mean 'embedding'"):
        _ = fluid.layers.embeding


@pytest.mark.parametrize("module", ["nn", "tensor", "io", "control_flow", "ops", "metric_op"])
def test_modules_of_layers_have_what_other_modules_of_layers_have(module: str) -> None:
    found = importlib.import_module(f"paddle.fluid.layers.{module}")
    for name in ("concat", "fc", "data", "While", "sigmoid", "accuracy", "assign"):
        assert getattr(found, name) is getattr(fluid.layers, name)


@pytest.mark.parametrize(
    ("module", "name"),
    [
        ("slim.core", "Compressor"),
        ("slim.quantization", "QuantizationTransformPass"),
        ("quantize.quantize_transpiler", "QuantizeTranspiler"),
    ],
)
def test_a_name_that_is_left_out_is_explained_in_its_own_module_too(module: str, name: str) -> None:
    with pytest.raises(ImportError, match=f"{name} .* is not available; .* not supported"):
        exec(f"from paddle.fluid.contrib.{module} import {name}")
