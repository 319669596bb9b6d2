# SPDX-License-Identifier: Apache-2.0
"""PipelineOptimizer: sections on threads train to the same bits as the program in one piece."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

import paddle.fluid as fluid
from paddle.fluid import layers
from paddle.fluid.run import sections as run_sections
from paddle.fluid.run.sections import cut
from paddle.threads import ServiceThread

RNG = np.random.default_rng(9)


@pytest.fixture
def clicks(tmp_path: Path) -> str:
    lines = []
    for _ in range(90):
        ids = RNG.integers(0, 20, RNG.integers(1, 4))
        dense = RNG.normal(size=3)
        label = int(ids.sum() % 2)
        lines.append(
            f"{len(ids)} {' '.join(map(str, ids))} 3 {' '.join(f'{each:.4f}' for each in dense)} 1 {label}"
        )
    path = tmp_path / "part-0"
    path.write_text("\n".join(lines) + "\n")
    return str(path)


def trained(path: str, cuts: int, optimizer: Any) -> tuple[dict[str, Any], fluid.Program]:
    """Return what is kept after a pass; `cuts` lists cut the program, 0: it is in one piece."""
    main, startup = fluid.Program(), fluid.Program()
    startup.random_seed = 4
    with fluid.program_guard(main, startup), fluid.unique_name.guard(), fluid.scope_guard(fluid.Scope()):
        ids = layers.data("ids", [1], dtype="int64", lod_level=1)
        dense, label = layers.data("dense", [3]), layers.data("label", [1], dtype="int64")
        table = layers.embedding(ids, [20, 4], is_sparse=True)
        pooled = layers.sequence_pool(table, "sum")
        hidden = layers.fc(layers.concat([pooled, dense], 1), 6, act="relu")
        loss = layers.mean(layers.cross_entropy(layers.fc(hidden, 2, act="softmax"), label))
        lists = [[[pooled], [hidden], [loss]], [[hidden], [loss]]][3 - cuts] if cuts else None
        made = fluid.optimizer.PipelineOptimizer(optimizer(), lists, queue_size=3) if cuts else optimizer()
        made.minimize(loss)
        exe = fluid.Executor()
        exe.run(startup)
        dataset = fluid.DatasetFactory().create_dataset("QueueDataset")
        dataset.set_use_var([ids, dense, label])
        dataset.set_batch_size(8)
        dataset.set_filelist([path])
        for _ in range(2):
            exe.train_from_dataset(main, dataset, fetch_list=[loss], print_period=5)
        scope = fluid.global_scope()
        return {
            each.name: np.array(scope.get(each.name)) for each in main.list_vars() if each.persistable
        }, main


@pytest.mark.parametrize("cuts", [2, 3])
def test_sections_train_to_the_bits_of_the_program_in_one_piece(
    cuts: int, clicks: str, capsys: pytest.CaptureFixture[str]
) -> None:
    def optimizer() -> Any:
        return fluid.optimizer.Adam(layers.exponential_decay(0.05, 3, 0.9))

    whole, _ = trained(clicks, 0, optimizer)
    shown = capsys.readouterr().out
    parted, main = trained(clicks, cuts, optimizer)
    assert capsys.readouterr().out == shown
    assert shown.count("mean_0.tmp_0: ") == 6
    assert whole.keys() == parted.keys()
    for name, value in whole.items():
        np.testing.assert_array_equal(parted[name], value, err_msg=name)
    assert main._pipeline_opt is not None
    sections = cut(main, main._pipeline_opt["cut_list"])
    assert len(sections) == 2 * cuts - 1
    assert all(section.program.global_block().ops for section in sections)
    assert sections[0].waits == (2 * cuts - 2,)  # its parameters are updated by the last one alone


def test_a_section_that_fails_ends_the_pass(clicks: str) -> None:
    ids = layers.data("ids", [1], dtype="int64", lod_level=1)
    dense, label = layers.data("dense", [3]), layers.data("label", [1], dtype="int64")
    pooled = layers.sequence_pool(layers.embedding(ids, [5, 4]), "sum")  # ids go to 19
    loss = layers.mean(layers.cross_entropy(layers.fc([pooled, dense], 2, act="softmax"), label))
    fluid.optimizer.PipelineOptimizer(fluid.optimizer.SGD(0.1), [[pooled], [loss]]).minimize(loss)
    exe = fluid.Executor()
    exe.run(fluid.default_startup_program())
    dataset = fluid.DatasetFactory().create_dataset("QueueDataset")
    dataset.set_use_var([ids, dense, label])
    dataset.set_filelist([clicks])
    with pytest.raises(RuntimeError, match=r"a section of the pipeline failed.*lookup_table"):
        exe.train_from_dataset(fluid.default_main_program(), dataset)


def test_a_pass_ends_with_its_last_batch_however_long_that_takes(
    clicks: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    waits: list[float | None] = []

    class Told(ServiceThread[None]):
        def join(self, timeout_s: float | None = None) -> bool:
            waits.append(timeout_s)
            return super().join(timeout_s)

    monkeypatch.setattr(run_sections, "ServiceThread", Told)
    trained(clicks, 2, lambda: fluid.optimizer.SGD(0.1))
    assert waits == [None] * 6


def test_settings_that_cannot_be_are_refused() -> None:
    x = layers.data("x", [2])
    sgd = fluid.optimizer.SGD(0.1)
    with pytest.raises(ValueError, match=r"2 cuts make 3 sections, .* 1 places"):
        fluid.optimizer.PipelineOptimizer(sgd, [[x], [x]], [fluid.CPUPlace()])
    with pytest.raises(ValueError, match="run on the CPU"):
        fluid.optimizer.PipelineOptimizer(sgd, [[x]], [fluid.CUDAPlace(0)])
    with pytest.raises(TypeError, match="lists of variables"):
        fluid.optimizer.PipelineOptimizer(sgd, [["x"]])  # type: ignore[list-item]
    with pytest.raises(TypeError, match="expected an optimizer"):
        fluid.optimizer.PipelineOptimizer("sgd")  # type: ignore[arg-type]
