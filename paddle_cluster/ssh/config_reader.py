# SPDX-License-Identifier: Apache-2.0
"""Evaluates the ssh configuration without running `ssh`: a common subset; other lines are rejected with an error.

The result equals that of `ssh -G`. `Match` supports `all`, `host`, `originalhost`, `user` and `localuser`.
"""

from __future__ import annotations

import functools
import re
from collections.abc import Mapping, Sequence

from paddle_cluster.config.hosts import Host
from paddle_cluster.ssh.config_lines import (
    ALGORITHMS,
    TAKEN,
    WITHOUT_EFFECT,
    ConfigLine,
    PlacedLine,
    fits,
    restricts,
)
from paddle_node.contract.classes import regex

Options = dict[str, list[str]]

DEFAULT_KEYS = ("id_rsa", "id_ecdsa", "id_ecdsa_sk", "id_ed25519", "id_ed25519_sk")  # in the order of ssh
SEVERAL = ("identityfile", "certificatefile")  # each line adds one
LISTS = ("userknownhostsfile", "globalknownhostsfile")
_TIMES = ("connecttimeout", "serveraliveinterval")
_CRITERION = regex(
    r"(all)(?=\s|$)|(host|originalhost|user|localuser)(?:\s*=\s*|\s+)([^\s\"'#]+)", re.IGNORECASE
)
_SECONDS = {"": 1, "s": 1, "m": 60, "h": 3600, "d": 86400, "w": 604800}
_ADVICE = "not supported without `ssh`; install OpenSSH's client"


def read(lines: Sequence[PlacedLine], host: Host, local_user: str, preset: Mapping[str, str]) -> Options:
    """Evaluate the configuration for a host, and return its options.

    Args:
        lines: the lines of all files.
        preset: options that take precedence over it.

    Raises:
        ConfigError: a line is not supported.
    """
    reader = _Reader(host, local_user, preset)
    reader.read(lines)
    return reader.options


class _Reader:
    def __init__(self, host: Host, local_user: str, preset: Mapping[str, str]) -> None:
        self.options: Options = {name: [value] for name, value in preset.items()}
        self._host = host.name
        self._local_user = local_user

    def read(self, lines: Sequence[PlacedLine]) -> None:
        """Apply matching options; no option of a file matches if its Include is in a section for other hosts."""
        sections = [True]  # by depth: whether the current section is for this host
        for line, depth, is_first in lines:
            is_active = depth == 0 or sections[depth - 1]
            if is_first:
                sections[depth:] = [is_active]
            if line.keyword == "host":
                sections[depth] = self._is_of_host(line) and is_active
            elif line.keyword == "match":
                sections[depth] = self._matches(line) and is_active
            elif line.keyword == "include":
                if line.has_variables:
                    raise line.error(f"Include {line.rest}: variables are not supported without `ssh`")
            elif line.keyword in TAKEN:
                values = _values(line)
                if sections[depth]:
                    self._take(line.keyword, values)
            elif line.keyword not in WITHOUT_EFFECT:
                raise line.error(f"option {line.keyword}: {_ADVICE}")

    def _take(self, name: str, values: list[str]) -> None:
        if name in SEVERAL:
            given = self.options.setdefault(name, [])
            given += [value for value in values if value not in given]
        elif name not in self.options and not self._is_excluded(name):
            self.options[name] = list(values)

    def _is_excluded(self, name: str) -> bool:
        """Return whether the other kind of proxy was named first; `ProxyJump none` does not exclude ProxyCommand."""
        if name == "proxycommand":
            return self.options.get("proxyjump", ["none"]) != ["none"]
        return name == "proxyjump" and "proxycommand" in self.options

    def _is_of_host(self, line: ConfigLine) -> bool:
        return fits(self._host, line.words)

    def _matches(self, line: ConfigLine) -> bool:
        results: list[bool] = []
        rest = line.rest.strip()
        while rest and not rest.startswith("#"):
            found = _CRITERION.match(rest)
            if found is None or (found[1] and results):
                raise line.error(f"Match {line.rest}: {_ADVICE}")
            results.append(bool(found[1]) or self._criterion(found[2].lower(), found[3]))
            rest = rest[found.end() :].strip()
            if found[1] and rest and not rest.startswith("#"):
                raise line.error("`all` cannot be combined with other criteria")
        if not results:
            raise line.error("Match has no criterion")
        return all(results)

    def _criterion(self, name: str, patterns: str) -> bool:
        hostname = self.options.get("hostname", ["%h"])[0]
        value = {
            "originalhost": self._host.lower(),
            "host": expanded_hostname(hostname, self._host).lower(),
            "user": self.options.get("user", [self._local_user])[0],
            "localuser": self._local_user,
        }[name]
        every = patterns.lower().split(",") if name.endswith("host") else patterns.split(",")
        return fits(value, every)


def expanded_hostname(text: str, host: str) -> str:
    """Return a HostName value with %h and %% expanded for a host."""
    return re.sub("%[h%]", lambda found: host if found[0] == "%h" else "%", text)


def seconds(text: str) -> int:
    """Parse a time of ssh_config, such as 90 or 1m30s, and return seconds.

    Raises:
        ValueError: the text is not a time.
    """
    parts = re.findall(r"([0-9]+)([smhdw]?)", text.lower())
    if "".join(map("".join, parts)) != text.lower() or not parts:
        raise ValueError(f"{text} is not a valid time: expected a number of seconds or a time such as 1m30s")
    return sum(int(number) * _SECONDS[unit] for number, unit in parts)


@functools.lru_cache(maxsize=1 << 16)
def _values(line: ConfigLine) -> list[str]:
    if line.keyword == "proxycommand":
        if not line.rest:
            raise line.error("ProxyCommand needs a command")
        return [line.rest.lstrip("= \t")]
    values = line.words
    if not values or (len(values) > 1 and line.keyword not in LISTS):
        raise line.error(f"expected one value of {line.keyword}, got {len(values)}")
    value = values[0]
    lowered = value.lower()
    if line.keyword == "proxyjump" and (value != line.rest or not re.fullmatch(r"[\w.@:,\[\]-]+", value)):
        raise line.error(f"ProxyJump {line.rest}: {_ADVICE}")
    if line.keyword == "port" and not (value.isascii() and value.isdigit() and 0 < int(value) < 65536):
        raise line.error(f"{value} is not a valid port: expected a number from 1 to 65535")
    if line.keyword == "identitiesonly":
        if lowered not in ("yes", "true", "no", "false"):
            raise line.error(f"{value}: expected yes or no")
        return ["yes" if lowered in ("yes", "true") else "no"]
    if line.keyword in ALGORITHMS and not restricts(line):
        return []
    if line.keyword in ALGORITHMS and value.startswith("-"):
        raise line.error(f"{line.keyword} {value}: {_ADVICE}")
    if line.keyword == "addressfamily" and lowered not in ("any", "inet", "inet6"):
        raise line.error(f"{value}: expected any, inet or inet6")
    if line.keyword in _TIMES:
        try:
            return ["none" if lowered == "none" else str(seconds(value))]
        except ValueError as error:
            raise line.error(str(error)) from error
    if line.keyword == "hostname" and re.search("%(?![h%])", value.replace("%%", "")):
        raise line.error(f"HostName {value}: {_ADVICE}")
    if line.keyword == "user" and re.search("[%$]", value):
        raise line.error(f"User {value}: {_ADVICE}")
    return values
