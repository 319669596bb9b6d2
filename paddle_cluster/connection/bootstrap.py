# SPDX-License-Identifier: Apache-2.0
"""The agent on its way to a node: text for `python3 -c`, and the modules that follow on standard input.

What the agent's first word needs goes to its interpreter at once, as source and as code of this interpreter, so
that a node with the same Python compiles nothing. All other modules follow when it has spoken and told which
of the two it can use. All is packed once and the same for every node but for its nonce.
"""

from __future__ import annotations

import base64
import hashlib
import importlib.util
import marshal
import os
import re
import sys
import threading
import zlib
from pathlib import Path
from typing import Any

from paddle_cluster.system.digests import DIGEST_SIZE, cache_file, load_cached
from paddle_cluster.system.installation import NODE_DIR
from paddle_node.contract.classes import dataclass
from paddle_node.contract.frames import FrameError

OLDEST_PYTHON = (3, 8)
TOO_OLD = 78  # exit status of an interpreter that is

# -I: no module of the user's home directory is taken for one of the library; utf8: file names stay the
# bytes they are
FLAGS = ("-X", "utf8", "-I", "-S")

# What an agent needs to say its first word.
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
# What a login needs that brings its connection to an agent: that is not sent again.
RECONNECT = (
    *FIRST,
    "paddle_node.agent.reconnect",
    "paddle_node.contract.checked_json",
    "paddle_node.linux.descriptors",
)
LOADER = "paddle_node.agent.bootstrap"
NONCE_BYTES = 16
SHORTEST_RUN = 24  # a shorter run of letters and digits may be something else than the agent's code
REPEATED = "[the agent's code]"
_RUN = re.compile(f"[A-Za-z0-9+/=]{{{SHORTEST_RUN},}}")
_packing = threading.Lock()
_packed_agents: dict[Path, PackedAgent] = {}
_MARSHAL = 2  # a form that every Python 3 reads
_KEPT_AS = "agent-3"  # the form, in the names of those that are kept
EVERYTHING = (
    "everything"  # in the place of the code that its interpreter wants: an agent that has all modules
)

# The first line is read by any Python from 2.7 on, and must not say more than that. A buffer of one byte reads
# exactly so many bytes: what follows belongs to the agent. Neither an apostrophe nor a line end in here.
_CODE = (
    "import sys;v=sys.version_info[:2];"
    "v<{oldest} and sys.exit(len(sys.argv)<2 and {too_old} or "
    '"this is Python %d.%d; the node agent needs {oldest_text} or newer"%v);'
    "import binascii,io,marshal,zlib;"
    "b=io.BufferedReader(io.FileIO(0,closefd=False),1).read({size});"
    "m,f=marshal.loads(zlib.decompress(binascii.a2b_base64(b[:-{tail}])));"
    "g=dict(__name__=str());"
    'i=sys.modules.get("_frozen_importlib_external");'
    's,c=f["{loader}"];'
    'exec(marshal.loads(c) if getattr(i,"MAGIC_NUMBER",0)==m else s,g);'
    'g["boot"](m,f,b[-{tail}:-1].decode())'
)


@dataclass(frozen=True)
class Bootstrap:
    """One start of an agent.

    Attributes:
        nonce: makes its first line one that nothing else says.
        first_bytes: what goes to its standard input first: one word in letters and digits, so that a login script
            that hands the input to another shell runs none of it.
    """

    nonce: str
    first_bytes: bytes

    @property
    def code(self) -> str:
        """The argument of `python3 -c`; holds no apostrophe and no line end."""
        return _CODE.format(
            oldest=OLDEST_PYTHON,
            oldest_text=".".join(map(str, OLDEST_PYTHON)),
            too_old=TOO_OLD,
            size=len(self.first_bytes),
            tail=2 * NONCE_BYTES + 1,
            loader=LOADER,
        )

    def without_code(self, text: str) -> str:
        """Return output of the node without the agent's code, which a shell may have echoed."""
        return _RUN.sub(lambda run: REPEATED if self._is_ours(run[0]) else run[0], text)

    def check_unrepeated(self, text: str) -> None:
        """Raise FrameError if output of the node contains a part of the agent's code."""
        if any(map(self._is_ours, _RUN.findall(text))):
            raise FrameError("no node agent started: a shell read the agent's code as its commands")

    def _is_ours(self, run: str) -> bool:
        return run[:SHORTEST_RUN].encode() in self.first_bytes


def agent_bootstrap(node_dir: Path = NODE_DIR) -> Bootstrap:
    """The agent's modules and a new nonce."""
    return _with_nonce(packed_agent(node_dir).first)


def reconnect_bootstrap(node_dir: Path = NODE_DIR) -> Bootstrap:
    """The modules that bring a connection to an agent that is there already, and a new nonce."""
    return _with_nonce(packed_agent(node_dir).reconnect)


def _with_nonce(modules: bytes) -> Bootstrap:
    nonce = os.urandom(NONCE_BYTES).hex()
    return Bootstrap(nonce, b"%b%b\n" % (modules, nonce.encode()))


@dataclass(frozen=True)
class PackedAgent:
    """All modules of an agent.

    Attributes:
        first: those of its first word, for `boot` in paddle_node.agent.bootstrap; in letters and digits.
        reconnect: those that bring a connection to it, likewise.
        code: all others as code of this interpreter.
        source: all others as source.
        digest: of the sources of all.
    """

    first: bytes
    reconnect: bytes
    code: bytes
    source: bytes
    digest: str

    def rest_for(self, magic: object) -> bytes:
        """The body of the frame `modules`.

        Args:
            magic: what the agent's interpreter wants its code to begin with, in hexadecimal digits.
        """
        if magic == EVERYTHING:
            return b""
        return self.code if magic == importlib.util.MAGIC_NUMBER.hex() else self.source


def packed_agent(node_dir: Path = NODE_DIR, folder: Path | None = None) -> PackedAgent:
    """Read and compiled once in a launcher's life.

    Args:
        folder: where the first call looks for what an earlier launcher compiled, and keeps it for a later one.
    """
    with _packing:  # once, not once for each thread that waits
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
    about = _digest((sys.version, importlib.util.MAGIC_NUMBER, FIRST, RECONNECT, digest))
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
    modules = {}
    for name, source in sources.items():
        # level 2: without docstrings
        code = compile(source, f"{name.replace('.', '/')}.py", "exec", dont_inherit=True, optimize=2)
        modules[name] = (source, marshal.dumps(code))
    reconnect = {name: modules[name] for name in RECONNECT}
    first = {name: modules.pop(name) for name in FIRST}
    nothing = b""
    return PackedAgent(
        base64.b64encode(_packed((importlib.util.MAGIC_NUMBER, first))),
        base64.b64encode(_packed((importlib.util.MAGIC_NUMBER, reconnect))),
        _packed({name: (nothing, code) for name, (_, code) in modules.items()}),
        _packed({name: (source, nothing) for name, (source, _) in modules.items()}),
        digest,
    )


def _packed(part: Any) -> bytes:
    return zlib.compress(marshal.dumps(part, _MARSHAL))
