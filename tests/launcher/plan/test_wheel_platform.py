# SPDX-License-Identifier: Apache-2.0
"""Which wheels a node takes, by what it says of its Python."""

from __future__ import annotations

import os
import sys

import pytest
from packaging.tags import platform_tags

from paddle_cluster.plan.wheel_platform import WheelPlatform, read


def platform(*kind: str, version: str = "3.11.2") -> WheelPlatform:
    found = read(version, list(kind))
    assert found is not None
    return found


def test_the_tags_of_this_machine_are_those_that_packaging_finds() -> None:
    libc = (os.confstr("CS_GNU_LIBC_VERSION") or "musl").replace(" ", "-")
    here = platform("cpython", sys.abiflags, os.uname().machine, "64", libc)
    assert here.tags == tuple(platform_tags())


def test_an_older_libc_takes_fewer_wheels_and_musl_takes_its_own() -> None:
    new, old = (platform("cpython", "", "aarch64", "64", f"glibc-2.{minor}") for minor in (39, 26))
    assert "manylinux_2_28_aarch64" in new.tags
    assert "manylinux_2_28_aarch64" not in old.tags
    assert old.tags[-2:] == ("manylinux_2_17_aarch64", "manylinux2014_aarch64")
    musl = platform("cpython", "", "x86_64", "64", "musl")
    assert musl.tags[1] == "musllinux_1_2_x86_64"
    assert not any("manylinux" in tag for tag in musl.tags)


def test_a_python_of_32_bits_or_without_a_lock_takes_other_wheels() -> None:
    assert platform("cpython", "", "x86_64", "32", "glibc-2.31").tags[0] == "linux_i686"
    assert platform("cpython", "t", "x86_64", "64", "glibc-2.31", version="3.14.0rc1").abi == "cp314t"


@pytest.mark.parametrize(
    "kind", [(), ("cpython",), ("c d", "", "x86_64", "64", ""), ("cpython", "", "../x", "64", "")]
)
def test_what_makes_no_sense_is_no_platform(kind: tuple[str, ...]) -> None:
    assert read("3.11.2", list(kind)) is None


def test_nothing_is_known_of_the_wheels_of_other_implementations() -> None:
    assert platform("pypy", "", "x86_64", "64", "glibc-2.36").tags == ()
    assert platform("cpython", "", "x86_64", "64", "").tags == ()
