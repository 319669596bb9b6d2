# SPDX-License-Identifier: Apache-2.0
"""What other programs are told while a job runs: names of conf.py, and what they become."""

from __future__ import annotations

import ipaddress
from collections.abc import Callable, Mapping
from dataclasses import dataclass, fields
from types import MappingProxyType
from typing import Any

from paddle_cluster.config import values


@dataclass(frozen=True, kw_only=True)
class MonitoringSettings:
    """Each is a name of conf.py in lower case.

    Attributes:
        metrics_port: where Prometheus finds the job, at metrics_address of this machine; 0: nowhere.
        tensorboard: whether curves go into event files below log/.
    """

    metrics_port: int
    metrics_address: str
    tensorboard: bool


def settings_of(read: Mapping[str, Any]) -> MonitoringSettings:
    """The settings from the values of conf.py's names."""
    return MonitoringSettings(
        **{field.name: read[field.name.upper()] for field in fields(MonitoringSettings)}
    )


def _address(value: object) -> str:
    try:
        return str(ipaddress.ip_address(str(value)))
    except ValueError:
        raise values.mismatch("an IP address of this machine, such as '127.0.0.1'", value) from None


NAMES: Mapping[str, tuple[object, Callable[[object], Any]]] = MappingProxyType(
    {
        "METRICS_PORT": (0, values.integer(0, 65535)),
        "METRICS_ADDRESS": ("127.0.0.1", _address),
        "TENSORBOARD": (False, values.boolean),
    }
)
"""Name of conf.py -> its default, and what reads its value."""
