# SPDX-License-Identifier: Apache-2.0
"""`paddle pserver-leave`: leaves the parameter servers in place of a trainer that is gone without a word.

Servers wait for a trainer that only disappeared: it may come back. This process takes its trainer id, which they
give away once they have noticed that its connection is gone, and leaves properly; then nobody waits any more.
"""

from __future__ import annotations

import logging
import time

from paddle.env import JobEnvironment
from paddle.errors import ConfigError, PserverError
from paddle.pserver.client import Client

_log = logging.getLogger(__name__)

_GIVE_UP_S = 60.0
_AGAIN_S = 0.5
_ANSWER_S = 10.0


def run(environment: JobEnvironment, give_up_s: float = _GIVE_UP_S) -> int:
    """Leave in place of the trainer that the environment names; return the exit code.

    Raises:
        ConfigError: the environment does not say who is gone or where the servers are.
        PserverError: a server did not let us, for `give_up_s`.
    """
    trainer, count = environment.trainer_id, environment.num_trainers
    if trainer is None or count is None or not environment.endpoints:
        raise ConfigError(
            "paddle pserver-leave needs PADDLE_TRAINER_ID, PADDLE_TRAINERS_NUM and "
            "PADDLE_PSERVERS_IP_PORT_LIST, as the launcher sets them"
        )
    deadline = time.monotonic() + give_up_s
    while True:
        try:
            _leave(environment, trainer, count)
        except PserverError as error:
            if time.monotonic() >= deadline:
                raise
            _log.info("not yet: %s", error)
            time.sleep(_AGAIN_S)  # the servers' own patience with a silent connection; nobody tells us
        else:
            _log.info("trainer %d has left", trainer)
            return 0


def _leave(environment: JobEnvironment, trainer: int, count: int) -> None:
    key = environment.job_key
    Client.connect(
        environment.endpoints,
        environment.sparse_endpoints,
        trainer_id=trainer,
        num_trainers=count,
        job_key=key,
        wire=environment.wire or ("curve" if key else "plain"),
        timeout_s=_ANSWER_S,
    ).leave(_ANSWER_S)
