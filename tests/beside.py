# SPDX-License-Identifier: Apache-2.0
"""Tests that mostly wait, run beside each other: each in a place of its own, each a test of its own.

    scenarios = Scenarios(own_hosts)

    @scenarios.add
    def a_frozen_trainer_ends_the_job(cluster: Cluster, job: JobRunner, oracle: Oracle) -> None: ...

    outcomes = scenarios.fixture()

    @pytest.mark.parametrize("scenario", scenarios)
    def test_on_hosts_of_its_own(scenario: str, outcomes: Outcomes) -> None:
        outcomes.of(scenario)

The scenarios that this run of pytest selected are all run before the first of the tests; a test then raises what its
scenario raised.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Collection, Iterator, Mapping
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import AbstractContextManager
from functools import partial
from pathlib import Path
from typing import Any

import pytest

AT_ONCE = 4  # more would wait for processors rather than for time to pass

Scenario = Callable[..., None]
Place = Callable[
    [Path], AbstractContextManager[tuple[Any, ...]]
]  # an empty folder -> what a scenario is given


class Outcomes:
    """How scenarios ended."""

    def __init__(self, runs: Mapping[str, Future[None]]) -> None:
        self._runs = runs

    def of(self, scenario: str) -> None:
        """Raises what this scenario raised."""
        self._runs[scenario].result(timeout=0)


class Scenarios(Collection[str]):
    """The scenarios of one module, by name.

    Args:
        places: entered once for all scenarios; makes the place of each.
        at_once: how many go on beside each other.
    """

    def __init__(self, places: Callable[[], AbstractContextManager[Place]], at_once: int = AT_ONCE) -> None:
        self._places = places
        self._at_once = at_once
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

    def each(self, *cases: str) -> Callable[[Scenario], Scenario]:
        """Adds a function once for each case, which is its first argument; a decorator."""

        def add(scenario: Scenario) -> Scenario:
            self._scenarios.update(
                {f"{scenario.__name__}: {case}": partial(scenario, case) for case in cases}
            )
            return scenario

        return add

    def fixture(self) -> Any:
        """A fixture of the module that runs the selected scenarios and yields their `Outcomes`."""

        @pytest.fixture(scope="module")
        def outcomes(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Outcomes:
            return Outcomes(self._run(_selected(request), tmp_path_factory.mktemp("beside")))

        return outcomes

    def _run(self, wanted: list[str], scratch: Path) -> dict[str, Future[None]]:
        with self._places() as place, ThreadPoolExecutor(self._at_once) as pool:
            return {name: pool.submit(self._run_one, name, place, scratch) for name in wanted}

    def _run_one(self, name: str, place: Place, scratch: Path) -> None:
        folder = scratch / re.sub(r"\W+", "_", name)
        folder.mkdir()
        with place(folder) as given:
            self._scenarios[name](*given)


def _selected(request: pytest.FixtureRequest) -> list[str]:
    own = [item for item in request.session.items if item.path == request.path]
    chosen = [item.callspec.params.get("scenario") for item in own if hasattr(item, "callspec")]
    return [str(name) for name in chosen if name is not None]
