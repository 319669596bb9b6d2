# SPDX-License-Identifier: Apache-2.0
"""multiprocess_reader: runs several readers in processes, and yields samples as they arrive."""

from __future__ import annotations

import multiprocessing
import multiprocessing.connection
import traceback
from collections.abc import Iterator, Sequence
from multiprocessing.connection import Connection
from typing import Any, TypeVar

from paddle.errors import ConfigError, PaddleError
from paddle.reader.ahead import marked
from paddle.reader.decorator import Reader

T = TypeVar("T")

_SAMPLE, _END, _FAILED = range(3)
_STOP_S = 5.0


def multiprocess_reader(
    readers: Sequence[Reader[T]], use_pipe: bool = True, queue_size: int = 1000
) -> Reader[T]:
    """Yield the samples of several readers, each in its own process; the order is not fixed.

    Processes are forked when iteration starts, and have exited when it ends, even if the consumer stops early.

    Args:
        readers: each returns a part of the samples.
        use_pipe: ignored: pipes are always used.
        queue_size: ignored: the system sets the size of a pipe.

    Raises:
        ConfigError: at once, when there are no readers.
        PaddleError: in the consumer, when a reader failed or its process ended; the message has its traceback.
    """
    if not readers:
        raise ConfigError("multiprocess_reader: expected at least one reader")

    def read() -> Iterator[T]:
        context = multiprocessing.get_context("fork")
        running: dict[Connection[Any, Any], Any] = {}
        try:
            for reader in readers:
                ours, theirs = context.Pipe(duplex=False)
                process = context.Process(target=_send, args=(reader, theirs), daemon=True)
                process.start()
                theirs.close()
                running[ours] = process
            yield from _received(running)
        finally:
            for pipe, process in running.items():
                pipe.close()
                process.kill()
                process.join(_STOP_S)

    return marked(read)


def _received(running: dict[Connection[Any, Any], Any]) -> Iterator[Any]:
    waiting = set(running)
    while waiting:
        for pipe in multiprocessing.connection.wait(list(waiting)):
            assert isinstance(pipe, Connection)
            try:
                kind, content = pipe.recv()
            except EOFError:
                running[pipe].join(_STOP_S)
                raise PaddleError(
                    f"multiprocess_reader: a reader process exited early with code {running[pipe].exitcode}"
                ) from None
            if kind == _SAMPLE:
                yield content
            elif kind == _END:
                waiting.discard(pipe)
            else:
                raise PaddleError(f"multiprocess_reader: a reader failed:\n{content}")


def _send(reader: Reader[Any], pipe: Connection[Any, Any]) -> None:
    try:
        for sample in reader():
            pipe.send((_SAMPLE, sample))
        pipe.send((_END, None))
    except (BrokenPipeError, KeyboardInterrupt):
        pass
    except Exception:  # noqa: BLE001 - raised where samples are read
        pipe.send((_FAILED, traceback.format_exc()))
