# SPDX-License-Identifier: Apache-2.0
"""`paddle pserver-leave`, which leaves the job on behalf of a trainer that exited without leaving.

Servers wait for a trainer that disappeared, because it may reconnect. This process takes over its trainer id and
leaves, so that other trainers no longer wait.
"""

from __future__ import annotations

import logging

from paddle.env import JobEnvironment
from paddle.errors import ConfigError
from paddle.pserver.client.session import TrainerSession

_log = logging.getLogger(__name__)

_ANSWER_S = 15.0


def run(environment: JobEnvironment) -> int:
    """Leave on behalf of the trainer that the environment identifies; return the exit code.

    Raises:
        ConfigError: the environment does not give the trainer or the servers' endpoints.
        PserverError: a server refused, or did not answer.
    """
    trainer, count = environment.trainer_id, environment.num_trainers
    if trainer is None or count is None or not environment.endpoints:
        raise ConfigError(
            "paddle pserver-leave needs PADDLE_TRAINER_ID, PADDLE_TRAINERS_NUM and "
            "PADDLE_PSERVERS_IP_PORT_LIST, which the launcher sets"
        )
    key = environment.job_key
    TrainerSession.connect(
        environment.endpoints,
        environment.sparse_endpoints,
        trainer_id=trainer,
        num_trainers=count,
        job_key=key,
        wire=environment.wire or ("curve" if key else "plain"),
        timeout_s=_ANSWER_S,
        takes_over=True,
    ).leave(_ANSWER_S)
    _log.info("trainer %d has left", trainer)
    return 0
