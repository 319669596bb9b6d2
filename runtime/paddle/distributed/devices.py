# SPDX-License-Identifier: Apache-2.0
"""Which devices the processes of a node get, one each: GPUs, or numbers alone where there are none."""

from __future__ import annotations

import os
import re
from collections.abc import Mapping

from paddle.errors import ConfigError

_NODE = re.compile(r"nvidia\d+")


def choose(selected: str | None, count: int | None, environ: Mapping[str, str]) -> tuple[str, ...]:
    """The numbers of the devices, as FLAGS_selected_gpus has them.

    Args:
        selected: value of --selected_gpus, or None.
        count: value of --gpus, or None: all GPUs that CUDA_VISIBLE_DEVICES shows; CPU_NUM, or 1, without any.

    Raises:
        ConfigError: they are no numbers, or say different things.
    """
    if selected is not None:
        numbers = tuple(word.strip() for word in selected.split(","))
        if not all(number.isdecimal() for number in numbers) or len(set(numbers)) < len(numbers):
            raise ConfigError(f"--selected_gpus: expected different numbers such as 0,1, got {selected!r}")
        if count is not None and count != len(numbers):
            raise ConfigError(f"--gpus={count} and --selected_gpus={selected} differ; give one of them")
        return numbers
    if count is None:
        count = visible_gpus(environ) or _number_of_cpus(environ)
    if count < 1:
        raise ConfigError(f"--gpus: expected at least 1, got {count}")
    return tuple(str(index) for index in range(count))


def visible_gpus(environ: Mapping[str, str], folder: str = "/dev") -> int:
    """How many GPUs this machine has and CUDA_VISIBLE_DEVICES shows."""
    here = sum(_NODE.fullmatch(name) is not None for name in os.listdir(folder))
    shown = environ.get("CUDA_VISIBLE_DEVICES")
    if shown is None or not here:
        return here
    count = 0
    for word in shown.split(","):
        if not word.strip() or word.strip() == "-1":  # CUDA reads no further
            break
        count += 1
    return count


def _number_of_cpus(environ: Mapping[str, str]) -> int:
    text = environ.get("CPU_NUM", "1")
    if not text.isdecimal() or int(text) < 1:
        raise ConfigError(f"environment variable CPU_NUM: expected a positive number, got {text!r}")
    return int(text)
