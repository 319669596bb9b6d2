# SPDX-License-Identifier: Apache-2.0
"""Lets the agent request the stacks of all threads from any Python process of a job, by a reserved signal.

Its directory is first on PYTHONPATH, so that every interpreter of a job loads it, whatever the script imports. A
sitecustomize of the user or the distribution that it hides is loaded after it as usual. Errors in this module never
prevent the process from starting.
"""

import faulthandler
import importlib.util
import os
import sys
from importlib.machinery import PathFinder

SIGNAL_VARIABLE = "PADDLE_STACKS_SIGNAL"


def register() -> None:
    """Install a signal handler that writes the stacks of all threads to standard error."""
    try:
        faulthandler.register(int(os.environ[SIGNAL_VARIABLE]), file=2, all_threads=True, chain=False)
    except (KeyError, ValueError, OverflowError, OSError, RuntimeError, AttributeError):
        return  # not started by an agent, or no such signal here


def load_hidden() -> None:
    """Run the sitecustomize module that this one hides, if there is one."""
    here = os.path.dirname(os.path.abspath(__file__))
    path = [entry for entry in sys.path if os.path.abspath(entry) != here]
    spec = PathFinder.find_spec("sitecustomize", path)
    if spec is None or spec.loader is None:
        return
    module = importlib.util.module_from_spec(spec)
    sys.modules["sitecustomize"] = module
    spec.loader.exec_module(module)


register()
load_hidden()
