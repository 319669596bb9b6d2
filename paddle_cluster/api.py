# SPDX-License-Identifier: Apache-2.0
"""Jobs from Python: what `launcher.api` has, wherever the launcher lies."""

from paddle_cluster import find_launcher

find_launcher()

from launcher.api import *  # noqa: E402, F403 - its names are the point
