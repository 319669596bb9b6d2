# SPDX-License-Identifier: Apache-2.0
"""check_ids: warns of a batch whose words all have one id, usually that of unknown words."""

from __future__ import annotations

import logging
from collections.abc import Mapping
from typing import Any

from paddle.ops.base.lod import plain
from paddle.v2.data_type import DataType, InputType

_log = logging.getLogger(__name__)

_MANY_IDS, _WIDE = 50, 10  # a first batch with as many equal ids of so wide a type is suspicious


def check_ids(feed: Mapping[str, Any], name: str, kind: InputType) -> None:
    """Warn if all words of a batch have one id: Python 3 finds no bytes among the str keys of a dictionary."""
    if kind.type == DataType.SparseNonValue:
        ids, count = feed[f"{name}.columns"], int(plain(feed[f"{name}.matrix"]).sum())
    elif kind.type == DataType.Index and kind.seq_type:
        ids = plain(feed[name])
        count = len(ids)
    else:
        return
    if kind.dim >= _WIDE and count >= _MANY_IDS and (ids == ids[0]).all():
        _log.warning(
            "data layer %r: all %d ids of the first batch are %d. If they come from a dictionary of words, check that "
            "files are read as text: gzip.open(path, 'rt'), and open(path) instead of open(path, 'rb')",
            name,
            count,
            ids[0, 0],
        )
