# SPDX-License-Identifier: Apache-2.0
"""Ties of this process to others: it inherits the orphans below it, or is told to end when its parent does.

The C module behind `ctypes` is called directly: the agent's first word waits for this, and `ctypes` itself would
take longer than all the rest of it.
"""

import _ctypes  # type: ignore[import-not-found,unused-ignore]

_PR_SET_PDEATHSIG = 1
_PR_SET_CHILD_SUBREAPER = 36


def become_subreaper() -> None:
    """Orphans below this process become its children, not init's."""
    _prctl(_PR_SET_CHILD_SUBREAPER, 1)


def end_with_parent(number: int) -> None:
    """Have the kernel send this process a signal when its parent ends."""
    _prctl(_PR_SET_PDEATHSIG, number)


def _prctl(option: int, value: int) -> None:
    prctl = _ctypes.dlsym(_ctypes.dlopen(None, 0), "prctl")  # type: ignore[arg-type]
    if _ctypes.call_function(prctl, (option, value, 0, 0, 0)) != 0:
        raise OSError("prctl(%d) failed" % option)
