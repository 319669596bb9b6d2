# SPDX-License-Identifier: Apache-2.0
"""A classifier of words for `paddle train`; each trainer reads a part of its own."""

import os

from paddle.trainer_config_helpers import *  # noqa: F403

rank = os.environ["PADDLE_TRAINER_ID"]
define_py_data_sources2([rank], ["test"], "words", "process")  # noqa: F405
settings(batch_size=8, learning_rate=2e-2, learning_method=AdamOptimizer())  # noqa: F405
word = data_layer(name="word", size=20)  # noqa: F405
rows = embedding_layer(input=word, size=8)  # noqa: F405
hidden = pooling_layer(input=simple_lstm(input=rows, size=8), pooling_type=MaxPooling())  # noqa: F405
output = fc_layer(input=hidden, size=2, act=SoftmaxActivation())  # noqa: F405
outputs(classification_cost(input=output, label=data_layer(name="label", size=2)))  # noqa: F405
