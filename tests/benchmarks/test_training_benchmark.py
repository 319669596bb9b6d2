# SPDX-License-Identifier: Apache-2.0
"""benchmarks.training measures sides beside each other, and says which it could not have."""

from __future__ import annotations

import json
import sys
from pathlib import Path

import pytest

from benchmarks import training


def test_a_missing_peer_is_named_and_the_others_are_measured(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    # -S hides installed packages from the peer, whichever there are.
    peer = tmp_path / "python"
    peer.write_text(f'#!/bin/sh\nexec {sys.executable} -I -S "$@"\n')
    peer.chmod(0o755)
    written = tmp_path / "figures.json"
    argv = ["--quick", "--only", "operators", "--json", str(written), "--peers_python", str(peer)]
    assert training.main(argv) == 0
    found = json.loads(written.read_text())
    assert found["figures"]["operator_ours"]["median"] > 0
    assert found["figures"]["operator_torch"]["median"] is None
    assert "ended" in found["figures"]["operator_torch"]["why"]
    assert set(found["ratios"]) == {"operator_vs_numpy"}
    assert "operator_vs_torch" in capsys.readouterr().out
