# SPDX-License-Identifier: Apache-2.0
"""Scripts for `py_paddle`: prediction with a trained network, and the loops of the demos GAN and VAE, in our words."""

from __future__ import annotations

import importlib
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from paddle.trainer.config_parser import parse_config
from paddle.trainer.PyDataProvider2 import integer_value_sequence, sparse_binary_vector
from py_paddle import DataProviderConverter
from py_paddle import swig_paddle as api
from tests.runtime.trainer.test_quick_start import write
from tests.runtime.trainer.train_runs import train


def test_a_prediction_script_loads_a_trained_network(workspace: Path) -> None:
    write(workspace, "lr")
    train("--config=trainer_config.py", "--num_passes=12", "--save_dir=out", "--saving_period=11")
    api.initPaddle("--use_gpu=0")
    config = parse_config("trainer_config.py", "is_predict=1")
    network = api.GradientMachine.createFromConfigProto(config.model_config)
    network.loadParameters("out/pass-00011")
    words = {line: at for at, line in enumerate((workspace / "data/dict.txt").read_text().split())}
    converter = DataProviderConverter([sparse_binary_vector(len(words))])
    best, probabilities = network.forwardTest(converter([[[words["good"]]], [[words["bad"], 3]]]))
    assert best["id"].ravel().tolist() == [1, 0]
    np.testing.assert_allclose(probabilities["value"].sum(axis=1), 1, rtol=1e-6)


def test_a_changed_message_of_a_network_is_refused(workspace: Path) -> None:
    (workspace / "net.py").write_text(
        "from paddle.trainer_config_helpers import *\noutputs(fc_layer(data_layer('x', 3), 2, name='out'))\n"
    )
    message = parse_config("net.py").model_config
    assert api.GradientMachine.createFromConfigProto(message).getParameterSize() == 2
    message.layers[1].active_type = "relu"
    with pytest.raises(ValueError, match="no effect; change the configuration"):
        api.GradientMachine.createFromConfigProto(message)


def test_one_network_takes_sequences_where_its_types_say_so(workspace: Path) -> None:
    (workspace / "net.py").write_text(
        "from paddle.trainer_config_helpers import *\n"
        "word = data_layer('word', 9)\n"
        "outputs(last_seq(embedding_layer(word, 4)))\n"
    )
    network = api.GradientMachine.createFromConfigProto(parse_config("net.py").model_config)
    (found,) = network.forwardTest(DataProviderConverter([integer_value_sequence(9)])([[[1, 2, 3]], [[5]]]))
    table = network.getParameter(0).getBuf(api.PARAMETER_VALUE).toNumpyArrayInplace().reshape(9, 4)
    np.testing.assert_array_equal(found["value"], table[[3, 5]])
    by_hand = api.Arguments.createArguments(1)
    by_hand.setSlotIds(0, api.IVector.create([1, 2, 3, 5]))
    by_hand.setSlotSequenceStartPositions(0, api.IVector.create([0, 3, 4]))
    np.testing.assert_array_equal(network.forwardTest(by_hand)[0]["value"], found["value"])


GAN = """
from paddle.trainer_config_helpers import *

mode = get_config_arg('mode', str, 'generator')
is_generator_training, is_discriminator_training = mode == 'generator_training', mode == 'discriminator_training'
settings(batch_size=32, learning_rate=1e-2, learning_method=AdamOptimizer(beta1=0.5))

def discriminator(sample):
    attr = ParamAttr(is_static=is_generator_training)
    bias = ParamAttr(is_static=is_generator_training, initial_mean=1.0, initial_std=0)
    hidden = fc_layer(input=sample, name='dis_hidden', size=16, bias_attr=bias, param_attr=attr, act=ReluActivation())
    return fc_layer(input=hidden, name='dis_prob', size=2, bias_attr=bias, param_attr=attr, act=SoftmaxActivation())

def generator(noise):
    attr = ParamAttr(is_static=is_discriminator_training)
    hidden = fc_layer(input=noise, name='gen_hidden', size=8, param_attr=attr, act=ReluActivation())
    return fc_layer(input=hidden, name='gen_out', size=2, param_attr=attr, act=LinearActivation())

if mode != 'discriminator_training':
    sample = generator(data_layer(name='noise', size=4))
if mode == 'discriminator_training':
    sample = data_layer(name='sample', size=2)
if mode != 'generator':
    label = data_layer(name='label', size=1)
    cost = cross_entropy(input=discriminator(sample), label=label)
    classification_error_evaluator(input=cost.parents[0], label=label, name=mode + '_error')
    outputs(cost)
else:
    outputs(sample)
"""


def _copy(source: Any, target: Any) -> int:
    known = {each.getName(): each for each in source.getParameters()}
    copied = 0
    for number in range(target.getParameterSize()):
        own = target.getParameter(number)
        if (other := known.get(own.getName())) is not None:
            own.getBuf(api.PARAMETER_VALUE).copyFrom(other.getBuf(api.PARAMETER_VALUE))
            own.setValueUpdated()
            copied += 1
    return copied


def _batch(rows: Any, labels: Any = None) -> Any:
    inputs = api.Arguments.createArguments(1 if labels is None else 2)
    inputs.setSlotValue(0, api.Matrix.createDenseFromNumpy(rows.astype(np.float32)))
    if labels is not None:
        inputs.setSlotIds(1, api.IVector.createVectorFromNumpy(np.array(labels, np.int32)))
    return inputs


def test_two_networks_of_one_configuration_train_against_each_other(workspace: Path) -> None:
    (workspace / "gan.py").write_text(GAN)
    modes = ("generator_training", "discriminator_training", "generator")
    configs = {mode: parse_config("gan.py", f"mode={mode}") for mode in modes}
    machines = {
        mode: api.GradientMachine.createFromConfigProto(config.model_config)
        for mode, config in configs.items()
    }
    trainers = {mode: api.Trainer.create(configs[mode], machines[mode]) for mode in modes[:2]}
    assert _copy(machines[modes[0]], machines[modes[1]]) == 4
    draw, n = np.random.default_rng(3), 32
    center = np.array([2.0, -1.0])

    def fake() -> Any:
        found = api.Arguments.createArguments(0)
        machines["generator"].forward(_batch(draw.normal(size=(n, 4))), found, api.PASS_TEST)
        return found.getSlotValue(0).copyToNumpyMat()

    _copy(machines[modes[0]], machines["generator"])
    first = np.linalg.norm(fake().mean(axis=0) - center)
    for trainer in trainers.values():
        trainer.startTrain()
    for _ in range(150):
        real = draw.normal(size=(n, 2)) * 0.3 + center
        trainers[modes[1]].trainOneDataBatch(n, _batch(real, np.ones(n)))
        trainers[modes[1]].trainOneDataBatch(n, _batch(fake(), np.zeros(n)))
        _copy(machines[modes[1]], machines[modes[0]])
        trainers[modes[0]].trainOneDataBatch(n, _batch(draw.normal(size=(n, 4)), np.ones(n)))
        _copy(machines[modes[0]], machines[modes[1]])
        _copy(machines[modes[0]], machines["generator"])
    assert np.linalg.norm(fake().mean(axis=0) - center) < 0.4 * first


VAE = """
from paddle.trainer_config_helpers import *

is_generating = get_config_arg('is_generating', bool, False)
settings(batch_size=16, learning_rate=1e-2, learning_method=AdamOptimizer())
X_dim, h_dim, z_dim = 12, 16, 4

def reparameterize(mu, logvar):
    eps = ParamAttr(initial_mean=0., initial_std=1)
    with mixed_layer() as sigma:
        sigma += dotmul_projection(layer_math.exp(logvar * 0.5), param_attr=eps)
    return mu + sigma

def decode(z):
    hidden = fc_layer(z, size=h_dim, name='dec_hidden', act=ReluActivation())
    return fc_layer(hidden, size=X_dim, name='dec_prob', act=SigmoidActivation())

if is_generating:
    outputs(decode(data_layer(name='noise', size=z_dim)))
else:
    x = data_layer(name='x_batch', size=X_dim)
    hidden = fc_layer(x, size=h_dim, act=ReluActivation())
    mu = fc_layer(hidden, size=z_dim, act=LinearActivation())
    logvar = fc_layer(hidden, size=z_dim, act=LinearActivation())
    prob = decode(reparameterize(mu, logvar))
    reconstruction = multi_binary_label_cross_entropy(prob, x)
    with mixed_layer() as mu_square:
        mu_square += dotmul_operator(mu, mu, scale=1.)
    divergence = 0.5 * sum_cost(layer_math.exp(logvar) + mu_square - 1. - logvar)
    outputs(reconstruction + divergence)
"""


def test_an_autoencoder_trains_by_hand_and_generates(workspace: Path) -> None:
    (workspace / "vae.py").write_text(VAE)
    config = parse_config("vae.py")
    machine = api.GradientMachine.createFromConfigProto(config.model_config)
    trainer = api.Trainer.create(config, machine)
    generator = api.GradientMachine.createFromConfigProto(
        parse_config("vae.py", "is_generating=1").model_config
    )
    shapes = np.repeat(np.eye(3), 4, axis=1)
    draw = np.random.default_rng(1)
    trainer.startTrain()
    found = []
    for _ in range(60):
        trainer.startTrainPass()
        found.append(trainer.trainOneDataBatch(16, _batch(shapes[draw.integers(3, size=16)])))
        trainer.finishTrainPass()
    trainer.finishTrain()
    assert found[-1] < 0.6 * found[0]
    assert _copy(machine, generator) == 4
    (image,) = generator.forwardTest(_batch(draw.normal(size=(2, 4))))
    assert image["value"].shape == (2, 12)


def test_what_is_absent_is_named_with_what_to_use() -> None:
    with pytest.raises(AttributeError, match=r"ParameterUpdater is not available: train with swig_paddle.Tr"):
        api.ParameterUpdater  # noqa: B018
    module = importlib.import_module("py_paddle.swig_paddle")
    assert module is api
