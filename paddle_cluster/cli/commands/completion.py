# SPDX-License-Identifier: Apache-2.0
"""`paddle.py completion bash|zsh`: prints the script that completes paddle.py in a shell.

The script runs `paddle.py completion words -- WORD...` to get the candidates.
"""

from __future__ import annotations

import os
import shlex
from collections.abc import Callable, Iterator, Mapping, Sequence
from enum import StrEnum
from pathlib import Path

from paddle_cluster.cli import manual
from paddle_cluster.cli.command_arguments import options
from paddle_cluster.cli.commands import COMMANDS, JOB, usage
from paddle_cluster.config.arguments import LAUNCHER_FLAGS
from paddle_cluster.config.options import OPTIONS, Option
from paddle_cluster.control import store
from paddle_cluster.errors import ExitCode, LauncherError, UsageError
from paddle_cluster.screen.writer import answer
from paddle_cluster.system import installation, state_dir
from paddle_cluster.system.installation import COMMAND, PROGRAM
from paddle_node.contract.classes import NamedTuple
from paddle_node.contract.flags import INIT_FLAGS

USAGE = f"""\
{PROGRAM} completion bash|zsh

Prints a script for tab completion of {PROGRAM}. In ~/.bashrc, after
your aliases:

  source <({COMMAND} completion bash)

or in ~/.zshrc, after compinit:

  source <({COMMAND} completion zsh)
"""
SHELLS = ("bash", "zsh")
LISTED = 200  # files in a directory


def run(argv: Sequence[str]) -> ExitCode:
    """Print a shell's completion script, or the completions of a command line.

    Args:
        argv: the name of a shell; or `words`, `--` and the words after paddle.py, the last one incomplete.

    Raises:
        UsageError: the arguments are neither.
    """
    if list(argv[:2]) == ["words", "--"]:
        offer = offers(argv[2:], os.environ)
        answer("\n".join([offer.kind, *offer.words]))
        return ExitCode.DONE
    if len(argv) != 1 or argv[0] not in SHELLS:
        got = " ".join(argv) or "nothing"
        raise UsageError(
            f"completion: expected bash or zsh, got {got}. For example: source <({COMMAND} completion bash)"
        )
    answer(script(argv[0]))
    return ExitCode.DONE


class OfferKind(StrEnum):
    """The source of completion candidates: this module, or the shell's lists of files or directories."""

    WORDS = "words"
    FILES = "files"
    DIRS = "dirs"


class Offer(NamedTuple):
    """The candidates for the last word; each includes the part already typed, such as `--option=`."""

    kind: OfferKind
    words: tuple[str, ...] = ()


_OF_A_JOB = ("status", "attach", "logs", "stop", "checkpoints", "dashboard")
_RUNNING_ONLY = ("attach", "stop")


class Line(NamedTuple):
    """A command line in the process of being typed.

    Attributes:
        before: the complete words before the last one.
        last: the word being typed, possibly empty.
    """

    before: tuple[str, ...]
    last: str
    environ: Mapping[str, str]


def offers(words: Sequence[str], environ: Mapping[str, str]) -> Offer:
    """Return the completion candidates for the last word of a command line.

    Args:
        words: the words after `paddle.py`; the last one is being typed.
    """
    line = Line(tuple(words[:-1]), words[-1] if words else "", environ)
    command = line.before[0] if line.before else ""
    if command == JOB:
        line, command = line._replace(before=line.before[1:]), ""
    if "--" in line.before:
        return Offer(OfferKind.FILES)
    if command in COMMANDS:
        return _after_command(command, line)
    option, prefix = _open_option(line)
    if option is not None:
        return _matching(_value(option, line), prefix, line.last)
    if line.last.startswith("-"):
        return _matching(Offer(OfferKind.WORDS, tuple(_options(line))), "", line.last)
    return (
        _matching(Offer(OfferKind.WORDS, tuple(COMMANDS)), "", line.last)
        if not words[:-1]
        else Offer(OfferKind.FILES)
    )


def _after_command(command: str, line: Line) -> Offer:
    option, prefix = _open_option(line)
    if option is not None:
        return _matching(_value(option, line), prefix, line.last)
    if command == "init" and not line.last.startswith("-"):
        return Offer(OfferKind.DIRS)
    if command in _OF_A_JOB and not line.last.startswith("-"):
        words = _jobs(line, running=command in _RUNNING_ONLY)
    else:
        known = options(usage(command))
        words = [f"{name}=" if known[name] and name.startswith("--") else name for name in known]
        words += _topics() if command == "help" else SHELLS if command == "completion" else ()
    return _matching(Offer(OfferKind.WORDS, tuple(words)), "", line.last)


def _open_option(line: Line) -> tuple[Option | None, str]:
    """Return the option whose value is being typed, and the part of the last word before the value."""
    name, equals, _ = line.last.partition("=")
    if equals and name in _KNOWN:
        return _KNOWN[name], f"{name}="
    option = _KNOWN.get(line.before[-1] if line.before else "")
    return (option, "") if option is not None and option.metavar else (None, "")


def _options(line: Line) -> Iterator[str]:
    """Yield the options that can still be given, then, once a letter is typed, flags of paddle.init."""
    given = {word.partition("=")[0] for word in line.before}
    for option in OPTIONS:
        if option.repeats or f"--{option.name}" not in given:
            yield option.written.partition("=")[0] + ("=" if option.metavar else "")
    if len(line.last) > len("--"):
        yield from (f"--{name}=" for name in sorted(INIT_FLAGS.keys() - LAUNCHER_FLAGS))


def _matching(offer: Offer, prefix: str, last: str) -> Offer:
    words = (prefix + word for word in offer.words)
    return Offer(offer.kind, tuple(word for word in words if word.startswith(last)))


# Values


def _jobs(line: Line, running: bool = False) -> list[str]:
    try:
        found = store.all_jobs(state_dir.places(line.environ))
    except (OSError, LauncherError):
        return []
    shown = [job for job in found if not (running and job.ended)]
    return list(dict.fromkeys(job.record.name or job.job_id for job in shown))


def _topics() -> list[str]:
    try:
        return [page.topic for page in manual.pages()]
    except LauncherError:
        return []


def _in_package(line: Line, dirs_only: bool) -> Offer:
    """Return the files of the workspace that this command line dispatches."""
    package = _value_of(line, "--job_dispatch_package", "-p")
    written = line.last.partition("=")[2] if line.last.startswith("--") else line.last
    folder = written.rpartition("/")[0]
    if package is None:
        return Offer(OfferKind.WORDS)
    try:
        found = sorted(os.scandir(Path(package).expanduser() / folder), key=lambda entry: entry.name)
        words = [
            f"{folder}/{entry.name}".lstrip("/") + ("/" if entry.is_dir() else "")
            for entry in found[:LISTED]
            if (entry.is_dir() or not dirs_only) and not entry.name.startswith((".", "__"))
        ]
    except OSError:
        return Offer(OfferKind.WORDS)
    return Offer(OfferKind.WORDS, tuple(words))


def _value_of(line: Line, name: str, short: str) -> str | None:
    for index, word in enumerate(line.before):
        if word in (name, short) and index + 1 < len(line.before):
            return line.before[index + 1]
        if word.startswith(f"{name}="):
            return word.partition("=")[2]
    return None


def _value(option: Option, line: Line) -> Offer:
    """Return the values of an option: from the table below, or else from its choices or the type of its value."""
    if option.name in _OWN:
        return _OWN[option.name](line)
    kind = {"FILE": OfferKind.FILES, "DIR": OfferKind.DIRS}.get(option.metavar, OfferKind.WORDS)
    return Offer(kind, option.choices)


_OWN: Mapping[str, Callable[[Line], Offer]] = {
    "job_workspace": lambda line: Offer(OfferKind.WORDS, tuple(_jobs(line))),
    "entry": lambda line: _in_package(line, dirs_only=False),
    "shard_dirs": lambda line: _in_package(line, dirs_only=True),
    "env": lambda line: Offer(OfferKind.WORDS, tuple(sorted(line.environ))),
}
_PROC = Option("proc", "", "NAME", choices=("launcher", "pserver", "trainer"))  # of logs
_KNOWN = {f"--{one.name}": one for one in (*OPTIONS, _PROC)} | {
    f"-{one.short}": one for one in OPTIONS if one.short
}


_BASH = r"""# Completion of paddle.py for bash. Load it after your aliases: source <(python paddle.py completion bash)

# $1: index of the first word after paddle.py
_paddle_py_complete() {
    local -a words=() replies=()
    local i word cur lead= joins= kind value
    for ((i = $1; i <= COMP_CWORD; i++)); do  # bash parts --conf=x at the sign
        word=${COMP_WORDS[i]}
        if [[ ($word == = || $joins) && ${#words[@]} -gt 0 ]]; then
            words[${#words[@]} - 1]+=$word
        else
            words+=("$word")
        fi
        joins=
        if [[ $word == = ]]; then joins=1; fi
    done
    cur=${words[${#words[@]} - 1]}
    mapfile -t replies < <(@LAUNCHER@ completion words -- "${words[@]}" 2> /dev/null)
    kind=${replies[0]}
    value=$cur
    if [[ $cur == --*=* ]]; then
        value=${cur#*=}
        lead=${cur%%=*}=
    fi
    COMPREPLY=()
    case $kind in
        files) mapfile -t COMPREPLY < <(compgen -f -- "$value") ;;
        dirs) mapfile -t COMPREPLY < <(compgen -d -- "$value") ;;
        *) COMPREPLY=("${replies[@]:1}") ;;
    esac
    if [[ $kind == words ]]; then
        if [[ ${#COMPREPLY[@]} -eq 1 && ${COMPREPLY[0]} == *[=/] ]]; then
            compopt -o nospace 2> /dev/null
        fi
        if [[ $lead && $COMP_WORDBREAKS == *=* ]]; then COMPREPLY=("${COMPREPLY[@]#"$lead"}"); fi
    else
        compopt -o filenames 2> /dev/null
        if [[ $lead && $COMP_WORDBREAKS != *=* ]]; then COMPREPLY=("${COMPREPLY[@]/#/"$lead"}"); fi
    fi
}

_paddle_py() { _paddle_py_complete 1; }

# python paddle.py ...; every other use of python is completed as before
_paddle_py_python() {
    local i=1
    while ((i < COMP_CWORD)) && [[ ${COMP_WORDS[i]} == -* ]]; do ((i++)); done
    if ((i < COMP_CWORD)) && [[ ${COMP_WORDS[i]##*/} == paddle.py ]]; then
        _paddle_py_complete $((i + 1))
    elif [[ ${_paddle_py_before[${1##*/}]} ]]; then
        "${_paddle_py_before[${1##*/}]}" "$@"
    else
        COMPREPLY=()
        compopt -o bashdefault -o default 2> /dev/null
    fi
}

declare -gA _paddle_py_before
_paddle_py_register() {
    local name spec
    complete -F _paddle_py paddle.py paddle-cluster
    for name in python python3 python3.11 python3.12 python3.13 python3.14; do
        spec=$(complete -p "$name" 2> /dev/null)
        if [[ $spec =~ -F\ ([^ ]+) && ${BASH_REMATCH[1]} != _paddle_py_python ]]; then
            _paddle_py_before[$name]=${BASH_REMATCH[1]}
        fi
        complete -F _paddle_py_python "$name"
    done
    for name in "${!BASH_ALIASES[@]}"; do
        if [[ ${BASH_ALIASES[$name]} == *paddle.py* ]]; then complete -F _paddle_py "$name"; fi
    done
}
_paddle_py_register
"""

_ZSH = r"""#compdef paddle.py paddle-cluster
# Completion of paddle.py for zsh. Load it after compinit with: source <(python paddle.py completion zsh)

# $1: index of the first word after paddle.py
_paddle_py_complete() {
    local -a asked replies open
    local kind
    asked=("${(@)words[$1,CURRENT]}")
    replies=("${(@f)$(@LAUNCHER@ completion words -- "${asked[@]}" 2> /dev/null)}")
    kind=$replies[1]
    replies=("${(@)replies[2,-1]}")
    if [[ $PREFIX == --*=* ]]; then
        replies=("${(@)replies#*=}")
        compset -P 1 '*='
    fi
    case $kind in
        files) _files ;;
        dirs) _files -/ ;;
        *)
            open=("${(@M)replies:#*[=/]}")
            replies=("${(@)replies:#*[=/]}")
            (( $#open )) && compadd -Q -S '' -a open
            (( $#replies )) && compadd -Q -a replies
            ;;
    esac
}

_paddle_py() { _paddle_py_complete 2 }

# python paddle.py ...; every other use of python is completed as before. Aliases are expanded by zsh itself.
_paddle_py_python() {
    local -i i=2
    while (( i < CURRENT )) && [[ $words[i] == -* ]]; do (( i++ )); done
    if (( i < CURRENT )) && [[ ${words[i]:t} == paddle.py ]]; then
        _paddle_py_complete $(( i + 1 ))
    elif [[ -n $_paddle_py_before[${service:-python}] ]]; then
        $_paddle_py_before[${service:-python}] "$@"
    else
        _default
    fi
}

typeset -gA _paddle_py_before
_paddle_py_register() {
    local name
    for name in python python3 python3.11 python3.12 python3.13 python3.14; do
        if [[ -n ${_comps[$name]-} && $_comps[$name] != _paddle_py_python ]]; then
            _paddle_py_before[$name]=$_comps[$name]
        fi
        compdef _paddle_py_python $name
    done
    compdef _paddle_py paddle.py paddle-cluster
}
_paddle_py_register
"""

_TEXTS = {"bash": _BASH, "zsh": _ZSH}


def script(shell: str) -> str:
    """Return the completion script for a shell; it runs this launcher with this Python."""
    return _TEXTS[shell].replace("@LAUNCHER@", shlex.join(installation.argv()))
