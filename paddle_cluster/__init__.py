# SPDX-License-Identifier: Apache-2.0
"""The launcher, which `paddle.py` and `paddle-cluster` start. Runs on the submitting machine, never on nodes.

Nodes get the packages `paddle` and `paddle_node`. In a checkout, both are in runtime/, which this package adds to
sys.path.
"""

import gc
import os
import sys
from typing import Any, NoReturn

# without pathlib, whose imports would delay the handling of Ctrl+C in main
_RUNTIME = os.path.join(os.path.dirname(os.path.dirname(os.path.realpath(__file__))), "runtime")
if os.path.isdir(_RUNTIME) and _RUNTIME not in sys.path:
    sys.path.insert(0, _RUNTIME)  # takes precedence over an installed version of another checkout


_API = ("connect", "run")  # functions of paddle_cluster.api


def __getattr__(name: str) -> Any:
    if name in _API:  # the API imports most of the launcher
        from paddle_cluster import api

        return getattr(api, name)
    raise AttributeError(
        f"module {__name__!r} has no attribute {name!r}; its functions are {', '.join(_API)}"
    )


def main() -> int:
    """Run the command line of this process (sys.argv) and return its exit code."""
    is_loaded = False
    gc.set_threshold(50_000)  # imports create no garbage: searching for it took a fifth of their time
    try:
        from paddle_cluster.cli.main import main as launch
        from paddle_cluster.system.signals import ignore

        is_loaded = True
        code = launch()
        ignore()
        return code
    except KeyboardInterrupt:
        if not is_loaded:
            sys.stderr.write("stopped; nothing had been started\n")
        return 130
    finally:
        gc.freeze()  # otherwise the interpreter would needlessly scan all objects again at its exit


def leave(code: int) -> NoReturn:
    """Exit like `sys.exit`, but without deleting all modules and objects one by one, which takes 7 ms of a command.

    With threads that must end first, and if output cannot be written, this is `sys.exit`.
    """
    import atexit
    import threading

    if all(one.daemon or one is threading.main_thread() for one in threading.enumerate()):
        atexit._run_exitfuncs()
        try:
            for stream in (sys.stdout, sys.stderr):
                if stream is not None:
                    stream.flush()
            os._exit(code)
        except (OSError, ValueError):  # the usual exit reports it
            pass
    sys.exit(code)
