# SPDX-License-Identifier: Apache-2.0
from __future__ import annotations

import os
import time

import pytest

from agent.processes.spawn import spawn


def test_a_start_on_a_file_system_that_hangs_is_given_up_and_names_it(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(os, "chdir", lambda _path: time.sleep(600))
    with pytest.raises(TimeoutError, match="file system of /mnt/dead, or of true, still answer"):
        spawn(["true"], {"PATH": os.environ["PATH"]}, "/mnt/dead", 1, limit_s=0.2)
    _, status = os.wait()
    assert os.WIFSIGNALED(status)
