# SPDX-License-Identifier: Apache-2.0
"""Data providers: hooks, types, pools, batch sizes, caches and checks."""

from __future__ import annotations

import importlib
import os
import pickle
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from paddle.reader import pickling
from paddle.trainer.PyDataProvider2 import (
    CacheType,
    dense_vector,
    deserialize_args,
    integer_value,
    integer_value_sequence,
    provider,
)
from paddle.trainer.sample_pool import SampleSource
from paddle.trainer_config_helpers import define_py_data_sources2
from paddle.trainer_config_helpers.configuration import Configuration, DataSource, current, reading
from paddle.v2.errors import UsageError

PLAIN = """
from paddle.trainer.PyDataProvider2 import *

read = []

def hook(settings, file_list, is_train, **kwargs):
    settings.seen = (list(file_list), is_train, kwargs)

@provider({'label': integer_value(9), 'x': dense_vector(2)}, init_hook=hook, %s)
def process(settings, name):
    read.append(name)
    for number in range(10):
        yield {'x': [number, int(name)], 'label': number %% 9}
"""


def source(folder: Path, options: str, **more: Any) -> SampleSource:
    (folder / "plain.py").write_text(PLAIN % options)
    settings = {"is_train": True, "seed": 1, **more}
    return SampleSource(DataSource(["0", "1"], "plain", "process", {"k": 3}), ["x", "label"], **settings)


def firsts(batches: Iterator[Any]) -> list[list[tuple[float, float]]]:
    return [[tuple(sample[0]) for sample in batch] for batch in batches]


def joined(batches: Iterator[Any]) -> list[tuple[float, float]]:
    return [each for batch in firsts(batches) for each in batch]


def test_columns_follow_the_data_layers_and_hooks_see_files_and_arguments(workspace: Path) -> None:
    found = source(workspace, "should_shuffle=False")
    assert list(found.types) == ["x", "label"]
    assert next(found.batches(3))[1] == [[1, 0], 1]
    plain: Any = importlib.import_module("plain")

    made = plain.process(["a"], input_order=["x"], is_train=False, k=3)
    assert made.seen == (["a"], False, {"input_order": ["x"], "k": 3})


@pytest.mark.parametrize(
    ("is_train", "said", "shuffles"), [(True, "", True), (False, "", False), (True, "off", False)]
)
def test_samples_are_shuffled_in_training_unless_the_provider_says(
    workspace: Path, is_train: bool, said: str, shuffles: bool
) -> None:
    options = f"should_shuffle={said!r}" if said else "pool_size=-1"
    found = joined(source(workspace, options, is_train=is_train).batches(4))
    in_order = [(number, name) for name in range(2) for number in range(10)]
    assert sorted(found) == sorted(in_order)
    assert (found != in_order) is shuffles


def test_each_pass_has_an_order_of_its_own_that_the_seed_decides(workspace: Path) -> None:
    one, other = source(workspace, "pool_size=7"), source(workspace, "pool_size=7")
    passes = [firsts(one.batches(4)) for _ in range(2)]
    assert passes[0] != passes[1]
    assert passes == [firsts(other.batches(4)) for _ in range(2)]


def test_a_small_pool_shuffles_only_near_samples(workspace: Path) -> None:
    found = joined(source(workspace, "pool_size=3").batches(5))
    for name in range(2):
        places = [number for number, file in found if file == name]
        assert all(number <= at + 3 for at, number in enumerate(places))


@pytest.mark.parametrize("options", ["min_pool_size=0", "pool_size=50, min_pool_size=1"])
def test_a_small_minimum_of_the_pool_shuffles_as_well(workspace: Path, options: str) -> None:
    found = joined(source(workspace, options).batches(5))
    for name in range(2):
        places = [number for number, file in found if file == name]
        assert sorted(places) == list(range(10)) != places


@pytest.mark.parametrize(("may", "sizes"), [(True, [2, 2, 1]), (False, [1, 1, 1, 1, 1])])
def test_what_a_sample_counts_decides_the_size_of_batches(
    workspace: Path, may: bool, sizes: list[int]
) -> None:
    options = f"should_shuffle=False, calc_batch_size=lambda sample: 3, can_over_batch_size={may}"
    found = source(workspace, options)
    assert [len(batch) for batch in found.batches(5)][: len(sizes) - 1] == sizes[:-1]


@pytest.mark.parametrize(("cache", "times"), [("CACHE_PASS_IN_MEM", 2), ("NO_CACHE", 4)])
def test_a_cache_reads_files_in_the_first_pass_alone(workspace: Path, cache: str, times: int) -> None:
    found = source(workspace, f"cache=CacheType.{cache}")
    plain: Any = importlib.import_module("plain")

    both = [sorted(joined(found.batches(4))) for _ in range(2)]
    assert both[0] == both[1]
    assert len(plain.read) == times


def _checked(check_fail_continue: bool, *samples: Any) -> list[Any]:
    @provider(
        [dense_vector(2), integer_value_sequence(5)], check=True, check_fail_continue=check_fail_continue
    )
    def process(settings: Any, name: str) -> Iterator[Any]:
        yield from samples

    made = process(["a"])
    return list(made.generator(made, "a"))


@pytest.mark.parametrize("wrong", [([1.0], [2]), ([1.0, 2.0], [5]), ([1.0, 2.0],), ([1.0, 2.0], [-1])])
def test_a_check_refuses_or_leaves_out_what_fits_no_type(wrong: Any) -> None:
    good = ([1.0, 2.0], [0, 4])
    assert _checked(True, good, wrong, good) == [good, good]
    with pytest.raises(UsageError, match="sample 1 of a does not fit its input types"):
        _checked(False, good, wrong)


def test_a_provider_of_one_column_yields_it_bare() -> None:
    @provider(input_types=[integer_value(3)])
    def process(settings: Any, name: str) -> Iterator[Any]:
        yield from (0, 2)

    made = process(["a"])
    assert list(made.generator(made, "a")) == [[0], [2]]


def test_a_hook_may_name_types_as_slots_and_keep_what_it_likes() -> None:
    def hook(settings: Any, **kwargs: Any) -> None:
        settings.slots = [dense_vector(1), integer_value(2)]

    @provider(init_hook=hook, cache=CacheType.NO_CACHE, language="de")
    def process(settings: Any, name: str) -> Iterator[Any]:
        yield [0.5], 1

    made = process([], input_order=["a", "b"])
    assert (made.input_types, made.language) == ([dense_vector(1), integer_value(2)], "de")  # type: ignore[attr-defined]


@pytest.mark.parametrize(
    ("given", "why"),
    [
        (DataSource("none.list", "plain", "process", {}), "the list file 'none.list'"),
        (DataSource([], "absent_module", "process", {}), "module 'absent_module' does not exist"),
        (DataSource([], "plain", "absent", {}), "the module plain has no data provider 'absent'$"),
        (DataSource([], "plain", "proces", {}), "no data provider 'proces'; did you mean 'process'"),
        (DataSource([], "plain", "hook", {}), "plain.hook is not a provider"),
    ],
)
def test_a_source_that_is_not_there_is_named(workspace: Path, given: DataSource, why: str) -> None:
    (workspace / "plain.py").write_text(PLAIN % "pool_size=-1")
    with pytest.raises(UsageError, match=why):
        SampleSource(given, ["x"], is_train=True, seed=1)


@pytest.mark.parametrize("name", ["\u8bad.txt".encode("gbk"), "\u8bad.txt".encode()])
def test_a_list_file_has_names_of_any_bytes(workspace: Path, name: bytes) -> None:
    (workspace / "plain.py").write_text((PLAIN % "pool_size=-1").replace("int(name)", "0"))
    (workspace / "all.list").write_bytes(b"\xef\xbb\xbf" + name + b"\r\n")
    made = SampleSource(DataSource("all.list", "plain", "process", {}), ["x"], is_train=True, seed=1)
    list(made.batches(5))
    assert [os.fsencode(each) for each in importlib.import_module("plain").read] == [name]


def test_a_misspelled_argument_is_told_and_a_function_without_yield_refused(
    caplog: pytest.LogCaptureFixture,
) -> None:
    made = provider(integer_value(9), shuffle=False, mine=1)(lambda settings, name: None)  # type: ignore[arg-type,return-value]
    assert caplog.messages == [
        "@provider has no argument 'shuffle', so it only becomes an attribute of the settings; "
        "did you mean 'should_shuffle'?"
    ]
    settings = made(["a.txt"])
    with pytest.raises(TypeError, match=r"'<lambda>' must yield samples, but it returned None for a\.txt"):
        list(settings.generator(settings, "a.txt"))


READING = """
from paddle.trainer.PyDataProvider2 import *

@provider([integer_value(9)])
def process(settings, name):
    with open(name) as file:
        lines = list(file)
    for line in lines:
        yield %s
"""


def test_a_data_file_that_is_missing_is_named_with_its_list(workspace: Path) -> None:
    (workspace / "reading.py").write_text(READING % "int(line)")
    (workspace / "train.list").write_text("absent.txt\n")
    found = SampleSource(DataSource("train.list", "reading", "process", {}), ["x"], is_train=True, seed=1)
    with pytest.raises(UsageError, match=r"the data file 'absent.txt', listed in train.list: No such"):
        next(found.batches(1))


@pytest.mark.parametrize(
    ("expression", "note"),
    [
        ("int('x')", "reading.process failed on the data file '{}'"),
        (
            "xrange(3)",
            "reading.process failed on the data file '{}'. `2to3 -w -n reading.py` converts most of a Python 2 script "
            "to Python 3",
        ),
    ],
)
def test_an_error_of_a_provider_names_its_data_file(workspace: Path, expression: str, note: str) -> None:
    (workspace / "reading.py").write_text(READING % expression)
    file = workspace / "part.txt"
    file.write_text("1\n")
    found = SampleSource(DataSource([str(file)], "reading", "process", {}), ["x"], is_train=True, seed=1)
    with pytest.raises((ValueError, NameError)) as caught:
        next(found.batches(1))
    assert caught.value.__notes__ == [note.format(file)]


def test_a_hook_without_keyword_arguments_is_told_which_it_gets(workspace: Path) -> None:
    text = "from paddle.trainer.PyDataProvider2 import *\ndef hook(settings, k): pass\n"
    text += "@provider([integer_value(9)], init_hook=hook)\ndef process(settings, name): yield 1\n"
    (workspace / "hooked.py").write_text(text)
    with pytest.raises(TypeError) as caught:
        SampleSource(DataSource([], "hooked", "process", {"k": 3}), ["x"], is_train=True, seed=1)
    assert "end its parameters with **kwargs" in caught.value.__notes__[0]


@pytest.mark.parametrize(
    "arguments",
    [
        {},
        {"a": 1, "words": {"x": 0, "é\\\n": 1 << 40}, "rate": 0.25, "is_train": True, "none": None},
        {"list": [1, (2.5, "b")], "nested": {"c": [{}]}},
    ],
)
def test_arguments_are_pickles_of_text_that_every_python_reads(arguments: dict[str, object]) -> None:
    text = pickling.text(arguments)
    assert text.isascii()
    assert pickle.loads(text.encode("ascii")) == arguments
    assert deserialize_args(text) == arguments
    with reading(Configuration()):
        define_py_data_sources2(["x"], None, "provider", "process", text)
        source = current().train
    assert source is not None
    assert source.arguments == arguments


def test_pickled_arguments_are_never_executed() -> None:
    assert deserialize_args('{"a": "\u4e2d"}') == {"a": "\u4e2d"}
    assert deserialize_args(b"\x80\x04N.") is None
    with pytest.raises(ValueError, match=r"posix\.system"):
        deserialize_args("(cposix\nsystem\n(S'true'\ntRt.")
