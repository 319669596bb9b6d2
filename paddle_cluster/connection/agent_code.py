# SPDX-License-Identifier: Apache-2.0
"""Compiles the agent's modules, which every node receives, to bytecode of about half the usual size.

Function annotations, imports and blocks for type checkers, docstrings, and column positions are omitted. Annotations of
records and line numbers for tracebacks remain. Modules of the standard library are replaced by smaller ones, because
importing `enum`, `re` and what they import would take longer than all modules of the agent.
"""

from __future__ import annotations

import ast
import importlib
from collections.abc import Iterable, Iterator
from itertools import groupby
from operator import itemgetter
from types import CodeType

from paddle_node.contract import classes

_LONGEST = 8  # code units that one entry of the table of lines describes
_LINE, _NO_LINE = 13, 15  # kinds of its entries: a line without columns, and no line
# module of the standard library -> one that has some of its names and imports less
SMALLER = {
    "collections": "_collections",
    "collections.abc": "_collections_abc",
    "contextlib": "paddle_node.contract.classes",
    "functools": "_functools",
    "heapq": "_heapq",
    "json": "paddle_node.contract.small_json",
    "signal": "_signal",
    "socket": "paddle_node.linux.small_socket",
    "struct": "_struct",
}


def compiled(source: bytes, path: str) -> CodeType:
    """Compile a module of the agent without docstrings, assertions, annotations and column positions.

    Args:
        path: the file name for tracebacks.
    """
    module = ast.parse(source, path)
    module.body = [node for statement in module.body for node in _at_run_time(statement)]
    for node in ast.walk(module):
        if isinstance(node, ast.FunctionDef):
            node.returns = None
        elif isinstance(node, ast.arg):
            node.annotation = None
    _leave_typing_out(module)
    _import_less(module)
    flags = annotations.compiler_flag
    return _without_columns(compile(module, path, "exec", flags, dont_inherit=True, optimize=2))


def _at_run_time(statement: ast.stmt) -> list[ast.stmt]:
    """Return the statements to keep: the statement itself or, for `if TYPE_CHECKING`, its else branch."""
    if isinstance(statement, ast.ImportFrom) and statement.module == "__future__":
        return []  # a flag of the compiler has the same effect, without an import at run time
    if isinstance(statement, ast.If) and isinstance(statement.test, ast.Name):
        return statement.orelse if statement.test.id == "TYPE_CHECKING" else [statement]
    return [statement]


def _leave_typing_out(module: ast.Module) -> None:
    """Remove the import of `typing` unless code uses it; aliases and variables of types become None."""
    imports = [node for node in module.body if isinstance(node, ast.ImportFrom) and node.module == "typing"]
    names = {alias.name for node in imports for alias in node.names}
    for node in module.body:
        if isinstance(node, ast.Assign) and isinstance(node.value, (ast.Subscript, ast.Call)):
            made_of = node.value.value if isinstance(node.value, ast.Subscript) else node.value.func
            types = names if isinstance(node.value, ast.Subscript) else names & {"TypeVar"}
            if isinstance(made_of, ast.Name) and made_of.id in types:
                node.value = ast.copy_location(ast.Constant(None), node.value)
    needed = names.intersection(_used(module))
    called = (node.func for node in ast.walk(module) if isinstance(node, ast.Call))
    if needed == {"NamedTuple"} and not any(
        isinstance(each, ast.Name) and each.id in needed for each in called
    ):  # the standard one compiles functions for every class
        imports[0].module = classes.__name__
        imports[0].names = [alias for alias in imports[0].names if alias.name in needed]
    elif not needed:
        module.body = [node for node in module.body if node not in imports]


def _import_less(module: ast.Module) -> None:
    """Import smaller modules where these have all names that the code uses."""
    nodes = list(ast.walk(module))
    imported = {alias.name for node in nodes if isinstance(node, ast.Import) for alias in node.names}
    for node in nodes:
        if isinstance(node, ast.ImportFrom):
            names = {alias.name for alias in node.names}
            node.module = _smaller(node.module or "", names) or node.module
        elif isinstance(node, ast.Import) and "ssl" not in imported:
            node.names = [_smaller_import(alias, nodes) for alias in node.names]


def _smaller_import(alias: ast.alias, nodes: Iterable[ast.AST]) -> ast.alias:
    name = alias.asname or alias.name
    smaller = "" if "." in name else _smaller(alias.name, _attributes(nodes, name))
    return ast.copy_location(ast.alias(smaller, name), alias) if smaller else alias


def _attributes(nodes: Iterable[ast.AST], name: str) -> set[str]:
    """Return the names that code uses of an imported module."""
    owned = (node for node in nodes if isinstance(node, ast.Attribute) and isinstance(node.value, ast.Name))
    return {node.attr for node in owned if isinstance(node.value, ast.Name) and node.value.id == name}


def _smaller(module: str, names: Iterable[str]) -> str:
    """Return a smaller module with these names, or an empty string if this interpreter has none."""
    smaller = SMALLER.get(module, "")
    try:
        found = importlib.import_module(smaller) if smaller else None
    except ImportError:
        return ""
    return smaller if all(hasattr(found, name) for name in names) else ""


def _used(node: ast.AST) -> Iterator[str]:
    """Yield the names that code uses, except in annotations, which are never evaluated."""
    if isinstance(node, ast.Name):
        yield node.id
    for name, value in ast.iter_fields(node):
        if name != "annotation":
            for child in value if isinstance(value, list) else [value]:
                if isinstance(child, ast.AST):
                    yield from _used(child)


def _without_columns(code: CodeType) -> CodeType:
    table, last = bytearray(), code.co_firstlineno
    for line, ranges in groupby(code.co_lines(), key=itemgetter(2)):  # one range per instruction
        units = sum(end - start for start, end, _ in ranges) // 2
        for at in range(0, units, _LONGEST):
            kind = _NO_LINE if line is None else _LINE
            table.append(0x80 | kind << 3 | min(units - at, _LONGEST) - 1)
            if line is not None:
                table.extend(_signed(line - last))
                last = line
    inner = (_without_columns(each) if isinstance(each, CodeType) else each for each in code.co_consts)
    return code.replace(co_linetable=bytes(table), co_consts=tuple(inner))


def _signed(number: int) -> Iterator[int]:
    """Yield the bytes of a signed number, six bits per byte, least significant first; the last bit is the sign."""
    rest = abs(number) << 1 | (number < 0)
    while rest > 63:
        yield rest & 63 | 64
        rest >>= 6
    yield rest
