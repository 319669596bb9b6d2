# SPDX-License-Identifier: Apache-2.0
"""Packs the agent for a node: the code for `python3 -c`, and the modules that follow on standard input.

The modules for the agent's greeting are sent immediately, both as source and as this interpreter's bytecode, so that a
node with the same Python compiles nothing. All other modules follow after the greeting, which reports which form the
node can use. Everything is packed once; only the nonce differs between nodes.
"""

from __future__ import annotations

import base64
import hashlib
import importlib.util
import marshal
import os
import sys
import threading
import zlib
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from paddle_cluster.system.digests import DIGEST_SIZE, cache_file, load_cached
from paddle_cluster.system.installation import NODE_DIR
from paddle_node.contract.classes import dataclass, regex
from paddle_node.contract.frames import FrameError

OLDEST_PYTHON = (3, 8)
TOO_OLD = 78  # exit status of an interpreter that is too old
DISCONNECTED = 70  # exit status if the launcher disconnected before it had sent the agent

# -I: no module of the user's home directory replaces one of the library; utf8: file names keep their
# bytes
FLAGS = ("-X", "utf8", "-I", "-S")

# Modules that an agent needs for its greeting.
FIRST = (
    "paddle_node.__init__",
    "paddle_node.agent.__init__",
    "paddle_node.agent.bootstrap",
    "paddle_node.agent.greeting",
    "paddle_node.agent.link.__init__",
    "paddle_node.agent.link.identity",
    "paddle_node.contract.__init__",
    "paddle_node.contract.opening",
    "paddle_node.linux.__init__",
    "paddle_node.linux.proc",
)
# Modules for a login that reconnects to a running agent, whose modules are not sent again.
RECONNECT = (
    *FIRST,
    "paddle_node.agent.reconnect",
    "paddle_node.contract.checked_json",
    "paddle_node.contract.small_json",
    "paddle_node.linux.descriptors",
    "paddle_node.linux.small_socket",
)
# Modules for the agent's outer processes. They unpack no others, which only the inner process needs.
GUARD = (
    "paddle_node.agent.guard",
    "paddle_node.agent.link.sign_of_life",
    "paddle_node.agent.processes.__init__",
    "paddle_node.agent.processes.control_group",
    "paddle_node.contract.classes",
    "paddle_node.contract.names",
    "paddle_node.linux.prctl",
    "paddle_node.linux.process_tree",
)
# Modules that most agents do not import.
RARE = (
    "paddle_node.agent.callback_agent",
    "paddle_node.agent.files.wheels",
    "paddle_node.agent.node.ask_python",
    "paddle_node.agent.node.checkpoints",
    "paddle_node.agent.node.verification",
    "paddle_node.agent.node.workspace",
    "paddle_node.agent.offer",
    "paddle_node.agent.processes.residents",
    "paddle_node.agent.relay.",
    "paddle_node.agent.resident",
)
# Modules that no agent imports after its greeting.
UNSENT = (
    "paddle_node.agent.reconnect",
    "paddle_node.contract.collected",
    "paddle_node.contract.flags",
    "paddle_node.contract.light_dataclasses",
    "paddle_node.contract.to_launcher",
)
LOADER = "paddle_node.agent.bootstrap"
NONCE_BYTES = 16
SHORTEST_RUN = 24  # a shorter run of letters and digits may not be the agent's code
REPEATED = "[the agent's code]"
_RUN = regex(f"[A-Za-z0-9+/=]{{{SHORTEST_RUN},}}")
_packing = threading.Lock()
_packed_agents: dict[Path, PackedAgent] = {}
RAW = -zlib.MAX_WBITS  # without a header and a checksum, as paddle_node.agent.bootstrap unpacks it
_MARSHAL = 2  # a format that every Python 3 reads
_PACKERS = (Path(__file__), Path(__file__).with_name("agent_code.py"))
_KEPT_AS = "agent"  # in the names of cached files
EVERYTHING = "everything"  # in place of the interpreter's magic number: the agent has all modules

# Any Python from 2.7 on reads the first line, and it must report nothing else. With a buffer of one byte, exactly
# the given number of bytes is read: what follows belongs to the agent. No apostrophe or newline is allowed here.
_CODE = (
    "import sys;v=sys.version_info[:2];"
    "v<{oldest} and sys.exit(len(sys.argv)<2 and {too_old} or "
    '"this is Python %d.%d; the node agent needs {oldest_text} or newer"%v);'
    "import binascii,io,marshal,zlib;"
    "b=io.BufferedReader(io.FileIO(0,closefd=False),1).read({size});"
    "len(b)<{size} and sys.exit({disconnected});"
    "m,f=marshal.loads(zlib.decompress(binascii.a2b_base64(b[:-{tail}]),{raw}));"
    "g=dict(__name__=str());"
    'i=sys.modules.get("_frozen_importlib_external");'
    's,c=f["{loader}"];'
    'exec(marshal.loads(c) if getattr(i,"MAGIC_NUMBER",0)==m else s,g);'
    'g["boot"](m,f,b[-{tail}:-1].decode())'
)


@dataclass(frozen=True)
class Bootstrap:
    """The code and data that start one agent.

    Attributes:
        nonce: makes the agent's first line unique.
        first_bytes: the first bytes for its standard input: a single word of letters and digits, so that a login script
            that passes the input to another shell executes nothing.
    """

    nonce: str
    first_bytes: bytes

    @property
    def code(self) -> str:
        """Return the argument of `python3 -c`; it contains no apostrophe and no newline."""
        return _CODE.format(
            oldest=OLDEST_PYTHON,
            oldest_text=".".join(map(str, OLDEST_PYTHON)),
            too_old=TOO_OLD,
            size=len(self.first_bytes),
            disconnected=DISCONNECTED,
            tail=2 * NONCE_BYTES + 1,
            raw=RAW,
            loader=LOADER,
        )

    def without_code(self, text: str) -> str:
        """Return output of the node without the agent's code, which a shell may have echoed."""
        return _RUN.sub(lambda run: REPEATED if self._is_ours(run[0]) else run[0], text)

    def check_unrepeated(self, text: str) -> None:
        """Raise FrameError if the node's output repeats part of the agent's code."""
        if any(map(self._is_ours, _RUN.findall(text))):
            raise FrameError("no node agent started: a shell read the agent's code as its commands")

    def _is_ours(self, run: str) -> bool:
        return run[:SHORTEST_RUN].encode() in self.first_bytes


def agent_bootstrap(node_dir: Path = NODE_DIR) -> Bootstrap:
    """Return the code and data that start a new agent, with a new nonce."""
    return _with_nonce(packed_agent(node_dir).first)


def reconnect_bootstrap(node_dir: Path = NODE_DIR) -> Bootstrap:
    """Return the code and data that reconnect to a running agent, with a new nonce."""
    return _with_nonce(packed_agent(node_dir).reconnect)


def _with_nonce(modules: bytes) -> Bootstrap:
    nonce = os.urandom(NONCE_BYTES).hex()
    return Bootstrap(nonce, b"%b%b\n" % (modules, nonce.encode()))


@dataclass(frozen=True)
class PackedAgent:
    """The modules of an agent, compiled and packed for sending.

    Attributes:
        first: the modules for its greeting, as read by `boot` in paddle_node.agent.bootstrap; only letters and digits.
        reconnect: the modules that reconnect to it, in the same form.
        code: all other modules as this interpreter's bytecode, in parts that are unpacked when needed; the form is that
            of `MemoryImporter.add`.
        source: all other modules as source, in the same parts.
        digest: digest of all sources.
    """

    first: bytes
    reconnect: bytes
    code: bytes
    source: bytes
    digest: str

    def rest_for(self, magic: object) -> bytes:
        """Return the body of the `modules` frame: bytecode if the interpreter can load it, else source.

        Args:
            magic: the magic number of the agent's interpreter, in hexadecimal digits; EVERYTHING: the agent needs no
                modules.
        """
        if magic == EVERYTHING:
            return b""
        return self.code if magic == importlib.util.MAGIC_NUMBER.hex() else self.source


def packed_agent(node_dir: Path = NODE_DIR, folder: Path | None = None) -> PackedAgent:
    """Read, compile and pack the agent's modules; done only once per launcher.

    Args:
        folder: cache of compiled modules; the first call reads it, and writes what is missing for later launchers.
    """
    with _packing:  # one time, not for each waiting thread
        if node_dir not in _packed_agents:
            _packed_agents[node_dir] = _load_or_pack(node_dir, folder)
        return _packed_agents[node_dir]


def _load_or_pack(node_dir: Path, folder: Path | None) -> PackedAgent:
    sources = {
        ".".join(("paddle_node", *path.relative_to(node_dir).with_suffix("").parts)): path.read_bytes()
        for path in sorted(node_dir.rglob("*.py"))
    }
    digest = _digest(sources)
    if folder is None:
        return _pack(sources, digest)
    packers = [path.read_bytes() for path in _PACKERS]
    about = _digest((sys.version, importlib.util.MAGIC_NUMBER, packers, digest))
    path = folder / f"{about}.{_KEPT_AS}"
    content = load_cached(path)
    if content is not None:
        parts: list[bytes] = marshal.loads(content)  # noqa: S302 - of this user, as the sources are
        return PackedAgent(parts[0], parts[1], parts[2], parts[3], digest)
    packed = _pack(sources, digest)
    cache_file(path, marshal.dumps((packed.first, packed.reconnect, packed.code, packed.source)))
    return packed


def _digest(value: Any) -> str:
    return hashlib.blake2b(marshal.dumps(value, _MARSHAL), digest_size=DIGEST_SIZE).hexdigest()


def _pack(sources: dict[str, bytes], digest: str) -> PackedAgent:
    from paddle_cluster.connection.agent_code import compiled  # imports ast; the code is cached

    modules = {
        name: (source, compiled(source, f"{name.replace('.', '/')}.py")) for name, source in sources.items()
    }

    def opening(names: Sequence[str]) -> bytes:
        chosen = {name: (modules[name][0], marshal.dumps(modules[name][1])) for name in names}
        return base64.b64encode(_deflated(marshal.dumps((importlib.util.MAGIC_NUMBER, chosen), _MARSHAL)))

    rare = [name for name in modules if name.startswith(RARE)]
    parts = GUARD, [name for name in modules if name not in {*FIRST, *GUARD, *rare, *UNSENT}], rare
    code = [{name: (b"", modules[name][1]) for name in part} for part in parts]
    source = [{name: (modules[name][0], b"") for name in part} for part in parts]
    rest_code, rest_source = _joined(code, marshal.version), _joined(source, _MARSHAL)
    return PackedAgent(opening(FIRST), opening(RECONNECT), rest_code, rest_source, digest)


def _joined(parts: Sequence[dict[str, Any]], version: int) -> bytes:
    unpacked = [marshal.dumps(part, version) for part in parts]
    packed = [_deflated(part) for part in unpacked]
    index = [
        (tuple(names), len(small), len(large))
        for names, small, large in zip(parts, packed, unpacked, strict=True)
    ]
    return b"".join((marshal.dumps(index, _MARSHAL), *packed))


def _deflated(data: bytes) -> bytes:
    packer = zlib.compressobj(zlib.Z_BEST_COMPRESSION, zlib.DEFLATED, RAW)
    return packer.compress(data) + packer.flush()
