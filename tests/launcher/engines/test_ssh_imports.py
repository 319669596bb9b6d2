# SPDX-License-Identifier: Apache-2.0
"""paramiko is imported without what it does not need; what other threads import meanwhile is real."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parents[3]
AGENT_CODE = """
import sys, threading
from paddle_cluster.engines import ssh
assert not {*ssh._UNUSED} & {*sys.modules}
def other():
    import importlib.metadata
    import invoke
    from importlib.metadata import PackageNotFoundError
    assert isinstance(invoke.Context(), invoke.Context)
    try:
        importlib.metadata.version("no-such-package")
    except PackageNotFoundError:
        print("real")
thread = threading.Thread(target=other)
with ssh._spared():
    import paramiko, paramiko.config
    if WITH_OTHER:
        thread.start()
        thread.join()
print({*ssh._UNUSED} & {*sys.modules} == set(), "asyncio" in sys.modules, paramiko.__version__ != "0")
import fabric, importlib.metadata, invoke
from importlib import metadata
assert metadata.version("paramiko") == paramiko.__version__
assert isinstance(fabric.Connection("node"), invoke.Context)
assert paramiko.config.invoke.run("true", hide=True).ok
"""


def run(code: str) -> str:
    path = f"import sys; sys.path[:0] = [{str(ROOT / 'runtime')!r}, {str(ROOT)!r}]\n"
    done = subprocess.run(
        [sys.executable, "-P", "-c", path + code], capture_output=True, text=True, timeout=60, check=False
    )
    assert done.returncode == 0, done.stderr
    return done.stdout


def test_another_thread_imports_the_real_modules() -> None:
    assert run(AGENT_CODE.replace("WITH_OTHER", "True")).splitlines()[0] == "real"


def test_what_is_not_needed_is_not_imported_and_can_be_later() -> None:
    assert run(AGENT_CODE.replace("WITH_OTHER", "False")).splitlines() == ["True False True"]
