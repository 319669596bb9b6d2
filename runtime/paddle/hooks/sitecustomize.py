# SPDX-License-Identifier: Apache-2.0
"""Lets the agent request the stacks of all threads from any Python process of a job, by a reserved signal.

It also names the threads that keep a process alive after its main thread has ended, such as a data loader's.

Its directory is first on PYTHONPATH, so that every interpreter of a job loads it, whatever the script imports. A
sitecustomize of the user or the distribution that it hides is loaded after it as usual. Errors in this module never
prevent the process from starting.
"""

import faulthandler
import importlib.util
import os
import sys
import threading
from importlib.machinery import PathFinder

TYPE_CHECKING = False  # importing typing would delay each start of Python
if TYPE_CHECKING:
    from types import FrameType
    from typing import NoReturn

SIGNAL_VARIABLE = "PADDLE_STACKS_SIGNAL"
THREADS_S = 10.0  # threads that end within this time after the main thread are not reported


def register() -> None:
    """Install a signal handler that writes the stacks of all threads to standard error."""
    try:
        faulthandler.register(int(os.environ[SIGNAL_VARIABLE]), file=2, all_threads=True, chain=False)
    except (KeyError, ValueError, OverflowError, OSError, RuntimeError, AttributeError):
        return  # not started by an agent, or no such signal here


def keep_exit_codes() -> None:
    """Wrap `sys.exit`: of a code such as 256, the system passes on only the lower 8 bits, which report success."""
    leave = sys.exit

    def exit_with(*code: object) -> "NoReturn":
        if len(code) == 1 and type(code[0]) is int and code[0] and not code[0] & 0xFF:
            sys.stderr.write(
                f"note: {sys.argv[0]}: exit code {code[0]} would be 0, so 1 is used: use 1 to 255\n"
            )
            code = (1,)
        leave(*code)  # type: ignore[arg-type]

    exit_with.__module__, exit_with.__qualname__ = "sys", "exit"  # pickled under this name
    sys.exit = exit_with


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


def watch_end() -> None:
    """Wrap the function that waits for threads when the main thread has ended: `atexit` runs only after it."""
    wait = getattr(threading, "_shutdown", None)
    if wait is None:
        return

    def report_and_wait() -> None:
        try:
            if _others():
                threading.Thread(target=report_threads, name="paddle-threads", daemon=True).start()
        except RuntimeError:  # the limit of threads is reached
            pass
        wait()

    threading._shutdown = report_and_wait  # type: ignore[attr-defined]


def report_threads() -> None:
    """Name the threads that are still running after a delay, with the line of the script at which each one is."""
    threading.Event().wait(THREADS_S)
    frames = sys._current_frames()
    running = ", ".join(thread.name + _line(frames.get(thread.ident or 0)) for thread in _others())
    if running:
        sys.stderr.write(
            f"note: {sys.argv[0]}: the main thread has ended, but these threads keep the process running: {running}. "
            "To end the process with the script, stop and join them, or create them with daemon=True\n"
        )
        sys.stderr.flush()


def _others() -> "list[threading.Thread]":
    main = threading.main_thread()
    return [each for each in threading.enumerate() if each is not main and not each.daemon]


def _line(frame: "FrameType | None") -> str:
    library = os.path.dirname(threading.__file__)
    while frame is not None and frame.f_code.co_filename.startswith(library) and frame.f_back is not None:
        frame = frame.f_back
    return "" if frame is None else f" at {frame.f_code.co_filename}:{frame.f_lineno}"


register()
watch_end()
keep_exit_codes()
load_hidden()
