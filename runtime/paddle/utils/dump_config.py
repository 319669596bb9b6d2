# SPDX-License-Identifier: Apache-2.0
"""`paddle dump_config CONFIG [config_args] [--whole | --binary]`: prints the network that a configuration declares."""

from __future__ import annotations

import sys
from collections.abc import Mapping, Sequence
from typing import Any

from paddle.trainer.config_parser import TrainerConfig, parse_config
from paddle.v2.network import model_fields, text_lines

_USAGE = "usage: paddle dump_config CONFIG [config_args] [--whole | --binary]\n"


def main(arguments: Sequence[str] | None = None) -> int:
    """Print a configuration; return the exit code."""
    given = list(sys.argv[1:] if arguments is None else arguments)
    options = [each for each in given if each.startswith("--")]
    names = [each for each in given if not each.startswith("--")]
    if not 1 <= len(names) <= 2 or set(options) - {"--whole", "--binary"}:
        sys.stderr.write(_USAGE)
        return 1
    config = parse_config(names[0], names[1] if len(names) == 2 else "")
    if "--binary" in options:
        sys.stdout.buffer.write(config.SerializeToString())
    elif "--whole" in options:
        sys.stdout.write(whole(config) + "\n")
    else:
        sys.stdout.write(f"{model_text(config)}\n")
    return 0


def model_text(config: TrainerConfig) -> str:
    """Return the network as text, in the messages and with the names of the original."""
    fields = model_fields(config.network, config.configuration.input_order)
    return "\n".join(line for name, value in fields.items() for line in text_lines(name, value))


def whole(config: TrainerConfig) -> str:
    """Return the network, the settings and the data sources as text."""
    configuration = config.configuration
    network = "\n".join(f"  {line}" for line in model_text(config).splitlines())
    parts = [f"model_config {{\n{network}\n}}", _message("opt_config", _optimization(config))]
    sources = (("data_config", configuration.train), ("test_data_config", configuration.test))
    for name, source in sources:
        if source is not None:
            files = source.files if isinstance(source.files, str) else ",".join(source.files)
            fields = {
                "type": "py2",
                "files": files,
                "load_data_module": source.module,
                "load_data_object": source.provider,
                "load_data_args": str(dict(source.arguments)) if source.arguments else "",
            }
            parts.append(_message(name, fields))
    return "\n".join(parts)


def _optimization(config: TrainerConfig) -> dict[str, Any]:
    """Return the settings under the names of the original's message."""
    given = dict(config.opt_config)
    method, average = given.pop("learning_method", None), given.pop("model_average", None)
    is_async = given.pop("is_async", False)
    for name in ("regularization", "gradient_clipping_threshold"):
        given.pop(name, None)
    found = {"algorithm": "async_sgd" if is_async else "sgd", **given}
    for part in (method, average):
        if part is not None:
            found |= part.to_setting_kwargs()
    return found


def _message(name: str, fields: Mapping[str, Any]) -> str:
    lines = [
        f'  {key}: "{value}"' if isinstance(value, str) else f"  {key}: {_plain(value)}"
        for key, value in fields.items()
        if value not in (None, "")
    ]
    return "\n".join([f"{name} {{", *lines, "}"])


def _plain(value: object) -> str:
    return str(value).lower() if isinstance(value, bool) else str(value)


if __name__ == "__main__":
    sys.exit(main())
