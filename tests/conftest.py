# SPDX-License-Identifier: Apache-2.0
"""What every test gets: skips with a reason, the shared cluster, and a check that nothing is left running."""

from __future__ import annotations

import contextlib
import gc
import os
import signal
import subprocess
import sys
from collections.abc import Generator, Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import hypothesis
import pytest

from paddle.kernels import build
from tests.beside import Beside, check_nothing_left, in_order, scenarios_of
from tests.cluster.hosts import Cluster, missing_tools
from tests.gpus import missing_gpu
from tests.leaks import Belongings

if TYPE_CHECKING:
    from xdist.remote import Producer
    from xdist.scheduler import Scheduling

# The tests start hundreds of Python processes: modules are compiled once, not by each process and each worker.
os.environ.pop("PYTHONDONTWRITEBYTECODE", None)
sys.dont_write_bytecode = False
# Few cores and many processes: one thread each, or they thrash. numpy is imported later.
os.environ |= dict.fromkeys(("OPENBLAS_NUM_THREADS", "OMP_NUM_THREADS", "MKL_NUM_THREADS"), "1")

hypothesis.settings.register_profile(
    "busy", deadline=None
)  # machines stall: no time of an example says anything
hypothesis.settings.load_profile("busy")


def _must_run_cluster() -> bool:
    return os.environ.get("CI") == "true" and os.geteuid() == 0


def pytest_configure(config: pytest.Config) -> None:
    """Compile kernels and a new clone's tests once for all workers; without a compiler tests of kernels skip."""
    if not hasattr(config, "workerinput"):
        with contextlib.suppress(build.NoCompiler):
            build.build_here(may_download=False)
        if config.getoption("numprocesses", None) and config.args_source is config.ArgsSource.TESTPATHS:
            _compile_tests()


def _compile_tests() -> None:
    """Collect the tests of a new clone, a half beside the other, for what pytest keeps in __pycache__."""
    here = Path(__file__).parent
    if any(here.glob("runtime/__pycache__/*-pytest-*.pyc")):
        return
    runtime = str(here / "runtime")
    argv = [sys.executable, "-m", "pytest", "--collect-only", "-qq", str(here)]
    halves = ([*argv[:-1], runtime], [*argv, f"--ignore={runtime}"])
    collecting = [subprocess.Popen(half, cwd=here.parent, stdout=subprocess.DEVNULL) for half in halves]
    for half in collecting:
        half.wait()


def pytest_runtest_setup(item: pytest.Item) -> None:
    if item.get_closest_marker("cluster") and (reason := missing_tools()):
        pytest.skip(reason)
    if item.get_closest_marker("gpu") and (reason := missing_gpu()):
        pytest.skip(reason)


def pytest_sessionstart() -> None:
    """Runs in the background (`&`, nohup) ignore keys and hang-ups; what tests start must hear them all the same."""
    for number in (signal.SIGINT, signal.SIGQUIT, signal.SIGHUP):
        if signal.getsignal(number) is signal.SIG_IGN:
            # Ignored here still, but not in what is started.
            signal.signal(number, lambda *_: None)


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(
    item: pytest.Item,
) -> Generator[None, pytest.TestReport, pytest.TestReport]:
    report = yield
    if report.skipped and item.get_closest_marker("cluster") and _must_run_cluster():
        report.outcome = "failed"
        report.longrepr = (
            f"as root in CI every cluster test must run, this one was skipped: {report.longrepr}"
        )
    return report


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    items[:] = in_order(items)


@pytest.hookimpl(wrapper=True)
def pytest_collection() -> Generator[None, object, object]:
    """Keep the garbage collector from looking through thousands of tests and their modules again and again."""
    gc.disable()
    result = yield
    gc.collect()
    gc.freeze()
    gc.enable()
    return result


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_make_scheduler(config: pytest.Config, log: Producer) -> Scheduling:
    """See `tests.shares`, which needs xdist."""
    from tests.shares import Shares

    return Shares(config, log)


@pytest.fixture
def small_disk(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Path]:
    """A file system in memory, limited by the test's parameter, such as size=64k."""
    if os.geteuid() != 0:
        pytest.skip("needs root to mount a small disk")
    folder = tmp_path / "small"
    folder.mkdir()
    options = f"{request.param},mode=0700"
    subprocess.run(["mount", "-t", "tmpfs", "-o", options, "tmpfs", str(folder)], check=True)
    yield folder
    subprocess.run(["umount", "-l", str(folder)], check=True)


@pytest.fixture(scope="session", autouse=True)
def jobs_apart(tmp_path_factory: pytest.TempPathFactory) -> None:
    """Jobs of tests keep their state away from those of the person who runs them."""
    os.environ["PADDLE_STATE_DIR"] = str(tmp_path_factory.mktemp("jobs"))


@pytest.fixture(scope="session")
def beside(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Beside]:
    """What runs the scenarios of all modules."""
    beside = Beside(request.session.items, tmp_path_factory.mktemp("beside"))
    yield beside
    beside.close()


@pytest.fixture(scope="session")
def three_hosts() -> Iterator[Cluster]:
    """Three hosts for the whole session, as the last test left them; most tests want `cluster`."""
    with Cluster(3) as cluster:
        cluster.has_launched()
        yield cluster


@pytest.fixture
def cluster(three_hosts: Cluster) -> Iterator[Cluster]:
    """Three hosts, power-cycled, with empty disks; a test may break them in any way."""
    three_hosts.reset()
    yield three_hosts
    three_hosts.end_launches()


@pytest.fixture(autouse=True)
def nothing_left_running(request: pytest.FixtureRequest) -> Iterator[None]:
    """Fails a test that leaves a thread, a child process or an open socket behind."""
    if scenarios_of(request.node) is not None:  # others still run; `Beside` looks when all have ended
        yield
        return
    before = Belongings.now()
    yield
    check_nothing_left(before)
