# SPDX-License-Identifier: Apache-2.0
"""Scripts that train nothing are warned of, and scripts for inference are not; a process is warned once."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.nursery import Forked

ROOT = Path(__file__).resolve().parents[3]
_SCRIPT = """
import numpy as np
import paddle.fluid as fluid

x = fluid.layers.data("x", [4])
loss = fluid.layers.mean(fluid.layers.fc(x, 1))
test = fluid.default_main_program().clone(for_test=True)
sgd = fluid.optimizer.SGD(0.1)
exe, program = fluid.Executor([fluid.CPUPlace()]), fluid.default_main_program()
{before}
exe.run(fluid.default_startup_program())
{later}
for _ in range(4):
    exe.run({program}, feed={{"x": np.ones((2, 4), "float32")}}, fetch_list=[loss])
"""


def _stderr(before: str = "", later: str = "", program: str = "program") -> str:
    code = _SCRIPT.format(before=before, later=later, program=program)
    script = Forked("fluid", ["-c", code], {"PYTHONPATH": str(ROOT / "runtime")}, None)
    output, _ = script.communicate(100)
    assert script.returncode == 0, output
    return output


@pytest.mark.parametrize(
    "program", ["program", "fluid.CompiledProgram(program).with_data_parallel(loss.name)"]
)
def test_an_optimizer_without_minimize_is_named_with_its_line(program: str) -> None:
    said = _stderr(program=program)
    assert said.count("trains nothing") == 1
    assert "<string>:14: UserWarning" in said
    assert "the optimizer created at <string>:8 was never used: call optimizer.minimize(loss)" in said


def test_gradients_that_no_optimizer_applies_are_warned_of() -> None:
    assert "trains nothing" in _stderr("fluid.backward.append_backward(loss)")


_DECAY = "rate = fluid.layers.exponential_decay(0.1, 10, 0.5);"


@pytest.mark.parametrize(
    ("before", "warned"),
    [
        (f"{_DECAY} sgd.minimize(loss)", True),
        ("rate = fluid.layers.piecewise_decay([5], [0.1, 0.01]); sgd.minimize(loss)", True),
        (f"{_DECAY} fluid.optimizer.SGD(rate).minimize(loss)", False),
        (
            f"{_DECAY} fluid.optimizer.Adam(fluid.layers.linear_lr_warmup(rate, 5, 0., .1)).minimize(loss)",
            False,
        ),
        (f"{_DECAY} fluid.layers.scale(rate, 2.0); sgd.minimize(loss)", False),
    ],
)
def test_a_schedule_that_no_optimizer_uses_is_named(before: str, warned: bool) -> None:
    said = _stderr(before)
    assert said.count("the learning rate schedule created at <string>:10 has no effect") == warned


_DROPS = (
    "loss = fluid.layers.mean(fluid.layers.dropout(fluid.layers.fc(x, 2), 0.5)); kept = program.clone({}); {}"
)


@pytest.mark.parametrize(
    ("test", "later", "program", "warned"),
    [
        ("", "sgd.minimize(loss)", "kept", True),
        ("True", "sgd.minimize(loss)", "kept", False),
        ("", "sgd.minimize(loss)", "program", False),
        ("", "", "kept", False),
    ],
)
def test_dropout_of_a_program_that_only_tests_is_named(
    test: str, later: str, program: str, warned: bool
) -> None:
    said = _stderr(_DROPS.format(test, later), program=program)
    assert (
        said.count("its dropout (created at <string>:10) is active: make it with clone(for_test=True)")
        == warned
    )


_ENTROPY = """
y = fluid.layers.data("y", [1], dtype="int64")
loss = fluid.layers.mean(fluid.layers.softmax_with_cross_entropy(fluid.layers.fc(x, 3, act={}), y))
sgd.minimize(loss)
exe.run(fluid.default_startup_program())
exe.run(program, feed={{"x": np.ones((2, 4), "float32"), "y": np.ones((2, 1), "int64")}}, fetch_list=[loss])
"""


@pytest.mark.parametrize(("act", "warned"), [('"softmax"', True), ('"tanh"', False), ("None", False)])
def test_a_second_softmax_is_named(act: str, warned: bool) -> None:
    said = _stderr(_ENTROPY.format(act), "raise SystemExit(0)")
    assert ("applies softmax to the output of softmax" in said) is warned


_GROWS = """
for i in range(7):
    {}
    exe.run(program, feed={{"x": np.ones((2, 4), "float32")}}, fetch_list=[loss])
"""


@pytest.mark.parametrize(
    ("step", "warned"),
    [
        ("loss = loss * 2.0", True),
        ("if i == 3: loss = loss * 2.0", False),
        ("if i % 2: loss = loss * 2.0", False),
    ],
)
def test_a_program_that_a_loop_extends_is_named(step: str, warned: bool) -> None:
    said = _stderr("sgd.minimize(loss)", later=_GROWS.format(step))
    assert said.count("has grown before each of its last 5 runs, by 2 operators") == warned


_CLIP = "fluid.clip.set_gradient_clip(fluid.clip.GradientClipByGlobalNorm(1.0))"


@pytest.mark.parametrize(
    ("before", "warned"), [(f"sgd.minimize(loss); {_CLIP}", True), (f"{_CLIP}; sgd.minimize(loss)", False)]
)
def test_a_gradient_clip_that_comes_after_minimize_is_named(before: str, warned: bool) -> None:
    assert ("<string>:10 does not change earlier calls of minimize" in _stderr(before)) is warned


@pytest.mark.parametrize(("rate", "warned"), [("1e6", True), ("0.0", True), ("1.0", False)])
def test_an_unusual_learning_rate_is_named(rate: str, warned: bool) -> None:
    assert ("optimizer at <string>:10: " in _stderr(f"fluid.optimizer.SGD({rate}).minimize(loss)")) is warned


@pytest.mark.parametrize(
    ("before", "later", "program"),
    [
        ("sgd.minimize(loss)", "", "program"),
        ("fluid.optimizer.Adam(0.1).minimize(loss)", "", "program"),
        ("sgd.apply_gradients(sgd.backward(loss))", "", "program"),
        ("sgd.minimize(loss)", "", "test"),
        ("", "", "test"),
        ("", "fluid.io.save_params(exe, MODEL); fluid.io.load_params(exe, MODEL)", "program"),
    ],
)
def test_a_script_that_trains_or_only_infers_is_not_warned_of(
    before: str, later: str, program: str, tmp_path: Path
) -> None:
    assert "UserWarning" not in _stderr(before, later.replace("MODEL", repr(str(tmp_path))), program)


_BATCH = 'feed={"x": np.ones((2, 4), "float32")}'
_AGAIN = """
sgd.minimize(loss)
def start(scope=None): exe.run(fluid.default_startup_program(), scope=scope)
def train(): exe.run(program, {batch})
start(); fluid.io.save_persistables(exe, folder); train()
{later}
raise SystemExit(0)
"""


@pytest.mark.parametrize(
    ("later", "warned"),
    [
        ("for _ in range(3): start(); train()", True),
        (f"start(); exe.run(test, {_BATCH}, fetch_list=[loss])", True),
        ("fluid.layers.fc(x, 2); start(); train()", True),
        ("start(fluid.Scope()); train()", False),
        ("start(); fluid.io.load_persistables(exe, folder); train()", False),
        ("start()", False),
        ("with fluid.scope_guard(fluid.Scope()): start(); train(); exe.run(test, " + _BATCH + ")", False),
    ],
)
def test_a_startup_program_that_undoes_training_is_named(later: str, warned: bool, tmp_path: Path) -> None:
    said = _stderr(f"folder = {str(tmp_path)!r}" + _AGAIN.format(batch=_BATCH, later=later))
    assert said.count("replaced trained parameters, such as") == warned
    assert ("the startup program, run again at <string>:12, replaced" in said) is warned


@pytest.mark.parametrize(
    ("layer", "text"),
    [
        ("dropout(x, 1.0)", "dropout at <string>:10 sets all values to 0"),
        ("dropout(x, 0.9)", ""),
        ('fc(x, 1, act="softmax")', "softmax at <string>:10 of one value per row is always 1"),
        ('fc(x, 2, act="softmax")', ""),
        ("softmax(fluid.layers.unsqueeze(x, [2]), axis=1)", ""),
        ("softmax(fluid.layers.unsqueeze(x, [2]), axis=2)", "softmax at <string>:10 of one value per row"),
        (
            'sigmoid_cross_entropy_with_logits(fluid.layers.fc(x, 4, act="sigmoid"), x)',
            'applies sigmoid to the output of sigmoid (created at <string>:10): omit act="sigmoid"',
        ),
        ("sigmoid_cross_entropy_with_logits(fluid.layers.fc(x, 4), x)", ""),
    ],
)
def test_layers_that_cannot_be_meant_are_named(layer: str, text: str) -> None:
    said = _stderr(f"loss = fluid.layers.mean(fluid.layers.{layer})")
    assert (text in said) if text else (" at <string>:10 " not in said)


@pytest.mark.parametrize(("shape", "warned"), [((8, 8, 3), True), ((3, 8, 8), False), ((1, 8, 1), False)])
def test_images_with_channels_last_are_named(shape: tuple[int, ...], warned: bool) -> None:
    said = _stderr(
        f'image = fluid.layers.data("image", {shape}); loss = fluid.layers.conv2d(image, 2, 1); start = True',
        f'exe.run(feed={{"image": np.ones((2, *{shape}), "float32")}}); raise SystemExit(0)',
    )
    assert ("declare it as [3, 8, 8], and feed images.transpose(0, 3, 1, 2)" in said) is warned


_RECURRENT = """
image = fluid.layers.data("s", [6, 8], append_batch_size={batched})
image = fluid.layers.{layer}
rnn = fluid.layers.StaticRNN()
with rnn.step():
    word = rnn.step_input(image)
    rnn.output(word)
rnn()
exe.run(feed={{"s": np.ones({shape}, "float32")}}); raise SystemExit(0)
"""


@pytest.mark.parametrize(
    ("layer", "batched", "warned"),
    [
        ("relu(image)", True, True),
        ("fc(image, 8, num_flatten_dims=2)", True, True),
        ("transpose(image, [1, 0, 2])", True, False),
        ("relu(image); image.block.append_op('scale', {'X': image}, {'Out': image})", True, True),
        ("relu(image)", False, False),
    ],
)
def test_steps_along_the_batch_are_named(layer: str, batched: bool, warned: bool) -> None:
    shape = (4, 6, 8) if batched else (6, 8)
    said = _stderr("rate = 1", _RECURRENT.format(layer=layer, batched=batched, shape=shape))
    assert ("StaticRNN at <string>:16 takes its steps along the first axis" in said) is warned


_CTC = """
place = fluid.CPUPlace()
rows = fluid.layers.data("rows", [6], lod_level=1)
words = fluid.layers.data("words", [1], dtype="int32", lod_level=1)
cost = fluid.layers.warpctc(rows, words, blank={})
rows = fluid.create_lod_tensor(np.ones((8, 6), "float32"), [[8]], place)
words = fluid.create_lod_tensor(np.array([[0], [1], [2]], "int32"), [[3]], place)
for _ in range(2): exe.run(feed={{"x": np.ones((1, 4), "float32"), "rows": rows, "words": words}}, fetch_list=[cost])
raise SystemExit(0)
"""


@pytest.mark.parametrize(("blank", "warned"), [(0, True), (5, False)])
def test_labels_that_are_the_blank_are_named(blank: int, warned: bool) -> None:
    said = _stderr("rate = 1", _CTC.format(blank))
    assert said.count("<string>:16: UserWarning: the CTC cost created at <string>:16 has blank=0") == warned
