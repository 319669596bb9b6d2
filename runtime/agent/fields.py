# SPDX-License-Identifier: Apache-2.0
"""Reads header fields with their types; what is missing or of another type is a ValueError that names it."""

from __future__ import annotations

import os
from typing import Dict, List, Optional

from agent.protocol import Fields


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
    """A finite number that is not negative."""
    value = fields.get(name, default)
    if isinstance(value, bool) or not isinstance(value, (int, float)) or not 0 <= value < float("inf"):
        raise ValueError("%s must be a number >= 0, got %.80r" % (name, value))
    return value


def whole(fields: Fields, name: str) -> int:
    """A whole number that is not negative."""
    value = fields.get(name)
    if isinstance(value, bool) or not isinstance(value, int) or value < 0:
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


def relative_path(path: str) -> str:
    """A path that stays below where it is put.

    Raises:
        ValueError: it is absolute, empty, has a NUL byte, or has an empty, `.` or `..` part.
    """
    parts = path.split("/")
    if "\0" in path or any(part in ("", ".", "..") for part in parts) or os.path.isabs(path):
        raise ValueError("%.200r is no path inside the job directory" % path)
    return path
