# SPDX-License-Identifier: Apache-2.0
"""Has JAX's Gloo, which sums between CPUs, use the interface that GLOO_SOCKET_IFNAME names, as PyTorch's does.

JAX itself gives it none, and Gloo then takes what the host's name resolves to: 127.0.1.1 on a Debian as it is
installed. JAX loads the modules of this namespace package before it makes its first backend, and goes on without one
that fails.
"""

from __future__ import annotations

import functools
import importlib
import os
from typing import Any

INTERFACE_VARIABLE = "GLOO_SOCKET_IFNAME"


def initialize() -> None:
    """Name the interface wherever Gloo's collectives are made; a jaxlib that has no such function is left alone."""
    interface = os.environ.get(INTERFACE_VARIABLE)
    jaxlib: Any = getattr(importlib.import_module("jax._src.xla_bridge"), "_jax", None)
    plain = getattr(jaxlib, "make_gloo_tcp_collectives", None)
    if interface and plain is not None:
        jaxlib.make_gloo_tcp_collectives = functools.partial(plain, interface=interface)
