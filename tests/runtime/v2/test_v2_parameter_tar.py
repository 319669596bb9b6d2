# SPDX-License-Identifier: Apache-2.0
"""The files of parameters, byte by byte, and what damaged ones do."""

from __future__ import annotations

import contextlib
import gzip
import io
import struct
import tarfile
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import paddle.v2 as paddle
from paddle.errors import PaddleError
from paddle.v2.errors import ModelFileError
from paddle.v2.parameter_format import ParameterConfig, UpdateHook
from paddle.v2.parameters import Parameters


def two_parameters() -> Parameters:
    found = Parameters()
    found.add(
        ParameterConfig("w", 6, initial_std=0.5, dims=(2, 3), initial_smart=True),
        value=np.arange(6, dtype=np.float32).reshape(2, 3),
    )
    found.add(
        ParameterConfig("b", 3, learning_rate=2.0, initial_std=0.0, dims=(1, 3), is_static=True),
        value=np.array([[-1.5, 0, 2]], np.float32),
    )
    return found


def tar_of(members: list[tuple[str, bytes]]) -> io.BytesIO:
    file = io.BytesIO()
    with tarfile.open(fileobj=file, mode="w") as tar:
        for name, raw in members:
            info = tarfile.TarInfo(name)
            info.size = len(raw)
            tar.addfile(info, io.BytesIO(raw))
    file.seek(0)
    return file


def double(number: int, value: float) -> bytes:
    return bytes([number << 3 | 1]) + struct.pack("<d", value)


W_CONFIG = (
    b"\x0a\x01w"
    + b"\x10\x06"
    + double(5, 0.0)
    + double(6, 0.5)
    + b"\x48\x02\x48\x03"
    + b"\x58\x00"
    + b"\x60\x01"
)
B_CONFIG = (
    b"\x0a\x01b\x10\x03"
    + double(3, 2.0)
    + double(5, 0.0)
    + double(6, 0.0)
    + b"\x48\x01\x48\x03\x58\x00\x60\x00"
    + b"\x90\x01\x01"
)
W_BLOB = struct.pack("<IIQ6f", 0, 4, 6, 0, 1, 2, 3, 4, 5)


def test_a_tar_has_blob_and_configuration_of_each_parameter_in_order() -> None:
    file = io.BytesIO()
    two_parameters().to_tar(file)
    file.seek(0)
    with tarfile.open(fileobj=file, mode="r:") as tar:
        content = [(member.name, member.mtime, tar.extractfile(member).read()) for member in tar]  # type: ignore[union-attr]
    assert content == [
        ("w", 0, W_BLOB),
        ("w.protobuf", 0, W_CONFIG),
        ("b", 0, struct.pack("<IIQ3f", 0, 4, 3, -1.5, 0, 2)),
        ("b.protobuf", 0, B_CONFIG),
    ]


def test_parameters_come_back_from_their_tar() -> None:
    file = io.BytesIO()
    two_parameters().to_tar(file)
    file.seek(0)
    found = Parameters.from_tar(file)
    assert found.names() == ["w", "b"]
    assert found.get_shape("w") == (2, 3)
    assert found["w"].tolist() == [[0, 1, 2], [3, 4, 5]]
    assert found.config("b").learning_rate == 2.0
    assert found.config("b").is_static


def test_a_file_opened_as_text_and_a_gzip_file_both_work(tmp_path: Path) -> None:
    with open(tmp_path / "text.tar", "w") as text:
        two_parameters().to_tar(text)
    with gzip.open(tmp_path / "params.tar.gz", "w") as zipped:
        two_parameters().to_tar(zipped)  # type: ignore[arg-type]
    with open(tmp_path / "text.tar") as text, gzip.open(tmp_path / "params.tar.gz") as zipped:
        assert Parameters.from_tar(text)["b"].tolist() == Parameters.from_tar(zipped)["b"].tolist()  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("members", "says"),
    [
        ([("w.protobuf", W_CONFIG)], "no data"),
        ([("w", W_BLOB[:-1]), ("w.protobuf", W_CONFIG)], "6 values need 40"),
        ([("w", W_BLOB), ("w.protobuf", W_CONFIG[:-2])], None),
        ([("w", W_BLOB), ("w.protobuf", W_CONFIG[:8])], "8 bytes"),
        ([("w", b"\x01" + W_BLOB[1:]), ("w.protobuf", W_CONFIG)], "format 1"),
        ([("w", W_BLOB[:4] + b"\x08" + W_BLOB[5:]), ("w.protobuf", W_CONFIG)], "8-byte"),
        ([("w", W_BLOB[:8] + b"\x07" + W_BLOB[9:]), ("w.protobuf", W_CONFIG)], "header declares 7"),
        ([("v", W_BLOB), ("v.protobuf", W_CONFIG)], "describes 'w'"),
        ([("./w", W_BLOB), ("./w.protobuf", W_CONFIG)], None),
        ([("a/w", W_BLOB), ("a/w.protobuf", W_CONFIG)], None),
        ([("aw", W_BLOB), ("aw.protobuf", W_CONFIG)], "describes 'w'"),
        (
            [
                (f"{at}/w{kind}", W_BLOB if not kind else W_CONFIG)
                for at in "ab"
                for kind in ("", ".protobuf")
            ],
            "two folders",
        ),
        ([("w", W_BLOB), ("w.protobuf", W_CONFIG.replace(b"\x48\x03", b"\x48\x04"))], "hold 8"),
    ],
)
def test_a_damaged_tar_is_refused_with_its_reason(members: list[tuple[str, bytes]], says: str | None) -> None:
    file = tar_of(members)
    if says is None:
        assert Parameters.from_tar(file)["w"].shape == (2, 3)
        return
    with pytest.raises(ModelFileError, match=says):
        Parameters.from_tar(file)


def test_a_gzip_that_was_not_opened_as_one_is_named() -> None:
    with pytest.raises(ModelFileError, match=r"gzip\.open"):
        Parameters.from_tar(io.BytesIO(gzip.compress(b"x" * 600)))


@pytest.mark.parametrize("members", [[], [("readme.txt", b"hello")], [("w", W_BLOB)]])
def test_a_tar_without_parameters_is_refused(members: list[tuple[str, bytes]]) -> None:
    with pytest.raises(ModelFileError, match=r"not a tar of parameters: it has no member \*\.protobuf"):
        Parameters.from_tar(tar_of(members))


def whole_tar() -> bytes:
    """Four members of two blocks each, then blocks of zeros."""
    file = io.BytesIO()
    two_parameters().to_tar(file)
    return file.getvalue()


@pytest.mark.parametrize("zeros", [0, 1, 512, 1024])
def test_a_tar_without_all_blocks_of_zeros_at_its_end_is_whole(zeros: int, tmp_path: Path) -> None:
    """The original writes none."""
    raw = whole_tar()[: 8 * 512 + zeros]
    with gzip.open(tmp_path / "params.tar.gz", "w") as zipped:
        zipped.write(raw)
    with gzip.open(tmp_path / "params.tar.gz") as zipped:
        found = Parameters.from_tar(zipped)  # type: ignore[arg-type]
    assert found["b"].tolist() == [[-1.5, 0, 2]]
    again = two_parameters()
    again["w"] = np.zeros((2, 3), np.float32)
    again.init_from_tar(io.BytesIO(raw))
    assert again["w"].tolist() == [[0, 1, 2], [3, 4, 5]]


@pytest.mark.parametrize("block", range(8))
@pytest.mark.parametrize("more", [1, 20, 511])
def test_a_tar_cut_in_any_member_is_refused(block: int, more: int) -> None:
    """Blocks are header, data, header, data, ...; the data of a member ends within its block."""
    with pytest.raises(ModelFileError):
        Parameters.from_tar(io.BytesIO(whole_tar()[: 512 * block + more]))


@pytest.mark.parametrize("members", [1, 3])
def test_a_tar_cut_behind_the_data_of_a_parameter_is_refused(members: int) -> None:
    with pytest.raises(ModelFileError, match=r"is truncated: '.' has no configuration|has no member"):
        Parameters.from_tar(io.BytesIO(whole_tar()[: 1024 * members]))


def test_a_gzip_file_that_was_cut_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "params.tar.gz"
    path.write_bytes(gzip.compress(whole_tar()[: 4 * 512])[:-9])
    with gzip.open(path) as zipped, pytest.raises(ModelFileError, match="is truncated"):
        Parameters.from_tar(zipped)  # type: ignore[arg-type]


@given(st.binary(max_size=200))
def test_no_bytes_make_the_configuration_decoder_fail_otherwise(raw: bytes) -> None:
    with contextlib.suppress(PaddleError):
        ParameterConfig.decode(raw)


@given(
    st.builds(
        ParameterConfig,
        name=st.text(min_size=1),
        size=st.just(12),
        learning_rate=st.floats(allow_nan=False),
        dims=st.sampled_from([(), (3, 4), (2, 3, 2)]),
        device=st.integers(-5, 5),
        is_sparse=st.booleans(),
        para_id=st.integers(0, 2**64 - 1),
        update_hooks=st.sampled_from([(), (UpdateHook("pruning", 0.7),)]),
    )
)
def test_any_configuration_survives_its_protobuf_form(config: ParameterConfig) -> None:
    assert ParameterConfig.decode(config.encode()) == config


def test_init_from_tar_takes_what_both_have_and_leaves_out_the_excluded() -> None:
    file = io.BytesIO()
    two_parameters().to_tar(file)
    x = paddle.layer.data("x", paddle.data_type.dense_vector(2))
    out = paddle.layer.fc(x, 3, param_attr=paddle.attr.Param(name="w"), bias_attr=paddle.attr.Param(name="b"))
    parameters = paddle.parameters.create(out)
    before = parameters["b"]
    file.seek(0)
    parameters.init_from_tar(file, exclude_params=["b"])
    assert parameters["w"].tolist() == [[0, 1, 2], [3, 4, 5]]
    assert parameters["b"].tolist() == before.tolist()
    file.seek(0)
    with pytest.warns(UserWarning, match=r"exclude_params: .*\['bb'\]"):  # one name, not letters
        parameters.init_from_tar(file, exclude_params="bb")
    assert parameters["b"].tolist() == [[-1.5, 0, 2]]


@pytest.mark.parametrize(
    ("members", "says"),
    [
        ([("v", W_BLOB), ("v.protobuf", W_CONFIG.replace(b"w", b"v"))], r"none .* the tar has \['v'\]"),
        (
            [
                ("w", W_BLOB),
                ("w.protobuf", W_CONFIG),
                ("b", W_BLOB),
                ("b.protobuf", W_CONFIG.replace(b"w", b"b")),
            ],
            r"'b' has shape \(2, 3\) .* \(1, 3\)",
        ),
        (
            [("w", W_BLOB), ("w.protobuf", W_CONFIG.replace(b"\x48\x02\x48\x03", b"\x48\x03\x48\x02"))],
            r"'w' has shape \(3, 2\) .* \(2, 3\)",
        ),
        (
            [("w", W_BLOB), ("w.protobuf", W_CONFIG), ("x.protobuf", b"\x0a\x02nn")],
            r"tar: x\.protobuf .* lacks required fields: size",
        ),
        (
            [("w", W_BLOB), ("w.protobuf", W_CONFIG), ("b", W_BLOB[:8]), ("b.protobuf", B_CONFIG)],
            "'b' has 8 bytes",
        ),
    ],
)
def test_init_from_tar_takes_all_or_nothing(members: list[tuple[str, bytes]], says: str) -> None:
    parameters = two_parameters()
    parameters["w"] = np.zeros((2, 3), np.float32)
    with pytest.raises(ValueError, match=says):
        parameters.init_from_tar(tar_of(members))
    assert not parameters["w"].any()


@pytest.mark.parametrize("left_out", [[], ["old"], ["new"]])
def test_parameters_under_other_names_in_a_tar_are_reported(left_out: list[str]) -> None:
    parameters, file = two_parameters(), io.BytesIO()
    parameters.add(ParameterConfig("old", 1))
    parameters.to_tar(file)
    file.seek(0)
    later = two_parameters()
    later.add(ParameterConfig("new", 1))
    warned = contextlib.nullcontext() if left_out else pytest.warns(UserWarning, match="'new'.*'old'")
    with warned:
        later.init_from_tar(file, left_out)
    assert later["w"].tolist() == [[0, 1, 2], [3, 4, 5]]


def test_one_value_can_be_serialized_alone() -> None:
    parameters, file = two_parameters(), io.BytesIO()
    parameters.serialize("w", file)
    assert file.getvalue() == W_BLOB
    file.seek(0)
    parameters["w"] = np.zeros((2, 3), np.float32)
    parameters.deserialize("w", file)
    assert parameters["w"].tolist() == [[0, 1, 2], [3, 4, 5]]


def test_set_wants_an_array_of_exactly_the_shape() -> None:
    parameters = two_parameters()
    with pytest.raises(ValueError, match=r"\(2, 3\).*\(3, 2\)"):
        parameters["w"] = np.zeros((3, 2), np.float32)
    with pytest.raises(ValueError, match="list"):
        parameters.set("w", [[0.0] * 3] * 2)  # type: ignore[arg-type]
    with pytest.raises(ValueError, match="No such parameter v"):
        parameters.get("v")
    with pytest.raises(TypeError, match=r"'p\.tar'.*open"):
        Parameters.from_tar("p.tar")  # type: ignore[arg-type]


def test_get_gives_a_copy() -> None:
    parameters = two_parameters()
    parameters.get("w")[...] = 9
    assert parameters["w"][0, 0] == 0
