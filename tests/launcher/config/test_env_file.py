# SPDX-License-Identifier: Apache-2.0
"""The .env format: what each line means, and that a wrong one is told with its place and never with its value."""

from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from paddle_cluster.config.variables import parse_file, read_file
from paddle_cluster.errors import ConfError


def pairs(text: str) -> list[tuple[str, str]]:
    return [(name, value) for name, value, _ in parse_file(text, "f")]


@pytest.mark.parametrize(
    ("line", "value"),
    [
        ("A=1", "1"),
        ("A=", ""),
        ("export A=1", "1"),
        ("  A = 1  ", "1"),
        ("A=two words", "two words"),
        ("A=1 # a comment", "1"),
        ("A=#one", ""),
        ("A=a#b", "a#b"),
        ("A='it is # taken \\n as it $is'", "it is # taken \\n as it $is"),
        ('A="x" # a comment', "x"),
        ('A="a\\n\\t\\"b\\" \\\\ \\$HOME \\x"', 'a\n\t"b" \\ $HOME \\x'),
        ('A="one\ntwo\n# three"', "one\ntwo\n# three"),
        ("A=$HOME", "$HOME"),
        ("A=$(id) `id` ${B:-c}", "$(id) `id` ${B:-c}"),
        ("A=b=c", "b=c"),
        ("A=it's", "it's"),
        ("A=übung", "übung"),
    ],
)
def test_a_line_means_what_the_page_says(line: str, value: str) -> None:
    assert pairs(line) == [("A", value)]
    assert pairs(f"# before\n\n{line}\nB=2") == [("A", value), ("B", "2")]


def test_places_are_the_lines_on_which_variables_begin() -> None:
    text = 'A=1\n\n# c\nB="x\ny\nz"\nC=3'
    assert [where for _, _, where in parse_file(text, "f.env")] == ["f.env:1", "f.env:4", "f.env:7"]


@pytest.mark.parametrize(
    ("text", "where", "words"),
    [
        ("A=1\ns3cret", "f:2", "expected NAME=VALUE"),
        ("1A=s3cret", "f:1", "'1A' is not a valid name"),
        ("A-B=s3cret", "f:1", "'A-B' is not a valid name"),
        ("=s3cret", "f:1", "expected NAME=VALUE"),
        ("export s3cret", "f:1", "expected NAME=VALUE"),
        ("A='s3cret", "f:1", "A: the value has no closing ' on this line"),
        ("A='s3cret\n'", "f:1", "the value has no closing ' on this line"),
        (
            'A=1\nB="s3cret\nC=2',
            "f:2",
            'B: the value has no closing " in the rest of the file',
        ),
        ("A='x' s3cret", "f:1", "only a comment may follow the closing '"),
        ("A=s3\0cret", "f:1", "A: must not contain a NUL byte"),
        ("A\n=s3cret", "f:1", "expected NAME=VALUE"),
    ],
)
def test_a_wrong_line_is_told_with_its_place_and_without_its_value(text: str, where: str, words: str) -> None:
    with pytest.raises(ConfError) as caught:
        parse_file(text, "f")
    assert caught.value.where == where
    assert words in str(caught.value)
    assert "s3cret" not in str(caught.value)


def test_a_file_of_another_system_is_read(tmp_path: Path) -> None:
    path = tmp_path / ".env"
    path.write_bytes(b'\xef\xbb\xbfA=1\r\nB="x\r\ny"\r\n')
    assert [(name, value) for name, value, _ in read_file(path, "f")] == [("A", "1"), ("B", "x\ny")]


@pytest.mark.parametrize(
    ("content", "words"),
    [(None, "no such file"), (b"A=\xff\n", "expected UTF-8, but byte 2"), (..., "cannot be read")],
)
def test_a_file_that_cannot_be_read_is_told(tmp_path: Path, content: object, words: str) -> None:
    path = tmp_path / ".env"
    if content is ...:
        path.mkdir()
    elif isinstance(content, bytes):
        path.write_bytes(content)
    with pytest.raises(ConfError, match=words):
        read_file(path, "f")


@given(
    st.dictionaries(
        st.from_regex("[A-Z_][A-Z0-9_]{0,6}", fullmatch=True), st.text().filter(lambda s: "\0" not in s)
    )
)
def test_any_values_in_double_quotes_come_back(values: dict[str, str]) -> None:
    def quoted(value: str) -> str:
        return value.replace("\\", "\\\\").replace('"', '\\"')

    text = "\n".join(f'{name}="{quoted(value)}"' for name, value in values.items())
    assert dict(pairs(text)) == values


@given(st.text(alphabet="A=\"'#\\ \n\texport$", max_size=30))
def test_any_text_is_read_or_refused_with_its_line(text: str) -> None:
    try:
        parse_file(text, "f")
    except ConfError as error:
        line = int(error.where.removeprefix("f:"))
        assert 1 <= line <= text.count("\n") + 1
