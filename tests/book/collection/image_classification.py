# SPDX-License-Identifier: Apache-2.0
"""Blocks with batch normalisation, a schedule with a warm-up of its own, mapped readers; alone or with servers."""

import math
import os

import numpy as np

import paddle
import paddle.fluid as fluid
from paddle.fluid.initializer import init_on_cpu
from paddle.fluid.layers.learning_rate_scheduler import _decay_step_counter

CLASSES, BATCH, STEPS = 4, 16, 16


def reader():
    rng = np.random.RandomState(12)
    for _ in range(BATCH * STEPS):
        label = rng.randint(0, CLASSES)
        image = rng.rand(3, 12, 12).astype("float32") * 0.5
        image[:, label * 3 : label * 3 + 3] += 1
        yield image, label


def sharded(trainer, trainers):
    def read():
        for number, sample in enumerate(reader()):
            if number % trainers == trainer:
                yield sample

    return paddle.reader.xmap_readers(
        lambda sample: (sample[0] - 0.5, int(sample[1])), read, 2, 64, order=True
    )


def warmup(rate, steps):
    with fluid.default_main_program()._lr_schedule_guard():
        decayed = fluid.layers.tensor.create_global_var(
            shape=[1], value=0.0, dtype="float32", persistable=True, name="learning_rate"
        )
        global_step = _decay_step_counter()
        with fluid.layers.control_flow.Switch() as switch:
            with switch.case(global_step < float(steps)):
                fluid.layers.tensor.assign(rate * (global_step / steps), decayed)
            with switch.default():
                with init_on_cpu():
                    value = rate * (fluid.layers.ops.cos((global_step - steps) * (math.pi / 64)) + 1) / 2
                fluid.layers.tensor.assign(value, decayed)
        return decayed


def conv_bn(input, filters, act=None, stride=1):
    conv = fluid.layers.conv2d(
        input=input,
        num_filters=filters,
        filter_size=3,
        stride=stride,
        padding=1,
        groups=1,
        act=None,
        bias_attr=False,
    )
    return fluid.layers.batch_norm(input=conv, act=act, is_test=False)


def network():
    py_reader = fluid.layers.py_reader(
        capacity=16,
        shapes=[[-1, 3, 12, 12], [-1, 1]],
        lod_levels=[0, 0],
        dtypes=["float32", "int64"],
        use_double_buffer=True,
    )
    image, label = fluid.layers.read_file(py_reader)
    net = conv_bn(image, 8, "relu")
    short = conv_bn(net, 8, stride=2)
    net = conv_bn(conv_bn(net, 8, "relu", stride=2), 8)
    net = fluid.layers.elementwise_add(x=short, y=net, act="relu")
    pool = fluid.layers.pool2d(input=net, pool_size=7, pool_type="avg", global_pooling=True)
    bound = 1.0 / math.sqrt(pool.shape[1] * 1.0)
    out = fluid.layers.fc(
        input=pool,
        size=CLASSES,
        param_attr=fluid.param_attr.ParamAttr(initializer=fluid.initializer.Uniform(-bound, bound)),
    )
    cost, pred = fluid.layers.softmax_with_cross_entropy(out, label, return_softmax=True)
    avg_cost = fluid.layers.mean(x=cost)
    acc = fluid.layers.accuracy(input=pred, label=label, k=1)
    avg_cost.persistable = True
    acc.persistable = True
    return py_reader, avg_cost, acc


def train(program, py_reader, loss, acc, rate, trainer, trainers):
    exe = fluid.Executor(fluid.CPUPlace())
    exe.run(fluid.default_startup_program())
    py_reader.decorate_paddle_reader(paddle.batch(sharded(trainer, trainers), batch_size=BATCH / trainers))
    fetched = [loss.name, acc.name] + ([rate.name] if trainers == 1 else [])
    for _ in range(3):
        py_reader.start()
        try:
            while True:
                values = exe.run(program, fetch_list=fetched)
                print("loss: %.5f" % np.mean(np.array(values[0])), flush=True)
        except fluid.core.EOFException:
            py_reader.reset()
    exe.close()


def main():
    fluid.default_main_program().random_seed = fluid.default_startup_program().random_seed = 1
    py_reader, loss, acc = network()
    optimizer = fluid.optimizer.Momentum(
        learning_rate=warmup(0.2, 8), momentum=0.9, regularization=fluid.regularizer.L2Decay(1e-4)
    )
    optimizer.minimize(loss)
    rate = optimizer._global_learning_rate()
    role, trainer = os.getenv("PADDLE_TRAINING_ROLE"), int(os.getenv("PADDLE_TRAINER_ID", "0"))
    trainers = int(os.getenv("PADDLE_TRAINERS_NUM", "1"))
    if role is None:
        train(fluid.default_main_program(), py_reader, loss, acc, rate, 0, 1)
        return
    config = fluid.DistributeTranspilerConfig()
    config.slice_var_up = False
    t = fluid.DistributeTranspiler(config=config)
    t.transpile(
        trainer_id=trainer,
        pservers=os.environ["PADDLE_PSERVERS_IP_PORT_LIST"],
        trainers=trainers,
        sync_mode=True,
        startup_program=fluid.default_startup_program(),
    )
    if role == "PSERVER":
        current = os.environ["PADDLE_CURRENT_ENDPOINT"]
        exe = fluid.Executor(fluid.CPUPlace())
        prog = t.get_pserver_program(current)
        exe.run(t.get_startup_program(current, prog, startup_program=fluid.default_startup_program()))
        exe.run(prog)
    else:
        train(t.get_trainer_program(), py_reader, loss, acc, rate, trainer, trainers)


if __name__ == "__main__":
    main()
