# SPDX-License-Identifier: Apache-2.0
"""A job that goes on from a checkpoint ends with the bits of one that never stopped, on any number of servers."""

from __future__ import annotations

import json
import logging
import os
import pickle
import resource
import shutil
import zlib
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import numpy as np
import pytest

from paddle.errors import CheckpointError, ConfigError, PserverError
from paddle.optim.spec import OptimizerSpec
from paddle.pserver.checkpoint.folder import newest
from paddle.pserver.safekeeping import Safety
from tests.runtime.pserver.in_process_job import Model
from tests.runtime.pserver.kept_job import DECAYED, MODEL, KeptJob, same_bits

STEPS, PERIOD = 22, 5
ADAGRAD = OptimizerSpec("adagrad", learning_rate=0.1, hyper={"epsilon": 1e-6})
MOMENTUM = Model({"w": (90, 50), "b": (64,), "table": (300, 8)}, sparse=["table"], momentum=0.9, l2=1e-3)
CASES = {
    "plain": (OptimizerSpec("momentum", learning_rate=0.1), MODEL),
    "adagrad": (ADAGRAD, DECAYED),
    "decayed_adagrad": (OptimizerSpec("decayed_adagrad", learning_rate=0.1), DECAYED),
    "sparse_momentum": (OptimizerSpec("sparse_momentum", learning_rate=0.01), MOMENTUM),
    "schedule": (
        OptimizerSpec("adagrad", learning_rate=0.1, schedule="poly", decay_a=0.01, decay_b=0.5), DECAYED
    ),
}  # fmt: skip


@pytest.mark.parametrize("servers", [(2, 0), (1, 0), (3, 0), (2, 2), (1, 3)])
@pytest.mark.parametrize("case", CASES)
def test_a_resumed_job_ends_with_the_same_bits(case: str, servers: tuple[int, int], tmp_path: Path) -> None:
    optimizer, model = CASES[case]
    job = KeptJob(Safety(checkpoints=tmp_path, period=PERIOD), optimizer, model)
    job.train(0, STEPS)
    expected = job.values()
    job.close()
    again = KeptJob(Safety(checkpoints=tmp_path, resume="latest"), optimizer, model, *servers)
    version = STEPS // PERIOD * PERIOD
    assert {engine.version for engine in again.engines} == {version}
    again.train(version, STEPS)
    assert same_bits(again.values(), expected)
    again.close()


def written(tmp_path: Path, steps: int = 17) -> None:
    job = KeptJob(Safety(checkpoints=tmp_path, period=PERIOD), ADAGRAD, DECAYED)
    job.train(0, steps)
    job.close()


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
    assert "v000000000015 is passed over" in caplog.text
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
    with pytest.raises(PserverError, match=r"does not fit|cannot be read|no piece of|expected \d+ elements"):
        KeptJob(Safety(checkpoints=tmp_path, resume="latest"), ADAGRAD, DECAYED)


def test_a_job_does_not_begin_anew_when_no_checkpoint_is_whole(tmp_path: Path) -> None:
    written(tmp_path)
    for path in tmp_path.glob("v*/part-0-of-2/state.bin"):
        path.write_bytes(b"")
    with pytest.raises(PserverError, match=r"no whole checkpoint in .*expected \d+ bytes, got 0"):
        KeptJob(Safety(checkpoints=tmp_path, resume="latest"), ADAGRAD, DECAYED)
    with pytest.raises(PserverError, match="no whole checkpoint of version 7"):
        KeptJob(Safety(checkpoints=tmp_path, resume="7"), ADAGRAD, DECAYED)


def test_a_checkpoint_of_another_model_is_refused(tmp_path: Path) -> None:
    written(tmp_path)
    other = Model({"w": (90, 51), "b": (64,), "table": (300, 8)}, sparse=["table"])
    with pytest.raises(PserverError, match="parameter w: expected 4590 elements, the checkpoint has 4500"):
        KeptJob(Safety(checkpoints=tmp_path, resume="latest"), ADAGRAD, other, 1, 0)


def test_old_checkpoints_go_and_what_newer_ones_build_upon_stays(tmp_path: Path) -> None:
    written(tmp_path, 60)
    versions = sorted(int(path.name[1:]) for path in tmp_path.glob("v*"))
    assert versions[-3:] == [50, 55, 60]
    for version in versions[-3:]:
        assert newest(tmp_path, version).version == version
    assert not list(tmp_path.glob(".unfinished*"))


@contextmanager
def small_files(nbytes: int) -> Iterator[None]:
    before = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (nbytes, before[1]))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, before)


def test_a_disk_without_room_costs_a_checkpoint_and_nothing_else(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    job = KeptJob(Safety(checkpoints=tmp_path, period=PERIOD), ADAGRAD, DECAYED)
    job.train(0, 7)
    with small_files(4096):
        job.train(7, 13)
    assert newest(tmp_path).version == 5
    assert "no checkpoint of batch 10" in caplog.text
    assert "bytes are free" in caplog.text
    assert "the last one is of batch 5, the next try is at batch 15" in caplog.text
    assert not list(tmp_path.glob(".unfinished*"))
    job.train(13, 17)
    expected = job.values()
    job.close()
    again = KeptJob(Safety(checkpoints=tmp_path, resume="latest"), ADAGRAD, DECAYED)
    assert {engine.version for engine in again.engines} == {15}
    again.train(15, 17)
    assert same_bits(again.values(), expected)
    again.close()


def test_training_between_the_copying_does_not_get_into_a_checkpoint(tmp_path: Path) -> None:
    job = KeptJob(Safety(checkpoints=tmp_path, period=PERIOD, keep=100), ADAGRAD, DECAYED)
    states = {}
    for number in range(15):
        job.step(number)  # copies what the step touches and no more
        if (number + 1) % PERIOD == 0:
            states[number + 1] = {name: np.array(array) for name, array in job.values().items()}
        if (number + 1) % PERIOD == 3:
            job.finish_background()
    job.finish_background()
    job.close()
    for version, expected in states.items():
        again = KeptJob(Safety(checkpoints=tmp_path, resume=str(version)), ADAGRAD, DECAYED)
        assert same_bits(again.values(), expected), version
        again.close()


@pytest.mark.parametrize(
    ("flags", "text"),
    [
        ({"checkpoint_period": 5}, "needs --checkpoint_dir"),
        ({"resume": "latest"}, "needs --checkpoint_dir"),
        ({"resume": "newest", "checkpoint_dir": "/x"}, "expected latest, or the batch"),
    ],
)
def test_flags_that_do_not_fit_together_are_refused(flags: dict[str, object], text: str) -> None:
    given = {"checkpoint_dir": "", "resume": "", "checkpoint_period": 0, "checkpoint_keep": 3, **flags}
    with pytest.raises(ConfigError, match=text):
        Safety.read(given, "")


def test_an_empty_folder_is_no_checkpoint(tmp_path: Path) -> None:
    with pytest.raises(CheckpointError, match="no whole checkpoint"):
        newest(tmp_path / "nowhere")
