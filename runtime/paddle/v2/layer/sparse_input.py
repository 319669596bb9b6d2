# SPDX-License-Identifier: Apache-2.0
"""Products of an input with a weight matrix, for dense and for sparse inputs.

A batch of sparse vectors is fed as its distinct columns (K, 1) and a dense matrix (N, K) over these columns alone,
so x W is matrix @ W[columns]: the cost grows with the columns in use, never with the width of the vector, and the
gradient of a ``sparse_update`` weight is one row per column in use.
"""

from __future__ import annotations

from paddle.graph import Variable
from paddle.v2.layer.emitter import Emitter
from paddle.v2.model import InputConfig


def factors(emitter: Emitter, link: InputConfig) -> tuple[Variable, Variable]:
    """The two matrices whose product is x W: (N, K) and (K, width)."""
    if link.layer in emitter.sparse:
        columns, matrix = emitter.sparse[link.layer]
        return matrix, lookup(emitter, columns, link.parameter)
    return emitter.rows(link.layer), emitter.parameter(link.parameter)


def matrix_product(emitter: Emitter, link: InputConfig) -> Variable:
    """X W for one input, (N, width of W)."""
    x, weight = factors(emitter, link)
    return emitter.op("mul", {"X": x, "Y": weight}, {"x_num_col_dims": 1, "y_num_col_dims": 1})


def dense(emitter: Emitter, name: str) -> Variable:
    """The numbers of a layer as (N, size), those of a sparse input or an id among zeros."""
    if name in emitter.ids:
        return emitter.op("one_hot", {"X": emitter.ids[name]}, {"depth": emitter.layers[name].size})
    if name not in emitter.sparse:
        return emitter.rows(name)
    columns, matrix = emitter.sparse[name]
    places = emitter.op("one_hot", {"X": columns}, {"depth": emitter.layers[name].size})
    return emitter.op("mul", {"X": matrix, "Y": places}, {"x_num_col_dims": 1, "y_num_col_dims": 1})


def lookup(emitter: Emitter, ids: Variable, parameter: str) -> Variable:
    """Rows of a parameter, (number of ids, width)."""
    is_sparse = emitter.parameters[parameter].sparse_update
    return emitter.op(
        "lookup_table", {"W": emitter.parameter(parameter), "Ids": ids}, {"is_sparse": is_sparse}
    )
