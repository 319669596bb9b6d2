# SPDX-License-Identifier: Apache-2.0
"""Errors of Fluid in addition to the core's, and messages for names of Fluid 1.5 that are not available.

Each error is also a subclass of the exception that users of Fluid expect.
"""

from __future__ import annotations

import dis
import sys
from collections.abc import Callable, Mapping
from types import FrameType, MappingProxyType
from typing import Any

from paddle import errors
from paddle.errors import ConfigError, MissingNameError, PaddleError, did_you_mean


class FluidError(ConfigError):
    """Raised for an invalid argument or an unsupported combination of settings; also a ValueError."""


class FluidTypeError(FluidError, TypeError):
    """Raised for an argument of the wrong type; also a TypeError."""


class RunError(PaddleError, RuntimeError):
    """Raised when an operation is not possible in the current state, for example because the executor is closed."""


class ModelFileError(FluidError, errors.ModelFileError):
    """Raised when a file of a program or of variables is missing, damaged, or does not fit the program."""


ABSENT: Mapping[str, str] = MappingProxyType(
    {
        **dict.fromkeys(
            ("Calibrator", "QuantizationFreezePass", "QuantizationTransformPass", "QuantizeTranspiler"),
            "8-bit integer computation is not supported: save the float32 model with fluid.io.save_inference_model",
        ),
        "Compressor": "pruning, distillation and architecture search are not supported: train the smaller network",
        "multi_download": "call HDFSClient.download for this trainer's share of client.lsr(hdfs_path)",
        "multi_upload": "call HDFSClient.upload for each file",
        "dygraph": "only static programs are supported: use fluid.layers",
        "get_grad_op_desc": "append_backward appends gradient operators to the program",
        "graphviz": "fluid.net_drawer.draw_graph and fluid.debugger.draw_block_graphviz write graphs for dot",
        "mode": "use fluid.communicator.Communicator(program), and sync_mode of transpile",
        **dict.fromkeys(
            ("DownpourSGD", "distributed", "pslib"),
            "use fluid.DistributeTranspiler or fleet.parameter_server.distribute_transpiler, with "
            "is_distributed=True embeddings",
        ),
        "with_inference_optimize": "run the program that load_inference_model returns",
    }
)
"""Name without its module -> what to use instead."""

NEWER: Mapping[str, str] = MappingProxyType(
    {
        **dict.fromkeys(
            ("GeoSgdTranspiler", "geo_sgd_transpiler"), "DistributeTranspiler with sync_mode=False"
        ),
        **dict.fromkeys(("case", "cond", "switch_case"), "layers.IfElse for rows, or layers.Switch"),
        **dict.fromkeys(("gather_nd", "index_select"), "layers.gather, after layers.reshape"),
        **dict.fromkeys(("scatter_nd", "scatter_nd_add"), "layers.scatter, after layers.reshape"),
        **dict.fromkeys(
            ("GRUCell", "LSTMCell", "RNNCell", "rnn"),
            "layers.dynamic_lstm, layers.dynamic_gru, or layers.StaticRNN and layers.DynamicRNN",
        ),
        **dict.fromkeys(
            ("Decoder", "dynamic_decode"), "layers.beam_search in layers.While, or contrib.BeamSearchDecoder"
        ),
        **dict.fromkeys(
            ("LookaheadOptimizer", "RecomputeOptimizer"),
            "the optimizer that it wraps; a smaller batch needs less memory",
        ),
        **dict.fromkeys(("load", "load_program_state", "set_program_state"), "fluid.io.load_persistables"),
        **dict.fromkeys(("load_dygraph", "save_dygraph"), "fluid.io.load_persistables and save_persistables"),
        **dict.fromkeys(("disable_dygraph", "enable_dygraph"), "fluid.layers: programs are always static"),
        "AdamW": "contrib.extend_with_decoupled_weight_decay(fluid.optimizer.Adam)",
        "device_guard": "one place for the whole program: fluid.Executor(place)",
        "hard_swish": "x * layers.relu6(x + 3.0) / 6.0",
        "mse_loss": "layers.mean(layers.square_error_cost(input, label))",
        "require_version": "paddle.__version__",
        "save": "fluid.io.save_persistables",
        "size": "layers.shape, or the shape of the variable",
        "strided_slice": "layers.slice",
        "unbind": "layers.unstack",
        "while_loop": "layers.While, as `with layers.While(condition).block():`",
    }
)
"""Name that Fluid 1.6 or newer added -> what to use instead."""


OF_TENSORS: Mapping[str, str] = MappingProxyType(
    {
        **dict.fromkeys(
            ("asnumpy", "cpu", "cuda", "detach", "eval", "item", "numpy", "tolist"),
            "it has no value while the program is built; fetch it with exe.run(..., fetch_list=[variable])",
        ),
        "backward": "call optimizer.minimize(loss) once, before the startup program is run",
        "grad": "fetch the name of its gradient, fetch_list=[variable.name + '@GRAD']",
        **dict.fromkeys(
            ("flatten", "reshape", "squeeze", "unsqueeze", "view"), "use layers.reshape(variable, shape)"
        ),
        **dict.fromkeys(("mean", "sum"), "use layers.mean or layers.reduce_sum"),
        **dict.fromkeys(("T", "permute", "transpose"), "use layers.transpose(variable, perm)"),
    }
)
"""Attribute of other frameworks' tensors -> what to use for a variable instead."""

OF_OPTIMIZERS: Mapping[str, str] = MappingProxyType(
    {
        **dict.fromkeys(
            ("get_lr", "current_step_lr"), "fetch the variable that _global_learning_rate() returns"
        ),
        **dict.fromkeys(
            ("set_lr", "param_groups"), "pass a schedule as learning_rate, such as layers.piecewise_decay"
        ),
        **dict.fromkeys(
            ("clear_grad", "clear_gradients", "zero_grad"), "gradients are new in each run: omit the call"
        ),
        "step": "each exe.run(program) takes a step after minimize(loss)",
        **dict.fromkeys(("load_state_dict", "set_dict"), "call fluid.io.load_persistables(exe, dirname)"),
        "state_dict": "call fluid.io.save_persistables(exe, dirname)",
    }
)
"""Attribute of other frameworks' optimizers -> what to use instead."""


def no_attribute(owner: object, name: str, instead: Mapping[str, str]) -> AttributeError:
    """Return the error for an attribute that an object does not have, with what to use instead if it is known."""
    hint = f": {instead[name]}" if name in instead else ""
    return AttributeError(
        f"{type(owner).__name__!r} object has no attribute {name!r}{hint}", name=name, obj=owner
    )


def answering(module: str, *also: str, depth: int = 1) -> Callable[[str], Any]:
    """Return a module's `__getattr__`, which searches other modules or raises an error that names a replacement.

    Args:
        module: name of the module, for messages.
        also: modules whose names this module also provides, as in the original.
        depth: number of frames between `__getattr__` and the code that uses the name.
    """

    def find(name: str) -> Any:
        for other in also if not name.startswith("__") else ():
            found = vars(sys.modules[other]) if other in sys.modules else {}
            if name in found:
                return found[name]
        message = _message(module, name)
        caller = sys._getframe(depth)
        code = caller.f_code.co_code
        is_import = 0 <= caller.f_lasti < len(code) and code[caller.f_lasti] == _IMPORT_FROM
        # Python would replace the message of an AttributeError with its own.
        raise ImportError(message) if is_import else MissingNameError(message)

    return find


def reads_attribute(frame: FrameType) -> bool:
    """Return whether a frame's next step reads an attribute of the result of the call that it is waiting for."""
    code, at = frame.f_code.co_code, frame.f_lasti + _STEP
    while at < len(code) and code[at] == _CACHE:
        at += _STEP
    return at < len(code) and code[at] in _READS


def compares(frame: FrameType) -> bool:
    """Return whether a frame's step is a comparison such as `==`, which `in` and calls of `list.index` are not."""
    return frame.f_lasti >= 0 and frame.f_code.co_code[frame.f_lasti] == _COMPARE


def tests(frame: FrameType) -> bool:
    """Return whether a frame's step tests a truth value itself, and does not compare lists, for example."""
    is_fused = sys.version_info >= (3, 13) and frame.f_code.co_code[frame.f_lasti + 1] & _FUSED
    return bool(is_fused) or not compares(frame)


_STEP = 2  # bytes of an instruction
_CACHE = dis.opmap["CACHE"]
_READS = {dis.opmap.get(name) for name in ("LOAD_ATTR", "LOAD_METHOD")}
_COMPARE = dis.opmap["COMPARE_OP"]
_FUSED = 16  # of a comparison's argument: it also tests its result
_IMPORT_FROM = dis.opmap["IMPORT_FROM"]


def _message(module: str, name: str) -> str:
    if name in ABSENT:
        return f"{module}.{name} of Fluid 1.5 is not available; {ABSENT[name]}"
    if name in NEWER:
        return f"{module}.{name} of Fluid 1.6 and newer is not available; use {NEWER[name]}"
    known = [each for each in dir(sys.modules[module]) if not each.startswith("_")]
    # Python itself asks each module for names such as __path__ at every import.
    hint = "" if name.startswith("__") else did_you_mean(name, [*known, *ABSENT])
    return f"module {module!r} has no attribute {name!r}{hint}"


def untestable(name: str, statement: str) -> str:
    """Return the message for a statement of Python that tests a variable of a program."""
    loops = statement.lstrip().startswith("while")
    word, layers = ("while", "layers.While") if loops else ("if", "layers.Switch or IfElse")
    return (
        f"`{word}` cannot test {name!r}: {OF_TENSORS['numpy']}; in the program, use {layers} (to test whether it is "
        "given: `is not None`)"
    )
