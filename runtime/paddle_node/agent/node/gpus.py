# SPDX-License-Identifier: Apache-2.0
"""The number of NVIDIA GPUs on a node, and their driver: from the driver's files, and from nvidia-smi if installed.

If a GPU hangs, nvidia-smi also hangs, so it runs outside the agent's loop, with a separate deadline.
"""

from __future__ import annotations

import os
import re
from typing import Any, Dict

from paddle_node.agent.processes import environment

ASK_S = 5.0
_QUERY = ["--query-gpu=driver_version,name", "--format=csv,noheader"]
_DRIVER = "/proc/driver/nvidia"


def look() -> Dict[str, Any]:
    """Return the number of GPUs and the driver version from the driver's files, which do not contain GPU names."""
    driver = ""
    try:
        with open(_DRIVER + "/version", encoding="utf-8", errors="replace") as file:
            found = re.search(r"\b(\d{3}\.\d+(?:\.\d+)*)\b", file.read())
            driver = found.group(1) if found else ""
        count = len(os.listdir(_DRIVER + "/gpus"))
    except OSError:
        count = 0
    devices = sum(1 for name in os.listdir("/dev") if re.fullmatch(r"nvidia\d+", name))
    # a container has only the device files of the GPUs it may use, but the driver's list of all
    return {"count": devices or count, "driver": driver, "names": []}


def ask() -> Dict[str, Any]:
    """Return the GPUs that nvidia-smi reports or, if it is not installed, those that the driver's files list.

    Raises:
        OSError: nvidia-smi cannot be run.
        ValueError: nvidia-smi failed or did not answer in time; the message says which.
    """
    import subprocess  # imported only for an explicit request: a job makes none

    env = environment.base(os.environ)
    program = environment.program("nvidia-smi", env)
    if program is None:
        return look()
    try:
        ended = subprocess.run(
            [program, *_QUERY],
            env=env,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            timeout=ASK_S,
        )
    except subprocess.TimeoutExpired as error:
        raise ValueError("%s did not answer within %g s" % (program, ASK_S)) from error
    text = ended.stdout.decode("utf-8", "replace").strip()
    if ended.returncode != 0:
        raise ValueError("%s: %s" % (program, text[-200:] or "status %d" % ended.returncode))
    rows = [[part.strip() for part in line.split(",", 1)] for line in text.splitlines() if "," in line]
    return {
        "count": len(rows),
        "driver": rows[0][0] if rows else "",
        "names": sorted({row[1] for row in rows}),
    }
