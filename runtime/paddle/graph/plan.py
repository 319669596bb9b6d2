# SPDX-License-Identifier: Apache-2.0
"""Plan: a program compiled for one set of feeds and fetches into a list of calls over numbered registers.

Names, slots and attributes are resolved once, here. Operators whose results are never read are removed, and a register
is cleared right after its last reader. See `binding` for the registers.

In-place operators change persistable arrays during the run; a value that is computed before such a change and read
after it is prevented from sharing memory with the array.

Rewrites reduce the work of a plan and preserve every result up to rounding. The program itself is never changed.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Mapping, Sequence
from typing import Any

from paddle.graph.binding import Binder, Call, Rooms
from paddle.graph.block import Block
from paddle.graph.errors import FeedError
from paddle.graph.in_place import exposed, spent_inputs
from paddle.graph.lod import carriers
from paddle.graph.operator import EMPTY, Operator
from paddle.graph.program import Program
from paddle.graph.variable import Parameter
from paddle.signatures import advice
from paddle_node.contract.classes import NamedTuple, dataclass, replace

Placed = tuple[int, Operator]


def fused(ops: Sequence[Placed], kept: Collection[str]) -> list[Placed]:
    """Return the operators, with some adjacent ones fused.

    Args:
        kept: variables that are fetched or persistable; the operators that compute them are not removed.
    """
    joined = _with_joined_tables(_with_joined_losses(ops, kept), kept)
    return _with_joined_lookups(_with_scaled_terms(joined, kept), kept)


def _with_joined_losses(ops: Sequence[Placed], kept: Collection[str]) -> list[Placed]:
    """Fuse each cross_entropy_grad with the softmax_grad that follows it.

    The gradient of the probabilities is zero except at one position in each row; together the two operators are
    (Softmax - Label) dLoss, which needs neither that array nor a division.
    """
    readers = _readers(ops)
    losses = {op.outputs["X@GRAD"][0]: op for _, op in ops if _is_hard_loss(op)}
    result: list[Placed] = []
    dropped = set()
    for position, op in ops:
        between = op.inputs["Out@GRAD"][0] if op.type == "softmax_grad" and op.attrs["axis"] == -1 else ""
        loss = losses.get(between)
        if loss and readers[between] == 1 and between not in kept and loss.inputs["X"] == op.inputs["Out"]:
            dropped.add(between)
            result.append((position, _joined(loss, op)))
        else:
            result.append((position, op))
    return [(position, op) for position, op in result if dropped.isdisjoint(op.writes)]


def _with_joined_tables(ops: Sequence[Placed], kept: Collection[str]) -> list[Placed]:
    """Fuse the sparse gradients of a table that several operators look up in, and their sum.

    Rows are then merged once instead of once per operator.
    """
    readers = _readers(ops)
    parts = {op.outputs["W@GRAD"][0]: op for _, op in ops if _is_sparse_table(op)}
    result: list[Placed] = []
    dropped: set[str] = set()
    for position, op in ops:
        names = op.inputs["X"] if op.type == "sum" else ()
        found = [parts[name] for name in names if name in parts]
        if (
            len(names) > 1
            and len(found) == len(names)
            and len({each.inputs["W"] for each in found}) == 1
            and all(readers[name] == 1 and name not in kept for name in names)
        ):
            dropped.update(names)
            result.append((position, _joined_tables(found, op)))
        else:
            result.append((position, op))
    return [(position, op) for position, op in result if dropped.isdisjoint(op.writes)]


def _with_joined_lookups(ops: Sequence[Placed], kept: Collection[str]) -> list[Placed]:
    """Fuse each concatenation with the lookups in one table that are its first inputs: rows are gathered once."""
    readers: dict[str, list[str]] = {}
    for _, op in ops:
        for name in op.reads:
            readers.setdefault(name, []).append(op.type)
    parts: dict[str, Operator] = {}  # result -> lookup of which no input has changed
    result: list[Placed] = []
    dropped: set[str] = set()
    for position, op in ops:
        names = op.inputs["X"] if op.type == "concat" else ()
        found: list[Operator] = []
        for part in map(parts.get, names):
            if part is None or (found and not _is_alike(part, found[0])):
                break
            found.append(part)
        if len({*names[: len(found)]}) > 1:
            dropped.update(names[: len(found)])
            op = _joined_lookups(found, op)
        for name in op.writes if op.type != "lookup_tables_concat" else ():
            parts = {out: part for out, part in parts.items() if name not in (out, *part.reads)}
        if op.type == "lookup_table":
            (out,) = op.writes
            reads = readers.get(out, [])
            if out not in kept and reads.count("concat") == 1 and {*reads} <= {"concat", "concat_grad"}:
                parts[out] = op
        result.append((position, op))
    return [each for each in result if each[1].type != "lookup_table" or dropped.isdisjoint(each[1].writes)]


def _is_alike(part: Operator, first: Operator) -> bool:
    """Return whether two lookups differ only in their ids."""
    return part.inputs["W"] == first.inputs["W"] and part.attrs["padding_idx"] == first.attrs["padding_idx"]


def _joined_lookups(parts: Sequence[Operator], whole: Operator) -> Operator:
    names, count = whole.inputs["X"], len(parts)
    inputs = {
        "W": parts[0].inputs["W"],
        "Ids": [part.inputs["Ids"][0] for part in parts],
        "X": names[count:],
    }
    outputs = {"Rows": names[:count], "Out": whole.outputs["Out"]}
    attrs = {"padding_idx": parts[0].attrs["padding_idx"], "axis": whole.attrs["axis"]}
    origins = {part.origin for part in parts}
    origin = origins.pop() if len(origins) == 1 else ""
    return replace(Operator.make("lookup_tables_concat", inputs, outputs, attrs), origin=origin)


def _with_scaled_terms(ops: Sequence[Placed], kept: Collection[str]) -> list[Placed]:
    """Fuse each sum of two terms with the scaling of its second term, as weight decay adds it."""
    readers = _readers(ops)
    scaled: dict[str, tuple[int, Operator]] = {}
    result: list[Placed] = []
    dropped: set[int] = set()
    for at, (position, op) in enumerate(ops):
        names = op.inputs["X"] if op.type == "sum" else ()
        begun, term = scaled.get(names[1], (0, op)) if len(names) == 2 else (0, op)
        if term is not op and readers[names[1]] == 1 and names[1] not in kept and names[0] != names[1]:
            source = term.inputs["X"][0]
            if not any(source in other.writes for _, other in ops[begun + 1 : at]):
                dropped.add(ops[begun][0])
                inputs, attrs = {"X": names[:1], "Y": [source]}, {"scale": term.attrs["scale"]}
                op = Operator.make("add_scaled", inputs, {"Out": op.outputs["Out"]}, attrs)
        for name in op.writes:
            scaled.pop(name, None)
        if op.type == "scale" and not op.attrs["bias"]:
            scaled[op.outputs["Out"][0]] = at, op
        result.append((position, op))
    return [(position, op) for position, op in result if position not in dropped]


def _readers(ops: Sequence[Placed]) -> Counter[str]:
    return Counter(name for _, op in ops for name in op.reads)


def _is_sparse_table(op: Operator) -> bool:
    return op.type == "lookup_table_grad" and bool(op.attrs["is_sparse"])


def _joined_tables(parts: Sequence[Operator], total: Operator) -> Operator:
    inputs = {
        "W": parts[0].inputs["W"],
        "Ids": [part.inputs["Ids"][0] for part in parts],
        "Out@GRAD": [part.inputs["Out@GRAD"][0] for part in parts],
    }
    return Operator.make("lookup_tables_grad", inputs, {"W@GRAD": total.outputs["Out"]}, {})


def _is_hard_loss(op: Operator) -> bool:
    return op.type == "cross_entropy_grad" and not op.attrs["soft_label"]


def _joined(loss: Operator, softmax: Operator) -> Operator:
    inputs = {
        "Label": loss.inputs["Label"],
        "Softmax": softmax.inputs["Out"],
        "Loss@GRAD": loss.inputs["Y@GRAD"],
    }
    outputs = {"Logits@GRAD": softmax.outputs["X@GRAD"]}
    attrs = {"ignore_index": loss.attrs["ignore_index"]}
    return Operator.make("softmax_with_cross_entropy_grad", inputs, outputs, attrs)


class PlanRequest(NamedTuple):
    """A request to compile a program: its feeds and fetches, and the block.

    Attributes:
        feeds: the names of the fed variables.
        fetches: the names of the variables to return.
        with_lod: the feeds, and values in the scope, that have LoD.
        block_idx: the index of the block to run.
    """

    feeds: tuple[str, ...]
    fetches: tuple[str, ...]
    with_lod: tuple[str, ...] = ()
    block_idx: int = 0


@dataclass(frozen=True)
class Plan:
    """A compiled program: the values to load, the calls to make, and the values to store and fetch.

    Attributes:
        asked: the request that it was compiled for.
        calls: the calls in order; each reads and writes registers.
        ops: the operator of each call and its position in the block, for messages.
        registers: the number of registers.
        numbers: variable name -> register.
        loads: persistable variables to read from the scope first.
        stores: persistable variables to write back at the end.
        sequential: variables that may have LoD.
    """

    asked: PlanRequest
    calls: tuple[Call, ...]
    ops: tuple[tuple[int, Operator], ...]
    registers: int
    numbers: Mapping[str, int]
    loads: tuple[str, ...]
    stores: tuple[str, ...]
    sequential: Collection[str]


def compile_plan(
    program: Program, asked: PlanRequest, seed: int, xp: Any, remote: Any = None, rooms: Rooms | None = None
) -> Plan:
    """Compile one block of a program to a plan, for the given feeds and fetches.

    Args:
        program: the program, which is not changed.
        seed: used by random operators without a seed.
        remote: connects operators that communicate with other processes.
        rooms: variable name -> array in which an operator may store its value; read in each run.

    Raises:
        FeedError: an operator or a fetch reads a variable that is neither fed, persistable nor computed before.
    """
    feeds, fetches, with_lod, block_idx = asked
    block = program.blocks[block_idx]
    persistable = {name for name, variable in block.visible_vars().items() if variable.persistable}
    fixed = _fixed(block, set(feeds))
    live = fused(_live_ops(block.run_ops, persistable, set(fetches), fixed), {*fetches, *persistable})
    loads = _check_reads(block, live, set(feeds), fetches)
    stores = tuple(sorted({name for _, op in live for name in op.writes if name in persistable} - fixed))
    numbers: dict[str, int] = {}
    for name in [
        *feeds,
        *loads,
        *(name for _, op in live for name in (*op.reads, *op.writes)),
        *fetches,
    ]:
        numbers.setdefault(name, len(numbers) + 3)
    kept = {*feeds, *loads, *stores, *fetches}
    read = ({name for _, op in live for name in op.reads} | set(fetches) | persistable) - fixed
    levelled = {name for name in persistable if block.reach(name).lod_level}
    state = {
        name for name in persistable - levelled if name in loads or isinstance(block.reach(name), Parameter)
    }
    sequential = carriers((op for _, op in live), {*with_lod, *levelled}, state - {*with_lod})
    lost = _lost(live)
    make = Binder(program, numbers, read, sequential, frozenset(feeds), seed, xp, remote, rooms or {})
    plain_ops = [op for _, op in live]
    look_out, spent = exposed(plain_ops, kept), spent_inputs(plain_ops, kept)
    calls = []
    for at, op in enumerate(plain_ops):
        dead = tuple(numbers[name] for name in lost[at] if name not in kept)
        calls.append(make.call(op, dead, look_out[at], spent[at]))
    return Plan(asked, tuple(calls), tuple(live), len(numbers) + 3, numbers, loads, stores, sequential)


def _fixed(block: Block, feeds: set[str]) -> set[str]:
    """Return the fed variables that keep their fed values: those that the program computes before it reads them.

    For other variables, the fed value is only the initial value, such as for a data variable that an operator
    increments in place.
    """
    fixed, unseen = set[str](), {name for name in feeds if not getattr(block.find(name), "is_data", False)}
    for op in block.run_ops:
        unseen.difference_update(op.reads)
        fixed.update(unseen.intersection(op.writes))
        unseen -= fixed
    return fixed


def _live_ops(
    ops: Sequence[Operator], persistable: set[str], fetches: set[str], fixed: set[str]
) -> list[tuple[int, Operator]]:
    """Return the operators that a fetch or a persistable variable depends on, with their positions.

    Fixed variables are not computed: feeding a value in the middle of a program removes the operators that lead to it.
    Neither are initial values that the program receives from servers before it reads them.
    """
    needed, replaced = fetches - fixed, set[str]()
    live = []
    for position in reversed(range(len(ops))):
        op = ops[position]
        names = [name for name in op.writes if name not in replaced]
        if (
            op.definition.has_effect
            or not needed.isdisjoint(names)
            or not (persistable - fixed).isdisjoint(names)
        ):
            live.append((position, op))
            needed.update(name for name in op.reads if name not in fixed)
            replaced.update(op.writes if op.definition.overwrites else ())
            replaced.difference_update(op.reads)
    return live[::-1]


def _lost(ops: Sequence[tuple[int, Operator]]) -> list[list[str]]:
    """Return, for each operator, the variables whose values have no later reader.

    A later operator can set them again.
    """
    needed: set[str] = set()
    lost = []
    for _, op in reversed(ops):
        touched = dict.fromkeys((*op.reads, *op.writes))
        lost.append([name for name in touched if name not in needed])
        needed.difference_update(op.writes)
        needed.update(op.reads)
    return lost[::-1]


def _missing(block: Block, name: str, feeds: set[str]) -> str:
    """Return advice for the user about a missing value."""
    variable = block.find(name)
    if variable is None:
        hint = advice(name, list(block.visible_vars()), "its variables")
        return (
            f"; the program has no variable of that name. Give the variable itself, or its .name, and run the program "
            f"in which its layer was created; {hint}"
        )
    if variable.elsewhere:
        return f"; {variable.elsewhere}"
    import difflib  # most programs make no such mistake

    unknown = {each.lower(): each for each in sorted(feeds) if block.find(each) is None}
    near = difflib.get_close_matches(name.lower(), unknown, n=1)
    if near:
        return f"; the program has no variable {unknown[near[0]]!r}, which was fed: did you mean {name!r}?"
    others = (
        f", instead of {', '.join(unknown.values())}, which the program does not have"
        if unknown
        else " as well"
    )
    return f"; fed variables: {sorted(feeds) or 'none'}; feed {name!r}{others}"


def _check_reads(
    block: Block, ops: Sequence[tuple[int, Operator]], feeds: set[str], fetches: Sequence[str]
) -> tuple[str, ...]:
    """Return the persistable variables that are read before anything writes them."""
    known = set(feeds)
    loads: list[str] = []

    def need(name: str, who: str) -> None:
        if name in known:
            return
        variable = block.find(name)
        if variable is None or not variable.persistable:
            raise FeedError(
                f"variable {name!r}, read by {who}, is neither fed nor persistable, and no earlier operator computes it"
                + _missing(block, name, feeds)
            )
        known.add(name)
        loads.append(name)

    for position, op in ops:
        for slot, names in op.inputs.items():
            for name in names:
                if name != EMPTY:
                    need(name, f"operator {position} {op.type!r} in slot {slot!r}")
        known.update(op.writes)
    for name in fetches:
        need(name, "fetch_list")
    return tuple(loads)
