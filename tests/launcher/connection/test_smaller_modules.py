# SPDX-License-Identifier: Apache-2.0
"""The modules that an agent's bytecode imports in place of those of the standard library."""

from __future__ import annotations

import base64
import contextlib
import json
import marshal
import math
import os
import socket
import subprocess
import sys
import zlib
from itertools import accumulate
from typing import Any

import pytest

from paddle_cluster.connection.agent_code import SMALLER, compiled
from paddle_cluster.connection.bootstrap import FLAGS, RAW, packed_agent
from paddle_cluster.system.installation import NODE_DIR
from paddle_node.contract import classes, small_json
from paddle_node.linux import small_socket

suppress: Any = classes.suppress
sockets: Any = small_socket
VALUES = [
    None,
    True,
    1.5,
    -7,
    1 << 70,
    "",
    'a"\\\u20ac\ud800\x00',
    [],
    {},
    [1, [2, {"a": [None]}]],
    {"k": "v"},
]
# runs the agent's code from memory, as a node does, and prints the modules of the library that it imports
IMPORTS = """
import marshal, sys
magic, first, rest = marshal.loads(sys.stdin.buffer.read())
names = {"__name__": ""}
exec(marshal.loads(first["paddle_node.agent.bootstrap"][1]), names)
importer = names["MemoryImporter"](magic, first)
sys.meta_path.insert(0, importer)
importer.add(memoryview(rest))
for name in sys.argv[1:]:
    __import__("paddle_node.agent." + name)
print(*sys.modules)
"""


@pytest.mark.parametrize("value", VALUES, ids=repr)
def test_json_is_written_and_read_as_by_the_standard_library(value: object) -> None:
    assert small_json.dumps(value) == json.dumps(value)
    compact = (",", ":")
    assert small_json.JSONEncoder(separators=compact).encode(value) == json.dumps(value, separators=compact)
    assert small_json.loads(f" \n{json.dumps(value)}\t") == value


def test_numbers_that_json_lacks_are_read_as_by_the_standard_library() -> None:
    found = small_json.loads("[NaN, Infinity, -Infinity, 1e400]")
    assert math.isnan(found[0])
    assert found[1:] == json.loads("[Infinity, -Infinity, 1e400]")
    assert small_json.JSONDecoder(parse_int=str).decode("[12]") == ["12"]


@pytest.mark.parametrize(
    "text", ["", " ", "[1,]", "{1: 2}", '"', "nul", "1 2", "[", '{"a": 1}}', "\ufeff1", '"\x01"']
)
def test_what_is_not_json_raises_value_error(text: str) -> None:
    for loads in (json.loads, small_json.loads):
        with pytest.raises(ValueError, match="char"):
            loads(text)


def test_values_without_a_json_form_are_refused() -> None:
    circle: list[object] = []
    circle.append(circle)
    with pytest.raises(ValueError, match="Circular"):
        small_json.dumps(circle)
    with pytest.raises(TypeError, match="set"):
        small_json.dumps({1})


def test_a_socket_accepts_and_closes() -> None:
    with sockets.socket(sockets.AF_INET, sockets.SOCK_STREAM) as listener:
        listener.bind(("127.0.0.1", 0))
        listener.listen(1)
        with socket.create_connection(listener.getsockname(), timeout=10) as client:
            accepted, address = listener.accept()
            assert address == client.getsockname()
            assert not os.get_inheritable(accepted.fileno())
            with accepted:
                accepted.sendall(b"x")
                assert client.recv(1) == b"x"
            assert client.recv(1) == b""
    assert (accepted.fileno(), listener.fileno()) == (-1, -1)


@pytest.mark.parametrize(
    ("error", "ends"), [(FileNotFoundError(), True), (KeyError(), True), (ValueError(), False)]
)
def test_suppress_ends_a_block_at_the_given_errors_alone(error: Exception, ends: bool) -> None:
    outer = contextlib.nullcontext() if ends else pytest.raises(type(error))
    with outer, suppress(OSError, KeyError):
        raise error


def test_names_that_a_smaller_module_lacks_are_imported_from_the_library() -> None:
    source = (
        b"import signal, socket\nfrom functools import wraps\n"
        b"NAME, PAIR = signal.Signals(15).name, socket.socketpair\n"
    )
    names: dict[str, Any] = {}
    exec(compiled(source, "sent.py"), names)
    assert names["NAME"] == "SIGTERM"
    assert (names["signal"].__name__, names["wraps"].__module__) == ("signal", "functools")
    assert names["PAIR"] is socket.socketpair
    exec(
        compiled(b"import socket\nfrom functools import partial\nNAME = socket.gethostname()\n", "sent.py"),
        names,
    )
    assert names["socket"] is small_socket


def test_modules_that_use_tls_have_the_standard_socket() -> None:
    names: dict[str, Any] = {}
    exec(compiled(b"import socket, ssl\nNAME = socket.gethostname()\n", "sent.py"), names)
    assert names["socket"] is socket


def imported_by(*modules: str, parts: int) -> set[str]:
    """Import modules of the agent from the first parts of its code, and return all modules then imported."""
    packed = packed_agent(NODE_DIR)
    magic, first = marshal.loads(zlib.decompress(base64.b64decode(packed.first), RAW))
    index = marshal.loads(packed.code)
    begin, *ends = accumulate(
        (size for _, size, _ in index), initial=len(packed.code) - sum(size for _, size, _ in index)
    )
    rest = marshal.dumps(index[:parts]) + packed.code[begin : ends[parts - 1]]
    sent = marshal.dumps((magic, first, rest))
    argv = [sys.executable, *FLAGS, "-c", IMPORTS, *modules]
    done = subprocess.run(argv, input=sent, capture_output=True, check=True, timeout=60)
    return set(done.stdout.decode().split())


def test_the_outer_processes_of_an_agent_need_only_the_first_part_of_its_code() -> None:
    assert "paddle_node.agent.guard" in imported_by("guard", parts=1)


def test_an_agent_imports_no_large_module_of_the_library() -> None:
    found = imported_by("guard", "supervisor", parts=2)
    assert {"paddle_node.agent.supervisor", *SMALLER.values()} <= found
    assert found.isdisjoint({"enum", "re", "typing", "selectors", *SMALLER})
