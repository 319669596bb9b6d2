# SPDX-License-Identifier: Apache-2.0
# ruff: noqa: T201  scripts print their results
"""Recognizes handwritten digits: two hidden layers on MNIST, trained on this machine.

The digits (12 MB) are downloaded at first use into ~/.cache/paddle/dataset, or read from PADDLE_DATA_HOME.
"""

import gzip

import paddle.v2 as paddle

PASSES = 3
BATCH_SIZE = 128


def network():
    """Return the probabilities of the ten digits (layer) and the cost (layer)."""
    pixels = paddle.layer.data(name="pixel", type=paddle.data_type.dense_vector(784))
    label = paddle.layer.data(name="label", type=paddle.data_type.integer_value(10))
    hidden = paddle.layer.fc(input=pixels, size=128, act=paddle.activation.Relu())
    hidden = paddle.layer.fc(input=hidden, size=64, act=paddle.activation.Relu())
    predicted = paddle.layer.fc(input=hidden, size=10, act=paddle.activation.Softmax())
    return predicted, paddle.layer.classification_cost(input=predicted, label=label)


def main():
    """Train, test after every pass, write the model and classify a few digits with it."""
    paddle.init(use_gpu=False, trainer_count=1)
    predicted, cost = network()
    parameters = paddle.parameters.create(cost)
    # Gradients are summed over a batch, so rates are divided by its size and decay is multiplied by it.
    momentum = paddle.optimizer.Momentum(
        learning_rate=0.01 / BATCH_SIZE,
        momentum=0.9,
        regularization=paddle.optimizer.L2Regularization(rate=0.0005 * BATCH_SIZE),
    )
    trainer = paddle.trainer.SGD(cost=cost, parameters=parameters, update_equation=momentum)
    test_batches = paddle.batch(paddle.dataset.mnist.test(), BATCH_SIZE)

    def event_handler(event):
        if isinstance(event, paddle.event.EndIteration) and event.batch_id % 100 == 0:
            print(f"Pass {event.pass_id}, Batch {event.batch_id}, Cost {event.cost:f}, {event.metrics}")
        if isinstance(event, paddle.event.EndPass):
            result = trainer.test(reader=test_batches)
            print(f"Pass {event.pass_id}, Test cost {result.cost:f}, {result.metrics}")

    trainer.train(
        reader=paddle.batch(paddle.reader.shuffle(paddle.dataset.mnist.train(), 8192), BATCH_SIZE),
        num_passes=PASSES,
        event_handler=event_handler,
    )
    with gzip.open("digits.tar.gz", "wb") as file:
        trainer.save_parameter_to_tar(file)

    digits = list(paddle.reader.firstn(paddle.dataset.mnist.test(), 10)())
    probabilities = paddle.infer(
        output_layer=predicted, parameters=parameters, input=[(pixels,) for pixels, _ in digits]
    )
    print("true     ", [label for _, label in digits])
    print("predicted", probabilities.argmax(axis=1).tolist())


if __name__ == "__main__":
    main()
