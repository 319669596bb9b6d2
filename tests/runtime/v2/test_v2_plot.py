# SPDX-License-Identifier: Apache-2.0
"""Curves are drawn as points come, into a file or a notebook, or not at all."""

from __future__ import annotations

import sys
from types import SimpleNamespace
from typing import Any

import pytest

import paddle.v2 as paddle
from paddle.v2.errors import NotAvailableError, UsageError


class _Pyplot:
    """In the place of matplotlib's: writes down what it is asked for."""

    def __init__(self) -> None:
        self.calls: list[tuple[Any, ...]] = []

    def plot(self, steps: list[float], values: list[float]) -> None:
        self.calls.append(("plot", list(steps), list(values)))

    def legend(self, titles: list[str], loc: str) -> None:
        self.calls.append(("legend", titles, loc))

    def savefig(self, path: str) -> None:
        self.calls.append(("savefig", path))

    def gcf(self) -> Any:
        return SimpleNamespace(clear=lambda: self.calls.append(("clear",)))


@pytest.fixture
def pyplot(monkeypatch: pytest.MonkeyPatch) -> _Pyplot:
    found: Any = _Pyplot()
    monkeypatch.delenv("DISABLE_PLOT", raising=False)
    monkeypatch.setitem(sys.modules, "matplotlib", SimpleNamespace(pyplot=found))
    monkeypatch.setitem(sys.modules, "matplotlib.pyplot", found)
    return found  # type: ignore[no-any-return]


def test_curves_that_have_points_are_drawn_into_a_file(pyplot: _Pyplot) -> None:
    ploter = paddle.plot.Ploter("train cost", "test cost", "nothing yet")
    for step in range(3):
        ploter.append("train cost", step, 1 / (step + 1))
    ploter.append("test cost", 2, 0.5)
    ploter.plot("cost.png")
    assert pyplot.calls == [
        ("plot", [0, 1, 2], [1, 1 / 2, 1 / 3]),
        ("plot", [2], [0.5]),
        ("legend", ["train cost", "test cost"], "upper left"),
        ("savefig", "cost.png"),
        ("clear",),
    ]


def test_a_reset_curve_has_no_points(pyplot: _Pyplot) -> None:
    ploter = paddle.plot.Ploter("cost")
    ploter.append("cost", 0, 3.0)
    ploter.reset()
    ploter.plot("cost.png")
    assert pyplot.calls[0] == ("legend", [], "upper left")


def test_without_a_path_the_picture_takes_the_place_of_the_last_in_the_notebook(
    pyplot: _Pyplot, monkeypatch: pytest.MonkeyPatch
) -> None:
    shown: list[object] = []
    display = SimpleNamespace(clear_output=lambda wait: shown.clear(), display=shown.append)
    monkeypatch.setitem(sys.modules, "IPython", SimpleNamespace(display=display))
    monkeypatch.setitem(sys.modules, "IPython.display", display)
    ploter = paddle.plot.Ploter("cost")
    ploter.plot()
    ploter.plot()
    assert len(shown) == 1
    monkeypatch.setitem(sys.modules, "IPython.display", None)
    with pytest.raises(NotAvailableError, match=r"needs IPython.* or give plot the path of a file"):
        ploter.plot()


def test_a_title_that_is_no_curve_is_told(pyplot: _Pyplot) -> None:
    with pytest.raises(UsageError, match=r"'cost'.*\['train'\]"):
        paddle.plot.Ploter("train").append("cost", 0, 1.0)


def test_disabled_plots_need_no_matplotlib_and_others_tell_that_it_is_missing(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setitem(sys.modules, "matplotlib", None)
    monkeypatch.setitem(sys.modules, "matplotlib.pyplot", None)
    monkeypatch.setenv("DISABLE_PLOT", "True")
    ploter = paddle.plot.Ploter("cost")
    ploter.append("cost", 0, 1.0)
    ploter.plot()
    monkeypatch.delenv("DISABLE_PLOT")
    with pytest.raises(NotAvailableError, match=r"needs matplotlib.* or set DISABLE_PLOT=True"):
        paddle.plot.Ploter("cost")


def test_points_of_a_curve_are_readable() -> None:
    data = paddle.plot.PlotData()
    data.append(4, 0.5)
    assert (data.step, data.value) == ([4], [0.5])
    data.reset()
    assert (data.step, data.value) == ([], [])
