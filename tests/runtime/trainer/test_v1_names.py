# SPDX-License-Identifier: Apache-2.0
"""Every name of v1 that stands in the original's list exists with its arguments and defaults."""

from __future__ import annotations

import importlib
import inspect
import re
from pathlib import Path
from typing import Any

import pytest

import paddle.trainer_config_helpers as helpers
from paddle.trainer import PyDataProvider2
from paddle.trainer_config_helpers import optimizers
from paddle.v2 import activation, data_type, layer, model, networks

ROOT = Path(__file__).resolve().parents[3]
HOMES = {"trainer_config_helpers.optimizers": optimizers, "PyDataProvider2": PyDataProvider2}
# of the original, the class that a type is named by is an argument
ALIKE = {"PyDataProvider2.InputType": "dim, seq_type, type"}


def _listed() -> list[tuple[str, str]]:
    path = ROOT.parent / "shared" / "spec" / "v2_names.tsv"
    if not path.exists():
        return []
    rows = (line.partition("\t")[::2] for line in path.read_text().splitlines())
    return [(name, arguments) for name, arguments in rows if name.startswith(tuple(HOMES))]


@pytest.mark.skipif(not _listed(), reason="../shared/spec/v2_names.tsv is absent")
def test_listed_names_have_their_arguments_and_defaults() -> None:
    wrong = {}
    for name, arguments in _listed():
        home = next(each for each in HOMES if name.startswith(each))
        found: Any = HOMES[home]
        for part in name.removeprefix(f"{home}.").split("."):
            found = getattr(found, part, None)
        if found is None:
            wrong[name] = "absent"
        elif arguments and _arguments(found) != (expected := _plain(ALIKE.get(name, arguments))):
            wrong[name] = f"{_arguments(found)} != {expected}"
    assert wrong == {}


def _arguments(found: Any) -> list[str]:
    parameters = inspect.signature(found).parameters.values()
    kept = [each.replace(annotation=inspect.Parameter.empty) for each in parameters]
    return _plain(", ".join(str(each) for each in kept if each.name not in ("self", "has_own_shape")))


def _plain(text: str) -> list[str]:
    text = re.sub(r"<[\w.]+: (\d+)>|(?:SequenceType|CacheType)\.NO_\w+", lambda at: at[1] or "0", text)
    return [re.sub(r"=(\d+)e-0?(\d)", r"=\1e-\2", each) for each in text.split(", ")]


@pytest.mark.parametrize(
    ("name", "is_now"),
    [
        ("fc_layer", layer.fc),
        ("grumemory", layer.grumemory),
        ("maxid_layer", layer.max_id),
        ("cross_entropy", layer.cross_entropy_cost),
        ("multi_binary_label_cross_entropy", layer.multi_binary_label_cross_entropy_cost),
        ("regression_cost", layer.regression_cost),
        ("table_projection", layer.table_projection),
        ("StaticInput", layer.StaticInput),
        ("recurrent_group", layer.recurrent_group),
        ("simple_lstm", networks.simple_lstm),
        ("SoftmaxActivation", activation.Softmax),
        ("SequenceSoftmaxActivation", activation.SequenceSoftmax),
    ],
)
def test_a_name_of_v1_is_the_declaration_of_v2(name: str, is_now: object) -> None:
    assert name in helpers.__all__
    assert getattr(helpers, name) is is_now


def test_a_misspelt_name_is_told_the_nearest() -> None:
    with pytest.raises(AttributeError, match="'fc_layers'; did you mean 'fc_layer'"):
        helpers.fc_layers  # noqa: B018


def test_learning_methods_say_what_they_are_called_in_configurations() -> None:
    made: Any = helpers
    assert made.AdamOptimizer(beta1=0.5).to_setting_kwargs() == {
        "learning_method": "adam",
        "adam_beta1": 0.5,
        "adam_beta2": 0.999,
        "adam_epsilon": 1e-8,
    }
    assert made.MomentumOptimizer(0.9, sparse=True).to_setting_kwargs() == {
        "learning_method": "sparse_momentum"
    }
    assert made.RMSPropOptimizer().to_setting_kwargs()["ada_rou"] == 0.95
    assert not made.AdamOptimizer().is_support_sparse
    assert made.MomentumOptimizer().is_support_sparse


def test_functions_declare_configurations_without_a_file() -> None:
    utils = importlib.import_module("paddle.trainer_config_helpers.config_parser_utils")
    v1: Any = helpers

    def declare() -> None:
        v1.settings(batch_size=10, learning_rate=1e-3)
        v1.outputs(v1.fc_layer(v1.data_layer("x", size=4), size=2, name="out"))

    network = utils.parse_network_config(declare)
    assert [(each.name, each.size) for each in network.layers] == [("x", 4), ("out", 2)]
    assert utils.parse_trainer_config(declare).model_config.output_layer_names == ["out"]
    assert utils.parse_optimizer_config(declare)["batch_size"] == 10
    with model.fresh():
        layer.fc(layer.data("x", data_type.dense_vector(4)), 2)
        utils.reset_parser()
        assert not model.current().layers


@pytest.mark.parametrize(
    ("module", "name"),
    [
        ("paddle.utils", "Ploter"),
        ("paddle.utils.plot", "Ploter"),
        ("paddle.fluid.transpiler.distribute_transpiler", "DistributeTranspilerConfig"),
        ("paddle.fluid.transpiler.ps_dispatcher", "HashName"),
        ("paddle.fluid.transpiler.inference_transpiler", "InferenceTranspiler"),
        ("paddle.fluid.transpiler.memory_optimization_transpiler", "memory_optimize"),
    ],
)
def test_modules_of_the_original_can_be_imported(module: str, name: str) -> None:
    assert callable(getattr(importlib.import_module(module), name))
