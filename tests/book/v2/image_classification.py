# SPDX-License-Identifier: Apache-2.0
"""Chapter 3 of the v2 book: what small pictures show, by a narrow VGG or (--net=resnet) a shallow residual network."""

import gzip
import itertools
import os
import random
import sys

import numpy as np

import paddle.v2 as paddle

trainer_id = int(os.getenv("PADDLE_INIT_TRAINER_ID", "0"))
trainers = int(os.getenv("PADDLE_INIT_NUM_GRADIENT_SERVERS", "1"))


def mine(reader):
    return lambda: itertools.islice(reader(), trainer_id, None, trainers)


def vgg_bn_drop(input):
    def conv_block(ipt, num_filter, groups, dropouts, num_channels=None):
        return paddle.networks.img_conv_group(
            input=ipt,
            num_channels=num_channels,
            pool_size=2,
            pool_stride=2,
            conv_num_filter=[num_filter] * groups,
            conv_filter_size=3,
            conv_act=paddle.activation.Relu(),
            conv_with_batchnorm=True,
            conv_batchnorm_drop_rate=dropouts,
            pool_type=paddle.pooling.Max(),
        )

    conv1 = conv_block(input, 8, 1, [0], 3)
    conv2 = conv_block(conv1, 16, 2, [0.1, 0])
    conv3 = conv_block(conv2, 16, 1, [0])
    drop = paddle.layer.dropout(input=conv3, dropout_rate=0.1)
    fc1 = paddle.layer.fc(input=drop, size=32, act=paddle.activation.Linear())
    bn = paddle.layer.batch_norm(
        input=fc1, act=paddle.activation.Relu(), layer_attr=paddle.attr.Extra(drop_rate=0.1)
    )
    return paddle.layer.fc(input=bn, size=32, act=paddle.activation.Linear())


def conv_bn_layer(
    input, ch_out, filter_size, stride, padding, active_type=paddle.activation.Relu(), ch_in=None
):
    tmp = paddle.layer.img_conv(
        input=input,
        filter_size=filter_size,
        num_channels=ch_in,
        num_filters=ch_out,
        stride=stride,
        padding=padding,
        act=paddle.activation.Linear(),
        bias_attr=False,
    )
    return paddle.layer.batch_norm(input=tmp, act=active_type)


def shortcut(ipt, ch_in, ch_out, stride):
    if ch_in != ch_out:
        return conv_bn_layer(ipt, ch_out, 1, stride, 0, paddle.activation.Linear())
    return ipt


def basicblock(ipt, ch_in, ch_out, stride):
    tmp = conv_bn_layer(ipt, ch_out, 3, stride, 1)
    tmp = conv_bn_layer(tmp, ch_out, 3, 1, 1, paddle.activation.Linear())
    short = shortcut(ipt, ch_in, ch_out, stride)
    return paddle.layer.addto(input=[tmp, short], act=paddle.activation.Relu())


def layer_warp(block_func, ipt, ch_in, ch_out, count, stride):
    tmp = block_func(ipt, ch_in, ch_out, stride)
    for _ in range(1, count):
        tmp = block_func(tmp, ch_out, ch_out, 1)
    return tmp


def resnet_cifar10(ipt, depth=8):
    assert (depth - 2) % 6 == 0
    n = (depth - 2) // 6
    conv1 = conv_bn_layer(ipt, ch_in=3, ch_out=8, filter_size=3, stride=2, padding=1)
    res1 = layer_warp(basicblock, conv1, 8, 8, n, 1)
    res2 = layer_warp(basicblock, res1, 8, 16, n, 2)
    res3 = layer_warp(basicblock, res2, 16, 32, n, 2)
    return paddle.layer.img_pool(input=res3, pool_size=4, stride=1, pool_type=paddle.pooling.Avg())


def main():
    random.seed(trainer_id)  # the order of shuffle
    paddle.init(use_gpu=False, trainer_count=1)
    datadim, classdim = 3 * 32 * 32, 10

    image = paddle.layer.data(name="image", type=paddle.data_type.dense_vector(datadim))
    net = resnet_cifar10(image) if "--net=resnet" in sys.argv else vgg_bn_drop(image)
    out = paddle.layer.fc(input=net, size=classdim, act=paddle.activation.Softmax())
    lbl = paddle.layer.data(name="label", type=paddle.data_type.integer_value(classdim))
    cost = paddle.layer.classification_cost(input=out, label=lbl)

    parameters = paddle.parameters.create(cost)
    momentum_optimizer = paddle.optimizer.Momentum(
        momentum=0.9,
        regularization=paddle.optimizer.L2Regularization(rate=0.0002 * 64),
        learning_rate=0.1 / 64.0,
        learning_rate_decay_a=0.1,
        learning_rate_decay_b=50000 * 100,
        learning_rate_schedule="discexp",
    )
    trainer = paddle.trainer.SGD(
        cost=cost, parameters=parameters, update_equation=momentum_optimizer, is_local=trainers == 1
    )
    feeding = {"image": 0, "label": 1}
    os.makedirs("output", exist_ok=True)

    def event_handler(event):
        if isinstance(event, paddle.event.EndIteration):
            if event.batch_id % 10 == 0:
                print(
                    "\nPass %d, Batch %d, Cost %f, %s"
                    % (event.pass_id, event.batch_id, event.cost, event.metrics)
                )
            else:
                sys.stdout.write(".")
                sys.stdout.flush()
        if isinstance(event, paddle.event.EndPass):
            with gzip.open("output/params_pass_%d.tar.gz" % event.pass_id, "w") as f:
                trainer.save_parameter_to_tar(f)
            result = trainer.test(
                reader=paddle.batch(paddle.dataset.cifar.test10(), batch_size=64), feeding=feeding
            )
            print("\nTest with Pass %d, %s" % (event.pass_id, result.metrics))

    trainer.train(
        reader=paddle.batch(
            paddle.reader.shuffle(mine(paddle.dataset.cifar.train10()), buf_size=50000),
            batch_size=32 // trainers,
        ),
        num_passes=2,
        event_handler=event_handler,
        feeding=feeding,
    )

    with gzip.open("output/params_pass_1.tar.gz", "r") as f:
        loaded = paddle.parameters.Parameters.from_tar(f)
    samples = list(paddle.dataset.cifar.test10()())
    probs = paddle.infer(output_layer=out, parameters=loaded, input=[(pixels,) for pixels, _ in samples])
    lab = np.argsort(-probs)
    print("Label of the first picture is: %d" % lab[0][0])
    print("REACHED accuracy %.4f" % np.mean([row[0] == sample[1] for row, sample in zip(lab, samples)]))


if __name__ == "__main__":
    main()
