# SPDX-License-Identifier: Apache-2.0
"""The library of compiled kernels: found, verified and refused."""

from __future__ import annotations

import contextlib
import os
import re
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest

from paddle.kernels import build, library
from paddle_cluster.files.package import runtime_package

RUNTIME = Path(__file__).resolve().parents[3] / "runtime"
ASK = "from paddle.kernels import library; print(library.level() > 0, library.reason())"


def ask(runtime: Path) -> str:
    done = subprocess.run(
        [sys.executable, "-P", "-c", ASK],
        env={**os.environ, "PYTHONPATH": str(runtime)},
        capture_output=True,
        text=True,
        check=True,
        timeout=60,
    )
    return done.stdout.strip()


@pytest.fixture
def runtime(tmp_path: Path) -> Path:
    """A runtime without a library, with one trivial kernel."""
    kernels = tmp_path / "paddle" / "kernels"
    shutil.copytree(RUNTIME / "paddle/kernels", kernels, ignore=shutil.ignore_patterns("*.c", "built"))
    shutil.copy(RUNTIME / "paddle/kernels/level.c", kernels)
    for name in ("__init__.py", "second_names.py", "version.py"):
        shutil.copy(RUNTIME / "paddle" / name, tmp_path / "paddle")
    return tmp_path


def make(runtime: Path, path: str | None = None) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-P", "-m", "paddle.kernels.build", "--offline"],
        env={**os.environ, "PYTHONPATH": str(runtime), **({} if path is None else {"PATH": path})},
        capture_output=True,
        text=True,
        timeout=100,
    )


def needs_compiler() -> None:
    if not any(map(shutil.which, ("cc", "gcc", "clang"))):
        pytest.skip("no C compiler")


def test_without_a_library_the_reason_names_it_and_what_makes_it(runtime: Path) -> None:
    told = ask(runtime)
    assert told.startswith("False no compiled kernels: linux-")
    assert "is missing; run `python -m paddle.kernels.build`" in told


def test_in_a_job_with_servers_only_its_checks_report_a_missing_library(
    runtime: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def warned() -> bool:
        argv = [sys.executable, "-P", "-c", ASK]
        env = {**os.environ, "PYTHONPATH": str(runtime)}
        return b"slower code" in subprocess.run(argv, env=env, capture_output=True, timeout=60).stderr

    assert warned()
    monkeypatch.setenv("PADDLE_JOB_ID", "JOB1")
    assert warned()
    monkeypatch.setenv("PADDLE_PSERVERS", "10.0.0.7")
    assert not warned()


def test_a_library_is_found_once_it_is_built_and_not_built_again(runtime: Path) -> None:
    needs_compiler()
    assert make(runtime).returncode == 0
    assert ask(runtime) == "True"
    (made,) = (runtime / "paddle/kernels/built").glob("*.so")
    before = made.stat()
    assert make(runtime).returncode == 0
    assert made.stat().st_ino == before.st_ino


def test_changed_sources_refuse_the_library_and_replace_it_at_the_next_build(runtime: Path) -> None:
    needs_compiler()
    make(runtime)
    (old,) = (runtime / "paddle/kernels/built").glob("*.so")
    with (runtime / "paddle/kernels/level.c").open("a") as source:
        source.write("/* more */\n")
    assert "is missing" in ask(runtime)
    make(runtime)
    (new,) = (runtime / "paddle/kernels/built").glob("*.so")
    assert (new != old, ask(runtime)) == (True, "True")


def test_a_library_of_other_sources_under_this_name_is_refused(runtime: Path) -> None:
    needs_compiler()
    make(runtime)
    (made,) = (runtime / "paddle/kernels/built").glob("*.so")
    content = made.read_bytes()
    digest = made.stem.rpartition("-")[2]
    made.write_bytes(content.replace(digest.encode(), b"0" * len(digest)))
    assert re.match(rf"False no compiled kernels: {re.escape(made.name)} .*\(000", ask(runtime))
    made.write_bytes(b"no library")
    assert ask(runtime).startswith(f"False no compiled kernels: cannot load {made.name}: ")


def test_a_library_that_cannot_be_loaded_is_built_again(runtime: Path) -> None:
    needs_compiler()
    make(runtime)
    (made,) = (runtime / "paddle/kernels/built").glob("*.so")
    for content in (b"", b"made where the C library is newer"):
        made.write_bytes(content)
        assert make(runtime).returncode == 0
        assert ask(runtime) == "True"


def test_what_was_built_and_cannot_be_loaded_is_no_success(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def useless(compiler: build.Compiler, target: str, folder: Path) -> Path:
        path = folder / library.library_name(target)
        path.write_bytes(b"as if on a file system without execution")
        return path

    needs_compiler()
    monkeypatch.setattr(build, "build", useless)
    with pytest.raises(build.BuildError, match=r"was compiled, but cannot be loaded"):
        build.build_here(may_download=False, folder=tmp_path / "built")


def test_a_compiler_that_does_not_work_is_passed_over(runtime: Path, tmp_path: Path) -> None:
    if not any(map(shutil.which, ("gcc", "clang"))):
        pytest.skip("no C compiler beside cc")
    broken = tmp_path / "broken" / "cc"
    broken.parent.mkdir()
    broken.write_text("#!/bin/sh\necho stdint.h: no such file >&2\nexit 1\n")
    broken.chmod(0o755)
    assert make(runtime, path=f"{broken.parent}:{os.environ['PATH']}").returncode == 0
    assert ask(runtime) == "True"


def test_a_compiler_that_does_not_work_is_replaced_by_zig(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked = []

    def only_zig(compiler: build.Compiler, target: str, folder: Path) -> Path:
        asked.append(compiler.is_zig)
        if not compiler.is_zig:
            raise build.BuildError("cc exited with code 1: no headers")
        return folder

    @contextlib.contextmanager
    def zig() -> Iterator[build.Compiler]:
        yield build.Compiler(("zig",), is_zig=True)

    monkeypatch.setattr(build, "build", only_zig)
    monkeypatch.setattr(build, "zig", zig)
    monkeypatch.setattr(shutil, "which", lambda name: f"/bin/{name}")
    with pytest.raises(build.BuildError, match="no headers"):
        build.build_here(may_download=False, folder=tmp_path / "built")
    assert asked == [False] * 3
    with pytest.raises(build.BuildError, match="cannot be loaded"):  # this one made nothing
        build.build_here(may_download=True, folder=tmp_path / "built")
    assert asked[-1]


def test_who_works_without_a_library_logs_it_once(runtime: Path) -> None:
    done = subprocess.run(
        [sys.executable, "-P", "-c", f"{ASK}; library.level()"],
        env={**os.environ, "PYTHONPATH": str(runtime)},
        capture_output=True,
        text=True,
        check=True,
        timeout=60,
    )
    (line,) = done.stderr.splitlines()
    assert re.match("no compiled kernels: linux-.*NumPy", line)


def test_without_a_compiler_the_build_says_so_in_one_line(runtime: Path, tmp_path: Path) -> None:
    done = make(runtime, path=str(tmp_path))
    assert (done.returncode, len(done.stderr.splitlines())) == (1, 1)
    assert "is used: no C compiler found" in done.stderr


def test_a_source_that_does_not_compile_is_reported_with_the_compilers_words(runtime: Path) -> None:
    needs_compiler()
    (runtime / "paddle/kernels/wrong.c").write_text("int wrong(void) { return unheard_of; }\n")
    done = make(runtime)
    assert done.returncode == 1
    assert "unheard_of" in done.stderr
    assert not list((runtime / "paddle/kernels/built").iterdir())[1:]  # the lock alone


@pytest.mark.skipif(not library.level(), reason=library.reason())
def test_a_library_that_is_compiled_on_a_new_system_asks_for_no_newer_c_library_than_2_17() -> None:
    content = (library.FOLDER / library.BUILT / library.library_name(library.target())).read_bytes()
    asked = {tuple(map(int, found)) for found in re.findall(rb"GLIBC_(\d+)\.(\d+)", content)}
    assert max(asked, default=(2, 0)) <= (2, 17), "kernels/mathematics.h tells how to name an older version"


def test_every_platform_of_a_wheel_has_levels() -> None:
    assert {target.split("-")[1] for target in build.TARGETS} == set(library.LEVELS)


@pytest.mark.parametrize(
    "array",
    [
        np.zeros(8, np.float64),
        np.zeros((8, 2), np.float32)[:, 0],
        np.zeros(7, np.float32),
        np.zeros(33, np.uint8)[1:].view(np.float32),
    ],
)
def test_an_array_that_a_kernel_cannot_take_is_refused_before_the_call(array: np.ndarray) -> None:
    with pytest.raises(ValueError, match="a kernel needs 8 aligned, contiguous"):
        library.address(array, np.float32, 8)


def test_half_built_libraries_do_not_travel_to_nodes(runtime: Path) -> None:
    built = runtime / "paddle/kernels/built"
    (built / "making-1").mkdir(parents=True)
    (built / "making-1" / "library.so").touch()
    (built / "x.so").touch()
    paths = [entry.path for entry in runtime_package(runtime).files if "built" in entry.path]
    assert paths == ["paddle/kernels/built/x.so"]


@pytest.mark.parametrize("shell", [["dash"], ["bash", "--posix"]], ids=["dash", "bash"])
def test_a_setup_goes_on_where_it_cannot_note_that_no_library_was_built(
    shell: list[str], tmp_path: Path
) -> None:
    if not shutil.which(shell[0]):
        pytest.skip(f"no {shell[0]}")
    text = (RUNTIME.parent / "tools" / "venv.sh").read_text(encoding="utf-8")
    function = re.search(r"^make_kernels\(\) \{\n.*?^\}\n", text, re.MULTILINE | re.DOTALL)
    assert function is not None
    script = f"set -eu\nroot=/ venv={tmp_path}/missing\n{function[0]}make_kernels 2>/dev/null\necho on"
    done = subprocess.run([*shell, "-c", script], capture_output=True, text=True, timeout=60)
    assert (done.returncode, done.stdout, done.stderr) == (0, "on\n", "")
