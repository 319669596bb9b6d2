# SPDX-License-Identifier: Apache-2.0
"""Determines the wheels that a node's Python accepts, from its implementation, version, machine and libc.

Tags follow PEP 600 (manylinux) and PEP 656 (musllinux), the best first.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import cached_property
from types import MappingProxyType

from paddle_node.contract.classes import dataclass, regex

_OLDEST_GLIBC = 17
_OLDER: Mapping[str, int] = MappingProxyType({"x86_64": 5, "i686": 5})
_NAMED_BY_YEAR: Mapping[int, str] = MappingProxyType(
    {17: "manylinux2014", 12: "manylinux2010", 5: "manylinux1"}
)
_MUSL = ("musllinux_1_2", "musllinux_1_1", "musllinux_1_0")  # the musl under any Python 3.11 is 1.2
_32_BITS: Mapping[str, str] = MappingProxyType({"x86_64": "i686", "aarch64": "armv7l"})
_VERSION = regex(r"(\d{1,3})\.(\d{1,3})(\.\d{1,3})?")
_GLIBC = regex(r"glibc-2\.(\d{1,3})")
_WORD = regex(r"[a-z0-9_]{1,32}")


@dataclass(frozen=True)
class WheelPlatform:
    """The platform of a node's Python, which determines the wheels that it accepts.

    Attributes:
        version: Python's version, with all known parts: "3.11.2".
        flags: ABI flags, such as "t" of a free-threaded Python.
        machine: the machine as in wheel tags: "x86_64".
        libc: "glibc-2.36" or "musl".
    """

    implementation: str
    version: str
    flags: str
    machine: str
    libc: str

    def describe(self) -> str:
        """Return a short description of the platform, for messages."""
        release = ".".join(self.version.split(".")[:2]) + self.flags
        name = "CPython" if self.implementation == "cpython" else self.implementation
        return f"{name} {release} on {self.machine} with {self.libc.replace('-', ' ') or 'an unknown libc'}"

    @cached_property
    def abi(self) -> str:
        """Return the ABI tag, such as cp311."""
        major, minor = self.version.split(".")[:2]
        return f"cp{major}{minor}{self.flags}"

    @cached_property
    def tags(self) -> tuple[str, ...]:
        """Return the platform tags, the best first; none if the platform is unknown."""
        if self.implementation != "cpython":
            return ()
        if self.libc == "musl":
            return (f"linux_{self.machine}", *(f"{name}_{self.machine}" for name in _MUSL))
        found = _GLIBC.fullmatch(self.libc)
        if found is None:
            return ()
        tags = [f"linux_{self.machine}"]
        for minor in range(int(found[1]), _OLDER.get(self.machine, _OLDEST_GLIBC) - 1, -1):
            tags.append(f"manylinux_2_{minor}_{self.machine}")
            if minor in _NAMED_BY_YEAR:
                tags.append(f"{_NAMED_BY_YEAR[minor]}_{self.machine}")
        return tuple(tags)

    def markers(self) -> dict[str, str]:
        """Return the values for PEP 508 markers; those about the kernel are omitted."""
        release = ".".join(self.version.split(".")[:2])
        return {
            "implementation_name": "cpython",
            "implementation_version": self.version,
            "os_name": "posix",
            "platform_machine": self.machine,
            "platform_python_implementation": "CPython",
            "platform_system": "Linux",
            "python_full_version": self.version,
            "python_version": release,
            "sys_platform": "linux",
            "extra": "",
        }


def read(version: str, kind: Sequence[str]) -> WheelPlatform | None:
    """Return the platform that an interpreter's version and identity describe; None if it is unknown."""
    release = _VERSION.match(version)
    if len(kind) != 5 or release is None:
        return None
    implementation, flags, machine, bits, libc = kind
    if not _WORD.fullmatch(implementation) or not _WORD.fullmatch(machine):
        return None
    if bits == "32":
        machine = _32_BITS.get(machine, machine)
    return WheelPlatform(implementation, release[0], "t" if "t" in flags else "", machine, libc)
