# SPDX-License-Identifier: Apache-2.0
"""Which files describe the cluster: conf.py, cluster.toml, or both beside each other."""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path

from paddle_cluster.config.arguments import Arguments
from paddle_cluster.config.conf_file import CONF_NAME
from paddle_cluster.config.options import OWN_HOSTS
from paddle_cluster.system.installation import CONF_FILE, IS_CHECKOUT

CONF_VARIABLE = "PADDLE_CLUSTER_CONF"
TOML_NAME = "cluster.toml"


def conf_files(arguments: Arguments, environ: Mapping[str, str]) -> tuple[Path, ...]:
    """Return the configuration files; a later one has precedence over an earlier one.

    If --conf or the environment variable names a file, it is the only one. Otherwise they are the files of the
    checkout or, with an installed launcher, those next to the workspace, else those in the current directory.

    Returns:
        An empty result if there is no file and the options give the hosts.
    """
    given = arguments.conf or environ.get(CONF_VARIABLE)
    if given:
        return (Path(given),)
    folders = [CONF_FILE.parent if IS_CHECKOUT else Path()]
    if not IS_CHECKOUT and arguments.package is not None:
        folders.insert(0, Path(os.path.abspath(arguments.package)).parent)
    for folder in folders:
        found = tuple(path for name in (CONF_NAME, TOML_NAME) if (path := folder / name).is_file())
        if found:
            return found
    has_hosts = arguments.hosts or arguments.hostfile or arguments.engine in OWN_HOSTS
    return () if has_hosts else (folders[-1] / CONF_NAME,)
