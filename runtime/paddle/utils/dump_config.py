# SPDX-License-Identifier: Apache-2.0
"""`paddle dump_config CONFIG [config_args] [--whole | --binary]`: prints the network that a configuration declares."""

from __future__ import annotations

import sys
from collections.abc import Sequence

from paddle.trainer.config_parser import parse_config

_USAGE = "usage: paddle dump_config CONFIG [config_args] [--whole | --binary]\n"


def main(arguments: Sequence[str] | None = None) -> int:
    """Print the network of a configuration; return the exit code."""
    given = list(sys.argv[1:] if arguments is None else arguments)
    options = [each for each in given if each.startswith("--")]
    names = [each for each in given if not each.startswith("--")]
    if not 1 <= len(names) <= 2 or set(options) - {"--whole", "--binary"}:
        sys.stderr.write(_USAGE)
        return 1
    config = parse_config(names[0], names[1] if len(names) == 2 else "")
    config.configuration.check()
    if "--binary" in options:
        sys.stdout.buffer.write(config.SerializeToString())
    else:
        sys.stdout.write(str(config if "--whole" in options else config.model_config))
    return 0


if __name__ == "__main__":
    sys.exit(main())
