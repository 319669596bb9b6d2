# SPDX-License-Identifier: Apache-2.0
"""The flags of `paddle.init`, `paddle train` and `paddle pserver`: names, types, defaults.

Each default is defined only in this module. The launcher passes the flags on by their names; `paddle.flags` reads them.
"""

from __future__ import annotations

import contextlib
from types import MappingProxyType
from typing import Dict, Mapping, Optional, Union

from paddle_node.contract.classes import NamedTuple

Value = Union[bool, int, float, str]


class Flag(NamedTuple):
    """A command-line flag; its default also determines its type.

    Attributes:
        default: value if the flag is not set.
        about: one line for `--help`.
        low, high: the smallest and the largest number allowed; None means unbounded.
        ignored: accepted so that old command lines keep working, without any effect.
    """

    default: Value
    about: str = ""
    low: Optional[float] = None
    high: Optional[float] = None
    ignored: bool = False


_TRUE = frozenset({"1", "t", "true", "y", "yes"})
_FALSE = frozenset({"0", "f", "false", "n", "no"})


def parse_bool(text: str) -> bool:
    """Parse a boolean as gflags does: 1, t, true, y or yes, and 0, f, false, n or no, in either case.

    Raises:
        ValueError: the text is not one of them.
    """
    word = text.strip().lower()
    if word in _TRUE:
        return True
    if word in _FALSE:
        return False
    raise ValueError(f"expected one of {sorted(_TRUE)} or {sorted(_FALSE)}, got {text!r}")


def value_of(flag: Flag, value: object) -> Value:
    """Convert a value, written as text or given as a Python value, to a flag's type.

    Raises:
        ValueError: the value is invalid; the message gives the expected type or range, and the value.
    """
    text = str(value).strip() if not isinstance(flag.default, str) else str(value)
    kind = type(flag.default)
    try:
        if kind is int and ("_" in text or not text.isascii()):
            raise ValueError
        found: Value = parse_bool(text) if kind is bool else kind(text)
    except ValueError:
        expected = {bool: "true or false", int: "a whole number", float: "a number"}[kind]
        raise ValueError(f"expected {expected}, got {text!r}") from None
    is_bounded = flag.low is not None and flag.high is not None and not isinstance(found, str)
    # Written so that NaN is outside of every range.
    if is_bounded and not flag.low <= found <= flag.high:  # type: ignore[operator]
        raise ValueError(f"expected {flag.low:.15g} to {flag.high:.15g}, got {text}")
    return found


def _unused(table: str) -> Dict[str, Flag]:
    """Return flags without effect: words like name=default, the default True or False, a number or a word."""
    pairs = (word.partition("=") for word in table.split())
    return {name: Flag(_literal(text), ignored=True) for name, _, text in pairs}


def _literal(text: str) -> Value:
    if text in ("True", "False"):
        return text == "True"
    for kind in (int, float):
        with contextlib.suppress(ValueError):
            return kind(text)
    return text


MAX_PORT = 65535
MAX_RATIO = 1e6
_MAX_TRAINERS = 65535
_MAX_COUNT = (1 << 31) - 1

_PORTS = {
    "port": Flag(7164, "first port of a parameter server", 0, MAX_PORT),
    "ports_num": Flag(1, "ports for dense parameters", 1, 1024),
    "ports_num_for_sparse": Flag(0, "ports for sparse parameters, after the dense ones", 0, 1024),
    "num_gradient_servers": Flag(1, "number of trainers in the job", 1, _MAX_TRAINERS),
    "nics": Flag("", "comma-separated network devices to listen on"),
    "comment": Flag("", "free text, visible in the process list"),
    "async_lagged_ratio_min": Flag(
        1.0, "a discard ratio at or below this is replaced by the default", 0, MAX_RATIO
    ),
    "async_lagged_ratio_default": Flag(1.5, "the default discard ratio", 0, MAX_RATIO),
    "log_period_server": Flag(500, "batches between two statistics lines of a server", 1, _MAX_COUNT),
}
_PORTS_UNUSED = _unused(
    """
    rdma_tcp=tcp pserver_num_threads=1 loadsave_parameters_in_pserver=False small_messages=False
    sock_send_buf_size=41943040 sock_recv_buf_size=41943040 sock_listen_queue_size=1024
    check_sparse_distribution_in_pserver=False show_check_sparse_distribution_log=False
    check_sparse_distribution_batches=100 check_sparse_distribution_ratio=0.6
    check_sparse_distribution_unbalance_degree=2.0
    """
)
_TRAINER = {
    "pservers": Flag("127.0.0.1", "comma-separated addresses of the parameter servers"),
    "trainer_id": Flag(
        0, "rank of this trainer; trainer 0 provides the initial values", 0, _MAX_TRAINERS - 1
    ),
    "use_gpu": Flag(False, "compute on a GPU"),
    "gpu_id": Flag(0, "index of the first GPU to use", 0, _MAX_COUNT),
    "trainer_count": Flag(1, "threads or GPUs inside this trainer", 1, _MAX_COUNT),
    "seed": Flag(1, "seed of all random numbers; 0: use the time", 0, (1 << 32) - 1),
    "log_period": Flag(100, "batches between two lines of a trainer's log; 0: no lines", 0, _MAX_COUNT),
}
_TRAINER_UNUSED = _unused(
    """
    parallel_thread_num=1 average_test_period=0 with_cost=True show_layer_stat=False use_old_updater=False
    thread_local_rand_use_global_seed=False log_clipping=False log_error_clipping=False
    enable_grad_share=104857600 grad_share_block_num=64 enable_parallel_vector=0 parallel_nn=False
    beam_size=1 rnn_use_batch=False prev_batch_state=False diy_beam_search_prob_so=
    allow_only_one_model_on_one_gpu=True cudnn_dir= cuda_dir= warpctc_dir= lapack_dir= nccl_dir=
    cudnn_conv_workspace_limit_in_mb=4096 use_mkldnn=False use_nnpack=False python_path=
    python_bin=python2.7
    """
)
# What `paddle train` does; paddle.init accepts these flags too and ignores them.
_TRAIN = {
    "config": Flag("", "the configuration file"),
    "config_args": Flag("", "name=value,name=value: arguments for get_config_arg in the configuration"),
    "job": Flag("train", "train, test, checkgrad or time"),
    "local": Flag(True, "train in this process alone, without parameter servers"),
    "num_passes": Flag(100, "passes over the training data", 0, _MAX_COUNT),
    "start_pass": Flag(
        0,
        "number of the first pass; above 0, start from the parameters that the previous pass saved",
        0,
        _MAX_COUNT,
    ),
    "save_dir": Flag("", "parent directory of pass directories; empty: ./output/model"),
    "saving_period": Flag(1, "save parameters after every n-th pass; 0: never", 0, _MAX_COUNT),
    "saving_period_by_batches": Flag(
        0, "also save within a pass, after every n-th batch; 0: never", 0, _MAX_COUNT
    ),
    "save_only_one": Flag(False, "delete the directory of the previously saved pass"),
    "init_model_path": Flag("", "directory of the initial parameters, or of those to test"),
    "load_missing_parameter_strategy": Flag(
        "fail", "what to do if a parameter has no file: fail, rand or zero"
    ),
    "dot_period": Flag(1, "print a dot after every n-th batch; 0: never", 0, _MAX_COUNT),
    "test_period": Flag(0, "test after every n-th batch; 0: after each pass", 0, _MAX_COUNT),
    "test_pass": Flag(-1, "job=test: the first saved pass to test; -1: none", -1, _MAX_COUNT),
    "test_wait": Flag(0, "job=test: above 0, wait for directories that do not exist yet", 0, _MAX_COUNT),
    "model_list": Flag("", "job=test: a file that lists directories of parameters, one per line"),
    "predict_output_dir": Flag(
        "", "job=test: directory for the file rank-00000, which holds the outputs' values"
    ),
    "feat_file": Flag("", "job=test: a file to which the outputs' rows are appended as float32"),
    "predict_file": Flag("", "job=test: a file for score, label and query of each row of pnpair_evaluator"),
    "distribute_test": Flag(False, "not supported with several trainers, because their tests are not merged"),
    "show_parameter_stats_period": Flag(
        0, "print statistics of each parameter after every n-th batch; 0: never", 0, _MAX_COUNT
    ),
    "start_pserver": Flag(False, "start a parameter server together with this trainer, for --local=false"),
    "checkgrad_eps": Flag(1e-5, "job=checkgrad: relative change of the cost by a step", 0, 1.0),
    "version": Flag(False, "print the version and exit"),
}
_TRAIN_ONLY = {
    "feed_data": Flag(False, "job=time: read a new batch each time"),
    **_unused("test_all_data_in_one_period=False"),
}
# In the manuals, though no release defined them all.
_DOCUMENTED_ONLY = _unused(
    """
    parameter_block_size=0 parameter_block_size_for_sparse=0 async_count=0 log_barrier_abstract=True
    log_barrier_show_log=False log_barrier_lowest_nodes=5 memory_threshold_on_load_data=1.0
    """
)

_IGNORED_TRAIN = {name: flag._replace(ignored=True) for name, flag in _TRAIN.items()}

INIT_FLAGS: Mapping[str, Flag] = MappingProxyType(
    {**_PORTS, **_PORTS_UNUSED, **_TRAINER, **_TRAINER_UNUSED, **_IGNORED_TRAIN, **_DOCUMENTED_ONLY}
)
"""Flags of paddle.init; each may also come as PADDLE_INIT_<NAME> in the environment."""

TRAIN_FLAGS: Mapping[str, Flag] = MappingProxyType({**INIT_FLAGS, **_TRAIN, **_TRAIN_ONLY})
"""Flags of `paddle train`; each may also come as PADDLE_INIT_<NAME> in the environment."""

PSERVER_FLAGS: Mapping[str, Flag] = MappingProxyType(
    {
        **_PORTS,
        **_PORTS_UNUSED,
        "wire": Flag("", "curve or plain; curve when the job has a key, else plain"),
        "bind": Flag("", "address to listen on, instead of POD_IP and of the devices in --nics"),
        "port_tries": Flag(
            0,
            "number of further base ports to try when a port is in use; 0: fail and name its owner",
            0,
            MAX_PORT,
        ),
        "state_dir": Flag(
            "",
            "directory in memory, such as /dev/shm, where the state is saved for this server's next process",
        ),
        "checkpoint_dir": Flag("", "directory of checkpoints"),
        "checkpoint_period": Flag(0, "batches between two checkpoints; 0: none", 0, _MAX_COUNT),
        "checkpoint_keep": Flag(3, "number of checkpoints to keep", 1, 1000),
        "resume": Flag("", "checkpoint in checkpoint_dir to continue from: latest, auto, or a batch"),
        "barrier_timeout_s": Flag(
            60.0, "seconds to wait at a barrier before naming the missing trainers", 0.001, 1e6
        ),
    }
)
"""Flags of `paddle pserver`."""
