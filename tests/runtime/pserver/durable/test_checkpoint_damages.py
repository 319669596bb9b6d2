# SPDX-License-Identifier: Apache-2.0
"""Damaged and forged checkpoints: told with their reason, and never loaded."""

from __future__ import annotations

import json
import logging
import os
import pickle
import shutil
import zlib
from collections.abc import Callable
from pathlib import Path

import pytest

from paddle.errors import PserverError
from paddle.pserver.durable.checkpoint.folder import newest
from paddle.pserver.recovery import Safety
from tests.runtime.pserver.durable.written_checkpoints import ADAGRAD, written
from tests.runtime.pserver.kept_job import DECAYED, KeptJob


def data_of(root: Path, version: int, server: int) -> Path:
    (part,) = root.glob(f"v{version:012d}/part-{server}-of-2")
    return part / "state.bin"


def flip(root: Path) -> None:
    path = data_of(root, 15, 1)
    data = bytearray(path.read_bytes())
    data[len(data) // 2] ^= 0x10
    path.write_bytes(data)


def truncate(root: Path) -> None:
    path = data_of(root, 15, 0)
    path.write_bytes(path.read_bytes()[:-1])


def swap(root: Path) -> None:
    one, other = data_of(root, 15, 0), data_of(root, 15, 1)
    data = one.read_bytes()
    one.write_bytes(other.read_bytes())
    other.write_bytes(data)


def swap_parts(root: Path) -> None:
    one, other = data_of(root, 15, 0).parent, data_of(root, 15, 1).parent
    aside = one.with_name("aside")
    one.rename(aside)
    other.rename(one)
    aside.rename(other)


def change_manifest(root: Path) -> None:
    path = data_of(root, 15, 0).with_name("manifest.json")
    path.write_bytes(path.read_bytes().replace(b'num_samples\\": 60', b'num_samples\\": 61'))


def forge(root: Path, **changes: object) -> None:
    """Change what a manifest says, and make its checksum right again."""
    path = data_of(root, 15, 0).with_name("manifest.json")
    said = json.loads(json.loads(path.read_bytes())["body"]) | changes
    body = json.dumps(said)
    path.write_bytes(json.dumps({"crc32": zlib.crc32(body.encode()), "body": body}).encode())


def forge_file(root: Path, **changes: object) -> None:
    path = data_of(root, 15, 0).with_name("manifest.json")
    *earlier, file = json.loads(json.loads(path.read_bytes())["body"])["files"]
    forge(root, files=[*earlier, file | changes])


def forge_piece(root: Path, old: bytes, new: bytes) -> None:
    """Change what a piece says of itself, and make all checksums right again."""
    path = data_of(root, 15, 0)
    data = path.read_bytes()
    assert data.count(old) > 0
    assert len(old) == len(new)
    path.write_bytes(data.replace(old, new, 1))
    forge_file(root, crc32=zlib.crc32(path.read_bytes()))


class Bomb:
    def __init__(self, canary: Path) -> None:
        self._canary = canary

    def __reduce__(self) -> tuple[Callable[[Path], None], tuple[Path]]:
        return Path.touch, (self._canary,)


def become_a_bomb(path: Path) -> None:
    path.write_bytes(pickle.dumps(Bomb(path.parents[2] / "canary")))


def become_a_link(path: Path) -> None:
    """To a file with the very same bytes, elsewhere."""
    there = path.parents[2] / "elsewhere"
    path.rename(there)
    path.symlink_to(there)


def become_a_pipe(path: Path) -> None:
    path.unlink()
    os.mkfifo(path)


def manifest_of(root: Path) -> Path:
    return data_of(root, 15, 0).with_name("manifest.json")


DAMAGES: dict[str, Callable[[Path], object]] = {
    "a bit is flipped": flip,
    "a file is truncated": truncate,
    "a file is empty": lambda root: data_of(root, 15, 0).write_bytes(b""),
    "a file is gone": lambda root: data_of(root, 15, 1).unlink(),
    "two files are swapped": swap,
    "two parts are swapped": swap_parts,
    "the manifest is gone": lambda root: data_of(root, 15, 0).with_name("manifest.json").unlink(),
    "the manifest is empty": lambda root: data_of(root, 15, 0).with_name("manifest.json").write_bytes(b""),
    "the manifest is changed": change_manifest,
    "a part is gone": lambda root: shutil.rmtree(data_of(root, 15, 1).parent),
    "data is a pickle bomb": lambda root: become_a_bomb(data_of(root, 15, 0)),
    "the manifest is a pickle bomb": lambda root: become_a_bomb(manifest_of(root)),
    "data is a link out": lambda root: become_a_link(data_of(root, 15, 0)),
    "the manifest is a link out": lambda root: become_a_link(manifest_of(root)),
    "a part is a link out": lambda root: become_a_link(data_of(root, 15, 0).parent),
    "data is a pipe": lambda root: become_a_pipe(data_of(root, 15, 0)),
    "the manifest is a pipe": lambda root: become_a_pipe(manifest_of(root)),
    "the manifest is deep": lambda root: manifest_of(root).write_bytes(b"[" * 100_000),
    "the manifest is larger than memory": lambda root: os.truncate(manifest_of(root), 1 << 40),
    "the manifest is a list": lambda root: manifest_of(root).write_bytes(b"[1, 2]"),
    "a forged file lies outside": lambda root: forge_file(root, path="../../../etc/passwd"),
    "a forged file has 2^40 bytes": lambda root: forge_file(root, nbytes=1 << 40),
    "a forged version is a text": lambda root: forge(root, version="15"),
    "a forged count is negative": lambda root: forge(root, count=-2),
    "a forged body is deep": lambda root: forge(root, engine="["),
}


@pytest.mark.parametrize("damage", DAMAGES)
def test_a_damaged_checkpoint_is_told_and_the_one_before_it_is_used(
    damage: str, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    written(tmp_path)
    assert newest(tmp_path).version == 15
    DAMAGES[damage](tmp_path)
    with caplog.at_level(logging.WARNING):
        job = KeptJob(Safety(checkpoints=tmp_path, resume="latest"), ADAGRAD, DECAYED)
    assert {engine.version for engine in job.engines} == {10}
    assert "v000000000015 is skipped" in caplog.text
    assert not (tmp_path / "canary").exists()
    job.close()


@pytest.mark.parametrize(
    ("old", "new"),
    [
        (b'"first": 0', b'"first":-1'),
        (b'"parameter": "w"', b'"parameter": "v"'),
        (b"<f4", b"<f8"),
        (b"PIEC", b"PIEX"),
        (b'"size": 4500', b'"size": 4509'),
    ],
)
def test_a_forged_piece_ends_the_job_with_a_reason(old: bytes, new: bytes, tmp_path: Path) -> None:
    written(tmp_path)
    forge_piece(tmp_path, old, new)
    with pytest.raises(PserverError, match=r"does not fit|cannot be read|a piece of|expected \d+ elements"):
        KeptJob(Safety(checkpoints=tmp_path, resume="latest"), ADAGRAD, DECAYED)
