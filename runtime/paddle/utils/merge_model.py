# SPDX-License-Identifier: Apache-2.0
"""`paddle merge_model` and `merge_v2_model`: write a network and its parameters to one file, for inference.

As in the original, the file is an int64 (little-endian) with the length of the network's message, the message
(`TrainerConfig`, or `ModelConfig` of a v2 network), and each parameter in the order of the network, with its 16-byte
header. The message has an additional field with the network as JSON, which other readers of the message skip.
"""

from __future__ import annotations

import argparse
import gzip
import struct
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from paddle.trainer import pass_directory
from paddle.trainer.config_parser import parse_config
from paddle.utils.model_config import network_in
from paddle.v2.errors import ModelFileError
from paddle.v2.layer.output import LayerOutput
from paddle.v2.network import MAX_BYTES, Network
from paddle.v2.parameters import Parameters
from paddle.v2.topology import Topology

_LENGTH = struct.Struct("<q")
_GZIP = b"\x1f\x8b"


def main(arguments: Sequence[str] | None = None) -> int:
    """Merge the network of a configuration and a directory of parameters; return the exit code."""
    parser = argparse.ArgumentParser("paddle merge_model", allow_abbrev=False)
    parser.add_argument("--model_dir", default="", help="directory of parameters, such as output/pass-00009")
    parser.add_argument("--config_file", default="", help="the configuration file")
    parser.add_argument("--config_args", default="", help="its arguments, in the form name=value,name=value")
    parser.add_argument("--model_file", default="", help="the file to write")
    given = parser.parse_args(arguments)
    if not (given.model_dir and given.config_file and given.model_file):
        parser.print_usage(sys.stderr)
        return 0
    config = parse_config(given.config_file, given.config_args)
    description = config.with_network()
    parameters = parameters_of(config.network)
    pass_directory.load(parameters, Path(given.model_dir))
    write(description, list(config.network.parameters), parameters, given.model_file)
    return 0


def merge_v2_model(net: LayerOutput | Sequence[LayerOutput], param_file: str, output_file: str) -> None:
    """Write a v2 network and the parameters in a tar to one file.

    Args:
        net: the output layers of inference.
        param_file: a tar of parameters, optionally compressed by gzip.
        output_file: the file to write.

    Raises:
        ModelFileError: a file cannot be read or written, or the tar lacks a parameter.
    """
    try:
        with open(param_file, "rb") as raw:
            is_packed = raw.read(len(_GZIP)) == _GZIP
            raw.seek(0)
            file: Any = gzip.GzipFile(fileobj=raw) if is_packed else raw
            parameters = Parameters.from_tar(file)
    except OSError as error:
        raise ModelFileError(f"cannot read {param_file}: {error.strerror or error}") from error
    message = Topology(net).proto()
    write(message.with_network(), [each.name for each in message.parameters], parameters, output_file)


def write(description: bytes, names: Sequence[str], parameters: Parameters, path: str) -> None:
    """Write the message of a network and its parameters, in the order of `names`, into one file.

    Raises:
        ModelFileError: a parameter is missing, or the file cannot be written.
    """
    missing = [name for name in names if name not in parameters]
    if missing:
        raise ModelFileError(
            f"parameter {missing[0]!r} of the network is missing: load or create it before merging"
        )
    try:
        with open(path, "wb") as file:
            file.write(_LENGTH.pack(len(description)) + description)
            for name in names:
                parameters.serialize(name, file)
    except OSError as error:
        raise ModelFileError(f"cannot write {path}: {error.strerror}") from error


def read(path: str) -> tuple[Network, Parameters]:
    """Read a merged model, written by `merge_v2_model`, by `paddle merge_model`, or by the original.

    Raises:
        ModelFileError: the file is not a merged model, or is damaged.
    """
    try:
        with open(path, "rb") as file:
            head = file.read(_LENGTH.size)
            length = _LENGTH.unpack(head)[0] if len(head) == _LENGTH.size else -1
            if not 0 < length <= MAX_BYTES:
                raise ModelFileError(f"{path} is not a merged model: it does not begin with a length")
            network = network_in(file.read(length))
            parameters = parameters_of(network)
            for name in network.parameters:
                parameters.deserialize(name, file)
            if file.read(1):
                raise ModelFileError(f"{path} has more data after its {len(parameters)} parameters")
    except OSError as error:
        raise ModelFileError(f"cannot read {path}: {error.strerror}") from error
    except MemoryError as error:
        raise ModelFileError(
            f"{path} is damaged, or declares parameters that exceed the available memory"
        ) from error
    return network, parameters


def parameters_of(network: Network) -> Parameters:
    """Return the parameters of a network, set to their initial values."""
    found = Parameters()
    for config in network.parameters.values():
        found.add(config)
    return found


if __name__ == "__main__":
    sys.exit(main())
