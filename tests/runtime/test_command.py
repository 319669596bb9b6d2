# SPDX-License-Identifier: Apache-2.0
"""The `paddle` command as a process."""

from __future__ import annotations

import os
import re
import signal
import socket
import subprocess
import sys
from pathlib import Path

import pytest

RUNTIME = Path(__file__).resolve().parents[2] / "runtime"


def paddle(*arguments: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-P", "-m", "paddle", *arguments],
        env={"PATH": os.environ["PATH"], "PYTHONPATH": str(RUNTIME)},
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )


def test_version_has_the_lines_of_release_0_11_0() -> None:
    done = paddle("version")
    assert done.returncode == 0
    first, *rest = done.stdout.splitlines()
    assert first == "PaddlePaddle 0.11.0, compiled with"
    found = [re.fullmatch(r"    (\w+): (ON|OFF)", line) for line in rest]
    assert all(found)
    names = [match[1] for match in found if match]
    assert names == [
        "with_avx",
        "with_gpu",
        "with_mkl",
        "with_mkldnn",
        "with_double",
        "with_python",
        "with_rdma",
        "with_timer",
    ]


@pytest.mark.skipif(not Path("/proc/cpuinfo").exists(), reason="needs /proc/cpuinfo")
def test_version_tells_the_truth_about_the_processor() -> None:
    has_avx = re.search(r"^flags.*\bavx\b", Path("/proc/cpuinfo").read_text(), re.MULTILINE)
    assert f"with_avx: {'ON' if has_avx else 'OFF'}" in paddle("version").stdout


@pytest.mark.parametrize("arguments", [(), ("--help",), ("nonsense",)])
def test_the_usage_names_every_command(arguments: tuple[str, ...]) -> None:
    done = paddle(*arguments)
    lines = done.stdout.splitlines()
    assert lines[0] == "usage: paddle [--help] [<args>]"
    commands = [line.split()[0] for line in lines if line.startswith("    ")]
    of_the_original = ["train", "merge_model", "pserver", "version", "dump_config", "make_diagram"]
    assert commands == [
        *of_the_original,
        "tables",
        "serve",
        "pserver-leave",
        "launch",
        "launch_ps",
        "launch_v2",
    ]
    assert done.returncode == (1 if "nonsense" in arguments else 0)


def test_every_command_of_the_usage_is_there() -> None:
    for line in paddle().stdout.splitlines():
        if line.startswith("    ") and (command := line.split()[0]) != "pserver-leave":
            assert "unknown command" not in paddle(command, "--help").stderr


def test_serve_asks_for_a_token_before_it_waits_for_servers() -> None:
    assert (
        "--token_file"
        in paddle("serve", "--servers=127.0.0.1:1", "--host=0.0.0.0", "--timeout_s=3000").stderr
    )


def test_serve_ends_without_a_traceback_while_it_waits_for_servers() -> None:
    with socket.create_server(("127.0.0.1", 0)) as silent:
        port = silent.getsockname()[1]
        with subprocess.Popen(
            [sys.executable, "-P", "-m", "paddle", "serve", f"--servers=127.0.0.1:{port}"],
            env={"PATH": os.environ["PATH"], "PYTHONPATH": str(RUNTIME)},
            stderr=subprocess.PIPE,
            text=True,
        ) as serve:
            silent.settimeout(60)
            with silent.accept()[0]:
                serve.terminate()
                assert serve.communicate(timeout=60)[1] == ""
            assert serve.returncode == 0


def test_ctrl_c_ends_a_command_without_a_traceback() -> None:
    with socket.create_server(("127.0.0.1", 0)) as silent:
        silent.settimeout(60)
        with subprocess.Popen(
            [
                sys.executable,
                "-P",
                "-m",
                "paddle",
                "tables",
                "list",
                f"--servers=127.0.0.1:{silent.getsockname()[1]}",
            ],
            env={"PATH": os.environ["PATH"], "PYTHONPATH": str(RUNTIME)},
            stderr=subprocess.PIPE,
            text=True,
        ) as tables:
            with silent.accept()[0]:
                tables.send_signal(signal.SIGINT)
                assert tables.communicate(timeout=60)[1] == ""
            # Python ends by the signal if it arrived within `eval`, as in an import; a shell reports 130 for both.
            assert tables.returncode in (130, -signal.SIGINT)


def test_the_command_that_reports_usage_is_refused() -> None:
    done = paddle("usage")
    assert (done.returncode, done.stdout) == (1, "")
    assert "no usage statistics are collected" in done.stderr


def test_help_of_train_lists_its_flags() -> None:
    done = paddle("train", "--help")
    assert done.returncode == 0
    assert "--load_missing_parameter_strategy" in done.stdout


def test_help_of_pserver_lists_its_flags() -> None:
    done = paddle("pserver", "--help")
    assert done.returncode == 0
    assert "--ports_num_for_sparse" in done.stdout


def test_importing_the_package_loads_no_heavy_library() -> None:
    code = "import sys, paddle; print(sorted({'numpy', 'zmq', 'cupy'} & set(sys.modules)))"
    done = subprocess.run(
        [sys.executable, "-c", code],
        env={"PYTHONPATH": str(RUNTIME)},
        capture_output=True,
        text=True,
        timeout=60,
        check=True,
    )
    assert done.stdout == "[]\n"
