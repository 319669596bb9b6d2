# SPDX-License-Identifier: Apache-2.0
"""Tests that mostly wait, run beside each other: each in a place of its own, each a test of its own.

    scenarios = Scenarios(own_hosts)

    @scenarios.add
    def a_frozen_trainer_ends_the_job(cluster: Cluster, job: JobRunner, oracle: Oracle) -> None: ...

    outcomes = scenarios.fixture()

    @pytest.mark.parametrize("scenario", scenarios)
    def test_on_hosts_of_its_own(scenario: str, outcomes: Outcomes) -> None:
        outcomes.of(scenario)

The scenarios that this run of pytest selected begin with the first of these tests, those of all modules with the same
kind of place together, so that none of them waits for the slowest of another module. A test waits for its own scenario
alone, and raises what that raised.
"""

from __future__ import annotations

import functools
import gc
import re
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import AbstractContextManager, ExitStack
from functools import partial
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

from tests.cluster.deadline import wait_for
from tests.leaks import Belongings

# What tests of scenarios are called, a name a kind of place: workers that share a run's tests know no more of them.
TESTS = ("test_on_hosts_of_its_own", "test_beside_each_other", "test_after_a_while")
GONE_S = 20.0  # what was told to end may need a moment
AT_ONCE = 4  # more would wait for processors rather than for time to pass

Scenario = Callable[..., None]
Place = Callable[
    [Path], AbstractContextManager[tuple[Any, ...]]
]  # an empty folder -> what a scenario is given
Places = Callable[[], AbstractContextManager[Place]]


class Outcomes:
    """How scenarios end.

    Args:
        was_seen: called after each outcome that was asked for.
    """

    def __init__(self, runs: Mapping[str, Future[None]], was_seen: Callable[[], None]) -> None:
        self._runs = runs
        self._was_seen = was_seen

    def of(self, scenario: str) -> None:
        """Waits for this scenario, and raises what it raised."""
        try:
            self._runs[scenario].result()
        finally:
            self._was_seen()


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
    """The scenarios that a run of pytest selected, of all its modules; those of one kind run at a time.

    Args:
        items: the selected tests.
        scratch: an empty folder.
    """

    def __init__(self, items: Sequence[pytest.Item], scratch: Path) -> None:
        self._scratch = scratch
        self._count = 0
        self._wanted: dict[Scenarios, list[str]] = {}
        self._outcomes: dict[Scenarios, Outcomes] = {}
        self._running = ExitStack()
        self._before = Belongings.now()
        self._unseen = 0
        for item in items:
            if (scenarios := scenarios_of(item)) is not None:
                self._wanted.setdefault(scenarios, []).append(_name(item))

    def outcomes(self, scenarios: Scenarios) -> Outcomes:
        """Returns how the scenarios of a module end; the first call begins those of all like it."""
        if scenarios not in self._outcomes:
            self.close()
            self._begin([each for each in self._wanted if each.kind == scenarios.kind])
        return self._outcomes[scenarios]

    def close(self) -> None:
        """Ends the running kind: what has begun ends by itself, what has not is left out."""
        self._running.close()

    def _saw(self) -> None:
        self._unseen -= 1
        if not self._unseen:  # before other tests start what lasts longer
            self.close()
            check_nothing_left(self._before)

    def _begin(self, group: Sequence[Scenarios]) -> None:
        places, at_once = group[0].kind
        self._before = Belongings.now()
        self._unseen = sum(len(self._wanted[scenarios]) for scenarios in group)
        place = self._running.enter_context(places())
        pool = ThreadPoolExecutor(at_once)
        self._running.callback(pool.shutdown, cancel_futures=True)
        for scenarios in group:
            self._outcomes[scenarios] = Outcomes(
                {
                    name: pool.submit(scenarios.run, name, place, self._folder(name))
                    for name in self._wanted[scenarios]
                },
                self._saw,
            )

    def _folder(self, name: str) -> Path:
        self._count += 1
        words = re.sub(r"\W+", "_", name)
        return self._scratch / f"{self._count}_{words[:40]}"  # a socket's path must not be long


def scenarios_of(item: pytest.Item) -> Scenarios | None:
    """The scenarios that a test belongs to, if it belongs to any."""
    if not isinstance(item, pytest.Function):
        return None
    found = [each for each in _all_of(item.module) if _name(item) in each]
    assert not found or item.originalname in TESTS, f"{item.nodeid}: call it one of {TESTS}"
    return found[0] if found else None


@functools.cache  # asked for each test, several times
def _all_of(module: ModuleType) -> list[Scenarios]:
    return [each for each in vars(module).values() if isinstance(each, Scenarios)]


def in_order(items: Sequence[pytest.Item]) -> list[pytest.Item]:
    """The tests of each kind of scenarios one after another, behind all other tests."""
    kinds: list[tuple[Places, int]] = []

    def place(item: pytest.Item) -> int:
        scenarios = scenarios_of(item)
        if scenarios is None:
            return -1
        if scenarios.kind not in kinds:
            kinds.append(scenarios.kind)
        return kinds.index(scenarios.kind)

    return sorted(items, key=place)


def check_nothing_left(before: Belongings) -> None:
    """Fails if a thread, a child process or an open socket is there that was not before."""

    def none_left() -> bool:
        gc.collect()
        return not Belongings.now().beyond(before)

    try:
        if Belongings.now().beyond(before):
            wait_for("the end of what the test started", none_left, GONE_S, every_s=0.1)
    except AssertionError:
        if left := Belongings.now().beyond(before):  # on a busy machine it may end between two looks
            pytest.fail(f"the test left behind: {left}")


def _name(item: pytest.Item) -> str:
    return str(item.callspec.params.get("scenario", "")) if hasattr(item, "callspec") else ""
