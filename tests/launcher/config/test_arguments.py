# SPDX-License-Identifier: Apache-2.0
"""The command line: our options are taken out strictly, everything else stays as it is."""

from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from paddle_cluster.config.arguments import Flag, parse
from paddle_cluster.config.entry import Entry
from paddle_cluster.config.options import OPTIONS, Mode, Wire
from paddle_cluster.errors import UsageError
from paddle_node.contract.flags import INIT_FLAGS, PSERVER_FLAGS

PACKAGE = "--job_dispatch_package=ws"


def refused(*argv: str) -> str:
    with pytest.raises(UsageError) as caught:
        parse(argv)
    return str(caught.value)


def test_every_option_of_ours_is_read() -> None:
    given_line = (
        "-p ws --conf=c.py --hosts=a,u@b:22 --dry_run --entry=a.py --mode=fluid --shard_dirs=x,y --wire=plain"
        " --keep_as=r1 --collect=*.pt,b"
    )
    given = parse([*given_line.split(), "--accept_new_host_keys", "--allow_mismatch"])
    assert (dict(given.given), given.passthrough, given.flags) == (
        {
            "job_dispatch_package": Path("ws"),
            "conf": Path("c.py"),
            "hosts": ("a", "u@b:22"),
            "entry": Entry("a.py"),
            "mode": Mode.FLUID,
            "wire": Wire.PLAIN,
            "shard_dirs": ("x", "y"),
            "keep_as": "r1",
            "collect": ("*.pt", "b"),
            "dry_run": True,
            "accept_new_host_keys": True,
            "allow_mismatch": True,
        },
        (),
        (),
    )
    assert (given["min_trainers"], given["max_restarts"], given["engine"], given["detach"]) == (
        None,
        0,
        "ssh",
        False,
    )


def test_a_variable_may_be_empty() -> None:
    given = parse([PACKAGE, "--env=A=", "data.txt", "--env", "B=", "--sep="])
    assert (given["env"], given.passthrough) == (("A=", "B="), ("data.txt", "--sep="))


def test_an_option_of_the_script_takes_an_operator() -> None:
    assert parse([PACKAGE, "--operator", "==", "3"]).passthrough == ("--operator", "==", "3")


def test_options_that_repeat_keep_their_order_and_bytes() -> None:
    first, last = "--env=A=1 --env B --env_file=x", "--env_file y --nproc_per_node=4"
    arguments = parse([PACKAGE, *first.split(), "--env=A= 2=\udcff", *last.split()])
    assert arguments["env"] == ("A=1", "B", "A= 2=\udcff")
    assert arguments["env_file"] == (Path("x"), Path("y"))
    assert arguments["nproc_per_node"] == 4
    assert arguments.passthrough == ()


@pytest.mark.parametrize("value", ["0", "-1", "1.5", "two", "100001", "١"])
def test_a_count_that_is_none_is_refused(value: str) -> None:
    assert "--nproc_per_node: expected a whole number from 1 to" in refused(
        PACKAGE, f"--nproc_per_node={value}"
    )


@pytest.mark.parametrize(
    "argv",
    [["-j", "ws"], ["--job_workspace", "ws"], ["--job_workspace=ws"], ["--job_workspace=ws", "--dry_run"]],
)
def test_the_workspace_may_be_given_in_each_form(argv: list[str]) -> None:
    assert parse(argv)["job_workspace"] == "ws"
    assert parse(argv).passthrough == ()


def test_both_job_options_are_refused() -> None:
    assert "--job_workspace" in refused(PACKAGE, "--job_workspace=x")


@pytest.mark.parametrize("argv", [[], ["--dry_run"], ["ws"], ["--", PACKAGE]])
def test_no_job_option_is_refused_with_both_to_choose_from(argv: list[str]) -> None:
    message = refused(*argv)
    assert "--job_dispatch_package=DIR" in message
    assert "--job_workspace=DIR" in message


@pytest.mark.parametrize(
    ("argv", "words"),
    [
        (["--job_dispatch_package"], "needs a value"),
        (["--job_dispatch_package="], "--job_dispatch_package is empty"),
        (["-p"], "needs a value"),
        ([PACKAGE, "--HOSTS=a"], "write it in lower case: --hosts"),
        ([PACKAGE, "-hosts=a,b"], "write two hyphens: --hosts=a,b"),
        ([PACKAGE, "--env", "=", "A=1"], "write no spaces around =: --env=NAME"),
        ([PACKAGE, "--hosts", "=", "a,b"], "write no spaces around =: --hosts=a,b"),
        ([PACKAGE, "--hosts", "=a", "--dry_run"], "write no spaces around =: --hosts=a"),
        ([PACKAGE, "--hosts=", "a,b"], "write no spaces around =: --hosts=a,b"),
        ([PACKAGE, "--lr", "=", "0.1"], "--lr: write no spaces around =: --lr=0.1 (To pass"),
        ([PACKAGE, "--dry_run", "=", "true"], "--dry_run takes no value; omit '=true'"),
        (["--dir", "ws"], "unknown option --dir: to send a directory to the nodes, give -p ws"),
        (["-f", "job.yaml"], "unknown option -f: options, not a file, describe a job"),
        (["--p=ws"], "unknown option --p: to send a directory to the nodes, give -p ws"),
        ([PACKAGE, "--nodes=2"], "give --nnodes=2"),
        ([PACKAGE, "--env=A=1", "B=2"], "repeat the option for each variable: --env=B=2"),
        ([PACKAGE, "--conf", "--dry_run"], "needs a value"),
        ([PACKAGE, "-p", "other"], "twice"),
        ([PACKAGE, "--dry_run", "--dry_run"], "twice"),
        ([PACKAGE, "--dry_run=yes"], "takes no value"),
        ([PACKAGE, "--json", "false"], "takes no value, got 'false'"),
        ([PACKAGE, "--mode=v2", "--mode=train"], "put it after --"),
        ([PACKAGE, "--mode=v3"], "v2, fluid, collective, v1"),
        ([PACKAGE, "--wire=tls"], "curve, plain"),
        ([PACKAGE, "--engine=k8s"], "did you mean --engine=kubernetes?"),
        ([PACKAGE, "--engine=mpirun"], "did you mean --engine=openmpi?"),
        (["--job_workspace=x", "--shard_dirs=d"], "needs --job_dispatch_package"),
        ([PACKAGE, "--mode=collective", "--min_trainers=1", "--shard_dirs=d"], "--shard_dirs"),
        (["-p=ws"], "write -p DIR"),
        (["-pws"], "write -p DIR"),
        ([PACKAGE, "-port=1"], "write -p DIR"),
        ([PACKAGE, "--nproc_per_node=gpu"], "give the number of GPUs of a node"),
        ([PACKAGE, "--nnodes=1:4"], "give --nnodes=4, and its fewest trainers as --min_trainers=N"),
        ([PACKAGE, "--engine=slurm", "--partition=x"], "SLURM_OPTIONS = ['--partition=gpu'"),
        ([PACKAGE, "--cpus-per-task=4", "--engine", "slurm"], "SLURM_OPTIONS = ['--partition=gpu'"),
        ([PACKAGE, "--engine=slurm", "--nodes=2"], "give --nnodes=2"),
        ([PACKAGE, "--mode=ps"], "did you mean --mode=v2?"),
        ([PACKAGE, "--mode=mpi"], "did you mean --mode=collective?"),
        ([PACKAGE, "--mode=V2"], "did you mean --mode=v2?"),
        ([PACKAGE, "--wire=none"], "did you mean --wire=plain?"),
        ([PACKAGE, "--engine=local"], "give --hosts=local"),
        ([PACKAGE, "--engine=docker"], "start sshd in them and list them in HOSTS"),
        ([PACKAGE, "--engine=ray"], "omit --engine to log in to the machines over SSH"),
        ([PACKAGE, "--entry=-m", "pkg"], "without a space: --entry=-mpackage.module"),
        ([PACKAGE, "--keep_as=/data/x"], "a name, below ROOT_DIR"),
        ([PACKAGE, "--num-nodes=2"], "give --nnodes=2"),
        ([PACKAGE, "--rdzv-backend=c10d"], "the launcher sets RANK"),
        ([PACKAGE, "--min_nodes=1"], "give --min_trainers=N"),
        ([PACKAGE, "-x", "LD_LIBRARY_PATH"], "give --env=NAME"),
        ([PACKAGE, "--bind-to=core"], "OMPI_MCA_"),
        ([PACKAGE, "--become"], "user@host in HOSTS"),
        ([PACKAGE, "--gres=gpu:4"], "give --engine=slurm, and SLURM_OPTIONS"),
        ([PACKAGE, "--hosts", "a", "b"], "no spaces: --hosts=a,b"),
        ([PACKAGE, "-np", "4", "-H", "a:2,b:2"], "give --nproc_per_node=2, the number of processes per node"),
        ([PACKAGE, "-np", "3", "--hosts=a,b"], "give --nproc_per_node=N, the number"),
        ([PACKAGE, "--engine=slurm", "--nnodes=2", "-n", "8"], "give --nproc_per_node=4, the number"),
        ([PACKAGE, "--env=A=1,B=2"], "give --env=A=VALUE --env=B=VALUE. If"),
        ([PACKAGE, "--env", "a=x B_1=2"], "export a and give --env=a, or write it into an --env_file"),
        ([PACKAGE, "-hosts={a}", "-x={b}"], "write two hyphens: --hosts={a}"),
        ([PACKAGE, "--hosts=a", "b"], "no spaces: --hosts=a,b (To pass it"),
        ([PACKAGE, "--dry_run", "other.py"], "give --entry=other.py"),
    ],
)
def test_a_wrong_option_is_refused_with_the_fix(argv: list[str], words: str) -> None:
    assert words in refused(*argv)


def test_a_program_may_set_a_variable_to_any_value() -> None:
    assert parse(["--json", PACKAGE, "--env=A=1,B=2"])["env"] == ("A=1,B=2",)


@pytest.mark.parametrize("argv", [["--include=a,", "b", "c"], ["--include=a", ",b"]])
def test_the_rest_of_a_list_is_not_taken_for_an_argument_of_the_script(argv: list[str]) -> None:
    assert refused(PACKAGE, *argv).endswith("no spaces: --include=a,b")


@pytest.mark.parametrize(
    ("misspelt", "meant"),
    [
        ("--job_dispach_package=ws", "job_dispatch_package"),
        ("--job-dispatch-package=ws", "job_dispatch_package"),
        ("--job_dispatch=ws", "job_dispatch_package"),
        ("--job_workspce=ws", "job_workspace"),
        ("--Job_Workspace=ws", "job_workspace"),
        ("--dryrun", "dry_run"),
        ("--dry-run", "dry_run"),
        ("--drry_run", "dry_run"),
        ("--shard_dir=x", "shard_dirs"),
        ("--mdoe=v2", "mode"),
        ("--Conf=x", "conf"),
        ("--allow_mismach", "allow_mismatch"),
        ("--accept-new-host-keys", "accept_new_host_keys"),
        ("--hepl", "help"),
    ],
)
def test_a_near_miss_of_an_option_is_not_passed_on(misspelt: str, meant: str) -> None:
    assert f"did you mean --{meant}?" in refused(PACKAGE if "job" not in misspelt else "--dry_run", misspelt)


@pytest.mark.parametrize(
    "honest",
    [
        "--partition=x",
        "--image=x",
        "--time=3",
        "--model=x",
        "--node=1",
        "--retry=2",
        "--demo",
        "--job_name=worker",
        "--data_dirs=x",
        "--conv=3",
        "--module=x",
        "--multi_gpu",
        "--delimiter  ",
        "--delimiter =",
    ],
)
def test_an_option_that_scripts_really_have_is_passed_on(honest: str) -> None:
    tokens = tuple(honest.split(" ", 1))
    assert parse([PACKAGE, *tokens]).passthrough == tokens
    assert parse(["-p", "slurm", *tokens]).passthrough == tokens


@pytest.mark.parametrize(
    ("foreign", "right"),
    [
        ("--machinefile=hosts.txt", "--hostfile=hosts.txt"),
        ("--host=a", "HOSTS in conf.py"),
        ("-H=a:4,b:4", "--hosts=a,b or --hostfile=FILE, or HOSTS in conf.py, and --nproc_per_node=4 for"),
        ("-H=a:4,b:2", "--nproc_per_node=N for its slots"),
        ("-H=local:2,a:22", "and --nproc_per_node=2 for its slots"),
        ("--num_gpus=2", "--nproc_per_node=2"),
        ("--ntasks-per-node=gpu", "--nproc_per_node=N"),
        ("--num_nodes=2", "--nnodes=2"),
        ("--master_port=29500", "the launcher sets RANK, MASTER_ADDR, MASTER_PORT"),
        ("--config_file=c.py", "--conf=c.py"),
        ("--num_pservers=2", "PSERVERS and TRAINERS in conf.py"),
        ("--root_dir=/data", "give ROOT_DIR in conf.py"),
        ("--paddle_port=7000", "give --port"),
        ("--Lease_S=9", "give LEASE_S in conf.py"),
        ("--num_pass=3", "did you mean --num_passes?"),
        ("--port_num=2", "did you mean --ports_num?"),
        ("--use-gpu", "did you mean --use_gpu?"),
    ],
)
def test_what_is_ours_under_another_name_is_refused_with_the_right_one(foreign: str, right: str) -> None:
    message = refused(PACKAGE, foreign)
    assert right in message
    assert "after --" in message
    assert parse([PACKAGE, "--", foreign]).passthrough == (foreign,)


@pytest.mark.parametrize(
    ("argument", "right"),
    [
        ("run", "must come first"),
        ("\u2013mode=fluid", "U+2013; write hyphens: --mode=fluid"),
        (" ", "remove the space after a backslash"),
        ("\r", "remove the space after a backslash"),
        (" --lr=1", "remove the space after a backslash"),
    ],
)
def test_a_late_command_and_a_typographic_dash_are_not_passed_on(argument: str, right: str) -> None:
    assert right in refused(PACKAGE, "--hosts=a", argument)
    assert parse([PACKAGE, "--", argument]).passthrough == (argument,)


def test_in_collective_mode_names_like_paddles_flags_are_the_scripts_own() -> None:
    assert parse([PACKAGE, "--mode=collective", "--num_pass=3"]).passthrough == ("--num_pass=3",)


@pytest.mark.parametrize(
    "name", sorted((INIT_FLAGS.keys() | PSERVER_FLAGS.keys()) - {option.name for option in OPTIONS})
)
def test_no_flag_of_paddle_is_taken_for_a_misspelt_option(name: str) -> None:
    if name in {"trainer_id", "pservers", "num_gradient_servers"}:
        assert "is derived from" in refused(PACKAGE, f"--{name}=1")
    else:
        assert parse([PACKAGE, f"--{name}=1"]).flags == (Flag(name, "1"),)


def test_a_value_that_may_be_the_scripts_is_refused_with_both_ways() -> None:
    for argument in ("--name=a b", "--mode=train"):
        assert refused(PACKAGE, argument).endswith("(To pass it to your script, put it after --.)")


def test_help_wins_over_everything_but_the_lone_dashes() -> None:
    assert parse(["--dryrun", "--help"])["help"]
    assert parse(["-h"])["help"]
    assert not parse([PACKAGE, "--", "--help"])["help"]


F3 = [
    "--lr=-0.1",
    "--title=a b",
    "--flag",
    "--x=$(id)",
    "--quote='\"\\",
    "--ü=☃",
    "--big=" + "x" * 100_000,
    "--nl=a\nb",
]


def test_other_arguments_keep_their_order_and_form() -> None:
    argv = [
        *F3[:4],
        "--conf=c",
        *F3[4:],
        PACKAGE,
        "--num_passes",
        "5",
        "pos",
        "--lr",
        "-0.1",
        "--",
        "--conf=d",
        "-p",
        "--",
    ]
    assert parse(argv).passthrough == (
        *F3,
        "--num_passes",
        "5",
        "pos",
        "--lr",
        "-0.1",
        "--conf=d",
        "-p",
        "--",
    )


def test_flags_are_read_with_equals_with_a_blank_and_bare() -> None:
    argv = [
        "--seed=1",
        "--seed=2",
        "--lr",
        "-0.1",
        "--with_cost",
        "--save_dir",
        "out",
        "--nolocal",
        "--nothing",
    ]
    assert parse([PACKAGE, *argv]).flags == (
        Flag("seed", "1"),
        Flag("seed", "2"),
        Flag("lr", "-0.1"),
        Flag("with_cost", "True"),
        Flag("save_dir", "out"),
        Flag("local", "False"),
        Flag("nothing", "True"),
    )
    assert parse([PACKAGE, *argv]).flag("seed") == "2"


def test_one_of_our_options_never_becomes_the_value_of_a_flag_before_it() -> None:
    arguments = parse(["--with_cost", "-p", "ws", "pos"])
    assert arguments.flags == (Flag("with_cost", "True"),)
    assert arguments.passthrough == ("--with_cost", "pos")


def test_after_lone_dashes_nothing_is_read_as_a_flag() -> None:
    arguments = parse([PACKAGE, "--", "--seed=3", "--trainer_id=1", "--dryrun"])
    assert arguments.flags == ()
    assert arguments.passthrough == ("--seed=3", "--trainer_id=1", "--dryrun")


def test_bytes_that_are_no_utf8_survive() -> None:
    token = b"--x=\xff\xfe".decode("utf-8", "surrogateescape")
    assert parse([PACKAGE, token]).passthrough[0].encode("utf-8", "surrogateescape") == b"--x=\xff\xfe"


@given(st.lists(st.binary(max_size=12).filter(lambda raw: b"\0" not in raw), max_size=8))
def test_after_lone_dashes_every_byte_survives(raw: list[bytes]) -> None:
    tokens = [token.decode("utf-8", "surrogateescape") for token in raw]
    passed = parse([PACKAGE, "--", *tokens]).passthrough
    assert [token.encode("utf-8", "surrogateescape") for token in passed] == raw


@given(st.lists(st.text(alphabet="-=abelnoprt_ 0\n", max_size=14), max_size=8))
def test_every_command_line_is_read_or_refused(argv: list[str]) -> None:
    try:
        arguments = parse([PACKAGE, *argv])
    except UsageError:
        return
    left = [token for token in argv if token != "--"]
    assert (
        arguments["help"] or arguments["version"] or [t for t in arguments.passthrough if t != "--"] == left
    )
