# SPDX-License-Identifier: Apache-2.0
"""Ties of this process to others: it inherits the orphans below it, or gets a signal when its parent ends.

The C module behind `ctypes` is called directly: an agent's start waits for this, and `ctypes` itself would take longer
than all the rest of it. Elsewhere than on Linux nothing is tied, and a grandchild may outlive a launch that was killed.
"""

import sys

if sys.platform == "linux":
    import _ctypes  # type: ignore[import-not-found,unused-ignore]

    # looked up once: between fork and exec only system calls are safe
    _address = _ctypes.dlsym(_ctypes.dlopen(None, 0), "prctl")  # type: ignore[arg-type]

_PR_SET_PDEATHSIG = 1
_PR_SET_CHILD_SUBREAPER = 36


def become_subreaper() -> None:
    """Orphans below this process become its children, not init's."""
    _prctl(_PR_SET_CHILD_SUBREAPER, 1)


def end_with_parent(number: int) -> None:
    """Have the kernel send this process a signal when its parent ends."""
    _prctl(_PR_SET_PDEATHSIG, number)


def _prctl(option: int, value: int) -> None:
    if sys.platform != "linux":
        return
    if _ctypes.call_function(_address, (option, value, 0, 0, 0)) != 0:
        raise OSError("prctl(%d) failed" % option)
