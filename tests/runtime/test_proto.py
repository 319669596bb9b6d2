# SPDX-License-Identifier: Apache-2.0
"""The original's protobuf messages under their old names: fields, presence, copies, wire format and text."""

from __future__ import annotations

import copy
import struct
from collections.abc import Callable
from typing import Any

import pytest

from paddle import protobuf
from paddle.errors import ConfigError, ModelFileError, PaddleError
from paddle.proto import (
    DataConfig_pb2,
    ModelConfig_pb2,
    OptimizerConfig_pb2,
    ParameterConfig_pb2,
    TrainerConfig_pb2,
)

KIND = {
    "double": 1, "float": 2, "int64": 3, "uint64": 4, "int32": 5, "bool": 8, "string": 9, "bytes": 12, "uint32": 13,
}  # fmt: skip
VALUES: dict[str, list[Any]] = {
    "double": [1.5, 1e-8, -0.1], "float": [0.5, -2.25], "int64": [-5, 1 << 40], "uint64": [0, 1 << 63],
    "int32": [-1, 5], "bool": [True, False], "string": ['a"\\\n', ""], "uint32": [0, 1 << 31],
}  # fmt: skip
MODULES = (ParameterConfig_pb2, ModelConfig_pb2, DataConfig_pb2, TrainerConfig_pb2, OptimizerConfig_pb2)


def parameter(**fields: Any) -> Any:
    return ParameterConfig_pb2.MESSAGES["ParameterConfig"](**fields)


def network() -> Any:
    model = ModelConfig_pb2.MESSAGES["ModelConfig"](type="nn")
    layer = model.layers.add(name="fc", type="fc", size=2)
    layer.inputs.add().input_layer_name = "x"
    layer.neg_sampling_dist.extend([0.25, 0.75])
    model.parameters.extend([parameter(name="w", size=6, dims=[3, 2])])
    return model


def fill(message: Any, turn: int, depth: int = 4) -> Any:
    """Set every other field, starting with the first or the second."""
    for number, field in enumerate(type(message).FIELDS.values()):
        if number % 2 == turn or (not isinstance(field.kind, str) and not depth):
            continue
        if not isinstance(field.kind, str):
            held = getattr(message, field.name)
            fill(held.add() if field.is_repeated else held, turn, depth - 1)
        elif field.is_repeated:
            getattr(message, field.name).extend(VALUES[field.kind])
        else:
            setattr(message, field.name, VALUES[field.kind][turn])
    return message


def google_classes() -> dict[str, Any]:
    """Return the classes that the protobuf package makes from the same fields."""
    google = "google.protobuf"
    descriptor_pb2, descriptor_pool, message_factory = (
        pytest.importorskip(f"{google}.{name}")
        for name in ("descriptor_pb2", "descriptor_pool", "message_factory")
    )
    kinds = {
        name: each for module in MODULES for name, each in module.MESSAGES.items() if isinstance(each, type)
    }
    file = descriptor_pb2.FileDescriptorProto(name="all.proto", package="all", syntax="proto2")
    for name, kind in kinds.items():
        described = file.message_type.add(name=name)
        for field in kind.FIELDS.values():  # type: ignore[attr-defined]
            label = 3 if field.is_repeated else 2 if field.label == "!" else 1
            row = described.field.add(name=field.name, number=field.number, label=label)
            row.type = KIND.get(field.kind, 11)
            if not isinstance(field.kind, str):
                row.type_name = f".all.{field.kind.__name__}"
            row.options.packed = field.label == "**"
    pool = descriptor_pool.DescriptorPool()
    pool.Add(file)
    return {
        name: message_factory.GetMessageClass(pool.FindMessageTypeByName(f"all.{name}")) for name in kinds
    }


@pytest.mark.parametrize("turn", [0, 1])
@pytest.mark.parametrize("name", ["TrainerConfig", "OptimizerConfig"])
def test_the_wire_format_and_the_text_are_those_of_the_protobuf_package(name: str, turn: int) -> None:
    module = TrainerConfig_pb2 if name == "TrainerConfig" else OptimizerConfig_pb2
    ours = fill(module.MESSAGES[name](), turn)
    theirs = google_classes()[name].FromString(ours.SerializePartialToString())
    assert theirs.SerializePartialToString() == ours.SerializePartialToString()
    assert str(theirs) == str(ours)
    again = module.MESSAGES[name]()
    again.MergeFromString(theirs.SerializePartialToString())
    assert again == ours


def test_unset_fields_have_defaults_and_set_ones_have_presence() -> None:
    config = parameter()
    assert (config.learning_rate, config.initial_std, config.device, list(config.dims)) == (1.0, 0.01, -1, [])
    assert not config.HasField("learning_rate")
    config.learning_rate = 1
    assert config.HasField("learning_rate")
    config.ClearField("learning_rate")
    assert not config.HasField("learning_rate")
    optimization = TrainerConfig_pb2.MESSAGES["OptimizationConfig"]()
    assert optimization.max_average_window == 2**63 - 1


def test_an_inner_message_is_set_by_its_first_field_or_by_hand() -> None:
    link = ModelConfig_pb2.MESSAGES["LayerInputConfig"]()
    assert link.conv_conf.filter_size == 0
    assert not link.HasField("conv_conf")
    link.conv_conf.filter_size = 3
    assert link.HasField("conv_conf")
    link.pool_conf.SetInParent()
    assert link.HasField("pool_conf")


def test_copies_are_independent() -> None:
    model = network()
    other = ModelConfig_pb2.MESSAGES["ModelConfig"]()
    other.CopyFrom(model)
    for again in (other, copy.deepcopy(model)):
        assert again == model
        again.layers[0].inputs[0].input_layer_name = "y"
        again.parameters[0].dims.append(5)
    assert model == network()


def test_a_message_prints_its_set_fields() -> None:
    assert str(parameter(name="w", size=6, dims=[3, 2], is_static=True)) == (
        'name: "w"\nsize: 6\ndims: 3\ndims: 2\nis_static: true\n'
    )


@pytest.mark.parametrize(
    ("mistake", "says"),
    [
        (lambda: setattr(parameter(), "size", "6"), "size: expected type uint64, got '6'"),
        (lambda: setattr(parameter(), "size", -6), "size is -6"),
        (lambda: parameter().dims.append(1.5), "dims: expected type uint64, got 1.5"),
        (lambda: network().layers.append(parameter()), "layers: expected type LayerConfig"),
        (lambda: parameter().CopyFrom(network()), "expected a ParameterConfig"),
        (lambda: parameter().HasField("sizes"), "no field 'sizes'"),
        (lambda: parameter(name="w").SerializeToString(), "size"),
        (lambda: parameter(size=10**5000), "size is a number of 16610 bits"),
        (lambda: parameter(learning_rate=10**400), "learning_rate.*double"),
        (lambda: ModelConfig_pb2.MESSAGES["ROIPoolConfig"](spatial_scale=1e300), "spatial_scale.*float"),
        (lambda: parameter(name="\ud800"), "name.*UTF-8"),
        (lambda: parameter(dims=[3]).dims.__iadd__([1.5]), "dims: expected type uint64, got 1.5"),
        (lambda: parameter().MergeFromString(6), "ParameterConfig.*bytes"),
    ],
)
def test_what_does_not_fit_is_refused(mistake: Callable[[], object], says: str) -> None:
    with pytest.raises(PaddleError, match=says):
        mistake()


def test_unknown_fields_cannot_be_set() -> None:
    with pytest.raises(AttributeError, match="no field 'sizes'"):
        parameter().sizes = 3
    with pytest.raises(AttributeError, match="append"):
        parameter().dims = [3]


def test_a_shallow_copy_is_made_from_bytes_as_a_pickle_is() -> None:
    again = copy.copy(network())
    assert again == network()
    again.layers[0].inputs[0].input_layer_name = "y"
    again.parameters[0].dims.append(5)
    assert again != network()
    dims = copy.copy(network().parameters[0].dims)
    assert dims == [3, 2]
    with pytest.raises(PaddleError, match="dims"):
        dims.append(1.5)


def test_packed_floats_are_read() -> None:
    boxes = ModelConfig_pb2.MESSAGES["PriorBoxConfig"]()
    boxes.MergeFromString(b"\x1a\x08" + struct.pack("<2f", 1.5, 2))
    assert list(boxes.aspect_ratio) == [1.5, 2]


def test_only_a_hundred_messages_may_nest() -> None:
    def nested(depth: int) -> bytes:
        raw = b""
        for _ in range(depth):
            raw = protobuf.bytes_field(24, raw)  # sub_data_configs
        return raw

    data = DataConfig_pb2.MESSAGES["DataConfig"]()
    data.MergeFromString(nested(100))
    assert data.SerializePartialToString() == nested(100)
    with pytest.raises(ModelFileError, match="100"):
        data.MergeFromString(nested(5000))


def test_damaged_bytes_change_nothing() -> None:
    config = parameter(name="w", size=6)
    whole = config.SerializeToString()
    for raw in (whole[:-1], whole[:2], b"\x0f", b"\x08\x01" + whole):
        with pytest.raises(ModelFileError):
            config.ParseFromString(raw)
    assert config == parameter(name="w", size=6)
    with pytest.raises(ConfigError):
        parameter().ParseFromString(b"")
