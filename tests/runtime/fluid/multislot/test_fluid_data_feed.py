# SPDX-License-Identifier: Apache-2.0
"""AsyncExecutor and its DataFeedDesc; generators of MultiSlot text."""

from __future__ import annotations

import io
import re
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import paddle.fluid as fluid
import paddle.fluid.incubate.data_generator as dg
from paddle.errors import ModelFileError
from paddle.fluid.multislot.description import Description, parse_description
from paddle.fluid.multislot.samples import Slot, SlotType
from tests.runtime.fluid.multislot import click_net

DESCRIPTION = """
# slots of the clicks
name: "MultiSlotDataFeed"
batch_size: 8
multi_slot_desc {
    slots { name: 'numbers' type: "float" is_dense: true is_used: true }
    slots {
        name: "ids"
        type: "uint64"
        is_dense: false, is_used: true
    }
    slots: < name: "cli" "ck" type: "uint64" shape: [-1, 1] >
}
"""


def described(tmp_path: Path, text: str = DESCRIPTION) -> fluid.DataFeedDesc:
    (tmp_path / "data.proto").write_text(text)
    return fluid.DataFeedDesc(str(tmp_path / "data.proto"))


def test_a_description_is_read_changed_and_written(tmp_path: Path) -> None:
    desc = described(tmp_path)
    desc.set_batch_size(16)
    desc.set_use_slots(["click"])
    desc.set_dense_slots(["click"])
    again = parse_description(desc.desc(), "again")
    assert str(again) == desc.desc()
    assert again.batch_size == 16
    assert [(slot.name, slot.type, slot.is_dense, slot.is_used) for slot in again.slots] == [
        ("numbers", SlotType.FLOAT, True, True),
        ("ids", SlotType.UINT64, False, True),
        ("click", SlotType.UINT64, True, True),
    ]
    with pytest.raises(ValueError, match=r"set_use_slots: no slot is named 'clik'; .*: numbers, ids, click"):
        desc.set_use_slots(["clik"])


@pytest.mark.parametrize(
    ("text", "told"),
    [
        ('name: "x"\nbatch_size: many', "batch_size: expected an integer, got 'many'"),
        ('name: "x"\nbatch_size 8', "line 2: expected `:` or `{` after 'batch_size', got '8'"),
        ('multi_slot_desc {\n slots { name: "a" }\n}', "a slot has no type"),
        ("multi_slot_desc {\n slots {", "line 2: expected the name of a field, got the end"),
        (
            'multi_slot_desc { slots { name: "a" type: "double" } }',
            "slot 'a': expected the type uint64 or float",
        ),
        ("name: MultiSlot", "name: expected a quoted string, got 'MultiSlot'"),
        ('name: "x\n', "line 1: expected a field"),
    ],
)
def test_a_damaged_description_is_named_with_its_line(tmp_path: Path, text: str, told: str) -> None:
    with pytest.raises(ModelFileError, match=f"data.proto.*{re.escape(told)}"):
        described(tmp_path, text)


@given(st.text())
def test_any_text_is_read_or_refused(text: str) -> None:
    try:
        parse_description(text, "x")
    except ModelFileError:
        return


@given(
    st.lists(
        st.builds(Slot, st.text(), st.sampled_from(SlotType), st.booleans(), st.booleans(), st.just((-1,)))
    )
)
def test_what_is_written_is_read_again(slots: list[Slot]) -> None:
    description = Description("a", 3, "python x.py \"1\" | grep 'é\\n'", 2, slots)
    assert parse_description(str(description), "x") == description


def test_the_text_of_a_dataset_is_that_of_a_description() -> None:
    made = click_net.dataset(["x"], click_net.inputs())
    made.set_pipe_command("python reader.py")
    found = parse_description(made.desc(), "x")
    assert (found.name, found.pipe_command, found.batch_size) == ("MultiSlotDataFeed", "python reader.py", 16)
    assert [(slot.name, slot.is_dense) for slot in found.slots] == [
        ("numbers", True),
        ("ids", False),
        ("click", True),
    ]


def test_an_async_executor_trains_over_files(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    _, cost, chance = click_net.net()
    accuracy = fluid.layers.accuracy(chance, fluid.default_main_program().global_block().var("click"))
    fluid.optimizer.Adagrad(0.3).minimize(cost)
    desc = described(tmp_path)
    desc.set_use_slots(["click"])
    desc.set_dense_slots(["click"])
    exe = fluid.AsyncExecutor(fluid.CPUPlace())
    exe.run_startup_program(fluid.default_startup_program())
    files = click_net.write(tmp_path, *(click_net.rows(64, seed) for seed in range(3)))
    for _ in range(6):
        exe.run(fluid.default_main_program(), desc, files, 2, [accuracy, cost], debug=False)
    told = re.findall(r"^mean of 24 batches: \S+: ([\d.]+), ", capsys.readouterr().out, re.MULTILINE)
    assert len(told) == 6
    assert float(told[-1]) > max(0.8, float(told[0]))
    exe.run(None, desc, files[0], 1, accuracy, True)
    assert capsys.readouterr().out.count("batch ") == 8


def test_slots_that_do_not_fit_the_program_are_refused(tmp_path: Path) -> None:
    click_net.net()
    exe = fluid.AsyncExecutor()
    with pytest.raises(ValueError, match="slot 'ids' has values of type float, but its variable is int64"):
        exe.run(None, described(tmp_path, DESCRIPTION.replace("uint64", "float")), "x", 1, None)
    with pytest.raises(ValueError, match=r"slot 'others' .* the program has no variable"):
        exe.run(None, described(tmp_path, DESCRIPTION.replace('"ids"', '"others"')), "x", 1, None)
    with pytest.raises(ValueError, match="no slot is used"):
        exe.run(None, described(tmp_path, DESCRIPTION.replace("is_used: true", "")), "x", 1, None)


class Words(dg.MultiSlotDataGenerator):
    def generate_sample(self, line: str | None) -> Callable[[], Iterator[Any]]:
        def samples() -> Iterator[Any]:
            for text in (line or "5 6;1\n7;0").splitlines():
                words, _, label = text.partition(";")
                yield (
                    None
                    if label == ""
                    else [("words", [int(x) for x in words.split()]), ("label", [int(label)])]
                )

        return samples


class Padded(Words):
    def generate_batch(self, samples: list[Any]) -> Callable[[], Iterator[Any]]:
        longest = max(len(dict(sample)["words"]) for sample in samples)

        def padded() -> Iterator[Any]:
            for (name, words), label in samples:
                yield [(name, words + [0] * (longest - len(words))), label]

        return padded


@pytest.mark.parametrize(
    ("generator", "batch", "written"),
    [
        (Words, 32, "2 5 6 1 1\n1 7 1 0\n"),
        (Padded, 2, "2 5 6 1 1\n2 7 0 1 0\n"),
        (Padded, 1, "2 5 6 1 1\n1 7 1 0\n"),
    ],
)
def test_a_generator_writes_what_it_makes_of_memory_and_of_lines(
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
    generator: type[Words],
    batch: int,
    written: str,
) -> None:
    made = generator()
    made.set_batch(batch)
    made.run_from_memory()
    assert capsys.readouterr().out == written
    monkeypatch.setattr("sys.stdin", io.StringIO("5 6;1\nnothing\n7;0\n"))
    made.run_from_stdin()
    assert capsys.readouterr().out == written


@pytest.mark.parametrize(
    ("samples", "told"),
    [
        ([[("a", [1]), ("b", [])]], "slot 'b': expected a list of at least one number"),
        ([[("a", ["1"])]], "slot 'a': expected integers or floats, got '1'"),
        ([[("a", [1])], [("b", [1])]], r"\['a'\]; got \['b'\]"),
        (["a 1"], r"a sample must be a list of \(name, values\)"),
        ([[("a", 1)]], "slot 'a': expected a list"),
    ],
)
def test_a_sample_that_is_none_is_refused(samples: list[Any], told: str) -> None:
    class Fixed(dg.MultiSlotDataGenerator):
        def generate_sample(self, line: str | None) -> Callable[[], list[Any]]:
            return lambda: samples

    with pytest.raises(ValueError, match=told):
        Fixed().run_from_memory()


def test_texts_and_numbers_of_numpy_are_written(capsys: pytest.CaptureFixture[str]) -> None:
    class Texts(dg.MultiSlotStringDataGenerator):
        def generate_sample(self, line: str | None) -> Callable[[], list[Any]]:
            return lambda: [(("a", ["01", "x"]), ("b", ["7"]))]

    class Numbers(dg.MultiSlotDataGenerator):
        def generate_sample(self, line: str | None) -> Callable[[], list[Any]]:
            return lambda: [[("a", np.array([1.5, 2], "float32")), ("b", [np.int64(7), True])]]

    Texts().run_from_memory()
    Numbers().run_from_memory()
    assert capsys.readouterr().out == "2 01 x 1 7\n2 1.5 2.0 2 7 1\n"
    with pytest.raises(NotImplementedError, match="DataGenerator must define generate_sample"):
        dg.MultiSlotDataGenerator().run_from_memory()
