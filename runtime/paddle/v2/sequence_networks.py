# SPDX-License-Identifier: Apache-2.0
"""Common groups of layers over sequences; `networks` has them under these names."""

from __future__ import annotations

from paddle.v2 import activation, layer, model, pooling
from paddle.v2.attr import ExtraLayerAttribute, ParameterAttribute
from paddle.v2.layer.output import BiasAttr, LayerOutput


def sequence_conv_pool(
    input: LayerOutput,
    context_len: int,
    hidden_size: int,
    name: str | None = None,
    context_start: int | None = None,
    pool_type: pooling.BasePool | None = None,
    context_proj_layer_name: str | None = None,
    context_proj_param_attr: ParameterAttribute | bool = False,
    fc_layer_name: str | None = None,
    fc_param_attr: ParameterAttribute | None = None,
    fc_bias_attr: BiasAttr = None,
    fc_act: activation.Base | None = None,
    pool_bias_attr: BiasAttr = None,
    fc_attr: ExtraLayerAttribute | None = None,
    context_attr: ExtraLayerAttribute | None = None,
    pool_attr: ExtraLayerAttribute | None = None,
) -> LayerOutput:
    """Declare rows beside their neighbours ``<name>_conv_proj``, an fc ``<name>_conv_fc`` and a pooling ``<name>``."""
    name = model.current().auto_name("sequence_conv_pooling", name)
    context = layer.mixed(
        input.size * context_len,
        layer.context_projection(input, context_len, context_start, context_proj_param_attr),
        name=context_proj_layer_name or f"{name}_conv_proj",
        layer_attr=context_attr,
    )
    hidden = layer.fc(
        context,
        hidden_size,
        fc_act,
        name=fc_layer_name or f"{name}_conv_fc",
        param_attr=fc_param_attr,
        bias_attr=fc_bias_attr,
        layer_attr=fc_attr,
    )
    return layer.pooling(hidden, pool_type, name=name, bias_attr=pool_bias_attr, layer_attr=pool_attr)


text_conv_pool = sequence_conv_pool


def simple_lstm(
    input: LayerOutput,
    size: int,
    name: str | None = None,
    reverse: bool = False,
    mat_param_attr: ParameterAttribute | None = None,
    bias_param_attr: BiasAttr = None,
    inner_param_attr: ParameterAttribute | None = None,
    act: activation.Base | None = None,
    gate_act: activation.Base | None = None,
    state_act: activation.Base | None = None,
    mixed_layer_attr: ExtraLayerAttribute | None = None,
    lstm_cell_attr: ExtraLayerAttribute | None = None,
) -> LayerOutput:
    """Declare a projection to the gates (``lstm_transform_<name>``) and an LSTM ``<name>``."""
    name = model.current().auto_name("lstm", name)
    gates = layer.mixed(
        4 * size,
        layer.full_matrix_projection(input, 4 * size, mat_param_attr),
        name=f"lstm_transform_{name}",
        layer_attr=mixed_layer_attr,
    )
    return layer.lstmemory(
        gates,
        name=name,
        reverse=reverse,
        act=act,
        gate_act=gate_act,
        state_act=state_act,
        bias_attr=bias_param_attr,
        param_attr=inner_param_attr,
        layer_attr=lstm_cell_attr,
    )


def simple_gru(
    input: LayerOutput,
    size: int,
    name: str | None = None,
    reverse: bool = False,
    mixed_param_attr: ParameterAttribute | None = None,
    mixed_bias_param_attr: BiasAttr = None,
    mixed_layer_attr: ExtraLayerAttribute | None = None,
    gru_bias_attr: BiasAttr = None,
    gru_param_attr: ParameterAttribute | None = None,
    act: activation.Base | None = None,
    gate_act: activation.Base | None = None,
    gru_layer_attr: ExtraLayerAttribute | None = None,
    naive: bool = False,
) -> LayerOutput:
    """Declare a projection to the gates (``<name>_transform``) and a GRU ``<name>``; `naive` changes no number."""
    name = model.current().auto_name("simple_gru", name)
    gates = layer.mixed(
        3 * size,
        layer.full_matrix_projection(input, 3 * size, mixed_param_attr),
        name=f"{name}_transform",
        bias_attr=False if mixed_bias_param_attr is None else mixed_bias_param_attr,
        layer_attr=mixed_layer_attr,
    )
    return layer.grumemory(
        gates,
        name=name,
        reverse=reverse,
        act=act,
        gate_act=gate_act,
        bias_attr=gru_bias_attr,
        param_attr=gru_param_attr,
        layer_attr=gru_layer_attr,
    )


def simple_gru2(
    input: LayerOutput,
    size: int,
    name: str | None = None,
    reverse: bool = False,
    mixed_param_attr: ParameterAttribute | None = None,
    mixed_bias_attr: BiasAttr = None,
    gru_param_attr: ParameterAttribute | None = None,
    gru_bias_attr: BiasAttr = None,
    act: activation.Base | None = None,
    gate_act: activation.Base | None = None,
    mixed_layer_attr: ExtraLayerAttribute | None = None,
    gru_cell_attr: ExtraLayerAttribute | None = None,
) -> LayerOutput:
    """Declare the same as `simple_gru`, with the arguments in another order."""
    return simple_gru(
        input,
        size,
        model.current().auto_name("simple_gru2", name),
        reverse,
        mixed_param_attr,
        mixed_bias_attr,
        mixed_layer_attr,
        gru_bias_attr,
        gru_param_attr,
        act,
        gate_act,
        gru_cell_attr,
    )


def bidirectional_lstm(
    input: LayerOutput,
    size: int,
    name: str | None = None,
    return_seq: bool = False,
    fwd_mat_param_attr: ParameterAttribute | None = None,
    fwd_bias_param_attr: BiasAttr = None,
    fwd_inner_param_attr: ParameterAttribute | None = None,
    fwd_act: activation.Base | None = None,
    fwd_gate_act: activation.Base | None = None,
    fwd_state_act: activation.Base | None = None,
    fwd_mixed_layer_attr: ExtraLayerAttribute | None = None,
    fwd_lstm_cell_attr: ExtraLayerAttribute | None = None,
    bwd_mat_param_attr: ParameterAttribute | None = None,
    bwd_bias_param_attr: BiasAttr = None,
    bwd_inner_param_attr: ParameterAttribute | None = None,
    bwd_act: activation.Base | None = None,
    bwd_gate_act: activation.Base | None = None,
    bwd_state_act: activation.Base | None = None,
    bwd_mixed_layer_attr: ExtraLayerAttribute | None = None,
    bwd_lstm_cell_attr: ExtraLayerAttribute | None = None,
    last_seq_attr: ExtraLayerAttribute | None = None,
    first_seq_attr: ExtraLayerAttribute | None = None,
    concat_attr: ExtraLayerAttribute | None = None,
    concat_act: activation.Base | None = None,
) -> LayerOutput:
    """Declare an LSTM in each direction (``<name>_fw``, ``<name>_bw``) side by side.

    Args:
        input: a layer of sequences.
        size: of each direction.
        name: of the result.
        return_seq: all rows; False: the last row of the one and the first row of the other.
        fwd_mat_param_attr: arguments with fwd_ and bwd_ are those of `simple_lstm` for one direction.
        last_seq_attr: of the layer that takes the last row.
        first_seq_attr: of the layer that takes the first row.
        concat_attr: of the result.
        concat_act: of the result.
    """
    name = model.current().auto_name("bidirectional_lstm", name)
    forward = simple_lstm(
        input,
        size,
        f"{name}_fw",
        False,
        fwd_mat_param_attr,
        fwd_bias_param_attr,
        fwd_inner_param_attr,
        fwd_act,
        fwd_gate_act,
        fwd_state_act,
        fwd_mixed_layer_attr,
        fwd_lstm_cell_attr,
    )
    backward = simple_lstm(
        input,
        size,
        f"{name}_bw",
        True,
        bwd_mat_param_attr,
        bwd_bias_param_attr,
        bwd_inner_param_attr,
        bwd_act,
        bwd_gate_act,
        bwd_state_act,
        bwd_mixed_layer_attr,
        bwd_lstm_cell_attr,
    )
    return _both(forward, backward, name, return_seq, last_seq_attr, first_seq_attr, concat_attr, concat_act)


def bidirectional_gru(
    input: LayerOutput,
    size: int,
    name: str | None = None,
    return_seq: bool = False,
    fwd_mixed_param_attr: ParameterAttribute | None = None,
    fwd_mixed_bias_attr: BiasAttr = None,
    fwd_gru_param_attr: ParameterAttribute | None = None,
    fwd_gru_bias_attr: BiasAttr = None,
    fwd_act: activation.Base | None = None,
    fwd_gate_act: activation.Base | None = None,
    fwd_mixed_layer_attr: ExtraLayerAttribute | None = None,
    fwd_gru_cell_attr: ExtraLayerAttribute | None = None,
    bwd_mixed_param_attr: ParameterAttribute | None = None,
    bwd_mixed_bias_attr: BiasAttr = None,
    bwd_gru_param_attr: ParameterAttribute | None = None,
    bwd_gru_bias_attr: BiasAttr = None,
    bwd_act: activation.Base | None = None,
    bwd_gate_act: activation.Base | None = None,
    bwd_mixed_layer_attr: ExtraLayerAttribute | None = None,
    bwd_gru_cell_attr: ExtraLayerAttribute | None = None,
    last_seq_attr: ExtraLayerAttribute | None = None,
    first_seq_attr: ExtraLayerAttribute | None = None,
    concat_attr: ExtraLayerAttribute | None = None,
    concat_act: activation.Base | None = None,
) -> LayerOutput:
    """Declare a GRU in each direction (``<name>_fw``, ``<name>_bw``) side by side.

    Arguments with fwd_ and bwd_ are those of `simple_gru2` for one direction; see `bidirectional_lstm` for the others.
    """
    name = model.current().auto_name("bidirectional_gru", name)
    forward = simple_gru2(
        input,
        size,
        f"{name}_fw",
        False,
        fwd_mixed_param_attr,
        fwd_mixed_bias_attr,
        fwd_gru_param_attr,
        fwd_gru_bias_attr,
        fwd_act,
        fwd_gate_act,
        fwd_mixed_layer_attr,
        fwd_gru_cell_attr,
    )
    backward = simple_gru2(
        input,
        size,
        f"{name}_bw",
        True,
        bwd_mixed_param_attr,
        bwd_mixed_bias_attr,
        bwd_gru_param_attr,
        bwd_gru_bias_attr,
        bwd_act,
        bwd_gate_act,
        bwd_mixed_layer_attr,
        bwd_gru_cell_attr,
    )
    return _both(forward, backward, name, return_seq, last_seq_attr, first_seq_attr, concat_attr, concat_act)


def simple_attention(
    encoded_sequence: LayerOutput,
    encoded_proj: LayerOutput,
    decoder_state: LayerOutput,
    transform_param_attr: ParameterAttribute | None = None,
    softmax_param_attr: ParameterAttribute | None = None,
    weight_act: activation.Base | None = None,
    name: str | None = None,
) -> LayerOutput:
    """Declare the mean of a sequence, weighed by how well its rows fit a state.

    Args:
        encoded_sequence: what is weighed.
        encoded_proj: the same rows as they are compared.
        decoder_state: one row a sample.
        transform_param_attr: of the state's projection.
        softmax_param_attr: of the weights' projection.
        weight_act: of the comparison, Tanh by default.
        name: prefix of all layers.
    """
    name = model.current().auto_name("attention", name)
    size = encoded_proj.size
    state = layer.mixed(
        size,
        layer.full_matrix_projection(decoder_state, size, transform_param_attr),
        name=f"{name}_transform",
    )
    spread = layer.expand(state, encoded_sequence, name=f"{name}_expand")
    compared = layer.mixed(
        size,
        [layer.identity_projection(spread), layer.identity_projection(encoded_proj)],
        name=f"{name}_combine",
        act=weight_act or activation.Tanh(),
    )
    weights = layer.fc(
        compared,
        1,
        activation.SequenceSoftmax(),
        name=f"{name}_softmax",
        param_attr=softmax_param_attr,
        bias_attr=False,
    )
    scaled = layer.scaling(encoded_sequence, weights, name=f"{name}_scaling")
    return layer.pooling(scaled, pooling.Sum(), name=f"{name}_pooling")


def dot_product_attention(
    encoded_sequence: LayerOutput,
    attended_sequence: LayerOutput,
    transformed_state: LayerOutput,
    softmax_param_attr: ParameterAttribute | None = None,
    name: str | None = None,
) -> LayerOutput:
    """Declare the mean of `attended_sequence`, weighed by the products of `encoded_sequence`'s rows with a state."""
    name = model.current().auto_name("dot_product_attention", name)
    spread = layer.expand(transformed_state, encoded_sequence, name=f"{name}_expand")
    products = layer.dot_prod(spread, encoded_sequence, name=f"{name}_dot-product")
    weights = layer.fc(
        products,
        1,
        activation.SequenceSoftmax(),
        name=f"{name}_softmax",
        param_attr=softmax_param_attr,
        bias_attr=False,
    )
    scaled = layer.scaling(attended_sequence, weights, name=f"{name}_scaling")
    return layer.pooling(scaled, pooling.Sum(), name=f"{name}_pooling")


def _both(
    forward: LayerOutput,
    backward: LayerOutput,
    name: str,
    return_seq: bool,
    last_seq_attr: ExtraLayerAttribute | None,
    first_seq_attr: ExtraLayerAttribute | None,
    concat_attr: ExtraLayerAttribute | None,
    concat_act: activation.Base | None,
) -> LayerOutput:
    both = [forward, backward]
    if not return_seq:
        both = [
            layer.last_seq(forward, layer_attr=last_seq_attr),
            layer.first_seq(backward, layer_attr=first_seq_attr),
        ]
    return layer.concat(both, concat_act, name, concat_attr)
