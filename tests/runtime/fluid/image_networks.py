# SPDX-License-Identifier: Apache-2.0
"""Six networks for images, each as its paper has it, of Fluid's layers."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from paddle.fluid import layers, nets
from paddle.fluid.program.variable import Variable

_Size = int | tuple[int, int]


@dataclass(frozen=True)
class Maker:
    """Makes layers that have, of the channels a paper gives them, one in `thin`; `classes` are what images show."""

    thin: int = 1
    classes: int = 1000

    def plain(
        self,
        x: Variable,
        channels: int,
        size: _Size,
        stride: int = 1,
        *,
        pad: bool = True,
        act: str | None = "relu",
    ) -> Variable:
        """A convolution with a bias."""
        return layers.conv2d(x, channels // self.thin, size, stride, _around(size, pad), act=act)

    def normed(
        self,
        x: Variable,
        channels: int,
        size: _Size,
        stride: int = 1,
        *,
        pad: bool = True,
        groups: int = 1,
        act: str | None = "relu",
    ) -> Variable:
        """A convolution, then its batch norm."""
        filters = channels // self.thin
        out = layers.conv2d(x, filters, size, stride, _around(size, pad), groups=groups, bias_attr=False)
        return layers.batch_norm(out, act=act)

    def fc(self, x: Variable, width: int) -> Variable:
        """A layer of neurons, each of which sees all of x."""
        return layers.fc(x, width // self.thin, act="relu")

    def scores(self, x: Variable) -> Variable:
        """What x may be, (N, classes), before softmax."""
        return layers.fc(x, self.classes)


def _around(size: _Size, pad: bool) -> _Size:
    if isinstance(size, int):
        return size // 2 if pad else 0
    return (size[0] // 2, size[1] // 2) if pad else 0


def _whole_mean(x: Variable) -> Variable:
    return layers.pool2d(x, pool_type="avg", global_pooling=True)


def googlenet(make: Maker, images: Variable) -> list[Variable]:
    """Szegedy et al., Going Deeper with Convolutions; its two helpers in training come last."""

    def inception(
        x: Variable, one: int, before3: int, three: int, before5: int, five: int, pooled: int
    ) -> Variable:
        branches = [
            make.plain(x, one, 1),
            make.plain(make.plain(x, before3, 1), three, 3),
            make.plain(make.plain(x, before5, 1), five, 5),
            make.plain(layers.pool2d(x, 3, "max", 1, 1), pooled, 1),
        ]
        return layers.concat(branches, axis=1)

    def helper(x: Variable) -> Variable:
        x = make.plain(layers.pool2d(x, 5, "avg", 3), 128, 1)
        return make.scores(layers.dropout(make.fc(x, 1024), 0.7))

    x = layers.pool2d(make.plain(images, 64, 7, 2), 3, "max", 2)
    x = layers.pool2d(make.plain(make.plain(x, 64, 1), 192, 3), 3, "max", 2)
    x = inception(inception(x, 64, 96, 128, 16, 32, 32), 128, 128, 192, 32, 96, 64)
    early = inception(layers.pool2d(x, 3, "max", 2), 192, 96, 208, 16, 48, 64)
    x = inception(early, 160, 112, 224, 24, 64, 64)
    late = inception(inception(x, 128, 128, 256, 24, 64, 64), 112, 144, 288, 32, 64, 64)
    x = layers.pool2d(inception(late, 256, 160, 320, 32, 128, 128), 3, "max", 2)
    x = inception(inception(x, 256, 160, 320, 32, 128, 128), 384, 192, 384, 48, 128, 128)
    x = layers.pool2d(x, 7, "avg", 7)  # over six rows of pixels, where images have 224
    return [make.scores(layers.dropout(x, 0.4)), helper(early), helper(late)]


def resnet50(make: Maker, images: Variable) -> list[Variable]:
    """He et al., Deep Residual Learning for Image Recognition."""
    x = layers.pool2d(make.normed(images, 64, 7, 2), 3, "max", 2, 1)
    for level, blocks in enumerate((3, 4, 6, 3)):
        for block in range(blocks):
            channels, stride = 64 * 2**level, 2 if level and not block else 1
            inner = make.normed(make.normed(x, channels, 1), channels, 3, stride)
            beside = x if block else make.normed(x, 4 * channels, 1, stride, act=None)
            x = layers.elementwise_add(beside, make.normed(inner, 4 * channels, 1, act=None), act="relu")
    return [make.scores(_whole_mean(x))]


def vgg16(make: Maker, images: Variable) -> list[Variable]:
    """Simonyan and Zisserman, Very Deep Convolutional Networks for Large-Scale Image Recognition."""
    x = images
    for channels, depth in ((64, 2), (128, 2), (256, 3), (512, 3), (512, 3)):
        filters = [channels // make.thin] * depth
        x = nets.img_conv_group(
            x, filters, 2, conv_filter_size=3, conv_act="relu", pool_stride=2, pool_type="max"
        )
    for _ in range(2):
        x = layers.dropout(make.fc(x, 4096), 0.5)
    return [make.scores(x)]


def mobilenet(make: Maker, images: Variable) -> list[Variable]:
    """Howard et al., MobileNets: a filter for each channel, then a mixture of channels."""
    x = make.normed(images, 32, 3, 2)
    steps = [(64, 1), (128, 2), (128, 1), (256, 2), (256, 1), (512, 2), *[(512, 1)] * 5, (1024, 2), (1024, 1)]
    for channels, stride in steps:
        alone = make.normed(x, x.shape[1] * make.thin, 3, stride, groups=x.shape[1])
        x = make.normed(alone, channels, 1)
    return [make.scores(_whole_mean(x))]


def dpn68(make: Maker, images: Variable) -> list[Variable]:
    """Chen et al., Dual Path Networks: a path that adds up, and one that grows."""

    def opened(x: Variable, channels: int, size: int, stride: int = 1, groups: int = 1) -> Variable:
        x, filters = layers.batch_norm(x, act="relu"), channels // make.thin
        return layers.conv2d(x, filters, size, stride, size // 2, groups=groups, bias_attr=False)

    def parted(x: Variable, width: int) -> list[Variable]:
        added = width // make.thin
        return layers.split(x, [added, x.shape[1] - added], dim=1)

    x = layers.pool2d(make.normed(images, 10, 3, 2), 3, "max", 2, 1)
    kept: list[Variable] = []
    for level, (blocks, more) in enumerate(((3, 16), (4, 32), (12, 32), (3, 64))):
        width = 64 * 2**level
        for block in range(blocks):
            stride = 2 if level and not block else 1
            if not block:
                kept = parted(opened(x, width + 2 * more, 1, stride), width)
            inner = opened(opened(x, 2 * width, 1), 2 * width, 3, stride, groups=32)
            added, grown = parted(opened(inner, width + more, 1), width)
            kept = [layers.elementwise_add(kept[0], added), layers.concat([kept[1], grown], axis=1)]
            x = layers.concat(kept, axis=1)
    return [make.scores(_whole_mean(layers.batch_norm(x, act="relu")))]


def inception_v4(make: Maker, images: Variable) -> list[Variable]:
    """Szegedy et al., Inception-v4, Inception-ResNet and the Impact of Residual Connections on Learning."""
    across, down = (1, 7), (7, 1)

    def chain(x: Variable, *steps: tuple[int, _Size]) -> Variable:
        for channels, size in steps:
            x = make.normed(x, channels, size)
        return x

    def halved(x: Variable, channels: int) -> Variable:
        return make.normed(x, channels, 3, 2, pad=False)

    def smaller(x: Variable) -> Variable:
        return layers.pool2d(x, 3, "max", 2)

    def smooth(x: Variable, channels: int) -> Variable:
        return make.normed(layers.pool2d(x, 3, "avg", 1, 1), channels, 1)

    def joined(*branches: Variable) -> Variable:
        return layers.concat(list(branches), axis=1)

    x = chain(make.normed(halved(images, 32), 32, 3, pad=False), (64, 3))
    x = joined(smaller(x), halved(x, 96))
    long = chain(x, (64, 1), (64, across), (64, down))
    x = joined(*(make.normed(each, 96, 3, pad=False) for each in (chain(x, (64, 1)), long)))
    x = joined(halved(x, 192), smaller(x))
    for _ in range(4):
        wide = chain(x, (64, 1), (96, 3))
        deep = chain(x, (64, 1), (96, 3), (96, 3))
        x = joined(smooth(x, 96), chain(x, (96, 1)), wide, deep)
    x = joined(smaller(x), halved(x, 384), halved(chain(x, (192, 1), (224, 3)), 256))
    for _ in range(7):
        wide = chain(x, (192, 1), (224, across), (256, down))
        deep = chain(x, (192, 1), (192, across), (224, down), (224, across), (256, down))
        x = joined(smooth(x, 128), chain(x, (384, 1)), wide, deep)
    deep = chain(x, (256, 1), (256, across), (320, down))
    x = joined(smaller(x), halved(chain(x, (192, 1)), 192), halved(deep, 320))
    for _ in range(3):
        wide, deep = chain(x, (384, 1)), chain(x, (384, 1), (448, (1, 3)), (512, (3, 1)))
        ends = [chain(each, (256, size)) for each in (wide, deep) for size in ((1, 3), (3, 1))]
        x = joined(smooth(x, 256), chain(x, (256, 1)), *ends)
    return [make.scores(layers.dropout(_whole_mean(x), 0.2))]


@dataclass(frozen=True)
class Network:
    """A network: its scores, the first for users; how large its images are, and how small they may be."""

    scores: Callable[[Maker, Variable], list[Variable]]
    side: int
    least: int
    weights: int  # of 1000 classes, as published


NETWORKS = {
    # 6,998,552, and 4,544,720 in what helps its training
    "GoogLeNet": Network(googlenet, 224, 64, 11_543_272),
    "ResNet-50": Network(resnet50, 224, 32, 25_557_032),
    "VGG-16": Network(vgg16, 224, 32, 138_357_544),
    "MobileNet v1": Network(mobilenet, 224, 32, 4_231_976),
    "DPN-68": Network(dpn68, 224, 32, 12_611_602),
    "Inception v4": Network(inception_v4, 299, 75, 42_679_816),
}
