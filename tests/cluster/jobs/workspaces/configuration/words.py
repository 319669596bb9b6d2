# SPDX-License-Identifier: Apache-2.0
"""Sequences of words, of label 1 if one of them is 19."""

import random

from paddle.trainer.PyDataProvider2 import integer_value, integer_value_sequence, provider


@provider({"word": integer_value_sequence(20), "label": integer_value(2)})
def process(settings, part):  # type: ignore[no-untyped-def]
    """Yield the samples of a part."""
    draw = random.Random(part)
    for number in range(64):
        words = draw.choices(range(18), k=draw.randint(2, 5))
        words.insert(draw.randrange(len(words)), 18 + number % 2)
        yield {"word": words, "label": number % 2}
