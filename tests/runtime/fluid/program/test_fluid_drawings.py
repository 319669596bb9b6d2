# SPDX-License-Identifier: Apache-2.0
"""Programs as text and as graphs."""

from __future__ import annotations

import subprocess
import sys
from importlib import import_module
from pathlib import Path

import paddle.fluid as fluid
from paddle.fluid.program.drawing import draw_block_graphviz, draw_graph, pprint_program_codes


def built() -> fluid.Program:
    """Return the main program after building one layer and its gradient."""
    x = fluid.layers.data("x", [4])
    fluid.backward.append_backward(fluid.layers.mean(fluid.layers.fc(x, 2, bias_attr=False)))
    return fluid.default_main_program()


def test_a_program_is_printed_as_code_without_its_gradients() -> None:
    lines = pprint_program_codes(built().desc).splitlines()
    assert lines[0] == "# block 0 in -1"
    assert lines[1].endswith(" = mul(X=['x'], Y=['fc_0.w_0'])")
    assert not any("_grad(" in line for line in lines)


def test_a_block_is_drawn_with_its_edges_and_highlights(tmp_path: Path) -> None:
    file = tmp_path / "block.dot"
    draw_block_graphviz(built().global_block(), {"x"}, str(file))
    lines = file.read_text().splitlines()
    assert '"x" [shape=box, label="x (-1, 4) float32", color=red]' in lines
    assert {'"x" -> "op 0"', '"fc_0.w_0" -> "op 0"', '"op 0" -> "fc_0.tmp_0"'} <= set(lines)
    assert (lines[0], lines[-1]) == ("digraph G {", "}")


def test_both_programs_are_drawn_into_one_file(tmp_path: Path) -> None:
    file = tmp_path / "net.dot"
    main = built()
    text = draw_graph(fluid.default_startup_program(), main, filename=str(file))
    assert file.read_text() == text
    assert text.count("{") == text.count("}") == 3
    assert '"startup/op 0" -> "startup/fc_0.w_0"' in text
    assert import_module("paddle.fluid.net_drawer") is import_module("paddle.fluid.debugger")


def test_modules_of_other_names_are_attributes_without_an_import() -> None:
    names = "debugger.draw_block_graphviz", "net_drawer.draw_graph", "op.Operator", "default_scope_funcs"
    script = "import paddle.fluid as fluid\n" + "\n".join(f"fluid.{name}" for name in names)
    subprocess.run([sys.executable, "-c", script], check=True)
