# SPDX-License-Identifier: Apache-2.0
"""Creates the input of train.py: word_dict.pickle, train.txt and test.txt, and one piece of each text per trainer.

Each line of the text files is one 5-gram: the ids of five consecutive words. The same corpus and options always give
the same bytes. Files that are up to date are not changed; all others are replaced by a rename.

    python prepare.py                       text that comes with Python, no network needed
    python prepare.py --corpus=imikolov     Penn Treebank (35 MB), downloaded unless it is in PADDLE_DATA_HOME
    python prepare.py --corpus=FILE         your own text, one sentence per line
    python prepare.py -- --conf=other.py    the arguments after -- are the options of the job

There is one piece per trainer of the job. conf.py sets the number of trainers; --split_count=N overrides it.
"""

from __future__ import annotations

import argparse
import importlib.util
import os
import pickle
import re
import sys
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from itertools import islice
from pathlib import Path
from typing import NamedTuple

N = 5
MAX_WORDS = 2000
TEST_EVERY = 10

HERE = Path(__file__).resolve().parent
TOKEN = re.compile(r"[^\W\d]\w*(?:'\w+)?|\d+(?:[.,]\d+)*|[^\w\s]")
SENTENCE_END = re.compile(r"(?<=[.!?:])\s+(?=[A-Z\"'(])")
PIECE = re.compile(r"(train|test)\.txt-\d{5}")
MARKUP = str.maketrans({'"': "", "*": "", "`": "", "’": "'"})

Gram = tuple[int, ...]


class Corpus(NamedTuple):
    """The ids of all words, and n-grams of ids for training and for testing."""

    words: dict[str, int]
    train: list[Gram]
    test: list[Gram]


def main(argv: Sequence[str] | None = None) -> None:
    given = list(sys.argv[1:] if argv is None else argv)
    ours = given[: given.index("--")] if "--" in given else given
    parser = argparse.ArgumentParser(description="Creates the data of the word2vec sample job.")
    parser.add_argument(
        "--corpus", default="python-docs", help="python-docs (default), imikolov, or a text file"
    )
    parser.add_argument(
        "--split_count", type=int, help="number of pieces (default: one per trainer of the job)"
    )
    parser.add_argument(
        "--out", type=Path, default=HERE, help="directory to write to (default: that of prepare.py)"
    )
    options = parser.parse_args(ours)
    if options.split_count is not None and options.split_count < 1:
        parser.error(f"--split_count must be at least 1, got {options.split_count}")

    pieces = options.split_count or trainers_of(given[len(ours) + 1 :])
    corpus = read_corpus(options.corpus)
    files = {"word_dict.pickle": pickle.dumps(corpus.words, protocol=4)}
    files.update(text_files("train.txt", corpus.train, pieces))
    files.update(text_files("test.txt", corpus.test, pieces))
    changed = publish(files, options.out)
    print(
        f"prepare: {options.corpus}: {len(corpus.words)} words, {len(corpus.train)} {N}-grams to train, "
        f"{len(corpus.test)} to test"
    )
    done = f"{changed} files written" if changed else "up to date"
    print(f"prepare: {done}, pieces for {pieces} trainers, in {os.path.relpath(options.out)}")


def trainers_of(job: list[str]) -> int:
    """Return the number of trainers of a job with these options, according to the conf.py that paddle.py would use."""
    try:
        # In a checkout, the launcher is next to this folder; an installed launcher is inside a package.
        sys.path.append(str(HERE.parent))
        package = importlib.util.find_spec("paddle_cluster")
        if package is not None:
            sys.path += package.submodule_search_locations or []
        from paddle_cluster.config import arguments
        from paddle_cluster.config.resolve import resolve
        from paddle_cluster.errors import LauncherError
    except ModuleNotFoundError:
        sys.exit(
            "prepare: found neither paddle.py nor paddle-cluster to query the number of "
            "trainers: give --split_count=N"
        )
    try:
        return resolve(arguments.parse([f"--job_dispatch_package={HERE}", *job]), os.environ).num_trainers
    except LauncherError as error:
        sys.stderr.write(f"prepare: {error}\n")
        sys.exit(int(error.exit_code))


def read_corpus(name: str) -> Corpus:
    if name == "imikolov":
        return imikolov_corpus()
    sentences = python_docs() if name == "python-docs" else sentences_of(Path(name))
    return numbered([TOKEN.findall(sentence.lower()) for sentence in sentences])


def imikolov_corpus() -> Corpus:
    try:
        from paddle.dataset import DatasetError, imikolov
    except ModuleNotFoundError:
        # In a checkout, the runtime is next to this folder and need not be installed.
        sys.path.append(str(HERE.parent / "runtime"))
        from paddle.dataset import DatasetError, imikolov
    try:
        words = imikolov.build_dict()
        return Corpus(words, list(imikolov.train(words, N)()), list(imikolov.test(words, N)()))
    except DatasetError as error:
        sys.exit(f"prepare: {error}")


def python_docs() -> Iterable[str]:
    """Return the sentences of the reference that `help()` shows, without duplicates, because its topics overlap."""
    try:
        from pydoc_data.topics import topics
    except ModuleNotFoundError:
        sys.exit("prepare: this Python has no pydoc_data; name a text file of your own: --corpus=FILE")
    sentences: dict[str, None] = {}
    for topic in sorted(topics):
        for paragraph in re.split(r"\n\s*\n", topics[topic]):
            text = " ".join(paragraph.translate(MARKUP).split())
            # Headings and most lines of code do not end with a full stop.
            if text.endswith((".", ":", "!", "?", ")")):
                sentences.update(dict.fromkeys(SENTENCE_END.split(text)))
    return sentences


def sentences_of(path: Path) -> list[str]:
    try:
        return path.read_text(encoding="utf-8").splitlines()
    except (OSError, UnicodeDecodeError) as error:
        sys.exit(f"prepare: --corpus must be python-docs, imikolov or a text file in UTF-8; {path}: {error}")


def numbered(sentences: Iterable[list[str]]) -> Corpus:
    """Convert words to ids: rare words become <unk>, numbers become N; every tenth sentence is for testing."""
    framed = [["<s>", *(mask(word) for word in words), "<e>"] for words in sentences if words]
    counts = Counter(word for words in framed for word in words)
    words = {word: number for number, word in enumerate(frequent(counts))}
    words["<unk>"] = len(words)
    parts: tuple[list[Gram], list[Gram]] = ([], [])
    for number, sentence in enumerate(framed, start=1):
        parts[number % TEST_EVERY == 0].extend(grams([words.get(word, words["<unk>"]) for word in sentence]))
    return Corpus(words, *parts)


def frequent(counts: Counter[str]) -> list[str]:
    """Return fewer than MAX_WORDS words that occur at least twice, most frequent first."""
    ranked = sorted(counts, key=lambda word: (-counts[word], word))
    least = max(2, counts[ranked[MAX_WORDS - 1]] + 1) if len(ranked) >= MAX_WORDS else 2
    return [word for word in ranked if counts[word] >= least]


def mask(word: str) -> str:
    return "N" if word[0].isdigit() else word


def grams(ids: list[int]) -> Iterator[Gram]:
    return zip(*(islice(ids, start, None) for start in range(N)), strict=False)


def text_files(name: str, rows: list[Gram], pieces: int) -> dict[str, bytes]:
    """Return the whole file and its pieces by name; all pieces but the last have equal length, as with `split -l`."""
    length = len(rows) // pieces + 1
    if length * (pieces - 1) >= len(rows):
        sys.exit(f"prepare: {len(rows)} {N}-grams for {name} are too few for {pieces} pieces")
    lines = [(",".join(map(str, row)) + "\n").encode() for row in rows]
    files = {
        f"{name}-{piece:05d}": b"".join(lines[piece * length : (piece + 1) * length])
        for piece in range(pieces)
    }
    return {name: b"".join(lines), **files}


def publish(files: dict[str, bytes], folder: Path) -> int:
    """Write the files that differ, remove pieces of an earlier split, and return the number of changed files."""
    folder.mkdir(parents=True, exist_ok=True)
    stale = [path for path in folder.iterdir() if PIECE.fullmatch(path.name) and path.name not in files]
    wrong = [name for name in files if not holds(folder / name, files[name])]
    for name in wrong:
        part = folder / f"{name}.part"
        part.write_bytes(files[name])
        os.replace(part, folder / name)
    for path in stale:
        path.unlink()
    return len(wrong) + len(stale)


def holds(path: Path, content: bytes) -> bool:
    return path.is_file() and path.read_bytes() == content


if __name__ == "__main__":
    main()
