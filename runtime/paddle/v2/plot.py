# SPDX-License-Identifier: Apache-2.0
"""Plots of costs during training, in a notebook or to a file, drawn with matplotlib.

In a job, every curve is also reported to the launcher, for TensorBoard and the dashboard.
"""

from __future__ import annotations

import atexit
import importlib
import os
from typing import Any

from paddle.env import JobEnvironment
from paddle.report import Reporter
from paddle.v2.errors import NotAvailableError, UsageError

__all__ = ["PlotData", "Ploter"]


class PlotData:
    """The points of one curve: steps and values."""

    def __init__(self) -> None:
        self.step: list[float] = []
        self.value: list[float] = []

    def append(self, step: float, value: float) -> None:
        """Add the point (step, value) to the curve."""
        self.step.append(step)
        self.value.append(value)

    def reset(self) -> None:
        """Discard all points of the curve."""
        self.step, self.value = [], []


class Ploter:
    """A figure of several curves, such as the training and test cost, each with a title.

    If the environment has DISABLE_PLOT=True, nothing is drawn and matplotlib is not needed.

    Attributes:
        __plot_data__: the points by title; scripts read them under this name.
    """

    def __init__(self, *args: str) -> None:
        """Create empty curves with the titles `args`.

        Raises:
            NotAvailableError: matplotlib is not installed.
        """
        self.__plot_data__ = {title: PlotData() for title in args}
        self._reporter = Reporter(JobEnvironment.read().report_fd)
        atexit.register(self._reporter.flush)
        self._pyplot = None
        if os.environ.get("DISABLE_PLOT") != "True":
            self._pyplot = _library(
                "matplotlib.pyplot", "set DISABLE_PLOT=True in the environment to draw nothing"
            )

    def append(self, title: str, step: float, value: float) -> None:
        """Add the point (step, value) to the curve with the given title."""
        if title not in self.__plot_data__:
            raise UsageError(f"Ploter: unknown curve {title!r}; known curves: {list(self.__plot_data__)}")
        self.__plot_data__[title].append(step, value)
        self._reporter.point(title, step, value)

    def plot(self, path: str | os.PathLike[str] | None = None) -> None:
        """Draw all curves that have points, to a file or, without `path`, to the notebook's cell.

        Raises:
            NotAvailableError: there is no path and IPython is not installed.
        """
        self._reporter.flush()
        if self._pyplot is None:
            return
        drawn = {title: curve for title, curve in self.__plot_data__.items() if curve.step}
        for curve in drawn.values():
            self._pyplot.plot(curve.step, curve.value)
        self._pyplot.legend(list(drawn), loc="upper left")
        if path is None:
            display = _library("IPython.display", "give plot the path of a file")
            display.clear_output(wait=True)
            display.display(self._pyplot.gcf())
        else:
            self._pyplot.savefig(path)
        self._pyplot.gcf().clear()

    def reset(self) -> None:
        """Discard the points of all curves."""
        for curve in self.__plot_data__.values():
            curve.reset()


def _library(name: str, otherwise: str) -> Any:
    try:
        return importlib.import_module(name)
    except ImportError as error:
        package = name.partition(".")[0]
        raise NotAvailableError(
            f"plotting needs {package}, which cannot be imported ({error}): pip install "
            f"{package.lower()}, or {otherwise}"
        ) from error
