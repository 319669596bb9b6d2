# SPDX-License-Identifier: Apache-2.0
"""One trainer of a cluster, as a user writes it: trains word2vec on every n-th sample and saves what it ends with.

Arguments: number of trainers, samples per batch and trainer, passes, file for the parameters, "async" or "sync",
"sparse", "dense", "averaged" (dense, and a mean is saved) or "ahead" (sparse, and samples may be read ahead), dropout
rate, number of samples this trainer leaves out at the end.
"""

from __future__ import annotations

import sys
import warnings
from collections.abc import Iterator

import numpy as np

import paddle.v2 as paddle
from paddle.v2 import settings
from tests.runtime.v2.training.word2vec import network, samples


def main() -> None:
    warnings.simplefilter("error")
    trainers, size, passes, file, mode, table, drop_rate, missing = sys.argv[1:]
    paddle.init()
    _, cost = network(float(drop_rate), sparse=table in ("sparse", "ahead"))
    parameters = paddle.parameters.create(cost)
    adagrad = paddle.optimizer.AdaGrad(
        is_async=mode == "async",
        async_lagged_grad_discard_ratio=10.0,
        learning_rate=3e-2,
        regularization=paddle.optimizer.L2Regularization(8e-4),
        model_average=paddle.optimizer.ModelAverage(0.5) if table == "averaged" else None,
    )
    trainer = paddle.trainer.SGD(cost, parameters, adagrad, is_local=False)
    rank = settings.current().trainer_id
    own = samples(192)[rank :: int(trainers)]
    own = own[: len(own) - int(missing) * rank]
    costs, tested = [], []

    def handler(event: object) -> None:
        if isinstance(event, paddle.event.EndIteration):
            costs.append(event.cost)
        is_halfway = isinstance(event, paddle.event.EndIteration) and event.batch_id == 3
        if isinstance(event, paddle.event.EndPass) or is_halfway:
            tested.append(trainer.test(paddle.batch(lambda: iter(samples(30, seed=9)), 8)).cost)

    def read() -> Iterator[tuple[int, ...]]:
        return iter(own)

    reader = paddle.batch(paddle.reader.cache(read) if table == "ahead" else read, int(size))
    trainer.train(reader, num_passes=int(passes), event_handler=handler)
    with open(f"{file}.tar", "wb") as tar:
        trainer.save_parameter_to_tar(tar)
    np.savez(f"{file}.npz", costs=costs, tested=tested)


if __name__ == "__main__":
    main()
