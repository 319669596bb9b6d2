# SPDX-License-Identifier: Apache-2.0
"""Warnings about programs that train nothing, or that train on the test data: each run of a program is checked."""

from __future__ import annotations

from paddle.fluid.program.program import Program
from paddle.fluid.program.variable import Parameter
from paddle.graph.operator import script_line, warn_script

_RUNS = 3  # a script may run its program a few times to try it, before it calls minimize


class Misuse:
    """Notices when a program is run although no optimizer was given its loss; warns once."""

    def __init__(self) -> None:
        self._idle: list[str] = []  # where each optimizer was created
        self._runs = 0
        self._is_over = False

    def made(self) -> None:
        """Note that the script creates an optimizer."""
        if not self._is_over:
            self._idle.append(script_line())

    def rule_out(self) -> None:
        """End the checks: an optimizer was used, or parameters were loaded, as programs for inference do."""
        self._is_over = True
        self._idle.clear()

    def check(self, program: Program, has_batch: bool) -> None:
        """Warn if a program, which is about to be run, trains nothing, or is a copy for tests that trains."""
        if program._test_updates:
            program._test_updates = False
            warn_script(
                "this program was copied with clone(for_test=True) after minimize, so each run of it still updates "
                "the parameters and trains on the test data: clone before minimize"
            )
        if not self._idle or program._is_test or not has_batch:
            return
        trained = {each.name for each in _parameters(program) if each.trainable}
        if not trained or any(not trained.isdisjoint(op.writes) for op in program.global_block().ops):
            return
        self._runs += 1
        if self._runs == _RUNS:
            warn_script(
                f"this program trains nothing, because the optimizer created {self._idle[-1]} was never used: call "
                "optimizer.minimize(loss) before exe.run(fluid.default_startup_program())"
            )
            self.rule_out()


MISUSE = Misuse()


def _parameters(program: Program) -> list[Parameter]:
    return [each for each in program.list_vars() if isinstance(each, Parameter)]
