# SPDX-License-Identifier: Apache-2.0
"""The default programs, to which layers add operators: the main program, and the startup program for initial values."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from functools import wraps
from typing import Any

from paddle.fluid.errors import FluidTypeError
from paddle.fluid.program.program import Program
from paddle.signatures import explained

_main: ContextVar[Program] = ContextVar("paddle_main_program")
_startup: ContextVar[Program] = ContextVar("paddle_startup_program")


def default_main_program() -> Program:
    """Return the default main program, to which layers add operators."""
    return _of(_main)


def default_startup_program() -> Program:
    """Return the default startup program, which gives parameters their initial values."""
    return _of(_startup)


def switch_main_program(program: Program) -> Program:
    """Replace the default main program; return the previous one."""
    return _switch(_main, program)


def switch_startup_program(program: Program) -> Program:
    """Replace the default startup program; return the previous one."""
    return _switch(_startup, program)


@contextmanager
def program_guard(main_program: Program, startup_program: Program | None = None) -> Iterator[None]:
    """Return a context in which the given programs are the default programs.

    Raises:
        FluidTypeError: an argument is not a Program.
    """
    for what, program in (("main_program", main_program), ("startup_program", startup_program)):
        if not isinstance(program, Program) and not (what == "startup_program" and program is None):
            raise FluidTypeError(f"program_guard: {what} must be a Program, got {program!r}")
    main = switch_main_program(main_program)
    startup = switch_startup_program(startup_program) if startup_program is not None else None
    try:
        yield
    finally:
        switch_main_program(main)
        if startup is not None:
            switch_startup_program(startup)


def with_programs(layer: Callable[..., Any]) -> Callable[..., Any]:
    """Return a layer that also takes the keywords main_program and startup_program, as in Fluid 0.11."""

    layer = explained(layer)

    @wraps(layer)
    def call(
        *args: Any, main_program: Program | None = None, startup_program: Program | None = None, **named: Any
    ) -> Any:
        if main_program is None and startup_program is None:
            return layer(*args, **named)
        with program_guard(main_program or default_main_program(), startup_program):
            return layer(*args, **named)

    return call


def _of(variable: ContextVar[Program]) -> Program:
    found = variable.get(None)
    if found is None:
        found = Program()
        variable.set(found)
    return found


def _switch(variable: ContextVar[Program], program: Program) -> Program:
    before = _of(variable)
    variable.set(program)
    return before
