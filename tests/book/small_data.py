# SPDX-License-Identifier: Apache-2.0
"""Small data sets in the exact formats of the originals, each with a rule in it that a network can find."""

from __future__ import annotations

import gzip
import io
import itertools
import pickle
import random
import struct
import tarfile
import zipfile
from collections.abc import Mapping
from pathlib import Path

import numpy as np

CATEGORIES = ("Action", "Animation", "Comedy", "Drama", "Horror", "Romance")
STARS_OF = (
    {"Action", "Horror", "Comedy"},
    {"Romance", "Drama", "Animation"},
)  # what men here like, and women
AGES = (1, 18, 25, 35, 45, 50, 56)
ROLES = ("A0", "V", "A1", "AM-TMP", "AM-LOC")


def pack(path: Path, files: Mapping[str, bytes]) -> None:
    """Writes a tar.gz of these files."""
    path.parent.mkdir(parents=True, exist_ok=True)
    with tarfile.open(path, "w:gz") as archive:
        for name, content in files.items():
            member = tarfile.TarInfo(name)
            member.size = len(content)
            archive.addfile(member, io.BytesIO(content))


def cifar(home: Path, train: int = 640, test: int = 200) -> None:
    """Pictures of ten kinds: where a bright patch lies in one of four quarters, or a stripe, and in which colour."""
    draw = np.random.default_rng(7)

    def batch(count: int) -> bytes:
        pictures = draw.integers(60, 130, (count, 3, 32, 32))
        labels = [int(label) for label in draw.integers(0, 10, count)]
        for picture, label in zip(pictures, labels, strict=True):
            shape, colour = label % 5, label // 5
            top, left = (int(place) for place in draw.integers(0, 6, 2))
            if shape == 4:
                picture[colour, top + 10 : top + 15] += 110
            else:
                row, column = divmod(shape, 2)
                picture[colour, top + 14 * row :, left + 14 * column :][:10, :10] += 110
        data = pictures.reshape(count, 3072).astype(np.uint8)
        return pickle.dumps({b"data": data, b"labels": labels, b"batch_label": b"a batch"}, 2)

    each = train // 5
    files = {f"cifar-10-batches-py/data_batch_{number}": batch(each) for number in range(1, 6)}
    files["cifar-10-batches-py/test_batch"] = batch(test)
    pack(home / "cifar" / "cifar-10-python.tar.gz", files)


def movielens(home: Path, users: int = 60, movies: int = 80, ratings: int = 3000) -> None:
    """Ratings that go by the user's gender and the film's category; the youngest give a star more."""
    draw = random.Random(7)
    people = [
        (user, draw.choice("MF"), draw.choice(AGES), draw.randrange(21)) for user in range(1, users + 1)
    ]
    films = [(movie, sorted(draw.sample(CATEGORIES, 2))) for movie in range(1, movies + 1)]

    def stars(gender: str, age: int, kinds: list[str]) -> int:
        liked = sum(kind in STARS_OF["MF".index(gender)] for kind in kinds)
        return max(1, min(5, 1 + 2 * liked - (age > 45)))

    def line(person: tuple[int, str, int, int], film: tuple[int, list[str]]) -> str:
        return f"{person[0]}::{film[0]}::{stars(person[1], person[2], film[1])}::978300760\n"

    chosen = draw.sample(list(itertools.product(people, films)), ratings)
    texts = {
        "users": "".join(f"{u}::{g}::{a}::{j}::48067\n" for u, g, a, j in people),
        "movies": "".join(
            f"{movie}::{' '.join(draw.sample(('Night', 'Day', 'Old', 'New', 'Sea'), 2))} (1995)::{'|'.join(kinds)}\n"
            for movie, kinds in films
        ),
        "ratings": "".join(line(person, film) for person, film in chosen),
    }
    path = home / "movielens" / "ml-1m.zip"
    path.parent.mkdir(parents=True)
    with zipfile.ZipFile(path, "w") as archive:
        for name, text in texts.items():
            archive.writestr(f"ml-1m/{name}.dat", text.encode("latin-1"))


def conll05(home: Path, sentences: int = 400) -> None:
    """Sentences whose words tell their roles, except one word that goes by its side of the predicate."""
    draw = random.Random(7)
    folder = home / "conll05"
    folder.mkdir(parents=True)
    words: list[str] = []
    props: list[str] = []
    names = [f"name{number}" for number in range(12)]
    verbs = [f"verb{number}" for number in range(6)]
    for _ in range(sentences):
        parts = [("A0", ["the", draw.choice(names)]), ("V", [draw.choice(verbs)])]
        parts += [("A1", [*draw.choice(([], ["the"], ["the", "old"])), draw.choice(names)])]
        if draw.random() < 0.5:
            parts.insert(draw.choice((0, 3)), ("AM-TMP", ["on", draw.choice(("monday", "friday"))]))
        if draw.random() < 0.5:
            parts.append(("AM-LOC", ["in", draw.choice(("town", "court"))]))
        parts.append(("", ["."]))
        for role, part in parts:
            for place, word in enumerate(part):
                opened = f"({role}" if role and place == 0 else ""
                closed = ")" if role and place == len(part) - 1 else ""
                words.append(word)
                props.append(f"{word if role == 'V' else '-'}\t{opened}*{closed}")
        words.append("")
        props.append("")
    texts = {"words": words, "props": props}
    pack(
        folder / "conll05st-tests.tar.gz",
        {
            f"conll05st-release/test.wsj/{kind}/test.wsj.{kind}.gz": gzip.compress("\n".join(lines).encode())
            for kind, lines in texts.items()
        },
    )
    known = ["<unk>", "bos", "eos", *sorted(set(words) - {""})]
    (folder / "wordDict.txt").write_text("\n".join(known) + "\n")
    (folder / "verbDict.txt").write_text("\n".join(verbs) + "\n")
    (folder / "targetDict.txt").write_text("".join(f"B-{role}\nI-{role}\n" for role in ROLES) + "O\n")
    vectors = np.random.default_rng(7).normal(0, 0.3, (len(known), 32)).astype(np.float32)
    (folder / "emb").write_bytes(struct.pack("<IIQ", 0, 4, vectors.size) + vectors.tobytes())


def wmt14(home: Path, train: int = 1200, test: int = 120) -> None:
    """A language whose translation has another word for each word, adjectives behind their nouns, the verb last."""
    draw = random.Random(7)
    nouns, adjectives = [f"noun{n}" for n in range(8)], [f"adj{n}" for n in range(5)]
    verbs = [f"verb{n}" for n in range(5)]

    def phrase() -> list[str]:
        return [*draw.sample(adjectives, draw.randrange(2)), draw.choice(nouns)]

    def pair() -> tuple[str, str]:
        subject, verb, thing = phrase(), draw.choice(verbs), phrase()
        there = [*subject[::-1], *thing[::-1], verb]
        return " ".join([*subject, verb, *thing]), " ".join(word[::-1] for word in there)

    pairs = sorted({pair() for _ in range(4 * (train + test))})
    draw.shuffle(pairs)
    lines = [f"{source}\t{target}\n" for source, target in pairs[: train + test]]
    frame = ["<s>", "<e>", "<unk>"]
    known = nouns + adjectives + verbs
    pack(
        home / "wmt14" / "wmt14.tgz",
        {
            "wmt14/src.dict": "\n".join(frame + known).encode() + b"\n",
            "wmt14/trg.dict": "\n".join(frame + sorted(word[::-1] for word in known)).encode() + b"\n",
            "wmt14/train/train": "".join(lines[:train]).encode(),
            "wmt14/test/test": "".join(lines[train:]).encode(),
            "wmt14/gen/gen": "".join(lines[train : train + 4]).encode(),
        },
    )
