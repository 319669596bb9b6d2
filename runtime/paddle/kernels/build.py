# SPDX-License-Identifier: Apache-2.0
"""Compiles the kernels for this machine: `python -m paddle.kernels.build`, which the setup scripts run.

It uses the system's C compiler; if none works, it uses `ziglang`, a compiler packaged as a wheel, in a temporary
environment that is removed afterwards. An existing library that matches the sources and can be loaded is not compiled
again. This module uses only Python's standard library.
"""

from __future__ import annotations

import argparse
import contextlib
import fcntl
import os
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import NamedTuple

from paddle.kernels import library

TARGETS = {
    "linux-x86_64-gnu": "x86_64-linux-gnu.2.17",
    "linux-x86_64-musl": "x86_64-linux-musl",
    "linux-aarch64-gnu": "aarch64-linux-gnu.2.17",
    "linux-aarch64-musl": "aarch64-linux-musl",
}
"""Platform -> its name in zig, with the oldest supported glibc."""

_COMPILERS = ("cc", "gcc", "clang")
_ZIG = """\
ziglang==0.13.0.post1 \
--hash=sha256:5ff0f2cb0d583b4f94820909612043f62e4d1d9a8bed77ceec088a01fc2ef015 \
--hash=sha256:b2ab883f27e915bc34266ff6627f565b5cc7b3c566b5a91f633b4174d52119a9
"""
_LIMIT_S = 300


class BuildError(Exception):
    """Raised when the kernels cannot be compiled; the message gives the cause."""


class NoCompiler(BuildError):
    """Raised when this machine has no C compiler."""


class Compiler(NamedTuple):
    """A C compiler that works on this machine.

    Attributes:
        command: its command line.
        is_zig: whether it is zig, which compiles for any platform.
    """

    command: tuple[str, ...]
    is_zig: bool = False

    def argv(self, target: str) -> list[str]:
        """Return the compiler's command line for a platform; only zig supports other platforms than this machine's."""
        return [*self.command, *(("-target", TARGETS[target]) if self.is_zig else ())]

    def flags(self, target: str, level: int) -> tuple[str, ...]:
        """Return the compiler flags for a speed level; zig needs more than the names of instruction sets."""
        machine = target.split("-")[1]
        is_named = self.is_zig and machine == "x86_64"
        return (f"-march=x86_64_v{level}",) if is_named else library.LEVELS[machine][level]


def build(compiler: Compiler, target: str, folder: Path, extra: Sequence[str] = ()) -> Path:
    """Compile the sources for a platform, and publish the library in a folder by a rename; return its path.

    Args:
        extra: more flags for compiling and linking, such as those of a sanitizer.

    Raises:
        BuildError: the compiler failed; the message includes its output.
    """
    path, argv = folder / library.library_name(target), compiler.argv(target)
    levels = library.LEVELS[target.split("-")[1]]
    digest = f'-DDIGEST="{library.digest()}"'
    with tempfile.TemporaryDirectory(dir=folder, prefix="making-") as made:
        units = [
            (source, level)
            for source in library.sources()
            if source.suffix == ".c"
            for level in (levels if source.name != "level.c" else [min(levels)])
        ]
        objects = [f"{made}/{source.stem}-{level}.o" for source, level in units]
        commands = [
            [
                *argv,
                *library.FLAGS,
                *compiler.flags(target, level),
                *extra,
                f"-DLEVEL=v{level}",
                digest,
                "-c",
                f"{source}",
                "-o",
                to,
            ]
            for (source, level), to in zip(units, objects, strict=True)
        ]
        _run(*commands)
        _run([*argv, "-shared", *extra, "-o", f"{made}/library.so", *objects, "-lm"])
        Path(made, "library.so").chmod(0o644)
        Path(made, "library.so").replace(path)
    for other in folder.glob(f"{target}-*.so"):
        if other != path:  # made from earlier sources; a process that has loaded it keeps it
            other.unlink(missing_ok=True)
    return path


def build_here(may_download: bool, folder: Path = library.FOLDER / library.BUILT) -> Path:
    """Return the path of this machine's library; compile it unless a usable one exists.

    Args:
        may_download: if the machine has no working compiler, install one for the duration of the build.

    Raises:
        BuildError: the library does not exist and cannot be compiled, or cannot be loaded after compiling.
    """
    target = library.target()
    path = folder / library.library_name(target)
    if library.is_usable(path):
        return path
    if target not in TARGETS:
        raise BuildError(f"kernels do not support {target}")
    try:
        folder.mkdir(exist_ok=True)
        with (folder / ".lock").open("a") as lock:
            fcntl.flock(lock, fcntl.LOCK_EX)
            if library.is_usable(path):  # made by the process that had the lock
                return path
            _build_by_any(may_download, target, folder)
    except OSError as error:
        raise BuildError(f"{folder}: {error.strerror}") from error
    if not library.is_usable(path):  # such as on a file system that is mounted noexec
        raise BuildError(f"{path} was compiled, but cannot be loaded")
    return path


def _build_by_any(may_download: bool, target: str, folder: Path) -> None:
    """Compile with the first working compiler of the system, or else with zig."""
    failures = []
    for command in filter(None, map(shutil.which, _COMPILERS)):
        try:
            build(Compiler((command,)), target, folder)
            return
        except BuildError as error:  # such as a cc without the C library's headers
            failures.append(error)
    if may_download:
        with zig() as compiler:
            build(compiler, target, folder)
    elif failures:
        raise failures[0]
    else:
        raise NoCompiler(
            f"no C compiler found (searched for {', '.join(_COMPILERS)}). Install one, or run "
            "`python -m paddle.kernels.build`, which downloads one for the time of the build"
        )


@contextlib.contextmanager
def zig() -> Iterator[Compiler]:
    """Install zig in a temporary environment for the duration of a `with` block, and yield it as a compiler.

    Raises:
        BuildError: zig cannot be installed.
    """
    with tempfile.TemporaryDirectory(prefix="paddle-zig-") as folder:
        wanted = Path(folder, "requirements.txt")
        wanted.write_text(_ZIG, encoding="utf-8")
        pip = [sys.executable, "-m", "pip", "--quiet", "--disable-pip-version-check", "install", "--no-deps"]
        _run([*pip, "--require-hashes", "--only-binary=:all:", "--target", folder, "-r", str(wanted)])
        yield Compiler((f"{folder}/ziglang/zig", "cc"), is_zig=True)


def _run(*commands: list[str]) -> None:
    """Run commands in parallel, one per processor."""
    at_once = os.cpu_count() or 1
    for start in range(0, len(commands), at_once):
        with contextlib.ExitStack() as stack:
            some = commands[start : start + at_once]
            try:
                started = [stack.enter_context(_started(argv)) for argv in some]
                written = [process.communicate(timeout=_LIMIT_S)[0] for process in started]
            except (OSError, subprocess.TimeoutExpired) as error:
                raise BuildError(f"{some[0][0]}: {error}") from error
        for argv, process, text in zip(some, started, written, strict=True):
            if process.returncode:
                raise BuildError(f"{argv[0]} exited with code {process.returncode}: {text.strip()}")


@contextlib.contextmanager
def _started(argv: list[str]) -> Iterator[subprocess.Popen[str]]:
    with subprocess.Popen(
        argv, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, errors="replace"
    ) as process:
        try:
            yield process
        finally:
            process.kill()


def main() -> int:
    """Build the kernels as requested on the command line; return the exit code."""
    parser = argparse.ArgumentParser(prog="python -m paddle.kernels.build", description=__doc__)
    parser.add_argument(
        "--all", action="store_true", help="build for all platforms that wheels support, with zig"
    )
    parser.add_argument("--offline", action="store_true", help="never install a compiler")
    options = parser.parse_args()
    folder = library.FOLDER / library.BUILT
    try:
        if options.all:
            folder.mkdir(exist_ok=True)
            with zig() as compiler:
                for target in TARGETS:
                    build(compiler, target, folder)
        else:
            build_here(not options.offline)
    except (BuildError, OSError) as error:
        text = f"kernels: not compiled, so slower code in Python and NumPy is used: {error}"
        print(text, file=sys.stderr)  # noqa: T201
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
