# SPDX-License-Identifier: Apache-2.0
"""The agent on its way to a node: text for `python3 -c`, and the modules that follow on standard input."""

from __future__ import annotations

import base64
import json
import secrets
import zlib
from dataclasses import dataclass
from pathlib import Path

AGENT_DIR = Path(__file__).resolve().parent.parent / "runtime" / "agent"
OLDEST_PYTHON = (3, 8)

# -I: no module of the user's home directory is taken for one of the library; utf8: file names stay the
# bytes they are
FLAGS = ("-X", "utf8", "-I", "-S")

# A buffer of one byte reads exactly so many bytes: what follows belongs to the agent. No quote of a shell's here.
_CODE = (
    "import base64,io,json,zlib;"
    "b=io.BufferedReader(io.FileIO(0,closefd=False),1).read({size});"
    "b=json.loads(zlib.decompress(base64.b64decode(b)));"
    "g=dict(__name__=str());"
    "exec(b[0],g);"
    "g[b[1]](*b[2:])"
)


@dataclass(frozen=True)
class Bootstrap:
    """One start of an agent.

    Attributes:
        nonce: makes its first line one that nothing else says.
        payload: what goes to its standard input first.
    """

    nonce: str
    payload: bytes

    @property
    def code(self) -> str:
        """The argument of `python3 -c`; holds no quote and no line end."""
        return _CODE.format(size=len(self.payload))


def agent_bootstrap(agent_dir: Path = AGENT_DIR) -> Bootstrap:
    """Read the agent's sources and make a new nonce."""
    nonce = secrets.token_hex(16)
    sources = {
        "agent" if path.stem == "__init__" else f"agent.{path.stem}": path.read_text(encoding="utf-8")
        for path in sorted(agent_dir.glob("*.py"))
    }
    loader = sources.pop("agent.bootstrap")
    text = json.dumps([loader, "boot", sources, nonce]).encode()
    # one word in letters and digits: a login script that hands the input to another shell must not run any of it
    return Bootstrap(nonce, base64.b64encode(zlib.compress(text)) + b"\n")
