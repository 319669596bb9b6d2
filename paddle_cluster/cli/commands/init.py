# SPDX-License-Identifier: Apache-2.0
"""`paddle.py init DIR`: creates conf.py and a sample workspace with data, and prints the command that trains it."""

from __future__ import annotations

import os
import shlex
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Mapping, Sequence
from pathlib import Path

from paddle_cluster.config import conf_file
from paddle_cluster.config.arguments import Arguments
from paddle_cluster.config.entry import DEFAULT
from paddle_cluster.config.resolve import resolve
from paddle_cluster.errors import ExitCode, UsageError, WorkspaceError
from paddle_cluster.screen.writer import answer
from paddle_cluster.system.installation import COMMAND, CONF_FILE, EXAMPLES_DIR, PROGRAM, TEMPLATE_DIR
from paddle_node.contract.classes import NamedTuple, regex

USAGE = f"""\
{PROGRAM} init [OPTION] DIR

Writes DIR/conf.py, a cluster of three embedded nodes on this machine, and
DIR/ws, a sample workspace for it. Downloads nothing and overwrites nothing.
Edit both as you like.

  --v2       word embeddings with paddle.v2, data included (default)
  --fluid    word2vec with paddle.fluid; the job downloads its data
  --pytorch  PyTorch DDP that reports its progress
  --jax      JAX on all nodes; reports its progress
"""
# excludes files that a user may have added to workspace_template in a checkout
TEMPLATE_FILES = (".paddleignore", "README.md", "prepare.py", "start_mpi_train.sh", "train.py")
PREPARE_S = 300.0


class Sample(NamedTuple):
    """A sample workspace that `init` can write.

    Attributes:
        files: name in the workspace -> source file.
        about: a description of its content.
        options: the options of its job.
    """

    files: Mapping[str, Path]
    about: str
    options: tuple[str, ...] = ()


_TRAINERS = ("--mode=collective", "--nproc_per_node=2")
SAMPLES: Mapping[str, Sample] = {
    "--v2": Sample(
        {name: TEMPLATE_DIR / name for name in TEMPLATE_FILES},
        "train.py, its data, and a README.md that describes them",
    ),
    "--fluid": Sample(
        {name: EXAMPLES_DIR / "fluid_word2vec" / name for name in ("README.md", "train.py")},
        "train.py and its README.md; the nodes download Penn Treebank (35 MB) on the first run",
        ("--mode=fluid",),
    ),
    "--pytorch": Sample(
        {"train.py": EXAMPLES_DIR / "torch_ddp.py"},
        "train.py; the nodes' Python (PYTHON in conf.py) must have torch",
        _TRAINERS,
    ),
    "--jax": Sample(
        {"train.py": EXAMPLES_DIR / "jax_allreduce.py"},
        "train.py; the nodes' Python (PYTHON in conf.py) must have jax",
        _TRAINERS,
    ),
}
"""Option -> its workspace."""
_DEFAULT = "--v2"
_EXAMPLE = regex(r"python paddle\.py -p examples\S*(?: --entry=\S+)?")


def run(argv: Sequence[str]) -> ExitCode:
    """Write a sample workspace and its conf.py, and print the command that trains it; return 0.

    Raises:
        UsageError: the arguments name no directory, or conf.py or the workspace already exists.
        WorkspaceError: conf.py or the workspace cannot be written.
    """
    given = [token for token in argv if token in SAMPLES]
    folders = [token for token in argv if token not in SAMPLES]
    if len(folders) != 1 or not folders[0] or folders[0].startswith("-") or len(given) > 1:
        raise UsageError(
            f"init takes one directory and at most one of {', '.join(SAMPLES)}, got "
            f"{shlex.join(argv) or 'nothing'}. Example: {PROGRAM} init --pytorch DIR"
        )
    sample = SAMPLES[given[0] if given else _DEFAULT]
    folder = Path(folders[0])
    conf, workspace = folder / conf_file.CONF_NAME, folder / "ws"
    there = [str(path) for path in (conf, workspace) if os.path.lexists(path)]
    if there:
        raise UsageError(
            f"{' and '.join(there)} would be overwritten; move or remove the existing files, or give a different "
            f"directory. To run a directory of your own: {COMMAND} run -p DIR --entry=FILE --hosts=local,local"
        )
    own = sorted((file.name for file in folder.glob("*.py")), key=lambda name: (name != DEFAULT, name))[:1]
    try:
        folder.mkdir(parents=True, exist_ok=True)
        _write(conf, workspace, sample)
        command = shlex.join([*COMMAND.split(), *_next(conf, workspace)])
        _name_command(workspace, command)
    except OSError as error:
        raise WorkspaceError(
            f"cannot write {error.filename or folder}: {error.strerror}; give a different directory"
        ) from error
    answer(
        f"{conf}: the cluster, three embedded nodes on this machine ({PROGRAM} help "
        "configuration)\n"
        f"{workspace}: the workspace, with {sample.about}\n"
        f"next: {' '.join([command, *sample.options])}"
        + "".join(
            f"\nor your own {name}: {shlex.join([*COMMAND.split(), 'run', '-p', str(folder), f'--conf={conf}'])} "
            f"--entry={name} --mode=collective"
            for name in own
        )
    )
    return ExitCode.DONE


def _write(conf: Path, workspace: Path, sample: Sample) -> None:
    """Write both atomically, by rename; an interrupted run leaves nothing behind."""
    with tempfile.TemporaryDirectory(prefix=".init-", dir=conf.parent) as place:
        new_conf, new_workspace = Path(place) / conf.name, Path(place) / workspace.name
        shutil.copyfile(CONF_FILE, new_conf)
        new_workspace.mkdir()
        for name, file in sample.files.items():
            shutil.copy(file, new_workspace / name)  # copies the mode too
        if "prepare.py" in sample.files:
            _prepare(new_workspace, resolve(Arguments({"conf": new_conf}), os.environ).num_trainers)
        new_workspace.rename(workspace)
        new_conf.rename(conf)


def _name_command(workspace: Path, command: str) -> None:
    """Replace the example's command in the files of the sample by the one that runs this workspace."""
    for file in (workspace / name for name in ("train.py", "README.md")):
        if file.exists():
            text = file.read_text(encoding="utf-8")
            file.write_text(_EXAMPLE.sub(lambda _: command, text), encoding="utf-8")


def _prepare(workspace: Path, trainers: int) -> None:
    """Create the data, one piece per trainer.

    Raises:
        WorkspaceError: prepare.py failed.
    """
    command = [sys.executable, "prepare.py", f"--split_count={trainers}"]
    done = subprocess.run(
        command,
        cwd=workspace,
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        errors="replace",
        timeout=PREPARE_S,
        check=False,
    )
    if done.returncode:
        last = (done.stderr.strip() or "it printed nothing").splitlines()[-1]
        raise WorkspaceError(
            f"cannot create the sample's data, so nothing was written. `{shlex.join(command)}` "
            f"exited with {done.returncode}: {last}"
        )


def _next(conf: Path, workspace: Path) -> list[str]:
    """Return the arguments of a job with this workspace, with --conf if it would otherwise use a different file."""
    found = conf_file.conf_path(Arguments({"job_dispatch_package": workspace}), os.environ)
    is_found = found is not None and found.exists() and found.samefile(conf)
    return ["run", "-p", str(workspace), *([] if is_found else [f"--conf={conf}"])]
