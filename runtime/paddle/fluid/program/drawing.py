# SPDX-License-Identifier: Apache-2.0
"""Formats programs as text and as Graphviz graphs.

Scripts import this module as `paddle.fluid.debugger` and `paddle.fluid.net_drawer`.
"""

from __future__ import annotations

from collections.abc import Collection
from pathlib import Path
from typing import Any

from paddle.fluid.program.block import Block
from paddle.fluid.program.descriptions import BlockDesc, ProgramDesc
from paddle.fluid.program.program import Program


def pprint_program_codes(program: Program | ProgramDesc) -> str:
    """Return all blocks of a program as lines of code."""
    desc = program.desc if isinstance(program, Program) else program
    return "\n".join(pprint_block_codes(desc.block(index)) for index in range(desc.num_blocks()))


def pprint_block_codes(block: Block | BlockDesc, show_backward: bool = False) -> str:
    """Return the operators of a block as lines of code; with `show_backward`, including gradient operators."""
    desc = block.desc if isinstance(block, Block) else block
    lines = [f"# block {desc.id} in {desc.parent}"]
    for op in map(desc.op, range(desc.op_size())):
        if show_backward or not op.type().endswith("_grad"):
            inputs = ", ".join(f"{slot}={op.input(slot)}" for slot in op.input_names())
            lines.append(f"{', '.join(op.output_arg_names())} = {op.type()}({inputs})")
    return "\n".join(lines)


def draw_block_graphviz(
    block: Block, highlights: Collection[str] | None = None, path: str = "./temp.dot"
) -> None:
    """Write a Graphviz graph of a block's variables and operators to a file.

    Args:
        highlights: variables to draw in red.
        path: the output file, which `dot -Tpdf` can render.
    """
    Path(path).write_text(
        "\n".join(["digraph G {", *_graph(block, highlights or ()), "}", ""]), encoding="utf-8"
    )


def draw_graph(startup_program: Program, main_program: Program, **kwargs: Any) -> str:
    """Return a Graphviz graph of the startup and main programs; if `filename` is given, also write it to that file."""
    lines = ["digraph G {"]
    for name, program in (("startup", startup_program), ("main", main_program)):
        lines += [f"subgraph cluster_{name} {{", f'label="{name}"']
        lines += [*_graph(program.global_block(), (), f"{name}/"), "}"]
    text = "\n".join([*lines, "}", ""])
    if "filename" in kwargs:
        Path(kwargs["filename"]).write_text(text, encoding="utf-8")
    return text


def _graph(block: Any, highlights: Collection[str], prefix: str = "") -> list[str]:
    lines = []
    names = {name for op in block.ops for name in (*op.reads, *op.writes)}
    for name in sorted(names):
        variable = block.find(name)
        label = name if variable is None else variable.describe()
        color = ", color=red" if name in highlights else ""
        lines.append(f'"{prefix}{name}" [shape=box, label="{label}"{color}]')
    for number, op in enumerate(block.ops):
        lines.append(f'"{prefix}op {number}" [label="{op.type}"]')
        lines += [f'"{prefix}{name}" -> "{prefix}op {number}"' for name in dict.fromkeys(op.reads)]
        lines += [f'"{prefix}op {number}" -> "{prefix}{name}"' for name in dict.fromkeys(op.writes)]
    return lines
