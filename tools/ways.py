# SPDX-License-Identifier: Apache-2.0
"""Counts the product's files and functions on five data paths: python tools/ways.py [WAY ...] [--files]

Each path runs in its own process, in which a profile function records every Python function that is called. Concurrent
calls of other threads count too, so figures vary slightly. Code executed while a module is imported does not count.

A stay is a series of functions of one file that are called for the first time without one of another file in between.
Stays beyond the first one in each file are returns.
"""

from __future__ import annotations

import argparse
import inspect
import io
import json
import os
import subprocess
import sys
import tempfile
import threading
from collections.abc import Callable
from itertools import groupby
from pathlib import Path
from types import FrameType

ROOT = Path(__file__).resolve().parents[1]
PRODUCT = tuple(f"{ROOT}/{name}/" for name in ("paddle_cluster", "runtime"))
MARK = "a-marked-line"
BYTES = (bytes, bytearray)


class Tracer:
    """Records which functions of the product are called, in all threads.

    Args:
        begins: evaluated at each call until it returns True; calls are recorded from that one on.
        ends: evaluated at each recorded call until it returns True; none is recorded after that one.
    """

    def __init__(
        self,
        begins: Callable[[FrameType], bool] = lambda _: True,
        ends: Callable[[FrameType], bool] = lambda _: False,
    ) -> None:
        self.entered: dict[tuple[str, str], None] = {}  # in the order of their first calls
        self._begins, self._ends = begins, ends
        self._is_on = self._is_over = False
        self._imports = threading.local()

    def start(self) -> None:
        """Trace this thread and those that start from now on."""
        threading.setprofile(self._note)
        sys.setprofile(self._note)

    def begin(self) -> None:
        """Record calls from now on."""
        self._is_on = True

    def end(self) -> None:
        """Stop recording calls."""
        self._is_over = True

    def _note(self, frame: FrameType, event: str, _: object) -> None:
        code = frame.f_code
        if code.co_name == "<module>" and event in ("call", "return"):
            self._imports.depth = getattr(self._imports, "depth", 0) + (1 if event == "call" else -1)
        if getattr(self._imports, "depth", 0):
            return
        is_function = code.co_flags & inspect.CO_OPTIMIZED  # except bodies of modules and classes
        if event != "call" or self._is_over or not is_function or not code.co_filename.startswith(PRODUCT):
            return
        self._is_on = self._is_on or self._begins(frame)
        if self._is_on:
            self.entered[code.co_filename, code.co_qualname] = None
            self._is_over = self._ends(frame)


def never(_: FrameType) -> bool:
    """Do nothing, because `Tracer.begin` starts the tracing."""
    return False


class Watched(io.StringIO):
    """A screen that stops a tracer when the marked line is written."""

    def __init__(self, tracer: Tracer) -> None:
        super().__init__()
        self._tracer = tracer

    def write(self, text: str) -> int:
        """Stop the tracer if the text contains the marked line."""
        if MARK in text:
            self._tracer.end()
        return super().write(text)


def gradient() -> Tracer:
    """Trace one batch of a v2 trainer, whose pserver is a thread of the same process."""
    import paddle.v2 as paddle  # type: ignore[import-not-found]

    endpoint = _server()
    host, _, port = endpoint.removeprefix("tcp://").rpartition(":")
    paddle.init(use_gpu=False, trainer_count=1, pservers=host, port=int(port), num_gradient_servers=1)
    x = paddle.layer.data("x", paddle.data_type.dense_vector(8))
    y = paddle.layer.data("y", paddle.data_type.dense_vector(1))
    hidden = paddle.layer.fc(x, 4, act=paddle.activation.Relu())
    cost = paddle.layer.square_error_cost(paddle.layer.fc(hidden, 1, act=paddle.activation.Linear()), y)
    momentum = paddle.optimizer.Momentum(learning_rate=0.1)
    tracer = Tracer(never)
    tracer.start()
    trainer = paddle.trainer.SGD(cost, paddle.parameters.create(cost), momentum, is_local=False)

    def handler(event: object) -> None:
        if getattr(event, "batch_id", None) == 2:
            if isinstance(event, paddle.event.BeginIteration):
                tracer.begin()
            elif isinstance(event, paddle.event.EndIteration):
                tracer.end()

    rows = [([1.0] * 8, [1.0])] * 4
    trainer.train(lambda: iter([rows] * 4), num_passes=1, event_handler=handler)
    return tracer


def push() -> Tracer:
    """Trace `Client.push` of 8 MB over TCP to a pserver in a thread of the same process."""
    import numpy as np

    from paddle.optim.spec import OptimizerSpec  # type: ignore[import-not-found]
    from paddle.pserver import Client  # type: ignore[import-not-found]

    tracer = Tracer(never)
    tracer.start()
    client = Client([_server()], trainer_id=0, num_trainers=1, within_node=False)
    client.create({"w": np.zeros(2 << 20, np.float32)}, OptimizerSpec("momentum", learning_rate=0.1))
    gradients = {"w": np.ones(2 << 20, np.float32)}
    for _ in range(3):
        client.push(gradients)
    tracer.begin()
    client.push(gradients)
    tracer.end()
    return tracer


def host() -> Tracer:
    """Trace the launcher from the first connection to a node to the `hello` of its agent."""

    tracer = Tracer(
        begins=lambda frame: frame.f_code.co_qualname.startswith("Connector."),
        ends=lambda frame: "hello" in _arguments(frame),
    )
    tracer.start()
    _job(f"print('{MARK}')", io.StringIO())
    return tracer


def line() -> Tracer:
    """Trace the second line of a trainer from its bytes to the screen."""

    tracer = Tracer(
        begins=lambda frame: any(MARK.encode() in one for one in _arguments(frame) if type(one) in BYTES)
    )
    tracer.start()
    _job(
        "import time\nfor line in ('first', '-'.join(['a', 'marked', 'line'])):\n"
        "    time.sleep(2)\n    print(line, flush=True)\ntime.sleep(2)",
        Watched(tracer),
    )
    return tracer


def argv() -> Tracer:
    """Trace the command line of a dry run from its arguments to the printed plan."""
    tracer = Tracer()
    tracer.start()
    _job("pass", io.StringIO(), "--dry_run")
    tracer.end()
    return tracer


WAYS: dict[str, Callable[[], Tracer]] = {each.__name__: each for each in (gradient, push, host, line, argv)}


def _arguments(frame: FrameType) -> list[object]:
    code = frame.f_code
    return [frame.f_locals.get(name) for name in code.co_varnames[: code.co_argcount]]


def _server() -> str:
    from paddle.env import JobEnvironment  # type: ignore[import-not-found]
    from paddle.pserver import command  # type: ignore[import-not-found]

    given = ["--port=0", "--ports_num=1", "--num_gradient_servers=1", "--bind=127.0.0.1"]
    return command.Server(command.ServerOptions.read(given, JobEnvironment())).endpoints[0]


def _job(script: str, screen: io.StringIO, *options: str) -> None:
    import paddle_cluster.cli.main as command
    import paddle_cluster.job.job  # noqa: F401 - imports are no part of a way

    with tempfile.TemporaryDirectory() as folder:
        workspace = Path(folder, "ws")
        workspace.mkdir()
        (workspace / "train.py").write_text(script)
        Path(folder, "conf.py").write_text(f"HOSTS = ['local']\nROOT_DIR = {folder + '/nodes'!r}\n")
        given = ["-p", str(workspace), f"--conf={folder}/conf.py", "--mode=collective", *options]
        os.environ["PADDLE_STATE_DIR"] = f"{folder}/state"
        kept, sys.stdout = sys.stdout, screen
        try:
            code = command.main(given)
        finally:
            sys.stdout = kept
    if code:
        sys.exit(f"the job ended with {code}:\n{screen.getvalue()}")


def main() -> int:
    """Trace the selected data paths and print a table."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("ways", nargs="*", choices=[*WAYS, []], help="default: all")
    parser.add_argument("--files", action="store_true", help="list the files, each with its functions")
    parser.add_argument("--json", type=Path, help="write the figures, with the names, to this file")
    parser.add_argument("--inside", help=argparse.SUPPRESS)
    given = parser.parse_args()
    if given.inside:
        entered = WAYS[given.inside]().entered
        print(
            "\n" + json.dumps([[file.removeprefix(f"{ROOT}/"), name] for file, name in entered]),
            flush=True,
        )
        os._exit(0)  # threads of the pserver may still be running
    found = {}
    for way in given.ways or WAYS:
        path = f"{ROOT}/runtime:{ROOT}"
        command = [sys.executable, "-P", __file__, f"--inside={way}"]
        done = subprocess.run(
            command, env={"PYTHONPATH": path, "PATH": "/usr/bin:/bin"}, capture_output=True, text=True
        )
        if done.returncode:
            sys.exit(done.stdout + done.stderr)
        found[way] = json.loads(done.stdout.splitlines()[-1])
        files: dict[str, list[str]] = {}
        for file, name in found[way]:
            files.setdefault(file, []).append(name)
        stays = len([*groupby(file for file, _ in found[way])])
        counts = f"{len(found[way]):5} functions {stays:4} stays {stays - len(files):4} returns"
        print(f"{way:10} {len(files):4} files {counts}   {WAYS[way].__doc__}")
        for file, names in sorted(files.items()) if given.files else ():
            print(f"  {file}: {', '.join(names)}")
    if given.json:
        given.json.write_text(json.dumps(found, indent=1))
    return 0


if __name__ == "__main__":
    sys.exit(main())
