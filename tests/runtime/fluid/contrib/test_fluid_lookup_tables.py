# SPDX-License-Identifier: Apache-2.0
"""What servers of a distributed embedding saved is looked up on one machine, and trained further."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

import paddle.fluid as fluid
from paddle.fluid import contrib
from paddle.fluid.errors import FluidError
from paddle.ops.base.selected_rows import SelectedRows
from tests.runtime.fluid.remote.test_fluid_growing_table import click_batches, clicks, entered, spread
from tests.runtime.fluid.transpiled_job import TranspiledJob, built

NET = clicks(is_distributed=True, height=10**11)


@pytest.fixture(scope="module")
def saved(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder of a job with two servers, after two steps."""
    folder = tmp_path_factory.mktemp("saved")
    job = TranspiledJob(NET)
    batches = [entered(feed, spread) for feed in click_batches()]

    job.save_after(batches[:2], folder)
    return folder


def transpiled(endpoints: str) -> tuple[fluid.DistributeTranspiler, fluid.Program, str]:
    main, startup, loss = built(NET)
    t = fluid.DistributeTranspiler()
    t.transpile(0, main, endpoints, 1, True, startup, current_endpoint=endpoints.split(",")[0])
    return t, main, loss


@pytest.mark.parametrize("is_transpiled", [True, False])
def test_rows_of_all_servers_are_looked_up_where_a_program_infers(saved: Path, is_transpiled: bool) -> None:
    t, _, loss = transpiled("127.0.0.1:6174")
    program = t.get_trainer_program(wait_port=False).clone(for_test=True)
    if not is_transpiled:
        program = built(NET)[0]._prune([loss])
    assert contrib.convert_dist_to_sparse_program(program) is program
    types = [op.type for op in program.global_block().ops]
    assert types.count("lookup_sparse_table") == 2
    assert not {"split_ids", "prefetch", "merge_ids", "send"} & set(types)
    exe = fluid.Executor(fluid.CPUPlace())
    contrib.load_persistables_for_inference(str(saved), exe, program, "features")
    feed = entered(click_batches()[0], spread)
    (found,) = exe.run(program, feed, [loss])
    table = fluid.global_scope().get("features")
    rows = dict(zip(table.rows.tolist(), np.asarray(table.values), strict=True))

    def pooled(name: str) -> Any:
        ids, lengths = np.array(feed[name])[:, 0], feed[name].recursive_sequence_lengths()[0]
        values = np.array([rows.get(each, np.zeros(8)) for each in ids.tolist()])
        return np.add.reduceat(values, np.cumsum([0, *lengths[:-1]]))

    def weight(name: str) -> Any:
        return np.array(fluid.global_scope().get(name))

    parts = zip((pooled("site"), pooled("user"), feed["numbers"]), range(3), strict=True)
    hidden = sum(part @ weight(f"fc_0.w_{at}") for part, at in parts) + weight("fc_0.b_0")
    logits = np.maximum(hidden, 0) @ weight("fc_1.w_0") + weight("fc_1.b_0")
    losses = np.logaddexp(0, logits) - logits * feed["click"]
    np.testing.assert_allclose(found[0], losses.mean(), rtol=1e-5)


def test_a_server_goes_on_with_its_rows_of_a_file(saved: Path) -> None:
    t, _, _ = transpiled("127.0.0.1:6174,127.0.0.1:6175,127.0.0.1:6176")
    program = t.get_pserver_program("127.0.0.1:6175")
    exe, path = fluid.Executor(fluid.CPUPlace()), saved / "__lookup_table__" / "features_0"
    contrib.load_persistables_for_increment(str(saved), exe, program, "features", str(path))
    rows = fluid.global_scope().get("features").rows
    assert len(rows)
    assert (rows.view(np.uint64) % np.uint64(3) == 1).all()
    assert all(
        fluid.global_scope().has(part.slice.name)
        for part in t.vars_overview.get_distributed_vars_by_ep("127.0.0.1:6175")
    )
    with pytest.raises(ValueError, match=r"file .* does not exist"):
        contrib.load_persistables_for_increment(str(saved), exe, program, "features", str(saved / "no"))
    with pytest.raises(TypeError, match="get_pserver_program"):
        contrib.load_persistables_for_increment(str(saved), exe, fluid.Program(), "features", str(path))
    with pytest.raises(ValueError, match=r"folder .* does not exist"):
        contrib.load_persistables_for_inference(str(saved / "no"), exe, program, "features")


def test_a_program_without_such_a_table_stays(caplog: pytest.LogCaptureFixture) -> None:
    assert contrib.convert_dist_to_sparse_program(fluid.Program()) is None
    assert "no distributed embedding" in caplog.text


@pytest.mark.parametrize("is_transpiled", [True, False])
def test_a_model_without_the_rows_of_servers_is_not_saved(tmp_path: Path, is_transpiled: bool) -> None:
    program, _, loss = built(NET)
    feeds = ["site", "user", "numbers", "click"]
    if is_transpiled:
        program = transpiled("127.0.0.1:6174")[0].get_trainer_program(wait_port=False)
    else:
        fluid.global_scope().set("features", SelectedRows(np.zeros(0, np.int64), np.zeros((0, 8), "f4"), 9))
    target, exe = program.global_block().var(loss), fluid.Executor()
    with pytest.raises(FluidError, match=r"'features' are on the parameter servers.*save_persistables"):
        fluid.io.save_inference_model(str(tmp_path / "model"), feeds, [target], exe, program)
    assert not (tmp_path / "model").exists()


def test_parameters_are_saved_and_loaded_without_the_rows_of_servers(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    program = transpiled("127.0.0.1:6174")[1]
    scope, exe = fluid.global_scope(), fluid.Executor()
    for each in program.list_vars():
        if isinstance(each, fluid.framework.Parameter):
            scope.set(each.name, np.ones(each.shape if each.name != "features" else (1,), "f4"))
    scope.set("features", SelectedRows(np.zeros(0, np.int64), np.zeros((0, 8), "f4"), 9))
    fluid.io.save_params(exe, str(tmp_path), program)
    assert "fc_0.b_0" in (names := [each.name for each in tmp_path.iterdir()])
    assert "features" not in names
    assert "features: left out, because its rows are on the parameter servers" in caplog.text
    fluid.io.load_params(exe, str(tmp_path), program)
