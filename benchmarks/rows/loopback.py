# SPDX-License-Identifier: Apache-2.0
"""A separate loopback with one congestion control for all sides; the machine's setting is not changed."""

from __future__ import annotations

import contextlib
import ctypes
import os
import subprocess
from collections.abc import Iterator
from pathlib import Path

_CLONE_NEWNET = 0x40000000
_SETTING = Path("/proc/sys/net/ipv4/tcp_congestion_control")


def congestion() -> str:
    """Return the congestion control of this machine."""
    return _SETTING.read_text().strip() if _SETTING.exists() else "unknown"


@contextlib.contextmanager
def own_loopback(control: str, mbit: int | None = None) -> Iterator[None]:
    """Give this thread, and the processes it starts meanwhile, their own network; without root, nothing changes.

    Args:
        control: congestion control of all connections in it.
        mbit: rate of the loopback, both directions together; None: unlimited.

    Raises:
        OSError: the network cannot be created.
    """
    if os.geteuid() != 0:
        yield
        return
    libc = ctypes.CDLL(None, use_errno=True)
    before = os.open("/proc/thread-self/ns/net", os.O_RDONLY)
    try:
        _check(libc.unshare(_CLONE_NEWNET))
        try:
            subprocess.run(["ip", "link", "set", "lo", "up"], check=True, timeout=10)
            _SETTING.write_text(control)
            if mbit is not None:
                limit = f"qdisc add dev lo root tbf rate {mbit}mbit burst 256kb limit 2mb"
                subprocess.run(["tc", *limit.split()], check=True, timeout=10)
            yield
        finally:
            _check(libc.setns(before, _CLONE_NEWNET))
    finally:
        os.close(before)


def _check(code: int) -> None:
    if code != 0:
        number = ctypes.get_errno()
        raise OSError(number, f"a network namespace: {os.strerror(number)}")
