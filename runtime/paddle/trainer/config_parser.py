# SPDX-License-Identifier: Apache-2.0
"""The parser of configuration files of `paddle train`, and the names that these files can use without an import."""

from __future__ import annotations

import sys
import traceback
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

from paddle import protobuf
from paddle.errors import PaddleError
from paddle.proto.TrainerConfig_pb2 import MESSAGES
from paddle.reader import pickling
from paddle.trainer_config_helpers.configuration import Configuration, DataSource, argument, current, reading
from paddle.v2 import model
from paddle.v2.errors import UsageError, python2_hint
from paddle.v2.layer.output import LayerOutput
from paddle.v2.network import OWN_FIELD, Network, NetworkMessage, fill, network_of, sources
from paddle_node.contract.classes import replace
from paddle_node.contract.flags import parse_bool

__all__ = [
    "Inputs", "Outputs", "default_decay_rate", "default_device", "default_gradient_clipping_threshold",
    "default_initial_mean", "default_initial_smart", "default_initial_std", "default_initial_strategy",
    "default_momentum", "default_num_batches_regularization", "get_config_arg", "model_type",
]  # fmt: skip

_TrainerConfig: Any = MESSAGES["TrainerConfig"]
_INSTEAD: Mapping[str, str] = {
    "Bias": "bias_attr=ParamAttr(...) of a layer",
    "Evaluator": "an evaluator, such as classification_error_evaluator(...), or evaluator_base(type=...)",
    "Input": "param_attr=ParamAttr(...) of a layer",
    "Layer": "the layer's function, such as fc_layer(...)",
    "Memory": "memory(...)",
    "Parameter": "ParamAttr(name=...) of a layer",
    "ProtoData": "define_py_data_sources2(...) and a @provider of PyDataProvider2",
    "PyData": "define_py_data_sources2(...) and a @provider of PyDataProvider2",
    "RecurrentLayerGroupBegin": "recurrent_group(...)",
    "RecurrentLayerGroupEnd": "recurrent_group(...)",
    "Settings": "settings(batch_size=..., learning_method=...)",
    "SimpleData": "define_py_data_sources2(...) and a @provider of PyDataProvider2",
    "TestData": "define_py_data_sources2(...)",
    "TrainData": "define_py_data_sources2(...)",
}
"""What replaces the functions of the original's raw interface, on which `paddle.trainer_config_helpers` is built."""


class TrainerConfig(_TrainerConfig):  # type: ignore[misc]
    """The contents of a configuration file, as the original's message.

    Attributes:
        configuration: the settings, as the calls in the file set them.
        network: the layers that outputs and evaluators need; unset if the file declares no outputs.
    """

    __slots__ = ("configuration", "network")
    configuration: Configuration
    network: Network

    def __init__(self, configuration: Configuration | None = None) -> None:
        super().__init__()
        if configuration is None:
            return
        object.__setattr__(self, "configuration", configuration)
        if configuration.outputs:
            object.__setattr__(self, "network", _network_of(configuration))
            self._values["model_config"] = NetworkMessage(self.network, configuration.input_order)
        fill(self.opt_config, _optimization(configuration))
        clip = configuration.settings.get("gradient_clipping_threshold") or 0.0
        self.default_values.gradient_clipping_threshold = float(clip)
        for name, source in (("data_config", configuration.train), ("test_data_config", configuration.test)):
            if source is not None:
                fill(getattr(self, name), _data(source, name != "data_config"))

    def with_network(self) -> bytes:
        """Serialize the message, with the network in an additional field, which other readers of the message skip.

        Raises:
            UsageError: the configuration declares no outputs.
        """
        self.configuration.check()
        content: bytes = self.SerializeToString()
        return content + protobuf.bytes_field(OWN_FIELD, self.network.to_json())


def _network_of(configuration: Configuration) -> Network:
    assert configuration.space is not None
    names = [layer.name for layer in configuration.outputs]
    found = network_of(configuration.space, names, extra_outputs(configuration))
    fill_defaults = configuration.space.defaults.fill
    return replace(found, parameters={name: fill_defaults(each) for name, each in found.parameters.items()})


def _optimization(configuration: Configuration) -> dict[str, Any]:
    """Return the settings under the names of the original's message."""
    given = {name: each for name, each in configuration.settings.items() if each is not None}
    parts = [given.pop(name, None) for name in ("learning_method", "model_average")]
    given["algorithm"] = "async_sgd" if given.pop("is_async", False) else "sgd"
    for part in parts:
        if part is not None:
            given |= {name: each for name, each in part.to_setting_kwargs().items() if each is not None}
    return given


def _data(source: DataSource, is_test: bool) -> dict[str, Any]:
    return {
        "type": "py2",
        "files": source.files if isinstance(source.files, str) else ",".join(source.files),
        "for_test": is_test,
        "load_data_module": source.module,
        "load_data_object": source.provider,
        "load_data_args": _text(source.arguments),
    }


def _text(arguments: Mapping[str, Any]) -> str | None:
    """Return the arguments of a provider as the original does, as a pickle of protocol 0; None if it has no form."""
    try:
        return pickling.text(arguments) if arguments else None
    except TypeError:
        return None


def parse_config(trainer_config: str | Callable[[], None], config_arg_str: str = "") -> TrainerConfig:
    """Parse a configuration file, and return the configuration that it declares.

    Args:
        trainer_config: path of a file, or a function that makes the calls of one.
        config_arg_str: "name=value,name=value", for `get_config_arg`.

    Raises:
        UsageError: the file cannot be read, or raises an error.
    """
    configuration = Configuration(arguments=_arguments(config_arg_str))
    with reading(configuration):
        if callable(trainer_config):
            trainer_config()
        else:
            _run(Path(trainer_config))
    return TrainerConfig(configuration)


def parse_config_and_serialize(trainer_config: str | Callable[[], None], config_arg_str: str = "") -> bytes:
    """Parse a configuration file and return it as a serialized message."""
    content: bytes = parse_config(trainer_config, config_arg_str).SerializeToString()
    return content


def parse_trainer_config(trainer_conf: Callable[[], None], config_arg_str: str = "") -> TrainerConfig:
    """Return the configuration that a function's calls declare; see `parse_config`."""
    return parse_config(trainer_conf, config_arg_str)


def parse_network_config(network_conf: Callable[[], None], config_arg_str: str = "") -> NetworkMessage:
    """Return the network that a function's calls declare; see `parse_config`."""
    config = parse_config(network_conf, config_arg_str)
    config.configuration.check()
    network: NetworkMessage = config.model_config
    return network


def parse_optimizer_config(optimizer_conf: Callable[[], None], config_arg_str: str = "") -> Any:
    """Return the message `OptimizationConfig` of the settings that a function makes; see `parse_config`."""
    return parse_config(optimizer_conf, config_arg_str).opt_config


def reset_parser() -> None:
    """Discard all declared layers and parameters."""
    model.reset()


def extra_outputs(configuration: Configuration) -> list[str]:
    """Return the names of the layers that evaluators read and no output needs."""
    assert configuration.space is not None
    layers = configuration.space.layers
    return list(
        dict.fromkeys(
            name
            for item in configuration.space.evaluators
            for name in item.inputs
            if layers[name].type != "ids"
        )
    )


def get_config_arg(name: str, type: Callable[[Any], Any], default: Any = None) -> Any:
    """Return the value of an argument of `--config_args`, converted to a type, or the default.

    Raises:
        UsageError: the text does not match the type.
    """
    text = argument(name)
    if text is None:
        return default
    try:
        return parse_bool(text) if type is bool else type(text)
    except ValueError as error:
        raise UsageError(f"--config_args: {name}={text!r} is not a valid {type.__name__}") from error


def default_momentum(val: float) -> None:
    """Set the default momentum of parameters."""
    model.current().defaults.momentum = float(val)


def default_decay_rate(val: float) -> None:
    """Set the default L2 decay rate of parameters."""
    model.current().defaults.decay_rate = float(val)


def default_gradient_clipping_threshold(val: float) -> None:
    """Set the default threshold of gradient clipping for parameters."""
    model.current().defaults.gradient_clipping_threshold = float(val)


def _without_effect(name: str, why: str) -> Callable[[Any], None]:
    def ignore(val: Any) -> None:
        pass

    ignore.__name__, ignore.__doc__ = name, f"Has no effect: {why}."
    return ignore


_OWN_START = "layers of trainer_config_helpers define the initial values of their parameters"
default_device = _without_effect("default_device", "a layer cannot be assigned its own device")
default_num_batches_regularization = _without_effect(
    "default_num_batches_regularization", "decay is applied in every batch"
)
default_initial_mean = _without_effect("default_initial_mean", _OWN_START)
default_initial_std = _without_effect("default_initial_std", _OWN_START)
default_initial_strategy = _without_effect("default_initial_strategy", _OWN_START)
default_initial_smart = _without_effect("default_initial_smart", _OWN_START)


model_type = _without_effect("model_type", "the layers determine the type of the network")


def Inputs(*args: str) -> None:  # noqa: N802 - the original's name
    """Declare the data layers, by name, that take the columns of a provider's samples, in order."""
    current().inputs += [layer.name for layer in _named(args, "Inputs")]


def Outputs(*args: str) -> None:  # noqa: N802 - the original's name
    """Declare the outputs of the network by the names of their layers."""
    current().add_outputs(_named(args, "Outputs"))


def _named(names: Sequence[str], who: str) -> list[LayerOutput]:
    found: dict[str, LayerOutput] = {}
    for name, config in model.current().layers.items():
        found[name] = LayerOutput(config, [found[each] for each in sources(config) if each in found])
    unknown = [name for name in names if name not in found]
    if unknown:
        raise UsageError(f"{who}: unknown layers {unknown}; the configuration has {list(found)}")
    return [found[name] for name in names]


def _refused(name: str, instead: str) -> Callable[..., None]:
    def refuse(*args: Any, **kwargs: Any) -> None:
        raise UsageError(f"{name}(...) of the raw configuration interface is not supported: use {instead}")

    refuse.__name__, refuse.__doc__ = name, f"Refuse the call: configurations use {instead}."
    return refuse


globals().update({_name: _refused(_name, _text) for _name, _text in _INSTEAD.items()})
__all__ += list(_INSTEAD)


def _run(path: Path) -> None:
    try:
        text = path.read_bytes()
    except OSError as error:
        near = "" if path.exists() or path.is_absolute() else f"; it was searched for in {Path.cwd()}"
        raise UsageError(f"cannot read the configuration {path}: {error.strerror}{near}") from error
    folder = str(path.parent.absolute())
    if folder not in sys.path:  # for modules in the same directory
        sys.path.insert(0, folder)
    scope: dict[str, Any] = {name: globals()[name] for name in __all__}
    scope |= {"__file__": str(path), "__name__": "__paddle_config__", "xrange": range}
    try:
        exec(compile(text, str(path), "exec"), scope)  # noqa: S102 - a configuration is a program
    except SyntaxError as error:
        hint = python2_hint(error, path.name)
        raise UsageError(f"cannot read the configuration {path}: {error}{hint}") from error
    except (NameError, AttributeError, ModuleNotFoundError) as error:
        raise UsageError(f"{_place(path, error)}{error}{python2_hint(error, path.name)}") from error
    except PaddleError as error:
        if error.args == (str(error),):
            error.args = (f"{_place(path, error)}{error}",)
        raise


def _place(path: Path, error: Exception) -> str:
    """Return the line of a configuration that caused an error, as the beginning of a message."""
    lines = [at.lineno for at in traceback.extract_tb(error.__traceback__) if at.filename == str(path)]
    return f"{path}, line {lines[-1]}: " if lines else f"{path}: "


def _arguments(text: str) -> Mapping[str, str]:
    found = {}
    for each in filter(None, text.split(",")):
        name, equals, value = each.partition("=")
        if not equals:
            raise UsageError(f"--config_args: expected name=value,name=value, got {each!r}")
        found[name.strip()] = value.strip()
    return found
