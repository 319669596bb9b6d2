# SPDX-License-Identifier: Apache-2.0
"""What can go wrong with a data set's files."""

from __future__ import annotations

from pathlib import Path

from paddle.errors import PaddleError


class DatasetError(PaddleError):
    """A data set's file cannot be had, or does not hold what it should.

    Attributes:
        path: where the file is, or has to be put.
    """

    def __init__(self, path: str | Path, message: str) -> None:
        super().__init__(message)
        self.path = Path(path)
