# SPDX-License-Identifier: Apache-2.0
"""Demos of the time for `paddle train`, in our words and tiny: each trains from its configuration alone."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from paddle.v2.errors import UsageError
from tests.runtime.trainer.train_runs import costs, train

TAGGING_PROVIDER = """
import random
from paddle.trainer.PyDataProvider2 import *

WORDS, TAGS, LABELS, FEATURES = 12, 4, 5, 30

def hook(settings, **kwargs):
    settings.input_types = [integer_value_sequence(WORDS), integer_value_sequence(TAGS),
                            integer_value_sequence(LABELS), sparse_binary_vector_sequence(FEATURES)]

@provider(init_hook=hook, cache=CacheType.CACHE_PASS_IN_MEM)
def process(settings, file_name):
    draw = random.Random(file_name)
    for _ in range(40):
        words = [draw.randrange(WORDS) for _ in range(draw.randint(2, 6))]
        labels = [min(word // 3, 4) for word in words]
        known = [0xffffffff if word == 7 else word for word in words]  # 7 is in no dictionary
        yield known, [word % TAGS for word in words], labels, [[word, 12 + word % 7] for word in words]
"""

TAGGING_HEAD = """
from paddle.trainer_config_helpers import *

define_py_data_sources2(['train'], ['test'], 'tags', 'process')
settings(learning_method=MomentumOptimizer(), batch_size=%d, regularization=L2Regularization(rate=1e-4),
         model_average=ModelAverage(average_window=0.5), learning_rate=%g, learning_rate_decay_a=1e-5,
         learning_rate_decay_b=0.25)
size = 8  # 5 labels, rounded up
word, pos = data_layer(name='word', size=12), data_layer(name='pos', size=4)
chunk, features = data_layer(name='chunk', size=size), data_layer(name='features', size=30)
"""

TAGGING_TAIL = """
crf = crf_layer(input=scores, label=chunk, param_attr=ParamAttr(name='crfw', initial_std=0))
decoded = crf_decoding_layer(size=size, input=scores, label=chunk, param_attr=ParamAttr(name='crfw'))
sum_evaluator(name='error', input=decoded)
chunk_evaluator(name='chunk_f1', input=decoded, label=chunk, chunk_scheme='IOB', num_chunk_types=2)
inputs(word, pos, chunk, features)
outputs(crf)
"""

LINEAR = """
scores = fc_layer(input=features, size=size, act=LinearActivation(), bias_attr=False,
                  param_attr=ParamAttr(initial_std=0, sparse_update=True))
"""

RECURRENT = """
default_device(0)
emb = embedding_layer(input=word, size=8, param_attr=ParamAttr(initial_std=0.1), layer_attr=ExtraAttr(device=-1))
hidden = mixed_layer(size=16, act=STanhActivation(), bias_attr=True,
                     input=[full_matrix_projection(emb), table_projection(pos, param_attr=ParamAttr(initial_std=0.1))])
both = [recurrent_layer(input=hidden, act=ReluActivation(), bias_attr=True, reverse=way,
                        param_attr=ParamAttr(initial_std=0.01)) for way in (False, True)]
scores = mixed_layer(size=size, bias_attr=False, input=[full_matrix_projection(each) for each in both])
"""


@pytest.mark.parametrize(
    ("network", "batch", "rate", "passes"), [(LINEAR, 1, 0.1, 3), (RECURRENT, 8, 0.05, 8)]
)
def test_tags_are_learnt_by_a_crf_and_measured_by_chunks(
    network: str, batch: int, rate: float, passes: int, workspace: Path, lines: list[str]
) -> None:
    (workspace / "tags.py").write_text(TAGGING_PROVIDER)
    (workspace / "crf.py").write_text(TAGGING_HEAD % (batch, rate) + network + TAGGING_TAIL)
    assert train("--config=crf.py", f"--num_passes={passes}", "--save_dir=out", "--parallel_nn=1") == 0
    found = costs(lines)
    assert found[-1] < 0.5 * found[0]
    (tested,) = (line for line in lines[-2:] if line.startswith(" Test"))
    assert "chunk_f1.F1-score=" in tested
    error = re.search(r" error=(\S+)", tested)
    assert error is not None
    assert float(error[1]) < 0.3
    assert (workspace / "out/pass-00000/crfw").is_file()


TRAFFIC_PROVIDER = """
import sys
from paddle.trainer.PyDataProvider2 import *

def hook(settings, file_list, **kwargs):
    settings.pool_size = sys.maxsize
    settings.input_types = [dense_vector(6)] + [integer_value(4) for _ in range(5)]

@provider(init_hook=hook, cache=CacheType.CACHE_PASS_IN_MEM)
def process(settings, file_name):
    for number in range(48):
        speeds = [(number * 7 + at * 5) % 4 for at in range(6)]
        yield [[float(each) for each in speeds]] + [speeds[at] for at in range(5)]
"""

TRAFFIC = """
from paddle.trainer_config_helpers import *

is_predict = get_config_arg('is_predict', bool, False)
define_py_data_sources2(None if is_predict else ['data'], ['data'], 'speeds', 'process')
settings(batch_size=8, learning_rate=2e-2, learning_method=RMSPropOptimizer())
found = []
encoded = data_layer(name='link_encode', size=6)
for at in range(5):
    shared = ParamAttr(name='_link_vec.w', initial_max=1.0, initial_min=-1.0)
    hidden = fc_layer(input=encoded, size=16, param_attr=shared)
    score = fc_layer(input=hidden, size=4, act=SoftmaxActivation())
    if is_predict:
        found.append(maxid_layer(score))
    else:
        label = data_layer(name='label_%d' % at, size=4)
        found.append(classification_cost(input=score, name='cost_%d' % at, label=label))
outputs(found)
"""


def test_many_costs_of_one_shared_layer_train_together_and_predict(workspace: Path, lines: list[str]) -> None:
    (workspace / "speeds.py").write_text(TRAFFIC_PROVIDER)
    (workspace / "traffic.py").write_text(TRAFFIC)
    train("--config=traffic.py", "--num_passes=10", "--save_dir=out")
    found = costs(lines)
    assert found[-1] < 0.4 * found[0]
    assert len([path for path in (workspace / "out/pass-00009").iterdir() if path.suffix == ".w"]) == 1
    load = ("--init_model_path=out/pass-00009", "--predict_output_dir=.", "--config_args=is_predict=1")
    train("--config=traffic.py", "--job=test", *load)
    rows = (workspace / "rank-00000").read_text().splitlines()
    assert len(rows) == 48
    assert all(re.fullmatch(r"([0-3];){5}", row) for row in rows)


BENCHMARK_PROVIDER = """
import numpy
from paddle.trainer.PyDataProvider2 import *

def hook(settings, size, classes, **kwargs):
    settings.size, settings.classes = size, classes
    settings.slots = [dense_vector(size), integer_value(1)]

@provider(init_hook=hook, min_pool_size=-1)
def images(settings, file_name):
    draw = numpy.random.default_rng(5)
    for number in range(24):
        label = number % settings.classes
        yield (draw.normal(label, 0.5, settings.size).astype('float32'), label)

def words(settings, **kwargs):
    settings.input_types = [integer_value_sequence(40), integer_value(2)]

@provider(init_hook=words, min_pool_size=-1)
def sentences(settings, file_name):
    for number in range(24):
        label = number % 2
        yield [(number * 3 + at) % 20 + 20 * label for at in range(5)], label
"""

RNN = """
from paddle.trainer_config_helpers import *

num_class, vocab_size = 2, 40
batch_size = get_config_arg('batch_size', int, 8)
lstm_num, hidden_size = get_config_arg('lstm_num', int, 1), get_config_arg('hidden_size', int, 16)
pad_seq = get_config_arg('pad_seq', bool, True)
define_py_data_sources2(['train'], None, module='random_data', obj='sentences', args={'pad_seq': pad_seq})
settings(batch_size=batch_size, learning_rate=1e-2, learning_method=AdamOptimizer(),
         regularization=L2Regularization(8e-4), gradient_clipping_threshold=25)
net = data_layer('data', size=vocab_size)
net = embedding_layer(input=net, size=16)
for i in range(lstm_num):
    net = simple_lstm(input=net, size=hidden_size)
net = last_seq(input=net)
net = fc_layer(input=net, size=num_class, act=SoftmaxActivation())
lab = data_layer('label', num_class)
loss = classification_cost(input=net, label=lab)
outputs(loss)
"""

IMAGE = """
from paddle.trainer_config_helpers import *

height, width, num_class = 12, 12, 3
batch_size = get_config_arg('batch_size', int, 8)
layer_num = get_config_arg('layer_num', int, 1)
define_py_data_sources2('train.list', None, module='random_data', obj='images',
                        args={'size': height * width * 3, 'classes': num_class})
settings(batch_size=batch_size, learning_rate=0.01 / batch_size,
         learning_method=MomentumOptimizer(momentum=0.9), regularization=L2Regularization(0.0005 * batch_size))

def block(name, input, filters, size, stride, padding, channels=None):
    tmp = img_conv_layer(name=name + '_conv', input=input, filter_size=size, num_channels=channels,
                         num_filters=filters, stride=stride, padding=padding, act=LinearActivation(), bias_attr=False)
    return batch_norm_layer(name=name + '_bn', input=tmp, act=ReluActivation(), use_global_stats=False)

img = data_layer(name='image', size=height * width * 3)
net = block('first', img, 8, 3, 1, 1, channels=3)
for i in range(layer_num):
    net = addto_layer(name='sum%d' % i, input=[net, block('res%d' % i, net, 8, 3, 1, 1)], act=ReluActivation())
net = img_cmrnorm_layer(input=net, size=5, scale=0.0001, power=0.75)
net = img_pool_layer(name='pool', input=net, pool_size=2, stride=2, pool_type=AvgPooling())
net = img_conv_group(input=net, num_channels=8, conv_num_filter=[8, 8], conv_filter_size=3, conv_padding=1,
                     conv_act=ReluActivation(), conv_with_batchnorm=True, conv_batchnorm_drop_rate=[0.1, 0],
                     pool_size=2, pool_stride=2, pool_type=MaxPooling())
net = fc_layer(input=net, size=16, act=ReluActivation(), layer_attr=ExtraAttr(drop_rate=0.1))
net = fc_layer(input=net, size=num_class, act=SoftmaxActivation())
loss = cross_entropy(name='loss', input=net, label=data_layer('label', num_class))
outputs(loss)
"""


@pytest.mark.parametrize(
    ("config", "arguments"),
    [(RNN, "batch_size=4,lstm_num=2,hidden_size=8,seq_pad=1"), (IMAGE, "batch_size=6,layer_num=2")],
    ids=["rnn", "image"],
)
def test_a_benchmark_configuration_is_timed_and_trains(
    config: str, arguments: str, workspace: Path, lines: list[str]
) -> None:
    (workspace / "random_data.py").write_text(BENCHMARK_PROVIDER)
    (workspace / "train.list").write_text("none\n")
    (workspace / "bench.py").write_text(config)
    given = ("--config=bench.py", f"--config_args={arguments}")
    train(*given, "--job=time", "--test_period=3")
    (timed,) = (line for line in lines if line.startswith("FwdBwd"))
    assert re.match(r"FwdBwd batches=3 samples=(12|18) total=[\d.]+ms avg=[\d.]+ms", timed)
    lines.clear()
    train(*given, "--num_passes=8", "--saving_period=0")
    found = costs(lines)
    assert found[-1] < 0.7 * found[0]
    assert not (workspace / "output").exists()


def test_timing_the_data_of_a_pass_without_enough_batches_is_an_error(workspace: Path) -> None:
    (workspace / "random_data.py").write_text(BENCHMARK_PROVIDER)
    (workspace / "train.list").write_text("none\n")
    (workspace / "bench.py").write_text(IMAGE)
    with pytest.raises(UsageError, match=r"a pass has only \d+ batches.*feed_data"):
        train("--config=bench.py", "--config_args=batch_size=24", "--job=time", "--feed_data=1")


NEXT_WORD = """
from paddle.trainer_config_helpers import *

define_py_data_sources2(['train'], None, module='random_data', obj='sentences')
settings(batch_size=8)
word = data_layer('data', size=40)
hidden = simple_gru(embedding_layer(word, size=4), size=4)
outputs(cross_entropy(fc_layer(hidden, size=40, act=SoftmaxActivation()), word))
"""


def test_gradients_of_a_cost_for_each_word_are_compared_with_differences(
    workspace: Path, lines: list[str]
) -> None:
    (workspace / "random_data.py").write_text(BENCHMARK_PROVIDER)
    (workspace / "next.py").write_text(NEXT_WORD)
    train("--config=next.py", "--job=checkgrad")
    found = [float(at[1]) for line in lines if (at := re.search(r" diff=(\S+)", line))]
    assert len(found) == 6
    assert max(found) < 0.01


NESTED_PROVIDER = """
import random
from paddle.trainer.PyDataProvider2 import *

@provider({'word': integer_value_sub_sequence(20), 'label': integer_value(2)})
def process(settings, name):
    draw = random.Random(name)
    for number in range(32):
        sentences = [draw.choices(range(18), k=draw.randint(1, 4)) for _ in range(draw.randint(1, 3))]
        sentences[-1].append(18 + number % 2)
        yield {'word': sentences, 'label': number % 2}
"""

NESTED = """
from paddle.trainer_config_helpers import *

define_py_data_sources2(['train'], ['test'], 'nested', 'process')
settings(batch_size=8, learning_rate=2e-2, learning_method=AdamOptimizer())
word = data_layer('word', 20)

def step(sentence):
    return last_seq(simple_lstm(sentence, 8, name='inner'))

rows = recurrent_group(step=step, input=SubsequenceInput(embedding_layer(word, 8)), name='outer')
output = fc_layer(pooling_layer(rows, pooling_type=MaxPooling()), 2, act=SoftmaxActivation())
outputs(classification_cost(output, data_layer('label', 2)))
"""


def test_sequences_of_sequences_come_from_a_provider(workspace: Path, lines: list[str]) -> None:
    (workspace / "nested.py").write_text(NESTED_PROVIDER)
    (workspace / "net.py").write_text(NESTED)
    train("--config=net.py", "--num_passes=6", "--saving_period=0")
    found = costs(lines)
    assert found[-1] < 0.3 * found[0]
