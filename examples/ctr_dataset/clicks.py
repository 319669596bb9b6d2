# SPDX-License-Identifier: Apache-2.0
"""Pipe command: rows of the Criteo click logs on standard input, MultiSlot text on standard output.

A row has a label, 13 numbers and 26 categories, separated by tabs; a field may be empty.
"""

import math
import sys
import zlib

import paddle.fluid.incubate.data_generator as dg

NUMBERS, CATEGORIES = 13, 26


class Clicks(dg.MultiSlotDataGenerator):
    """Generates MultiSlot text with the slots dense_input, C1 to C26 and label."""

    def __init__(self, buckets):
        super().__init__()
        self.buckets = buckets

    def generate_sample(self, line):
        """Return a function that yields the sample of a row."""

        def sample():
            fields = line.rstrip("\n").split("\t")
            if len(fields) != 1 + NUMBERS + CATEGORIES:
                raise ValueError(f"expected 40 fields, got {len(fields)}: {line!r}")
            numbers = [math.log1p(max(float(text or 0), 0)) for text in fields[1 : 1 + NUMBERS]]
            yield [
                ("dense_input", numbers),
                *((f"C{at}", [self.bucket(at, text)]) for at, text in enumerate(fields[1 + NUMBERS :], 1)),
                ("label", [int(fields[0])]),
            ]

        return sample

    def bucket(self, field, text):
        """Return the ID of a category; Python's own hash differs between processes."""
        return zlib.crc32(f"{field}:{text}".encode()) % self.buckets


if __name__ == "__main__":
    Clicks(int(sys.argv[1])).run_from_stdin()
