# SPDX-License-Identifier: Apache-2.0
"""`paddle.dataset.common`: the cache of downloaded files, and functions that divide samples among trainers."""

from __future__ import annotations

from paddle.dataset.download import data_home, download, md5file
from paddle.dataset.records import cluster_files_reader, convert, split

__all__ = ["DATA_HOME", "cluster_files_reader", "convert", "download", "md5file", "split"]  # noqa: F822  see __getattr__


def __getattr__(name: str) -> str:
    """Return DATA_HOME, computed from the current value of PADDLE_DATA_HOME."""
    if name == "DATA_HOME":
        return str(data_home())
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
