# SPDX-License-Identifier: Apache-2.0
"""Which files describe the cluster: conf.py, cluster.toml, or both beside each other."""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path

from launcher.config.arguments import Arguments
from launcher.config.conf_file import CONF_NAME
from launcher.system.installation import CONF_FILE, IS_CHECKOUT

CONF_VARIABLE = "PADDLE_CLUSTER_CONF"
TOML_NAME = "cluster.toml"


def conf_files(arguments: Arguments, environ: Mapping[str, str]) -> tuple[Path, ...]:
    """The files that count; a later one goes before an earlier one.

    --conf or the variable names one, which counts alone. Without them they are those of the checkout. Where the
    launcher is installed they lie in the current directory, or else beside the package.
    """
    given = arguments.conf or environ.get(CONF_VARIABLE)
    if given:
        return (Path(given),)
    folders = [CONF_FILE.parent if IS_CHECKOUT else Path()]
    if not IS_CHECKOUT and arguments.package is not None:
        folders.append(Path(os.path.abspath(arguments.package)).parent)
    for folder in folders:
        found = tuple(path for name in (CONF_NAME, TOML_NAME) if (path := folder / name).is_file())
        if found:
            return found
    return (folders[0] / CONF_NAME,)
