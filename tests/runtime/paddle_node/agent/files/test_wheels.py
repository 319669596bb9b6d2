# SPDX-License-Identifier: Apache-2.0
"""What a wheel may do to a node, and what it may not."""

from __future__ import annotations

import stat
import zipfile
from pathlib import Path

import pytest

from paddle_node.agent.files.wheels import unpack

LIMIT = 1 << 20


def wheel(folder: Path, **members: str) -> tuple[str, str]:
    path = folder / "x-1.0-py3-none-any.whl"
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as archive:
        for name, content in members.items():
            archive.writestr(name, content)
    return path.name, str(path)


def below(folder: Path) -> set[str]:
    return {str(path.relative_to(folder)) for path in folder.rglob("*") if path.is_file()}


@pytest.fixture
def target(tmp_path: Path) -> Path:
    folder = tmp_path / "in" / "target"
    folder.mkdir(parents=True)
    return folder


def test_what_is_for_site_packages_lies_at_the_top_and_scripts_can_be_run(
    tmp_path: Path, target: Path
) -> None:
    name, path = wheel(
        tmp_path, **{"x/__init__.py": "", "x-1.0.data/purelib/y.py": "", "x-1.0.data/data/share/z": ""}
    )
    with zipfile.ZipFile(path, "a") as archive:
        script = zipfile.ZipInfo("x-1.0.data/scripts/x")
        script.external_attr = (stat.S_IFREG | 0o755) << 16
        archive.writestr(script, "#!/bin/sh\n")
    list(unpack([(name, path)], str(target), LIMIT))
    assert below(target) == {"x/__init__.py", "y.py", "share/z", "bin/x"}
    assert (target / "bin" / "x").stat().st_mode & 0o100


@pytest.mark.parametrize(
    "name",
    [
        "../x.py",
        "a/../../x.py",
        "/etc/x.py",
        "./x.py",
        "x-1.0.data/purelib/../../x.py",
        "x-1.0.data/lib/x",
        "a//b",
    ],
)
def test_a_path_that_leads_outside_is_refused(tmp_path: Path, target: Path, name: str) -> None:
    with pytest.raises(ValueError, match=r"cannot unpack x-1\.0-py3-none-any\.whl"):
        list(unpack([wheel(tmp_path, **{name: "evil"})], str(target), LIMIT))
    assert below(tmp_path) == {"x-1.0-py3-none-any.whl"}


def test_a_link_is_refused(tmp_path: Path, target: Path) -> None:
    name, path = wheel(tmp_path)
    with zipfile.ZipFile(path, "a") as archive:
        link = zipfile.ZipInfo("link")
        link.external_attr = (stat.S_IFLNK | 0o777) << 16
        archive.writestr(link, "/etc")
    with pytest.raises(ValueError, match="not a regular file"):
        list(unpack([(name, path)], str(target), LIMIT))


def test_no_more_bytes_come_of_wheels_than_were_announced(tmp_path: Path, target: Path) -> None:
    with pytest.raises(ValueError, match="larger than the manifest"):
        list(unpack([wheel(tmp_path, zeros="0" * LIMIT, more="0")], str(target), LIMIT))


def test_damaged_wheels_are_refused_by_name(tmp_path: Path, target: Path) -> None:
    name, path = wheel(tmp_path, text="content " * 100)
    data = bytearray(Path(path).read_bytes())
    data[40] ^= 0xFF  # within the compressed text
    Path(path).write_bytes(data)
    with pytest.raises(ValueError, match=name):
        list(unpack([(name, path)], str(target), LIMIT))
    Path(path).write_bytes(b"no zip")
    with pytest.raises(ValueError, match=name):
        list(unpack([(name, path)], str(target), LIMIT))
