# SPDX-License-Identifier: Apache-2.0
"""What the tests in containers share: the images, what a job over SSH learns, and when they are skipped."""

from __future__ import annotations

import os
from collections.abc import Generator, Iterator
from pathlib import Path

import pytest

from tests.cluster.hosts import Cluster
from tests.cluster.jobs.job import JobRunner
from tests.containers.images import Images, missing
from tests.containers.jobs import Learnt, learn_word2vec
from tests.containers.podman import Podman

ASKED = "PADDLE_TEST_CONTAINERS"  # run.sh of this folder says it


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    here = f"{Path(__file__).parent}/"
    for item in items:
        if str(item.path).startswith(here):
            item.add_marker(pytest.mark.timeout(1800))


def pytest_runtest_setup() -> None:
    if not os.environ.get(ASKED):
        pytest.skip("builds images, and runs by itself: sh tests/containers/run.sh")
    if reason := missing():
        pytest.skip(reason)


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport() -> Generator[None, pytest.TestReport, pytest.TestReport]:
    report = yield
    if report.skipped and os.environ.get(ASKED) and os.environ.get("CI") == "true":
        report.outcome = "failed"
        report.longrepr = f"in CI no test in containers may be skipped: {report.longrepr}"
    return report


@pytest.fixture(scope="session")
def podman() -> Iterator[Podman]:
    """podman, without any container, pod or secret of an earlier run; nobody else has it meanwhile."""
    with Podman.of_tests() as podman:
        yield podman


@pytest.fixture(scope="session")
def images(podman: Podman) -> Images:
    """The images of docker_cluster/, under the names that its files have."""
    return Images(podman)


@pytest.fixture
def job(cluster: Cluster, tmp_path: Path) -> JobRunner:
    """Starts jobs on hosts or, with another conf, in containers."""
    (tmp_path / "ws").mkdir()
    return JobRunner(cluster, tmp_path / "ws", tmp_path)


@pytest.fixture(scope="session")
def over_ssh(three_hosts: Cluster, tmp_path_factory: pytest.TempPathFactory) -> Learnt:
    """What word2vec learns on the test suite's own hosts, over SSH."""
    three_hosts.reset()
    scratch = tmp_path_factory.mktemp("over_ssh")
    return learn_word2vec(JobRunner(three_hosts, scratch / "ws", scratch))
