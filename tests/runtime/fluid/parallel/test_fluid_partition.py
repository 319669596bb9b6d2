# SPDX-License-Identifier: Apache-2.0
"""Programs whose updates need more of a pass than gradients: two places give the numbers of one."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from types import MappingProxyType
from typing import Any

import numpy as np
import pytest

import paddle.fluid as fluid

L = fluid.layers


def parameters() -> list[Any]:
    return list(fluid.default_main_program().global_block().all_parameters())


def own_rate(loss: Any) -> None:
    """A schedule without `_lr_schedule_guard`."""
    step = L.cast(L.autoincreased_step_counter(begin=1), "float32")
    fluid.optimizer.Momentum(L.fill_constant([1], "float32", 0.1) / L.sqrt(step), 0.9).minimize(loss)


def multiplied_rate(loss: Any) -> None:
    """A factor, without `_lr_schedule_guard`, of a schedule; the gradients of a shared parameter are scaled."""
    optimizer = fluid.optimizer.Momentum(L.exponential_decay(0.1, 2, 0.7) * 2.0, 0.9)
    w = fluid.default_main_program().global_block().var("w")
    pairs = optimizer.backward(loss + L.mean(L.square(w)))
    optimizer.apply_gradients([(param, L.clip(grad, -0.1, 0.1)) for param, grad in pairs])


def decay_of_copies(loss: Any) -> None:
    """Weight decay by the values that the parameters had before the update."""
    params = fluid.default_main_program().global_block().all_parameters()
    before = {each.name: L.scale(each, 1.0) for each in params}
    for param, grad in fluid.optimizer.SGD(0.1).minimize(loss)[1]:
        with fluid.default_main_program()._optimized_guard([param, grad]):
            L.assign(param - before[param.name] * 0.01, output=param)


def own_clip(loss: Any) -> None:
    """Gradients that are changed between the backward pass and the updates, by the norm of all."""
    optimizer = fluid.optimizer.Adam(0.05)
    pairs = optimizer.backward(loss)
    norm = L.sqrt(L.sums([L.reduce_sum(L.square(grad)) for _, grad in pairs]))
    optimizer.apply_gradients([(param, L.clip(grad / (norm + 0.1), -0.2, 0.2)) for param, grad in pairs])


def own_update(loss: Any) -> None:
    """Updates that are written without an optimizer, with a state."""
    for param, grad in fluid.backward.append_backward(loss):
        speed = L.create_global_var(list(param.shape), 0.0, "float32", persistable=True)
        L.assign(speed * 0.9 + grad, output=speed)
        L.assign(param - speed * 0.1, output=param)


def bounded_weights(loss: Any) -> None:
    """Bounds on the weights after each update, as critics have them."""
    fluid.optimizer.RMSProp(0.05).minimize(loss)
    for param in parameters():
        L.assign(L.clip(param, -0.2, 0.2), output=param)


def bounded_own_update(loss: Any) -> None:
    own_update(loss)
    for param in parameters():
        L.assign(L.clip(L.scale(param, 1.5), -0.4, 0.4), output=param)


def slow_weights(loss: Any) -> None:
    """Weights that follow a moving average, which the script computes after the update."""
    params = parameters()
    fluid.optimizer.Adam(0.05).minimize(loss)
    for param in params:
        slow = L.create_global_var(param.shape, 0.1, "float32", persistable=True, name=f"slow_{param.name}")
        L.assign(slow * 0.5 + param * 0.5, slow)
        L.assign(slow, output=param)


def weights_of_losses_by_schedules(loss: Any) -> None:
    """Losses that follow schedules, one of which is also the rate: its value persists, the other's does not."""
    rate = L.piecewise_decay([2], [0.5, 0.1])
    fluid.optimizer.Momentum(rate, 0.9).minimize(loss * rate + loss * L.inverse_time_decay(0.1, 1, 0.5))


def persistable_gradients(loss: Any) -> None:
    for _, grad in fluid.optimizer.SGD(0.1).minimize(loss)[1]:
        grad.persistable = True


def slope_of_the_input(loss: Any) -> None:
    """A loss that is computed from gradients itself."""
    x = fluid.default_main_program().global_block().var("x")
    (slope,) = fluid.gradients([loss], [x])
    fluid.optimizer.SGD(0.1).minimize(loss + L.mean(L.abs(slope)) * 0.0)


MAKERS: Mapping[str, Callable[[Any], None]] = MappingProxyType(
    {
        each.__name__: each
        for each in (
            own_rate,
            multiplied_rate,
            decay_of_copies,
            own_clip,
            own_update,
            bounded_weights,
            bounded_own_update,
            slow_weights,
            weights_of_losses_by_schedules,
            persistable_gradients,
            slope_of_the_input,
        )
    }
)


def _trained(make: Callable[[Any], None], places: int) -> Any:
    with (
        fluid.program_guard(fluid.Program(), fluid.Program()),
        fluid.unique_name.guard(),
        fluid.scope_guard(fluid.Scope()),
    ):
        fluid.default_startup_program().random_seed = 9
        x, y = L.data("x", [4], stop_gradient=False), L.data("y", [1])
        guess = L.fc(L.fc(x, 8, act="tanh", param_attr="w"), 1)
        loss = L.mean(L.square_error_cost(guess, y))
        make(loss)
        exe = fluid.Executor(fluid.CPUPlace())
        exe.run(fluid.default_startup_program())
        program: Any = fluid.default_main_program()
        if places > 1:
            program = fluid.CompiledProgram(program).with_data_parallel(places=fluid.cpu_places(places))
        rng = np.random.default_rng(1)
        for _ in range(4):
            xs = rng.standard_normal((12, 4)).astype("float32")
            exe.run(program, feed={"x": xs, "y": xs.sum(1, keepdims=True)}, fetch_list=[loss])
        return fluid.global_scope().get("w").copy()


def second_loss(y: Any, guess: Any) -> list[Any]:
    """Two losses of one net: the second backward pass reads the parameters that the first one updated."""
    losses = [L.mean(L.square(guess(True) - y)), L.mean(L.abs(guess(True) - y))]
    for loss in losses:
        fluid.optimizer.SGD(0.1).minimize(loss)
    return losses


def adversaries(y: Any, guess: Any) -> list[Any]:
    """Two losses that update different parameters, of which the second loss reads both."""
    far = L.mean(L.square(guess(True) - y))
    fluid.optimizer.SGD(0.1).minimize(far, parameter_list=["v"])
    near = L.mean(L.abs(guess(True) - y))
    fluid.optimizer.SGD(0.1).minimize(near, parameter_list=["w"])
    return [far, near]


def separate_losses(y: Any, guess: Any) -> list[Any]:
    losses = [L.mean(L.square(guess(True) - y)), L.mean(L.abs(guess(False) - y))]
    for loss in losses:
        fluid.optimizer.Adam(0.1).minimize(loss)
    return losses


def later_test(y: Any, guess: Any) -> list[Any]:
    """One loss, and a test of the updated parameters, which a step does not need."""
    trained = L.mean(L.square(guess(True) - y))
    fluid.optimizer.SGD(0.1).minimize(trained)
    return [trained, L.mean(L.abs(guess(True) - y))]


def persistent_output(y: Any, guess: Any) -> list[Any]:
    """A second loss that reads an output of the first pass, which each place keeps in its own scope."""
    found = guess(True)
    found.persistable = True
    first = L.mean(L.square(found - y))
    fluid.optimizer.SGD(0.1).minimize(first)
    second = L.mean(L.abs(guess(True) - y)) + L.mean(found)
    fluid.optimizer.SGD(0.1).minimize(second)
    return [first, second]


def weights_by_batch(y: Any, guess: Any) -> list[Any]:
    """A test of parameters that each place changes by its own part of the batch."""
    trained = L.mean(L.square(guess(True) - y))
    fluid.optimizer.SGD(0.1).minimize(trained)
    weight = fluid.default_main_program().global_block().var("w")
    L.assign(weight * L.mean(L.abs(y)), weight)
    return [trained, L.mean(L.abs(guess(True) - y))]


def linear_twice(y: Any, guess: Any) -> list[Any]:
    """Two losses of one linear layer, whose gradients need no values of its parameters."""
    rows = L.embedding(L.cast(y > 0.0, "int64"), [2, 1], param_attr="rows")
    found = L.fc(fluid.default_main_program().global_block().var("x"), 1, param_attr="w") + rows
    losses = [L.mean(L.square(found - y)), L.mean(L.abs(found - y))]
    for loss in losses:
        fluid.optimizer.Momentum(0.1, 0.5).minimize(loss)
    return losses


def _both(make: Any, ways: tuple[int, int] | None, fetched: int = 2) -> list[Any]:
    """Return the mean losses of four steps, and w; ways: places and repeats, None: a plain executor."""
    with (
        fluid.program_guard(fluid.Program(), fluid.Program()),
        fluid.unique_name.guard(),
        fluid.scope_guard(fluid.Scope()),
    ):
        fluid.default_startup_program().random_seed = 9
        x, y = L.data("x", [4]), L.data("y", [1])

        def guess(shared: bool) -> Any:
            names = ("w", "v") if shared else (None, None)
            hidden = L.fc(x, 8, act="tanh", param_attr=names[0], bias_attr=False)
            return L.fc(hidden, 1, param_attr=names[1], bias_attr=False)

        losses = make(y, guess)[:fetched]
        exe = fluid.Executor(fluid.CPUPlace())
        exe.run(fluid.default_startup_program())
        program: Any = fluid.default_main_program()
        if ways is not None:
            strategy = fluid.BuildStrategy()
            passes = strategy._finalize_strategy_and_create_passes()
            passes.append_pass("multi_batch_merge_pass").set("num_repeats", ways[1])
            program = fluid.CompiledProgram(program).with_data_parallel(
                build_strategy=strategy, places=fluid.cpu_places(ways[0])
            )
        rng, found = np.random.default_rng(1), []
        for _ in range(4):
            xs = rng.standard_normal((12, 4)).astype("float32")
            found += exe.run(program, feed={"x": xs, "y": xs.sum(1, keepdims=True)}, fetch_list=losses)
        return [*(each.mean() for each in found), *fluid.global_scope().get("w").ravel()]


@pytest.mark.parametrize("make", [second_loss, adversaries, later_test])
def test_a_loss_that_needs_the_update_of_another_runs_after_it_on_all_places(make: Any) -> None:
    np.testing.assert_allclose(_both(make, (3, 1)), _both(make, None), rtol=1e-4, atol=1e-6)


@pytest.mark.parametrize("make", [persistent_output, weights_by_batch])
def test_a_later_loss_that_reads_what_places_keep_apart_is_refused(make: Any) -> None:
    _both(make, None)
    with pytest.raises(fluid.core.EnforceNotMet, match=r"'[wv]'.*'mean_0.tmp_0'"):
        _both(make, (3, 1))


@pytest.mark.parametrize("make", [second_loss, adversaries, later_test])
def test_repeats_of_a_loss_that_needs_the_update_of_another_are_refused(make: Any) -> None:
    with pytest.raises(fluid.core.EnforceNotMet, match=r"'mean_1.tmp_0'.*'[wv]'.*'mean_0.tmp_0'"):
        _both(make, (1, 2))


def test_printing_what_needs_the_update_of_a_loss_is_refused() -> None:
    def printed(y: Any, guess: Any) -> Any:
        losses = later_test(y, guess)
        L.Print(losses[1])
        return losses

    with pytest.raises(fluid.core.EnforceNotMet, match=r"'mean_1.tmp_0'.*'[wv]'.*'mean_0.tmp_0'"):
        _both(printed, (1, 2), 1)


@pytest.mark.parametrize("make", [second_loss, adversaries, later_test])
def test_one_place_runs_two_losses_in_the_order_of_the_program(make: Any) -> None:
    np.testing.assert_allclose(_both(make, (1, 1)), _both(make, None), rtol=1e-6)


@pytest.mark.parametrize("ways", [(3, 1), (1, 2)])
@pytest.mark.parametrize(("make", "fetched"), [(separate_losses, 2), (later_test, 1), (linear_twice, 2)])
def test_losses_that_need_no_update_of_each_other_train(
    make: Any, fetched: int, ways: tuple[int, int]
) -> None:
    np.testing.assert_allclose(_both(make, ways, fetched), _both(make, None, fetched), rtol=1e-4, atol=1e-6)


def test_two_programs_that_share_parameters_train_in_turn_as_one_program_on_one_place() -> None:
    def trained(places: int) -> Any:
        with fluid.scope_guard(fluid.Scope()):
            exe, steps = fluid.Executor(fluid.CPUPlace()), []
            for number, measure in enumerate((L.square, L.abs)):
                main, startup = fluid.Program(), fluid.Program()
                startup.random_seed = 9
                with fluid.program_guard(main, startup), fluid.unique_name.guard(f"net{number}_"):
                    x, y = L.data("x", [4]), L.data("y", [1])
                    guess = L.fc(L.fc(x, 8, act="tanh", param_attr="w"), 1, param_attr="v")
                    loss = L.mean(measure(guess - y))
                    fluid.optimizer.SGD(0.1).minimize(loss)
                exe.run(startup)
                steps.append(fluid.CompiledProgram(main).with_data_parallel(places=fluid.cpu_places(places)))
            rng = np.random.default_rng(1)
            for _ in range(4):
                xs = rng.standard_normal((12, 4)).astype("float32")
                for step in steps:
                    exe.run(step, feed={"x": xs, "y": xs.sum(1, keepdims=True)})
            return fluid.global_scope().get("w").copy()

    np.testing.assert_allclose(trained(3), trained(1), rtol=1e-4, atol=1e-6)


@pytest.mark.parametrize("name", MAKERS)
def test_updates_get_sums_of_gradients_and_single_values_of_the_rest(name: str) -> None:
    np.testing.assert_allclose(_trained(MAKERS[name], 3), _trained(MAKERS[name], 1), rtol=1e-4, atol=1e-6)


def test_a_table_that_only_one_place_looks_up_trains_like_one_whose_other_rows_are_masked() -> None:
    def trained(places: int) -> Any:
        main, startup = fluid.Program(), fluid.Program()
        startup.random_seed = 9
        with fluid.program_guard(main, startup), fluid.unique_name.guard():
            x, flag, ids = L.data("x", [4]), L.data("flag", [1]), L.data("ids", [1], dtype="int64")
            last = L.scale(x, 1.0)

            def rows() -> Any:
                return L.elementwise_mul(L.embedding(ids, [9, 4], is_sparse=True, param_attr="table"), flag)

            if places == 1:
                last = L.elementwise_add(x, rows())
            else:
                looks_up = L.less_than(L.zeros([1], "float32"), L.mean(flag))
                with L.ConditionalBlock([looks_up], is_scalar_condition=True).block():
                    L.assign(L.elementwise_add(x, rows()), last)
            loss = L.mean(L.square(L.fc(last, 1)))
            fluid.optimizer.Adagrad(0.1).minimize(loss)
        with fluid.scope_guard(fluid.Scope()):
            exe = fluid.Executor(fluid.CPUPlace())
            exe.run(startup)
            step = fluid.CompiledProgram(main).with_data_parallel(places=fluid.cpu_places(places))
            rng = np.random.default_rng(1)
            for flags in ([1, 1, 0, 0], [0, 0, 1, 1], [0, 0, 0, 0], [1, 1, 1, 1]):
                feed = {"x": rng.standard_normal((4, 4)), "flag": np.array(flags)[:, None]}
                feed = {name: value.astype("float32") for name, value in feed.items()}
                exe.run(step, feed={**feed, "ids": rng.integers(0, 9, (4, 1))})
            return fluid.global_scope().get("table").copy()

    np.testing.assert_allclose(trained(2), trained(1), rtol=1e-4, atol=1e-6)
