# SPDX-License-Identifier: Apache-2.0
"""Checks that Python is suitable for the job, and that all nodes have the same Python, modules and code."""

from __future__ import annotations

import itertools
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from types import MappingProxyType

from paddle_cluster.nodes.checks.reply import Demands, Reply
from paddle_cluster.nodes.findings import Finding
from paddle_cluster.plan import wheel_platform
from paddle_cluster.text.sizes import some
from paddle_node.contract.to_launcher import Probed

OLDEST_PYTHON = (3, 11)
RUNTIME_MODULES = ("numpy", "zmq")
OLDEST: Mapping[str, tuple[int, ...]] = MappingProxyType({"numpy": (1, 26), "zmq": (26,), "libzmq": (4, 3)})
SEALS = ("cryptography", (47,))
"""The module that seals streams between pservers and trainers, and its minimum version; optional, but faster."""
NEWER_PYTHON = (
    "--bootstrap sends packages, not an interpreter: install one on the node (`uv python "
    "install 3.11` needs no root) and name it in PYTHON in conf.py"
)
NAMED = 5  # files named in a finding
_PACKAGES = {"zmq": "pyzmq"}


def check(replies: Sequence[Reply], demands: Demands) -> Iterator[Finding]:
    """Yield findings for nodes whose versions differ from most nodes' versions, or do not suit the job.

    A job without required modules accepts any Python.
    """
    usual = usual_versions(replies)
    for reply in replies:
        is_any_script = not demands.modules and not demands.bootstrap
        if reply.error or is_any_script or any(what == "python" for what, _ in reply.answer.problems):
            continue
        missing = list(_missing(reply, demands))
        yield from missing
        yield from _slower(reply)
        yield from _without_kernels(reply, demands)
        if not missing and not demands.allow_mismatch:
            yield from _different(reply, usual)
    yield from _other_code(replies, demands)


def usual_versions(replies: Sequence[Reply]) -> dict[str, str]:
    """Return the versions that most nodes have, by name."""
    counts: dict[str, Counter[str]] = {}
    for reply in replies:
        for what, version in versions(reply.answer).items():
            counts.setdefault(what, Counter())[version] += 1
    return {what: counter.most_common(1)[0][0] for what, counter in counts.items()}


def versions(answer: Probed) -> dict[str, str]:
    """Return the major.minor version of Python and the full versions of modules, by name."""
    found = {}
    if answer.python_version:
        found["python"] = ".".join(answer.python_version.split(".")[:2])
    for module in RUNTIME_MODULES:
        version = answer.modules.get(module)
        if version:
            found[module] = version
    return found


def _missing(reply: Reply, demands: Demands) -> Iterator[Finding]:
    version = reply.answer.python_version
    if tuple(int(part) for part in version.split(".")[:2] if part.isdigit()) < OLDEST_PYTHON:
        hint = f"; {NEWER_PYTHON}" if demands.bootstrap else " (PYTHON in conf.py)"
        yield Finding(
            reply.name,
            "python",
            f"{reply.python} is {version or 'missing'}, but the job needs 3.11 or newer{hint}",
        )
    platform = wheel_platform.read(reply.answer.python_version, reply.answer.python_kind)
    if demands.bootstrap and version and (platform is None or not platform.tags):
        kind = platform.describe() if platform is not None else "an unknown Python"
        text = f"{reply.python} is {kind}, for which no wheels exist; set PYTHON in conf.py to a CPython interpreter"
        yield Finding(reply.name, "python", text)
    for module in demands.modules:
        if not reply.answer.modules.get(module):
            package = _PACKAGES.get(module, module)
            yield Finding(
                reply.name,
                "modules",
                f"{reply.python} cannot import {module}. Install {package} there, give --bootstrap to "
                "send it, or set PYTHON in conf.py to one that has it: `command -v python3` in a terminal there",
            )
    for module, oldest in OLDEST.items():
        have = reply.answer.modules.get(module)
        if have and _release(have) and _release(have) < oldest:
            text = f"{_PACKAGES.get(module, module)} is {have}, but the job needs {'.'.join(map(str, oldest))} or newer"
            yield Finding(reply.name, "modules", f"{text}; upgrade it there, or set PYTHON in conf.py")


def _slower(reply: Reply) -> Iterator[Finding]:
    """Report nodes without fast encryption; they are queried for it only if the wire is encrypted."""
    module, oldest = SEALS
    have = reply.answer.modules.get(module)
    if module in reply.answer.modules and (not have or _release(have) < oldest):
        text = (
            f"{reply.python} has {f'{module} {have}' if have else f'no {module}'}; "
            f"{'.'.join(map(str, oldest))} or newer makes the encrypted wire of pservers 2 to 3 "
            "times as fast"
        )
        yield Finding(reply.name, "modules", text, serious=False)


def _without_kernels(reply: Reply, demands: Demands) -> Iterator[Finding]:
    platform = wheel_platform.read(reply.answer.python_version, reply.answer.python_kind)
    if demands.kernels is None or platform is None or not platform.libc:
        return
    libc = "musl" if platform.libc == "musl" else "gnu"
    target = f"linux-{platform.machine}-{libc}"
    if target not in demands.kernels:
        text = (
            f"no compiled kernels for {target}, so slower code in Python and NumPy is used; to send kernels, "
            "run `python -m paddle.kernels.build --all` with runtime/ in PYTHONPATH on this "
            "machine"
        )
        yield Finding(reply.name, "kernels", text, serious=False)


def _release(version: str) -> tuple[int, ...]:
    """Return the leading numbers of a version; empty if it does not begin with a number."""
    numbers = itertools.takewhile(lambda part: part.isascii() and part.isdigit(), version.split("."))
    return tuple(int(part[:9]) for part in numbers)


def _different(reply: Reply, usual: Mapping[str, str]) -> Iterator[Finding]:
    for what, have in versions(reply.answer).items():
        if have != usual[what]:
            text = f"{what} is {have}, but most nodes have {usual[what]} (--allow_mismatch continues anyway)"
            yield Finding(reply.name, "versions", text)


def _other_code(replies: Sequence[Reply], demands: Demands) -> Iterator[Finding]:
    """Compare files with those of most nodes; with --allow_mismatch the job continues."""
    asked = {reply.name: reply.answer.facts.code for reply in replies if reply.answer.facts.code is not None}
    usual = _usual_code(list(asked.values()))
    for name, code in asked.items():
        different = [path for path in usual if code.get(path) != usual[path]]
        if different:
            text = some([_how_it_differs(path, usual[path], code.get(path)) for path in different], NAMED)
            hint = "" if demands.allow_mismatch else " (--allow_mismatch continues anyway)"
            yield Finding(
                name,
                "workspace",
                f"the code differs from that of most nodes: {text}; copy one version to all nodes, or use "
                f"--job_dispatch_package{hint}",
                serious=not demands.allow_mismatch,
            )


def _usual_code(codes: Sequence[Mapping[str, str]]) -> dict[str, str | None]:
    """Return the digest that most nodes have, the first one if there is a tie; None means the file does not exist."""
    paths = dict.fromkeys(path for code in codes for path in code)
    return {path: Counter(code.get(path) for code in codes).most_common(1)[0][0] for path in sorted(paths)}


def _how_it_differs(path: str, usual: str | None, have: str | None) -> str:
    if have is None:
        return f"{path} is missing"
    return f"{path} exists only here" if usual is None else f"{path} differs"
