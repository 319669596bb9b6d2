# SPDX-License-Identifier: Apache-2.0
"""Speech: pictures as long as the batch's longest sample, masked, read as sequences of their true lengths."""

from __future__ import annotations

import random
from collections.abc import Iterator
from typing import Any

import numpy as np
import owner

import paddle.v2 as paddle

BANDS, LETTERS = 8, 3
SOUNDS = np.random.default_rng(2).normal(0, 1, (LETTERS, BANDS, 4)).astype(np.float32)


def convolved(input: Any, channels: int, filters: int, stride: tuple[int, int], ranges: Any) -> Any:
    layer, act = paddle.layer, paddle.activation
    out = layer.img_conv(
        input=input,
        num_channels=channels,
        num_filters=filters,
        filter_size=(3, 5),
        stride=stride,
        padding=(1, 2),
        act=act.Linear(),
        bias_attr=False,
    )
    normed = layer.batch_norm(input=out, act=act.BRelu())
    return layer.scale_sub_region(normed, ranges, value=0.0)


def recurrent(input: Any, size: int, name: str) -> Any:
    layer, act = paddle.layer, paddle.activation
    projected = layer.fc(input=input, size=size, act=act.Linear(), bias_attr=False)
    normed = layer.batch_norm(input=projected, act=act.Linear())
    both = [
        layer.recurrent(input=normed, act=act.BRelu(), reverse=reverse, name=f"{name}_{reverse}")
        for reverse in (False, True)
    ]
    return layer.concat(input=both)


def network(is_infer: bool) -> Any:
    layer, act, kind = paddle.layer, paddle.activation, paddle.data_type
    audio = layer.data("audio_spectrogram", kind.dense_array(BANDS * BANDS))
    text = layer.data("transcript_text", kind.integer_value_sequence(LETTERS))
    offset = layer.data("sequence_offset", kind.integer_value_sequence(1))
    length = layer.data("sequence_length", kind.integer_value_sequence(1))
    ranges = [layer.data(f"conv{number}_index_range", kind.dense_vector(6)) for number in range(2)]
    first = convolved(audio, 1, 6, (2, 1), ranges[0])
    second = convolved(first, 6, 6, (1, 2), ranges[1])
    columns = layer.block_expand(
        input=second, block_x=1, block_y=BANDS // 2, stride_x=1, stride_y=1, num_channels=6
    )
    rows = layer.sub_seq(input=columns, offsets=offset, sizes=length, act=act.Linear(), bias_attr=False)
    for number in range(2):
        rows = recurrent(rows, 16, f"rnn{number}")
    out = layer.fc(input=rows, size=LETTERS + 1, act=act.Linear(), bias_attr=True)
    if is_infer:
        return layer.mixed(input=layer.identity_projection(input=out), act=act.Softmax())
    return layer.warp_ctc(input=out, label=text, size=LETTERS + 1, blank=LETTERS, norm_by_times=True)


def batches(count: int) -> Iterator[list[Any]]:
    """Finished batches, each padded to its own longest sample."""
    rng, noise = random.Random(17), np.random.default_rng(18)
    for _ in range(count):
        texts = [[rng.randrange(LETTERS) for _ in range(rng.randint(1, 4))] for _ in range(8)]
        longest = max(map(len, texts)) * 8
        batch = []
        for text in texts:
            audio = noise.normal(0, 0.1, (BANDS, longest)).astype(np.float32)
            for place, letter in enumerate(text):
                audio[:, 8 * place + 2 : 8 * place + 6] += SOUNDS[letter]
            true, padded = 4 * len(text), longest // 2
            begin = min(true + 1, padded + 1)  # an empty part where nothing is padded
            ranges = [[1, 6, 1, rows, begin, padded] for rows in (BANDS, BANDS // 2)]
            batch.append((audio, text, [0], [true], *ranges))
        yield batch


FEEDING = {
    "audio_spectrogram": 0,
    "transcript_text": 1,
    "sequence_offset": 2,
    "sequence_length": 3,
    "conv0_index_range": 4,
    "conv1_index_range": 5,
}


def train(path: str) -> dict[str, Any]:
    optimizer = paddle.optimizer.Adam(learning_rate=5e-3, gradient_clipping_threshold=400)
    return owner.train(
        path, network(is_infer=False), optimizer, lambda: batches(20), passes=10, feeding=FEEDING
    )


def infer(path: str) -> dict[str, Any]:
    engine = paddle.inference.Inference(output_layer=network(is_infer=True), parameters=owner.load(path))
    right = total = 0
    for batch in batches(4):
        best = engine.infer(input=batch, feeding=FEEDING).argmax(axis=1)
        at = 0
        for _, text, _, (length,), *_ in batch:
            row = best[at : at + length]
            said = [
                int(one) for one, last in zip(row, [-1, *row[:-1]], strict=True) if one not in (last, LETTERS)
            ]
            right, total, at = right + (said == text), total + 1, at + length
    return {"accuracy": right / total}


if __name__ == "__main__":
    paddle.init(use_gpu=False, trainer_count=1, rnn_use_batch=True, log_clipping=True)
    owner.main(train, infer)
