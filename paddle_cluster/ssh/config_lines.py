# SPDX-License-Identifier: Apache-2.0
"""Parses ssh configuration files in OpenSSH's syntax: keywords, arguments, quotes, comments and Include."""

from __future__ import annotations

import contextlib
import fnmatch
import functools
import glob
import hashlib
import os
from collections.abc import Iterator, Sequence
from pathlib import Path

from paddle_cluster.config.values import home
from paddle_node.contract.classes import NamedTuple, dataclass, regex

SYSTEM_CONFIG = Path("/etc/ssh/ssh_config")
MAX_DEPTH = 16  # same as OpenSSH's

# Options that the default client supports.
ALGORITHMS = ("ciphers", "macs", "kexalgorithms", "hostkeyalgorithms")
_TAKEN = """\
hostname user port proxyjump proxycommand identityfile identitiesonly identityagent certificatefile
userknownhostsfile globalknownhostsfile revokedhostkeys hostkeyalias connecttimeout serveraliveinterval
addressfamily bindaddress"""
TAKEN = frozenset((*_TAKEN.split(), *ALGORITHMS))
# Options that do not affect it.
_WITHOUT_EFFECT = """\
addkeystoagent batchmode bindinterface casignaturealgorithms challengeresponseauthentication
channeltimeout checkhostip clearallforwardings compression connectionattempts controlmaster controlpath
controlpersist dynamicforward enableescapecommandline enablesshkeysign escapechar exitonforwardfailure
fingerprinthash forkafterauthentication forwardagent forwardx11 forwardx11timeout forwardx11trusted
gatewayports gssapiauthentication gssapiclientidentity gssapidelegatecredentials gssapikexalgorithms
gssapikeyexchange gssapirenewalforcesrekey gssapiserveridentity gssapitrustdns hashknownhosts
hostbasedacceptedalgorithms hostbasedauthentication ipqos kbdinteractiveauthentication
kbdinteractivedevices localcommand localforward loglevel logverbose nohostauthenticationforlocalhost
numberofpasswordprompts obscurekeystroketiming passwordauthentication permitlocalcommand
permitremoteopen pkcs11provider preferredauthentications pubkeyacceptedalgorithms pubkeyacceptedkeytypes
pubkeyauthentication rekeylimit remotecommand remoteforward requesttty requiredrsasize rsaminsize
securitykeyprovider sendenv serveralivecountmax sessiontype setenv stdinnull streamlocalbindmask
streamlocalbindunlink stricthostkeychecking syslogfacility tag tcpkeepalive tunnel tunneldevice
updatehostkeys verifyhostkeydns visualhostkey xauthlocation"""
WITHOUT_EFFECT = frozenset(_WITHOUT_EFFECT.split())
_STRUCTURE = ("host", "match", "include")
_KEYWORD = regex(r"([A-Za-z0-9]+)(?:[ \t]*=[ \t]*|[ \t]+|$)(.*)")


class ConfigError(ValueError):
    """Raised when a line of a configuration file is invalid."""


@dataclass(frozen=True)
class ConfigLine:
    """A parsed line of an ssh_config file.

    Attributes:
        keyword: the keyword in lower case.
        rest: the text after it, unparsed.
    """

    path: Path
    number: int
    keyword: str
    rest: str

    def __hash__(self) -> int:
        return self.number

    @property
    def has_variables(self) -> bool:
        """Return whether the line contains a token or a variable, which only `ssh` expands in an Include."""
        return "%" in self.rest or "$" in self.rest

    def error(self, what: str) -> ConfigError:
        """Return an error about this line, whose message names the file and the line."""
        return ConfigError(f"{self.path} line {self.number}: {what}")

    @functools.cached_property
    def words(self) -> list[str]:
        """Return the arguments without quotes and trailing comment.

        Raises:
            ConfigError: a quote is not closed.
        """
        words: list[str] = []
        word, quote, at = "", "", 0
        is_open = False
        while at < len(self.rest):
            character = self.rest[at]
            escapes = self.rest[at + 1 : at + 2]
            if character == "\\" and escapes and (escapes in "'\"\\" or (escapes == " " and not quote)):
                word, is_open, at = word + escapes, True, at + 1
            elif quote or character in "'\"":
                word += "" if character == quote or not quote else character
                is_open, quote = True, (quote if quote and character != quote else "" if quote else character)
            elif character in " \t":
                words += [word] * is_open
                word, is_open = "", False
            elif character == "#" and not is_open:
                break
            else:
                word, is_open = word + character, True
            at += 1
        if quote:
            raise self.error("unclosed quote")
        return [*words, *[word] * is_open]


class PlacedLine(NamedTuple):
    """A line of an ssh_config file, and its position in the Includes.

    Attributes:
        depth: the depth of nested Includes.
        is_first: whether it begins a file.
    """

    line: ConfigLine
    depth: int
    is_first: bool


def fits(name: str, patterns: Sequence[str]) -> bool:
    """Return whether a pattern list of ssh_config or known_hosts matches a name; `!` before a pattern excludes it."""

    fitting = False
    for pattern in patterns:
        is_exclusion = pattern[:1] == "!"
        text = pattern[1:] if is_exclusion else pattern
        if text == name or (
            ("*" in text or "?" in text) and fnmatch.fnmatchcase(name, text.replace("[", "[[]"))
        ):
            if is_exclusion:
                return False
            fitting = True
    return fitting


def without_tilde(text: str) -> str:
    """Expand `~` at the beginning of a path as `ssh` does."""
    return f"{home()}{text[1:]}" if text == "~" or text.startswith("~/") else os.path.expanduser(text)


def is_own(config: Path) -> bool:
    """Return whether SSH_CONFIG is the file that `ssh` reads by default."""
    return config == home() / ".ssh/config"


def lines(path: Path) -> tuple[ConfigLine, ...]:
    """Return the lines of one file; none if it does not exist.

    Raises:
        OSError: the file cannot be read.
    """
    try:
        status = path.stat()
        return _lines(path, (status.st_ino, status.st_size, status.st_mtime_ns))
    except (FileNotFoundError, NotADirectoryError, IsADirectoryError):
        return ()


@functools.lru_cache(maxsize=256)  # thousands of hosts read the same files
def _lines(path: Path, version: tuple[int, int, int]) -> tuple[ConfigLine, ...]:
    text = path.read_text(encoding="utf-8", errors="surrogateescape")
    found = []
    for number, content in enumerate(text.split("\n"), 1):
        content = content.strip(" \t\r\f")
        if content and not content.startswith("#"):
            parts = _KEYWORD.fullmatch(content)
            keyword, rest = (parts[1].lower(), parts[2]) if parts else (content, "")
            found.append(ConfigLine(path, number, keyword, rest))
    return tuple(found)


def all_lines(config: Path) -> list[PlacedLine]:
    """Return the lines of all configuration files: the user's, then the system's, each followed by its Includes.

    Raises:
        OSError: a file cannot be read.
        ConfigError: an Include cannot be followed.
    """
    user = home() / ".ssh" / "config" if is_own(config) else config.absolute()
    return [
        *_placed(user, home() / ".ssh", user, 0),
        *_placed(SYSTEM_CONFIG, SYSTEM_CONFIG.parent, SYSTEM_CONFIG, 0),
    ]


def _placed(path: Path, folder: Path, top: Path, depth: int) -> Iterator[PlacedLine]:
    """Yield the lines of a file and of the files that it includes.

    Args:
        folder: the folder in which relative names in an Include are searched.
        top: the file that includes it, directly or indirectly.
    """
    for at, line in enumerate(lines(path)):
        yield PlacedLine(line, depth, at == 0)
        if line.keyword != "include" or line.has_variables:
            continue
        if depth == MAX_DEPTH:
            raise line.error("circular Include")
        for word in line.words:
            name = without_tilde(word)
            names = sorted(glob.glob(os.path.join(folder, name)))
            if not names and glob.glob(os.path.join(top.parent, name)):
                raise line.error(f"Include {word} is resolved relative to {folder}; use an absolute path")
            for included in names:
                yield from _placed(Path(included), folder, top, depth + 1)


def key_lines(given: Sequence[PlacedLine]) -> dict[str, ConfigLine]:
    """Return the first line that names each private key file, by the file's unexpanded name."""
    found: dict[str, ConfigLine] = {}
    for line, _, _ in given:
        if line.keyword == "identityfile":
            with contextlib.suppress(ConfigError, IndexError):
                found.setdefault(line.words[0], line)
    return found


def has_effect(given: Sequence[PlacedLine]) -> bool:
    """Return whether any of these lines can affect a login of the default client."""
    return any(
        line.keyword not in WITHOUT_EFFECT
        and (line.keyword not in _STRUCTURE or (line.keyword == "include" and line.has_variables))
        for line, _, _ in given
    )


def named_algorithms(given: Sequence[PlacedLine]) -> frozenset[str]:
    """Return the ALGORITHMS that any line restricts, or all if only `ssh` can read some lines."""
    if any(line.keyword == "include" and line.has_variables for line, _, _ in given):
        return frozenset(ALGORITHMS)
    return frozenset(ALGORITHMS) & {line.keyword for line, _, _ in given if restricts(line)}


def restricts(line: ConfigLine) -> bool:
    """Return whether a list of algorithms excludes any, rather than adding to the defaults (+) or ordering them (^)."""
    return line.rest.lstrip("= \t\"'")[:1] not in ("+", "^")


def digest(config: Path) -> str:
    """Return a digest of the content of all configuration files.

    Raises:
        OSError, ConfigError: see `all_lines`.
    """
    return hashlib.blake2b(repr(all_lines(config)).encode("utf-8", "surrogateescape")).hexdigest()
