# SPDX-License-Identifier: Apache-2.0
"""Options, and values of options, that other programs have, and what to give instead."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise

from paddle_cluster.config.hosts import COUNTS
from paddle_cluster.config.options import CONF_NAMES
from paddle_node.contract.classes import regex

_HOSTS = "give --hosts={HOSTS} or --hostfile=FILE, or HOSTS in conf.py"
_ROLES = (
    "PSERVERS and TRAINERS in conf.py choose the hosts of each role; --nproc_per_node=N "
    "sets the trainers per host"
)
_PER_NODE = "give --nproc_per_node={N}"
_IN_ALL = "give --nproc_per_node={SHARE}, the number of processes per node, not of all nodes"
_SET = "the launcher sets RANK, MASTER_ADDR, MASTER_PORT and similar variables for every process"
_ADVICE = {
    "config_file conf_file cluster cluster_conf cluster_config": "give --conf={FILE}",
    "host_file machinefile machine_file inventory": "give --hostfile={FILE}",
    "host hostlist nodelist nodes ips cluster_node_ips": _HOSTS,
    "H": f"{_HOSTS}{{SLOTS}}",
    "np num_processes": _IN_ALL,
    "nproc nprocs npernode ppn procs_per_node processes_per_node num_gpus gpus_per_node ntasks_per_node": _PER_NODE,
    "num_nodes num_machines max_nodes": "give --nnodes={N}",
    "min_nodes min_np": "give --min_trainers=N, the number of trainers with which a job continues",
    "node_rank machine_rank master_addr main_process_ip rdzv_endpoint rdzv_id rdzv_backend": (
        f"{_SET}; HOSTS in conf.py, or --hosts, lists the nodes"
    ),
    "master_port main_process_port standalone same_network force_multi": f"{_SET}; leave it out",
    "bind_to map_by rank_by oversubscribe allow_run_as_root mca": (
        "leave it out; with --engine=openmpi, OMPI_MCA_* variables set the parameters of Open MPI"
    ),
    "x": "give --env=NAME, or --env=NAME=VALUE",
    "server_num num_servers num_pservers worker_num num_trainers": _ROLES,
    "script m no_python": "give --entry=FILE, or --entry=-mpackage.module",
    "gres qos": "give --engine=slurm, and SLURM_OPTIONS in conf.py",
    "redirects tee output_filename": "leave it out; the logs of all processes are copied to log/ in the workspace",
    "restart_policy": "give --max_restarts=N",
    "wdir chdir": "leave it out; processes start in the job's directory, a copy of the workspace",
    "venv conda_env": "give PYTHON in conf.py, the path of the environment's Python on the nodes",
    "become": "leave it out; jobs run as the user of the login: user@host in HOSTS",
    "package": "give --job_dispatch_package=DIR",
    "daemon background": "give --detach",
    "password ssh_password ssh_pass": "logins use keys: add your public key to the nodes with ssh-copy-id",
    "ssh_port ssh_user": "write [user@]host[:port] in HOSTS or --hosts",
    "ssh_key identity_file private_key": "give SSH_IDENTITY_FILES in conf.py",
}

_SLURM = {
    "nodes N": "give --nnodes={N}",
    "ntasks n": _IN_ALL,
    "tasks_per_node": _PER_NODE,
    "partition account A qos q time t gres gpus G mem exclusive constraint C reservation cpus_per_task c nodelist w": (
        "options of salloc belong in conf.py, such as SLURM_OPTIONS = ['--partition=gpu', '--time=8:00:00']"
    ),
}
_K8S = "K8S_"

SYNONYMS = {
    "k8s kube kubectl kueue": "kubernetes",
    "mpi mpirun mpiexec ompi": "openmpi",
    "srun sbatch salloc": "slurm",
    "ddp torch pytorch any mpi nccl gloo jax tensorflow tf horovod allreduce": "collective",
    "ps pserver parameter_server sync async paddle": "v2",
    "none off false no tcp": "plain",
    "tls ssl encrypted true": "curve",
}
"""Common misnomers of an option's value -> the correct value."""

# other launchers' names for options that have another name here, and the options to give instead
EXPECTED = {name: advice for names, advice in _ADVICE.items() for name in names.split()}
_OF_PROCESSES = """
    paddle_trainers_num paddle_trainers paddle_trainer_id paddle_trainer_endpoints paddle_current_endpoint
    paddle_pservers paddle_pservers_ip_port_list paddle_training_role training_role
    trainers_num trainer_id world_size rank master_addr pod_ip
"""
IN_CONF = EXPECTED | dict.fromkeys(
    _OF_PROCESSES.split(), "leave it out: the launcher sets it for every process"
)
"""Name in conf.py that is an option or a variable elsewhere, in lower case -> what to do instead."""
OF_ENGINE = {
    "slurm": {name: advice for names, advice in _SLURM.items() for name in names.split()},
    "kubernetes": {
        "n": "give K8S_NAMESPACE in conf.py",
        "replicas": "give --nnodes={N}",
        **{
            name[len(_K8S) :].lower(): f"give {name} in conf.py"
            for name in CONF_NAMES
            if name.startswith(_K8S)
        },
    },
}
"""Engine -> option of its own program, which belongs to the script with other engines -> what to give instead."""

WRONG_VALUES = (
    ("engine", regex(r"local\w*|none|single"), "for processes on this machine alone, give --hosts=local"),
    (
        "engine",
        regex(r"docker|podman|containers?|compose"),
        "to run in containers, start sshd in them and list them in HOSTS, or give --engine=kubernetes",
    ),
    (
        "engine",
        regex(r"(\w+)"),
        "the launcher does not start jobs through {0}; omit --engine to log in to the machines over SSH",
    ),
    ("entry", regex(r"-m"), "write the module without a space: --entry=-mpackage.module"),
    ("keep_as", regex(r".*/.*"), "it is a name, below ROOT_DIR on the nodes"),
    (
        "nproc_per_node",
        regex(r"gpus?|auto|cuda|all|max|-1"),
        "give the number of GPUs of a node; in a hostfile, slots=N gives each host its own number",
    ),
    (
        "nnodes",
        regex(r"[0-9]+:([0-9]+)"),
        "for an elastic job, give --nnodes={0}, and its fewest trainers as --min_trainers=N",
    ),
)
"""Option, its values in other launchers, and what to give instead; {} are the groups."""

NOT_OURS = {
    name: advice
    for names, advice in {
        "N replicas": "give --nnodes={}",
        "limit": "give --include={}",
        "check": "give --dry_run",
        "tag_output label": "leave it out; each line on the screen names its process",
        "n ntasks": _IN_ALL,
        "f": "give --hostfile={}",
        "c": "give --conf={}",
        "e environment variables": "give --env={}",
        "export": "give --env=NAME for each variable of this shell",
        "runtime_env runtime_env_json": "give --env=NAME=VALUE for variables, and --bootstrap for packages",
        "num_cpus": "leave it out; --env=OMP_NUM_THREADS={} sets the number of threads",
        "d no_wait": "give --detach",
        "i": "name the key in conf.py, SSH_IDENTITY_FILES = ['{0}'], or with IdentityFile in ~/.ssh/config; an "
        "inventory is given as --hostfile={0}",
        "l": "write {}@host in HOSTS or --hosts",
        "gpus gpu gpu_ids devices": "give --env=CUDA_VISIBLE_DEVICES={}; --nproc_per_node=N starts a process per GPU",
        "log_dir logdir log_path": "leave it out; logs are copied to log/ in the workspace",
        "verbose v vv debug quiet q": "leave it out; log/job.log in the workspace has every line of all processes",
        "working_dir working_directory work_dir cwd": "leave it out; processes start in a copy of -p DIR",
        "timeout time_limit time": "leave it out; to limit the time, run `timeout SECONDS` in front of the launcher",
        "retry retries restart restarts": "give --max_restarts={}",
        "job_name J": "give --name={}",
        "w": "give --hosts={}",
        "address": "leave it out; HOSTS in conf.py, or --hosts, lists the nodes",
        "workers": "give --nproc_per_node={}",
        "mem cpus_per_task partition exclusive account": "give --engine=slurm, and SLURM_OPTIONS in conf.py",
        "y yes": "leave it out; the launcher asks no question",
        "requirements": "give --bootstrap, which installs the packages of requirements.txt in the workspace",
        "image container": "give --engine=kubernetes and K8S_IMAGE in conf.py, or list containers with sshd in HOSTS",
        "conda conda_env": "give PYTHON in conf.py, the path of the environment's Python on the nodes",
        "user": "write {}@host in HOSTS or --hosts",
        "ignore exclude_files": "list it in .paddleignore in the workspace",
        "script_args training_script_args args": "give the arguments themselves, after --: -- {}",
        "port": "--mode=collective has no pservers; for the port of SSH, give --hosts=HOST:{}",
        "resume": "the script itself loads what it saved in PADDLE_CHECKPOINT_DIR, which --keep_as=NAME keeps",
        "checkpoint_dir": "give --keep_as=NAME, which names the directory in PADDLE_CHECKPOINT_DIR",
        "dir path project": "give --job_dispatch_package={}",
        "output output_dir out_dir o": "leave it out; files that node 0 writes to output/ are copied to the workspace",
        "rank local_rank world_size dist_url init_method": "leave it out; the launcher sets RANK, WORLD_SIZE, "
        "LOCAL_RANK, MASTER_ADDR and MASTER_PORT",
    }.items()
    for name in names.split()
}
"""Option of other programs, also common in scripts -> what to give instead if the script does not read it."""


_OF_GPUS = ("gpus", "devices")
_COUNT = "give --nproc_per_node={N}, or --env=CUDA_VISIBLE_DEVICES={N} for the GPU with this number"


def filled(advice: str, value: str, nodes: int = 0) -> str:
    """Return advice with the value that was typed for the other program's option.

    Args:
        value: the option's value, or empty.
        nodes: the number of nodes of the job; 0 if unknown.
    """
    count = int(value) if value.isascii() and value.isdecimal() else 0
    share = count // nodes if nodes and not count % nodes else 0
    hosts = value.split(",")
    slots = {
        one: after for one in hosts if (after := one.partition(":")[2]).isdecimal() and int(after) in COUNTS
    }
    each = next(iter(slots.values())) if len({*slots.values()}) == 1 else "N"
    texts = {
        "SHARE": share or "N",
        "FILE": value or "FILE",
        "HOSTS": ",".join(one.partition(":")[0] if one in slots else one for one in hosts)
        or "HOST[,HOST:PORT]",
        "SLOTS": f", and --nproc_per_node={each} for its slots" * bool(slots),
    }
    return advice.format(value or "...", N=count or "N", **texts)


_INVENTORY = regex(r"(?:.*/)?(?:.*\.(?:ini|ya?ml)|(?:hosts?|inventory|machines?|hostfile)[\w.]*)")


def of_script(name: str, value: str, nodes: int) -> str:
    """Return what to give instead of an option in NOT_OURS."""
    if name == "i" and _INVENTORY.fullmatch(value):
        return f"give --hostfile={value}"
    is_count = name in _OF_GPUS and value.isdecimal() and value != "0"
    return filled(_COUNT if is_count else NOT_OURS[name], value, nodes)


def nodes_on(tokens: Sequence[str]) -> int:
    """Return the number of nodes that a command line names, also by options of other launchers; 0 if it names none."""
    words = [word for token in tokens for word in token.split("=", 1 if token.startswith("-") else 0)]
    found = {option.lstrip("-"): value for option, value in pairwise(words) if option.startswith("-")}
    count = next((found[name] for name in ("nnodes", "nodes", "num_nodes", "N") if name in found), "")
    hosts = next((found[name] for name in ("hosts", "host", "H") if name in found), "")
    return int(count) if count.isdecimal() else len(hosts.split(",")) * bool(hosts and "[" not in hosts)
