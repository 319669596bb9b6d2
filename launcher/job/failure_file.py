# SPDX-License-Identifier: Apache-2.0
"""Writes `failure.json` beside the collected logs: the last screen of a failed job, for programs."""

from __future__ import annotations

import json
import os
from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from launcher.errors import ExitCode
from launcher.job.causes import Verdict, last_error
from launcher.nodes.failure import Failure
from launcher.nodes.incidents import Incident

SCHEMA_VERSION = 1
NAME = "failure.json"


def write(
    log_dir: Path,
    *,
    job_id: str,
    code: ExitCode,
    verdict: Verdict,
    incidents: Sequence[Incident],
    stacks: Mapping[str, str],
) -> str:
    """Write the file; what went wrong with that, or an empty text.

    Args:
        incidents: restarts and losses that the job survived.
        stacks: process name -> where it was when another one hung.
    """
    content = {
        "schema_version": SCHEMA_VERSION,
        "job_id": job_id,
        "exit_code": int(code),
        "first_cause": {
            **_failure(verdict.cause),
            "log_end": list(verdict.cause.tail),
            "stacks": verdict.cause.stacks,
        },
        "same": [_failure(failure) for failure in verdict.same],
        "failed_too": [{**_failure(failure), "log_end": list(failure.tail)} for failure in verdict.others],
        "echoes": [{**_failure(echo.failure), "why": echo.why} for echo in verdict.echoes],
        "ended_by_us": [_failure(failure) for failure in verdict.ended],
        "incidents": [{"time": _time(each.at), "kind": each.kind, "text": each.text} for each in incidents],
        "stacks": dict(stacks),
    }
    path = log_dir / NAME
    try:
        log_dir.mkdir(parents=True, exist_ok=True)
        hidden = path.with_name(f".{NAME}.{os.getpid()}")
        hidden.write_text(json.dumps(content, indent=2) + "\n", encoding="utf-8")
        hidden.replace(path)
    except OSError as error:
        return f"{path} cannot be written: {error.strerror or error}"
    return ""


def _failure(failure: Failure) -> dict[str, Any]:
    return {
        "kind": str(failure.kind),
        "node": failure.node,
        "node_id": failure.node_id,
        "role": failure.role,
        "rank": failure.rank,
        "process": failure.process,
        "what": failure.what,
        "code": failure.code,
        "signal": failure.signal,
        "time": _time(failure.at),
        "error": last_error(failure),
        "log": failure.log,
    }


def _time(at: float) -> str:
    return datetime.fromtimestamp(at, UTC).isoformat(timespec="milliseconds")
