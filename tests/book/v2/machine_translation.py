# SPDX-License-Identifier: Apache-2.0
"""Chapter 8 of the v2 book: translation, by an encoder, a decoder with attention, and beam search."""

import itertools
import os
import random
import sys

import paddle.v2 as paddle

word_vector_dim = 16
encoder_size = 24
decoder_size = 24
beam_size = 3
max_length = 12

trainer_id = int(os.getenv("PADDLE_INIT_TRAINER_ID", "0"))
trainers = int(os.getenv("PADDLE_INIT_NUM_GRADIENT_SERVERS", "1"))


def mine(reader):
    return lambda: itertools.islice(reader(), trainer_id, None, trainers)


def seq_to_seq_net(source_dict_dim, target_dict_dim, is_generating):
    src_word_id = paddle.layer.data(
        name="source_language_word", type=paddle.data_type.integer_value_sequence(source_dict_dim)
    )
    src_embedding = paddle.layer.embedding(input=src_word_id, size=word_vector_dim)
    src_forward = paddle.networks.simple_gru(input=src_embedding, size=encoder_size)
    src_backward = paddle.networks.simple_gru(input=src_embedding, size=encoder_size, reverse=True)
    encoded_vector = paddle.layer.concat(input=[src_forward, src_backward])

    encoded_proj = paddle.layer.fc(
        act=paddle.activation.Linear(), size=decoder_size, bias_attr=False, input=encoded_vector
    )
    backward_first = paddle.layer.first_seq(input=src_backward)
    decoder_boot = paddle.layer.fc(
        size=decoder_size, act=paddle.activation.Tanh(), bias_attr=False, input=backward_first
    )

    def gru_decoder_with_attention(enc_vec, enc_proj, current_word):
        decoder_mem = paddle.layer.memory(name="gru_decoder", size=decoder_size, boot_layer=decoder_boot)
        context = paddle.networks.simple_attention(
            encoded_sequence=enc_vec, encoded_proj=enc_proj, decoder_state=decoder_mem
        )
        with paddle.layer.mixed(size=decoder_size * 3) as decoder_inputs:
            decoder_inputs += paddle.layer.full_matrix_projection(input=context)
            decoder_inputs += paddle.layer.full_matrix_projection(input=current_word)
        gru_step = paddle.layer.gru_step(
            name="gru_decoder",
            input=decoder_inputs,
            output_mem=decoder_mem,
            size=decoder_size,
            layer_attr=paddle.attr.ExtraLayerAttribute(error_clipping_threshold=100.0),
        )
        return paddle.layer.fc(
            size=target_dict_dim, bias_attr=True, act=paddle.activation.Softmax(), input=gru_step
        )

    decoder_group_name = "decoder_group"
    group_inputs = [
        paddle.layer.StaticInput(input=encoded_vector),
        paddle.layer.StaticInput(input=encoded_proj),
    ]
    if not is_generating:
        trg_embedding = paddle.layer.embedding(
            input=paddle.layer.data(
                name="target_language_word", type=paddle.data_type.integer_value_sequence(target_dict_dim)
            ),
            size=word_vector_dim,
            param_attr=paddle.attr.ParamAttr(name="_target_language_embedding"),
        )
        group_inputs.append(trg_embedding)
        decoder = paddle.layer.recurrent_group(
            name=decoder_group_name, step=gru_decoder_with_attention, input=group_inputs
        )
        lbl = paddle.layer.data(
            name="target_language_next_word",
            type=paddle.data_type.integer_value_sequence(target_dict_dim),
        )
        return paddle.layer.classification_cost(input=decoder, label=lbl)

    trg_embedding = paddle.layer.GeneratedInput(
        size=target_dict_dim,
        embedding_name="_target_language_embedding",
        embedding_size=word_vector_dim,
    )
    group_inputs.append(trg_embedding)
    return paddle.layer.beam_search(
        name=decoder_group_name,
        step=gru_decoder_with_attention,
        input=group_inputs,
        bos_id=0,
        eos_id=1,
        beam_size=beam_size,
        max_length=max_length,
    )


def train(dict_size, model):
    cost = seq_to_seq_net(dict_size, dict_size, is_generating=False)
    parameters = paddle.parameters.create(cost)
    optimizer = paddle.optimizer.Adam(
        learning_rate=2e-2, regularization=paddle.optimizer.L2Regularization(rate=8e-4)
    )
    trainer = paddle.trainer.SGD(
        cost=cost, parameters=parameters, update_equation=optimizer, is_local=trainers == 1
    )

    def event_handler(event):
        if isinstance(event, paddle.event.EndIteration):
            if event.batch_id % 10 == 0:
                print(
                    "\nPass %d, Batch %d, Cost %f, %s"
                    % (event.pass_id, event.batch_id, event.cost, event.metrics)
                )
            else:
                sys.stdout.write(".")
                sys.stdout.flush()
        if isinstance(event, paddle.event.EndPass):
            result = trainer.test(reader=paddle.batch(paddle.dataset.wmt14.test(dict_size), 60))
            print("\nTest with Pass %d, %s" % (event.pass_id, result.metrics))

    trainer.train(
        reader=paddle.batch(
            paddle.reader.shuffle(mine(paddle.dataset.wmt14.train(dict_size)), buf_size=8192), 40 // trainers
        ),
        event_handler=event_handler,
        num_passes=5,
    )
    with open(model, "w") as f:
        trainer.save_parameter_to_tar(f)


def generate(dict_size, model):
    """Counts the sentences that come out word for word."""
    samples = list(paddle.dataset.wmt14.test(dict_size)())
    beam_gen = seq_to_seq_net(dict_size, dict_size, is_generating=True)
    with open(model, "rb") as f:
        parameters = paddle.parameters.Parameters.from_tar(f)
    beam_result = paddle.infer(
        output_layer=beam_gen,
        parameters=parameters,
        input=[(source,) for source, _, _ in samples],
        field=["prob", "id"],
    )
    src_dict, trg_dict = paddle.dataset.wmt14.get_dict(dict_size)

    # all results in a row: how many words, the words, -1
    gen_sen_idx = [i for i, word in enumerate(beam_result[1]) if word == -1]
    assert len(gen_sen_idx) == len(samples) * beam_size
    right, start = 0, 1
    for i, (source, _, expected) in enumerate(samples):
        if i < 3:
            print(" ".join(src_dict[word] for word in source[1:-1]))
        for j in range(beam_size):
            end = gen_sen_idx[i * beam_size + j]
            found = list(beam_result[1][start:end])
            start = end + 2
            if i < 3:
                print("%.4f\t%s" % (beam_result[0][i][j], " ".join(trg_dict[word] for word in found[:-1])))
            if j == 0:
                right += found == expected
    print("REACHED accuracy %.4f" % (right / len(samples)))


def main():
    random.seed(trainer_id)  # the order of shuffle
    paddle.init(use_gpu=False, trainer_count=1)
    dict_size = 30
    is_generating = "--generate" in sys.argv  # in a process of its own, or names would be declared twice
    os.makedirs("output", exist_ok=True)
    if is_generating:
        generate(dict_size, "output/params.tar")
    else:
        train(dict_size, "output/params.tar")


if __name__ == "__main__":
    main()
