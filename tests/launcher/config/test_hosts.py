# SPDX-License-Identifier: Apache-2.0
"""The grammar of a host: what is accepted, what is refused, and that nothing dangerous ever parses."""

from __future__ import annotations

import ipaddress
import string

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from paddle_cluster.config.hosts import Host, HostError, parse_host

LEGAL = [
    ("root@10.1.9.7", "root", "10.1.9.7", None),
    ("root@10.1.9.7:2222", "root", "10.1.9.7", 2222),
    ("10.1.9.7", None, "10.1.9.7", None),
    ("node-a.example.org:22", None, "node-a.example.org", 22),
    ("node-a.example.org.", None, "node-a.example.org.", None),
    ("gpu_box", None, "gpu_box", None),
    ("user@[::1]:22", "user", "::1", 22),
    ("[fd00::7]", None, "fd00::7", None),
    ("[FE80:0:0::1%eth0]:65535", None, "fe80::1%eth0", 65535),
    ("first.last-x+y@h", "first.last-x+y", "h", None),
    ("CORP\\jane@h", "CORP\\jane", "h", None),
    ("jane.doe@corp.example@h:2222", "jane.doe@corp.example", "h", 2222),
    ("bücher.example", None, "xn--bcher-kva.example", None),
    ("root@пример.рф:22", "root", "xn--e1afmkfd.xn--p1ai", 22),
    ("a" * 63 + "." + "b" * 63, None, "a" * 63 + "." + "b" * 63, None),
]

ILLEGAL = [
    ("", "empty"),
    ("-oProxyCommand=touch x", "option"),
    ("root@-oProxyCommand", "not a host name"),
    ("-host", "option"),
    ("a;touch x", "';'"),
    ("$(id)", "'$'"),
    ("`id`", "'`'"),
    ("a'b", '"\'"'),
    ('a"b', "'\"'"),
    ("a\\b", "not a host name"),
    ("CORP\\@host", "not a valid login name"),
    ("\\jane@host", "not a valid login name"),
    ("a\\b\\c@host", "not a valid login name"),
    ("a b", "' '"),
    ("a\nb", "'\\n'"),
    ("a\n", "remove the spaces or line breaks around it"),
    ("a\x00b", "'\\x00'"),
    ("a\x1b[31m", "control"),
    ("a\u202eb", "control"),
    ("a\udcffb", "control"),
    ("x" * 300, "253"),
    ("host:0", "1 to 65535"),
    ("host:65536", "1 to 65535"),
    ("host:70000", "1 to 65535"),
    ("host:022", "1 to 65535"),
    ("host:+22", "1 to 65535"),
    ("host:２２", "1 to 65535"),
    ("host:", "1 to 65535"),
    ("host:ssh", "1 to 65535"),
    ("::1", "brackets: [::1]"),
    ("fd00::7:22", "brackets"),
    ("localhost:22:33", "single port"),
    ("root:secret@host", "ssh-copy-id"),
    ("root@fe80::1", "[fe80::1]:22"),
    ("[::1", "without ']'"),
    ("[::1]22", "[address]:port"),
    ("[10.1.9.7]:22", "not an IPv6 address"),
    ("[::1%a/b]", "not a valid network interface"),
    ("@host", "not a valid login name"),
    ("a@b@host", "not a valid login name"),
    ("ro ot@host", "' '"),
    ("user@", "missing"),
    (":22", "missing"),
    ("a..b", "not a host name"),
    (".a", "not a host name"),
    ("a.-b", "not a host name"),
    ("10.1.9", "IPv4"),
    ("10.1.9.256", "IPv4"),
    ("12345", "IPv4"),
    ("10.0.0.1-3", "HOSTS = [f'10.0.0.{i}' for i in range(1, 4)]"),
    ("n[1-4]", "HOSTS = [f'n{i}' for i in range(1, 5)]"),
    ("u@n[08-11].x", "[f'n{i:02}.x' for i in range(8, 12)]"),
    ("10.0.0.8-10.0.0.11", "10.0.0.[8-11]"),
    ("10.0.0.0/24", "a network, not a host"),
    ("user@local", "embedded"),
    ("local:22", "embedded"),
    ("local:3", "`:3` is not a count: write local, and give --nproc_per_node=3"),
    ("a\nb", "separate several with commas: --hosts=a,b"),
    ("☃.example", "not a host name"),
    ("xn--" + "ü" * 80, "DNS"),
]


@pytest.mark.parametrize(("text", "user", "name", "port"), LEGAL)
def test_a_legal_form_gives_user_name_and_port(
    text: str, user: str | None, name: str, port: int | None
) -> None:
    assert parse_host(text) == Host(text, user, name, port, is_local=False)


@pytest.mark.parametrize(("text", "words"), ILLEGAL)
def test_anything_else_is_refused_with_the_reason(text: str, words: str) -> None:
    with pytest.raises(HostError) as caught:
        parse_host(text)
    assert words in str(caught.value)


def test_local_is_the_embedded_node() -> None:
    assert parse_host("local").is_local
    assert not parse_host("local.example.org").is_local
    assert not parse_host("Local").is_local


def test_253_characters_are_accepted_and_254_are_not() -> None:
    name = ".".join(["a" * 49] * 5) + ".bcd"
    assert len(name) == 253
    assert parse_host(name).name == name
    with pytest.raises(HostError, match="253"):
        parse_host("a" + name)


labels = st.from_regex(r"[a-z0-9]([a-z0-9-]{0,10}[a-z0-9])?", fullmatch=True)
dns_names = (
    st.lists(labels, min_size=1, max_size=4).map(".".join).filter(lambda name: name.strip("0123456789."))
)
addresses = st.one_of(st.ip_addresses(v=4).map(str), st.ip_addresses(v=6).map(str))
names = st.one_of(dns_names, addresses).filter(lambda name: name != "local")
users = st.none() | st.from_regex(r"[A-Za-z0-9_][A-Za-z0-9_.+-]{0,20}", fullmatch=True)
ports = st.none() | st.integers(1, 65535)


@given(users, names, ports)
def test_what_is_described_parses_back_to_the_same_host(
    user: str | None, name: str, port: int | None
) -> None:
    host = parse_host(Host("", user, name, port, is_local=False).describe())
    assert (host.user, host.name, host.port) == (user, name, port)


HARMLESS = frozenset(string.ascii_letters + string.digits + "-._+:%")


@given(st.text(max_size=40) | st.text(alphabet="ab1-@:[].%;$`'\"\\ \n\tü。", max_size=30))
@example("a。b")
@example("ﬀ")
def test_whatever_parses_holds_nothing_that_acts(text: str) -> None:
    try:
        host = parse_host(text)
    except HostError:
        return
    assert host.text == text
    assert set(host.name) <= HARMLESS
    assert not host.name.startswith("-")
    if host.user is not None:
        assert set(host.user) <= HARMLESS | set("\\@")
        assert host.user[0] not in "-\\"
        assert host.user[-1] != "\\"
    if ":" in host.name:
        ipaddress.IPv6Address(host.name)
