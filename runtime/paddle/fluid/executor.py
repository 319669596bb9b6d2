# SPDX-License-Identifier: Apache-2.0
"""Executor: feeds a program, runs it and fetches values."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from functools import partial
from typing import TYPE_CHECKING, Any, Protocol, runtime_checkable

from paddle import graph
from paddle.backend import to_host
from paddle.fluid.errors import FluidError, FluidTypeError, RunError
from paddle.fluid.program.misuse import MISUSE
from paddle.fluid.program.operator import Operator, OpRole
from paddle.fluid.program.program import Program, default_main_program, default_startup_program
from paddle.fluid.program.untrained import unstarted
from paddle.fluid.remote.distribution import SENDING, serving_operator
from paddle.fluid.remote.switchboard import Switchboard
from paddle.fluid.run.batch_queue import readers_named
from paddle.fluid.run.feeds import entering, keep_persistable
from paddle.fluid.run.flags import checks_finite
from paddle.fluid.run.places import CPUPlace, Place
from paddle.fluid.run.scope import Scope, global_scope, scope_guard
from paddle.fluid.run.sections import Sections, cut
from paddle.fluid.run.tensor import LoDTensor, LoDTensorArray, tensor_of
from paddle.graph.block import Name
from paddle.graph.errors import NotInitializedError
from paddle.graph.scope import fetched
from paddle.ops.base.lod import LoDArray, TensorArray
from paddle.ops.base.selected_rows import SelectedRows

if TYPE_CHECKING:
    from paddle.fluid.multislot.passes import Step
    from paddle.fluid.multislot.samples import Samples

__all__ = ["Executor", "fetch_var", "global_scope", "scope_guard"]


@runtime_checkable
class Compiled(Protocol):
    """The interface of programs with their own `run` method, such as programs for several devices."""

    def run(
        self, executor: Executor, feed: Any, fetch_list: Sequence[Name], scope: Scope, return_numpy: bool
    ) -> list[Any]:
        """Run the program on its own devices, and return the fetched values as `Executor.run` does."""


class Batches(Protocol):
    """The interface of datasets, as `fluid.DatasetFactory` creates them; `thread_num` is the number of threads."""

    thread_num: int

    def batches(self, threads: int = 0) -> Iterator[Samples]:
        """Yield the batches of a pass, read by the given number of threads, or the dataset's if 0."""


class Executor:
    """Runs programs on one device. Not thread-safe.

    Attributes:
        remote: connects transpiled programs to parameter servers.
    """

    def __init__(self, place: Place | None = None) -> None:
        given: object = place
        if isinstance(given, (list, tuple)) and len(given) == 1:
            place = given[0]
        self._set_up(place or CPUPlace(), 0)

    def _set_up(self, place: Place, lane: int) -> None:
        self.place = place
        self.remote = Switchboard()
        if not isinstance(place, Place):
            raise FluidTypeError(f"expected a place, fluid.CPUPlace() or fluid.CUDAPlace(0), got {place!r}")
        self._core = graph.Executor(place.device(), self.remote, checks_finite=checks_finite(), lane=lane)
        self._closed = False
        self._others: list[Executor] = []  # of further threads
        self._among_trainers: dict[Program, Compiled] = {}

    def run(
        self,
        program: Program | Compiled | None = None,
        feed: Mapping[str, Any] | Sequence[Mapping[str, Any]] | None = None,
        fetch_list: Sequence[Name] | None = None,
        feed_var_name: str = "feed",
        fetch_var_name: str = "fetch",
        scope: Scope | None = None,
        return_numpy: bool = True,
        use_program_cache: bool = False,
    ) -> list[Any]:
        """Run block 0 of a program on the executor's device, and return the fetched values.

        A program that was transpiled for several trainers without servers is trained together with the other trainers,
        as with `CompiledProgram`.

        Args:
            program: the program to run; None means the default main program.
            feed: arrays or LoDTensors, by the name of the variable.
            fetch_list: variables or names.
            feed_var_name: ignored.
            fetch_var_name: ignored.
            scope: holds persistable variables; None means the global scope.
            return_numpy: return numpy arrays; False: LoDTensors, which can hold sequences.
            use_program_cache: ignored: every program is compiled once for each combination of version, feeds and
                fetches.

        Raises:
            RunError: the executor is closed, or return_numpy is True and a fetched value has sequences.
            FluidTypeError: program or feed has the wrong type.
        """
        if self._closed:
            raise RunError("this executor is closed: create a new one")
        target = default_main_program() if program is None else program
        where = global_scope() if scope is None else scope
        fetches = _listed(fetch_list)
        if isinstance(target, Program) and len(target._trainers_endpoints) > 1:
            target = self._among_trainers.get(target) or self._with_trainers(target)
        if isinstance(target, Program):
            values = self.run_core(target, _one_feed(feed), fetches, where)
            results = [given(value, name, return_numpy) for value, name in zip(values, fetches, strict=True)]
            MISUSE.fetched(target, fetches, results)
            return results
        if not isinstance(target, Compiled):
            raise FluidTypeError(
                "Executor.run: expected a Program or a CompiledProgram as the first argument, got a "
                f"{type(target).__name__}; pass run(program, feed=..., fetch_list=...). load_inference_model returns "
                "three values: program, feed_names, targets = load_inference_model(...)"
            )
        return target.run(self, feed, fetches, where, return_numpy)

    def _with_trainers(self, program: Program) -> Program | Compiled:
        """Return a transpiled program as one that is trained with the other trainers.

        A program that does not train is returned unchanged.
        """
        ops = program.global_block().ops
        training = OpRole.BACKWARD | OpRole.OPTIMIZE
        if not any(isinstance(op, Operator) and op.role & training for op in ops):
            return program
        if program._averaging is not None:
            raise FluidError(
                "the trainers of this program average their parameters: "
                "run it with CompiledProgram or ParallelExecutor, and call average() at the end"
            )
        from paddle.fluid.compiler import CompiledProgram

        together = CompiledProgram(program).with_data_parallel(
            places=[self.place],
            num_trainers=len(program._trainers_endpoints),
            trainer_id=program._trainer_id,
        )
        return self._among_trainers.setdefault(program, together)

    def run_core(
        self, program: Program, feed: Mapping[str, Any], fetch_list: Sequence[Name], scope: Scope
    ) -> list[Any]:
        """Run a program and return the values in the core's types.

        The program of a server serves requests until every trainer has connected and left.

        Raises:
            PserverLost: a parameter server is unreachable.
            PserverError: a parameter server refused a request, or timed out waiting for another trainer.
        """
        operator = serving_operator(program)
        if operator is not None:
            from paddle.fluid.remote.serving import serve

            serve(program, operator, scope, self.place.device())
            return []
        block = program.global_block()
        values = {name: entering(value, block, name) for name, value in feed.items()}
        # A startup program draws the same first values however often it runs.
        goes_on = values or fetch_list or any(op.type == "read" for op in block.ops)
        step = None if goes_on else 0
        MISUSE.check(program, scope, bool(goes_on))
        values = keep_persistable(values, block, scope)
        with self.remote.connected(program, scope), readers_named(block):
            try:
                found = self._core.run(program, values, fetch_list, scope, step)
            except NotInitializedError as error:
                reason = unstarted(error.name, program, default_startup_program(), scope)
                text = f"{error.name!r} has no value in the scope: {reason}" if reason else str(error)
                raise NotInitializedError(error.name, text) from None
        if not goes_on:
            MISUSE.initialized(program, scope)
        return found

    def train_from_dataset(
        self,
        program: Program | Compiled | None = None,
        dataset: Batches | None = None,
        scope: Scope | None = None,
        thread: int = 0,
        debug: bool = False,
        fetch_list: Sequence[Name] | Name | None = None,
        fetch_info: Sequence[str] | str | None = None,
        print_period: int = 100,
    ) -> None:
        """Train a program on each batch of a dataset, and print fetched values.

        `thread` threads read and parse files, one thread prepares batches, and `thread` threads train. Training threads
        update shared parameters without locks (Hogwild): updates can be lost, and results differ from run to run. With
        one thread, results are repeatable. A program that uses servers, a GPU or CompiledProgram is trained by one
        thread.

        Args:
            program: the program to run; None means the default main program. A transpiled program uses its servers.
            dataset: a dataset of `fluid.DatasetFactory`.
            scope: holds persistable variables; None means the global scope.
            thread: number of threads; 0 means the value of `set_thread`.
            debug: print batches, samples and seconds at the end.
            fetch_list: variables to print for every `print_period`-th batch, starting with the first.
            fetch_info: one label per variable; None means the variables' names.
            print_period: number of batches from one printed line to the next.

        Raises:
            FluidTypeError: the dataset is missing.
        """
        if dataset is None:
            raise FluidTypeError(
                "train_from_dataset: expected a dataset created by fluid.DatasetFactory, got None"
            )
        from paddle.fluid.multislot.passes import printing, run_pass

        printed = printing(fetch_list, fetch_info, print_period, debug)
        target = default_main_program() if program is None else program
        if isinstance(target, Program) and target._pipeline_opt is not None:
            if len(target._trainers_endpoints) > 1:
                raise FluidError("PipelineOptimizer trains in one process: do not transpile its program")
            with self._in_sections(target, scope or global_scope(), target._pipeline_opt) as put:
                run_pass([put], dataset.batches(thread), printed)
            return
        run_pass(self.steps(target, thread or dataset.thread_num, scope), dataset.batches(thread), printed)

    @contextmanager
    def _in_sections(
        self, program: Program, scope: Scope, settings: Mapping[str, Any]
    ) -> Iterator[Callable[[Mapping[str, Any], Sequence[Name]], list[Any]]]:
        """Run the sections of a program; yield a function that feeds a batch and waits for fetched values."""
        parts = cut(program, settings["cut_list"])
        device, block = self.place.device(), program.global_block()
        cores = [graph.Executor(device, self.remote, checks_finite=checks_finite()) for _ in parts]
        sections = Sections(parts, cores, scope, settings["queue_size"])

        def put(feed: Mapping[str, Any], fetches: Sequence[Name]) -> list[Any]:
            names = [each if isinstance(each, str) else each.name for each in fetches]
            values = {name: entering(value, block, name) for name, value in feed.items()}
            result = sections.put(values, names)
            if not names:
                return []
            return [given(value, name, False) for value, name in zip(result.result(), names, strict=True)]

        with self.remote.connected(program, scope), sections.working():
            yield put

    def steps(self, program: Program | Compiled | None, threads: int, scope: Scope | None) -> list[Step]:
        """Return one function per thread, which runs the program on a batch.

        See `train_from_dataset`.
        """
        target = default_main_program() if program is None else program
        is_alone = (
            isinstance(target, Program)
            and len(target._trainers_endpoints) < 2
            and not any(op.type in SENDING for op in target.global_block().ops)
        )
        if not is_alone or not isinstance(self.place, CPUPlace):
            threads = 1
        # The sections are cached: another pass neither compiles them again nor draws the same random numbers.
        for number in range(len(self._others) + 1, threads):
            self._others.append(other := Executor.__new__(Executor))
            other._set_up(self.place, number)
        executors = [self, *self._others[: max(threads - 1, 0)]]
        where = global_scope() if scope is None else scope  # a guard applies to its own thread only
        return [partial(each.run, target, scope=where, return_numpy=False) for each in executors]

    def infer_from_dataset(
        self,
        program: Program | Compiled | None = None,
        dataset: Batches | None = None,
        scope: Scope | None = None,
        thread: int = 0,
        debug: bool = False,
        fetch_list: Sequence[Name] | Name | None = None,
        fetch_info: Sequence[str] | str | None = None,
        print_period: int = 100,
    ) -> None:
        """Run a program's forward pass on each batch of a dataset, without updates; see `train_from_dataset`."""
        target = default_main_program() if program is None else program
        if isinstance(target, Program):
            target = target.clone()
            target._pipeline_opt, target._is_test = None, True
            target._remove_training()
        self.train_from_dataset(target, dataset, scope, thread, debug, fetch_list, fetch_info, print_period)

    def close(self) -> None:
        """Close the executor and leave the parameter servers, which then no longer wait for this trainer."""
        self._closed = True
        self.remote.close()


def fetch_var(name: Name, scope: Scope | None = None, return_numpy: bool = True) -> Any:
    """Return the value of a variable in a scope; if scope is None, in the global scope.

    Raises:
        NotInitializedError: the variable has no value.
    """
    known = name if isinstance(name, str) else name.name
    return given((scope or global_scope()).get(known), known, return_numpy)


_fetch_var = fetch_var


def as_numpy(tensor: Any) -> Any:
    """Return a fetched value as an array.

    Raises:
        RunError: the value has sequences.
    """
    if isinstance(tensor, (list, LoDTensorArray)):
        return [as_numpy(each) for each in tensor]
    value = tensor.value() if isinstance(tensor, LoDTensor) else tensor
    return given(value, "the tensor", True)


def _listed(fetch_list: Sequence[Name] | None) -> list[Name]:
    if fetch_list is None:
        return []
    if isinstance(fetch_list, (str, graph.Variable)):
        return [fetch_list]
    for each in fetch_list:
        if not isinstance(each, (str, graph.Variable)):
            raise FluidTypeError(f"fetch_list: expected variables or names, got {each!r}")
    return list(fetch_list)


def _one_feed(feed: Any) -> Mapping[str, Any]:
    if feed is None:
        return {}
    if isinstance(feed, (list, tuple)) and len(feed) == 1:
        feed = feed[0]
    if not isinstance(feed, Mapping):
        raise FluidTypeError(
            f"feed: expected a dict of name to array, such as {{'x': x}}, got {type(feed).__name__}; "
            "fluid.DataFeeder makes it from samples"
        )
    return feed


def given(value: Any, name: Name, return_numpy: bool) -> Any:
    """Return a fetched value as an array or, if return_numpy is False, as a LoDTensor.

    Raises:
        RunError: an array is requested, but the value has sequences.
    """
    if value is None or isinstance(value, SelectedRows):
        return value
    if isinstance(value, TensorArray):
        value = list(value.items)
    if isinstance(value, list):
        return [given(each, name, return_numpy) for each in value]
    if not return_numpy:
        return tensor_of(value)
    if isinstance(value, LoDArray):
        raise RunError(
            f"{getattr(name, 'name', name)!r} has sequences, which an array cannot represent: pass return_numpy=False"
        )
    return fetched(to_host(value))
