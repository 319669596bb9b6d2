# SPDX-License-Identifier: Apache-2.0
"""A trainer for tests, of the standard library alone: says what it was given, then acts as it was told.

--act=NAME         every trainer acts so (the default is to be done at once)
--act_of_<rank>=NAME   this one acts so instead
"""

import json
import os
import resource
import signal
import subprocess
import sys
from collections.abc import Callable
from typing import NoReturn

NOBODY = 65534
RANK = os.environ["PADDLE_TRAINER_ID"]
STUBBORN = """
import os, signal, time
for number in (signal.SIGTERM, signal.SIGHUP, signal.SIGINT):
    signal.signal(number, signal.SIG_IGN)
os.setsid()
if os.fork():
    os._exit(0)
open("log/stubborn", "w").write(str(os.getpid()))
time.sleep(1000)
"""


def say(text: str) -> None:
    sys.stdout.write(text + "\n")
    sys.stdout.flush()


def hold() -> NoReturn:
    say("holding")
    while True:
        signal.pause()


def say_and_die(number: int) -> NoReturn:
    say(f"trainer {RANK} is about to die")
    os.kill(os.getpid(), number)
    raise RuntimeError(f"survived signal {number}")


def raise_error() -> NoReturn:
    raise ValueError(f"trainer {RANK} does not like its data")


def leave_stubborn_orphan() -> None:
    subprocess.Popen([sys.executable, "-c", STUBBORN], env=dict(os.environ))
    hold()


def leave_bare_orphan() -> None:
    """One that no environment, session or parent tells from others."""
    subprocess.Popen([sys.executable, "-c", STUBBORN], env={})
    hold()


def leave_in_background() -> None:
    """As a shell script does that ends with `&` and no `wait`; and one that ends by itself."""
    subprocess.Popen(["sh", "-c", "sleep 1000; echo never"])
    subprocess.Popen(["sleep", "0.1"])


def multiply() -> NoReturn:
    """Fork until this user may not, every child in a session of its own; no limit of processes holds for root."""
    resource.setrlimit(resource.RLIMIT_NPROC, (1000, 1000))
    os.setuid(NOBODY)
    try:
        while True:
            if os.fork() == 0:
                os.setsid()
                while True:
                    signal.pause()
    except OSError as error:
        say(f"trainer {RANK} could fork no more: {error.strerror}")
        raise


def write_model() -> None:
    """Every trainer writes one; only that of node 0 is wanted."""
    os.makedirs("output", exist_ok=True)
    with open("output/model.bin", "wb") as file:
        file.write(RANK.encode() * 3_000_000)


ACTS: dict[str, Callable[[], None]] = {
    "done": lambda: None,
    "hold": hold,
    "raise": raise_error,
    "segv": lambda: say_and_die(signal.SIGSEGV),
    "kill": lambda: say_and_die(signal.SIGKILL),
    "orphan": leave_stubborn_orphan,
    "bare": leave_bare_orphan,
    "background": leave_in_background,
    "multiply": multiply,
    "model": write_model,
}


def main() -> None:
    with open("log/seen.json", "w") as file:
        json.dump({"argv": [os.fsencode(word).hex() for word in sys.argv[1:]], "env": dict(os.environ)}, file)
    flags = dict(word[2:].split("=", 1) for word in sys.argv[1:] if word.startswith("--act") and "=" in word)
    say(f"trainer {RANK} runs in {os.getcwd()}")
    ACTS[flags.get(f"act_of_{RANK}", flags.get("act", "done"))]()
    say(f"trainer {RANK} is done")


if __name__ == "__main__":
    main()
