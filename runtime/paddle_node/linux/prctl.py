# SPDX-License-Identifier: Apache-2.0
"""Sets process relations with prctl: adopts orphans, and signals this process when its parent ends.

The C module behind `ctypes` is called directly: an agent's start waits for these calls, and importing `ctypes` would
take longer than all other steps. On systems other than Linux, the calls have no effect, and a grandchild may outlive a
killed launch.
"""

import sys

if sys.platform == "linux":
    import _ctypes  # type: ignore[import-not-found,unused-ignore]

    # resolved in advance: between fork and exec only system calls are safe
    _address = _ctypes.dlsym(_ctypes.dlopen(None, 0), "prctl")  # type: ignore[arg-type]

_PR_SET_PDEATHSIG = 1
_PR_SET_CHILD_SUBREAPER = 36


def become_subreaper() -> None:
    """Make this process, instead of init, the parent of orphans below it (PR_SET_CHILD_SUBREAPER)."""
    _prctl(_PR_SET_CHILD_SUBREAPER, 1)


def end_with_parent(number: int) -> None:
    """Have the kernel send this process the signal `number` when its parent ends (PR_SET_PDEATHSIG)."""
    _prctl(_PR_SET_PDEATHSIG, number)


def _prctl(option: int, value: int) -> None:
    if sys.platform != "linux":
        return
    if _ctypes.call_function(_address, (option, value, 0, 0, 0)) != 0:
        raise OSError("prctl(%d) failed" % option)
