# SPDX-License-Identifier: Apache-2.0
"""Makes this process the one that inherits the orphans below it.

The C module behind `ctypes` is called directly: the agent's first word waits for this, and `ctypes` itself would
take longer than all the rest of it.
"""

import _ctypes  # type: ignore[import-not-found,unused-ignore]

_PR_SET_CHILD_SUBREAPER = 36


def become_subreaper() -> None:
    """Orphans below this process become its children, not init's."""
    prctl = _ctypes.dlsym(_ctypes.dlopen(None, 0), "prctl")
    if _ctypes.call_function(prctl, (_PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0)) != 0:
        raise OSError("prctl(PR_SET_CHILD_SUBREAPER) failed")
