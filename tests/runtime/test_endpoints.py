# SPDX-License-Identifier: Apache-2.0
"""What users write where something listens, and what is told of it before anybody waits."""

from __future__ import annotations

import pytest

from paddle.endpoints import address_of, check_endpoints, endpoint_of, host_of, listed
from paddle.errors import ConfigError


@pytest.mark.parametrize(
    ("text", "address"),
    [
        ("10.0.0.1:7164", ("10.0.0.1", 7164)),
        ("ps-0.job:1", ("ps-0.job", 1)),
        ("[fe80::1]:65535", ("fe80::1", 65535)),
        ("[fe80::1%eth0]:7164", ("fe80::1%eth0", 7164)),
    ],
)
def test_an_endpoint_is_read_and_written_alike(text: str, address: tuple[str, int]) -> None:
    assert address_of(text) == address
    assert endpoint_of(*address) == text


@pytest.mark.parametrize(
    ("text", "why"),
    [
        ("", "the port is missing"),
        ("10.0.0.1", "the port is missing"),
        ("fe80::1", "the port is missing"),
        ("::1:7164", "the port is missing"),
        (":7164", "the host is missing"),
        ("10.0.0.1:", "'' is not a valid port"),
        ("10.0.0.1:http", "'http' is not a valid port"),
        ("10.0.0.1:²", "is not a valid port"),
        ("10.0.0.1:" + "9" * 5000, "is not a valid port"),
        ("10.0.0.1:0", "a port from 1 to 65535"),
        ("10.0.0.1:65536", "a port from 1 to 65535"),
        ("10.0.0.1:7164:7164", "in brackets"),
        ("[10.0.0.1]:7164", "in brackets"),
        ("fe80::1]:7164", "in brackets"),
        ("tcp://10.0.0.1:7164", "without tcp://"),
        ("10.0.0.256:7164", "not an IPv4 address"),
        ("10.0.0:7164", "not an IPv4 address"),
        ("my host:7164", "not a valid host name"),
        ("..:7164", "not a valid host name"),
    ],
)
def test_what_is_no_endpoint_is_told_with_the_reason(text: str, why: str) -> None:
    with pytest.raises(ConfigError, match=why) as caught:
        address_of(text, "pserver endpoint")
    assert str(caught.value).startswith(f"pserver endpoint {text[:9]!r}"[:-1])
    assert len(str(caught.value)) < 400


def test_an_endpoint_that_is_there_twice_is_told_however_it_is_written() -> None:
    check_endpoints(["a:1", "a:2", "b:1"], "endpoint")
    with pytest.raises(ConfigError, match=r"endpoint '\[::1\]:1' is listed twice"):
        check_endpoints(["[::1]:1", "b:1", "[::1]:1"], "endpoint")


def test_a_host_alone_may_be_an_ipv6_address_with_and_without_brackets() -> None:
    given = ("10.0.0.1", "localhost", "fe80::1", "[fe80::1]")
    assert [host_of(each, "host", ports="port") for each in given] == [*given[:3], "fe80::1"]


def test_a_host_with_a_port_is_told_where_the_port_belongs() -> None:
    with pytest.raises(ConfigError, match=r"write 10.0.0.1 here, and give the port 7164 as port=7164"):
        host_of("10.0.0.1:7164", "pservers", ports="port=7164")
    with pytest.raises(ConfigError, match="without a port"):
        host_of("[fe80::1]:7164", "pservers", ports="port=7164")


def test_of_many_endpoints_the_first_are_shown() -> None:
    assert listed(["a:1", "b:1"]) == "a:1, b:1"
    assert listed([f"a:{port}" for port in range(1, 8)]) == "a:1, a:2, a:3, a:4 and 3 more"
