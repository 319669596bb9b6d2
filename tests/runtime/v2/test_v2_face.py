# SPDX-License-Identifier: Apache-2.0
"""The package as a whole: what its documentation lists, and what importing it costs."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import pytest

import paddle.v2 as paddle

ROOT = Path(__file__).resolve().parents[3]


def names() -> list[str]:
    found = [name.removesuffix("_projection") for name in paddle.layer.__all__ if name != "LayerOutput"]
    return [*found, *paddle.optimizer.__all__[:-1], *paddle.__all__]


@pytest.mark.parametrize(
    "name", sorted(set(names()) - {"Optimizer", "regularization", "minibatch", "settings"})
)
def test_every_public_name_is_documented(name: str) -> None:
    assert re.search(rf"\b{name}\b", (ROOT / "docs" / "v2-api.md").read_text(encoding="utf-8"))


ORIGINAL = """optimizer layer activation parameters init trainer event data_type attr pooling dataset reader topology
    networks evaluator minibatch inference op infer batch"""


def test_the_names_of_the_original_package_are_there() -> None:
    assert [name for name in ORIGINAL.split() if not hasattr(paddle, name)] == []


def test_local_training_needs_no_zmq() -> None:
    script = "import sys, paddle.v2.trainer; sys.exit('zmq' in sys.modules or 'cupy' in sys.modules)"
    subprocess.run(
        [sys.executable, "-c", script], check=True, timeout=60, env={"PYTHONPATH": str(ROOT / "runtime")}
    )
