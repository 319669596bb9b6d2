# SPDX-License-Identifier: Apache-2.0
"""The ways to get agents started on nodes, by name; a module is imported only when a job uses it."""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType

ENGINES: Mapping[str, str] = MappingProxyType({"ssh": "launcher.engines.ssh"})
"""Engine name -> module."""
