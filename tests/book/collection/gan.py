# SPDX-License-Identifier: Apache-2.0
"""Two networks in programs that share one startup and one scope, each with an optimizer and a list of parameters."""

import tempfile

import numpy as np

import paddle.fluid as fluid

NOISE, WIDTH, BATCH = 4, 8, 16


def generator(z, name="G"):
    hidden = fluid.layers.fc(z, WIDTH, act="relu", param_attr=name + "_w1", bias_attr=name + "_b1")
    return fluid.layers.fc(hidden, 2, param_attr=name + "_w2", bias_attr=name + "_b2")


def discriminator(x, name="D"):
    hidden = fluid.layers.fc(x, WIDTH, act="tanh", param_attr=name + "_w1", bias_attr=name + "_b1")
    return fluid.layers.fc(hidden, 1, act=None, param_attr=name + "_w2", bias_attr=name + "_b2")


def loss_of(logit, value):
    label = fluid.layers.fill_constant_batch_size_like(logit, dtype="float32", shape=[-1, 1], value=value)
    return fluid.layers.mean(fluid.layers.sigmoid_cross_entropy_with_logits(x=logit, label=label))


def main():
    d_program, dg_program = fluid.Program(), fluid.Program()
    startup = fluid.default_startup_program()
    startup.random_seed = 1
    with fluid.program_guard(d_program, startup):
        with fluid.unique_name.guard("d_"):
            image = fluid.layers.data(name="img", shape=[2], dtype="float32")
            real = fluid.layers.data(name="value", shape=[1], dtype="float32")
            logit = discriminator(image)
            d_loss = fluid.layers.mean(fluid.layers.sigmoid_cross_entropy_with_logits(x=logit, label=real))
    with fluid.program_guard(dg_program, startup):
        with fluid.unique_name.guard("dg_"):
            noise = fluid.layers.data(name="noise", shape=[NOISE], dtype="float32")
            made = generator(noise)
            sampler = dg_program.clone(for_test=True)
            dg_loss = loss_of(discriminator(made), 1.0)
    optimizer = fluid.optimizer.Adam(learning_rate=0.01)
    with fluid.program_guard(d_program, startup):
        optimizer.minimize(loss=d_loss, startup_program=startup)
    mine = [each.name for each in dg_program.global_block().all_parameters() if each.name.startswith("G")]
    with fluid.program_guard(dg_program, startup):
        fluid.optimizer.Adam(learning_rate=0.01).minimize(
            loss=dg_loss, startup_program=startup, parameter_list=mine
        )
    exe = fluid.Executor(fluid.CPUPlace())
    exe.run(startup)
    rng = np.random.RandomState(15)
    folder = tempfile.mkdtemp()
    for step in range(120):
        data = (rng.randn(BATCH, 2) * 0.2 + 2).astype("float32")
        z = rng.randn(BATCH, NOISE).astype("float32")
        (fake,) = exe.run(sampler, feed={"noise": z}, fetch_list=[made])
        both = np.concatenate([data, fake])
        labels = np.concatenate([np.ones((BATCH, 1)), np.zeros((BATCH, 1))]).astype("float32")
        before = np.array(fluid.global_scope().find_var("G_w1").get_tensor())
        (d,) = exe.run(d_program, feed={"img": both, "value": labels}, fetch_list=[d_loss])
        np.testing.assert_array_equal(before, np.array(fluid.global_scope().find_var("G_w1").get_tensor()))
        kept = np.array(fluid.global_scope().find_var("D_w1").get_tensor())
        (g,) = exe.run(dg_program, feed={"noise": z}, fetch_list=[dg_loss])
        np.testing.assert_array_equal(kept, np.array(fluid.global_scope().find_var("D_w1").get_tensor()))
        if step == 60:
            fluid.io.save_persistables(exe, folder + "/g", dg_program)
            fluid.io.save_persistables(exe, folder + "/d", d_program)
            exe.run(startup)
            fluid.io.load_persistables(exe, folder + "/g", dg_program)
            fluid.io.load_persistables(exe, folder + "/d", d_program)
            np.testing.assert_array_equal(kept, np.array(fluid.global_scope().find_var("D_w1").get_tensor()))
        distance = np.abs(fake.mean(axis=0) - 2.0).mean()
        print("loss: %f" % d, "distance %f" % distance, "g %f" % g, flush=True)


if __name__ == "__main__":
    main()
