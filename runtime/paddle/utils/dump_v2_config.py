# SPDX-License-Identifier: Apache-2.0
"""`dump_v2_config`: writes the network of a v2 script to a file."""

from __future__ import annotations

from paddle.v2.errors import ModelFileError
from paddle.v2.topology import Layers, Topology

__all__ = ["dump_v2_config"]


def dump_v2_config(topology: Layers, save_path: str, binary: bool = False) -> None:
    """Write the network that some layers need, as text or, with `binary`, as the original's message.

    `Inference(fileobj=)` reads the message.

    Raises:
        ModelFileError: the file cannot be written.
    """
    message = Topology(topology).proto()
    try:
        with open(save_path, "wb") as file:
            file.write(message.with_network() if binary else f"{message}\n".encode())
    except OSError as error:
        raise ModelFileError(f"cannot write {save_path}: {error.strerror}") from error
