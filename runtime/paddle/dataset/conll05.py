# SPDX-License-Identifier: Apache-2.0
"""CoNLL 2005, semantic role labeling: the Wall Street Journal test set; the training set is not public.

A sample is one predicate of a sentence as nine lists, each as long as the sentence: the word ids; five lists that each
repeat one word's id, of the words at positions -2, -1, 0, 1 and 2 relative to the predicate; the predicate's id; 1 at
these five positions and 0 elsewhere; and the label ids.
"""

from __future__ import annotations

import gzip
from collections.abc import Iterator
from pathlib import Path

from paddle.dataset.download import DatasetError, download, fetching, members, reporting_damage
from paddle.dataset.records import converting
from paddle.reader.decorator import Reader

DATA = ("http://www.cs.upc.edu/~srlconll/conll05st-tests.tar.gz", "387719152ae52d60422c016e92a742fc")
URL_PREFIX = "http://paddlepaddle.bj.bcebos.com/demo/srl_dict_and_embedding/"
WORDS = (URL_PREFIX + "wordDict.txt", "ea7fb7d4c75cc6254716f0177a506baa")
VERBS = (URL_PREFIX + "verbDict.txt", "0d2977293bbb6cbefab5b0f97db1e77c")
LABELS = (URL_PREFIX + "targetDict.txt", "d8c7f03ceb5fc2e5a0fa7503a4353751")
EMBEDDING = (URL_PREFIX + "emb", "bf436eb0faa1f6f9103017f8be57cdb7")

TEST_WORDS = "test.wsj/words/test.wsj.words.gz"
TEST_PROPS = "test.wsj/props/test.wsj.props.gz"
_FOLDER = "(?:conll05st-release|conll05st)/"  # two versions of the archive are in circulation

UNK_IDX = 0
REACH = 2  # number of words on either side of the predicate

Ids = dict[str, int]
Roles = tuple[list[str], str, list[str]]

fetch = fetching("conll05", DATA, WORDS, VERBS, LABELS, EMBEDDING)


def get_dict() -> tuple[Ids, Ids, Ids]:
    """Return the dictionaries of words, verbs and labels (to ids); B-X, I-X of a role are 2n, 2n + 1, O is last."""
    return _numbered(WORDS), _numbered(VERBS), _labels()


def get_embedding() -> str:
    """Return the path of the pretrained word vectors, a file of a 16-byte header and float32 (44068, 32)."""
    return download(EMBEDDING[0], "conll05", EMBEDDING[1])


def test() -> Reader[tuple[list[int], ...]]:
    """Return a reader of the public test set, on which the original also trains."""
    words, verbs, labels = get_dict()
    path = download(DATA[0], "conll05", DATA[1])

    def read() -> Iterator[tuple[list[int], ...]]:
        for sentence, verb, roles in _corpus(path):
            try:
                yield _sample(
                    sentence, words, verbs[verb], [labels[role] for role in roles], roles.index("B-V")
                )
            except (KeyError, ValueError) as error:
                raise DatasetError(
                    path,
                    f"{path}: {error} of predicate {verb!r} in '{' '.join(sentence):.60}' is not in the dictionaries",
                ) from error

    return read


convert = converting(1000, conl105_train=test, conl105_test=test)


def _sample(
    sentence: list[str], words: Ids, verb: int, labels: list[int], place: int
) -> tuple[list[int], ...]:
    length = len(sentence)
    around = range(place - REACH, place + REACH + 1)
    seen = ["bos" if at < 0 else "eos" if at >= length else sentence[at] for at in around]
    return (
        [words.get(word, UNK_IDX) for word in sentence],
        *([words.get(word, UNK_IDX)] * length for word in seen),
        [verb] * length,
        [int(at in around) for at in range(length)],
        labels,
    )


def _corpus(path: str) -> Iterator[Roles]:
    """Yield (words, predicate, one label per word) for every predicate of every sentence.

    A line of the props holds the word's predicate or `-`, then one bracket column per predicate: `(A0*`, `*`, `*)`.
    """
    pattern = f"{_FOLDER}({TEST_WORDS}|{TEST_PROPS})$"
    texts = {match[1]: file.read() for match, file in members(path, pattern)}
    if len(texts) != 2:
        raise DatasetError(path, f"{path} has only {list(texts)}; expected {TEST_WORDS} and {TEST_PROPS}")
    with reporting_damage(path):
        words, props = (
            gzip.decompress(texts[name]).decode("utf-8", "replace").splitlines()
            for name in (TEST_WORDS, TEST_PROPS)
        )
    if len(words) != len(props):
        raise DatasetError(path, f"{path} has {len(words)} lines of words, but {len(props)} lines of roles")
    sentence: list[str] = []
    rows: list[list[str]] = []
    for number, (word, line) in enumerate(zip([*words, ""], [*props, ""], strict=True), 1):
        if row := line.split():
            sentence.append(word.strip())
            rows.append(row)
            continue
        try:
            verbs, *columns = zip(*rows, strict=True) if rows else [()]
            found = [verb for verb in verbs if verb != "-"]
            for verb, column in zip(found, columns, strict=True):
                yield sentence, verb, _roles(column)
        except ValueError as error:
            raise DatasetError(
                path, f"{path}: {TEST_PROPS}, the sentence before line {number}: {error}"
            ) from error
        sentence, rows = [], []


def _roles(column: tuple[str, ...]) -> list[str]:
    labels, inside = [], ""
    for cell in column:
        opened, star, closed = cell.partition("*")
        if not star or closed not in ("", ")") or not (opened == "" or opened.startswith("(")):
            raise ValueError(f"expected a role like (A0*, * or *), got {cell!r}")
        if opened:
            inside = opened[1:]
            labels.append(f"B-{inside}")
        else:
            labels.append(f"I-{inside}" if inside else "O")
        if closed:
            inside = ""
    return labels


def _lines(source: tuple[str, str]) -> list[str]:
    path = Path(download(source[0], "conll05", source[1]))
    return [line.strip() for line in path.read_text(encoding="utf-8", errors="replace").splitlines()]


def _numbered(source: tuple[str, str]) -> Ids:
    return {word: number for number, word in enumerate(_lines(source))}


def _labels() -> Ids:
    """Return the labels in the order of the file: a set, as in the original, is ordered differently in each process."""
    roles = dict.fromkeys(line[2:] for line in _lines(LABELS) if line.startswith(("B-", "I-")))
    ids = {f"{part}-{role}": 2 * n + (part == "I") for n, role in enumerate(roles) for part in "BI"}
    ids["O"] = len(ids)
    return ids
