# SPDX-License-Identifier: Apache-2.0
"""`paddle.py init DIR`: a conf.py and a workspace with its data, so that the next command trains."""

from __future__ import annotations

import os
import shlex
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path

from paddle_cluster.config import conf_file
from paddle_cluster.config.arguments import Arguments
from paddle_cluster.config.resolve import resolve
from paddle_cluster.errors import ExitCode, UsageError, WorkspaceError
from paddle_cluster.screen.console import answer
from paddle_cluster.system.installation import COMMAND, CONF_FILE, PROGRAM, TEMPLATE_DIR

USAGE = f"""\
{PROGRAM} init DIR

Writes DIR/conf.py, a cluster of three embedded nodes on this machine, and
DIR/ws, a workspace that trains word embeddings, with its data: for as many
trainers as this conf.py makes. Nothing is downloaded, and nothing that is there
is overwritten. Then both are yours to change.
"""
# what a user may have made in a checkout's workspace_template is none of it
TEMPLATE_FILES = (".paddleignore", "README.md", "prepare.py", "start_mpi_train.sh", "train.py")
PREPARE_S = 300.0


def run(argv: Sequence[str]) -> ExitCode:
    """Writes both and says what comes next.

    Raises:
        UsageError: there is no directory in the arguments, or one of the two is there already.
        WorkspaceError: they cannot be written.
    """
    if len(argv) != 1 or not argv[0] or argv[0].startswith("-"):
        raise UsageError(f"init takes one directory, got {shlex.join(argv) or 'none'}: {PROGRAM} init DIR")
    folder = Path(argv[0])
    conf, workspace = folder / conf_file.CONF_NAME, folder / "ws"
    there = [str(path) for path in (conf, workspace) if os.path.lexists(path)]
    if there:
        raise UsageError(
            f"{' and '.join(there)} would be overwritten; remove what you do not need, or give another directory"
        )
    try:
        folder.mkdir(parents=True, exist_ok=True)
        _write(conf, workspace)
    except OSError as error:
        raise WorkspaceError(
            f"{error.filename or folder} cannot be written: {error.strerror}; give another directory"
        ) from error
    answer(
        f"{conf}: the cluster, embedded nodes of this machine to begin with ({PROGRAM} help configuration)\n"
        f"{workspace}: the workspace, with train.py, its data, and a README.md that tells what is what\n"
        f"next: {shlex.join([*COMMAND.split(), *_next(conf, workspace)])}"
    )
    return ExitCode.DONE


def _write(conf: Path, workspace: Path) -> None:
    """Both appear whole, by rename; a run that was stopped leaves nothing."""
    with tempfile.TemporaryDirectory(prefix=".init-", dir=conf.parent) as place:
        new_conf, new_workspace = Path(place) / conf.name, Path(place) / workspace.name
        shutil.copyfile(CONF_FILE, new_conf)
        new_workspace.mkdir()
        for name in TEMPLATE_FILES:
            shutil.copy(TEMPLATE_DIR / name, new_workspace)  # with its mode
        _prepare(new_workspace, resolve(Arguments({"conf": new_conf}), os.environ).num_trainers)
        new_workspace.rename(workspace)
        new_conf.rename(conf)


def _prepare(workspace: Path, trainers: int) -> None:
    """Make the data, one piece for each trainer.

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
        last = (done.stderr.strip() or "it said nothing").splitlines()[-1]
        raise WorkspaceError(
            f"the sample's data could not be made, and nothing was written: `{shlex.join(command)}` "
            f"ended with {done.returncode}: {last}"
        )


def _next(conf: Path, workspace: Path) -> list[str]:
    """The arguments of a job of this workspace, with --conf where another conf.py would count."""
    found = conf_file.conf_path(Arguments({"job_dispatch_package": workspace}), os.environ)
    is_found = found is not None and found.exists() and found.samefile(conf)
    return ["run", "-p", str(workspace), *([] if is_found else [f"--conf={conf}"])]
