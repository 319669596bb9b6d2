# SPDX-License-Identifier: Apache-2.0
"""A trainer whose grandchildren do what they can to outlive it: each rank starts all of them, then holds.

--quiet leaves them out.
"""

import os
import signal
import subprocess
import sys

BEGIN = """
import os, signal, sys, time
for number in (signal.SIGTERM, signal.SIGHUP, signal.SIGINT):
    signal.signal(number, signal.SIG_IGN)
os.setsid()
if os.fork():
    os._exit(0)
"""
SLEEP = BEGIN + "time.sleep(1000)\n"
STOP = BEGIN + "os.kill(os.getpid(), signal.SIGSTOP)\ntime.sleep(1000)\n"
KEEP_FORKING = (
    BEGIN
    + "while os.getpid():\n    time.sleep(0.05)\n    if os.fork():\n        os._exit(0)\n    os.setsid()\n"
)


def hold() -> None:
    sys.stdout.write("holding\n")
    sys.stdout.flush()
    while True:
        signal.pause()


def start_hostile_grandchildren() -> None:
    for program in (SLEEP, STOP, KEEP_FORKING):
        for environment in (dict(os.environ), {}):  # without the job's name in it, too
            subprocess.Popen([sys.executable, "-I", "-S", "-c", program], env=environment)


if __name__ == "__main__":
    if "--quiet" not in sys.argv:
        start_hostile_grandchildren()
    hold()
