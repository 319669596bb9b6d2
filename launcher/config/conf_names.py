# SPDX-License-Identifier: Apache-2.0
"""Every name conf.py may assign: its default, what it must be, and who may override it."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from types import MappingProxyType
from typing import Any, NamedTuple

from launcher.config import values

REQUIRED = object()
_DAY_S = 86400.0
_seconds = values.seconds(0.1, _DAY_S)


class ConfName(NamedTuple):
    """One name.

    Attributes:
        default: its value when conf.py does not assign it; REQUIRED: it must.
        read: turns a value into its typed form or raises ValueMismatchError.
        flag: the passed-through flag that overrides it, or empty.
        from_environment: whether a variable of the same name overrides it.
    """

    default: object
    read: Callable[[object], Any]
    flag: str = ""
    from_environment: bool = False


CONF_NAMES: Mapping[str, ConfName] = MappingProxyType(
    {
        "HOSTS": ConfName(REQUIRED, values.list_of(values.host, "hosts, such as ['root@10.1.9.7']")),
        "PSERVERS": ConfName(
            None, values.list_of(values.node_reference, "entries of HOSTS or their indices")
        ),
        "TRAINERS": ConfName(
            None, values.list_of(values.node_reference, "entries of HOSTS or their indices")
        ),
        "ROOT_DIR": ConfName("~/.paddle-cluster", values.root_dir),
        "PADDLE_NIC": ConfName("", values.nics, "nics", from_environment=True),
        "PADDLE_PORT": ConfName(7164, values.integer(1, 65535), "port", from_environment=True),
        "PADDLE_PORTS_NUM": ConfName(1, values.integer(1, 1024), "ports_num", from_environment=True),
        "PADDLE_PORTS_NUM_FOR_SPARSE": ConfName(
            1, values.integer(0, 1024), "ports_num_for_sparse", from_environment=True
        ),
        "PADDLE_USE_GPU": ConfName("False", values.boolean, "use_gpu", from_environment=True),
        "LD_LIBRARY_PATH": ConfName("", values.text),
        "PYTHON": ConfName("", values.python),
        "WIRE": ConfName("curve", values.wire),
        "SSH_CONFIG": ConfName("~/.ssh/config", values.local_path),
        "SSH_KNOWN_HOSTS": ConfName("~/.ssh/known_hosts", values.local_path),
        "SSH_IDENTITY_FILES": ConfName([], values.list_of(values.local_file, "private key files")),
        "SSH_JUMP": ConfName("", values.jump),
        "CONNECT_TIMEOUT_S": ConfName(10, _seconds),
        "PREFLIGHT_TIMEOUT_S": ConfName(20, _seconds),
        "READY_TIMEOUT_S": ConfName(30, _seconds),
        "STOP_GRACE_S": ConfName(5, values.seconds(0, _DAY_S)),
        "COLLECT_TIMEOUT_S": ConfName(30, _seconds),
        "LEASE_S": ConfName(30, values.seconds(1, _DAY_S)),
        "HEARTBEAT_TIMEOUT_S": ConfName(10, values.seconds(1, _DAY_S)),
        "STEP_TIMEOUT_S": ConfName(600, values.seconds(0, _DAY_S)),
        "RESTART_BACKOFF_S": ConfName(1, values.seconds(0, _DAY_S)),
        "LOG_LIMIT_MB": ConfName(256, values.integer(1, 1 << 20)),
    }
)
