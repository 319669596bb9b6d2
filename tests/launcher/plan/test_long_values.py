# SPDX-License-Identifier: Apache-2.0
"""Values that grow with the nodes: what is sent of them, and that they come out whole on the other side."""

from __future__ import annotations

import json
import random
from pathlib import Path

import pytest

from paddle_cluster.plan.environment import PIECE, pack_pieces, split_long, too_long_message
from paddle_node.agent.processes.processes import LongValues
from paddle_node.contract.records import read
from paddle_node.contract.to_agent import Start

SIZES = (PIECE, PIECE + 1, 2 * PIECE, 2 * PIECE + 1, 131_071 - len("NAME="), 131_072 - len("NAME="), 480_000)


def arrived(
    node: LongValues, env: dict[str, str], known: set[str], folder: Path
) -> tuple[dict[str, str], int]:
    """What a process gets of an environment, and how many bytes were sent for it."""
    values = split_long(env)
    body = pack_pieces(values, known)
    known.update(values.texts)
    node.learn(body)
    fields = json.loads(json.dumps({"env_pieces": values.pieces, "env_files": values.in_files}))
    got = {**values.short, **node.variables(fields["env_pieces"])}
    for name, path in node.files(fields["env_files"], str(folder)).items():
        got[name.removesuffix("_FILE")] = Path(path).read_text()
    return got, len(body) + len(json.dumps(fields))


@pytest.mark.parametrize("size", SIZES)
@pytest.mark.parametrize("alphabet", ["0123456789.:,", "x", "\u65e5\u672c"], ids=["list", "alike", "wide"])
def test_a_value_of_any_size_arrives_whole(tmp_path: Path, size: int, alphabet: str) -> None:
    env = {"NAME": "".join(random.Random(size).choices(alphabet, k=size)), "SHORT": "1"}
    assert arrived(LongValues(), env, set(), tmp_path)[0] == env


def test_what_was_sent_is_not_sent_again(tmp_path: Path) -> None:
    endpoints = [f"10.{n >> 16}.{n >> 8 & 255}.{n & 255}:{7164 + n % 8}" for n in range(24_000)]
    node, known, sizes = LongValues(), set[str](), []
    for rank in range(8):
        workers = json.dumps({"worker": endpoints[:5000], "index": rank})
        env = {"PADDLE_TRAINER_ENDPOINTS": ",".join(endpoints), "TF_CONFIG": workers, "RANK": str(rank)}
        got, size = arrived(node, env, known, tmp_path)
        assert got == env
        sizes.append(size)
    assert sizes[0] < 250_000  # of 500 KB
    assert max(sizes[1:]) < 8000  # digests, and TF_CONFIG's last piece


def test_a_piece_that_never_came_is_an_error_that_names_the_variable(tmp_path: Path) -> None:
    values = split_long({"NAME": "x" * (PIECE + 1)})
    with pytest.raises(ValueError, match="a piece of NAME did not arrive"):
        LongValues().variables({"NAME": list(values.pieces["NAME"])})


@pytest.mark.parametrize("body", [b"x", pack_pieces(split_long({"N": "x" * 40_000}), set())[:-3]])
def test_a_body_that_is_cut_off_or_no_list_is_refused(body: bytes) -> None:
    with pytest.raises(ValueError, match="pieces of long values"):
        LongValues().learn(body)


def test_pieces_are_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("paddle_node.agent.processes.processes.MOST_BYTES", 30_000)
    node = LongValues()
    node.learn(pack_pieces(split_long({"N": "x" * 40_000}), set()))
    with pytest.raises(ValueError, match="30000 bytes"):
        node.learn(pack_pieces(split_long({"N": "y" * 40_000}), set()))


@pytest.mark.parametrize("name", ["../x", "A/B", "", "1A"])
def test_a_file_is_named_by_a_variable_alone(name: str) -> None:
    start = {"proc": "p", "role": "trainer", "rank": 0, "argv": [], "cwd": "/", "log": "log/a"}
    with pytest.raises(ValueError, match="a name of an environment variable"):
        read(Start, {**start, "env_files": {name: []}}, "start", "the launcher")


def test_what_is_told_names_the_variable_that_scripts_must_read() -> None:
    assert "PADDLE_PSERVERS_FILE" in too_long_message("PADDLE_PSERVERS")
