# SPDX-License-Identifier: Apache-2.0
"""Operators are loaded when they are named: alone, with their gradients, and all of them."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import paddle.ops
from paddle.ops.base import families
from paddle.ops.base.registry import lookup, registered

PROGRAM = """
import sys
from paddle.ops.base.registry import find, lookup, registered
def loaded():
    return sum(name.startswith("paddle.ops.") and name.count(".") == 3 for name in sys.modules)
before = loaded()
assert lookup("relu").gradient == "relu_grad" and lookup("relu_grad") and find("sgd")
named = loaded()
assert find("no_such_operator") is None
print(before, named, len(registered()), loaded())
"""


def test_the_modules_of_an_operator_and_of_its_gradient_come_before_all_others() -> None:
    for op_type in registered():
        found, asked = lookup(op_type), set[str]()
        for stage in families.stages(op_type):
            asked |= set(stage)
            if found.kernel.__module__ in stage:
                break
        else:
            continue  # registered outside of all families
        rule = lookup(found.gradient).kernel if isinstance(found.gradient, str) else found.gradient
        assert rule is None or rule.__module__ not in families.modules() or rule.__module__ in asked, op_type


def test_a_program_loads_the_families_of_what_it_names() -> None:
    command, runtime = [sys.executable, "-P", "-c", PROGRAM], str(Path(paddle.ops.__file__).parents[2])
    done = subprocess.run(
        command, env={"PYTHONPATH": runtime}, capture_output=True, text=True, check=True, timeout=60
    )
    before, named, count, all_of_them = map(int, done.stdout.split())
    assert before < named < all_of_them / 4
    in_families = [each for each in registered() if lookup(each).kernel.__module__.startswith("paddle.ops.")]
    assert count == len(in_families)  # this process may have loaded those of readers, files and tests too
