# SPDX-License-Identifier: Apache-2.0
"""What an environment of nodes is made from."""

from __future__ import annotations

import ast
import importlib.metadata
import sys
from pathlib import Path

import pytest
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

from paddle_cluster.config.requirements import NODE_PACKAGES, of_workspace, pins
from paddle_cluster.errors import WorkspaceError
from paddle_cluster.plan.wheel_platform import WheelPlatform

RUNTIME = Path(__file__).resolve().parents[3] / "runtime" / "paddle"
OPTIONAL = {"cupy", "mpi4py", "prometheus_client", "matplotlib", "PIL", "cv2", "IPython", "jax", "torch"}
IMPORTED_AS = {"zmq": "pyzmq", "zlib_ng": "zlib-ng"}


def on(version: str) -> dict[str, str]:
    return WheelPlatform("cpython", version, "", "x86_64", "glibc-2.36").markers()


@pytest.mark.parametrize("version", ["3.11.2", "3.12.0", "3.13.1"])
def test_every_package_is_locked_once_with_hashes(version: str) -> None:
    found = pins(on(version))
    assert tuple(pin.name for pin in found) == NODE_PACKAGES
    assert all(len(pin.hashes) > 1 or pin.name == "pycparser" for pin in found)


def test_the_version_is_the_one_for_the_nodes_python_not_the_launchers(tmp_path: Path) -> None:
    lock = tmp_path / "requirements.lock"
    lock.write_text(
        "".join(
            f"numpy=={version} ; python_full_version {when} '3.12' \\\n    --hash=sha256:{'a' * 64}\n"
            for version, when in (("1.0", "<"), ("2.0", ">="))
        )
    )
    old, new = (pins(on(version), lock) for version in ("3.11.9", "3.12.0"))
    assert [pin.version for pin in (*old, *new)] == ["1.0", "2.0"]


def test_what_the_runtime_imports_is_there_and_what_that_requires() -> None:
    imported = {
        name.partition(".")[0]
        for path in RUNTIME.rglob("*.py")
        for node in ast.walk(ast.parse(path.read_text()))
        for name in (
            [alias.name for alias in node.names]
            if isinstance(node, ast.Import)
            else [node.module or ""]
            if isinstance(node, ast.ImportFrom) and not node.level
            else []
        )
    }
    others = imported - set(sys.stdlib_module_names) - OPTIONAL - {"paddle", "paddle_node", ""}
    assert {IMPORTED_AS.get(name, name) for name in others} <= {*NODE_PACKAGES, "cryptography"}
    for package in NODE_PACKAGES:
        for text in importlib.metadata.requires(package) or ():
            need = Requirement(text)
            if need.marker is None or need.marker.evaluate(on("3.11.2")):
                assert canonicalize_name(need.name) in NODE_PACKAGES


def test_files_that_a_workspaces_file_names_count_and_one_that_is_missing_is_named(tmp_path: Path) -> None:
    assert of_workspace(tmp_path) is None
    (tmp_path / "requirements.txt").write_text("six\n-r more/other.txt\n")
    (tmp_path / "more").mkdir()
    (tmp_path / "more" / "other.txt").write_text("idna==3.7 --hash=sha256:00\n-r ../requirements.txt\n")
    found = of_workspace(tmp_path)
    assert found is not None
    assert found.is_hashed
    assert "idna" in found.text
    (tmp_path / "more" / "other.txt").unlink()
    with pytest.raises(WorkspaceError, match=r"cannot read .*other\.txt: No such file"):
        of_workspace(tmp_path)
