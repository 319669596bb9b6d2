# SPDX-License-Identifier: Apache-2.0
"""Reads header fields with their types; what is missing or of another type is a ValueError that names it."""

from __future__ import annotations

import os
import re
from typing import Dict, List, Optional

from paddle_node.agent.link.protocol import Fields

PATH_LIMIT = 4096  # bytes, as the kernel's
_TOO_LARGE = 1 << 62
_LONGEST_S = 10 * 366 * 24 * 3600.0
_JOB_ID = re.compile("[A-Za-z0-9._-]{1,128}")


def text(fields: Fields, name: str) -> str:
    """A string."""
    value = fields.get(name)
    if not isinstance(value, str):
        raise ValueError("%s must be a text, got %.80r" % (name, value))
    return value


def text_or_none(fields: Fields, name: str) -> Optional[str]:
    """A string, or None where it is null or not there."""
    return None if fields.get(name) is None else text(fields, name)


def texts(fields: Fields, name: str) -> List[str]:
    """A list of strings; empty where it is not there."""
    value = fields.get(name) or []
    if not isinstance(value, list) or not all(isinstance(item, str) for item in value):
        raise ValueError("%s must be a list of texts, got %.80r" % (name, value))
    return value


def number(fields: Fields, name: str, default: Optional[float] = None) -> float:
    """A number that is not negative, and not so large that no clock or disk could hold it."""
    value = fields.get(name, default)
    if isinstance(value, bool) or not isinstance(value, (int, float)) or not 0 <= value < _TOO_LARGE:
        raise ValueError("%s must be a number >= 0, got %.80r" % (name, value))
    return value


def seconds(fields: Fields, name: str, default: Optional[float] = None) -> float:
    """A time span, ten years at most: the operating system waits no longer."""
    return min(number(fields, name, default), _LONGEST_S)


def whole(fields: Fields, name: str) -> int:
    """A whole number that is not negative."""
    value = fields.get(name)
    if isinstance(value, bool) or not isinstance(value, int) or not 0 <= value < _TOO_LARGE:
        raise ValueError("%s must be a whole number >= 0, got %.80r" % (name, value))
    return value


def whole_numbers(fields: Fields, name: str) -> List[int]:
    """A list of whole numbers; empty where it is not there."""
    value = fields.get(name) or []
    if not isinstance(value, list):
        raise ValueError("%s must be a list of whole numbers, got %.80r" % (name, value))
    return [whole({name: item}, name) for item in value]


def names_and_texts(fields: Fields, name: str) -> Dict[str, str]:
    """A mapping of strings to strings; empty where it is not there."""
    value = fields.get(name) or {}
    if not isinstance(value, dict) or not all(isinstance(item, str) for item in value.values()):
        # no value in the message: it may be secret
        raise ValueError("%s must map texts to texts" % name)
    return value


def job_id(fields: Fields, name: str) -> str:
    """A job's id: its processes are found by it, so that it must be a word of its own."""
    value = text(fields, name)
    if _JOB_ID.fullmatch(value) is None:
        raise ValueError("%s must be 1 to 128 letters, digits, dots, dashes, got %.80r" % (name, value))
    return value


def relative_path(path: str) -> str:
    """A path that stays below where it is put.

    Raises:
        ValueError: it is absolute, empty, too long, has a NUL byte, or has an empty, `.` or `..` part.
    """
    if len(path) > PATH_LIMIT:
        raise ValueError("%.80r... is longer than any path" % path)
    parts = path.split("/")
    if "\0" in path or any(part in ("", ".", "..") for part in parts) or os.path.isabs(path):
        raise ValueError("%.200r is no path inside the job directory" % path)
    return path
