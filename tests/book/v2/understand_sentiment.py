# SPDX-License-Identifier: Apache-2.0
"""Chapter 6 of the v2 book: whether a film review praises, by convolutions or (--net=lstm) a stack of LSTMs."""

import itertools
import os
import random
import re
import sys

import paddle.v2 as paddle

trainer_id = int(os.getenv("PADDLE_INIT_TRAINER_ID", "0"))
trainers = int(os.getenv("PADDLE_INIT_NUM_GRADIENT_SERVERS", "1"))


def mine(reader):
    return lambda: itertools.islice(reader(), trainer_id, None, trainers)


def convolution_net(input_dim, class_dim=2, emb_dim=32, hid_dim=32):
    data = paddle.layer.data("word", paddle.data_type.integer_value_sequence(input_dim))
    emb = paddle.layer.embedding(input=data, size=emb_dim)
    conv_3 = paddle.networks.sequence_conv_pool(input=emb, context_len=3, hidden_size=hid_dim)
    conv_4 = paddle.networks.sequence_conv_pool(input=emb, context_len=4, hidden_size=hid_dim)
    return paddle.layer.fc(input=[conv_3, conv_4], size=class_dim, act=paddle.activation.Softmax())


def stacked_lstm_net(input_dim, class_dim=2, emb_dim=32, hid_dim=32, stacked_num=3):
    assert stacked_num % 2 == 1
    fc_para_attr = paddle.attr.Param(learning_rate=1e-1)
    lstm_para_attr = paddle.attr.Param(initial_std=0.0, learning_rate=1.0)
    para_attr = [fc_para_attr, lstm_para_attr]
    bias_attr = paddle.attr.Param(initial_std=0.0, l2_rate=0.0)
    relu = paddle.activation.Relu()
    linear = paddle.activation.Linear()

    data = paddle.layer.data("word", paddle.data_type.integer_value_sequence(input_dim))
    emb = paddle.layer.embedding(input=data, size=emb_dim)
    fc1 = paddle.layer.fc(input=emb, size=hid_dim, act=linear, bias_attr=bias_attr)
    lstm1 = paddle.layer.lstmemory(input=fc1, act=relu, bias_attr=bias_attr)
    inputs = [fc1, lstm1]
    for i in range(2, stacked_num + 1):
        fc = paddle.layer.fc(
            input=inputs, size=hid_dim, act=linear, param_attr=para_attr, bias_attr=bias_attr
        )
        lstm = paddle.layer.lstmemory(input=fc, reverse=(i % 2) == 0, act=relu, bias_attr=bias_attr)
        inputs = [fc, lstm]
    fc_last = paddle.layer.pooling(input=inputs[0], pooling_type=paddle.pooling.Max())
    lstm_last = paddle.layer.pooling(input=inputs[1], pooling_type=paddle.pooling.Max())
    return paddle.layer.fc(
        input=[fc_last, lstm_last],
        size=class_dim,
        act=paddle.activation.Softmax(),
        bias_attr=bias_attr,
        param_attr=para_attr,
    )


def shortened(reader, words):
    return paddle.reader.map_readers(lambda sample: (sample[0][-words:], sample[1]), reader)


def main():
    random.seed(trainer_id)  # the order of shuffle
    paddle.init(use_gpu=False, trainer_count=1)
    # the words that word_dict() keeps of 50,000 reviews are no more frequent than these are in a few
    word_dict = paddle.dataset.imdb.build_dict(re.compile(r"aclImdb/train/((pos)|(neg))/.*\.txt$"), 10)
    dict_dim = len(word_dict)
    print("Dictionary size %s" % dict_dim)

    words, net = (100, stacked_lstm_net) if "--net=lstm" in sys.argv else (200, convolution_net)
    output = net(dict_dim)
    lbl = paddle.layer.data("label", paddle.data_type.integer_value(2))
    cost = paddle.layer.classification_cost(input=output, label=lbl)
    parameters = paddle.parameters.create(cost)
    adam_optimizer = paddle.optimizer.Adam(
        learning_rate=5e-3,
        regularization=paddle.optimizer.L2Regularization(rate=8e-4),
        model_average=paddle.optimizer.ModelAverage(average_window=0.5),
    )
    trainer = paddle.trainer.SGD(
        cost=cost, parameters=parameters, update_equation=adam_optimizer, is_local=trainers == 1
    )
    feeding = {"word": 0, "label": 1}
    train = shortened(paddle.dataset.imdb.train(word_dict), words)
    test = shortened(paddle.dataset.imdb.test(word_dict), words)
    os.makedirs("output", exist_ok=True)

    def event_handler(event):
        if isinstance(event, paddle.event.EndIteration) and event.batch_id % 10 == 0:
            print(
                "\nPass %d, Batch %d, Cost %f, %s"
                % (event.pass_id, event.batch_id, event.cost, event.metrics)
            )
        if isinstance(event, paddle.event.EndPass):
            with open("./output/params_pass_%d.tar" % event.pass_id, "w") as f:
                trainer.save_parameter_to_tar(f)
            result = trainer.test(reader=paddle.batch(test, batch_size=128), feeding=feeding)
            print("\nTest with Pass %d, %s" % (event.pass_id, result.metrics))

    trainer.train(
        reader=paddle.batch(paddle.reader.shuffle(mine(train), buf_size=1000), batch_size=50 // trainers),
        event_handler=event_handler,
        feeding=feeding,
        num_passes=3,
    )

    with open("./output/params_pass_2.tar", "rb") as f:
        averaged = paddle.parameters.Parameters.from_tar(f)
    samples = list(test())
    probs = paddle.infer(
        output_layer=output, parameters=averaged, input=[(ids,) for ids, _ in samples], feeding={"word": 0}
    )
    right = sum(int(row.argmax()) == label for row, (_, label) in zip(probs, samples))
    print("REACHED accuracy %.4f" % (right / len(samples)))


if __name__ == "__main__":
    main()
