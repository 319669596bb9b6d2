# SPDX-License-Identifier: Apache-2.0
"""Parses the command line: consumes the launcher's options and passes all other arguments through unchanged.

`passthrough` contains the other tokens byte for byte, in order. `flags` interprets these tokens as flags: `--x=v` and
`--x v` set x to v, a lone `--x` is True, and `--nox` is False if x is a flag of paddle.init. Tokens after `--` are not
interpreted.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from paddle_cluster.config import entry
from paddle_cluster.config.options import CONF_NAMES, LONG, OPTIONS, Mode, Option
from paddle_cluster.config.values import near_miss, nearest, utf8
from paddle_cluster.errors import UsageError
from paddle_node.contract.classes import NamedTuple, dataclass, field, regex
from paddle_node.contract.flags import INIT_FLAGS, PSERVER_FLAGS, value_of
from paddle_node.contract.flags import Flag as PaddleFlag

_SHORT = {option.short: option for option in OPTIONS if option.short}
OF_CONF = {row.flag for row in CONF_NAMES.values() if row.flag}  # read with the names in conf.py
KNOWN_FLAGS = INIT_FLAGS.keys() | PSERVER_FLAGS.keys()
LAUNCHER_FLAGS = frozenset({"trainer_id", "pservers", "num_gradient_servers"})
"""Flags whose values follow from the plan; users must not set them."""
OF_JOBS = ("-p", "-j", "--job_dispatch_package", "--job_workspace")
ESCAPE = " (To pass it to your script, put it after --.)"
_OF_SCRIPTS = ("name", "mode")  # options that many scripts have, too
_DASHES = tuple("\u2010\u2011\u2012\u2013\u2014\u2212")  # typographic ones, from a document or a chat
ASSIGNMENT = regex(r"[A-Z][A-Z0-9_]*=")
_SEVERAL = regex(r"\w+=(?!\w+=)[^, ]*(?:[, ]+[A-Z][A-Z0-9_]*=[^, ]*)+")
_BOOLEANS = ("true", "false", "yes", "no", "0", "1")
_PACKAGE = regex(r"(--(?:p|dir|path|project|workspace|source))(?:=(.*))?")
_FIRST = ("run", "doctor")  # commands that take the options of a job


class Flag(NamedTuple):
    """A flag of the user's script, which is passed through to the trainers."""

    name: str
    value: str


@dataclass(frozen=True)
class Arguments:
    """A parsed command line, not yet checked against conf.py or other files.

    Attributes:
        given: the options that were given, by name, with their parsed values.
        passthrough: tokens for the trainers, UTF-8 with surrogate escapes in any locale.
        before_dashes: number of tokens in `passthrough` that stand before `--`.
        flags: the flags among these tokens before `--`, in order; the last one takes precedence.
    """

    given: Mapping[str, Any] = field(default_factory=dict)
    passthrough: tuple[str, ...] = ()
    flags: tuple[Flag, ...] = ()
    before_dashes: int = 0

    def __getitem__(self, name: str) -> Any:
        """Return an option's value, or its default."""
        return self.given[name] if name in self.given else LONG[name].absent_value

    def flag(self, name: str) -> str | None:
        """Return the last value of a passed-through flag as text, or None if it is not given."""
        return dict(self.flags).get(name)


def parse(argv: Sequence[str]) -> Arguments:
    """Parse a command line (without the program's name).

    Raises:
        UsageError: an option of the launcher is misspelled, repeated, lacks its value or contradicts another.
    """
    ours = argv[: argv.index("--")] if "--" in argv else argv
    after = argv[len(ours) + 1 :]
    if "--help" in ours or "-h" in ours:
        return Arguments({"help": True})
    texts, rest = _take_own(ours)
    if "version" in texts or "-V" in ours[:1]:
        return Arguments({"version": True})
    loose = next((run[0] for run in rest if run and not run[0].startswith("-")), "")
    _check_job_options(texts, loose, [token for run in rest for token in run])
    given = read_options(texts)
    typed = () if "json" in texts else texts.get("env", ())  # a program, such as our API, means what it gives
    for text in filter(_SEVERAL.fullmatch, typed):  # whose values may be secret
        names = [one.partition("=")[0] for one in text.replace(",", " ").split()]
        raise UsageError(
            f"--env sets one variable: give {' '.join(f'--env={name}=VALUE' for name in names)}. If all of it is the "
            f"value of {names[0]}, export {names[0]} and give --env={names[0]}, or write it into an --env_file"
        )
    flags = tuple(flag for run in rest for flag in _read_flags(run))
    if (
        given.get("mode") is not Mode.COLLECTIVE
    ):  # these flags mean nothing there, and scripts have options of any name
        _check_flags(flags, checks_values=given.get("mode") in (None, Mode.V2))
    before = [token for run in rest for token in run]
    return Arguments(given, tuple(map(utf8, before + list(after))), flags, len(before))


def read_options(texts: Mapping[str, Sequence[str]]) -> dict[str, Any]:
    """Convert the texts of options to typed values.

    Raises:
        UsageError: a value is invalid, or two options cannot be combined.
    """
    words = {f"--{name}" for name in texts} | {
        f"--{name}={one}" for name, many in texts.items() for one in many
    }
    for name in texts:
        for others, why in LONG[name].against.items():
            if words.issuperset(others.split()):
                raise UsageError(f"--{name} and {others.replace(' ', ' with ')} {why}")
    return {name: _read(LONG[name], many) for name, many in texts.items()}


def _read(option: Option, texts: Sequence[str]) -> Any:
    try:
        found = [(option.split or option.read)(one) for one in texts] if option.metavar else [True]
    except ValueError as error:
        raise UsageError(f"--{option.name}: {error}{_advice(option, texts[-1])}{_escape(option)}") from error
    return tuple(found) if option.repeats else found[-1]


def _escape(option: Option) -> str:
    return ESCAPE * (option.name in _OF_SCRIPTS)


def _advice(option: Option, text: str) -> str:
    """Return advice for a value that other launchers accept, or ""."""
    from paddle_cluster.config.advice import WRONG_VALUES  # a correct command line needs no advice

    advice = (
        f"; {advice.format(*match.groups())}"
        for name, values, advice in WRONG_VALUES
        if name == option.name and (match := values.fullmatch(text))
    )
    return next(advice, "")


def _take_own(tokens: Sequence[str]) -> tuple[dict[str, list[str]], list[list[str]]]:
    """Return the launcher's options as name -> text, and the other tokens as runs of adjacent tokens."""
    given: dict[str, list[str]] = {}
    runs: list[list[str]] = [[]]
    engine = next((one for one in LONG["engine"].choices if f"--engine={one}" in "=".join(tokens)), "")
    problems: list[str] = []
    position = 0
    option: Option | None = None
    while position < len(tokens):
        token = tokens[position]
        position += 1
        before = option
        option, value = _match(token)
        _check_spaces(token, option, value, tokens[position : position + 2])
        if option is None:
            if token.startswith(_DASHES):
                raise UsageError(
                    f"unknown argument {token!r}: it begins with the dash U+{ord(token[0]):04X}; write hyphens: "
                    f"--{token.lstrip(''.join(_DASHES) + '-')}" + ESCAPE
                )
            is_separate = position == 1 or before is not None or "=" in tokens[position - 2]
            if is_separate and token[:1].isspace() and token.strip()[:1] in ("", "-"):
                raise UsageError(
                    f"unknown argument {token!r}, which begins with white space: remove the space after a backslash at "
                    "the end of a line of the command"
                )
            if before is not None and not before.metavar and token.lower() in _BOOLEANS:
                raise UsageError(f"--{before.name} takes no value, got {token!r}; omit one or both" + ESCAPE)
            if before is not None and token in _FIRST:
                raise UsageError(f"unknown argument {token!r}; the command must come first" + ESCAPE)
            if (
                before is not None
                and "," in before.metavar
                and not token.startswith("-")
                and "=" not in token
            ):
                last = given[before.name][-1]
                joined = f"--{before.name}={last.rstrip(',')},{token.strip(',')}"
                raise UsageError(
                    f"unknown argument {token!r}. Separate several values with commas and no spaces: {joined}"
                    + ESCAPE * (not last.endswith(",") and not token.startswith(","))
                )
            if before is not None and before.name == "env" and ASSIGNMENT.match(token):
                raise UsageError(
                    f"unknown argument; repeat the option for each variable: --env={token}" + ESCAPE
                )
            if problem := _unknown_option(token, tokens[position : position + 1], engine, tokens):
                problems.append(problem)
            runs[-1].append(token)
            continue
        if option.metavar and value is None and position < len(tokens):
            value = tokens[position]
            position += 1
        if option.name in given and not option.repeats:
            raise UsageError(f"--{option.name} is given twice; give it only once" + ESCAPE)
        given.setdefault(option.name, []).append(_check_value(option, value))
        runs.append([])
    if problems:
        raise UsageError("\n".join([*problems[:-1], problems[-1] + ESCAPE]))
    return given, runs


def _check_spaces(token: str, option: Option | None, value: str | None, following: Sequence[str]) -> None:
    """Reject `--option = value`, `--option =value` and, of the launcher's options, `--option= value`."""
    first, second = [*following, "", ""][:2]
    is_before = (
        token.startswith("-")
        and "=" not in token
        and first.startswith("=")
        and first[1:2] != "="
        and first + second[:1] not in ("=", "=-")
    )
    is_after = option is not None and value == "" and bool(first) and not first.startswith("-")
    if is_before and option is not None and not option.metavar:
        raise UsageError(f"--{option.name} takes no value; omit {first + second!r}")
    if is_before or is_after:
        name = f"--{option.name}" if option else token
        meant = (first[1:] or second) if is_before else first
        meant = option.metavar if option and option.name == "env" else meant  # which may be secret
        raise UsageError(
            f"{name}: write no spaces around =: {name}={meant}{ESCAPE if option is None else ''}"
        )


def _match(token: str) -> tuple[Option | None, str | None]:
    if token.startswith("--"):
        name, equals, value = token[2:].partition("=")
        return LONG.get(name), value if equals else None
    return (_SHORT.get(token[1:]), None) if token.startswith("-") else (None, None)


def _check_value(option: Option, value: str | None) -> str:
    if not option.metavar:
        if value is not None:
            raise UsageError(f"--{option.name} takes no value, got {value!r}")
        return ""
    if value == "":
        raise UsageError(
            f"--{option.name} is empty: --{option.name}={option.metavar}, without spaces; if its value is a "
            "variable, that is not set"
        )
    if not value or value.startswith("--"):
        raise UsageError(f"--{option.name} needs a value: --{option.name}={option.metavar}")
    if option.choices and value not in option.choices:
        word = value.lower()
        from paddle_cluster.config.advice import SYNONYMS

        named = (one for names, one in SYNONYMS.items() if word in names.split() and one in option.choices)
        suggestion = word if word in option.choices else next(named, nearest(value, option.choices))
        advice = f"; did you mean --{option.name}={suggestion}?" if suggestion else _advice(option, value)
        raise UsageError(
            f"--{option.name}: expected one of {', '.join(option.choices)}, got {value!r}{advice}{_escape(option)}"
        )
    return value


def _check_job_options(given: Mapping[str, list[str]], loose: str, rest: Sequence[str]) -> None:
    if "job_dispatch_package" not in given and "job_workspace" not in given:
        for token, following in itertools.pairwise((*rest, "")):
            if token in ("-f", "--file") and following.endswith((".yaml", ".yml", ".json", ".toml")):
                raise UsageError(
                    f"unknown option {token}: options, not a file, describe a job, such as -p DIR --entry=FILE; "
                    "conf.py lists its hosts"
                )
            if match := _PACKAGE.fullmatch(token):
                meant = f"-p {match[2] or following or 'DIR'}"
                raise UsageError(f"unknown option {match[1]}: to send a directory to the nodes, give {meant}")
        raise UsageError(
            "nothing to run: give --job_dispatch_package=DIR to send a directory to the nodes, "
            "or --job_workspace=DIR to run one that is already there"
        )
    if loose.endswith(entry.SCRIPTS) and "entry" not in given:
        raise UsageError(f"unknown argument {loose!r}; to run it, give --entry={loose}" + ESCAPE)


def _read_flags(run: Sequence[str]) -> Iterator[Flag]:
    """Yield the flags among adjacent tokens; after a bare flag, a token that does not begin with `--` is its value."""
    position = 0
    while position < len(run):
        token = utf8(run[position])
        position += 1
        if not token.startswith("--"):
            continue
        name, equals, value = token[2:].partition("=")
        if name not in INIT_FLAGS and name.startswith("no") and name[2:] in INIT_FLAGS and not equals:
            name, value = name[2:], "False"
        elif not equals:
            value = "True"
            if position < len(run) and not run[position].startswith("--"):
                value = utf8(run[position])
                position += 1
        if name in LAUNCHER_FLAGS:
            raise UsageError(
                f"--{name} is derived from the nodes, PSERVERS and TRAINERS and cannot be set; "
                f"your script can read it from PADDLE_INIT_{name.upper()}"
            )
        yield Flag(name, value)


def _unknown_option(token: str, following: Sequence[str], engine: str, tokens: Sequence[str]) -> str:
    """Return why a token is a misspelled option or another launcher's, which must not go to the trainers; or ""."""
    if token[:2] in {f"-{short}" for short in _SHORT if _SHORT[short].metavar}:
        option = _SHORT[token[1]]
        return f"unknown option {token!r}; write -{option.short} {option.metavar}"
    if not token.startswith("-"):
        return ""
    given, equals, value = token.partition("=")
    name = given.lstrip("-")
    if name in KNOWN_FLAGS:
        return ""
    from paddle_cluster.config.advice import EXPECTED, OF_ENGINE, filled, nodes_on

    if not equals and following and not following[0].startswith("-"):
        value = following[0]
    plain = "" if token[:2] == "--" and len(name) == 1 else name.replace("-", "_")
    advice = OF_ENGINE.get(engine, {}).get(plain) or EXPECTED.get(plain)
    advice = advice and filled(advice, value, nodes_on(tokens))
    conf_name = CONF_NAMES.get(name.upper())
    if advice is None and conf_name is not None and name in LONG:
        advice = f"write two hyphens: -{token}"
    elif advice is None and conf_name is not None:
        advice = f"give --{conf_name.flag}" if conf_name.flag else f"give {name.upper()} in conf.py"
    if name.isupper() and name.lower() in LONG:
        advice = f"write it in lower case: --{name.lower()}"
    if plain == "nodes" and value.isdecimal():
        advice = f"give --nnodes={value}"
    if advice is not None:
        return f"unknown option {given}: {advice}"
    near = next((option.name for option in OPTIONS if near_miss(name, option.name)), None)
    if near and token.startswith("--"):
        return f"unknown option {given}: did you mean --{near}?"
    return ""


def _check_flags(flags: Sequence[Flag], checks_values: bool) -> None:
    """Reject a flag of paddle with an invalid value, and a misspelled one, which would have no effect."""
    for name, value in flags:
        if name in KNOWN_FLAGS:
            if checks_values and name in INIT_FLAGS.keys() - PSERVER_FLAGS.keys() - OF_CONF:
                _check_flag_value(INIT_FLAGS[name], name, value)
            continue
        near = next((known for known in sorted(KNOWN_FLAGS) if near_miss(name, known)), None)
        if near:
            raise UsageError(f"unknown paddle flag --{name}: did you mean --{near}?" + ESCAPE)


def _check_flag_value(flag: PaddleFlag, name: str, value: str) -> None:
    try:
        flag.ignored or value_of(flag, value)
    except ValueError as error:
        raise UsageError(f"--{name}: {error}" + ESCAPE) from error
