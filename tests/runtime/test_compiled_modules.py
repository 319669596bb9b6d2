# SPDX-License-Identifier: Apache-2.0
"""Modules of compiled loops are loaded when large arrays come, by whichever thread has them first: several at once."""

from __future__ import annotations

import ast
import os
import pickle
import shutil
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
RUNTIME = ROOT / "runtime"
LIMIT_S = 100.0
BY_NUMBA = "kernel_cache.py"  # numba itself loads it, when it is whole
AT_ONCE = """
import importlib, sys, threading
import numpy

failures = []
gate = threading.Barrier(len(sys.argv) - 1)


def load(name):
    gate.wait()
    try:
        importlib.import_module(name)
    except BaseException as error:
        failures.append(f"{name}: {error!r}")


threads = [threading.Thread(target=load, args=(name,)) for name in sys.argv[1:]]
for thread in threads:
    thread.start()
for thread in threads:
    thread.join()
sys.exit("\\n".join(failures) or 0)
"""
MODULES = (
    "paddle.ops.base.lstm_kernels",
)
ONE_AT_A_TIME = """
import threading
from paddle.kernel_cache import made_once

first_is_in, order = threading.Event(), []


def first():
    with made_once("loops"):
        first_is_in.set()
        second.join(0.3)  # it would not wait, were it let in
        order.append("first made it")


def then():
    first_is_in.wait()
    with made_once("loops"):
        order.append("second found it")


threads = first_thread, second = [threading.Thread(target=each) for each in (first, then)]
for thread in threads:
    thread.start()
for thread in threads:
    thread.join()
with made_once("loops"), made_once("loops"):  # nobody waits any more
    print(order)
"""
SCRIPT = """
import numpy as np
from paddle.compiling import compiled
from paddle.pserver.sparse import index_kernels as kernels
from paddle.kernel_cache import digest, place
name = next(name for name in vars(kernels) if hasattr(vars(kernels)[name], "stats"))
loop = vars(kernels)[name]
kept = loop._cache._impl.locator.get_cache_path() if place() else "nowhere"
assert loop._cache is not None
print(digest(), place(), kept)
"""


LOOP = """
import numpy as np
from paddle.kernel_cache import place
from paddle import toy_loops as kernels
out = np.empty(2, np.float32)
kernels.product(np.ones(2, np.float32), np.full(2, 3, np.float32), out)
print("kept" if place() is not None else "nowhere", out[0])
"""
TOY = """
from paddle.compiling import compiled


@compiled
def product(a, b, out):
    for j in range(out.size):
        out[j] = a[j] * b[j]
"""
STRANGER = 12345
needs_root = pytest.mark.skipif(os.geteuid() != 0, reason="gives directories to another user: needs root")


def numba_imports(path: Path) -> list[str]:
    """The modules of numba that one of ours imports, in its order."""
    found = []
    for node in ast.walk(ast.parse(path.read_text())):
        names = [each.name for each in node.names] if isinstance(node, ast.Import) else []
        names += [str(node.module)] if isinstance(node, ast.ImportFrom) else []
        found += [name for name in names if name.partition(".")[0] == "numba"]
    return found


@pytest.mark.parametrize("turn", range(3))
def test_threads_that_load_them_at_once_all_get_them(turn: int) -> None:
    done = subprocess.run(
        [sys.executable, "-P", "-c", AT_ONCE, *MODULES],
        env={"PYTHONPATH": str(RUNTIME)},
        capture_output=True,
        text=True,
        timeout=LIMIT_S,
        check=False,
    )
    assert done.returncode == 0, done.stderr


def test_who_imports_numba_begins_with_its_outermost_package() -> None:
    """Who begins with a module inside holds that and waits for the whole; who loads the whole waits for that."""
    imports = {path: numba_imports(path) for path in RUNTIME.rglob("*.py")}
    first = {path.name: names[0] for path, names in imports.items() if names}
    assert first.pop(BY_NUMBA).startswith("numba.")
    assert first
    assert set(first.values()) == {"numba"}


def run(script: str, runtime: Path, **env: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-P", "-c", script],
        env={"PYTHONPATH": str(runtime), "PATH": "/usr/bin:/bin", **env},
        capture_output=True,
        text=True,
        timeout=60,
        check=True,
    )


def facts(runtime: Path, **env: str) -> list[str]:
    """What a process with that copy of the sources says: digest, folder, place of one loop."""
    return run(SCRIPT, runtime, **env).stdout.split()


@pytest.fixture
def copy(tmp_path: Path) -> Path:
    made = tmp_path / "runtime"
    for package in ("paddle", "paddle_node"):
        shutil.copytree(RUNTIME / package, made / package, ignore=shutil.ignore_patterns("__pycache__"))
    (made / "paddle/toy_loops.py").write_text(TOY)
    return made


def test_copies_share_a_place_until_a_source_changes(copy: Path, tmp_path: Path) -> None:
    home = {"HOME": str(tmp_path / "home")}
    first = facts(RUNTIME, **home)
    assert facts(copy, **home) == first
    assert first[2].startswith(f"{tmp_path}/home/.cache/paddle/kernels/{first[0]}/")
    with (copy / "paddle" / "optim" / "rules" / "table.py").open("a") as file:
        file.write("\n")  # loops may be made of it, whichever file they are in
    changed = facts(copy, **home)
    assert changed[0] != first[0]
    assert changed[2] != first[2]


def test_without_a_home_loops_lie_beside_their_source(copy: Path) -> None:
    assert facts(copy, HOME="/proc/nowhere")[2].startswith(f"{copy}/paddle/__pycache__/kernels/")


def test_a_place_that_the_user_chose_for_numba_counts(copy: Path, tmp_path: Path) -> None:
    place = facts(copy, HOME=str(tmp_path), NUMBA_CACHE_DIR=str(tmp_path / "mine"))[2]
    assert place.startswith(str(tmp_path / "mine"))


@pytest.fixture
def home(tmp_path: Path) -> Path:
    made = tmp_path / "home"
    made.mkdir(mode=0o755)
    return made


def is_kept(copy: Path, home: Path) -> tuple[bool, str]:
    """Whether a loop is kept for a process with that home, and what it says on standard error."""
    done = run(LOOP, copy, XDG_CACHE_HOME=str(home / "cache"))
    assert done.stdout.split()[-1] == "3.0"
    return done.stdout.split()[0] == "kept", done.stderr


def give_away(path: Path) -> None:
    os.chown(path, STRANGER, STRANGER, follow_symlinks=False)


def open_to_all(path: Path) -> None:
    path.chmod(0o777)


def open_to_group(path: Path) -> None:
    os.chown(path, -1, STRANGER)
    path.chmod(0o775)


@needs_root
@pytest.mark.parametrize("weaken", [give_away, open_to_all, open_to_group])
@pytest.mark.parametrize("which", ["home", "home/cache", "home/cache/paddle/kernels"])
def test_a_folder_that_others_could_have_changed_is_not_read(
    copy: Path, home: Path, which: str, weaken: Callable[[Path], None]
) -> None:
    shutil.rmtree(copy / "paddle" / "__pycache__", ignore_errors=True)
    assert is_kept(copy, home) == (True, "")
    plant(home)
    weaken(home.parent / which)
    give_away(copy / "paddle")  # no better place beside the sources
    kept, said = is_kept(copy, home)
    assert not kept
    assert (
        f"compiled loops are not kept, and every process makes its own, which takes seconds: {home.parent}/{which} "
        in said
    )
    assert said.count("compiled loops") == 1
    assert not (home.parent / "struck").exists()


@needs_root
@pytest.mark.parametrize("target", ["own", "strange"])
def test_a_link_counts_as_far_as_its_owner_does(copy: Path, home: Path, target: str) -> None:
    (home / "real").mkdir(mode=0o700)
    (home / "cache").symlink_to("../home/real")
    give_away(copy / "paddle")
    if target == "strange":
        give_away(home / "cache")
    kept, said = is_kept(copy, home)
    assert kept == (target == "own")
    assert ("belongs to uid" in said) == (target == "strange")


@needs_root
def test_a_file_that_somebody_else_left_in_the_folder_is_not_read(copy: Path, home: Path) -> None:
    assert is_kept(copy, home) == (True, "")
    give_away(plant(home))
    give_away(copy / "paddle")
    kept, said = is_kept(copy, home)
    assert not kept
    assert ".nbi belongs to uid" in said
    assert not (home.parent / "struck").exists()


def test_what_is_planted_would_have_struck(copy: Path, home: Path) -> None:
    """The attack of these tests is one."""
    assert is_kept(copy, home) == (True, "")
    plant(home)
    with pytest.raises(subprocess.CalledProcessError):
        is_kept(copy, home)
    assert (home.parent / "struck").exists()


class Strike:
    """Makes a directory when it is read."""

    def __init__(self, path: Path) -> None:
        self.path = str(path)

    def __reduce__(self) -> tuple[object, ...]:
        return os.mkdir, (self.path,)


def plant(home: Path) -> Path:
    """Put a pickle that strikes into the place of the loop's index."""
    (index,) = (home / "cache").rglob("*product*.nbi")
    index.write_bytes(pickle.dumps(Strike(home.parent / "struck")))
    return index


def test_one_process_of_a_node_compiles_and_the_others_wait_for_it(tmp_path: Path) -> None:
    tmp_path.chmod(0o700)
    env = os.environ | {"PYTHONPATH": str(RUNTIME), "XDG_CACHE_HOME": str(tmp_path), "NUMBA_CACHE_DIR": ""}
    argv = [sys.executable, "-P", "-c", ONE_AT_A_TIME]
    done = subprocess.run(argv, env=env, capture_output=True, text=True, timeout=LIMIT_S, check=True)
    assert done.stdout.strip() == "['first made it', 'second found it']"
