# SPDX-License-Identifier: Apache-2.0
"""Every public name that the original has too takes the original's arguments: their names, order and defaults."""

from __future__ import annotations

import ast
import enum
import importlib
import inspect
import re
import sys
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, NamedTuple

import pytest

SPEC = Path(__file__).parents[3] / "shared" / "spec"
DOCS = Path(__file__).parents[2] / "docs"
REQUIRED = inspect.Parameter.empty
LISTS = {"fluid_names.tsv": "paddle.", "v2_names.tsv": "paddle.v2."}

OTHERWISE: Mapping[str, str] = {
    "fluid.io.PyReader.__init__": "without variables and capacity it reads nothing in either",
    "fluid.layers.sampling_id": "columns are int64, which embedding takes: the original declares float32",
    "fluid.name_scope": "None is refused in either",
    "activation.Base": "scripts take its children",
    "dataset.common.cluster_files_reader": "the loader reads the same pickles, as data",
    "dataset.common.split": "the dumper writes the same pickles",
    "layer.LayerOutput": "layers make them",
    "layer.classification_cost": "the evaluator has its name in v2, not that in trainer_config_helpers",
    "layer.data": "v2 takes a type in the place of trainer_config_helpers' size",
    "layer.dotmul_operator": "a and b are required, under these names alone",
}
"""Name in a list -> why its arguments are others here."""


class Argument(NamedTuple):
    """An argument of a function, `default` REQUIRED where there is none; a name begins with its stars."""

    name: str
    default: Any


def listed(file: str) -> Iterator[tuple[str, str]]:
    for line in (SPEC / file).read_text(encoding="utf-8").splitlines():
        # The list does not know the arguments of classes that the original has in C++: paddle.fluid.Scope.
        if not line.startswith(("#", "paddle.fluid.")):
            name, _, arguments = line.partition("\t")
            yield name, arguments


def found(path: str) -> Any:
    """Return what a script gets by a dotted name, or None."""
    thing: Any = importlib.import_module("paddle")
    for part in path.split(".")[1:]:
        try:
            thing = getattr(thing, part)
        except AttributeError:
            try:
                thing = importlib.import_module(f"{thing.__name__}.{part}")
            except (AttributeError, ImportError):
                return None
    return thing.fget if isinstance(thing, property) else thing


def arguments_here(thing: Any) -> list[Argument]:
    stars: Mapping[object, str] = {inspect.Parameter.VAR_POSITIONAL: "*", inspect.Parameter.VAR_KEYWORD: "**"}
    try:
        parameters = inspect.signature(thing).parameters.values()
    except ValueError:  # an exception class without a constructor of its own
        return []
    return [
        Argument(stars.get(each.kind, "") + each.name, plain(each.default))
        for each in parameters
        if each.name != "self"
    ]


def arguments_there(text: str, thing: Any) -> list[Argument]:
    parsed = ast.parse(f"lambda {text}: 0", mode="eval").body
    assert isinstance(parsed, ast.Lambda)
    spec = parsed.args
    defaults = [REQUIRED] * (len(spec.args) - len(spec.defaults)) + [
        value(each, thing) for each in spec.defaults
    ]
    named = [Argument(each.arg, default) for each, default in zip(spec.args, defaults, strict=True)]
    stars = [("*", spec.vararg), ("**", spec.kwarg)]
    return named + [Argument(star + each.arg, REQUIRED) for star, each in stars if each is not None]


def value(node: ast.expr, thing: Any) -> Any:
    """Return what a default of a list is, with names as the module or class of our function knows them."""
    try:
        return plain(ast.literal_eval(node))
    except ValueError:
        names = {**vars(sys.modules[thing.__module__]), **(vars(thing) if isinstance(thing, type) else {})}
        first, *rest = ast.unparse(node).split(".")
        known = names.get(first, ast.unparse(node))
        for each in rest:
            known = getattr(known, each, ast.unparse(node))
        return plain(known)


def plain(default: Any) -> Any:
    return list(default) if isinstance(default, tuple) and not isinstance(default, enum.Enum) else default


def differs(here: list[Argument], there: list[Argument]) -> bool:
    """Whether a call that the original takes may fail or mean another thing here.

    An argument may have a default where the original wants one, and more with defaults may follow.
    """
    if there and there[-1].name.startswith("**"):
        there = there[:-1]
    more = here[len(there) :]
    return (
        [each.name for each in here[: len(there)]] != [each.name for each in there]
        or any(
            theirs.default is not REQUIRED and theirs.default != ours.default
            for ours, theirs in zip(here, there, strict=False)
        )
        or any(each.default is REQUIRED and not each.name.startswith("*") for each in more)
    )


@pytest.mark.parametrize(("file", "prefix"), LISTS.items())
def test_arguments_are_called_ordered_and_set_as_in_the_original(file: str, prefix: str) -> None:
    if not SPEC.is_dir():
        pytest.skip(f"needs the lists of names in {SPEC}")
    names = dict(listed(file))
    things = {name: found(prefix + name) for name in names}
    others = {
        name: f"original: ({names[name]}), here: {inspect.signature(thing)}"
        for name, thing in things.items()
        if thing is not None and differs(arguments_here(thing), arguments_there(names[name], thing))
    }
    assert [f"{name}: {told}" for name, told in others.items() if name not in OTHERWISE] == []
    assert set(OTHERWISE) & set(names) == set(others)


def test_a_name_that_is_absent_stands_in_the_docs() -> None:
    if not SPEC.is_dir():
        pytest.skip(f"needs the lists of names in {SPEC}")
    pages = " ".join(path.read_text(encoding="utf-8") for path in DOCS.glob("*.md"))
    rooms = ("paddle.v2.", "paddle.", "paddle.trainer.")
    names = [name for name, _ in listed("v2_names.tsv") if not any(found(room + name) for room in rooms)]
    absent = {first_absent(f"paddle.v2.{name}") for name in names}
    assert sorted(each for each in absent if not re.search(rf"\b{each}\b", pages)) == []


def first_absent(path: str) -> str:
    """Return the part of a dotted name that is not there, such as a module."""
    parts = path.split(".")
    return next(parts[at] for at in range(len(parts)) if found(".".join(parts[: at + 1])) is None)
