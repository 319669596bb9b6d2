# SPDX-License-Identifier: Apache-2.0
"""The command line: takes out the launcher's own options and keeps every other token as it is.

`passthrough` holds the other tokens in their order and form, byte for byte. `flags` is how these tokens read
as flags: `--x=v` and `--x v` are x with value v, `--x` alone is True, `--nox` is False where x is a flag of
paddle.init. After `--` nothing is read at all.
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import NamedTuple

from paddle_cluster.config.conf_file import CONF_NAMES
from paddle_cluster.config.flags import INIT_FLAGS, LAUNCHER_FLAGS, PSERVER_FLAGS
from paddle_cluster.config.hosts import HostError, listed
from paddle_cluster.config.options import (
    EXPECTED,
    OPTIONS,
    OWN_HOSTS,
    UNNAMED,
    EngineKind,
    Mode,
    Option,
    Saving,
    Wire,
)
from paddle_cluster.config.spelling import near_miss
from paddle_cluster.errors import UsageError

DEFAULT_ENTRY = "train.py"
LARGEST_COUNT = 100_000
_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,99}")

_LONG = {option.name: option for option in OPTIONS}
_SHORT = {option.short: option for option in OPTIONS if option.short}
_KNOWN_FLAGS = INIT_FLAGS | PSERVER_FLAGS
_ESCAPE = " (To pass it to your script, put it after --.)"
_SCRIPTS = (".py", ".sh")


class Flag(NamedTuple):
    """One passed-through flag."""

    name: str
    value: str


@dataclass(frozen=True)
class Arguments:
    """A command line, read but not yet checked against conf.py or any file.

    Attributes:
        package: --job_dispatch_package, or None.
        workspace: --job_workspace, or None. Exactly one of the two is given unless help or version is.
        conf: --conf, or None.
        hosts: --hosts, not yet read, or None: those of conf.py.
        hostfile: --hostfile, or None.
        include, exclude: words of --include and --exclude.
        nnodes: --nnodes, or None: all.
        mode_is_explicit: --mode was given.
        nproc_per_node: --nproc_per_node, or None.
        env, env_files: --env and --env_file in their order, not yet read.
        min_trainers: --min_trainers, or None: every trainer is needed.
        passthrough: tokens for the trainers, UTF-8 with surrogate escapes whatever the locale.
        flags: the flags among them before `--`, in order; a later one wins.
    """

    package: str | None = None
    workspace: str | None = None
    conf: str | None = None
    hosts: tuple[str, ...] | None = None
    engine: EngineKind = EngineKind.SSH
    hostfile: str | None = None
    include: tuple[str, ...] = ()
    exclude: tuple[str, ...] = ()
    nnodes: int | None = None
    entry: str = DEFAULT_ENTRY
    mode: Mode = Mode.V2
    mode_is_explicit: bool = False
    wire: Wire | None = None
    nproc_per_node: int | None = None
    env: tuple[str, ...] = ()
    env_files: tuple[str, ...] = ()
    max_restarts: int = 0
    min_trainers: int | None = None
    detach: bool = False
    json: bool = False
    shard_dirs: tuple[str, ...] = ()
    saving: Saving = UNNAMED
    dry_run: bool = False
    bootstrap: bool = False
    keep_links: bool = False
    accept_new_host_keys: bool = False
    allow_mismatch: bool = False
    help: bool = False
    version: bool = False
    passthrough: tuple[str, ...] = ()
    flags: tuple[Flag, ...] = ()

    def flag(self, name: str) -> str | None:
        """The value of a passed-through flag (the last one given), or None."""
        return dict(self.flags).get(name)


def parse(argv: Sequence[str]) -> Arguments:
    """Reads a command line (without the program's name).

    Raises:
        UsageError: an option of ours is misspelt, repeated, lacks its value or contradicts another.
    """
    ours = argv[: argv.index("--")] if "--" in argv else argv
    after = argv[len(ours) + 1 :]
    if "--help" in ours or "-h" in ours:
        return Arguments(help=True)
    given, rest = _take_own(ours)
    if "version" in given:
        return Arguments(version=True)
    loose = next((run[0] for run in rest if run and not run[0].startswith("-")), "")
    _check_job_options(given, loose)
    if loose.endswith(_SCRIPTS) and "entry" not in given:
        raise UsageError(f"unknown argument {loose!r}: to run it, give --entry={loose}" + _ESCAPE)
    last = {name: values[-1] for name, values in given.items()}
    mode = Mode(last.get("mode", Mode.V2))
    flags = tuple(flag for run in rest for flag in _read_flags(run))
    if mode is not Mode.COLLECTIVE:  # there they mean nothing, and scripts have options of any name
        _refuse_misspelt_flags(flags)
    wire = last.get("wire")
    return Arguments(
        package=last.get("job_dispatch_package"),
        workspace=last.get("job_workspace"),
        conf=last.get("conf"),
        hosts=host_list("hosts", last["hosts"]) if "hosts" in last else None,
        engine=EngineKind(last.get("engine", EngineKind.SSH)),
        hostfile=last.get("hostfile"),
        include=host_list("include", last.get("include", "")),
        exclude=host_list("exclude", last.get("exclude", "")),
        nnodes=_count(last, "nnodes", None, least=1),
        entry=last.get("entry", DEFAULT_ENTRY),
        mode=mode,
        mode_is_explicit="mode" in given,
        wire=Wire(wire) if wire else None,
        nproc_per_node=_count(last, "nproc_per_node", None, least=1),
        env=tuple(_utf8(text) for text in given.get("env", ())),
        env_files=tuple(given.get("env_file", ())),
        max_restarts=_count(last, "max_restarts", 0) or 0,
        min_trainers=_count(last, "min_trainers", None, least=1),
        detach="detach" in given,
        json="json" in given,
        shard_dirs=_split(last.get("shard_dirs", "")),
        saving=_saving(last),
        dry_run="dry_run" in given,
        bootstrap="bootstrap" in given,
        keep_links="keep_links" in given,
        accept_new_host_keys="accept_new_host_keys" in given,
        allow_mismatch="allow_mismatch" in given,
        passthrough=tuple(_utf8(token) for token in [token for run in rest for token in run] + list(after)),
        flags=flags,
    )


def _take_own(tokens: Sequence[str]) -> tuple[dict[str, list[str]], list[list[str]]]:
    """The values of our options by name, and the other tokens in runs that were adjacent on the command line."""
    given: dict[str, list[str]] = {}
    runs: list[list[str]] = [[]]
    position = 0
    option: Option | None = None
    while position < len(tokens):
        token = tokens[position]
        position += 1
        before = option
        option, value = _match(token)
        if option is None:
            if before is not None and "," in before.metavar and not token.startswith("-"):
                listed = f"--{before.name}={given[before.name][-1].rstrip(',')},{token.strip(',')}"
                raise UsageError(
                    f"unknown argument {token!r}. Separate several values with commas and no spaces: {listed}"
                    + _ESCAPE
                )
            _refuse_what_is_ours(token)
            runs[-1].append(token)
            continue
        if option.metavar and value is None and position < len(tokens):
            value = tokens[position]
            position += 1
        if option.name in given and not option.repeats:
            raise UsageError(f"--{option.name} is given twice; give it once")
        given.setdefault(option.name, []).append(_check_value(option, value))
        runs.append([])
    return given, runs


def _match(token: str) -> tuple[Option | None, str | None]:
    if token.startswith("--"):
        name, equals, value = token[2:].partition("=")
        return _LONG.get(name), value if equals else None
    return (_SHORT.get(token[1:]), None) if token.startswith("-") else (None, None)


def _check_value(option: Option, value: str | None) -> str:
    if not option.metavar:
        if value is not None:
            raise UsageError(f"--{option.name} takes no value, got {value!r}")
        return ""
    if not value or value.startswith("--"):
        raise UsageError(f"--{option.name} needs a value: --{option.name}={option.metavar}")
    if option.choices and value not in option.choices:
        raise UsageError(f"--{option.name}: expected one of {', '.join(option.choices)}, got {value!r}")
    return value


def _check_job_options(given: dict[str, list[str]], loose: str) -> None:
    engine = "".join(given.get("engine", ()))
    choice = next((name for name in ("include", "exclude") if name in given), None)
    if choice and engine == EngineKind.KUBERNETES:
        raise UsageError(
            f"--{choice} chooses among hosts, and --engine=kubernetes has as many pods as --nnodes says"
        )
    sources = [f"--{name}" for name in ("hosts", "hostfile") if name in given]
    sources.append(OWN_HOSTS.get(engine, ""))
    if sum(map(bool, sources)) > 1:
        raise UsageError(
            f"{' and '.join(filter(None, sources))} each say which hosts there are; give one of them"
        )
    package, workspace = "job_dispatch_package" in given, "job_workspace" in given
    if package and workspace:
        raise UsageError(
            "--job_dispatch_package and --job_workspace exclude each other: the first sends a directory to "
            "the nodes, the second starts one that is already there; give one of them"
        )
    if not package and not workspace:
        raise UsageError(
            "nothing to run: give --job_dispatch_package=DIR to send a directory to the nodes, "
            "or --job_workspace=DIR to start one that is already there" + _meant(loose)
        )
    quiet = [name for name in ("detach", "dry_run") if name in given]
    if "json" in given and quiet:
        raise UsageError(
            f"--json tells what happens in a job, which --{quiet[0]} does not show: leave one of them out"
        )
    if workspace and "shard_dirs" in given:
        raise UsageError("--shard_dirs says what to send where: it goes with --job_dispatch_package only")
    if "min_trainers" in given and "shard_dirs" in given and given.get("mode") == [Mode.COLLECTIVE.value]:
        raise UsageError(
            "--shard_dirs and --min_trainers exclude each other in --mode=collective: who remains gets a new rank, "
            "and its shards are those of the old one; leave out --shard_dirs, so that every node has all files"
        )


def _meant(word: str) -> str:
    """What to write where a word stands for a directory or a script, or nothing."""
    if not word:
        return ""
    folder, _, script = word.rpartition("/") if word.endswith(_SCRIPTS) else (word, "", "")
    entry = f" --entry={script}" if script not in ("", DEFAULT_ENTRY) else ""
    return f"; for {word!r} that is: -p {folder or '.'}{entry}"


def _count(given: Mapping[str, str], name: str, default: int | None, least: int = 0) -> int | None:
    text = given.get(name)
    if text is None:
        return default
    if not (text.isascii() and text.isdigit()) or not least <= int(text) <= LARGEST_COUNT:
        raise UsageError(f"--{name}: expected a whole number from {least} to {LARGEST_COUNT}, got {text!r}")
    return int(text)


def _saving(given: Mapping[str, str]) -> Saving:
    name = given.get("keep_as", "")
    if "keep_as" in given and not _NAME.fullmatch(name):
        raise UsageError(
            f"--keep_as: expected a name of letters, digits, '.', '_' and '-', such as run7, got {name!r}"
        )
    return Saving(name, _split(given.get("collect", "")))


def _split(text: str) -> tuple[str, ...]:
    return tuple(part for part in text.split(",") if part)


def host_list(option: str, text: str) -> tuple[str, ...]:
    """Split the value of an option into its hosts, with ranges expanded.

    Raises:
        UsageError: a range is wrong.
    """
    try:
        return listed(text) if text else ()
    except HostError as error:
        raise UsageError(f"--{option}: {error}") from error


def _read_flags(run: Sequence[str]) -> Iterator[Flag]:
    """Flags among adjacent tokens; after a bare flag, a token that does not begin with `--` is its value."""
    position = 0
    while position < len(run):
        token = _utf8(run[position])
        position += 1
        if not token.startswith("--"):
            continue
        name, equals, value = token[2:].partition("=")
        if name not in INIT_FLAGS and name.startswith("no") and name[2:] in INIT_FLAGS and not equals:
            name, value = name[2:], "False"
        elif not equals:
            value = "True"
            if position < len(run) and not run[position].startswith("--"):
                value = _utf8(run[position])
                position += 1
        if name in LAUNCHER_FLAGS:
            raise UsageError(
                f"--{name} follows from the nodes, PSERVERS and TRAINERS and cannot be given; "
                "to pass it to your script, put it after --"
            )
        yield Flag(name, value)


def _refuse_what_is_ours(token: str) -> None:
    """An option of ours with a typo, or under the name that it has elsewhere, would reach the trainers in silence."""
    if token[:2] in {f"-{short}" for short in _SHORT if _SHORT[short].metavar}:
        option = _SHORT[token[1]]
        raise UsageError(f"unknown option {token!r}: write -{option.short} {option.metavar}" + _ESCAPE)
    if not token.startswith("-"):
        return
    given = token.partition("=")[0]
    name = given.lstrip("-")
    if name in _KNOWN_FLAGS:
        return
    advice = EXPECTED.get(name)
    conf_name = CONF_NAMES.get(name.upper())
    if advice is None and conf_name is not None:
        advice = f"give --{conf_name.flag}" if conf_name.flag else f"give {name.upper()} in conf.py"
    if advice is not None:
        raise UsageError(f"unknown option {given}: {advice}" + _ESCAPE)
    near = next((option.name for option in OPTIONS if near_miss(name, option.name)), None)
    if near and token.startswith("--"):
        raise UsageError(f"unknown option {given}: did you mean --{near}?" + _ESCAPE)


def _refuse_misspelt_flags(flags: Sequence[Flag]) -> None:
    """A flag of paddle with a typo would reach the trainers as an argument, and change nothing."""
    for name in (flag.name for flag in flags if flag.name not in _KNOWN_FLAGS):
        near = next((known for known in sorted(_KNOWN_FLAGS) if near_miss(name, known)), None)
        if near:
            raise UsageError(f"--{name} is no flag of paddle: did you mean --{near}?" + _ESCAPE)


def _utf8(token: str) -> str:
    """The token's bytes as UTF-8 with surrogate escapes: they survive a launcher in another locale."""
    return os.fsencode(token).decode("utf-8", "surrogateescape")
