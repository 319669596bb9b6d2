# SPDX-License-Identifier: Apache-2.0
"""ssh_config files over the grammar of ssh_config(5), for tests that compare readings of them."""

from __future__ import annotations

from hypothesis import strategies as st

NAMES = ("alpha", "beta.lab", "gamma-1", "10.0.0.7")
GATES = ("gate", "far")
_PATTERNS = (
    *NAMES,
    "*",
    "*.lab",
    "?eta.*",
    "gamma-*",
    "10.0.0.?",
    "!alpha",
    "!*.lab",
    "Alpha",
    "none-of-these",
)
_USERS = ("ada", "bob", "root")
_WORDS = ("%h", "%n", "%r", "%u", "%p", "%%", "%d", "%k", "${LAB}", "plain", "two words")

_blank = st.sampled_from(["", "  ", "\t"])
_between = st.sampled_from([" ", " ", "  ", "\t", "=", " = "])
_behind = st.sampled_from(["", "", "", " ", " # a comment", "\t# x"])


def _name(text: str) -> st.SearchStrategy[str]:
    return st.sampled_from([text, text.lower(), text.upper()])


def _line(
    name: str, value: st.SearchStrategy[str], behind: st.SearchStrategy[str] = _behind
) -> st.SearchStrategy[str]:
    return st.builds("{}{}{}{}{}".format, _blank, _name(name), _between, value, behind)


def _quoted(value: st.SearchStrategy[str]) -> st.SearchStrategy[str]:
    """With quotes where it has blanks, and sometimes where it has none."""
    return st.builds(
        lambda text, wanted: f'"{text}"' if wanted or " " in text else text, value, st.booleans()
    )


def _path(kind: str) -> st.SearchStrategy[str]:
    return _quoted(st.sampled_from(_WORDS).map(lambda word: f"{{folder}}/{kind}-{word}"))


_files = st.one_of(_path("key"), st.sampled_from(["~/.ssh/id_ed25519", "none", "~/.ssh/of-%r"]))
_jumps = st.lists(
    st.sampled_from([*GATES, "ada@gate", "gate:2222", "bob@[fe80::1]:22", "10.0.0.7:33"]),
    min_size=1,
    max_size=2,
).map(",".join)
_known = st.lists(_path("known"), min_size=1, max_size=3).map(" ".join)

OPTION = st.one_of(
    _line("HostName", _quoted(st.sampled_from(["%h.example.org", "10.1.1.1", "Other.Lab", "fe80::7"]))),
    _line("User", _quoted(st.sampled_from(_USERS))),
    _line("Port", st.integers(1, 65535).map(str)),
    _line("ProxyJump", st.one_of(_jumps, st.just("none")), st.just("")),
    _line(
        "ProxyCommand", st.sampled_from(["none", "nc %h %p", 'relay "%n %r" 100%% # of its own']), st.just("")
    ),
    _line("IdentityFile", _files),
    _line("IdentityFile", _files),
    _line("IdentitiesOnly", st.sampled_from(["yes", "no"])),
    _line("IdentityAgent", st.one_of(_path("agent"), st.sampled_from(["none", "SSH_AUTH_SOCK", "$LAB"]))),
    _line("CertificateFile", _path("certificate")),
    _line("UserKnownHostsFile", st.one_of(_known, st.just("none"))),
    _line("GlobalKnownHostsFile", st.sampled_from(["/etc/a /etc/b", "none"])),
    _line("HostKeyAlias", st.sampled_from(["compute.1234", "Lab-Key"])),
    _line("ConnectTimeout", st.sampled_from(["7", "1m30s", "none"])),
    _line("ServerAliveInterval", st.sampled_from(["5", "2m"])),
    _line("AddressFamily", st.sampled_from(["any", "inet", "inet6"])),
    _line("BindAddress", st.just("127.0.0.1")),
    _line(
        "Ciphers",
        st.sampled_from(["aes256-ctr,aes128-ctr", "aes256-ctr", "+aes128-cbc", "^aes256-ctr", "-aes*"]),
    ),
    _line("GSSAPIAuthentication", st.just("yes")),
    _line("SendEnv", st.just("LANG LC_*")),
)

_lists = st.lists(st.sampled_from(_PATTERNS), min_size=1, max_size=3)
_criterion = st.one_of(
    st.builds(
        "{}{}{}".format,
        st.sampled_from(["host", "originalhost", "!host"]),
        st.sampled_from([" ", "="]),
        _lists.map(",".join),
    ),
    st.builds(
        "{} {}".format,
        st.sampled_from(["user", "localuser", "!user"]),
        st.lists(st.sampled_from(_USERS), min_size=1, max_size=2).map(",".join),
    ),
    st.sampled_from(["exec true", 'exec "false"', 'exec "test %h = alpha"', "final", "canonical"]),
)
_match = st.one_of(
    st.sampled_from(["all", "final all", "canonical all", "!final all", "host alpha all", "tagged lab", ""]),
    st.lists(_criterion, min_size=1, max_size=3).map(" ".join),
)
SECTION = st.one_of(
    _line("Host", _lists.map(" ".join)),
    _line("Host", _lists.map(" ".join)),
    st.builds("Match {}{}".format, _match, _behind),
)


def _text(sections: int, *others: st.SearchStrategy[str]) -> st.SearchStrategy[str]:
    body = st.lists(st.one_of(OPTION, st.sampled_from(["", "# nothing"]), *others), min_size=2, max_size=5)
    section = st.builds("{}\n{}".format, SECTION, body.map("\n".join))
    before = st.lists(OPTION, max_size=2).map("\n".join)
    return st.builds(
        "{}\n{}".format, before, st.lists(section, min_size=sections, max_size=sections + 2).map("\n".join)
    )


_include = _line(
    "Include",
    st.sampled_from(["{folder}/more/*.conf", '"{folder}/more/a b.conf"', "{folder}/more/absent*"]),
)
FILES = st.fixed_dictionaries(
    {"config": _text(1, _include), "more/a b.conf": _text(0), "more/c.conf": _text(0)}
)
"""Name -> text, in which {folder} stands for the folder of the files."""
