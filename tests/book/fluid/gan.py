# SPDX-License-Identifier: Apache-2.0

"""Chapter 9 of Fluid's book: one network draws a digit, another tells what was drawn; a program for each."""

import numpy
import roles

import paddle
import paddle.fluid as fluid

NOISE_SIZE = 16
BATCH_SIZE = 64
BATCHES = 45
DIGIT = 0


def attr(name):
    return fluid.ParamAttr(name=name, initializer=fluid.initializer.Normal(0.0, 0.05))


def fc(x, size, name):
    return fluid.layers.fc(input=x, size=size, param_attr=attr(name + "_w"), bias_attr=name + "_b")


def bn(x, name):
    names = {"moving_mean_name": name + "_mean", "moving_variance_name": name + "_variance"}
    return fluid.layers.batch_norm(x, act="relu", param_attr=name + "_scale", bias_attr=name + "_b", **names)


def deconv(x, num_filters, name, act=None):
    return fluid.layers.conv2d_transpose(
        x, num_filters, filter_size=4, stride=2, padding=1, param_attr=attr(name), bias_attr=False, act=act
    )


def generator(noise):
    x = bn(fc(noise, 7 * 7 * 16, "g_fc"), "g_bn1")
    x = bn(deconv(fluid.layers.reshape(x, [-1, 16, 7, 7]), 8, "g_deconv1"), "g_bn2")
    return fluid.layers.reshape(deconv(x, 1, "g_deconv2", act="tanh"), [-1, 784])


def discriminator(x):
    """With parameters of the same names whenever it is built: one network in two programs."""
    x = fluid.layers.reshape(x=x, shape=[-1, 1, 28, 28])
    for number, num_filters in enumerate((8, 16)):
        x = fluid.layers.conv2d(
            x, num_filters, 5, stride=2, padding=2, param_attr=attr(f"d_conv{number}"), bias_attr=False
        )
        x = fluid.layers.leaky_relu(x, alpha=0.2)
    return fc(fluid.layers.flatten(x, axis=1), 1, "d_fc")


def loss(x, label):
    return fluid.layers.mean(fluid.layers.sigmoid_cross_entropy_with_logits(x=x, label=label))


startup = fluid.default_startup_program()
startup.random_seed = 7
d_program = fluid.Program()
dg_program = fluid.Program()
with fluid.program_guard(d_program, startup):
    img = fluid.layers.data(name="img", shape=[784], dtype="float32")
    label = fluid.layers.data(name="label", shape=[1], dtype="float32")
    d_loss = loss(discriminator(img), label)
with fluid.program_guard(dg_program, startup):
    noise = fluid.layers.data(name="noise", shape=[NOISE_SIZE], dtype="float32")
    g_img = generator(noise)
    g_program = dg_program.clone()
    g_program_test = dg_program.clone(for_test=True)
    ones = fluid.layers.fill_constant_batch_size_like(input=noise, dtype="float32", shape=[-1, 1], value=1)
    dg_loss = loss(discriminator(g_img), ones)
opt = fluid.optimizer.Adam(learning_rate=2e-3, beta1=0.5)
opt.minimize(loss=d_loss, startup_program=startup)
opt.minimize(
    loss=dg_loss,
    startup_program=startup,
    parameter_list=[p.name for p in g_program.global_block().all_parameters()],
)

place = fluid.CPUPlace()
exe = fluid.Executor(place)
random = numpy.random.RandomState(roles.trainer_id)


def draw_noise(count):
    return random.uniform(-1, 1, (count, NOISE_SIZE)).astype("float32")


def digits(reader):
    """Pictures of one digit, in rows."""
    return numpy.array([pixels for pixels, number in reader() if number == DIGIT], "float32")


def train_loop(d_trained, dg_trained):
    pictures = digits(roles.mine(paddle.reader.firstn(paddle.dataset.mnist.train(), 10000)))
    zeros, ones = numpy.zeros((BATCH_SIZE, 1), "float32"), numpy.ones((BATCH_SIZE, 1), "float32")
    for batch_id in range(BATCHES):
        real = pictures[random.randint(0, len(pictures), BATCH_SIZE)]
        (generated,) = exe.run(g_program, feed={"noise": draw_noise(BATCH_SIZE)}, fetch_list=[g_img])
        d_loss_1 = exe.run(d_trained, feed={"img": generated, "label": zeros}, fetch_list=[d_loss])[0]
        d_loss_2 = exe.run(d_trained, feed={"img": real, "label": ones}, fetch_list=[d_loss])[0]
        for _ in range(2):
            dg_value = exe.run(dg_trained, feed={"noise": draw_noise(BATCH_SIZE)}, fetch_list=[dg_loss])[0]
        if batch_id % 20 == 0:
            print(f"Batch {batch_id}, D cost {(d_loss_1 + d_loss_2).item():.3f}, G cost {dg_value[0]:.3f}")
    if roles.trainer_id == 0:
        fluid.io.save_inference_model("output/model", ["noise"], [g_img], exe, main_program=g_program_test)
        infer()


def far(pictures, real):
    """How far the means and the deviations of these pictures' points lie from those of real ones."""
    means, deviations = pictures.mean(0) - real.mean(0), pictures.std(0) - real.std(0)
    return (means**2).mean() + (deviations**2).mean()


def infer():
    real = digits(paddle.reader.firstn(paddle.dataset.mnist.test(), 2000))
    with fluid.scope_guard(fluid.core.Scope()):
        [program, feed_names, fetch_targets] = fluid.io.load_inference_model("output/model", exe)
        (drawn,) = exe.run(program, feed={feed_names[0]: draw_noise(200)}, fetch_list=fetch_targets)
    print(f"REACHED cost {far(drawn, real):.4f} of {far(numpy.full_like(real, real.mean()), real):.4f}")


roles.run(exe, train_loop, d_program, dg_program)
