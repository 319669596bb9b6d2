# SPDX-License-Identifier: Apache-2.0
"""Operators are found: in a file that bears their name or their family's, or in a family of rows."""

from __future__ import annotations

import re
import sys

import pytest

import paddle.ops as ops
from paddle.ops.base.registry import lookup, registered

# families that are tables: an operator there is a row with its name
ROWS = ("activation.plain", "activation.bounded", "update.steps")


def words(text: str) -> set[str]:
    return set(re.findall("[a-z]+", text.lower()))


@pytest.mark.parametrize("op_type", [name for name in registered() if not name.endswith("_grad")])
def test_an_operator_lies_in_a_file_that_names_it_or_its_family(op_type: str) -> None:
    home = lookup(op_type).kernel.__module__
    path = home.removeprefix(f"{ops.__name__}.")
    said = words(f"{path.replace('_', ' ')} {sys.modules[home].__doc__}")
    assert path in ROWS or words(op_type.replace("_", " ")) & said
