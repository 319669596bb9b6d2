# SPDX-License-Identifier: Apache-2.0
# ruff: noqa: T201  scripts print their results
"""Predicts the price of a house from 13 features: linear regression on Boston housing, on this machine.

The data (49 kB) is downloaded at first use into ~/.cache/paddle/dataset, or read from PADDLE_DATA_HOME.
"""

import itertools

import paddle.v2 as paddle

PASSES = 30


def main():
    """Train, test after every tenth pass, and print a few predictions next to the true prices."""
    paddle.init(use_gpu=False, trainer_count=1)

    x = paddle.layer.data(name="x", type=paddle.data_type.dense_vector(13))
    y = paddle.layer.data(name="y", type=paddle.data_type.dense_vector(1))
    predicted = paddle.layer.fc(input=x, size=1, act=paddle.activation.Linear())
    cost = paddle.layer.square_error_cost(input=predicted, label=y)

    parameters = paddle.parameters.create(cost)
    trainer = paddle.trainer.SGD(
        cost=cost, parameters=parameters, update_equation=paddle.optimizer.Momentum(momentum=0)
    )
    test_batches = paddle.batch(paddle.dataset.uci_housing.test(), 2)

    def event_handler(event):
        if isinstance(event, paddle.event.EndPass) and event.pass_id % 10 == 9:
            result = trainer.test(reader=test_batches, feeding={"x": 0, "y": 1})
            print(f"Pass {event.pass_id}, Test cost {result.cost:f}")

    trainer.train(
        reader=paddle.batch(paddle.reader.shuffle(paddle.dataset.uci_housing.train(), 500), 2),
        num_passes=PASSES,
        event_handler=event_handler,
        feeding={"x": 0, "y": 1},
    )

    houses = list(itertools.islice(paddle.dataset.uci_housing.test()(), 5))
    prices = paddle.infer(
        output_layer=predicted, parameters=parameters, input=[(features,) for features, _ in houses]
    )
    for (_, true), price in zip(houses, prices, strict=True):
        print(f"true {true[0]:5.1f}  predicted {price[0]:5.1f}")


if __name__ == "__main__":
    main()
