# SPDX-License-Identifier: Apache-2.0
"""prepare.py, run as users run it: what it writes, that it repeats, and what it says when it cannot."""

from __future__ import annotations

import io
import os
import pickle
import subprocess
import sys
import tarfile
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
PREPARE = ROOT / "workspace_template" / "prepare.py"
SHARED = ROOT.parent / "shared" / "data"


def run(out: Path, *options: str, code: int = 0, **environment: str) -> str:
    plain = {name: value for name, value in os.environ.items() if name != "PYTHONPATH"}
    done = subprocess.run(
        [sys.executable, str(PREPARE), f"--out={out}", *options],
        cwd=out.parent,
        env=plain | environment,
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert done.returncode == code, done.stdout + done.stderr
    return done.stdout + done.stderr


def contents(out: Path) -> dict[str, bytes]:
    return {path.name: path.read_bytes() for path in out.iterdir()}


class PlainData(pickle.Unpickler):
    """Reads dictionaries, strings and numbers, and nothing that would run."""

    def find_class(self, module: str, name: str) -> None:
        raise AssertionError(f"the dictionary refers to {module}.{name}")


def dictionary(out: Path) -> dict[str, int]:
    words = PlainData(io.BytesIO((out / "word_dict.pickle").read_bytes())).load()
    assert isinstance(words, dict)
    return words


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> Path:
    out = tmp_path_factory.mktemp("prepared") / "ws"
    run(out)
    return out


def test_without_options_a_node_gets_its_piece_of_three(made: Path) -> None:
    pieces = [f"{name}-{piece:05d}" for name in ("train.txt", "test.txt") for piece in range(3)]
    assert sorted(contents(made)) == sorted(["word_dict.pickle", "train.txt", "test.txt", *pieces])


@pytest.mark.parametrize(
    ("conf", "job", "pieces"),
    [
        ("HOSTS = ['a', 'b', 'c', 'd']", [], 4),
        ("HOSTS = ['a', 'b', 'c', 'd']\nTRAINERS = [1, 2]", ["--num_passes=9"], 2),
        ("HOSTS = ['a', 'b']", ["--nproc_per_node=3"], 6),
        ("HOSTS = ['a', 'b']", ["--hosts=a,b:2222,c,d,e"], 5),
    ],
)
def test_a_job_gets_a_piece_for_each_of_its_trainers(
    tmp_path: Path, conf: str, job: list[str], pieces: int
) -> None:
    (tmp_path / "text").write_text("a b c d e f g\n" * 200)
    (tmp_path / "conf.py").write_text(conf)
    run(tmp_path / "ws", "--corpus=text", "--", *job, PADDLE_CLUSTER_CONF=str(tmp_path / "conf.py"))
    assert len(list((tmp_path / "ws").glob("train.txt-*"))) == pieces
    (tmp_path / "other.py").write_text("HOSTS = ['x']")
    run(tmp_path / "ws", "--corpus=text", "--", *job[1:], "--conf=other.py")
    assert len(list((tmp_path / "ws").glob("train.txt-*"))) == 1


def test_a_wrong_conf_is_told_as_the_job_would_tell_it(tmp_path: Path) -> None:
    (tmp_path / "conf.py").write_text("HOSTS = 'a'")
    said = run(tmp_path / "ws", "--", "--conf=conf.py", code=2)
    assert "prepare: conf.py:1: HOSTS: expected a list" in said
    assert "Traceback" not in said


def test_a_copy_that_knows_no_launcher_asks_for_the_number(tmp_path: Path) -> None:
    (tmp_path / "prepare.py").write_bytes(PREPARE.read_bytes())
    (tmp_path / "text").write_text("a b c d e f g\n" * 200)
    command = [sys.executable, "-I", str(tmp_path / "prepare.py"), "--corpus=text"]
    for options, code in (((), 1), (("--split_count=2",), 0)):
        done = subprocess.run(
            [*command, *options], cwd=tmp_path, capture_output=True, text=True, timeout=60, check=False
        )
        assert done.returncode == code, done.stderr
        assert ("give --split_count=N" in done.stderr) is bool(code)


def test_the_pieces_join_to_the_whole_and_are_of_one_length(made: Path) -> None:
    files = contents(made)
    for name in ("train.txt", "test.txt"):
        pieces = [files[f"{name}-{piece:05d}"] for piece in range(3)]
        assert b"".join(pieces) == files[name]
        total = files[name].count(b"\n")
        length = total // 3 + 1
        assert [piece.count(b"\n") for piece in pieces] == [length, length, total - 2 * length]


def test_every_line_is_five_ids_of_the_dictionary(made: Path) -> None:
    words = dictionary(made)
    assert sorted(words.values()) == list(range(len(words)))
    for name in ("train.txt", "test.txt"):
        for line in (made / name).read_text().splitlines():
            ids = [int(text) for text in line.split(",")]
            assert len(ids) == 5
            assert all(0 <= number < len(words) for number in ids)


def test_the_dictionary_has_about_two_thousand_words_of_english(made: Path) -> None:
    words = dictionary(made)
    assert 1500 <= len(words) <= 2500
    assert {"the", "function", ".", "<s>", "<e>", "N"} <= words.keys()
    assert words["<unk>"] == len(words) - 1


def test_about_a_tenth_is_for_testing(made: Path) -> None:
    train, test = (contents(made)[name].count(b"\n") for name in ("train.txt", "test.txt"))
    assert 0.07 < test / train < 0.15


def test_the_same_run_gives_the_same_bytes(made: Path, tmp_path: Path) -> None:
    run(tmp_path / "ws", PYTHONHASHSEED="17")
    assert contents(tmp_path / "ws") == contents(made)


def test_a_second_run_touches_nothing_and_mends_what_was_damaged(tmp_path: Path) -> None:
    out = tmp_path / "ws"
    run(out)
    before = {path: path.stat().st_mtime_ns for path in out.iterdir()}
    assert "up to date" in run(out)
    assert {path: path.stat().st_mtime_ns for path in out.iterdir()} == before
    good = contents(out)
    (out / "train.txt-00001").write_text("1,2,3")
    (out / "test.txt").unlink()
    assert "2 files written" in run(out)
    assert contents(out) == good


def test_another_split_leaves_no_piece_of_the_old_one(tmp_path: Path) -> None:
    run(tmp_path / "ws", "--split_count=5")
    run(tmp_path / "ws", "--split_count=2")
    assert sorted(name for name in contents(tmp_path / "ws") if "train.txt-" in name) == [
        "train.txt-00000",
        "train.txt-00001",
    ]


def test_files_of_others_stay_where_they_are(tmp_path: Path) -> None:
    others = {"notes.txt-2020", "mine.txt-00007", "train.txt-00001.bak"}
    for name in others:
        (tmp_path / name).write_text("mine")
    run(tmp_path)
    assert {name for name, content in contents(tmp_path).items() if content == b"mine"} == others


def test_a_text_of_your_own_is_read_one_sentence_a_line(tmp_path: Path) -> None:
    text = tmp_path / "own.txt"
    text.write_text("The cat saw 12 dogs.\n" * 30 + "once\n", encoding="utf-8")
    run(tmp_path / "ws", f"--corpus={text}", "--split_count=1")
    words = dictionary(tmp_path / "ws")
    assert words.keys() == {".", "<s>", "<e>", "N", "cat", "dogs", "saw", "the", "<unk>"}
    ids = [words[word] for word in ("<s>", "the", "cat", "saw", "N", "dogs", ".", "<e>")]
    lines = (tmp_path / "ws" / "train.txt").read_text().splitlines()
    assert lines[:4] == [",".join(map(str, ids[start : start + 5])) for start in range(4)]
    assert len(lines) == 27 * 4


@pytest.mark.parametrize(
    ("options", "said", "code"),
    [
        (["--corpus=missing.txt"], "missing.txt", 1),
        (["--split_count=0"], "--split_count must be at least 1, got 0", 2),
        (["--corpus=tiny.txt"], "are too few for 3 pieces", 1),
        (["--corpus=empty.txt"], "too few", 1),
    ],
)
def test_what_cannot_be_done_is_said_without_a_traceback(
    tmp_path: Path, options: list[str], said: str, code: int
) -> None:
    (tmp_path / "tiny.txt").write_text("a b c d\n" * 20)
    (tmp_path / "empty.txt").write_text("")
    output = run(tmp_path / "ws", *options, code=code)
    assert said in output
    assert "Traceback" not in output


def penn_treebank(home: Path, sentences: int) -> None:
    packed = home / "imikolov" / "simple-examples.tgz"
    packed.parent.mkdir(parents=True)
    with tarfile.open(packed, "w:gz") as archive:
        for part in ("train", "valid"):
            text = b" the cat sat on N mats \n" * sentences
            info = tarfile.TarInfo(f"./simple-examples/data/ptb.{part}.txt")
            info.size = len(text)
            archive.addfile(info, io.BytesIO(text))


def test_imikolov_comes_from_the_cache_and_finds_the_runtime_of_the_checkout(tmp_path: Path) -> None:
    penn_treebank(tmp_path / "data", 60)
    run(tmp_path / "ws", "--corpus=imikolov", PADDLE_DATA_HOME=str(tmp_path / "data"))
    assert len(dictionary(tmp_path / "ws")) == 9
    assert (tmp_path / "ws" / "train.txt").read_text().count("\n") == 60 * 4


def test_imikolov_that_cannot_be_had_says_what_to_put_where(tmp_path: Path) -> None:
    blocked = {"http_proxy": "http://127.0.0.1:9", "HTTP_PROXY": "http://127.0.0.1:9", "no_proxy": ""}
    home = tmp_path / "data"
    output = run(tmp_path / "ws", "--corpus=imikolov", code=1, PADDLE_DATA_HOME=str(home), **blocked)
    assert f"save it as {home}/imikolov/simple-examples.tgz (md5 30177ea32e27c525793142b6bf2c8e2d)" in output
    assert "Traceback" not in output


@pytest.mark.skipif(not SHARED.is_dir(), reason=f"needs the real data sets in {SHARED}")
def test_the_real_imikolov_has_2073_words_and_803522_ngrams(tmp_path: Path) -> None:
    output = run(tmp_path / "ws", "--corpus=imikolov", PADDLE_DATA_HOME=str(SHARED))
    assert "2073 words, 803522 5-grams to train, 63663 to test" in output
