# SPDX-License-Identifier: Apache-2.0
"""Jobs that mostly wait, run beside each other: each on hosts of its own, each a test of its own.

    scenarios = Scenarios()

    @scenarios.add
    def a_frozen_trainer_ends_the_job(cluster: Cluster, job: JobRunner, oracle: Oracle) -> None: ...

    outcomes = scenarios.fixture()

    @pytest.mark.parametrize("scenario", scenarios)
    def test_whatever_happens(scenario: str, outcomes: Outcomes) -> None:
        outcomes.of(scenario)

The scenarios that this run of pytest selected are all run before the first of the tests; a test then raises what its
scenario raised.
"""

from __future__ import annotations

import contextlib
import queue
import re
import shutil
from collections.abc import Callable, Collection, Iterator, Mapping
from concurrent.futures import Future, ThreadPoolExecutor
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from tests.cluster.hosts import Cluster
from tests.cluster.job import ACTS, JobRunner
from tests.cluster.oracle import Oracle

AT_ONCE = 4  # more would wait for processors rather than for time to pass
HOSTS = 3

Scenario = Callable[[Cluster, JobRunner, Oracle], None]


class Outcomes:
    """How scenarios ended."""

    def __init__(self, runs: Mapping[str, Future[None]]) -> None:
        self._runs = runs

    def of(self, scenario: str) -> None:
        """Raises what this scenario raised."""
        self._runs[scenario].result(timeout=0)


class Scenarios(Collection[str]):
    """The scenarios of one module, by name."""

    def __init__(self) -> None:
        self._scenarios: dict[str, Scenario] = {}

    def __iter__(self) -> Iterator[str]:
        return iter(self._scenarios)

    def __len__(self) -> int:
        return len(self._scenarios)

    def __contains__(self, name: object) -> bool:
        return name in self._scenarios

    def add(self, scenario: Scenario) -> Scenario:
        """Adds a function; a decorator."""
        self._scenarios[scenario.__name__] = scenario
        return scenario

    def each(self, *cases: str) -> Callable[[Callable[..., None]], Callable[..., None]]:
        """Adds a function once for each case, which is its first argument; a decorator."""

        def add(scenario: Callable[..., None]) -> Callable[..., None]:
            self._scenarios.update(
                {f"{scenario.__name__}: {case}": partial(scenario, case) for case in cases}
            )
            return scenario

        return add

    def fixture(self) -> Any:
        """A fixture of the module that runs the selected scenarios and yields their `Outcomes`."""

        @pytest.fixture(scope="module")
        def outcomes(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Outcomes:
            wanted = _selected(request)
            return Outcomes(self._run(wanted, tmp_path_factory.mktemp("beside")))

        return outcomes

    def _run(self, wanted: list[str], scratch: Path) -> dict[str, Future[None]]:
        with _Places(scratch) as places, ThreadPoolExecutor(AT_ONCE) as pool:
            return {name: pool.submit(places.run, name, self._scenarios[name]) for name in wanted}


class _Places:
    """Clusters, as many as scenarios go on at once; used again for the next one."""

    def __init__(self, scratch: Path) -> None:
        self._scratch = scratch
        self._free: queue.SimpleQueue[Cluster] = queue.SimpleQueue()
        self._made = contextlib.ExitStack()

    def __enter__(self) -> _Places:
        return self

    def __exit__(self, *error: object) -> None:
        self._made.close()

    def run(self, name: str, scenario: Scenario) -> None:
        """Runs one scenario on hosts that nobody else uses meanwhile."""
        cluster = self._take()
        try:
            folder = self._scratch / re.sub(r"\W+", "_", name)
            folder.mkdir()
            shutil.copytree(ACTS, folder / "ws")
            oracle = Oracle(cluster)
            try:
                scenario(cluster, JobRunner(cluster, folder / "ws", folder), oracle)
            finally:
                oracle.close()
        finally:
            self._free.put(cluster)

    def _take(self) -> Cluster:
        try:
            cluster = self._free.get_nowait()
        except queue.Empty:
            return self._made.enter_context(Cluster(HOSTS))
        cluster.reset()
        return cluster


def _selected(request: pytest.FixtureRequest) -> list[str]:
    own = [item for item in request.session.items if item.path == request.path]
    chosen = [item.callspec.params.get("scenario") for item in own if hasattr(item, "callspec")]
    return [str(name) for name in chosen if name is not None]
