# SPDX-License-Identifier: Apache-2.0
"""CRC-32 of large buffers without the interpreter's lock: by zlib-ng, or slower by zlib, where a node has no other."""

from __future__ import annotations

try:
    from zlib_ng.zlib_ng import crc32
except ImportError:
    from zlib import crc32

__all__ = ["crc32"]
