# SPDX-License-Identifier: Apache-2.0
"""The agent's bytecode: small, and with the line numbers of its source."""

from __future__ import annotations

import shutil
import subprocess
import sys
import traceback
from pathlib import Path
from typing import Any

import pytest

from paddle_cluster.connection.agent_code import compiled
from paddle_cluster.system.installation import NODE_DIR

ROOT = Path(__file__).resolve().parents[3]
HEAD = b"from __future__ import annotations\n"


def executed(source: bytes) -> dict[str, Any]:
    names: dict[str, Any] = {"__name__": "sent"}
    exec(compiled(HEAD + source, "sent.py"), names)
    return names


@pytest.mark.parametrize("blank", [0, 1, 40, 300, 5000])
@pytest.mark.parametrize("lines", [1, 7, 200])
def test_a_traceback_has_the_line_numbers_of_the_source(blank: int, lines: int) -> None:
    body = (
        b"def outer(x):\n"
        + b"    x += 1\n" * lines
        + b"\n" * blank
        + b"    for each in (\n    inner(x),\n    ): pass\n"
    )
    source = body + b"def inner(x):\n    try:\n        pass\n    finally:\n        x = [1,\n 1 / 0]\n"
    with pytest.raises(ZeroDivisionError) as raised:
        executed(source)["outer"](0)
    plain: dict[str, Any] = {}
    exec(compile(HEAD + source, "sent.py", "exec"), plain)
    with pytest.raises(ZeroDivisionError) as expected:
        plain["outer"](0)
    places = [
        [
            (frame.name, frame.lineno)
            for frame in traceback.extract_tb(error.tb)
            if frame.filename == "sent.py"
        ]
        for error in (raised, expected)
    ]
    assert places[0] == places[1]
    assert len(places[0]) == 2


def test_annotations_of_records_alone_remain() -> None:
    names = executed(
        b"from typing import TYPE_CHECKING, Dict, NamedTuple, Tuple, TypeVar\n"
        b"if TYPE_CHECKING:\n    from nowhere import Nothing\n"
        b'R = TypeVar("R")\nPair = Tuple[int, int]\n'
        b"class Row(NamedTuple):\n    pair: Pair\n    table: Dict[str, int]\n"
        b"def swap(row: Row, *rest: Nothing, key: R = None) -> R:\n"
        b"    both: Tuple[int, int] = row.pair\n    return both[::-1]\n"
    )
    assert names["swap"](names["Row"]((1, 2), {})) == (2, 1)
    assert names["swap"].__annotations__ == {}
    assert names["Row"].__annotations__ == {"pair": "Pair", "table": "Dict[str, int]"}
    assert "TypeVar" not in names


def test_a_type_that_code_uses_remains() -> None:
    names = executed(b"from typing import Any, cast\ndef given(x: Any) -> int:\n    return cast(Any, x)\n")
    assert names["given"](3) == 3


def test_values_that_calls_of_typing_make_remain() -> None:
    names = executed(
        b"from typing import Any, NamedTuple, cast\n"
        b'LIMIT = cast(Any, 3)\nRow = NamedTuple("Row", [("a", int)])\n'
    )
    assert (names["LIMIT"], names["Row"](4).a) == (3, 4)
    names = executed(b'from typing import NamedTuple\nRow = NamedTuple("Row", [("a", int)])\n')
    assert names["Row"](4).a == 4


PACK = """
import pathlib, sys
from paddle_cluster.connection.bootstrap import packed_agent
packed_agent(pathlib.Path("runtime/paddle_node").resolve(), pathlib.Path(sys.argv[1]))
"""


def test_cached_code_is_not_used_after_its_compiler_has_changed(tmp_path: Path) -> None:
    shutil.copytree(ROOT / "paddle_cluster", tmp_path / "paddle_cluster")
    shutil.copytree(NODE_DIR, tmp_path / "runtime" / "paddle_node")
    compiler = tmp_path / "paddle_cluster/connection/agent_code.py"
    cached = tmp_path / "cached"
    for expected, more in ((1, ""), (1, ""), (2, "# changed\n")):
        compiler.write_text(compiler.read_text() + more)
        subprocess.run([sys.executable, "-c", PACK, cached], cwd=tmp_path, check=True, timeout=60)
        assert len(list(cached.iterdir())) == expected


def test_the_packed_agent_never_imports_typing() -> None:
    """It would take as long as several of its rooms."""
    for path in NODE_DIR.rglob("*.py"):
        code = compiled(path.read_bytes(), str(path))
        assert "typing" not in code.co_names, path
