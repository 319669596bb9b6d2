# SPDX-License-Identifier: Apache-2.0
"""What makes a pserver's state outlive its process, and with that a restart of it possible.

A node's processes may die, and what lies in the node's memory stays. With the node the state is gone; then
only a checkpoint brings the job back.
"""

from __future__ import annotations

from paddle_cluster.config.options import Mode
from paddle_cluster.config.settings import Settings
from paddle_cluster.system.installation import PROGRAM

STATE_DIR = "/dev/shm"  # noqa: S108 - memory, and everything in it is the user's alone
PATIENCE_S = 60  # how long trainers wait for a pserver that is started again
RESTARTS = 3


def state_dir(settings: Settings) -> str:
    """Where pservers keep their state; empty if the user wants none."""
    return dict(settings.job.flags).get("state_dir", STATE_DIR)


def pserver_restarts(settings: Settings) -> int:
    """How often each pserver may be started again."""
    if settings.job.mode is Mode.COLLECTIVE or not state_dir(settings):
        return 0
    return max(RESTARTS, settings.job.max_restarts)


def checkpoint_dir(settings: Settings) -> str | None:
    """Where pservers write checkpoints, absolute; None if they write none, or below the job's own directory."""
    flags = dict(settings.job.flags)
    folder = flags.get("checkpoint_dir", "")
    is_written = settings.job.mode is Mode.V2 and flags.get("checkpoint_period", "0") != "0"
    return folder if is_written and folder.startswith("/") else None


def resumed_from(settings: Settings, job_dir: str) -> str | None:
    """The folder on a node in which its pserver looks for the newest checkpoint; None if the job does not do that."""
    flags = dict(settings.job.flags)
    folder = flags.get("checkpoint_dir", "")
    if settings.job.mode is not Mode.V2 or flags.get("resume") not in ("latest", "auto") or not folder:
        return None
    return folder if folder.startswith("/") else f"{job_dir}/{folder}"


def checkpoints_below_root(settings: Settings, job_id: str) -> str:
    """Where pservers write checkpoints, absolute or relative to ROOT_DIR; empty if they write none."""
    folder = dict(settings.job.flags).get("checkpoint_dir", "")
    if settings.job.mode is not Mode.V2 or not folder or folder.startswith("/"):
        return folder if settings.job.mode is Mode.V2 else ""
    return f"{settings.job.workspace or job_id}/{folder}"


def lies_in_job_dir(settings: Settings) -> bool:
    """Whether pservers write checkpoints below the job's own directory, which must then outlive the job."""
    folder = dict(settings.job.flags).get("checkpoint_dir", "")
    return bool(folder) and not folder.startswith("/")


def saved(settings: Settings, job_id: str) -> dict[str, object]:
    """Where a job's scripts save what they go on from, for its nodes."""
    return {"name": settings.job.saving.name or job_id, "collect": list(settings.job.saving.collect)}


def resume_hint(settings: Settings) -> list[str]:
    """Return how a job continues that was stopped or lost its state, if there may be a checkpoint."""
    flags, name = dict(settings.job.flags), settings.job.saving.name
    if settings.job.mode is not Mode.V2 and name:
        return [
            f"to continue: give the same command again, with --keep_as={name}: the nodes keep what the script "
            "saved in PADDLE_CHECKPOINT_DIR"
        ]
    if settings.job.mode is not Mode.V2 or not flags.get("checkpoint_dir"):
        return []
    return [
        "to go on from the last whole checkpoint: give the same command again, with --resume=latest "
        f"(checkpoints are in {flags['checkpoint_dir']}; `{PROGRAM} checkpoints` shows them)"
    ]
