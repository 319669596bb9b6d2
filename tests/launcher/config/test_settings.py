# SPDX-License-Identifier: Apache-2.0
"""conf.py < environment < command line."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path

import pytest

from paddle_cluster.config.arguments import parse
from paddle_cluster.config.options import Wire
from paddle_cluster.config.resolve import resolve
from paddle_cluster.config.values import home
from paddle_cluster.errors import ConfError
from paddle_cluster.system.installation import CONF_FILE
from tests.launcher.configuring import HOSTS, Resolve
from tests.launcher.planning import JOB, THREE, Planned


def test_defaults_are_the_originals(configured: Resolve) -> None:
    got = configured(HOSTS)
    assert [host.text for host in got.cluster.hosts] == ["root@a", "b:2222", "c"]
    assert (
        got.cluster.port,
        got.cluster.ports_num,
        got.cluster.ports_num_for_sparse,
        got.cluster.use_gpu,
    ) == (7164, 1, 1, False)
    assert not got.cluster.port_is_explicit
    assert (got.cluster.pservers, got.cluster.trainers) == ((0, 1, 2), (0, 1, 2))
    assert got.cluster.wire is Wire.CURVE
    assert got.limits.lease_s == 30.0


def test_the_repository_has_three_embedded_nodes() -> None:
    got = resolve(parse(["-p", "ws"]), {})
    assert [host.is_local for host in got.cluster.hosts] == [True, True, True]
    assert got.conf == CONF_FILE


def test_another_conf_py_is_named_unless_the_command_line_names_the_hosts(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "proj/ws").mkdir(parents=True)
    (tmp_path / "proj/ws/conf.py").write_text("extensions = []\n")  # of Sphinx

    def warnings(*argv: str, **environ: str) -> list[str]:
        found = resolve(parse(["-p", "proj/ws", *argv]), environ).sources.remarks
        return [line for line in found if "not used" in line]

    assert not warnings()
    conf = tmp_path / "proj/conf.py"
    conf.write_text("# mine\nHOSTS = ['local']\n")
    assert warnings() == ["WARNING: proj/conf.py is not used: to use its HOSTS, give --conf=proj/conf.py"]
    assert not warnings("--conf=proj/conf.py")
    assert not warnings("--hosts=local")
    assert not warnings(PADDLE_CLUSTER_CONF=str(conf))
    monkeypatch.chdir(CONF_FILE.parent)
    assert not [line for line in resolve(parse(["-p", "ws"]), {}).sources.remarks if "not used" in line]
    conf.rename(tmp_path / "proj/ws/conf.py")
    monkeypatch.chdir(tmp_path / "proj/ws")
    assert len([line for line in resolve(parse(["-p", "."]), {}).sources.remarks if "not used" in line]) == 1


def test_gpus_chosen_in_the_shell_are_named_where_processes_do_not_see_the_choice(
    configured: Resolve,
) -> None:
    def remarks(text: str, *argv: str) -> list[str]:
        found = configured(text, "-p", "ws", *argv, CUDA_VISIBLE_DEVICES="1").sources.remarks
        return [line for line in found if "CUDA" in line]

    (line,) = remarks("HOSTS = ['local']")
    assert "give --env=CUDA_VISIBLE_DEVICES" in line
    assert not remarks("HOSTS = ['local']", "--env=CUDA_VISIBLE_DEVICES")
    assert not remarks("HOSTS = ['a', 'b']")


def test_a_launcher_that_srun_or_mpirun_starts_several_times_warns(configured: Resolve) -> None:
    def warnings(**environ: str) -> list[str]:
        found = configured("HOSTS = ['a', 'b']", "-p", "ws", **environ).sources.remarks
        return [line for line in found if "launcher" in line]

    (line,) = warnings(SLURM_PROCID="2", SLURM_STEP_NUM_TASKS="3")
    assert "srun started 3 tasks, of which this launcher is number 2" in line
    (line,) = warnings(PMIX_RANK="0", OMPI_COMM_WORLD_SIZE="2", SLURM_PROCID="0", SLURM_STEP_NUM_TASKS="1")
    assert "run it without mpirun" in line
    assert not warnings(SLURM_PROCID="0", SLURM_NTASKS="3")  # a batch script
    assert not warnings(OMPI_COMM_WORLD_RANK="1", OMPI_COMM_WORLD_SIZE="2")  # a trainer of a job


def test_a_host_has_a_python_a_folder_a_key_and_variables_of_its_own(
    planned: Planned, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    key = tmp_path / "other"
    key.touch()
    Path("ws").mkdir()
    Path("ws/.env").write_text("DATA=everywhere\n")
    text = (
        THREE
        + f"""ROOT_DIR = "/jobs"
HOST_SETTINGS = {{
    "a": {{"python": "/opt/bin/python", "env": {{"DATA": "/here", "MODE": "own"}}}},
    1: {{"root_dir": "/scratch", "key": "{key}"}},
}}
"""
    )
    plan = planned(text, "--env=MODE=mine")
    assert [node.python for node in plan.nodes] == ["/opt/bin/python", "python3", "python3"]
    assert [node.job_dir for node in plan.nodes] == [f"/jobs/{JOB}", f"/scratch/{JOB}", f"/jobs/{JOB}"]
    own, other = (plan.settings.variables_of(node_id).revealed("") for node_id in (0, 2))
    assert own == {"DATA": "/here", "MODE": "mine"}, "what --env gives comes last"
    assert other == {"DATA": "everywhere", "MODE": "mine"}
    assert plan.settings.ssh.host_keys == (("b:2222", key),)
    assert "/here" not in repr(plan.settings)
    elsewhere = planned(text.replace("1: {", "'b': {"), "--hosts=c,a").settings
    assert {at: own.python for at, own in elsewhere.cluster.own.items()} == {1: "/opt/bin/python"}


def test_conf_may_compute_its_values(configured: Resolve) -> None:
    text = """
import os
base = "10.1.9."
HOSTS = [f"root@{base}{i}" for i in range(1, 4)] + ["extra"]
HOSTS += ["last"]
ROOT_DIR = os.path.join("/data", "jobs") + "/"
"""
    got = configured(text)
    assert [host.text for host in got.cluster.hosts] == [
        "root@10.1.9.1",
        "root@10.1.9.2",
        "root@10.1.9.3",
        "extra",
        "last",
    ]
    assert got.cluster.root_dir == "/data/jobs"


def test_the_environment_overrides_conf_and_the_command_line_both(configured: Resolve) -> None:
    text = HOSTS + "PADDLE_PORT = 7000\nPADDLE_NIC = 'eth0'\nPADDLE_USE_GPU = 'False'\nPADDLE_PORTS_NUM = 2"
    environ = {"PADDLE_PORT": "8000", "PADDLE_NIC": "eth1", "PADDLE_USE_GPU": "yes"}
    got = configured(text, "-p", "ws", "--port=9000", **environ)
    assert (got.cluster.port, got.cluster.nic, got.cluster.use_gpu, got.cluster.ports_num) == (
        9000,
        "eth1",
        True,
        2,
    )
    assert got.cluster.port_is_explicit
    assert got.job.passthrough == ("--port=9000",)
    assert not configured(text, **environ).cluster.port_is_explicit


def test_other_variables_of_the_environment_change_nothing(configured: Resolve) -> None:
    environ = {"ROOT_DIR": "/x", "LD_LIBRARY_PATH": "/y", "HOSTS": "z", "WIRE": "plain", "LEASE_S": "3"}
    assert configured(HOSTS, **environ) == configured(HOSTS)


def test_a_conf_file_may_be_named_by_the_environment(tmp_path: Path) -> None:
    conf = tmp_path / "mine.py"
    conf.write_text("HOSTS = ['m']")
    assert resolve(parse(["-p", "ws"]), {"PADDLE_CLUSTER_CONF": str(conf)}).cluster.hosts[0].name == "m"


def test_thread_variables_of_the_user_are_kept(configured: Resolve) -> None:
    assert configured(HOSTS, OMP_NUM_THREADS="3").job.threads == (("OMP_NUM_THREADS", "3"),)


def test_where_data_sets_lie_holds_for_local_nodes_unless_the_user_says_otherwise(
    configured: Resolve,
) -> None:
    def found(hosts: str, *argv: str) -> str | None:
        got = configured(hosts, "-p", "ws", *argv, PADDLE_DATA_HOME="data")
        return got.job.variables.revealed("").get("PADDLE_DATA_HOME")

    assert found("HOSTS = ['local']") == os.path.abspath("data")
    assert found("HOSTS = ['local']", "--env=PADDLE_DATA_HOME=/d") == "/d"
    assert found(HOSTS) is None
    assert found(HOSTS, "--env=PADDLE_DATA_HOME") == "data"


def test_a_missing_conf_is_an_error_and_never_a_local_run(tmp_path: Path) -> None:
    with pytest.raises(ConfError, match=r"no such file.*--conf=FILE"):
        resolve(parse(["-p", "ws", f"--conf={tmp_path}/none.py"]), {})


def test_a_directory_is_no_conf(tmp_path: Path) -> None:
    with pytest.raises(ConfError, match="cannot be read"):
        resolve(parse(["-p", "ws", f"--conf={tmp_path}"]), {})


def test_roles_by_text_and_index_keep_the_order_of_hosts(configured: Resolve) -> None:
    got = configured(HOSTS + "PSERVERS = [2, 'root@a']\nTRAINERS = ('c', 1)")
    assert (got.cluster.pservers, got.cluster.trainers) == ((0, 2), (1, 2))


def test_hosts_of_the_command_line_take_the_place_of_confs_and_are_read_alike(configured: Resolve) -> None:
    for conf in (HOSTS, "ROOT_DIR = '/r'"):
        got = configured(conf, "-p", "ws", "--hosts=root@x,y:2222,[fd00::7]:22")
        wanted = [("root", "x", None), (None, "y", 2222), (None, "fd00::7", 22)]
        assert [(host.user, host.name, host.port) for host in got.cluster.hosts] == wanted
        assert got.cluster.pservers == got.cluster.trainers == (0, 1, 2)


@pytest.mark.parametrize(
    ("conf", "hosts", "words"),
    [
        (HOSTS, "x,y:0", "--hosts: the string 'y:0' is not a host: '0' is not a valid port"),
        (HOSTS, "x,", "--hosts: the string '' is not a host: a host must not be empty"),
        (HOSTS, "x,x", "--hosts: 'x' is listed 2 times"),
        (HOSTS, "x,local", "--hosts: 'local' and other machines cannot be mixed"),
        (HOSTS + "TRAINERS = [1]", "x,y", ":2: TRAINERS names entries of this file's HOSTS"),
    ],
)
def test_wrong_hosts_of_the_command_line_are_refused(
    problems: Callable[..., list[str]], conf: str, hosts: str, words: str
) -> None:
    (line,) = problems(conf, "-p", "ws", f"--hosts={hosts}")
    assert words in line


def test_collective_mode_has_no_pservers(configured: Resolve) -> None:
    assert configured(HOSTS, "-p", "ws", "--mode=collective").cluster.pservers == ()


def test_local_nodes_cannot_share_one_workspace(
    configured: Resolve, problems: Callable[..., list[str]]
) -> None:
    (line,) = problems("HOSTS = ['local', 'local']", "-j", "/data/ws")
    assert "--job_workspace=JOB" in line
    assert configured("HOSTS = ['local', 'local']", "-j", "JOB1").job.workspace == "JOB1"
    assert configured("HOSTS = ['local']", "-j", "/data/ws").job.workspace == "/data/ws"


def test_files_of_this_machine_may_lie_below_home(
    configured: Resolve, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HOME", str(tmp_path))
    (tmp_path / "id").touch()
    got = configured(HOSTS + "SSH_IDENTITY_FILES = ['~/id']")
    assert got.ssh.identity_files == (tmp_path / "id",)
    assert got.ssh.known_hosts == home() / ".ssh/known_hosts"  # as for ssh, which ignores HOME


def test_more_trainers_than_there_are_cannot_be_the_least(
    configured: Resolve, problems: Callable[..., list[str]]
) -> None:
    arguments = ("-p", "ws", "--nproc_per_node=2")
    assert configured(HOSTS, *arguments, "--min_trainers=6").job.min_trainers == 6
    assert problems(HOSTS, *arguments, "--min_trainers=7") == [
        "--min_trainers: expected at most 6, the number of trainers, got 7"
    ]
