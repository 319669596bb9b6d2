# SPDX-License-Identifier: Apache-2.0
"""The command `python paddle.py`, and the package `paddle` for scripts that import it from this directory.

Run as a script, it is the launcher. Imported as `paddle`, or run with `python -m paddle`, it loads the package in
runtime/, which the name of this file would otherwise hide.
"""

import os
import sys

ROOT = os.path.dirname(os.path.abspath(__file__))
RUNTIME = os.path.join(ROOT, "runtime")


def launch():
    """Run the launcher and exit with its exit code, or return that of an error before its start."""
    if sys.version_info < (3, 11):  # noqa: UP036 - this file alone is parsed by older ones
        hint = "; `sh run.sh` sets up .venv, for .venv/bin/python paddle.py"
        sys.stderr.write(
            "paddle.py: needs Python 3.11 or newer, this is {}.{}{}\n".format(*sys.version_info[:2], hint)
        )
        return 2
    if ROOT not in sys.path:
        sys.path.insert(0, ROOT)  # python -P leaves the script's directory out
    try:
        import math  # noqa: F401
    except ImportError:
        home = os.environ.get("PYTHONHOME")
        if home is None:
            raise
        sys.stderr.write(f"paddle.py: PYTHONHOME={home} belongs to another Python: unset PYTHONHOME\n")
        return 2
    try:
        from paddle_cluster import leave, main
    except KeyboardInterrupt:
        sys.stderr.write("stopped; nothing had been started\n")
        return 130
    return leave(main())


def give_way():
    """Replace this module in `sys.modules` by the runtime's package, which the import statement then returns."""
    import importlib.util

    folder = os.path.join(RUNTIME, "paddle")
    spec = importlib.util.spec_from_file_location(
        "paddle", os.path.join(folder, "__init__.py"), submodule_search_locations=[folder]
    )
    package = importlib.util.module_from_spec(spec)
    sys.modules["paddle"] = package
    if RUNTIME not in sys.path:
        sys.path.insert(0, RUNTIME)  # for paddle_node, which the package imports
    spec.loader.exec_module(package)


if __name__ != "__main__":
    give_way()
elif getattr(globals().get("__spec__"), "name", None) == "paddle":  # python -m paddle
    import runpy

    sys.path[:] = [RUNTIME] + [path for path in sys.path if os.path.abspath(path or os.curdir) != ROOT]
    runpy.run_module("paddle", run_name="__main__", alter_sys=True)
else:
    sys.exit(launch())
