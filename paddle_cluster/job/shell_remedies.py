# SPDX-License-Identifier: Apache-2.0
"""The advice for common errors of commands in shell scripts, chosen by a line of the log."""

from __future__ import annotations

from paddle_cluster.config.script_habits import MEANT
from paddle_cluster.system.installation import COMMAND
from paddle_node.contract.classes import regex

_UNSET = r"(?:unbound variable|parameter not set)$"
_CR_LF = "the script's lines end in CR LF: sed -i 's/\\r$//'"

SHELL_REMEDIES = tuple(
    (regex(pattern), text)
    for pattern, text in (
        (
            r"^(?:\S*/)?([^/\s:]+): (?:line )?\d+: (?:\$?'?\\r'?(?:: command)?:? not found$|.*\$'.*\\r')",
            f"{_CR_LF} {{0}}",
        ),
        (r": \$?'?\\r'?(?:: command)?:? not found$|\$'.*\\r'", f"{_CR_LF} FILE"),
        (
            r"(?:\d|sh): (conda|mamba|micromamba|module|ml|spack|workon|nvm): (?:command )?not found$",
            "{0} is defined only in login shells, and a job's shell is not one: first source the file that defines it, "
            "such as /opt/conda/etc/profile.d/conda.sh or /etc/profile.d/modules.sh",
        ),
        (
            r"^CondaError: Run 'conda init'|^CommandNotFoundError: Your shell has not been",
            "source conda.sh before `conda activate`, such as `. /opt/conda/etc/profile.d/conda.sh`, or set PYTHON in "
            'conf.py to the environment\'s Python and run "$PADDLE_PYTHON" train.py',
        ),
        (
            r"[/ ]activate: (?:No such file or directory|not found)$|is not a virtualenv$|^EnvironmentNameNotFound: "
            r"|^EnvironmentLocationNotFound: ",
            "the environment must exist on every node, under the same path; or set PYTHON in conf.py to its Python, "
            'and run "$PADDLE_PYTHON" train.py',
        ),
        (
            r"(?:\d|sh): source: not found$",
            "sh has no command `source`: write `. ./FILE`, or begin the script with #!/bin/bash",
        ),
        (
            r"(?:\d|sh): (?:exec: )?python: (?:command )?not found$|env: ['‘]python['’]: No such file or directory$",
            'many nodes have only python3: write "$PADDLE_PYTHON", the Python of the job, or python3',
        ),
        (
            r"(?:\d|sh): (?:exec: )?(torchrun|srun|mpirun|mpiexec|deepspeed|accelerate): (?:command )?not found$"
            r"|^(srun|sbatch|salloc|mpirun|mpiexec): (?:error|fatal): ",
            "the launcher starts the processes itself: run the script without {0}. --nproc_per_node=N starts N on each "
            "node; --engine=slurm and --engine=openmpi start them through Slurm and MPI",
        ),
        (
            r"(?:\d|sh): (?:exec: )?(\S+): (?:command )?not found$"
            r"|^\S*env: ['‘]([^'’]+)['’]: No such file or directory$",
            "{0} is not in PATH on that node, where a job has no login shell: install it there, or name its directory "
            "with --env=PATH=DIR:/usr/bin:/bin",
        ),
        *(
            (rf": ({name}): {_UNSET}", f"no job has {{0}}: use {ours} instead, which the launcher sets")
            for name, ours in MEANT.items()
        ),
        (
            rf": (\w+): {_UNSET}",
            f"processes get RANK, WORLD_SIZE, PADDLE_TRAINER_ID and others (`{COMMAND} help any-script`); another "
            "variable needs --env={0}=VALUE",
        ),
        (
            r": (?:line \d+: )?cd: (/\S+): No such file or directory$",
            "that node has no {0}; a script starts in the job's directory, a copy of the workspace: remove the `cd`",
        ),
        (
            r"can't open file '[^']*/([^/']+)': \[Errno 2\]"
            r"|: (?:line \d+: )?(?:cd: )?(\S+): No such file or directory$",
            "{0} is not in the job's directory on the node, which is a copy of the workspace without the files that "
            ".paddleignore lists; --dry_run lists them",
        ),
        (
            r": (?:line \d+: )?(\S+): (?:cannot execute: required file not found$|\S+: bad interpreter: No such file)",
            "the program in the first line of {0} does not exist on that node; create a Python environment where it is "
            "used, because its programs contain its path",
        ),
        (
            r": (?:line \d+: )?(\S+): Permission denied$",
            "if {0} is in the workspace, run `chmod +x` on it; otherwise make it accessible to your user on that node",
        ),
    )
)
"""Pattern of a line -> advice; {} are the pattern's groups. The first match applies."""
