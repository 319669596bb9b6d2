# SPDX-License-Identifier: Apache-2.0
"""The hook that JAX loads by itself: its Gloo gets the interface of the job; JAX itself is played by a few lines."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

HOOKS = Path(__file__).resolve().parents[2] / "runtime" / "paddle" / "hooks"
LOADS = """
import importlib, pkgutil
import jax_plugins  # as jax._src.xla_bridge does
for _, name, _ in pkgutil.iter_modules(jax_plugins.__path__, "jax_plugins."):
    importlib.import_module(name).initialize()
from jax._src import xla_bridge
print(xla_bridge.collectives())
"""
BRIDGE = """
class _jax:
    @staticmethod
    def {function}(distributed_client, hostname=None, interface=None):
        return [distributed_client, hostname, interface]
def collectives():
    return _jax.{function}(distributed_client="client")
"""


def collectives(folder: Path, function: str, **env: str) -> str:
    source = folder / "jax" / "_src"
    source.mkdir(parents=True)
    (source.parent / "__init__.py").touch()
    (source / "__init__.py").touch()
    (source / "xla_bridge.py").write_text(BRIDGE.format(function=function))
    (folder / "jax_plugins" / "another").mkdir(parents=True)  # a plugin of the user, in the same namespace
    (folder / "jax_plugins" / "another" / "__init__.py").write_text("def initialize(): print('another')")
    path = os.pathsep.join(map(str, (HOOKS, folder)))
    done = subprocess.run(
        [sys.executable, "-c", LOADS],
        env={"PATH": os.environ["PATH"], "PYTHONPATH": path, **env},
        capture_output=True,
        text=True,
        timeout=30,
    )
    assert done.stderr == ""
    assert "another\n" in done.stdout
    return done.stdout.splitlines()[-1]


@pytest.mark.parametrize(
    ("function", "env", "got"),
    [
        ("make_gloo_tcp_collectives", {"GLOO_SOCKET_IFNAME": "eth0"}, "['client', None, 'eth0']"),
        ("make_gloo_tcp_collectives", {"GLOO_SOCKET_IFNAME": ""}, "['client', None, None]"),
        ("make_gloo_tcp_collectives", {}, "['client', None, None]"),
        ("make_it_otherwise", {"GLOO_SOCKET_IFNAME": "eth0"}, "['client', None, None]"),
    ],
)
def test_jaxs_gloo_uses_the_interface_that_the_job_names(
    tmp_path: Path, function: str, env: dict[str, str], got: str
) -> None:
    assert collectives(tmp_path, function, **env) == got
