# SPDX-License-Identifier: Apache-2.0
"""Removes what a job's parameter servers kept in this node's memory for a next process: the job is over here."""

import os
import stat

from agent.files import disk

STATE_DIR = "/dev/shm"  # noqa: S108 - memory, and what is taken from it is the user's own
PREFIX = "paddle-"


def remove(marks: "dict[str, str]") -> None:
    """Remove the state of the job and the node that the marks name; without them nothing."""
    job_id, node_id = marks.get("PADDLE_JOB_ID"), marks.get("PADDLE_NODE_ID")
    if not job_id or not node_id or "/" in job_id + node_id:
        return
    path = os.path.join(STATE_DIR, "%s%s-%s" % (PREFIX, job_id, node_id))
    try:
        found = os.lstat(path)
    except OSError:
        return
    if stat.S_ISDIR(found.st_mode) and found.st_uid == os.geteuid():
        disk.remove_tree(path)
