# SPDX-License-Identifier: Apache-2.0
"""A trainer's parameters as chunks of slabs, and back."""

from __future__ import annotations

import numpy as np
import pytest

from paddle.errors import ConfigError
from paddle.optim.spec import ParameterSpec
from paddle.pserver.client.layout import Layout
from paddle.pserver.wire.message import chunk_span

SIZES = {"b": 7, "w": 700_001, "u": 5_000, "v": 300_000}


def _layout(servers: int) -> Layout:
    return Layout([ParameterSpec(name, (size,)) for name, size in SIZES.items()], servers, 0)


def _values() -> dict[str, np.ndarray]:
    rng = np.random.default_rng(3)
    return {name: rng.standard_normal(size).astype(np.float32) for name, size in SIZES.items()}


@pytest.mark.parametrize("servers", [1, 2, 3, 16])
def test_chunks_of_a_slab_are_the_blocks_that_the_placement_names(servers: int) -> None:
    layout, flat = _layout(servers), _values()
    for index, share in enumerate(layout.shares):
        slab = np.empty(share.slab_size, np.float32)
        for part in share.dense:
            part.gather(flat[part.parameter.name], slab)
        for number in range(layout.num_chunks(index)):
            section, _ = layout.chunk(index, number, flat, check=True)
            np.testing.assert_array_equal(section.array, slab[chunk_span(number, slab.size)])


@pytest.mark.parametrize("servers", [1, 2, 3, 16])
def test_chunks_of_all_servers_fill_every_element(servers: int) -> None:
    layout, flat = _layout(servers), _values()
    found = {name: np.full_like(value, np.nan) for name, value in flat.items()}
    for index in range(servers):
        for number in range(layout.num_chunks(index)):
            layout.spread(index, number, layout.chunk(index, number, flat)[0].array, found)
    for name, value in flat.items():
        np.testing.assert_array_equal(found[name], value)


def test_a_chunk_of_an_omitted_parameter_is_zero() -> None:
    layout, flat = _layout(2), _values()
    del flat["w"]
    total = sum(
        float(np.abs(layout.chunk(index, number, flat)[0].array).sum())
        for index in range(2)
        for number in range(layout.num_chunks(index))
    )
    assert total == pytest.approx(sum(float(np.abs(value).sum()) for value in flat.values()), rel=1e-4)


@pytest.mark.parametrize("name", SIZES)
def test_an_invalid_gradient_among_others_in_a_chunk_is_named(name: str) -> None:
    layout, flat = _layout(2), _values()
    flat[name][-1] = np.inf
    chunks = [(index, number) for index in range(2) for number in range(layout.num_chunks(index))]
    with pytest.raises(ConfigError, match=f"gradient of parameter {name} contains NaN"):
        [layout.chunk(index, number, flat, check=True) for index, number in chunks]
