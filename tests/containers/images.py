# SPDX-License-Identifier: Apache-2.0
"""The images of docker_cluster/, built by buildah as its README says, once for the same inputs.

The base image is a Debian made by debootstrap: no registry is asked. What this machine needs to reach its mirrors of
Debian and of PyPI (addresses, certificates, pip's and apt's settings) is mounted while images are built.
"""

from __future__ import annotations

import hashlib
import os
import shlex
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from pathlib import Path
from typing import NamedTuple

from tests.cluster.hosts import ROOT, missing_tools
from tests.containers.podman import TOOLS, Podman

SUITE = "bookworm"
BOOTSTRAP = ("--variant=minbase", "--include=ca-certificates", SUITE)
JUNK = ("var/cache/apt/archives", "var/lib/apt/lists", "usr/share/doc", "usr/share/man")
MIRROR = "http://deb.debian.org/debian"
BUNDLE = Path("/etc/ssl/certs/ca-certificates.crt")
BUILD_S = 900
CLUSTER = ROOT / "docker_cluster"


class Recipe(NamedTuple):
    """How an image is built, from the root of the repository.

    Attributes:
        options: of `docker build`.
        inputs: what is copied into it, and says how.
    """

    options: tuple[str, ...]
    inputs: tuple[Path, ...]


NODE_FILES = tuple(CLUSTER / name for name in ("Dockerfile", "requirements.txt", "sshd_config", "start.sh"))
RECIPES = {
    "paddle-job": Recipe(("--target=job", "docker_cluster"), NODE_FILES),
    "paddle-ssh-server": Recipe(("docker_cluster",), NODE_FILES),
    "paddle-openmpi": Recipe(
        ("-f", "docker_cluster/openmpi/Dockerfile", "."),
        (
            CLUSTER / "openmpi",
            CLUSTER / "sshd_config",
            CLUSTER / "start.sh",
            ROOT / "runtime/paddle",
            ROOT / "runtime/paddle_node",
        ),
    ),
}


def missing() -> str:
    """Says why no container can be made here, or returns an empty string."""
    if reason := missing_tools():
        return reason
    if lacking := [tool for tool in TOOLS if shutil.which(tool) is None]:
        return f"needs {', '.join(lacking)} (Debian: apt-get install {' '.join(lacking)})"
    with tempfile.TemporaryDirectory() as folder:
        tried = subprocess.run(
            ["unshare", "--mount", "mount", "-t", "tmpfs", "tmpfs", folder], capture_output=True, text=True
        )
    if tried.returncode:
        return f"needs the right to mount, which this container or machine does not give: {tried.stderr}"
    return ""


class Images:
    """The images, made where they are missing.

    Raises:
        RuntimeError: a build failed; with its last lines.
    """

    def __init__(self, podman: Podman) -> None:
        self._podman = podman
        self._base = self._keep("paddle-test-base", _digest([], *BOOTSTRAP, *JUNK), self._make_base)
        for name, recipe in RECIPES.items():
            tag = _digest(recipe.inputs, self._base)
            built = self._keep(name, tag, partial(self._build, recipe))
            podman.run("tag", built, f"localhost/{name}:latest")
        podman.run("image", "prune", "--force", check=False)

    def size_mb(self, name: str) -> float:
        """How large an image is, its base included."""
        return int(self._podman.run("image", "inspect", "--format={{.Size}}", name).stdout) / 1e6

    def _keep(self, name: str, tag: str, make: Callable[[str], None]) -> str:
        tagged = f"localhost/{name}:{tag}"
        if self._podman.run("image", "exists", tagged, check=False).returncode:
            began = time.monotonic()
            make(tagged)
            sys.stderr.write(f"tests: made the image {name} in {time.monotonic() - began:.0f} s\n")
            # The layers of older ones are those that the newest one shares.
            for line in self._podman.run("images", "--format={{.Repository}}:{{.Tag}}", name).stdout.split():
                if line != tagged and line.startswith(f"localhost/{name}:"):
                    self._podman.run("untag", line, line, check=False)
        return tagged

    def _make_base(self, tagged: str) -> None:
        mirror = _mirror()
        with tempfile.TemporaryDirectory(dir=self._podman.folder) as folder:
            root = Path(folder) / "root"
            _tool("debootstrap", *BOOTSTRAP, str(root), mirror)
            for junk in JUNK:
                shutil.rmtree(root / junk, ignore_errors=True)
            (root / "etc/apt/sources.list").write_text(_sources(mirror))
            packed = Path(folder) / "base.tar"
            _tool("tar", "-C", str(root), "-cf", str(packed), ".")
            self._podman.run("import", str(packed), tagged)

    def _build(self, recipe: Recipe, tagged: str) -> None:
        with tempfile.TemporaryDirectory() as settings:
            mounts = [f"--volume={mount}:ro" for mount in _mounts(Path(settings))]
            _tool(
                "buildah", *self._podman.store, "bud", "--isolation=chroot", "--network=host",
                "--ulimit=nofile=1024:1024", "--format=docker", "--jobs=2", "--layers", "--pull-never",
                f"--build-arg=BASE={self._base}", f"--tag={tagged}", *mounts, *recipe.options,
            )  # fmt: skip


def _tool(*argv: str) -> None:
    done = subprocess.run(
        argv,
        cwd=ROOT,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        timeout=BUILD_S,
        check=False,
    )
    if done.returncode:
        last = "\n".join(done.stdout.splitlines()[-40:])
        raise RuntimeError(f"{shlex.join(argv)} ended with {done.returncode}:\n{last}")


def _digest(inputs: Sequence[Path], *words: str) -> str:
    found = hashlib.sha256("\0".join(words).encode())
    for given in inputs:
        files = sorted(file for file in given.rglob("*") if file.is_file()) if given.is_dir() else [given]
        for file in files:
            if "__pycache__" not in file.parts:
                found.update(f"{file.relative_to(ROOT)}\0{os.access(file, os.X_OK)}\0".encode())
                found.update(hashlib.sha256(file.read_bytes()).digest())
    return found.hexdigest()[:16]


# -- this machine's ways to Debian and PyPI


def _targets() -> Iterator[tuple[str, str]]:
    """(address, release) of this machine's sources, where it is such a Debian."""
    done = subprocess.run(
        ["apt-get", "indextargets", "--format", "$(SITE) $(RELEASE)", "Created-By: Packages"],
        capture_output=True,
        text=True,
        check=False,
    )
    for line in sorted(set(done.stdout.splitlines())):
        site, _, release = line.partition(" ")
        if release.startswith(SUITE) and "debian" in site:
            yield site, release


def _mirror() -> str:
    return next((site for site, release in _targets() if release == SUITE), MIRROR)


def _sources(mirror: str) -> str:
    found = {release: site for site, release in _targets()}
    return "".join(f"deb {site} {release} main\n" for release, site in {SUITE: mirror, **found}.items())


def _mounts(settings: Path) -> Iterator[str]:
    """host path:path in the build, for all that this machine's pip and apt go by."""
    if BUNDLE.exists():
        yield f"{BUNDLE}:{BUNDLE}"
    pip, places = _pip_settings()
    (settings / "pip.conf").write_text(pip)
    yield f"{settings / 'pip.conf'}:/etc/pip.conf"
    for place in places:
        yield f"{place}:{place}"
    (settings / "apt.conf").write_text(_apt_settings())
    yield f"{settings / 'apt.conf'}:/etc/apt/apt.conf.d/99build"
    if Path("/etc/apt/auth.conf.d").is_dir():
        yield "/etc/apt/auth.conf.d:/etc/apt/auth.conf.d"


def _apt_settings() -> str:
    """What says how things are fetched: proxies, certificates, checks."""
    done = subprocess.run(["apt-config", "dump", "Acquire"], capture_output=True, text=True, check=False)
    kinds = ("Acquire::http", "Acquire::ftp", "Acquire::Check-", "Acquire::Retries", "Acquire::Force")
    return "".join(f"{line}\n" for line in done.stdout.splitlines() if line.startswith(kinds))


def _pip_settings() -> tuple[str, list[Path]]:
    """A pip.conf with the indexes that pip has here, and the folders of this machine that it names."""
    done = subprocess.run(
        [sys.executable, "-m", "pip", "config", "list"], capture_output=True, text=True, check=False
    )
    settings: dict[str, str] = {}  # those of the environment come last, and count
    places: list[Path] = []
    for line in done.stdout.splitlines():
        name, _, value = line.partition("=")
        name, value = name.rpartition(".")[2], value.strip("'\"")
        if name not in ("index-url", "extra-index-url", "find-links", "proxy", "trusted-host", "timeout"):
            continue
        value = value.replace("\\n", " ")
        settings[name] = value
        for word in value.split():
            path = Path(word.removeprefix("file://"))
            # What lies beside a folder of an index is part of it: its links go there.
            place = path.parent if word.startswith("file://") else path
            if path.is_absolute() and place.exists() and place not in places:
                places.append(place)
    lines = [f"{name} = {value}\n" for name, value in settings.items()]
    return "".join(["[global]\n", *lines]), places
