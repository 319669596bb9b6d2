# SPDX-License-Identifier: Apache-2.0
"""Fetches the wheels for a platform with pip, checks them, and caches them for later jobs.

pip runs in a separate process, with the user's settings (PIP_INDEX_URL, PIP_FIND_LINKS, PIP_NO_INDEX, pip.conf).
Packages in the lock file must match its SHA-256 hashes, and every requirement of a wheel must exist for that platform.
"""

from __future__ import annotations

import contextlib
import email
import hashlib
import importlib.util
import itertools
import os
import re
import shutil
import signal
import subprocess
import sys
import tempfile
import time
import zipfile
from collections.abc import Sequence
from functools import cached_property
from pathlib import Path

from packaging.requirements import InvalidRequirement, Requirement
from packaging.utils import InvalidWheelFilename, canonicalize_name, parse_wheel_filename
from packaging.version import Version

from paddle_cluster.config.requirements import FILE, Pin, Requirements, pins
from paddle_cluster.errors import LauncherError
from paddle_cluster.files.package import Package, TreeEntry
from paddle_cluster.plan.wheel_platform import WheelPlatform
from paddle_cluster.system.digests import Digests, memory_of
from paddle_cluster.system.state_dir import own_directory, read_json, write_json
from paddle_cluster.text.wrapping import visible
from paddle_node.contract.classes import dataclass

FOLDER = ".wheels"  # below the jobs' states
UNUSED_S = 30 * 24 * 3600.0
TERM_S = 3.0
_FORM = 1
_SAID = 400  # characters of pip's output
_ERROR = "ERROR: "
_NO_MATCH = f"{_ERROR}No matching distribution found for "
_CONFLICT = f"{_ERROR}Cannot install "
_USERS_WAY = f"name a version that has one in {FILE}, or add a wheel to PIP_FIND_LINKS"
_OUR_WAY = (
    "jobs need exactly this version: set PYTHON in conf.py to a Python that has it, or "
    "install it on the nodes and omit --bootstrap"
)
_CAUSES = "The conflict is caused by:"
_UNREACHABLE = "Retrying (Retry("
_NO_VERSION = "(from versions: none)"


class NoWheelsError(LauncherError):
    """Raised when an environment cannot be built; the text contains the reason, but no node names."""


@dataclass(frozen=True)
class Environment:
    """The wheels of an environment for one platform.

    Attributes:
        unpacked_bytes: the unpacked size of the wheels on a node.
        was_kept: whether an earlier job fetched the wheels.
    """

    package: Package
    unpacked_bytes: int
    was_kept: bool = False


@dataclass(frozen=True)
class EnvironmentRequest:
    """A request for the wheels of one platform: the platform, and the requirements.

    Attributes:
        requirements: the workspace's requirements, or None.
    """

    platform: WheelPlatform
    requirements: Requirements | None

    @cached_property
    def pins(self) -> tuple[Pin, ...]:
        """Return the pinned packages that the job itself imports."""
        return pins(self.platform.markers())

    @property
    def lines(self) -> str:
        """Return the lines for pip that pin the job's own packages, with hashes unless requirements.txt has none."""
        if self.requirements is None:
            return "\n".join(pin.hashed for pin in self.pins)
        return "\n".join(pin.hashed if self.requirements.is_hashed else pin.text for pin in self.pins)

    @property
    def key(self) -> str:
        """Return a digest of everything that determines the resulting environment, as its key in the cache."""
        said = [
            str(_FORM),
            self.platform.abi,
            *self.platform.tags,
            *(pin.hashed for pin in self.pins),
            self.requirements.text if self.requirements is not None else "",
        ]
        return hashlib.sha256("\0".join(said).encode()).hexdigest()[:32]


def kept(wanted: EnvironmentRequest, states: Path) -> Environment | None:
    """Return the cached environment that an earlier job fetched, or None if there is no intact one.

    Args:
        states: the directory for the state of jobs.
    """
    folder = states / FOLDER
    record = folder / f"{wanted.key}.json"
    listed = (read_json(record) or {}).get("wheels")
    try:
        found = _environment([folder / path for path in listed or ()], states)
        os.utime(record)
    except (OSError, TypeError, ValueError, zipfile.BadZipFile):
        return None
    digests = [entry.digest for entry in found.package.files]
    is_whole = bool(digests) and digests == (read_json(record) or {}).get("digests")
    return Environment(found.package, found.unpacked_bytes, was_kept=True) if is_whole else None


class Fetch:
    """A run of pip that fetches the wheels of one platform; `close` may be called in any state.

    Raises:
        NoWheelsError: pip is missing, or the directory for wheels cannot be created.
    """

    def __init__(self, wanted: EnvironmentRequest, states: Path) -> None:
        self._wanted = wanted
        self._states = states
        self._folder = states / FOLDER
        argv = [*_pip(), "download", "--only-binary=:all:", "--no-input", "--disable-pip-version-check"]
        argv += ["--progress-bar=off", "--implementation=cp", f"--abi={wanted.platform.abi}"]
        argv += [f"--python-version={wanted.platform.version}"]
        argv += [f"--platform={tag}" for tag in wanted.platform.tags]
        if wanted.requirements is None:
            argv += ["--no-deps", "--require-hashes"]
        else:
            argv += [f"--requirement={wanted.requirements.path}"]
        try:
            own_directory(states)
            own_directory(self._folder)
            self._aside = Path(tempfile.mkdtemp(prefix="fetch-", dir=self._folder))
            (self._aside / "requirements.txt").write_text(wanted.lines + "\n", encoding="utf-8")
            with (self._aside / "said").open("wb") as said:
                self._process = subprocess.Popen(
                    [
                        *argv,
                        f"--dest={self._aside / 'wheels'}",
                        f"--requirement={self._aside / 'requirements.txt'}",
                    ],
                    stdin=subprocess.DEVNULL,
                    stdout=said,
                    stderr=subprocess.STDOUT,
                    start_new_session=True,  # Ctrl+C at the terminal only reaches the launcher
                )
        except OSError as error:
            raise NoWheelsError(f"{error.filename or self._folder}: {error.strerror}") from error

    def is_over(self) -> bool:
        """Return whether pip has exited."""
        return self._process.poll() is not None

    def result(self) -> Environment:
        """Check the wheels that pip fetched, cache them, and return the environment.

        Raises:
            NoWheelsError: a package is missing, conflicts, or differs from the lock file.
        """
        if self._process.wait() != 0:
            raise NoWheelsError(self._why())
        try:
            found = sorted((self._aside / "wheels").iterdir())
            _check(found, self._wanted)
            names = []
            for path in found:
                name = f"{_sha256(path)[:32]}/{path.name}"
                (self._folder / name).parent.mkdir(mode=0o700, exist_ok=True)
                os.replace(path, self._folder / name)
                names.append(name)
            environment = _environment([self._folder / name for name in names], self._states)
            digests = [entry.digest for entry in environment.package.files]
            write_json(self._folder / f"{self._wanted.key}.json", {"wheels": names, "digests": digests})
            _prune(self._folder)
        except OSError as error:
            raise NoWheelsError(f"{error.filename or self._folder}: {error.strerror}") from error
        return environment

    def close(self) -> None:
        """End pip if it is still running, and remove partial results."""
        for number in (signal.SIGTERM, signal.SIGKILL):
            if self.is_over():
                break
            with contextlib.suppress(ProcessLookupError):
                os.killpg(self._process.pid, number)
            with contextlib.suppress(subprocess.TimeoutExpired):
                self._process.wait(TERM_S)
        shutil.rmtree(self._aside, ignore_errors=True)

    def _why(self) -> str:
        """Return pip's error as one sentence, with the next step."""
        text = (self._aside / "said").read_text(encoding="utf-8", errors="replace")
        where = self._wanted.platform.describe()
        lines = text.splitlines()
        first = next((number for number, line in enumerate(lines) if line.startswith(_ERROR)), None)
        if first is None:
            return f"pip exited with status {self._process.returncode} for {where}: {_shown(lines[-3:])}"
        missing = next((line for line in lines if line.startswith(_NO_MATCH)), None)
        if missing is not None:
            name = missing.removeprefix(_NO_MATCH).partition(" (from ")[0]
            if _UNREACHABLE in text:
                return f"cannot download {name}: the package index does not respond (PIP_INDEX_URL, pip.conf)"
            ours = {pin.name: pin.text for pin in self._wanted.pins}.get(re.split(r"[^\w.-]", name)[0])
            if ours not in (None, name):
                return f"conflict for {where}: {FILE} requires {name}, but jobs import {ours}; change {FILE}"
            others = ", nor of any other version (is the index set: PIP_INDEX_URL, pip.conf?)"
            more = others if _NO_VERSION in text else ""
            return f"no wheel of {name} for {where}{more}; {_USERS_WAY if ours is None else _OUR_WAY}"
        if lines[first].startswith(_CONFLICT):
            causes = lines[lines.index(_CAUSES) + 1 :] if _CAUSES in lines else lines[first : first + 1]
            said = _shown(list(itertools.takewhile(str.strip, causes)))
            return f"conflict for {where}: {said}; change {FILE}"
        below = itertools.takewhile(lambda line: line.startswith(" "), lines[first + 1 :])
        return f"pip failed for {where}: {_shown([lines[first].partition('. ')[0], *below])}; change {FILE}"


def _shown(lines: Sequence[str]) -> str:
    """Join lines of pip's output into one."""
    words = (line.removeprefix(_ERROR).strip() for line in lines)
    return visible("; ".join(dict.fromkeys(word for word in words if word)))[:_SAID]


def _pip() -> list[str]:
    """Return the command for pip: that of this Python, or one from uv or the system.

    Raises:
        NoWheelsError: there is no pip.
    """
    if importlib.util.find_spec("pip") is not None:
        return [sys.executable, "-P", "-m", "pip"]
    uv = shutil.which("uv")
    if uv is not None:
        return [uv, "tool", "run", "pip"]
    for name in ("pip3", "pip"):
        found = shutil.which(name)
        if found is not None:
            return [found]
    raise NoWheelsError(
        f"no pip to download wheels with: {sys.executable} has none (typical of pipx and uv), "
        "and neither uv nor pip is in PATH. Try `pipx inject paddle-cluster pip` or `uv tool "
        "install --with pip paddle-cluster`"
    )


def _check(found: Sequence[Path], wanted: EnvironmentRequest) -> None:
    """Check that these files form the environment.

    Raises:
        NoWheelsError: a file is not a wheel, differs from the lock file, or lacks a dependency.
    """
    locked = {canonicalize_name(pin.name): pin for pin in wanted.pins}
    have: dict[str, Version] = {}
    for path in found:
        try:
            name, version, _, _ = parse_wheel_filename(path.name)
        except InvalidWheelFilename as error:
            raise NoWheelsError(
                f"{path.name} is not a wheel, but nodes need wheels; remove it from requirements.txt"
            ) from error
        have[name] = version
        if name in locked and _sha256(path) not in locked[name].hashes:
            raise NoWheelsError(f"{path.name} does not match the lock file: its sha256 is {_sha256(path)}")
    lacking = [pin.text for name, pin in locked.items() if str(have.get(name)) != pin.version]
    for path in found:
        for text in _required(path):
            need = Requirement(text)
            if need.marker is not None and not need.marker.evaluate(wanted.platform.markers()):
                continue
            there = have.get(canonicalize_name(need.name))
            if there is None or not need.specifier.contains(there, prereleases=True):
                lacking.append(f"{need.name}{need.specifier} (for {path.name.split('-')[0]})")
    if lacking:
        raise NoWheelsError(
            f"{', '.join(lacking)} was not downloaded for {wanted.platform.describe()}; name it "
            "in requirements.txt"
        )


def _required(path: Path) -> list[str]:
    """Return the requirements declared by a wheel.

    Raises:
        NoWheelsError: the wheel cannot be read.
    """
    try:
        with zipfile.ZipFile(path) as archive:
            (name,) = [
                one
                for one in archive.namelist()
                if one.endswith(".dist-info/METADATA") and one.count("/") == 1
            ]
            said = email.message_from_bytes(archive.read(name)).get_all("Requires-Dist") or []
        return [str(one) for one in said if Requirement(str(one))]
    except (zipfile.BadZipFile, ValueError, InvalidRequirement) as error:
        raise NoWheelsError(f"{path.name} is not a complete wheel: {error}; download it again") from error


def _environment(wheels: Sequence[Path], states: Path) -> Environment:
    """Return the tree of wheels to send.

    Raises:
        OSError: a wheel cannot be read.
    """
    digests = Digests(memory_of(states / FOLDER, states)).of((str(path), path.stat()) for path in wheels)
    entries = []
    unpacked = 0
    for path in sorted(wheels, key=lambda one: one.name):
        hashed = digests[str(path)]
        if isinstance(hashed, OSError):
            raise hashed
        entries.append(TreeEntry(path.name, 0o600, hashed.size, hashed.digest, source=str(path)))
        with zipfile.ZipFile(path) as archive:
            unpacked += sum(member.file_size for member in archive.infolist())
    return Environment(Package(tuple(entries)), unpacked)


def _sha256(path: Path) -> str:
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def _prune(folder: Path) -> None:
    """Remove environments that no job has used for UNUSED_S seconds."""
    oldest = time.time() - UNUSED_S
    named: set[str] = set()
    for record in folder.glob("*.json"):
        if record.stat().st_mtime < oldest:
            record.unlink(missing_ok=True)
        else:
            listed = (read_json(record) or {}).get("wheels")
            named.update(str(one).partition("/")[0] for one in (listed if isinstance(listed, list) else ()))
    for path in folder.iterdir():
        if path.is_dir() and path.name not in named and path.stat().st_mtime < oldest:
            shutil.rmtree(path, ignore_errors=True)
