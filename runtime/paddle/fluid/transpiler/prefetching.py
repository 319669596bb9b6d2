# SPDX-License-Identifier: Apache-2.0
"""Tables of which a trainer gets the rows of its batch when it needs them, instead of all after every step."""

from __future__ import annotations

from collections.abc import Collection, Sequence

from paddle.fluid.program.block import Block
from paddle.fluid.program.operator import Operator, OpRole
from paddle.fluid.program.program import Program
from paddle.fluid.transpiler.placement import Placed

_LOOKUP, _PREFETCH = "lookup_table", "distributed_lookup_table"
_GRADIENTS = ("lookup_table_grad",)


def prefetchable(program: Program, params: Collection[str]) -> frozenset[str]:
    """Return the parameters that are sparse tables, and that nothing but looking up reads as a whole."""
    block = program.global_block()
    tables = {
        op.inputs["W"][0] for op in block.ops if op.type == _LOOKUP and op.attrs.get("remote_prefetch", False)
    }
    whole: set[str] = set()
    for each in program.blocks:
        for op in each.ops:
            assert isinstance(op, Operator)
            looks_up = op.type == _LOOKUP and each is block and op.attrs["remote_prefetch"]
            if not looks_up and op.type not in _GRADIENTS and op.role != OpRole.OPTIMIZE:
                whole.update(op.input_names)
    return frozenset(tables & set(params) - whole)


def prefetch_rows(block: Block, placed: Placed, trainer_id: int) -> None:
    """Replace the operators that look rows of a table up by one that gets them from servers, in place.

    It stands where the first of them stood. Where the ids of a later one are not there yet, that gets one of its own.
    """
    while True:
        found = [
            at for at, op in enumerate(block.ops) if op.type == _LOOKUP and op.inputs["W"] == (placed.param,)
        ]
        if not found:
            return
        first = block.ops[found[0]]
        written: set[str] = set()
        together = []
        for at in range(found[0], found[-1] + 1):
            op = block.ops[at]
            same = at in found and op.attrs["padding_idx"] == first.attrs["padding_idx"]
            if same and written.isdisjoint(op.inputs["Ids"]):
                together.append(at)
            written.update(op.output_names)
        _replace(block, placed, together, trainer_id)


def use_own_tables(program: Program) -> None:
    """Undo `prefetch_rows`, in place: rows are looked up where the program runs."""
    block = program.global_block()
    for at in reversed([at for at, op in enumerate(block.ops) if op.type == _PREFETCH]):
        op = block.ops[at]
        block._remove_op(at)
        for ids, out in zip(op.inputs["Ids"], op.outputs["Outputs"], strict=True):
            attrs = {"is_sparse": True, "padding_idx": op.attrs["padding_idx"]}
            block._insert_op(at, _LOOKUP, {"W": op.inputs["W"][0], "Ids": ids}, {"Out": out}, attrs)


def _replace(block: Block, placed: Placed, positions: Sequence[int], trainer_id: int) -> None:
    ops = [block.ops[at] for at in positions]
    for at in reversed(positions):
        block._remove_op(at)
    block._insert_op(
        positions[0],
        _PREFETCH,
        {"Ids": [op.inputs["Ids"][0] for op in ops], "W": placed.param},
        {"Outputs": [op.outputs["Out"][0] for op in ops], "WOut": placed.param},
        {
            "table_names": tuple(one.param.name for one in placed.slices),
            "height_sections": tuple(one.param.shape[0] for one in placed.slices),
            "endpoints": tuple(one.endpoint for one in placed.slices),
            "trainer_id": trainer_id,
            "padding_idx": ops[0].attrs["padding_idx"],
        },
    )
