# SPDX-License-Identifier: Apache-2.0
"""The floors of every package, in one table, and the source read for the tests that hold it."""

from __future__ import annotations

import ast
import functools
from collections import defaultdict
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parent.parent

FLOORS: Mapping[str, tuple[str, ...]] = {
    "paddle_cluster": (
        "errors",
        "system text",
        "config",
        "plan",
        "connection",
        "ssh",
        "engines",
        "files",
        "nodes",
        "screen",
        "control",
        "job dashboard",
        "cli api",
        ".",
    ),
    "runtime/paddle_node": ("linux", "contract", "agent"),
    "runtime/paddle_node/agent": ("link", "files processes", "relay node", "."),
    "runtime/paddle/ops": (
        "base",
        "activation math shape creation norm sequence rows control metric detection",
        "conv loss recurrent",
        "update",
    ),
    "runtime/paddle/optim": (
        "rules schedule",
        "spec",
        "clip learning_rate model_average",
        "dense sparse",
    ),
    "runtime/paddle/reader": (
        "channel snappy pickled",
        "decorator pickling recordio",
        "minibatch parallel processes",
        "creator",
        ".",
    ),
    "runtime/paddle/dataset": ("download image", "records", "."),
    "runtime/paddle/graph": (
        "errors operator unique_name",
        "lod scope profile in_place",
        "failure variable",
        "block",
        "program grad_builder",
        "body backward",
        "binding",
        "plan",
        "bound_plan",
        "executor",
        ".",
    ),
    "runtime/paddle/pserver": (
        "sparse",
        "wire",
        "transports",
        "store",
        "durable exported",
        "server client followed",
        "reader torch",
        ".",
    ),
    "runtime/paddle/collective": ("errors membership", "connection", "exchange", "."),
    "runtime/paddle/distributed": (
        "nodes",
        "keeper",
        "script",
        ".",
    ),
    "runtime/paddle/v2": (
        "errors",
        "parameter_format data_type activation pooling regularization settings",
        "attr",
        "model",
        "messages",
        "network optimizer",
        "layer",
        "topology",
        "parameters",
        "training",
        ".",
    ),
    "runtime/paddle/trainer_config_helpers": (
        "v1_names configuration activations poolings",
        "data_sources evaluators layers networks optimizers",
        ".",
    ),
    "runtime/paddle/trainer": (
        "PyDataProvider2 config_parser pass_directory",
        "sample_pool",
        "session",
        "jobs",
        ".",
    ),
    "runtime/paddle/proto": (
        "field",
        "message",
        "DataConfig_pb2 OptimizerConfig_pb2 ParameterConfig_pb2",
        ".",
    ),
    "runtime/paddle/utils": (".",),
    "runtime/paddle/swig": ("arrays", "arguments", "dataprovider_converter machine", "."),
    "runtime/paddle/fluid": (
        "errors",
        "program",
        "run clip initializer regularizer",
        "files multislot param_attr backward",
        "remote layer_helper data_feeder",
        "parallel executor reader",
        "averages",
        "layers optimizer transpiler compiler",
        "contrib incubate",
        ".",
    ),
}
"""Package -> its floors, lowest first. A floor names folders and modules of the package, which do not import each
other; "." stands for all modules directly in the package that no floor names. Imports go down only."""

ARROWS: Mapping[str, int] = {
    "paddle_cluster": 97,
    "runtime/paddle_node": 2,
    "runtime/paddle_node/agent": 12,
    "runtime/paddle/ops": 18,
    "runtime/paddle/optim": 12,
    "runtime/paddle/reader": 19,
    "runtime/paddle/dataset": 4,
    "runtime/paddle/graph": 72,
    "runtime/paddle/pserver": 33,
    "runtime/paddle/collective": 9,
    "runtime/paddle/distributed": 5,
    "runtime/paddle/v2": 65,
    "runtime/paddle/trainer_config_helpers": 17,
    "runtime/paddle/trainer": 12,
    "runtime/paddle/proto": 12,
    "runtime/paddle/utils": 0,
    "runtime/paddle/swig": 10,
    "runtime/paddle/fluid": 127,
}
"""Package -> how many pairs of its rooms import one another, at most. These numbers only go down."""

UPWARD: Mapping[tuple[str, str], str] = {
    ("paddle.graph.block", "paddle.graph.program"): "for types: a block counts up its program's version",
    ("paddle.graph.variable", "paddle.graph.block"): "for types: a variable knows where it belongs",
    (
        "paddle.fluid.program.program",
        "paddle.fluid.files.program_file",
    ): "Program itself has the original's methods",
    ("paddle.fluid.incubate.fleet_base", "paddle.fluid.io"): "fleet saves and loads as scripts do",
    ("paddle.fluid.contrib.inferencer", "paddle.fluid.io"): "it loads as scripts do",
    ("paddle.fluid.contrib.step_checkpoint", "paddle.fluid.io"): "it saves and loads as scripts do",
    ("paddle.fluid.contrib.trainer", "paddle.fluid.io"): "it saves and loads as scripts do",
    (
        "paddle.fluid.executor",
        "paddle.fluid.compiler",
    ): "Executor.run trains a program with several trainers as CompiledProgram does",
    (
        "paddle.v2.layer.cost",
        "paddle.v2.evaluator",
    ): "classification_cost declares the evaluator that it has by default",
}
"""(module that imports, module imported), dotted -> why this one import may go up, across, or round in a circle."""

SIZES: Mapping[str, str] = {
    "paddle_cluster/text": "sizes, events and lines: there is no fourth subject",
    "runtime/paddle/ops/update": "rules of optim.rules are operators by their rows there",
    "runtime/paddle/pserver/durable": "its fifth subject, checkpoints, is the folder in it",
}
"""Folder -> why it holds fewer than 5 modules, or more than 25."""


FRAGMENTS: Mapping[str, str] = {
    "paddle_node.agent.reconnect": "a program of its own: what another login runs on the node",
    "paddle_cluster.files.collected_paths": "pure: the paths that a node may send, rename and link to",
    "paddle_cluster.job.handlers.table": "the table of handlers",
    "paddle.ops.base.families": "what lies on the disk, of which the table of operators knows nothing",
    "paddle.optim.clip": "user scripts clip gradients by norms before they push them",
    "paddle.pserver.metrics": "what an optional library asks for: nothing else knows of it",
    "paddle.fluid.run.batch_queue": "a protocol between the thread that makes batches and the operators that take them",
}
"""Module, dotted -> why it stands alone although only one other imports it and it has fewer than 70 lines."""

ENTRIES: Mapping[str, str] = {
    "paddle_cluster/engines": "an engine a module: the table of engines names all of them",
    "runtime/paddle/reader": "what the original has under that name",
    "runtime/paddle/dataset": "a data set a module: what the original has under that name",
    "runtime/paddle/optim/rules": "an update rule a module: its table names all of them",
    "runtime/paddle/fluid": "what the original has under that name",
    "runtime/paddle/fluid/contrib": "what the original has under that name",
    "runtime/paddle/fluid/incubate": "what the original has under that name",
    "runtime/paddle/v2": "what the original has under that name",
    "runtime/paddle/trainer_config_helpers": "what the original has under that name",
    "runtime/paddle/proto": "what the original has under that name",
    "runtime/paddle/utils": "what the original has under that name",
    "runtime/paddle/swig": "what the original has under that name",
    "runtime/paddle/v2/layer": "a family of layers a module: the package names all of them",
    "runtime/paddle/fluid/layers": "what the original has under that name",
    "runtime/paddle/fluid/layers/nn": "a family of layers a module: the package names all of them",
    "runtime/paddle/fluid/layers/detection": "a family of layers a module: the package names all of them",
}
"""Folder -> the registry whose entries its modules are, so that none of them is a fragment."""

NAMESAKES: Mapping[str, Mapping[str, str]] = {
    "runtime/paddle_node": dict.fromkeys(
        ("File", "Hello", "Probe", "Reach", "Received", "Relay", "Resident", "Stacks", "Stop", "Verified"),
        "a message is named as in the protocol: by what carries it out, or as its answer",
    ),
    "runtime/paddle/fluid": dict.fromkeys(
        ("Accuracy", "ChunkEvaluator", "EditDistance"),
        "scripts import one from fluid.metrics and another from fluid.evaluator: the original's names",
    ),
}
"""Package -> public class -> why several modules of the package have one of this name."""

MEMOS: Mapping[str, str] = {
    "paddle.pserver.wire.message.is_finite": "a section is looked at once, for its checksum and for this",
}
"""Function whose name is a question, dotted -> why it writes down its answer."""

UNUSED: Mapping[str, str] = {
    "paddle_node.agent.bootstrap.boot": "the line that the launcher runs on a node calls it",
    "paddle_node.agent.bootstrap.create_module": "the interpreter asks for it when it imports",
    "paddle_node.agent.bootstrap.find_spec": "the interpreter asks for it when it imports",
    "paddle_node.agent.bootstrap.get_source": "the interpreter asks for it when it shows a traceback",
    "paddle_node.agent.bootstrap.stay": "the line that paddle_node.agent.offer runs calls it",
    "paddle_cluster.dashboard.server.log_message": "http.server calls it for each request",
    "paddle_cluster.dashboard.server.process_request": "socketserver calls it for each connection",
    "paddle_cluster.ssh.transport._filter_algorithm": "paramiko calls it: what it does there is left out",
    "paddle_cluster.ssh.transport._parse_debug": "paramiko calls it: what it does there is left out",
    "paddle_cluster.ssh.transport.start_handshake": "paramiko calls it: what it does there is left out",
}
"""Function or class, dotted -> who uses it although no module of its package names it."""


def sources(folder: str) -> list[Path]:
    """All modules below a folder of the repository."""
    return sorted((ROOT / folder).rglob("*.py"))


@functools.cache
def tree(path: Path) -> ast.Module:
    """The syntax tree of a module."""
    return ast.parse(path.read_text(encoding="utf-8"))


@functools.cache
def nodes(path: Path, *kinds: type[ast.AST]) -> list[Any]:
    """The nodes of a module, each of one of these kinds; an abstract kind such as `ast.stmt` stands for its own."""
    return [node for kind, found in _by_kind(path).items() if issubclass(kind, kinds) for node in found]


@functools.cache
def _by_kind(path: Path) -> Mapping[type[ast.AST], list[ast.AST]]:
    found: defaultdict[type[ast.AST], list[ast.AST]] = defaultdict(list)
    for node in ast.walk(tree(path)):
        found[type(node)].append(node)
    return found


def dotted(path: Path) -> str:
    """The name that a file or folder is imported by."""
    runtime = ROOT / "runtime"
    parts = path.relative_to(runtime if path.is_relative_to(runtime) else ROOT).with_suffix("").parts
    return ".".join(parts[:-1] if parts[-1] == "__init__" else parts)


@functools.cache
def imports(path: Path) -> tuple[tuple[str, str], ...]:
    """What a module imports, at its top, in functions and for types alone: (module, name in it or "")."""
    return tuple(_imports(path))


def _imports(path: Path) -> Iterator[tuple[str, str]]:
    name = dotted(path)
    package = name.split(".") if path.name == "__init__.py" else name.split(".")[:-1]
    for node in nodes(path, ast.Import):
        yield from ((alias.name, "") for alias in node.names)
    for node in nodes(path, ast.ImportFrom):
        base = package[: len(package) - node.level + 1] if node.level else []
        module = ".".join([*base, *filter(None, [node.module])])
        yield from ((module, alias.name) for alias in node.names)


@functools.cache
def graph(package: str) -> Mapping[str, frozenset[str]]:
    """Module of a package -> the modules of the same package that it imports."""
    paths = {dotted(path): path for path in sources(package)}
    return {
        name: frozenset(
            found
            for module, member in imports(path)
            for found in (f"{module}.{member}" if f"{module}.{member}" in paths else module,)
            if found in paths and found != name
        )
        for name, path in paths.items()
    }


def rooms(package: str) -> Mapping[str, int]:
    """Room of a package -> the floor it is on; 0 is the lowest."""
    return {room: number for number, floor in enumerate(FLOORS[package]) for room in floor.split()}


def room_of(package: str, module: str) -> str:
    """The room that a module of a package lies in."""
    first = module.removeprefix(dotted(ROOT / package)).strip(".").partition(".")[0]
    return first if first in rooms(package) else "."


def is_of(package: str, folder: str) -> bool:
    """Whether a folder lies in a package, and not in a package with floors of its own within that."""
    inner = [name for name in FLOORS if name.startswith(f"{package}/")]
    return folder.startswith(f"{package}/") and not any(folder.startswith(f"{name}/") for name in inner)


def folders(package: str) -> list[Path]:
    """The folders of a package, lowest floor first, each before those in it."""
    top = ROOT / package
    return [
        path.parent
        for room in rooms(package)
        if room != "." and (top / room).is_dir()
        for path in sorted((top / room).rglob("__init__.py"), key=lambda path: path.parent.parts)
        if is_of(package, path.parent.relative_to(ROOT).as_posix())
    ]
