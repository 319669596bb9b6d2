# SPDX-License-Identifier: Apache-2.0
"""`paddle.dataset.common`: where scripts look for the cache and for files that trainers share."""

from __future__ import annotations

from paddle.dataset.download import data_home, download, md5file
from paddle.dataset.records import cluster_files_reader, convert, split

__all__ = ["DATA_HOME", "cluster_files_reader", "convert", "download", "md5file", "split"]  # noqa: F822  see __getattr__


def __getattr__(name: str) -> str:
    """DATA_HOME follows PADDLE_DATA_HOME, also when that is set after the import."""
    if name == "DATA_HOME":
        return str(data_home())
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
