# SPDX-License-Identifier: Apache-2.0
"""Translation with attention: a decoder that weighs the rows of the encoder anew for each word; a search generates."""

from __future__ import annotations

from typing import Any

import owner
from translation import END, START, WORDS, samples

import paddle.v2 as paddle

SIZE = 12


def network(is_generating: bool) -> Any:
    layer, act, attr, kind = paddle.layer, paddle.activation, paddle.attr, paddle.data_type
    source = layer.data(name="source_language_word", type=kind.integer_value_sequence(WORDS))
    words = layer.embedding(
        input=source, size=8, param_attr=attr.ParamAttr(name="_source_language_embedding")
    )
    forward = paddle.networks.simple_gru(input=words, size=SIZE)
    backward = paddle.networks.simple_gru(input=words, size=SIZE, reverse=True)
    encoded = layer.concat(input=[forward, backward])
    with layer.mixed(size=SIZE) as projected:
        projected += layer.full_matrix_projection(input=encoded)
    with layer.mixed(size=SIZE, act=act.Tanh()) as boot:
        boot += layer.full_matrix_projection(input=layer.first_seq(input=backward))

    def gru_decoder_with_attention(enc_vec: Any, enc_proj: Any, current_word: Any) -> Any:
        before = layer.memory(name="gru_decoder", size=SIZE, boot_layer=boot)
        context = paddle.networks.simple_attention(
            encoded_sequence=enc_vec, encoded_proj=enc_proj, decoder_state=before
        )
        with layer.mixed(size=SIZE * 3) as gates:
            gates += layer.full_matrix_projection(input=context)
            gates += layer.full_matrix_projection(input=current_word)
        state = layer.gru_step(name="gru_decoder", input=gates, output_mem=before, size=SIZE)
        with layer.mixed(size=WORDS, bias_attr=True, act=act.Softmax()) as out:
            out += layer.full_matrix_projection(input=state)
        return out

    name = "decoder_group"
    inputs = [layer.StaticInput(input=encoded, is_seq=True), layer.StaticInput(input=projected, is_seq=True)]
    if is_generating:
        inputs.append(
            layer.GeneratedInput(size=WORDS, embedding_name="_target_language_embedding", embedding_size=8)
        )
        return layer.beam_search(
            name=name,
            step=gru_decoder_with_attention,
            input=inputs,
            bos_id=START,
            eos_id=END,
            beam_size=3,
            max_length=6,
        )
    target = layer.data(name="target_language_word", type=kind.integer_value_sequence(WORDS))
    table = attr.ParamAttr(name="_target_language_embedding")
    inputs.append(layer.embedding(input=target, size=8, param_attr=table))
    decoder = layer.recurrent_group(name=name, step=gru_decoder_with_attention, input=inputs)
    following = layer.data(name="target_language_next_word", type=kind.integer_value_sequence(WORDS))
    return layer.classification_cost(input=decoder, label=following)


def train(path: str) -> dict[str, Any]:
    optimizer = paddle.optimizer.Adam(
        learning_rate=5e-3, regularization=paddle.optimizer.L2Regularization(rate=8e-4)
    )
    feeding = {"source_language_word": 0, "target_language_word": 1, "target_language_next_word": 2}
    return owner.train(path, network(is_generating=False), optimizer, samples(48), passes=2, feeding=feeding)


def infer(path: str) -> dict[str, Any]:
    """Return how many sentences the search generates, their words, and the logarithm of the best one's probability."""
    prob, ids = paddle.infer(
        output_layer=network(is_generating=True),
        parameters=owner.load(path),
        input=[sample[:1] for sample in samples(8)],
        field=["prob", "id"],
    )
    found = owner.results(ids)
    return {"sentences": len(found), "words": sum(map(sum, found)), "best": prob.max()}


if __name__ == "__main__":
    owner.main(train, infer)
