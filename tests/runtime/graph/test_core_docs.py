# SPDX-License-Identifier: Apache-2.0
"""docs/training-core.md lists every operator, and its first example runs as it is written."""

from __future__ import annotations

import re
import runpy
from pathlib import Path

import numpy as np

import paddle.ops  # noqa: F401 (fills the table)
from paddle.ops.base.registry import lookup, registered

_PAGE = Path(__file__).parents[3] / "docs" / "training-core.md"


def test_every_operator_is_listed_once_at_its_folder() -> None:
    listed = [
        (folder, name)
        for folder, row in re.findall(r"^\| ops/(\w+) \| ([a-z0-9_, ]+) \|$", _PAGE.read_text(), re.MULTILINE)
        for name in row.split(", ")
    ]
    homes = {op: lookup(op).kernel.__module__ for op in registered() if not op.endswith("_grad")}
    # Those that open files for Fluid's programs are not among the families.
    assert sorted(listed) == sorted(
        (home.split(".")[2], op) for op, home in homes.items() if home.startswith("paddle.ops.")
    )


def test_the_first_example_runs(tmp_path: Path) -> None:
    example = re.search(r"```python\n(.*?)```", _PAGE.read_text(), re.DOTALL)
    assert example
    rng = np.random.default_rng(0)
    xs, ys = rng.standard_normal((5, 13)).astype("float32"), rng.standard_normal((5, 1)).astype("float32")
    (tmp_path / "example.py").write_text(example.group(1))
    names = runpy.run_path(str(tmp_path / "example.py"), {"numpy": np, "xs": xs, "ys": ys})
    np.testing.assert_allclose(names["cost"], [(ys**2).sum()], rtol=1e-6)
    np.testing.assert_allclose(names["dw"], -2 * xs.T @ ys, rtol=1e-5)
