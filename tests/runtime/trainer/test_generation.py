# SPDX-License-Identifier: Apache-2.0
"""`paddle train --job=test` of a configuration that generates sequences and has no cost."""

from __future__ import annotations

import math
import struct
from pathlib import Path

import numpy as np
import pytest

from tests.runtime.trainer.train_runs import train

PROVIDER = """
from paddle.trainer.PyDataProvider2 import *

types = {'number': integer_value(100), 'nothing': dense_vector(2)}

@provider(input_types=types, should_shuffle=False)
def by_name(settings, file_name):
    for number in range(3):
        yield {'number': number + 7, 'nothing': [0., 0.]}

@provider(input_types=list(types.values()), should_shuffle=False)
def in_order(settings, file_name):
    for number in range(3):
        yield number + 7, [0., 0.]
"""
CONFIGURATION = """
from paddle.trainer_config_helpers import *

settings(batch_size=2, learning_rate=0)
define_py_data_sources2(None, ['file'], 'provider', get_config_arg('provider', str))
number = data_layer('number', size=1)

def step(nothing, word):  # the first input only decides how many samples there are
    return mixed_layer(size=4, input=full_matrix_projection(word, param_attr=ParamAttr(name='next')),
                       act=SoftmaxActivation())

inputs_of_step = [StaticInput(data_layer('nothing', size=2)), GeneratedInput(4, 'words', 4)]
found = beam_search(step, inputs_of_step, bos_id=0, eos_id=3, beam_size=2, num_results_per_sample=1, max_length=9)
seqtext_printer_evaluator(input=found, id_input=number, dict_file='words.txt', result_file='found.txt')
if get_config_arg('named', bool, False):
    Inputs('number', 'nothing')
    Outputs('__beam_search_predict__')
else:
    outputs(found)
"""


@pytest.mark.parametrize(
    "arguments", ["provider=by_name", "provider=by_name,named=1", "provider=in_order,named=1"]
)
def test_a_configuration_generates_the_likeliest_words(arguments: str, workspace: Path) -> None:
    (workspace / "provider.py").write_text(PROVIDER)
    (workspace / "config.py").write_text(CONFIGURATION)
    (workspace / "words.txt").write_text("a\nb\nc\nd\n")
    (workspace / "model").mkdir()
    scores = np.roll(5 * np.eye(4), 1, axis=1)  # from each word to the following one
    for name, value in (("words", np.eye(4)), ("next", scores)):
        content = struct.pack("<IIQ", 0, 4, value.size) + value.astype(np.float32).tobytes()
        (workspace / "model" / name).write_bytes(content)
    assert not train(
        "--job=test", "--config=config.py", "--init_model_path=model", f"--config_args={arguments}"
    )
    lines = (workspace / "found.txt").read_text().split("\n")
    assert lines[0:6:2] == ["7", "8", "9"]
    rank, log_probability, words = lines[1].split("\t")
    assert (rank, words) == ("0", "b c d")
    assert float(log_probability) == pytest.approx(3 * (5 - math.log(math.exp(5) + 3)), rel=1e-4)
    assert {line.split("\t")[2] for line in lines[1:6:2]} == {"b c d"}
