# SPDX-License-Identifier: Apache-2.0
"""Flags of `paddle train`: what is saved, loaded, tested and checked; and the commands beside it."""

from __future__ import annotations

import gzip
import re
import struct
import subprocess
import sys
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import paddle.v2 as paddle
from paddle.errors import FlagError
from paddle.proto import TrainerConfig_pb2
from paddle.trainer.config_parser import parse_config
from paddle.utils import dump_config, make_model_diagram, merge_model
from paddle.v2.errors import ModelFileError, UsageError
from tests.runtime.trainer.test_quick_start import write
from tests.runtime.trainer.train_runs import costs, train

ROOT = Path(__file__).resolve().parents[3]
CONFIG = "--config=trainer_config.py"


def values(folder: Path) -> dict[str, Any]:
    """The parameters of a directory, read by the format's own description."""
    found = {}
    for path in folder.iterdir():
        if path.name.startswith("_"):
            raw = path.read_bytes()
            form, width, count = struct.unpack_from("<IIQ", raw)
            assert (form, width) == (0, 4)
            found[path.name] = np.frombuffer(raw, "<f4", count, 16)
    return found


def test_a_pass_is_saved_as_the_original_does(workspace: Path) -> None:
    write(workspace, "lr")
    train(CONFIG, "--num_passes=1", "--save_dir=out")
    folder = workspace / "out/pass-00000"
    assert {name: value.shape for name, value in values(folder).items()} == {
        "___fc_layer_0__.w0": (44,),
        "___fc_layer_0__.wbias": (2,),
    }
    assert (folder / "path.txt").read_bytes() == b"trainer_config.py"
    assert (folder / "trainer_config.py").read_bytes() == (workspace / "trainer_config.py").read_bytes()
    assert (folder / "done").read_text().startswith("paddle version: ")
    assert "\twithPyDataProvider: true\n" in (folder / "done").read_text()


def test_periods_decide_what_is_saved_and_what_is_deleted(workspace: Path) -> None:
    write(workspace, "lr")
    train(CONFIG, "--num_passes=5", "--save_dir=a", "--saving_period=2", "--saving_period_by_batches=3")
    assert sorted(path.name for path in (workspace / "a").iterdir()) == [
        "pass-00000", "pass-00000-001", "pass-00001-001", "pass-00002", "pass-00002-001", "pass-00003-001",
        "pass-00004", "pass-00004-001",
    ]  # fmt: skip
    train(CONFIG, "--num_passes=3", "--save_dir=b", "--save_only_one")
    assert [path.name for path in (workspace / "b").iterdir()] == ["pass-00002"]


def test_training_begins_with_a_pass_that_was_saved(workspace: Path, lines: list[str]) -> None:
    write(workspace, "lr")
    train(CONFIG, "--num_passes=2", "--save_dir=out")
    saved = values(workspace / "out/pass-00001")
    lines.clear()
    train(CONFIG, "--num_passes=3", "--start_pass=2", "--save_dir=out")
    assert [line.split()[0] for line in lines if line.startswith(" Pass=")] == ["Pass=2"]
    assert len(costs(lines)) == 1
    train(CONFIG, "--num_passes=0", f"--init_model_path={workspace}/out/pass-00001", "--save_dir=none")
    lines.clear()
    train(CONFIG, "--job=test", "--test_pass=0", "--num_passes=3", "--save_dir=out")
    tested = [float(found[1]) for line in lines if (found := re.search(r" Test samples=32 cost=(\S+)", line))]
    assert len(tested) == 3
    assert tested == sorted(tested, reverse=True)
    assert values(workspace / "out/pass-00001").keys() == saved.keys()


@pytest.mark.parametrize(
    ("change", "says"),
    [
        (lambda raw: raw[:-4], "44 .* 43"),
        (lambda raw: raw + b"more", "44 values.* more data"),
        (lambda raw: b"", "0 bytes"),
        (lambda raw: raw[:4] + b"\x08" + raw[5:], "8-byte values"),
    ],
)
def test_a_damaged_file_of_a_parameter_is_named(
    workspace: Path, change: Callable[[bytes], bytes], says: str
) -> None:
    write(workspace, "lr")
    train(CONFIG, "--num_passes=1", "--save_dir=out")
    file = workspace / "out/pass-00000/___fc_layer_0__.w0"
    file.write_bytes(change(file.read_bytes()))
    with pytest.raises(
        ModelFileError, match=f"out/pass-00000/___fc_layer_0__.w0: '___fc_layer_0__.w0' .*{says}"
    ):
        train(CONFIG, "--num_passes=2", "--start_pass=1", "--save_dir=out")


def test_a_test_waits_for_passes_that_are_not_saved_yet(workspace: Path, lines: list[str]) -> None:
    write(workspace, "lr")
    train(CONFIG, "--num_passes=2", "--save_dir=out")
    late = (workspace / "out/pass-00001/done").rename(workspace / "done")
    lines.clear()

    def save_at_last() -> None:
        while not any("waiting for the parameters in out/pass-00001" in line for line in lines):
            time.sleep(0.01)
        late.rename(workspace / "out/pass-00001/done")

    with ThreadPoolExecutor() as threads:
        saved = threads.submit(save_at_last)
        train(CONFIG, "--job=test", "--test_pass=0", "--num_passes=2", "--save_dir=out", "--test_wait=1")
        saved.result(60)
    assert sum(" Test samples=32 cost=" in line for line in lines) == 2


@pytest.mark.parametrize(("strategy", "is_zero"), [("zero", True), ("rand", False), ("fail", None)])
def test_a_parameter_without_a_file_is_zero_random_or_an_error(
    workspace: Path, strategy: str, is_zero: bool | None
) -> None:
    write(workspace, "lr")
    train(CONFIG, "--num_passes=1", "--save_dir=out")
    (workspace / "out/pass-00000/___fc_layer_0__.w0").unlink()
    flags = ("--init_model_path=out/pass-00000", f"--load_missing_parameter_strategy={strategy}")
    run = (CONFIG, "--job=test", "--config_args=is_predict=1", "--predict_output_dir=p", *flags)
    if is_zero is None:
        with pytest.raises(ModelFileError, match=r"has no parameter '___fc_layer_0__.w0'.*--load_missing"):
            train(*run)
        return
    train(*run)
    rows = {line.split(";")[1] for line in (workspace / "p/rank-00000").read_text().splitlines()}
    assert (len(rows) == 1) is is_zero


def test_outputs_are_appended_as_float32(workspace: Path) -> None:
    write(workspace, "lr")
    train(CONFIG, "--num_passes=1", "--save_dir=out")
    test = (CONFIG, "--job=test", "--config_args=is_predict=1", "--init_model_path=out/pass-00000")
    train(*test, "--predict_output_dir=p", "--feat_file=features")
    train(*test, "--feat_file=features")
    found = np.fromfile("features", np.float32).reshape(2, 32, -1)
    np.testing.assert_array_equal(found[0], found[1])
    text = [line.rstrip(";").split(";") for line in Path("p/rank-00000").read_text().splitlines()]
    np.testing.assert_allclose(found[0], np.array(text, np.float32), rtol=1e-5)


def test_scores_of_pairs_are_written_beside_the_test(workspace: Path, lines: list[str]) -> None:
    write(workspace, "lr")
    path = workspace / "trainer_config.py"
    text = path.read_text().replace("label=data_layer(name='label', size=2)", "label=label")
    text = text.replace("if is_predict:", "label = data_layer(name='label', size=2)\nif is_predict:")
    path.write_text(text)
    train(CONFIG, "--num_passes=1", "--save_dir=out")
    test = (CONFIG, "--job=test", "--init_model_path=out/pass-00000", "--predict_file=pairs")
    with pytest.raises(UsageError, match="--predict_file needs a pnpair_evaluator"):
        train(*test)
    path.write_text(text + "pnpair_evaluator(output, label, label)\n")
    lines.clear()
    train(*test)
    rows = np.loadtxt("pairs")
    assert rows.shape == (32, 3)
    assert set(rows[:, 1]) == {0, 1}
    np.testing.assert_array_equal(rows[:, 1], rows[:, 2])
    assert sum(" Test samples=32 cost=" in line for line in lines) == 1
    path.write_text(
        text + "query = slope_intercept_layer(output, slope=0.0, intercept=12345678.0)\n"
        "pnpair_evaluator(output, label, query)\n"
    )
    train(*test)
    assert {line.split()[2] for line in Path("pairs").read_text().splitlines()[-32:]} == {"12345678"}


def test_a_test_runs_every_so_many_batches(workspace: Path, lines: list[str]) -> None:
    write(workspace, "lr")
    train(CONFIG, "--num_passes=1", "--test_period=2", "--saving_period=0")
    assert sum(line.startswith(" Test samples=32") for line in lines) == 3


def test_statistics_of_parameters_are_logged(workspace: Path, lines: list[str]) -> None:
    write(workspace, "lr")
    train(CONFIG, "--num_passes=1", "--show_parameter_stats_period=3", "--saving_period=0")
    shown = [line for line in lines if "avg_abs_val=" in line]
    assert len(shown) == 2 * 2
    assert re.match(
        r"___fc_layer_0__.w0   avg_abs_val=\S+ +max_val=\S+ +avg_abs_grad=\S+ +max_grad=", shown[0]
    )


def test_gradients_are_compared_with_differences(workspace: Path, lines: list[str]) -> None:
    write(workspace, "lstm")
    text = (workspace / "trainer_config.py").read_text().replace("drop_rate=0.25", "drop_rate=0")
    (workspace / "trainer_config.py").write_text(text.replace("MaxPooling", "AvgPooling"))
    train(CONFIG, "--job=checkgrad")
    found = [float(at[1]) for line in lines if (at := re.search(r" diff=(\S+)", line))]
    assert len(found) == 6
    assert max(found) < 0.01


@pytest.mark.parametrize(
    ("flags", "why"),
    [
        ([], "flag --config is missing"),
        ([CONFIG, "--job=run"], "flag --job: expected train, test, checkgrad, time, got 'run'"),
        ([CONFIG, "--nun_passes=1"], "unknown command line flag 'nun_passes'; did you mean 'num_passes'"),
        (
            [CONFIG, "--distribute_test", "--num_gradient_servers=2"],
            "flag --distribute_test: the tests of 2 trainers are not merged",
        ),
        ([CONFIG, "--feat_file=f"], "flag --feat_file needs --job=test, got --job=train"),
        ([CONFIG, "stray"], "Unknown commandline argument: stray"),
    ],
)
def test_a_wrong_flag_is_named(workspace: Path, flags: list[str], why: str) -> None:
    write(workspace, "lr")
    with pytest.raises(FlagError, match=re.escape(why)):
        train(*flags)


@pytest.mark.parametrize(
    ("text", "why"),
    [
        ("print 'x'\n", r"cannot read the configuration .*`2to3 -w -n c.py`"),
        ("\nx = fc_layer(1)\n", "c.py, line 2: name 'fc_layer' is not defined$"),
        ("{}.iteritems()\n", "c.py, line 1: .* has no attribute 'iteritems'. `2to3 -w -n c.py`"),
        ("import cPickle\n", "c.py, line 1: No module named 'cPickle'. `2to3 -w -n c.py`"),
        ("x = 1\n", r"never calls outputs\(...\)"),
        ("from paddle.trainer_config_helpers import *\noutputs(data_layer('x', 3))\n", "declares no data"),
    ],
)
def test_a_wrong_configuration_is_named(workspace: Path, text: str, why: str) -> None:
    (workspace / "c.py").write_text(text)
    with pytest.raises(UsageError, match=why):
        train("--config=c.py")


@pytest.mark.parametrize(
    ("types", "why"),
    [
        (
            "{'x': dense_vector(9)}",
            r"'x' has size 3, but the provider's type for it is dense_vector\(9\); give both",
        ),
        (
            "{'z': dense_vector(3)}",
            r"the data provider typed.process has no input type for data layer 'x', only for \['z'\]; add it to",
        ),
    ],
)
def test_types_that_differ_from_the_data_layers_are_named(workspace: Path, types: str, why: str) -> None:
    (workspace / "c.py").write_text(
        "from paddle.trainer_config_helpers import *\n"
        "define_py_data_sources2([], None, module='typed', obj='process')\n"
        "settings(batch_size=1, learning_rate=1)\n"
        "x = data_layer('x', 3)\n"
        "outputs(square_error_cost(x, x))\n"
    )
    (workspace / "typed.py").write_text(
        f"from paddle.trainer.PyDataProvider2 import *\n@provider({types})\ndef process(settings, name): yield {{}}\n"
    )
    with pytest.raises(UsageError, match=why):
        train("--config=c.py")


@pytest.mark.parametrize(
    ("encoding", "first"), [("utf-8-sig", ""), ("gbk", "# -*- coding: gbk -*-\n")], ids=["bom", "gbk"]
)
def test_a_configuration_may_say_its_encoding(workspace: Path, encoding: str, first: str) -> None:
    text = f"{first}from paddle.trainer_config_helpers import *\noutputs(data_layer('\u8bcd', 3))\n"
    (workspace / "c.py").write_text(text, encoding=encoding)
    assert parse_config("c.py").model_config.output_layer_names == ["\u8bcd"]


def test_a_configuration_that_is_missing_is_reported_with_the_directory(workspace: Path) -> None:
    with pytest.raises(UsageError, match=f"{re.escape(str(workspace))}$"):
        train("--config=absent.py")


def test_arguments_of_a_configuration_are_read_as_their_types(workspace: Path) -> None:
    (workspace / "c.py").write_text(
        "from paddle.trainer_config_helpers import *\n"
        "assert get_config_arg('a', int, 0) == 3 and get_config_arg('b', bool, True) is False\n"
        "assert get_config_arg('c', str, 'x') == 'x' and get_config_arg('d', float, 1.) == 0.5\n"
        "outputs(data_layer('x', 3))\n"
    )
    assert parse_config("c.py", "a=3,b=False,d=.5,unused=1").model_config.output_layer_names == ["x"]
    with pytest.raises(UsageError, match="a='x' is not a valid int"):
        parse_config("c.py", "a=x")


def test_a_merged_model_infers_what_the_directory_and_the_network_infer(workspace: Path) -> None:
    write(workspace, "lr")
    train(CONFIG, "--num_passes=2", "--save_dir=out")
    done = merge_model.main(
        ["--model_dir=out/pass-00001", "--config_file=trainer_config.py", "--model_file=m.paddle"]
    )
    assert done == 0
    raw = (workspace / "m.paddle").read_bytes()
    (length,) = struct.unpack_from("<q", raw)
    messages: Any = TrainerConfig_pb2
    config = messages.TrainerConfig.FromString(raw[8 : 8 + length])
    assert [each.name for each in config.model_config.parameters] == [*values(workspace / "out/pass-00001")]
    network, _ = merge_model.read("m.paddle")
    _, parameters = merge_model.read("m.paddle")
    for name, value in values(workspace / "out/pass-00001").items():
        np.testing.assert_array_equal(parameters.get(name).ravel(), value)
    (workspace / "m.paddle").write_bytes(raw[:-4])
    with pytest.raises(ModelFileError, match="should have"):
        merge_model.read("m.paddle")
    (workspace / "m.paddle").write_bytes(raw + b"x")
    with pytest.raises(ModelFileError, match=r"m\.paddle .* \d parameters"):
        merge_model.read("m.paddle")
    for plain in (config, config.model_config):  # as the original's `merge_model` and `merge_v2_model` write
        description = plain.SerializeToString()
        (workspace / "m.paddle").write_bytes(
            struct.pack("<q", len(description)) + description + raw[8 + length :]
        )
        found, parameters = merge_model.read("m.paddle")
        assert found.layers == network.layers
        for name, value in values(workspace / "out/pass-00001").items():
            np.testing.assert_array_equal(parameters.get(name).ravel(), value)


@pytest.mark.parametrize("opened", ["gzip", "plain"])
def test_a_network_of_v2_is_merged_with_a_tar(workspace: Path, opened: str) -> None:
    x = paddle.layer.data("x", paddle.data_type.dense_vector(3))
    predicted = paddle.layer.fc(x, 2)
    parameters = paddle.parameters.create(predicted)
    file: Any
    with gzip.open("p.tar", "wb") if opened == "gzip" else open("p.tar", "wb") as file:
        parameters.to_tar(file)
    merge_model.merge_v2_model(predicted, "p.tar", "m.paddle")
    network, read = merge_model.read("m.paddle")
    assert network.outputs == (predicted.name,)
    np.testing.assert_array_equal(read["___fc_layer_0__.w0"], parameters["___fc_layer_0__.w0"])


def test_a_configuration_is_printed_and_drawn(workspace: Path, capsys: pytest.CaptureFixture[str]) -> None:
    write(workspace, "lstm")
    assert dump_config.main(["trainer_config.py"]) == 0
    text = capsys.readouterr().out
    assert text.startswith(
        'type: "nn"\nlayers {\n  name: "word"\n  type: "data"\n  size: 22\n  active_type: ""\n'
    )
    assert '  type: "multi-class-cross-entropy"\n' in text
    assert 'input_layer_names: "word"\ninput_layer_names: "label"\noutput_layer_names: "__cost_0__"\n' in text
    assert dump_config.main(["trainer_config.py", "is_predict=1", "--whole"]) == 0
    text = capsys.readouterr().out
    assert '  learning_method: "adam"\n' in text
    assert "test_data_config {\n" in text
    assert 'load_data_object: "unlabelled"' in text
    make_model_diagram.main(["trainer_config.py", "net.dot"])
    dot = (workspace / "net.dot").read_text()
    assert dot.count("shape=box") == 8
    assert dot.count("->") == 7
    make_model_diagram.main(["trainer_config.py", "net.svg"])
    assert (workspace / "net.svg").read_text().count("<rect") == 8


def test_the_command_trains_and_its_log_begins_with_its_command_line(workspace: Path) -> None:
    write(workspace, "lr")
    done = subprocess.run(
        [sys.executable, "-P", "-m", "paddle", "train", CONFIG, "--num_passes=1", "--log_period=3"],
        env={"PYTHONPATH": str(ROOT / "runtime"), "OPENBLAS_NUM_THREADS": "1"},
        capture_output=True,
        text=True,
        timeout=60,
    )
    assert done.returncode == 0, done.stderr
    first, *rest = done.stderr.splitlines()
    assert first.endswith(
        "commandline: paddle train --config=trainer_config.py --num_passes=1 --log_period=3 "
    )
    assert "..." in rest
    assert any(" Batch=3 samples=48 AvgCost=" in line for line in rest)
    assert (workspace / "output/model/pass-00000/done").is_file()
