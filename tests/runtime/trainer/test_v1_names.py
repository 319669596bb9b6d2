# SPDX-License-Identifier: Apache-2.0
"""Every name of v1 that stands in the original's list exists with its arguments and defaults."""

from __future__ import annotations

import importlib
import inspect
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

import paddle.trainer_config_helpers as helpers
from paddle.trainer import PyDataProvider2
from paddle.trainer_config_helpers import default_decorators as decorators
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
    assert utils.parse_optimizer_config(declare).batch_size == 10
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


@pytest.mark.parametrize(
    "module", ["utils.plotcurve", "utils.torch2paddle", "utils.predefined_net", "trainer.recurrent_units"]
)
def test_modules_that_are_missing_say_what_to_use(module: str) -> None:
    with pytest.raises(ModuleNotFoundError, match=rf"^paddle\.{module} .*use \w+"):
        importlib.import_module(f"paddle.{module}")


def test_layers_of_a_script_get_names_attributes_and_activations() -> None:
    v1: Any = helpers

    @decorators.wrap_name_default("own")
    @decorators.wrap_param_attr_default()
    @decorators.wrap_bias_attr_default(has_bias=False)
    @decorators.wrap_act_default(act=v1.ReluActivation())
    def own_layer(
        input: Any,
        name: Any = None,
        param_attr: Any = None,
        bias_attr: Any = None,
        act: Any = None,
        **rest: Any,
    ) -> Any:
        assert isinstance(param_attr, v1.ParamAttr)
        return v1.fc_layer(
            input, 2, act=act, name=name, param_attr=param_attr, bias_attr=bias_attr or False, **rest
        )

    with model.fresh() as space:
        x = v1.data_layer("x", size=4)
        drop = v1.ExtraAttr(drop_rate=0.5)
        named = v1.ParamAttr(name="b", initial_std=0.5)
        made = [
            own_layer(x),
            own_layer(input=x, bias_attr=True, layer_attr=drop),
            own_layer(x, None, v1.ParamAttr(name="w"), named, v1.TanhActivation()),
            own_layer(x, name="given"),
        ]
        configs = [each.config for each in made]
        assert [each.name for each in configs] == ["__own_0__", "__own_1__", "__own_2__", "given"]
        assert [each.activation for each in configs] == ["relu", "relu", "tanh", "relu"]
        assert [each.bias for each in configs] == ["", "___own_1__.wbias", "b", ""]
        assert [space.parameters[each].initial_std for each in ("___own_1__.wbias", "b")] == [0.0, 0.5]
        assert (configs[2].inputs[0].parameter, configs[1].extras.drop_rate) == ("w", 0.5)
        count = decorators.wrap_param_default(["a", "b"], lambda function: function.__name__)
        assert count(lambda a, **rest: (a, rest["b"]))(1) == (1, "<lambda>")


RAW = """
from paddle.trainer_config_helpers import *
from paddle.trainer.config_parser import *
model_type('nn')
x, y = data_layer('x', size=4), data_layer('y', size=3)
out = fc_layer(x, size=3, act=SoftmaxActivation(), name='out')
classification_cost(out, y, name='cost')
Inputs('y', 'x')
Outputs('cost')
"""


def test_raw_configurations_name_their_inputs_and_outputs(tmp_path: Path) -> None:
    (tmp_path / "c.py").write_text(RAW)
    parser = importlib.import_module("paddle.trainer.config_parser")
    found = parser.parse_config(str(tmp_path / "c.py"))
    assert found.configuration.input_order == ["y", "x"]
    assert list(found.network.layers) == ["x", "y", "out", "cost"]
    (tmp_path / "c.py").write_text(RAW.replace("Inputs('y', 'x')\n", ""))
    assert parser.parse_config(str(tmp_path / "c.py")).configuration.input_order == ["x", "y"]
    (tmp_path / "c.py").write_text(RAW + "Outputs('cots')\n")
    with pytest.raises(ValueError, match=r"c\.py, line 10: Outputs: .*\['cots'\].*'cost'"):
        parser.parse_config(str(tmp_path / "c.py"))


TWO_CALLS = """
from paddle.trainer_config_helpers import *
x, y, z = (data_layer(name, size=3) for name in 'xyz')
first, second = square_error_cost(x, y, name='first'), square_error_cost(x, z, name='second')
inputs(z, y)
inputs(x)
outputs(first)
outputs(second, first)
"""


@pytest.mark.parametrize("declared", [TWO_CALLS, TWO_CALLS.replace("outputs(first)", "Outputs('first')")])
def test_each_call_adds_inputs_and_outputs(tmp_path: Path, declared: str) -> None:
    (tmp_path / "c.py").write_text(declared)
    found = importlib.import_module("paddle.trainer.config_parser").parse_config(str(tmp_path / "c.py"))
    assert found.configuration.input_order == ["z", "y", "x"]
    assert found.model_config.output_layer_names == ["first", "second"]


@pytest.mark.parametrize(
    "call", ["Layer(type='fc')", "Settings(batch_size=3)", "TrainData(PyData(files='x'))"]
)
def test_the_rest_of_the_raw_interface_says_what_to_use(tmp_path: Path, call: str) -> None:
    (tmp_path / "c.py").write_text(f"\n{call}\n")
    parser = importlib.import_module("paddle.trainer.config_parser")
    with pytest.raises(ValueError, match=r"c\.py, line 2: (Layer|Settings|PyData)\(\.\.\.\).* use \w+"):
        parser.parse_config(str(tmp_path / "c.py"))


def test_a_script_that_declares_a_configuration_which_nothing_reads_is_warned_of_once() -> None:
    code = (
        "from paddle.trainer_config_helpers import *\nsettings(batch_size=4)\noutputs(data_layer('x', 4))\n"
    )
    made = subprocess.run(
        [sys.executable, "-c", code],
        capture_output=True,
        text=True,
        timeout=100,
        env={"PYTHONPATH": str(ROOT / "runtime")},
    )
    assert made.returncode == 0
    assert made.stderr.count("paddle.v2 takes an optimizer") == 1
    assert "<string>:2: UserWarning" in made.stderr
