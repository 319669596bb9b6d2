# SPDX-License-Identifier: Apache-2.0
"""Names that scripts import from `fluid.incubate`: generators of MultiSlot text; above `program`."""

from paddle.fluid.errors import answering
from paddle.fluid.incubate import data_generator as data_generator

__getattr__ = answering(__name__)
