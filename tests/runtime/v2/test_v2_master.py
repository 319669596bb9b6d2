# SPDX-License-Identifier: Apache-2.0
"""`paddle.v2.master`: recordio files shared out to trainers, in one process and over a real server."""

from __future__ import annotations

import itertools
import os
import signal
import subprocess
import sys
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import pytest

import paddle.v2 as paddle
import paddle.v2.master as master
from paddle.dataset.common import convert
from paddle.errors import ConfigError, MissingNameError
from paddle.reader import creator, multiprocess_reader, pickled
from paddle.v2.errors import UsageError
from tests.runtime.pserver.pserver_process import KEY, ROOT, PserverProcess

_WAIT_S = 60.0


def written(folder: Path, count: int, per_file: int = 3) -> str:
    convert(str(folder), lambda: iter(range(count)), per_file, "part")
    return f"{folder}/part-*"


def records(client: master.client, pass_id: int) -> list[int]:
    client.paddle_start_get_records(pass_id)
    found: list[int] = []
    while True:
        record, error = client.next_record()
        if record is None:
            assert error == -2
            return found
        found.append(pickled.loads(record))


def test_a_single_trainer_reads_every_pass_in_order_without_servers(tmp_path: Path) -> None:
    client = master.client("http://etcd:2379", 5, 0)
    client.set_dataset([written(tmp_path, 10)])
    assert [records(client, pass_id) for pass_id in (0, 1, 0, 2)] == [
        list(range(10)), list(range(10)), [], list(range(10)),
    ]  # fmt: skip
    assert [client.request_save_model(trainer, 60_000) for trainer in (0, 1, 0)] == [1, 0, 1]
    client.release()
    client.release()
    with pytest.raises(UsageError, match="this master client was released"):
        client.request_save_model(0, 1)
    assert paddle.master is master


def test_data_sets_do_not_mix_and_a_task_returns_when_reading_stops(tmp_path: Path) -> None:
    train = creator.cloud_reader(written(tmp_path / "train", 10), "")
    test = creator.cloud_reader(written(tmp_path / "test", 4), "")
    assert list(itertools.islice(train(), 2)) == [0, 1]
    assert sorted(test()) == [0, 1, 2, 3]
    rest = list(train())  # pass 1 begins with what is left of pass 0
    assert sorted({*rest}) == list(range(10))
    assert sorted(test()) == [0, 1, 2, 3]


def test_a_damaged_file_fails_its_task_and_the_rest_is_read(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    client = master.client("", 5)
    client.set_dataset([written(tmp_path, 9)])
    path = tmp_path / "part-00001"
    whole = path.read_bytes()
    path.write_bytes(whole[:-1] + bytes([whole[-1] ^ 1]))
    client.paddle_start_get_records(0)
    found = list(itertools.takewhile(lambda each: each[1] != -2, iter(client.next_record, None)))
    assert [pickled.loads(record) for record, error in found if record is not None] == [0, 1, 2, 6, 7, 8]
    assert [error for _, error in found].count(-1) == 3
    assert "is skipped for this pass" in caplog.text
    path.write_bytes(whole)
    assert records(client, 1) == list(range(9))
    client.release()


def test_wrong_use_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    client = master.client("", 5)
    with pytest.raises(ConfigError, match=r"set_dataset: no file matches .*none-\*"):
        client.set_dataset([f"{tmp_path}/none-*"])
    with pytest.raises(UsageError, match="call set_dataset first"):
        client.paddle_start_get_records(0)
    with pytest.raises(MissingNameError, match="get_c_lib is not available"):
        master.get_c_lib()


def test_trainers_of_a_job_without_servers_read_every_nth_chunk(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    pattern = written(tmp_path, 10)
    monkeypatch.setenv("PADDLE_TRAINERS_NUM", "2")
    monkeypatch.setenv("PADDLE_TRAINER_ID", "1")
    paddle.init()
    assert list(creator.cloud_reader(pattern, "http://etcd:2379")()) == [3, 4, 5, 9]
    monkeypatch.setenv("PADDLE_TRAINERS_NUM", "5")
    paddle.init()
    with pytest.raises(ConfigError, match="4 chunks are too few for 5 trainers; write more files"):
        list(creator.cloud_reader(pattern, "")())


@pytest.fixture(autouse=True)
def settings_of_other_tests(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Read the environment anew, before and after."""
    paddle.init()
    yield
    monkeypatch.undo()
    paddle.init()


# Reads `stop` records, or all of the given passes, and writes each; then waits to be killed.
_TRAINER = """
import sys
import paddle.v2.master as master
from paddle.reader import pickled
pattern, passes, stop = sys.argv[1], int(sys.argv[2]), int(sys.argv[3])
client = master.client("", 30)
client.set_dataset([pattern])
count = 0
for pass_id in range(passes):
    client.paddle_start_get_records(pass_id)
    while True:
        record, error = client.next_record()
        if error == -2:
            break
        print(pickled.loads(record), flush=True)
        count += 1
        if count == stop:
            print("stops", flush=True)
            sys.stdin.read()
client.release()
"""


def environment(server: PserverProcess, trainer: int, trainers: int) -> dict[str, str]:
    return {
        "PADDLE_JOB_KEY": KEY,
        "PADDLE_PSERVERS_IP_PORT_LIST": ",".join(server.endpoints),
        "PADDLE_TRAINERS_NUM": str(trainers),
        "PADDLE_TRAINER_ID": str(trainer),
        "PADDLE_PSERVER_PATIENCE_S": "30",
    }


def started(server: PserverProcess, trainer: int, *arguments: str) -> subprocess.Popen[str]:
    variables = {"PATH": os.environ["PATH"], "PYTHONPATH": str(ROOT / "runtime"), "OPENBLAS_NUM_THREADS": "1"}
    return subprocess.Popen(
        [sys.executable, "-P", "-c", _TRAINER, *arguments],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
        env=variables | environment(server, trainer, 3),
    )


def test_the_tasks_of_a_killed_trainer_are_read_by_the_others(tmp_path: Path) -> None:
    pattern = written(tmp_path, 45)
    with PserverProcess("--port=0", "--ports_num=1", "--num_gradient_servers=3") as server:
        victim = started(server, 2, pattern, "1", "4")
        assert victim.stdout is not None
        lines = list(iter(victim.stdout.readline, "stops\n"))
        others = [started(server, trainer, pattern, "2", "-1") for trainer in (0, 1)]
        victim.kill()
        victim.communicate()
        outputs = [each.communicate(timeout=_WAIT_S)[0].split() for each in others]
        assert [each.returncode for each in others] == [0, 0]
    seen = Counter(int(word) for word in itertools.chain(lines, *outputs))
    # Each record in both passes; the last of the victim's four is of a piece that it did not read to its end.
    assert seen == Counter(dict.fromkeys(range(45), 2) | {int(lines[-1]): 3})


def test_a_server_that_is_killed_continues_its_pass(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    pattern = written(tmp_path / "data", 24, per_file=1)
    flags = ("--port=0", "--ports_num=1", "--num_gradient_servers=2", f"--state_dir={tmp_path}")
    with PserverProcess(*flags) as server:
        for name, value in environment(server, 1, 2).items():
            monkeypatch.setenv(name, value)
        paddle.init()
        client = master.client("", 30)
        client.set_dataset([pattern])
        client.paddle_start_get_records(0)
        found = []
        for number in range(24):
            if number in (2, 9):
                server.end(signal.SIGKILL)
                server.start()
            record, error = client.next_record()
            assert record is not None, error
            found.append(pickled.loads(record))
        assert sorted(found) == list(range(24))
        assert client.next_record() == (None, -2)
        client.release()


def test_forked_readers_of_one_trainer_share_the_tasks(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    pattern = written(tmp_path, 24, per_file=1)
    with PserverProcess("--port=0", "--ports_num=1", "--num_gradient_servers=1") as server:
        for name, value in environment(server, 0, 1).items():
            monkeypatch.setenv(name, value)
        paddle.init()
        readers = [creator.cloud_reader(pattern, "") for _ in range(2)]
        assert sorted(multiprocess_reader(readers)()) == list(range(24))


def test_relative_paths_belong_to_the_working_directory_of_each_trainer(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with PserverProcess("--port=0", "--ports_num=1", "--num_gradient_servers=2") as server:
        clients = []
        for rank in (0, 1):
            for name, value in environment(server, rank, 2).items():
                monkeypatch.setenv(name, value)
            paddle.init()
            written(tmp_path / str(rank) / "data", 9)
            monkeypatch.chdir(tmp_path / str(rank))
            clients.append(master.client("", 5))
            clients[rank].set_dataset(["data/part-*"])
        monkeypatch.chdir(tmp_path)
        assert sorted(records(clients[1], 0)) == list(range(9))
        for client in clients:
            client.release()


def test_trainers_with_other_files_are_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    pattern = written(tmp_path, 9)
    with PserverProcess("--port=0", "--ports_num=1", "--num_gradient_servers=2") as server:
        for name, value in environment(server, 0, 2).items():
            monkeypatch.setenv(name, value)
        paddle.init()
        first, second = master.client("", 5), master.client("", 5)
        first.set_dataset([pattern])
        (tmp_path / "part-00002").unlink()
        with pytest.raises(ConfigError, match=r"pserver .*differs between trainers: trainer 0 has 2 chunks"):
            second.set_dataset([pattern])
        first.release()
        second.release()
