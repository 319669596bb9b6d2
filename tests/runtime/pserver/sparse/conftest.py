# SPDX-License-Identifier: Apache-2.0
from __future__ import annotations

import pytest

from paddle.kernels import library
from paddle.pserver.sparse import disk_file, index, rows


@pytest.fixture(params=["plain", "compiled"])
def form(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> object:
    """Tables of a test are in plain form, and then compiled."""
    if request.param == "compiled" and not library.level():
        pytest.skip(library.reason())
    for kernels in (index.KERNELS, rows.KERNELS, disk_file.KERNELS):
        if request.param == "plain":
            monkeypatch.setattr(kernels, "loaded", None)
    return request.param
