# SPDX-License-Identifier: Apache-2.0
"""What tests of conf.py share."""

from __future__ import annotations

from collections.abc import Callable

from paddle_cluster.config.settings import Settings

Resolve = Callable[..., Settings]
HOSTS = 'HOSTS = ["root@a", "b:2222", "c"]\n'
