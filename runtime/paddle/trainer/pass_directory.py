# SPDX-License-Identifier: Apache-2.0
"""Directories of parameters that `paddle train` saves after each pass: ``<save_dir>/pass-00003``.

A directory has a file for each parameter, with its name (16-byte header and float32 values); a copy of the
configuration, whose name is in ``path.txt``; and, written last, ``done``.
"""

from __future__ import annotations

import shutil
import time
from collections.abc import Callable
from pathlib import Path

from paddle.v2.errors import ModelFileError
from paddle.v2.parameters import Parameters
from paddle.version import __version__

DONE = "done"
SAVE_DIR = "./output/model"  # where --save_dir names none
_POLL_S = 0.5
_STRATEGIES = ("fail", "rand", "zero")


def pass_directory(save_dir: str, pass_id: int, part: int = 0) -> Path:
    """Return the directory of a pass, or of part 1, 2, ... of an unfinished one."""
    return Path(save_dir) / (f"pass-{pass_id:05d}-{part:03d}" if part else f"pass-{pass_id:05d}")


def save(parameters: Parameters, directory: Path, config: Path | None = None) -> None:
    """Write all parameters to a directory, one file per parameter, named after it.

    Args:
        config: the configuration file to copy.

    Raises:
        ModelFileError: a file cannot be written.
    """
    try:
        directory.mkdir(parents=True, exist_ok=True)
        (directory / DONE).unlink(missing_ok=True)
        for name in parameters.names():
            with (directory / name).open("wb") as file:
                parameters.serialize(name, file)
        if config is not None:
            shutil.copy(config, directory / config.name)
            (directory / "path.txt").write_text(config.name, encoding="utf-8")
        (directory / DONE).write_text(version_block(), encoding="utf-8")
    except OSError as error:
        raise ModelFileError(f"cannot save parameters to {directory}: {error.strerror}") from error


def load(parameters: Parameters, directory: Path, if_missing: str = "fail") -> None:
    """Read all parameters from a directory, one file per parameter, named after it.

    Args:
        if_missing: how to treat a parameter without a file: "fail" raises an error, "rand" uses its initial value,
            "zero" uses zeros.

    Raises:
        ModelFileError: the directory or a file is missing or does not match.
    """
    if if_missing not in _STRATEGIES:
        raise ModelFileError(
            f"--load_missing_parameter_strategy: expected {', '.join(_STRATEGIES)}, got {if_missing!r}"
        )
    if not directory.is_dir():
        raise ModelFileError(f"the directory of parameters {directory} does not exist")
    for name in parameters.names():
        path = directory / name
        if path.is_file():
            with path.open("rb") as file:
                parameters.deserialize(name, file)
                if file.read(1):
                    size = parameters.config(name).size
                    raise ModelFileError(
                        f"{path}: {name!r} has {size} values, but the file has more data after them"
                    )
        elif if_missing == "fail":
            raise ModelFileError(
                f"{directory} has no parameter {name!r}; to initialize missing parameters, give "
                "--load_missing_parameter_strategy=rand or zero"
            )
        elif if_missing == "zero":
            parameters.set(name, 0 * parameters.get(name))


def wait(directory: Path, say: Callable[[str], None]) -> None:
    """Wait until all parameters of a pass are saved, for example by a training job that runs at the same time."""
    if (directory / DONE).is_file():
        return
    say(f"waiting for the parameters in {directory}; to skip the wait, use --test_wait=0")
    while not (directory / DONE).is_file():
        time.sleep(_POLL_S)


def remove(directory: Path, say: Callable[[str], None]) -> None:
    """Delete the directory of an earlier pass, if it exists and is a directory of parameters."""
    if (directory / DONE).is_file():
        say(f"delete dir {directory}")
        shutil.rmtree(directory)


def version_block() -> str:
    """Return the version text that `--version` prints and the file `done` contains."""
    facts = {
        "withGpu": False,
        "withAvx": True,
        "withPyDataProvider": True,
        "withTimer": False,
        "withFpga": False,
    }
    lines = [f"\t{name}: {str(value).lower()}" for name, value in facts.items()]
    return "\n".join([f"paddle version: {__version__}", *lines, "real byte size: 4", ""])
