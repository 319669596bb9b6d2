# SPDX-License-Identifier: Apache-2.0
"""The names that launcher, agent and processes share: environment variables and folders. Imports nothing."""

JOB_ID = "PADDLE_JOB_ID"
NODE_ID = "PADDLE_NODE_ID"
PROC = "PADDLE_PROC"  # the name of the process
JOB_DIR = "PADDLE_JOB_DIR"
JOB_KEY = "PADDLE_JOB_KEY"
WIRE = "PADDLE_WIRE"
RESTART_COUNT = "PADDLE_RESTART_COUNT"
CHECKPOINT_DIR = "PADDLE_CHECKPOINT_DIR"
STACKS_SIGNAL = "PADDLE_STACKS_SIGNAL"
REPORT_FD = "PADDLE_REPORT_FD"
REPORT_PIPE = "PADDLE_REPORT_PIPE"  # the device and inode of the pipe at REPORT_FD

MARKS = (JOB_ID, JOB_DIR, JOB_KEY, NODE_ID, PROC, REPORT_FD, REPORT_PIPE, RESTART_COUNT, STACKS_SIGNAL)
"""The variables by which a job finds and authenticates its processes; users must not set them."""

LOG = "log"  # in the job directory; on the launcher's machine it contains one folder per node
OUTPUT = "output"
STATE_DIR = "/dev/shm"  # noqa: S108 - memory, and what is taken from it is the user's own

_UNLINKED = (".nfs", ".fuse_hidden")
_HEXADECIMAL = "0123456789abcdefABCDEF"


def is_unlinked(name: str) -> bool:
    """Return whether NFS or FUSE gave this name to a file that was removed while a process had it open."""
    if not name.startswith(_UNLINKED):  # of many thousands of names, hardly any
        return False
    number = name[len(".nfs") if name.startswith(".nfs") else len(".fuse_hidden") :]
    return len(number) >= 16 and not number.strip(_HEXADECIMAL)
