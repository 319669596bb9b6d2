# SPDX-License-Identifier: Apache-2.0
"""The engines of one process, each with the keeper of its state, brought where an earlier process was."""

from __future__ import annotations

import logging
import time
from collections.abc import Sequence
from dataclasses import dataclass, replace

from paddle.pserver.durable.process_state import Revival
from paddle.pserver.recovery import Safekeeper, Safety
from paddle.pserver.server.engine import Engine
from paddle.pserver.server.options import EngineOptions

_log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class Guarded:
    """An engine and who keeps its state."""

    engine: Engine
    keeper: Safekeeper | None

    def close(self) -> None:
        """End what the keeper has under way."""
        if self.keeper is not None:
            self.keeper.close()


def guarded(
    options: EngineOptions, safety: Safety, stamps: Sequence[int], revival: Revival | None
) -> list[Guarded]:
    """Make one engine for each stamp.

    Raises:
        PaddleError: an earlier process did not leave what is needed.
    """
    found = []
    for number, stamp in enumerate(stamps):
        own = safety if revival is None else replace(safety, state=revival.folder_of(number))
        if own.state is None and own.checkpoints is None:
            found.append(Guarded(Engine(options, stamp), None))
            continue
        keeper = Safekeeper(own)
        engine = Engine(options, stamp, keeper=keeper)
        started = time.monotonic()
        version = keeper.recover(engine)
        if version:
            _log.info(
                "parameterServer[%d]: took up the state of batch %d in %.2f s",
                number,
                version,
                time.monotonic() - started,
            )
        found.append(Guarded(engine, keeper))
    return found
