# SPDX-License-Identifier: Apache-2.0
"""The benchmarks run from end to end with little work and say what failed or is missing; figures are nobody's test."""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from benchmarks import training
from benchmarks.asynchronous import run
from benchmarks.chaos.__main__ import campaign
from benchmarks.chaos.faults import blows
from benchmarks.chaos.faults import faults as chaos_faults
from benchmarks.collectives.sides import Ranks, installed
from benchmarks.durability import State, faults, main
from benchmarks.stragglers import Pauses, steady, took, turns
from tests.cluster.slurm import missing_slurm

ROOT = Path(__file__).resolve().parents[2]
RIGHT: list[list[State]] = [[(1, 0), (2, 1), (3, 2)], [(1, 1), (3, 2), (3, 3)]]
WRONG: dict[str, tuple[list[list[State]], State, str]] = {
    "a push is lost": (RIGHT, (2, 3), "trainer 0: 2 of 3 pushes are in the final state"),
    "a push counts twice": (RIGHT, (3, 4), "trainer 1: 4 of 3 pushes"),
    "an answer came without its push": (
        [[(1, 0), (1, 1), (3, 2)], RIGHT[1]],
        (3, 3),
        "push 2 was answered with 1 of its pushes",
    ),
    "the state went back": (
        [[(1, 0), (2, 2), (3, 1)], RIGHT[1]],
        (3, 3),
        r"trainer 0: \[2, 2\] before \[3, 1\]",
    ),
    "two histories": ([[(1, 0), (2, 0), (3, 3)], [(0, 1), (0, 2), (3, 3)]], (3, 3), "no order of pushes"),
    "an answer is missing": ([[(1, 0), (2, 1)], RIGHT[1]], (3, 3), "trainer 0: 2 answers to 3 pushes"),
}
NO_ROW = {"what": "", "unit": "s", "why": "", "sides": {}, "ratios": [], "load": [0, 0], "date": "2026-01-01"}
SEED = 7
RUNS = {"ssh": 2, "local": 2}  # each of another kind


@pytest.mark.slow
def test_a_slow_trainer_ends_with_the_others_and_every_trainer_tells_what_it_did() -> None:
    told, discarded = run("small", 3, 1, 4)
    assert [each["trainer"] for each in told] == [0, 1, 2]
    assert [each["steps"] for each in told[:2]] == [3, 3]
    assert all(each["distance"] < 1.0 for each in told)
    assert "discarded" in discarded


def test_a_job_that_fails_says_why() -> None:
    with pytest.raises(RuntimeError, match="KeyError: 'no model'"):
        run("no model", 3, 1, 1)


def test_ranks_take_turns_and_end() -> None:
    with Ranks("tcp", 2, sys.executable) as side:
        for sizes in ([4096], [400, 80_000]):
            took = side.steps(sizes, 3)
            assert [len(each) for each in took] == [3, 3]
            assert all(seconds > 0 for each in took for seconds in each)


def test_ranks_that_cannot_start_say_why() -> None:
    with pytest.raises(RuntimeError, match="KeyError: 'none'"):
        Ranks("none", 1, sys.executable)
    assert installed(sys.executable, "numpy")
    assert not installed(sys.executable, "no_such_package_here")


@pytest.mark.parametrize("delays", [steady, turns])
def test_all_ways_have_the_same_number_of_batches(delays: Callable[[int, bool], Pauses]) -> None:
    for batches in (36, 450):
        assert [sum(map(len, delays(batches, shared))) for shared in (True, False)] == [batches] * 2


def test_trainers_end_with_a_time_or_say_why_not() -> None:
    assert took({"sync_mode": False}, [[0.0] * 3, [0.0]]) > 0
    with pytest.raises(RuntimeError, match="k_steps: expected 1 or more"):
        took({"k_steps": 0}, [[0.0]] * 2)


def test_a_missing_peer_is_named_and_the_others_are_measured(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    # -S hides installed packages from the peer, whichever there are.
    peer = tmp_path / "python"
    peer.write_text(f'#!/bin/sh\nexec "{sys.executable}" -I -S "$@"\n')
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


@pytest.mark.cluster
@pytest.mark.slow
@pytest.mark.timeout(300)
def test_a_quick_run_fills_the_table_and_the_file(tmp_path: Path) -> None:
    target = tmp_path / "figures.json"
    done = subprocess.run(
        [sys.executable, "-m", "benchmarks.launch", "--quick", "--hosts", "2", "--json", str(target)],
        cwd=ROOT,
        capture_output=True,
        text=True,
        timeout=280,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    found = json.loads(target.read_text())
    assert set(found) == {"machine", "figures", "ratios"}
    engines = {"openmpi": not shutil.which("mpirun"), "slurm": missing_slurm()}
    assert {
        "start_2_vs_openssh",
        "cold_2_vs_openssh_tar",
        "unchanged_2_vs_rsync",
        "dispatch_100MB_2_vs_openssh",
        "relay_100MB_2_vs_one_copy",
        *(f"start_{name}_2_vs_tool" for name, is_missing in engines.items() if not is_missing),
    } <= set(found["ratios"]), done.stdout
    assert found["figures"]["left_2_ours"]["median"] == 0
    sent = found["figures"]["cold_2_100MB_openssh_tar_sent"]["median"]
    assert 4.0 < sent < 4.4  # 2 MB to each of two hosts, counted at the device
    assert "start_2_vs_openssh" in done.stdout


@pytest.mark.cluster
@pytest.mark.timeout(120)
def test_what_users_wait_for_is_measured_from_any_path_to_python(tmp_path: Path) -> None:
    # By a link from a directory that hosts do not have, and not straight.
    (tmp_path / "here").mkdir()
    (tmp_path / "there").symlink_to(sys.prefix)
    kept, doc = tmp_path / "rows.json", tmp_path / "doc.md"
    kept.write_text(json.dumps({"rows": {"lstm": {**NO_ROW, "lacking": {"torch": "not there"}}}}))
    doc.write_text("before\n<!-- whole -->\n<!-- /whole -->\nafter\n")
    plotted = tmp_path / "rows.svg"
    argv = ["--quick", "--only=whole_3,push_4KB_w1", f"--json={kept}", f"--write={doc}", f"--plot={plotted}"]
    done = subprocess.run(
        [
            f"../there/bin/{Path(sys.executable).name}",
            "-m",
            "benchmarks.whole",
            *argv,
            "--peers_python=/bin/false",
        ],
        cwd=tmp_path / "here",
        env=os.environ | {"PYTHONPATH": str(ROOT)},
        capture_output=True,
        text=True,
        timeout=100,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    rows = json.loads(kept.read_text())["rows"]
    assert set(rows) == {"lstm", "whole_3", "push_4KB_w1"}
    (first, *_) = rows["whole_3"]["ratios"]
    assert (first["ours"], first["theirs"]) == ("ours", "openssh"), rows["whole_3"]
    assert first["low"] == first["ratio"] == first["high"] > 0
    assert re.search(r"run `true` on 3 hosts \(whole command, cached\) {2,}ours", done.stdout), done.stdout
    assert "| run `true` on 3 hosts (whole command, cached) |" in doc.read_text()
    assert doc.read_text().startswith("before\n")
    assert doc.read_text().endswith("after\n")
    assert "not measured (lstm): torch: not there" in done.stdout
    assert "above 1, paddle-cluster is faster" in plotted.read_text()


@pytest.mark.cluster
def test_an_unknown_measurement_is_named(tmp_path: Path) -> None:
    done = subprocess.run(
        [sys.executable, "-m", "benchmarks.launch", "--only", "startt"],
        cwd=ROOT,
        capture_output=True,
        text=True,
        timeout=30,
        check=False,
    )
    assert done.returncode == 2
    assert "'startt': expected one of start, dispatch_2MB, " in done.stderr


def test_a_history_in_which_every_push_is_there_once_is_right() -> None:
    assert faults(RIGHT, (3, 3), 3) == []


@pytest.mark.parametrize("what", WRONG)
def test_a_wrong_history_is_told_from_a_right_one(what: str) -> None:
    seen, final, expected = WRONG[what]
    assert any(re.search(expected, text) for text in faults(seen, final, 3))


@pytest.mark.slow
@pytest.mark.timeout(300)
def test_whole_jobs_whose_servers_are_killed_lose_nothing(tmp_path: Path) -> None:
    little = [
        "--kills=1",
        "--kills_a_job=1",
        "--steps=40",
        "--a_kill_may_cost=inf",
    ]  # what it costs is nobody's test
    assert main([*little, "--json", str(tmp_path / "figures.json")]) == 0


def test_the_same_seed_gives_the_same_blows_and_every_fault() -> None:
    assert list(blows(SEED, 200, "ssh")) == list(blows(SEED, 200, "ssh"))
    assert {blow.fault for blow in blows(SEED, 200, "ssh")} == set(chaos_faults(str))
    assert {blow.number for blow in blows(SEED, 200, "ssh")} == {"INT", "TERM", "HUP", "KILL"}
    assert not any(blow.fault.startswith("link") for blow in blows(SEED, 200, "local"))


@pytest.mark.cluster
@pytest.mark.parametrize("where", ["ssh", "local"])
@pytest.mark.timeout(600)
def test_random_faults_at_random_moments_break_no_promise(where: str) -> None:
    outcomes = list(campaign(where, SEED, RUNS[where]))
    assert [outcome for outcome in outcomes if outcome.broken] == []
    assert any(outcome.of for outcome in outcomes)


def test_simulated_nodes_do_a_whole_job_of_the_launcher_as_it_is(tmp_path: Path) -> None:
    command = (sys.executable, "-P", "-m", "benchmarks.fleet")
    done = subprocess.run(
        (*command, "--nodes=12", "--processes=2", "--seconds=1", f"--json={tmp_path / 'found.json'}"),
        env=os.environ | {"PYTHONPATH": f"{ROOT / 'runtime'}:{ROOT}"},
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    found = json.loads((tmp_path / "found.json").read_text())["figures"]
    assert found["lines"]["median"] >= 24
    assert found["lost_of_nodes"]["median"] == found["lost_of_job_log"]["median"] == 0
