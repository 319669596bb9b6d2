# SPDX-License-Identifier: Apache-2.0
"""The description of a node in its greeting.

It is part of the agent's greeting, so it imports only modules that load fast.
"""

import os
import sys
import time

from paddle_node.linux import proc


def describe_node() -> "dict[str, object]":
    """Return the fields of the agent's `hello` about this node: integers, floats, strings and None."""
    system = os.uname()
    return {
        "pid": os.getpid(),
        "python": "%d.%d.%d" % sys.version_info[:3],
        "hostname": system.nodename,
        "user": _user(),
        "platform": "%s %s %s" % (system.sysname, system.release, system.machine),
        "address": login_address(),
        "clock": time.time(),
        "agent_start_s": proc.age_s(),
    }


def login_address() -> "str | None":
    """Return the address of this node to which the SSH client connected, or None without an SSH login."""
    parts = os.environ.get("SSH_CONNECTION", "").split()
    return parts[2] if len(parts) == 4 else None


def _user() -> str:
    # not from the user database, which may be on the network: the login has already queried it
    return os.environ.get("LOGNAME") or os.environ.get("USER") or str(os.getuid())
