# SPDX-License-Identifier: Apache-2.0
"""Topologies that the original pickled are read as data, and other pickles are refused without being executed."""

from __future__ import annotations

import io
import struct

import numpy as np
import pytest

import paddle.v2 as paddle
from paddle.errors import ModelFileError
from paddle.v2 import data_type, layer


def pickled(entries: bytes, message: bytes, types: list[tuple[str, int, int, int]]) -> bytes:
    """Return what Python 2 writes for a topology: protocol 2, byte strings, instances with slots."""

    def string(text: bytes) -> bytes:
        return b"T" + struct.pack("<i", len(text)) + text

    def number(value: int) -> bytes:
        return b"J" + struct.pack("<i", value)

    made = b""
    for name, *values in types:
        slots = b"".join(
            string(key) + number(value)
            for key, value in zip((b"dim", b"seq_type", b"type"), values, strict=True)
        )
        made += string(name.encode()) + entries + b")\x81N}(" + slots + b"u\x86b\x86"
    return (
        b"\x80\x02}(" + string(b"protobin") + string(message) + string(b"data_type") + b"](" + made + b"eu."
    )


INPUT_TYPE = b"cpaddle.trainer.PyDataProvider2\nInputType\n"


def test_a_pickled_topology_of_the_original_is_read_as_data() -> None:
    x = layer.data("x", data_type.dense_vector(4))
    words = layer.embedding(layer.data("words", data_type.integer_value_sequence(9)), 3)
    out = layer.fc([x, layer.pooling(words)], 2)
    parameters = paddle.parameters.create(out)
    message = paddle.topology.Topology(out).proto().SerializeToString()
    types = [("words", 9, 1, 3), ("x", 4, 0, 0)]
    file = io.BytesIO(pickled(INPUT_TYPE, message, types))
    row = ([1, 2, 3], np.arange(4, dtype=np.float32))  # columns are in the order of the file's types
    found = paddle.inference.Inference(parameters, fileobj=file).infer([row])
    np.testing.assert_array_equal(found, paddle.infer(out, parameters, [row], {"words": 0, "x": 1}))


@pytest.mark.parametrize(
    "content",
    [
        pickled(b"cos\nsystem\n", b"", [("x", 4, 0, 0)]),
        pickled(INPUT_TYPE, b"\n", []),
        pickled(INPUT_TYPE, b"", [("x", 4, 7, 0)]),
        pickled(INPUT_TYPE, b"", [("x", 4, 0, 0)])[:-9],
        b"\x80\x02cos\nsystem\nU\x04true\x85R.",
        b"\x80\x02].",
    ],
)
def test_a_pickle_that_is_not_a_topology_is_refused(content: bytes) -> None:
    with pytest.raises(ModelFileError):
        paddle.inference.Inference(paddle.parameters.Parameters(), fileobj=io.BytesIO(content))
