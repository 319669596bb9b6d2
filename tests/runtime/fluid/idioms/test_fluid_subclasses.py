# SPDX-License-Identifier: Apache-2.0
"""Classes that scripts derive from Fluid's: optimizers, decays, clips, initializers, metrics and evaluators."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import paddle.fluid
from paddle.fluid import core

fluid: Any = paddle.fluid  # as in scripts, which know no types
layers = fluid.layers

X = np.array([[1.0, -2.0, 0.5], [3.0, 0.0, -1.0]], np.float32)
G = np.repeat(X.sum(axis=0)[:, None], 2, axis=1)  # the gradient of the weight in every step


def value(name: str) -> Any:
    return np.array(fluid.global_scope().find_var(name).get_tensor())


def weights(optimizer: Any, steps: int = 3, **attr: Any) -> list[Any]:
    """Return the weight before training and after each step; the loss is the sum of x w."""
    x = layers.data("x", [3])
    loss = layers.reduce_sum(layers.fc(x, 2, param_attr=fluid.ParamAttr(name="w", **attr), bias_attr=False))
    optimizer.minimize(loss)
    exe = fluid.Executor(fluid.CPUPlace())
    exe.run(fluid.default_startup_program())
    found = [value("w")]
    for _ in range(steps):
        exe.run(feed={"x": X})
        found.append(value("w"))
    return found


class HeavyBall(fluid.optimizer.Optimizer):  # type: ignore[misc]
    """Written as in 2019: v = mu v + g, p = p - lr v, and then p = p / 2."""

    def __init__(self, learning_rate: float, mu: float, **named: Any) -> None:
        super().__init__(learning_rate=learning_rate, **named)
        self.type = "heavy_ball"
        self._mu = mu

    def _create_accumulators(self, block: Any, parameters: Any) -> None:
        for parameter in parameters:
            self._add_accumulator("ball", parameter, fill_value=1.0)

    def _append_optimize_op(self, block: Any, param_and_grad: Any) -> Any:
        ball = self._get_accumulator("ball", param_and_grad[0])
        return block.append_op(
            type="momentum",
            inputs={
                "Param": param_and_grad[0],
                "Grad": param_and_grad[1],
                "Velocity": ball,
                "LearningRate": self._create_param_lr(param_and_grad),
            },
            outputs={"ParamOut": param_and_grad[0], "VelocityOut": ball},
            attrs={"mu": self._mu},
        )

    def _finish_update(self, block: Any, parameters_and_grads: Any) -> None:
        for pair in parameters_and_grads:
            with pair[0].block.program._optimized_guard(pair):
                block.append_op(
                    type="scale", inputs={"X": pair[0]}, outputs={"Out": pair[0]}, attrs={"scale": 0.5}
                )


def test_an_optimizer_of_a_script_trains_by_its_own_rule() -> None:
    optimizer = HeavyBall(0.1, 0.5, name="mine")
    found = weights(optimizer, learning_rate=2.0)
    w, ball = found[0], np.ones_like(G)
    for each in found[1:]:
        ball = 0.5 * ball + G
        w = (w - 0.2 * ball) / 2
        np.testing.assert_allclose(each, w, rtol=1e-5)
    assert optimizer.get_opti_var_name_list() == ["w_mine_ball_0"]
    np.testing.assert_allclose(value("w_mine_ball_0"), ball, rtol=1e-6)


def test_a_changed_update_of_an_adam_is_used_and_sees_the_fields_of_the_original() -> None:
    class Decayed(fluid.optimizer.AdamOptimizer):  # type: ignore[misc]
        def _append_optimize_op(self, block: Any, param_and_grad: Any) -> Any:
            op = super()._append_optimize_op(block, param_and_grad)
            moment = self._get_accumulator(self._moment1_acc_str, param_and_grad[0])
            block.append_op(
                "scale",
                {"X": moment},
                {"Out": param_and_grad[0]},
                {"scale": self._beta2, "bias": self._epsilon},
            )
            return op

    found = weights(Decayed(learning_rate=0.1, beta1=0.5, beta2=0.25, epsilon=1.0), steps=2)
    np.testing.assert_allclose(found[1], 0.25 * 0.5 * G + 1, rtol=1e-5)
    np.testing.assert_allclose(found[2], 0.25 * 0.75 * G + 1, rtol=1e-5)


def test_the_learning_rate_of_a_subclass_is_used() -> None:
    class Fixed(fluid.optimizer.SGDOptimizer):  # type: ignore[misc]
        def _create_global_learning_rate(self) -> None:
            rate = layers.create_global_var([1], 4.0, "float32", persistable=True)
            self._learning_rate_map[fluid.default_main_program()] = rate

    found = weights(Fixed(learning_rate=0.1), steps=1)
    np.testing.assert_allclose(found[1], found[0] - 4 * G, rtol=1e-5)


def test_a_setting_that_a_script_changes_before_minimize_is_used() -> None:
    optimizer = fluid.optimizer.Momentum(0.1, 0.9)
    optimizer._momentum = 0.5
    found = weights(optimizer, steps=2)
    np.testing.assert_allclose(found[2], found[0] - 0.1 * (G + 1.5 * G), rtol=1e-5)


def test_minimize_of_a_subclass_may_change_the_gradients() -> None:
    class Halved(fluid.optimizer.SGD):  # type: ignore[misc]
        def minimize(self, loss: Any, startup_program: Any = None, **named: Any) -> Any:
            pairs = self.backward(loss, startup_program=startup_program)
            return self.apply_gradients([(parameter, layers.scale(grad, 0.5)) for parameter, grad in pairs])

    found = weights(Halved(0.1), steps=1)
    np.testing.assert_allclose(found[1], found[0] - 0.05 * G, rtol=1e-5)


def test_an_optimizer_without_an_update_is_refused_by_name() -> None:
    class Unfinished(fluid.optimizer.Optimizer):  # type: ignore[misc]
        pass

    with pytest.raises(ValueError, match=r"Unfinished.*_append_optimize_op"):
        weights(Unfinished(0.1))


def test_an_unknown_accumulator_is_named() -> None:
    class Wrong(fluid.optimizer.SGD):  # type: ignore[misc]
        def _append_optimize_op(self, block: Any, param_and_grad: Any) -> Any:
            return self._get_accumulator("velocity", param_and_grad[0])

    with pytest.raises(ValueError, match=r"Wrong.*'velocity'.*'w'"):
        weights(Wrong(0.1))


def test_updates_of_a_script_are_not_cut_into_slices() -> None:
    def slices(optimizer: Any) -> set[int]:
        with fluid.program_guard(fluid.Program(), fluid.Program()), fluid.unique_name.guard():
            x = layers.data("x", [300])
            optimizer.minimize(layers.mean(layers.fc(x, 300, param_attr="w", bias_attr=False)))
            t = fluid.DistributeTranspiler()
            t.transpile(0, pservers="127.0.0.1:6174,127.0.0.1:6175", trainers=2)
            parts = t.vars_overview.get_distributed_var_by_slice
            return {at for at in range(3) if parts(f"w.block{at}") is not None}

    class ByNorm(fluid.optimizer.SGD):  # type: ignore[misc]
        def _append_optimize_op(self, block: Any, param_and_grad: Any) -> Any:
            parameter, grad = param_and_grad
            grad = grad / layers.sqrt(layers.reduce_sum(layers.square(grad)))
            return super()._append_optimize_op(block, (parameter, grad))

    class WithState(fluid.optimizer.SGD):  # type: ignore[misc]
        def _create_accumulators(self, block: Any, parameters: Any) -> None:
            for parameter in parameters:
                self._add_accumulator("sum", parameter)

        def _append_optimize_op(self, block: Any, param_and_grad: Any) -> Any:
            parameter, grad = param_and_grad
            total = self._get_accumulator("sum", parameter)
            block.append_op("sum", {"X": [total, grad]}, {"Out": total})
            return super()._append_optimize_op(block, (parameter, total))

    assert slices(fluid.optimizer.Adam(0.1)) == {0, 1}
    assert slices(ByNorm(0.1)) == slices(WithState(0.1)) == set()


class Unguarded(HeavyBall):
    """Ends with operators that name no parameter, as scripts before 1.0 did."""

    def _finish_update(self, block: Any, parameters_and_grads: Any) -> None:
        for parameter, _ in parameters_and_grads:
            block.append_op(
                type="scale", inputs={"X": parameter}, outputs={"Out": parameter}, attrs={"scale": 0.5}
            )


@pytest.mark.parametrize("optimizer", [HeavyBall, Unguarded])
@pytest.mark.parametrize("how", ["places", "accumulation"])
def test_an_optimizer_of_a_script_updates_once_for_all_parts_of_a_batch(optimizer: Any, how: str) -> None:
    found = []
    for parts in (1, 2):
        with (
            fluid.program_guard(fluid.Program(), fluid.Program()),
            fluid.unique_name.guard(),
            fluid.scope_guard(fluid.Scope()),
        ):
            x = layers.data("x", [3])
            one = fluid.ParamAttr(name="w", initializer=fluid.initializer.Constant(1.0))
            loss = layers.mean(layers.square(layers.fc(x, 2, param_attr=one, bias_attr=False)))
            optimizer(0.1, 0.5).minimize(loss)
            strategy = fluid.BuildStrategy()
            if how == "accumulation":
                merging = strategy._finalize_strategy_and_create_passes().append_pass(
                    "multi_batch_merge_pass"
                )
                merging.set("num_repeats", parts)
            program = fluid.CompiledProgram(fluid.default_main_program()).with_data_parallel(
                loss.name, strategy, places=fluid.cpu_places(parts if how == "places" else 1)
            )
            exe = fluid.Executor(fluid.CPUPlace())
            exe.run(fluid.default_startup_program())
            for _ in range(3):
                exe.run(program, feed={"x": X}, fetch_list=[loss])
            found.append(value("w"))
    np.testing.assert_allclose(found[0], found[1], rtol=1e-5)


def test_an_operator_of_an_update_that_no_server_would_run_is_refused() -> None:
    x = layers.data("x", [3])
    Unguarded(0.1, 0.5).minimize(layers.mean(layers.fc(x, 2, param_attr="w", bias_attr=False)))
    with pytest.raises(ValueError, match=r"'scale'.*'w'.*_optimized_guard"):
        fluid.DistributeTranspiler().transpile(0, pservers="127.0.0.1:6174", trainers=2)


def test_a_decay_of_a_script_is_added_to_the_gradient() -> None:
    class Shifted(fluid.regularizer.WeightDecayRegularizer):  # type: ignore[misc]
        def __call__(self, param: Any, grad: Any, block: Any) -> Any:
            decay = block.create_var(dtype="float32", shape=param.shape, lod_level=param.lod_level)
            block.append_op("elementwise_add", {"X": param, "Y": grad}, {"Out": decay})
            return decay

    found = weights(fluid.optimizer.SGD(0.1), steps=1, regularizer=Shifted())
    np.testing.assert_allclose(found[1], found[0] - 0.1 * (2 * G + found[0]), rtol=1e-5)


def test_a_clip_of_a_script_sees_all_gradients_first() -> None:
    class Centred(fluid.clip.BaseGradientClipAttr):  # type: ignore[misc]
        def _process_context(self, context: Any, param: Any, grad: Any) -> None:
            context.setdefault("means", []).append(layers.mean(grad))
            self.means = context["means"]

        def _create_operators(self, param: Any, grad: Any) -> Any:
            return param, layers.elementwise_sub(grad, layers.sums(self.means))

    found = weights(fluid.optimizer.SGD(0.1), steps=1, gradient_clip=Centred())
    np.testing.assert_allclose(found[1], found[0] - 0.1 * (G - G.mean()), rtol=1e-5, atol=1e-6)


def test_a_changed_operator_of_a_clip_by_value_is_used() -> None:
    class Doubled(fluid.clip.GradientClipByValue):  # type: ignore[misc]
        def _create_operators(self, param: Any, grad: Any) -> Any:
            param, clipped = super()._create_operators(param, grad)
            return param, layers.scale(clipped, 2.0)

    found = weights(fluid.optimizer.SGD(0.1), steps=1, gradient_clip=Doubled(max=1.0))
    np.testing.assert_allclose(found[1], found[0] - 0.2 * np.clip(G, -1, 1), rtol=1e-5)


def test_an_error_clip_with_operators_of_its_own_is_refused_by_name() -> None:
    with pytest.raises(ValueError, match=r"Noisy\._append_clip_op"):

        class Noisy(fluid.clip.ErrorClipByValue):  # type: ignore[misc]
            def _append_clip_op(self, block: Any, grad_name: Any) -> None: ...


def test_an_initializer_of_a_script_sets_the_first_value() -> None:
    class Ones(fluid.initializer.Initializer):  # type: ignore[misc]
        def __call__(self, var: Any, block: Any) -> Any:
            attrs = {"shape": var.shape, "dtype": int(core.VarDesc.VarType.FP32), "value": 3.0}
            return block._prepend_op(type="fill_constant", outputs={"Out": var}, attrs=attrs)

    assert (weights(fluid.optimizer.SGD(0.1), steps=0, initializer=Ones())[0] == 3).all()


def test_reset_of_a_metric_of_a_script_sets_what_is_no_number_to_none() -> None:
    class Seen(fluid.metrics.MetricBase):  # type: ignore[misc]
        def __init__(self) -> None:
            super().__init__("seen")
            self.count, self.mean, self.rows, self.kind, self.each = 3, 0.5, np.ones(2), "text", [1, 2]
            self._kept = 7

        def eval(self) -> Any:
            return self.count

    seen: Any = Seen()
    seen.reset()
    assert (seen.count, seen.mean, seen.rows.tolist(), seen.kind, seen.each, seen._kept) == (
        0,
        0.0,
        [0.0, 0.0],
        None,
        None,
        7,
    )


def test_another_curve_gives_the_area_under_the_roc_curve_with_a_warning() -> None:
    guesses, labels = np.array([[0.9, 0.1], [0.2, 0.8], [0.4, 0.6], [0.7, 0.3]]), np.array([0, 1, 0, 1])
    with pytest.warns(UserWarning, match="'PR'"):
        auc = fluid.metrics.Auc("auc", curve="PR")
    auc.update(guesses, labels)
    assert auc.eval() == 0.75
    with pytest.warns(UserWarning, match="'PR'"):
        area = fluid.layers.auc(
            fluid.layers.data("guesses", [2]), fluid.layers.data("labels", [1], dtype="int64"), curve="PR"
        )[0]
    exe = fluid.Executor(fluid.CPUPlace())
    exe.run(fluid.default_startup_program())
    fed = {"guesses": guesses.astype("float32"), "labels": labels[:, None]}
    assert exe.run(feed=fed, fetch_list=[area])[0] == 0.75


def test_an_evaluator_of_a_script_counts_over_runs() -> None:
    class Rows(fluid.evaluator.Evaluator):  # type: ignore[misc]
        def __init__(self, x: Any, **named: Any) -> None:
            super().__init__("rows", **named)
            self.total = self._create_state(dtype="float32", shape=[1], suffix="total")
            layers.sums(input=[self.total, layers.reduce_sum(x)], out=self.total)

        def eval(self, executor: Any, eval_program: Any = None) -> Any:
            return executor.run(fluid.default_main_program().clone(), fetch_list=[self.total])[0]

    rows = Rows(layers.data("x", [3]))
    exe = fluid.Executor(fluid.CPUPlace())
    exe.run(fluid.default_startup_program())
    rows.reset(exe)
    for _ in range(2):
        exe.run(feed={"x": X})
    np.testing.assert_allclose(value(rows.states[0].name), [2 * X.sum()])


@pytest.mark.parametrize("factor", [1.0, 3.0])
def test_layer_wise_rates_follow_the_norms_of_weight_and_gradient(factor: float) -> None:
    optimizer = fluid.optimizer.Momentum(learning_rate=0.1, momentum=0.5, LARS_weight_decay=0.25)
    found = weights(optimizer, learning_rate=factor)
    w, v = found[0], np.zeros_like(G)
    for each in found[1:]:
        norm = np.linalg.norm(w)
        v = 0.5 * v + G
        w = w - 0.1 * factor * norm / (np.linalg.norm(G) + 0.25 * norm) * v
        np.testing.assert_allclose(each, w, rtol=1e-5)


def test_rates_by_the_norm_of_a_sparse_gradient_are_refused() -> None:
    rows = fluid.layers.embedding(
        fluid.layers.data("ids", [1], dtype="int64"), [5, 4], True, param_attr="table"
    )
    optimizer = fluid.optimizer.Momentum(learning_rate=0.1, momentum=0.5, LARS_weight_decay=0.25)
    with pytest.raises(ValueError, match=r"'table'.*is_sparse=False"):
        optimizer.minimize(fluid.layers.mean(rows))
