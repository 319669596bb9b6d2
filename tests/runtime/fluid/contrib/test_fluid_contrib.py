# SPDX-License-Identifier: Apache-2.0
"""Small parts of fluid.contrib: statistics, fused activation, decoupled decay, readers, Hadoop files."""

from __future__ import annotations

import gzip
import importlib
import logging
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import paddle.fluid as fluid
from paddle.fluid import contrib, layers


def test_memory_usage_counts_each_output_once_for_a_batch() -> None:
    x = layers.data("x", [100])
    layers.relu(layers.fc(x, 50, bias_attr=False))
    least, most, unit = contrib.memory_usage(fluid.default_main_program(), batch_size=10)
    assert (round(least / 1.05 * 1024), round(most / 1.1 * 1024), unit) == (4000, 4000, "KB")
    with pytest.raises(ValueError, match="positive batch_size, got 0"):
        contrib.memory_usage(fluid.default_main_program(), 0)
    with pytest.raises(TypeError, match="expected a Program"):
        contrib.memory_usage("program", 1)  # type: ignore[arg-type]


def test_operators_and_pairs_are_counted() -> None:
    x = layers.data("x", [4])
    layers.mean(layers.fc(layers.fc(x, 3, act="relu"), 3))
    single, pairs = contrib.op_freq_statistic(fluid.default_main_program())
    assert dict(single) == {"mul": 2, "elementwise_add": 2, "relu": 1, "mean": 1}
    assert [count for _, count in single] == [2, 2, 1, 1]
    assert dict(pairs) == {
        "mul->elementwise_add": 2, "elementwise_add->relu": 1, "relu->mul": 1, "elementwise_add->mean": 1,
    }  # fmt: skip


@pytest.mark.parametrize(
    ("functors", "formula"),
    [
        (["elementwise_add", "relu"], lambda x, y: x + np.maximum(y, 0)),
        ("tanh,elementwise_mul", lambda x, y: np.tanh(x * y)),
        (["scale", "elementwise_add"], lambda x, y: 3 * (x + y)),
    ],
)
def test_fused_functions_are_applied_from_the_last_to_the_first(functors: Any, formula: Any) -> None:
    x, y = layers.data("x", [3]), layers.data("y", [3])
    out = contrib.fused_elemwise_activation(x, y, functors, scale=3.0)
    feed = {name: np.random.RandomState(at).randn(2, 3).astype("float32") for at, name in enumerate("xy")}
    (found,) = fluid.Executor().run(feed=feed, fetch_list=[out])
    np.testing.assert_allclose(found, formula(feed["x"], feed["y"]), rtol=1e-5)


def test_other_fused_functions_are_refused() -> None:
    x = layers.data("x", [3])
    with pytest.raises(ValueError, match="one of elementwise_add"):
        contrib.fused_elemwise_activation(x, x, ["relu", "tanh"])


def test_parameters_decay_before_their_update_unless_the_function_says_no() -> None:
    decayed = contrib.extend_with_decoupled_weight_decay(fluid.optimizer.SGD)
    x = layers.data("x", [2])
    loss = layers.mean(layers.fc(x, 1, param_attr="w", bias_attr=fluid.ParamAttr("b")))
    decayed(0.25, lambda name: name != "b", learning_rate=0.5).minimize(loss)
    exe = fluid.Executor()
    exe.run(fluid.default_startup_program())
    scope = fluid.global_scope()
    scope.set("w", np.array([[4.0], [8.0]], "float32"))
    scope.set("b", np.array([4.0], "float32"))
    exe.run(feed={"x": np.ones((3, 2), "float32")})
    assert np.array(scope.get("w")).ravel().tolist() == [4 * 0.75 - 0.5, 8 * 0.75 - 0.5]
    assert np.array(scope.get("b")).tolist() == [3.5]
    with pytest.raises(TypeError, match="a class of optimizers"):
        contrib.extend_with_decoupled_weight_decay(dict)  # type: ignore[arg-type]
    with pytest.raises(TypeError, match="weight_decay: expected a number"):
        decayed("0.1", learning_rate=0.5)


def test_each_trainer_reads_its_share_of_whole_rounds(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PADDLE_TRAINERS_NUM", "2")
    monkeypatch.setenv("PADDLE_TRAINER_ID", "1")
    assert list(contrib.distributed_batch_reader(lambda: iter(range(7)))()) == [1, 3, 5]
    monkeypatch.setenv("PADDLE_TRAINER_ID", "2")
    with pytest.raises(ValueError, match="from 0 to 1, got 2"):
        contrib.distributed_batch_reader(lambda: iter(range(7)))


def read_all(reader: Any, fetches: list[Any]) -> list[list[Any]]:
    exe, rows = fluid.Executor(), []
    exe.run(fluid.default_startup_program())
    reader.start()
    while True:
        try:
            rows.append(exe.run(fetch_list=fetches, return_numpy=False))
        except fluid.core.EOFException:
            reader.reset()
            return rows


def test_clicks_in_columns_are_read_by_the_program(tmp_path: Path) -> None:
    path = tmp_path / "part-0"
    path.write_text("1 0.5,1.5 17,4\n0 2,3 5\n1 0,0 6,7,8\n")
    dense, label = layers.data("dense", [2]), layers.data("label", [1], dtype="int64")
    ids = layers.data("ids", [1], dtype="int64", lod_level=1)
    reader = contrib.reader.ctr_reader.ctr_reader(
        [dense, ids, label], "plain", "csv", [1], [2], 4, 1, 2, [str(path)], []
    )
    summed = layers.sequence_pool(layers.cast(ids, "float32"), "sum")
    first, second = read_all(reader, [dense, summed, label])
    assert [np.array(each).tolist() for each in first] == [[[0.5, 1.5], [2, 3]], [[21], [5]], [[1], [0]]]
    assert np.array(second[1]).tolist() == [[21]]
    path.write_text("1 x 17\n")
    reader.start()
    with pytest.raises(fluid.core.EnforceNotMet, match=r"line 1: '1 x 17' .* csv"):
        fluid.Executor().run(fetch_list=[dense])
    reader.reset()


def test_clicks_in_slots_are_read_from_packed_files(tmp_path: Path) -> None:
    path = tmp_path / "part-0.gz"
    path.write_bytes(gzip.compress(b"3 7:11 8:12 7:13\n0 8:5\n"))
    one, two = (layers.data(name, [1], dtype="int64", lod_level=1) for name in ("one", "two"))
    label = layers.data("label", [1], dtype="int64")
    reader = contrib.reader.ctr_reader.ctr_reader(
        [one, two, label], "gzip", "svm", [], [], 4, 1, 2, [str(path)], [7, 8]
    )
    ((found, other, labels),) = read_all(reader, [one, two, label])
    assert (np.array(found).ravel().tolist(), found.recursive_sequence_lengths()) == ([11, 13, 0], [[2, 1]])
    assert np.array(other).ravel().tolist() == [12, 5]
    assert np.array(labels).ravel().tolist() == [1, 0]
    with pytest.raises(ValueError, match="'gzip' or 'plain'"):
        contrib.reader.ctr_reader.ctr_reader([one], "zip", "svm", [], [], 4, 1, 2, [], [7])


HADOOP = """#!/bin/sh
# A file system in a folder: -test -e|-d, -ls, -put, -get, -rm, -rmr, -mv, -mkdir -p.
shift
while case $1 in -D*) true;; *) false;; esac; do shift; done
case $1 in
  -test) [ $2 "$ROOT$3" ];;
  -ls) for each in "$ROOT$2"/*; do echo "-rw-r--r-- 1 u g 3 2019-01-01 00:00 $2/${each##*/}"; done;;
  -put) cp -r "$2" "$ROOT$3";;
  -get) cp -r "$ROOT$2" "$3";;
  -rm|-rmr) rm -r "$ROOT$2";;
  -mv) mv "$ROOT$2" "$ROOT$3";;
  -mkdir) mkdir -p "$ROOT$3";;
  *) echo "no $1" >&2; exit 3;;
esac
"""


def test_files_go_to_a_hadoop_file_system_and_back(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    home, remote, local = tmp_path / "hadoop", tmp_path / "remote", tmp_path / "model"
    (home / "bin").mkdir(parents=True)
    remote.mkdir()
    (home / "bin" / "hadoop").write_text(HADOOP)
    (home / "bin" / "hadoop").chmod(0o755)
    monkeypatch.setenv("ROOT", str(remote))
    local.write_text("abc")
    client = contrib.HDFSClient(str(home), {"fs.default.name": "hdfs://there:9000"})
    assert client.makedirs("/job")
    assert client.upload("/job/model", str(local))
    assert (client.is_exist("/job/model"), client.is_dir("/job/model"), client.is_dir("/job")) == (
        True,
        False,
        True,
    )
    assert client.ls("/job") == ["/job/model"]
    assert client.rename("/job/model", "/job/old")
    assert client.download("/job/old", str(tmp_path / "back" / "model"))
    assert (tmp_path / "back" / "model").read_text() == "abc"
    with caplog.at_level(logging.ERROR):
        assert not client.upload("/job/old", str(local))
        assert not client.download("/job/model", str(tmp_path / "other"))
        assert client.lsr("/job") == []
    assert [line for line in caplog.text.splitlines() if "overwrite=True" in line]
    assert "/job/model does not exist" in caplog.text
    assert "exited with 3: no -lsr" in caplog.text
    assert client.delete("/job")
    assert not (remote / "job").exists()
    with pytest.raises(RuntimeError, match="directory of a Hadoop installation"):
        contrib.HDFSClient(str(tmp_path / "nowhere"), None).is_exist("/")


def test_modules_of_the_original_are_imported_by_their_names() -> None:
    for name, module in {
        "BeamSearchDecoder": "decoder.beam_search_decoder",
        "basic_lstm": "layers.rnn_impl",
        "decorate": "mixed_precision.decorator",
        "HDFSClient": "utils.hdfs_utils",
        "convert_dist_to_sparse_program": "utils.lookup_table_utils",
        "memory_usage": "memory_usage_calc",
    }.items():
        found = importlib.import_module(f"paddle.fluid.contrib.{module}")
        assert callable(getattr(found, name))


def test_what_is_left_out_says_what_to_do() -> None:
    with pytest.raises(ImportError, match=r"contrib.Compressor .*not available; pruning"):
        exec("from paddle.fluid.contrib.slim import Compressor")
    with pytest.raises(AttributeError, match=r"call HDFSClient.upload for each file"):
        _ = contrib.multi_upload
