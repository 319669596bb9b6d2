# SPDX-License-Identifier: Apache-2.0
"""`paddle.init`: what beats what, which servers a trainer looks for, and what does not fit them."""

from __future__ import annotations

import os

import pytest

from paddle.env import JobEnvironment
from paddle.errors import ConfigError, FlagError
from paddle.v2.settings import resolve
from tests.nursery import Forked, output_of
from tests.runtime.pserver.pserver_process import ROOT, PserverProcess

LAUNCHED = {
    "PADDLE_INIT_TRAINER_ID": "1",
    "PADDLE_INIT_NUM_GRADIENT_SERVERS": "3",
    "PADDLE_INIT_PORT": "7164",
    "PADDLE_INIT_PORTS_NUM": "2",
    "PADDLE_INIT_PORTS_NUM_FOR_SPARSE": "1",
    "PADDLE_INIT_PSERVERS": "10.0.0.1,10.0.0.2",
    "PADDLE_PSERVERS_IP_PORT_LIST": "10.0.0.1:40001,10.0.0.1:40002,10.0.0.2:40003,10.0.0.2:40004",
    "PADDLE_PSERVERS_SPARSE_IP_PORT_LIST": "10.0.0.1:50001,10.0.0.2:50002",
}
SCRIPT = """
import sys
import numpy as np
import paddle.v2 as paddle
port, ports, sparse, trainers = map(int, sys.argv[1:])
paddle.init(
    pservers="127.0.0.1", port=port, ports_num=ports, ports_num_for_sparse=sparse, num_gradient_servers=trainers
)
x = paddle.layer.data(name="x", type=paddle.data_type.dense_vector(2))
y = paddle.layer.data(name="y", type=paddle.data_type.dense_vector(1))
cost = paddle.layer.square_error_cost(input=paddle.layer.fc(input=x, size=1), label=y)
trainer = paddle.trainer.SGD(
    cost=cost,
    parameters=paddle.parameters.create(cost),
    update_equation=paddle.optimizer.Momentum(momentum=0),
    is_local=False,
)
trainer.train(reader=paddle.batch(lambda: iter([(np.ones(2), [1.0])] * 4), 2), num_passes=1)
print("trained")
"""
LIMIT_S = 40.0  # a trainer that waits in vain takes a minute


def settings(environ: dict[str, str], **arguments: object):  # type: ignore[no-untyped-def]
    return resolve(arguments, JobEnvironment.read(environ))


def test_arguments_beat_the_environment_and_that_beats_defaults() -> None:
    found = settings({"PADDLE_INIT_TRAINER_ID": "2", "PADDLE_INIT_NUM_GRADIENT_SERVERS": "4"}, trainer_id=3)
    assert (found.trainer_id, found.num_trainers, found.seed, found.log_period) == (3, 4, 1, 100)


def test_a_launched_trainer_uses_the_ports_that_the_servers_really_have() -> None:
    found = settings(LAUNCHED)
    assert found.endpoints[2] == "10.0.0.2:40003"
    assert found.sparse_endpoints == ("10.0.0.1:50001", "10.0.0.2:50002")
    assert settings(LAUNCHED, port=7164, seed=5).endpoints == found.endpoints


def test_explicit_servers_beat_the_published_ones() -> None:
    found = settings(LAUNCHED, pservers="10.9.9.9", port=9000)
    assert found.endpoints == ("10.9.9.9:9000", "10.9.9.9:9001")
    assert found.sparse_endpoints == ("10.9.9.9:9002",)


IN_A_JOB = {**LAUNCHED, "PADDLE_JOB_ID": "JOB20260101000000-abcdef"}


def test_arguments_that_contradict_the_launchers_job_are_all_named_in_one_error() -> None:
    with pytest.raises(ConfigError) as caught:
        settings(
            IN_A_JOB, pservers="127.0.0.1", num_gradient_servers="1", trainer_id=0, port=7164, ports_num=2
        )
    said = str(caught.value)
    assert f"paddle.init at {__file__}:" in said
    for each in (
        "leave out num_gradient_servers=, trainer_id=, pservers=,",
        "its num_gradient_servers is 3, not 1, trainer_id is 1, not 0, pservers is 10.0.0.1, 10.0.0.2, not 127.0.0.1.",
        "PADDLE_INIT_TRAINER_ID",
    ):
        assert each in said
    assert "ports_num" not in said


@pytest.mark.parametrize(
    "given",
    [{"pservers": "10.9.9.9"}, {"port": 9000}, {"ports_num_for_sparse": 3}, {"num_gradient_servers": 1}],
)
def test_no_trainer_of_a_job_uses_other_servers_or_numbers_of_trainers(given: dict[str, object]) -> None:
    with pytest.raises(ConfigError, match=r"leave out .* which the job sets"):
        settings(IN_A_JOB, **given)


def test_the_defaults_of_init_do_not_replace_the_servers_of_a_job() -> None:
    with pytest.warns(UserWarning, match=r"leave out ports_num=, .*pservers=.* job's values are used"):
        found = settings(IN_A_JOB, pservers="127.0.0.1", port=7164, ports_num=1, ports_num_for_sparse=0)
    assert found == settings(IN_A_JOB)


@pytest.mark.filterwarnings("error")
def test_arguments_that_agree_with_the_job_are_accepted() -> None:
    same = {"pservers": "10.0.0.1, 10.0.0.2", "port": "7164", "num_gradient_servers": 3, "trainer_id": 1}
    assert settings(IN_A_JOB, **same) == settings(IN_A_JOB)


def test_a_job_without_servers_can_use_those_of_its_user() -> None:
    alone = {name: IN_A_JOB[name] for name in ("PADDLE_JOB_ID", "PADDLE_INIT_NUM_GRADIENT_SERVERS")}
    found = settings(alone, pservers="10.9.9.9", num_gradient_servers=1)
    assert (found.endpoints, found.num_trainers) == (("10.9.9.9:7164",), 1)


def test_endpoints_are_hosts_times_ports_and_sparse_ports_follow() -> None:
    found = settings({}, pservers="10.0.0.1, fe80::1", port=7164, ports_num=2, ports_num_for_sparse=1)
    assert found.endpoints == ("10.0.0.1:7164", "10.0.0.1:7165", "[fe80::1]:7164", "[fe80::1]:7165")
    assert found.sparse_endpoints == ("10.0.0.1:7166", "[fe80::1]:7166")


@pytest.mark.parametrize(
    ("pservers", "why"),
    [
        (
            "10.0.0.1:7164",
            "write 10.0.0.1 here, and give the port 7164 as port=",
        ),
        ("10.0.0.2, 10.0.0.1:7165", "'10.0.0.1:7165'.* the port 7165 as port="),
        ("[fe80::1]:7164", "without a port"),
        ("10.0.0.300", "not an IPv4 address"),
        ("http://ps", "without http://"),
        ("my ps", "not a valid host name"),
    ],
)
def test_what_is_no_address_of_a_server_is_told_by_init(pservers: str, why: str) -> None:
    with pytest.raises(ConfigError, match=rf"flag --pservers: .*{why}"):
        settings({}, pservers=pservers)
    with pytest.raises(ConfigError, match=rf"flag --pservers: .*{why}"):
        settings({"PADDLE_INIT_PSERVERS": pservers})


def test_what_the_environment_names_as_a_server_and_is_none_is_told_by_init() -> None:
    with pytest.raises(
        ConfigError, match=r"PADDLE_PSERVERS_IP_PORT_LIST: endpoint '10\.0\.0\.1': .*the port is missing"
    ):
        settings({**LAUNCHED, "PADDLE_PSERVERS_IP_PORT_LIST": "10.0.0.1"})


def test_how_many_ports_servers_must_have_is_known_unless_the_launcher_says_where_they_are() -> None:
    assert settings({}, ports_num=2, ports_num_for_sparse=1).ports == (2, 1)
    assert settings(LAUNCHED).ports is None
    assert settings({**LAUNCHED, "PADDLE_INIT_PSERVERS": "127.0.0.1,127.0.0.1"}).ports is None


def test_false_as_text_is_false() -> None:
    assert settings({"PADDLE_INIT_USE_GPU": "False"}).device == "cpu"
    assert settings({}, use_gpu="True", gpu_id=2).device == "gpu:2"


def test_unknown_names_are_errors_with_the_nearest_one() -> None:
    with pytest.raises(FlagError, match="did you mean 'trainer_count'"):
        settings({}, trainer_cout=1)
    with pytest.raises(FlagError, match="PADDLE_INIT"):
        settings({"PADDLE_INIT_PORT_NUM": "1"})


def test_contradictions_are_refused() -> None:
    with pytest.raises(ValueError, match=r"trainer_id: .* 0 to 2 .*, got 3"):
        settings({}, trainer_id=3, num_gradient_servers=3)
    with pytest.raises(ValueError, match=r"trainer_id: .* got 1 from PADDLE_INIT_TRAINER_ID"):
        settings({"PADDLE_INIT_TRAINER_ID": "1"}, num_gradient_servers=1)
    with pytest.raises(ValueError, match="parallel_nn"):
        settings({}, parallel_nn=True)
    with pytest.raises(ValueError, match="trainer_count"):
        settings({}, trainer_count=0)


def test_seed_zero_takes_the_time() -> None:
    assert settings({}, seed=0).seed > 1_000_000


@pytest.mark.parametrize(("value", "warns"), [("true", True), (False, False)])
def test_a_flag_without_effect_on_which_results_depend_gets_a_warning(
    value: object, warns: bool, caplog: pytest.LogCaptureFixture
) -> None:
    settings({}, prev_batch_state=value, rnn_use_batch=True)
    assert [line for line in caplog.messages if "no effect" in line] == (
        ["flag prev_batch_state=True has no effect: recurrent layers start every batch with zeros"]
        if warns
        else []
    )


def trained(*numbers: int) -> tuple[int, str, str]:
    """Exit code, stdout and stderr of the script."""
    env = {"PATH": os.environ["PATH"], "PYTHONPATH": str(ROOT / "runtime"), "OPENBLAS_NUM_THREADS": "1"}
    script = Forked("v2", ["-c", SCRIPT, *map(str, numbers)], env, None, apart=True)
    try:
        said, complained = script.communicate(LIMIT_S)
    finally:
        script.kill()
    return script.wait(), said, complained


@pytest.mark.timeout(300)
def test_other_numbers_of_ports_or_trainers_than_the_servers_end_a_script_before_the_deadline() -> None:
    with PserverProcess("--port=0", "--ports_num_for_sparse=1", key=None) as server:
        port = int(server.endpoints[0].rpartition(":")[2])
        theirs = "was started with ports_num=1 and ports_num_for_sparse=1, but this process has"
        for ports, sparse in ((2, 1), (1, 0)):
            code, _, said = trained(port, ports, sparse, 1)
            assert code == 1
            assert f"{theirs} ports_num={ports} and ports_num_for_sparse={sparse}:" in said
        code, _, said = trained(port, 1, 0, 2)
        assert code == 1
        assert "this pserver has --num_gradient_servers=1, but trainer 0 has 2" in said


def test_the_same_script_trains_where_all_numbers_fit() -> None:
    with PserverProcess("--port=0", key=None) as server:
        code, out, said = trained(int(server.endpoints[0].rpartition(":")[2]), 1, 0, 1)
    assert (code, out) == (0, "trained\n"), said


def test_init_after_the_defaults_were_used_is_warned_of() -> None:
    code = "import paddle.v2 as p\nfrom paddle.v2 import settings\n{}settings.current()\np.init({})\n"
    for before, arguments, is_late in (
        ("", "trainer_count=2", True),
        ("", "", False),
        ("p.init()\n", "seed=3", False),
    ):
        env = {"PYTHONPATH": str(ROOT / "runtime")}
        _, said = output_of("v2", ["-c", code.format(before, arguments)], env, None, LIMIT_S)
        assert ("<string>:4: UserWarning: paddle.init was called after" in said) == is_late, said
