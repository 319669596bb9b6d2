# SPDX-License-Identifier: Apache-2.0
from __future__ import annotations

from collections.abc import Iterator

import pytest

import paddle.fluid as fluid


@pytest.fixture(autouse=True)
def own_programs() -> Iterator[None]:
    """Each test has programs, names and a scope of its own."""
    with (
        fluid.program_guard(fluid.Program(), fluid.Program()),
        fluid.unique_name.guard(),
        fluid.scope_guard(fluid.Scope()),
    ):
        yield
