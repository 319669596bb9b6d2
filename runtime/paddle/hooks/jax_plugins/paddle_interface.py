# SPDX-License-Identifier: Apache-2.0
"""Makes JAX's Gloo (collectives on CPUs) use the network interface in GLOO_SOCKET_IFNAME, as PyTorch's Gloo does.

JAX sets no interface, so Gloo uses the address of the host name, which is 127.0.1.1 on a default Debian installation.
JAX loads the modules of this namespace package before it creates its first backend, and continues without a module
that fails.
"""

from __future__ import annotations

import functools
import importlib
import os
from typing import Any

INTERFACE_VARIABLE = "GLOO_SOCKET_IFNAME"


def initialize() -> None:
    """Patch jaxlib to create Gloo's collectives on this interface, if jaxlib has the function to patch."""
    interface = os.environ.get(INTERFACE_VARIABLE)
    jaxlib: Any = getattr(importlib.import_module("jax._src.xla_bridge"), "_jax", None)
    plain = getattr(jaxlib, "make_gloo_tcp_collectives", None)
    if interface and plain is not None:
        jaxlib.make_gloo_tcp_collectives = functools.partial(plain, interface=interface)
