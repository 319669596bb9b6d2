# SPDX-License-Identifier: Apache-2.0
"""Tests that mostly wait, run beside each other: each in a place of its own, each a test of its own.

    scenarios = Scenarios(own_hosts)

    @scenarios.add
    def a_frozen_trainer_ends_the_job(cluster: Cluster, job: JobRunner, oracle: Oracle) -> None: ...

    outcomes = scenarios.fixture()

    @pytest.mark.parametrize("scenario", scenarios)
    def test_on_hosts_of_its_own(scenario: str, outcomes: Outcomes) -> None:
        outcomes.of(scenario)

The scenarios that this run of pytest selected are all run before the first of the tests, those of all modules with
the same kind of place together, so that none of them waits for the slowest of another module; a test then raises what
its scenario raised.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor, wait
from contextlib import AbstractContextManager
from functools import partial
from pathlib import Path
from typing import Any

import pytest

# What tests of scenarios are called, a name a kind of place: workers that share a run's tests know no more of them.
TESTS = ("test_on_hosts_of_its_own", "test_beside_each_other", "test_after_a_while")
AT_ONCE = 4  # more would wait for processors rather than for time to pass

Scenario = Callable[..., None]
Place = Callable[
    [Path], AbstractContextManager[tuple[Any, ...]]
]  # an empty folder -> what a scenario is given
Places = Callable[[], AbstractContextManager[Place]]


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

    Attributes:
        kind: both; scenarios of the same kind run together.
    """

    def __init__(self, places: Places, at_once: int = AT_ONCE) -> None:
        self.kind = (places, at_once)
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
        """A fixture of the module that yields the `Outcomes` of its scenarios."""

        @pytest.fixture(scope="module")
        def outcomes(beside: Beside) -> Outcomes:
            return beside.outcomes(self)

        return outcomes

    def run(self, name: str, place: Place, folder: Path) -> None:
        """Runs one scenario in a new folder."""
        folder.mkdir()
        with place(folder) as given:
            self._scenarios[name](*given)


class Beside:
    """The scenarios that a run of pytest selected, of all its modules.

    Args:
        items: the selected tests.
        scratch: an empty folder.
    """

    def __init__(self, items: Sequence[pytest.Item], scratch: Path) -> None:
        self._scratch = scratch
        self._count = 0
        self._wanted: dict[Scenarios, list[str]] = {}
        self._outcomes: dict[Scenarios, Outcomes] = {}
        for item in items:
            if isinstance(item, pytest.Function) and hasattr(item, "callspec"):
                name = item.callspec.params.get("scenario")
                for scenarios in vars(item.module).values():
                    if isinstance(scenarios, Scenarios) and name in scenarios:
                        assert item.originalname in TESTS, f"{item.nodeid}: call it one of {TESTS}"
                        self._wanted.setdefault(scenarios, []).append(str(name))

    def outcomes(self, scenarios: Scenarios) -> Outcomes:
        """Returns how the scenarios of a module ended; the first call runs those of all like it."""
        if scenarios not in self._outcomes:
            self._run([each for each in self._wanted if each.kind == scenarios.kind])
        return self._outcomes[scenarios]

    def _run(self, group: Sequence[Scenarios]) -> None:
        places, at_once = group[0].kind
        runs: dict[Scenarios, dict[str, Future[None]]] = {scenarios: {} for scenarios in group}
        with places() as place, ThreadPoolExecutor(at_once) as pool:
            try:
                for scenarios in group:
                    for name in self._wanted[scenarios]:
                        folder = self._folder(name)
                        runs[scenarios][name] = pool.submit(scenarios.run, name, place, folder)
                wait([future for each in runs.values() for future in each.values()])
            except (
                BaseException
            ):  # Ctrl+C: not before the scenarios that have begun are done, but without the others
                pool.shutdown(cancel_futures=True)
                raise
        self._outcomes.update({scenarios: Outcomes(each) for scenarios, each in runs.items()})

    def _folder(self, name: str) -> Path:
        self._count += 1
        words = re.sub(r"\W+", "_", name)
        return self._scratch / f"{self._count}_{words[:40]}"  # a socket's path must not be long
