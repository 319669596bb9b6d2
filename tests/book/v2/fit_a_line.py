# SPDX-License-Identifier: Apache-2.0
"""Chapter 1 of the v2 book: the price of a house, by linear regression on real data."""

import itertools
import os
import random

import paddle.v2 as paddle

trainer_id = int(os.getenv("PADDLE_INIT_TRAINER_ID", "0"))
trainers = int(os.getenv("PADDLE_INIT_NUM_GRADIENT_SERVERS", "1"))


def mine(reader):
    return lambda: itertools.islice(reader(), trainer_id, None, trainers)


def main():
    random.seed(trainer_id)  # the order of shuffle
    paddle.init(use_gpu=False, trainer_count=1)

    x = paddle.layer.data(name="x", type=paddle.data_type.dense_vector(13))
    y_predict = paddle.layer.fc(input=x, size=1, act=paddle.activation.Linear())
    y = paddle.layer.data(name="y", type=paddle.data_type.dense_vector(1))
    cost = paddle.layer.square_error_cost(input=y_predict, label=y)

    os.makedirs("output", exist_ok=True)
    inference_topology = paddle.topology.Topology(layers=y_predict)
    with open("output/inference_topology.pkl", "wb") as f:
        inference_topology.serialize_for_inference(f)

    parameters = paddle.parameters.create(cost)
    optimizer = paddle.optimizer.Momentum(momentum=0)
    trainer = paddle.trainer.SGD(
        cost=cost, parameters=parameters, update_equation=optimizer, is_local=trainers == 1
    )
    feeding = {"x": 0, "y": 1}

    def event_handler(event):
        if isinstance(event, paddle.event.EndIteration) and event.batch_id % 10 == 0:
            print("Pass %d, Batch %d, Cost %.2f" % (event.pass_id, event.batch_id, event.cost))
        if isinstance(event, paddle.event.EndPass) and event.pass_id % 10 == 9:
            with open("output/params_pass_%d.tar" % event.pass_id, "w") as f:
                trainer.save_parameter_to_tar(f)
            result = trainer.test(reader=paddle.batch(paddle.dataset.uci_housing.test(), 20), feeding=feeding)
            print("Test %d, Cost %f" % (event.pass_id, result.cost))

    trainer.train(
        reader=paddle.batch(
            paddle.reader.shuffle(mine(paddle.dataset.uci_housing.train()), buf_size=500), 20 // trainers
        ),
        feeding=feeding,
        event_handler=event_handler,
        num_passes=20,
    )

    # another process would read the two files so
    with open("output/params_pass_19.tar", "rb") as f:
        loaded = paddle.parameters.Parameters.from_tar(f)
    samples = list(paddle.dataset.uci_housing.test()())
    with open("output/inference_topology.pkl", "rb") as f:
        inferer = paddle.inference.Inference(parameters=loaded, fileobj=f)
    again = inferer.infer(input=[(item[0],) for item in samples])
    probs = paddle.infer(
        output_layer=y_predict, parameters=parameters, input=[(item[0],) for item in samples]
    )
    assert (abs(again - probs) < 1e-4).all()
    for i in range(5):
        print("label=" + str(samples[i][1][0]) + ", predict=" + str(probs[i][0]))
    print("REACHED cost %.2f" % (sum((p[0] - s[1][0]) ** 2 for p, s in zip(probs, samples)) / len(samples)))


if __name__ == "__main__":
    main()
