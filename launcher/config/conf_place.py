# SPDX-License-Identifier: Apache-2.0
"""Where the configuration of the cluster lies."""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path

from launcher.config.arguments import Arguments
from launcher.system.installation import CONF_FILE, IS_CHECKOUT

CONF_VARIABLE = "PADDLE_CLUSTER_CONF"
CONF_NAME = "conf.py"


def conf_path(arguments: Arguments, environ: Mapping[str, str]) -> Path:
    """Which conf.py counts.

    Without --conf and the variable it is that of the checkout. Where the launcher is installed it is the one in the
    current directory, or else the one beside the package.
    """
    given = arguments.conf or environ.get(CONF_VARIABLE)
    if given or IS_CHECKOUT:
        return Path(given or CONF_FILE)
    here = Path(CONF_NAME)
    if arguments.package is None or here.is_file():
        return here
    beside = Path(os.path.abspath(arguments.package)).parent / CONF_NAME
    return beside if beside.is_file() else here
