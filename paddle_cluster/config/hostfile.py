# SPDX-License-Identifier: Apache-2.0
"""Parses hostfiles of mpirun, DeepSpeed and Horovod (`host slots=N`), and Ansible inventories in INI format.

From an inventory, the hosts of all groups are used, with address, user, port and private key of the host or its groups.
Other variables are ignored and reported.
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterator, Mapping
from pathlib import Path

from paddle_cluster.config.hosts import LOCAL, Host, HostError, HostList, count_question, listed, parse_host
from paddle_cluster.errors import ConfError
from paddle_cluster.system.state_dir import read_bounded
from paddle_node.contract.classes import NamedTuple, dataclass, field, regex, replace

LIMIT = 1 << 20  # bytes
EXPECTED = "expected `host slots=N`, one per line"
_SLOTS = regex(r"[0-9]{1,5}")
_OTHER_FORM = regex(r"(?:[ \t]*(?:#.*)?\n)*(?:---[ \t]*\n|\{|\[\s*[\"'{]|[\w-]+:[ \t]*\n[ \t]+\S)")
_SECTION = regex(r"\[([^\s:\[\]]+)(?::(children|vars|hosts))?\]")
_ITEM = regex(r"""([^\s=]+)(?:\s*(=)\s*("[^"]*"|'[^']*'|[^\s"']\S*|(?=\s|$)))?""")
_COUNT_NAMES = ("slots", "max_slots", "max-slots")
_FORMS = tuple(
    (regex(pattern), advice)
    for pattern, advice in (
        (
            r"[Hh]ost\s+\S+",
            "set SSH_CONFIG in conf.py to an ssh config, and list the names of its hosts here",
        ),
        (r"HOSTS\s*=.*|(?:import|from)\s.*", "give a conf.py with --conf=FILE"),
        (r"(\S+)\s+([0-9]+)", "for processes: {0} slots={1}"),
        (r"(\S+)\s+(?:-p\s*|[Pp]ort[=\s]\s*)([0-9]+).*", "for a port: {0}:{1}"),
        (r"(?://|;|%|--).*", "comments begin with #"),
        (r"(\S+?)[,;]?\s+[\w.@-]+[,;]?(?:\s+[\w.@-]+[,;]?)*", "write a single name per line, such as {0}"),
    )
)
"""Line of other files -> what to write instead; {} are the groups."""
_ALL = "all"
_LOGIN = {
    f"ansible_{prefix}{name}": name for name in ("host", "user", "port") for prefix in ("", "ssh_")
}  # including the names from before 2.0
_KEYS = ("ansible_ssh_private_key_file", "ansible_private_key_file")
_INSTEAD = tuple(
    (regex(pattern), advice)
    for pattern, advice in (
        (rf"(?:{'|'.join(_KEYS)})=(.*)", " ({0} does not exist)"),
        (
            r"ansible_ssh_\w+_args=.*(?:-J\s*|ProxyJump[=\s]\"?)([^\s\"']+).*",
            " (set SSH_JUMP = '{0}' in conf.py)",
        ),
        (r"ansible_ssh_\w+_args=.*", " (write its options into ~/.ssh/config)"),
        (r"ansible_python_interpreter=(/.*)", " (set PYTHON = '{0}' in conf.py)"),
        (r".*", ""),
    )
)
"""Variable of an inventory that is ignored -> what to do instead; {} is the group."""


class _Line(NamedTuple):
    """A line that is not blank; `words` are (name, value) pairs, with the value None without `=`."""

    where: str
    words: tuple[tuple[str, str | None], ...]
    text: str


@dataclass
class _Group:
    """A group of an inventory."""

    hosts: list[str] = field(default_factory=list)
    parents: list[str] = field(default_factory=list)
    variables: dict[str, str] = field(default_factory=dict)


def read_hostfile(path: Path) -> HostList:
    """Parse a hostfile or inventory.

    A host with `slots=0` is not used. The slots of a repeated host are added up; each `local` is a node of its own.

    Raises:
        ConfError: a line is invalid; the message contains file and line.
    """
    try:
        text = read_bounded(path, LIMIT).decode("utf-8-sig")
    except OSError as error:
        raise ConfError(
            str(path), f"cannot read the hostfile: {error.strerror}; check --hostfile=FILE"
        ) from error
    except ValueError as error:
        raise ConfError(str(path), f"cannot read the hostfile: {error}; {EXPECTED}, in UTF-8") from error
    lines = text.splitlines()
    if _OTHER_FORM.match("\n".join(lines)):
        raise ConfError(
            str(path),
            "hostfiles in YAML or JSON are not supported. List the hosts one per line, or write an inventory in INI "
            "form",
        )
    is_inventory = any(_SECTION.fullmatch(line.strip()) for line in lines) or "ansible_" in text
    found = _inventory(path, lines) if is_inventory else _slots(path, _read(path, lines))
    if not found.hosts:
        raise ConfError(str(path), f"the hostfile lists no usable host; {EXPECTED}")
    return found


def _read(path: Path, lines: list[str], comment: str = "#") -> Iterator[_Line]:
    for number, line in enumerate(lines, 1):
        bare = re.split(comment, line, maxsplit=1)[0].strip()
        if bare:
            words = tuple(
                (name, value.strip("\"'") if equals else None) for name, equals, value in _ITEM.findall(bare)
            )
            yield _Line(f"{path}:{number}", words, bare)


def _hosts(line: _Line) -> Iterator[str]:
    """Return the hosts at the beginning of a line."""
    name, value = line.words[0]
    if value is not None:
        hint = "; if this is a conf.py, give it with --conf" if name == "HOSTS" else ""
        raise ConfError(line.where, f"expected a host first, got {name + '=' + value!r:.80}{hint}")
    try:
        yield from listed(name)
    except HostError as error:
        raise ConfError(line.where, str(error)) from error


def _host(text: str, where: str) -> Host:
    try:
        return parse_host(text)
    except HostError as error:
        raise ConfError(where, str(error)) from error


def _listed_host(text: str, where: str) -> Host:
    host = _host(text, where)
    if question := count_question(host):
        raise ConfError(where, question)
    return host


def _slots(path: Path, lines: Iterator[_Line]) -> HostList:
    """Parse a file of `host slots=N` lines."""
    found: dict[str, tuple[Host, str]] = {}
    slots: dict[str, int] = {}
    counts = False
    for line in lines:
        own = 1
        for name, value in line.words[1:]:
            if name not in _COUNT_NAMES or value is None or not _SLOTS.fullmatch(value):
                item = name if value is None else f"{name}={value}"
                forms = ((form.fullmatch(line.text), advice) for form, advice in _FORMS)
                hint = next((f"; {advice.format(*match.groups())}" for match, advice in forms if match), "")
                raise ConfError(line.where, f"expected `host slots=N`, got {item!r:.80} after the host{hint}")
            if name == "slots":
                own, counts = int(value), True
        for name in _hosts(line):
            word = f"{name} {len(found)}" if name == LOCAL else name
            counts = counts or word in found
            found.setdefault(word, (_listed_host(name, line.where), line.where))
            slots[word] = slots.get(word, 0) + own
    used = {word: one for word, one in found.items() if slots[word]}
    hosts, wheres = tuple(host for host, _ in used.values()), tuple(where for _, where in used.values())
    numbers = {node_id: slots[word] for node_id, word in enumerate(used)} if counts else {}
    return HostList(hosts, wheres, str(path), numbers)


def _inventory(path: Path, lines: list[str]) -> HostList:
    """Parse an Ansible inventory."""
    groups: dict[str, _Group] = {_ALL: _Group()}
    wheres: dict[str, str] = {}
    own: dict[str, dict[str, str]] = {}
    section, kind = "ungrouped", "hosts"
    for line in _read(path, lines, r"(?:^|(?<=\s))[#;]"):
        header = _SECTION.fullmatch(line.words[0][0]) if len(line.words) == 1 else None
        if header:
            section, kind = header[1], header[2] or "hosts"
            groups.setdefault(section, _Group())
        elif kind == "vars":
            groups[section].variables |= {name: value or "" for name, value in line.words[:1]}
        elif kind == "children":
            groups.setdefault(line.words[0][0], _Group()).parents.append(section)
        else:
            for word in _hosts(line):
                groups.setdefault(section, _Group()).hosts.append(word)
                wheres.setdefault(word, line.where)
                own.setdefault(word, {}).update({name: value or "" for name, value in line.words[1:]})
    inherited = _inherited(groups)
    every = {word: {**inherited.get(word, {}), **own[word]} for word in wheres}
    variables = {word: one for word, one in every.items() if one.get("slots") != "0"}
    wheres = {word: wheres[word] for word in variables}
    hosts = tuple(_login(word, where, variables[word]) for word, where in wheres.items())
    unused = {
        name: value
        for one in variables.values()
        for name, value in one.items()
        if name not in (*_LOGIN, "slots") and not (name in _KEYS and _key({name: value}))
    }
    keys = {
        at: key for at, one in enumerate(variables.values()) if (key := _key(one)) and not hosts[at].is_local
    }
    slots = {at: int(v["slots"]) for at, v in enumerate(variables.values()) if v.get("slots", "").isdecimal()}
    ignored = tuple(name + _instead(f"{name}={value}") for name, value in sorted(unused.items()))
    return HostList(hosts, tuple(wheres.values()), str(path), slots, keys, ignored=ignored)


def _key(variables: Mapping[str, str]) -> Path | None:
    """Return the private key that variables name; None if there is no such file."""
    path = Path(
        os.path.expanduser(next((variables[name] for name in _KEYS if name in variables), ""))
    ).absolute()
    return path if path.is_file() else None


def _instead(text: str) -> str:
    found = ((pattern.fullmatch(text), advice) for pattern, advice in _INSTEAD)
    return next(advice.format(*match.groups()) for match, advice in found if match)


def _login(word: str, where: str, variables: Mapping[str, str]) -> Host:
    """Return the host under its inventory name, with the address, user and port that the inventory gives."""
    given = {_LOGIN[name]: value for name, value in variables.items() if name in _LOGIN and value}
    host = _listed_host(word, where)
    if not given:
        return host
    name = given.get("host", host.name)
    user, port = given.get("user", host.user), given.get("port", host.port)
    bracketed = f"[{name}]" if ":" in name else name
    login = f"{user}@{bracketed}" if user else bracketed
    return replace(_host(f"{login}:{port}" if port else login, where), text=word)


def _inherited(groups: Mapping[str, _Group]) -> dict[str, dict[str, str]]:
    """Return the group variables of each host.

    Those of a child group override those of its parents, and `all` has the lowest precedence.
    """
    found: dict[str, dict[str, str]] = {}

    def above(name: str, seen: tuple[str, ...] = ()) -> dict[str, str]:
        if name in seen or name not in groups:
            return {}
        variables: dict[str, str] = {}
        for parent in groups[name].parents or ([] if name == _ALL else [_ALL]):
            variables |= above(parent, (*seen, name))
        return variables | groups[name].variables

    for name, group in groups.items():
        for word in group.hosts:
            found[word] = {**found.get(word, {}), **above(name)}
    return found
