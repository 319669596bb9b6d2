# SPDX-License-Identifier: Apache-2.0
"""What a node says of itself when it is greeted."""

from __future__ import annotations

import os
import platform
import socket
import time
from typing import Any, Dict, Optional

from agent import family


def describe_node() -> Dict[str, Any]:
    """The fields of the agent's `hello`."""
    return {
        "pid": os.getpid(),
        "python": platform.python_version(),
        "hostname": socket.gethostname(),
        "user": _user(),
        "platform": platform.platform(),
        "address": login_address(),
        "clock": time.time(),
        "agent_start_s": _age_s(),
    }


def login_address() -> Optional[str]:
    """The address of this node that the login came to, or None without a login."""
    parts = os.environ.get("SSH_CONNECTION", "").split()
    return parts[2] if len(parts) == 4 else None


def _user() -> str:
    # not from the user database, which may be on the network: the login has asked it already
    return os.environ.get("LOGNAME") or os.environ.get("USER") or str(os.getuid())


def _age_s() -> float:
    """Seconds since the interpreter was started, as far as the kernel's clock ticks tell."""
    guard = family.look(os.getppid())
    if guard is None:
        return 0.0
    return round(time.clock_gettime(time.CLOCK_BOOTTIME) - guard.start / os.sysconf("SC_CLK_TCK"), 3)
