# SPDX-License-Identifier: Apache-2.0
"""Refuses arguments that neither the launcher nor the script reads: mistakes with which a job would run differently."""

from __future__ import annotations

import ast
import itertools
import sys
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

from paddle_cluster.config import shell_scripts, workspace
from paddle_cluster.config.advice import NOT_OURS, of_script
from paddle_cluster.config.arguments import ASSIGNMENT, ESCAPE, KNOWN_FLAGS, OF_CONF
from paddle_cluster.config.entry import SCRIPTS, Entry
from paddle_cluster.config.options import LONG, Mode
from paddle_cluster.config.values import near_miss, nearest
from paddle_cluster.system.installation import PROGRAM
from paddle_node.contract.classes import dataclass, regex, replace

_PYTHON = regex(r"(?:.*/)?python[\d.]*")
_ADDS = "add_argument"
_OF_PORTS = {"port", "ports_num", "ports_num_for_sparse"}
_READS_WORDS = regex(rb"argv\[1\]|add_subparsers")
_OPTION = regex(r"-(?![\d.]*$)")  # neither a negative number nor a hyphen alone
_OPTION_STRING = regex(rb"[\"'](-[^\"'\s]*)")
_SHORT_NUMBER = regex(r"-([A-Za-z])([0-9]+)")
_READS_ANY = regex(  # a script that may read options which it does not name
    rb"(?<!len\(sys\.)(?:\b|_)argv\b(?!\[0\]|\[1\](?!\[|\.))|parse_known|REMAINDER|\.\.\.[\"']|parents=|prefix_chars|Hf\w*Pars"
    rb"|add_(?!argument\b|argument_group\b)\w*arg|\b(?:getopt|optparse|runpy|unittest|importlib|__import__)\b"
    rb"|\b(?:fileinput|doctest|distutils|imp|pkgutil|sys\.path)\b|(?<!\.)\b(?:exec|eval)\(|[Ff]lags|FLAGS|CLI|cli\b|\bapp\.run\b"
    rb"|distributed\.(?:run|launch)\b|commands\.|run_tests|test\.main|/proc/|paddle|PADDLE_INIT"
)
_PACKAGES = """
    numpy torchvision torchaudio torchmetrics pandas scipy sklearn matplotlib seaborn PIL cv2 yaml tqdm transformers
    datasets tokenizers safetensors peft timm einops wandb tensorboard h5py requests
"""
_WITHOUT_ARGUMENTS = frozenset((*sys.stdlib_module_names, *workspace.FRAMEWORKS, *_PACKAGES.split()))
"""Packages that do not read the command line of a script that imports them."""


def unread(tokens: Sequence[str], entry: Entry, package: Path, mode: Mode, nodes: int = 0) -> str:
    """Return the corrections of arguments that a script certainly does not read; "" if there are none.

    Args:
        nodes: the number of the job's nodes; 0 if unknown.
    """
    imported, files = workspace.sources(entry, package) if tokens and mode is not Mode.V1 else ([], {})
    if mode is Mode.COLLECTIVE and shell_scripts.reads_no_arguments(entry, package):
        files = {package / entry.path: b""}
    if not files or not _WITHOUT_ARGUMENTS.issuperset({*imported} - {"paddle"}):
        return ""
    script = _read(files, entry, package)
    ours = OF_CONF - _OF_PORTS if mode is Mode.COLLECTIVE else KNOWN_FLAGS
    script = replace(
        script, nodes=nodes, flags=frozenset(f"--{no}{name}" for name in ours for no in ("", "no"))
    )
    lines = [f"unknown {what}" for what in _problems(tokens, script)]
    return "\n".join([*lines[:-1], f"{lines[-1]}{ESCAPE}"]) if lines else ""


def repeated(tokens: Sequence[str], entry: Entry) -> str:
    """Return the correction of arguments after -- that begin with Python and the entry itself; "" for others."""
    python, script, *_ = (*tokens, "", "")
    if not (_PYTHON.fullmatch(python) and entry.path.endswith(".py")):
        return ""
    is_same = script.rpartition("/")[2] == entry.path.rpartition("/")[2]
    return f"after -- come only the script's arguments: leave out {python} {script}" * is_same


@dataclass(frozen=True)
class _Script:
    """What the source of a script, and of its modules in the workspace, tells about the arguments that it reads.

    Attributes:
        reads_any: whether it may read arguments that it does not name.
        options: its strings that begin with a hyphen.
        flags: options that other processes of the job read.
        nodes: the number of the job's nodes; 0 if unknown.
        takes_words: whether it reads arguments that are not options.
    """

    entry: Entry
    package: Path
    source: bytes
    reads_any: bool
    options: frozenset[str]
    takes_words: bool
    flags: frozenset[str] = frozenset()
    nodes: int = 0

    def reads(self, option: str) -> bool:
        """Return whether it may read an option, also abbreviated or with a value attached to its letter."""
        short = option[:2] if option[1] != "-" else option
        names = (option, option.replace("--no-", "--", 1))
        return (
            option in self.flags
            or short in self.options
            or any(one.startswith(names) for one in self.options)
        )


def _read(files: Mapping[Path, bytes], entry: Entry, package: Path) -> _Script:
    source = b"\n".join(files.values())
    parsed = [ast.parse(text) for text in files.values() if _ADDS.encode() in text]
    nodes = [node for tree in parsed for node in ast.walk(tree)]
    mentions = {one for one in nodes if _ADDS in [getattr(one, name, "") for name in ("attr", "id", "value")]}
    calls = [node for node in nodes if isinstance(node, ast.Call) and node.func in mentions]
    names = [getattr(one, "value", None) for call in calls for one in call.args]
    texts = [name for name in names if isinstance(name, str)]
    is_unclear = len(texts) < len(names) or len(calls) < len(mentions) or bool(_READS_ANY.search(source))
    options = frozenset(one.decode("utf-8", "replace") for one in _OPTION_STRING.findall(source))
    are_options = all(call.args for call in calls) and all(text.startswith("-") for text in texts)
    has_words = not are_options or _READS_WORDS.search(source) is not None
    return _Script(entry, package, source, is_unclear, options, has_words)


def _problems(tokens: Sequence[str], script: _Script) -> Iterator[str]:
    """Yield each argument that a script does not read, and its correction."""
    words_expected = script.takes_words or script.reads_any
    needs_value = False
    for at, token in enumerate(tokens):
        joined = _SHORT_NUMBER.fullmatch(token)
        given, equals, value = (f"-{joined[1]}", "=", joined[2]) if joined else token.partition("=")
        is_value = not _OPTION.match(token) or (needs_value and " " in given)  # which argparse takes, too
        needs_value = not is_value and not equals and script.reads(given)
        if is_value:
            if not words_expected:
                words = [*itertools.takewhile(lambda one: not _OPTION.match(one), tokens[at:])]
                yield f"argument {' '.join(words)!r}: {_of_words(words, script)}"
            words_expected = True
            continue
        words_expected = script.takes_words or script.reads_any or not equals
        following = "" if equals else next(iter(tokens[at + 1 : at + 2]), "")
        value = value or (following if not _OPTION.match(following) else "")
        if not script.reads(given) and (advice := _of_option(given, value, script)):
            yield f"option {given}: {advice}"


def _of_option(given: str, value: str, script: _Script) -> str:
    """Return the correction of an option that a script does not name; "" if it may read it nevertheless."""
    name = given.lstrip("-").replace("-", "_")
    is_letter = given[:2] == "--" and len(name) == 1
    if name in LONG and given[1] != "-" and not (script.reads_any and name.encode() in script.source):
        return f"write two hyphens: --{name}" + f"={value or '...'}" * bool(LONG[name].metavar)
    if script.reads_any:
        return ""
    if len(given.split()) > 1:
        return f"the quotes make it a single argument; remove them: {given}"
    if name in NOT_OURS and not is_letter:
        return of_script(name, value, script.nodes)
    if meant := next((one for one in NOT_OURS if len(one) > 3 and near_miss(name, one)), ""):
        return of_script(meant, value, script.nodes)
    near = nearest(given, [*(f"--{one}" for one in LONG), *script.options]) if len(name) > 2 else None
    if near:
        return f"did you mean {near}?"
    return "" if b"argv[1]" in script.source else _nobody(script)


def _of_words(words: Sequence[str], script: _Script) -> str:
    """Return the correction of adjacent arguments that are not options."""
    files = [word.rpartition("/")[2] for word in words if word.endswith(SCRIPTS)]
    if script.entry.path.rpartition("/")[2] in files:
        return f"{script.entry.text} is already the entry; leave it out"
    if files:
        return f"the entry is {script.entry.text}; to run the other file, give --entry={files[0]} instead"
    if ASSIGNMENT.match(words[0]):
        return f"to set a variable, give --env={words[0]}"
    return _nobody(script)


def _nobody(script: _Script) -> str:
    return f"neither the launcher nor {script.entry.text} reads it; `{PROGRAM} run --help` lists the launcher's options"
