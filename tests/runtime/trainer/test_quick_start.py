# SPDX-License-Identifier: Apache-2.0
"""The seven networks of the demo quick_start, in our words and tiny: each trains from its configuration alone."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.runtime.trainer.train_runs import costs, train, write_sentences

PROVIDER = """
from paddle.trainer.PyDataProvider2 import *

def bag(settings, dictionary, **kwargs):
    settings.dictionary = dictionary
    settings.input_types = {'word': sparse_binary_vector(len(dictionary)), 'label': integer_value(2)}

def sequence(settings, dictionary, **kwargs):
    settings.dictionary = dictionary
    settings.input_types = {'word': integer_value_sequence(len(dictionary)), 'label': integer_value(2)}

def samples(settings, file_name):
    with open(file_name) as file:
        for line in file:
            label, words = line.strip().split('\\t')
            yield {'word': [settings.dictionary[each] for each in words.split()], 'label': int(label)}

bags = provider(init_hook=bag, cache=CacheType.CACHE_PASS_IN_MEM)(samples)
sequences = provider(init_hook=sequence, cache=CacheType.CACHE_PASS_IN_MEM)(samples)

@provider(init_hook=bag, should_shuffle=False)
def unlabelled(settings, file_name):
    for sample in samples(settings, file_name):
        yield {'word': sample['word'], 'label': 0}
"""

HEAD = """
from paddle.trainer_config_helpers import *

with open('data/dict.txt') as file:
    dictionary = {line.strip(): number for number, line in enumerate(file)}
is_predict = get_config_arg('is_predict', bool, False)
define_py_data_sources2(None if is_predict else 'data/train.list', 'data/test.list', 'reader',
                        'unlabelled' if is_predict else '%s', {'dictionary': dictionary})
settings(batch_size=1 if is_predict else 16, learning_rate=2e-2, learning_method=AdamOptimizer(),
         regularization=L2Regularization(8e-4), gradient_clipping_threshold=25)
word = data_layer(name='word', size=len(dictionary))
"""

TAIL = """
if is_predict:
    outputs([maxid_layer(output), output])
else:
    outputs(classification_cost(input=output, label=data_layer(name='label', size=2)))
"""

EMBEDDED = "emb = embedding_layer(input=word, size=8)\n"
SOFTMAX = "output = fc_layer(input=%s, size=2, act=SoftmaxActivation())\n"

NETWORKS = {
    "lr": ("bags", SOFTMAX % "word"),
    "emb": (
        "sequences",
        EMBEDDED + SOFTMAX % "pooling_layer(input=emb, pooling_type=AvgPooling())",
    ),
    "cnn": (
        "sequences",
        EMBEDDED + SOFTMAX % "sequence_conv_pool(input=emb, context_len=3, hidden_size=16)",
    ),
    "lstm": (
        "sequences",
        EMBEDDED
        + "lstm = simple_lstm(input=emb, size=8, lstm_cell_attr=ExtraAttr(drop_rate=0.25))\n"
        + SOFTMAX % "pooling_layer(input=lstm, pooling_type=MaxPooling())",
    ),
    "bidi-lstm": (
        "sequences",
        EMBEDDED
        + "both = dropout_layer(input=bidirectional_lstm(input=emb, size=8), dropout_rate=0.5)\n"
        + SOFTMAX % "both",
    ),
    "db-lstm": (
        "sequences",
        EMBEDDED
        + """
hidden = mixed_layer(size=16, input=[full_matrix_projection(emb)])
lstm = lstmemory(input=hidden, act=ReluActivation(), gate_act=SigmoidActivation(), bias_attr=ParamAttr(initial_std=0.))
for at in range(1, 4):
    hidden = fc_layer(input=[hidden, lstm], size=16, act=LinearActivation(),
                      param_attr=[ParamAttr(learning_rate=1e-1), ParamAttr(learning_rate=1.)])
    lstm = lstmemory(input=hidden, act=ReluActivation(), reverse=at % 2 == 1, layer_attr=ExtraAttr(drop_rate=0.1))
"""
        + SOFTMAX % "[pooling_layer(input=each, pooling_type=MaxPooling()) for each in (hidden, lstm)]",
    ),
    "resnet-lstm": (
        "sequences",
        EMBEDDED
        + """
before, hidden = emb, simple_lstm(input=emb, size=8)
for _ in range(3):
    before, hidden = hidden, simple_lstm(input=addto_layer(input=[before, hidden]), size=8)
"""
        + SOFTMAX % "pooling_layer(input=hidden, pooling_type=MaxPooling())",
    ),
}


def write(folder: Path, name: str) -> None:
    provider, network = NETWORKS[name]
    write_sentences(folder)
    (folder / "reader.py").write_text(PROVIDER)
    (folder / "trainer_config.py").write_text(HEAD % provider + network + TAIL)


@pytest.mark.parametrize("name", NETWORKS)
def test_a_network_of_quick_start_trains_from_its_configuration(
    name: str, workspace: Path, lines: list[str]
) -> None:
    write(workspace, name)
    assert train("--config=trainer_config.py", "--num_passes=10", "--save_dir=out") == 0
    found = costs(lines)
    assert len(found) == 10
    assert found[-1] < 0.55 * found[0]
    saved = sorted(path.name for path in (workspace / "out").iterdir())
    assert saved == [f"pass-{number:05d}" for number in range(10)]


def test_a_trained_network_predicts_in_another_run(workspace: Path) -> None:
    write(workspace, "lr")
    train("--config=trainer_config.py", "--num_passes=12", "--save_dir=out")
    flags = ["--job=test", "--config_args=is_predict=1", "--init_model_path=out/pass-00011"]
    assert train("--config=trainer_config.py", "--predict_output_dir=.", *flags) == 0
    rows = [line.split(";") for line in (workspace / "rank-00000").read_text().splitlines()]
    labels = [line.split("\t")[0] for line in (workspace / "data/test.txt").read_text().splitlines()]
    assert len(rows) == len(labels)
    for best, no, yes, end in rows:
        assert end == ""
        assert best == str(int(float(yes) > float(no)))
    assert sum(row[0] == label for row, label in zip(rows, labels, strict=True)) >= 0.9 * len(labels)
