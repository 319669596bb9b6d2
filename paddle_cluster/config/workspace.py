# SPDX-License-Identifier: Apache-2.0
"""Validates the command line against the workspace, before any connection is opened.

Other content of the tree (special files, links) is checked by `paddle_cluster.files.package`, which walks it.

Jobs that are meant for a different launcher or mode are recognized, and the error names the command to use instead.
Otherwise, torchrun on each node without a common endpoint would train a separate model per node and exit with 0. A
PyTorch script in the default mode would get parameter servers that it never uses.
"""

from __future__ import annotations

import ast
import functools
import glob
import itertools
import os
import re
import shlex
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path, PurePosixPath

from paddle_cluster.config import entry as entries
from paddle_cluster.config.entry import Entry
from paddle_cluster.config.options import Mode
from paddle_cluster.config.settings import Settings
from paddle_cluster.config.values import nearest
from paddle_cluster.errors import UsageError, WorkspaceError
from paddle_cluster.system.state_dir import read_bounded
from paddle_node.contract.classes import regex

_ARCHIVES = (".zip", ".gz", ".tgz", ".tar", ".bz2", ".xz", ".whl")
_URL = regex(r"\w+:/|\w+@[\w.-]+:")  # a Path has only one slash of the two
_SHADOWS = ("paddle.py", "paddle")
LAUNCHERS: Mapping[str, tuple[str, ...]] = {
    "torchrun": ("torchrun", "-mtorch.distributed.run", "-mtorch.distributed.launch"),
    "torchx": ("torchx", "-mtorchx.apps.main"),
    "accelerate": ("accelerate", "accelerate-launch", "-maccelerate.commands"),
    "deepspeed": ("deepspeed", "ds", "-mdeepspeed.launcher"),
    "horovodrun": ("horovodrun", "-mhorovod.run", "-mhorovod.runner"),
    "mpirun": ("mpirun", "mpiexec", "mpiexec.hydra", "orterun", "prterun", "oshrun"),
    "srun": ("srun", "sbatch"),
    "composer": ("composer", "-mcomposer.cli"),
    "colossalai": ("colossalai", "-mcolossalai.cli"),
    "lightning": ("lightning", "fabric", "-mlightning.fabric.cli", "-mlightning_fabric.cli"),
    "ray": ("ray", "-mray.scripts"),
    "bagua": ("baguarun", "-mbagua.distributed"),
    "paddle.distributed.launch": ("fleetrun", "-mpaddle.distributed"),
}
"""Launcher -> its entries: programs, and modules with all that is below them."""

FRAMEWORKS = (
    *("torch", "jax", "flax", "tensorflow", "keras", "xgboost", "lightgbm", "lightning", "pytorch_lightning"),
    *("deepspeed", "accelerate", "horovod", "mxnet", "mindspore"),
)
_OFTEN_HIDDEN = ("numpy", "random", "json", "logging", "queue", "types", "copy", "math", "socket", "enum")
_PER_NODE = ("nproc_per_node", "nproc", "num_gpus", "gpus", "devices", "ppn", "npernode")
_IN_ALL = ("np", "n", "c", "num_processes", "num_proc")
_IS_MODULE = ("-m", "--module")
_TORCHRUN = regex(  # matches a script line that starts it, without a variable among its options
    r"^(?!\s*#)(?!.*\b(?:echo|printf|which|type|command -v|hash|pip)\b)"
    r".*(?:\btorchrun|\btorch\.distributed\.(?:run|launch))\s(?!.*\$.*\.py)(?=[^;&|\n]*(?:\.py|\s-m\s))",
    re.MULTILINE,
)
_JOINED = regex(r"--rdzv[-_]endpoint\b")
_STARTERS = regex(
    r"^\s*(?:exec\s+)?(mpirun|mpiexec|horovodrun|deepspeed|accelerate\s+launch)\s[^;&|\n]*\.py", re.MULTILINE
)
_CHOOSES_NODES = regex(r"RANK|NODE_ID|TRAINER_ID|\b(?:if|case|host\w*|hosts\w*)\b|-H\b|machine|&&|\|\|")
_OTHER_NODES = regex(r"nnodes|rdzv|standalone|master|PET_")
_OURS = b"paddle"
_IS_LOGIN = regex(r"\s(?:-\w*[il]|--login)")
_DEFINES = regex(  # also a function, and a test of whether the command exists
    r"(?:^|[\s;&|{])(?:source|\.|eval|command\s+-v|type|hash)\s(?!\s*activate)"
    r"|\bPATH=|\b(?:conda|module|ml)\s*\(\)"
)
_OF_LOGIN = regex(r"\s*(conda activate|source activate|module load|module add|ml load)\b")
_CONDA = "/opt/conda/etc/profile.d/conda.sh"
_FILES = {"conda": _CONDA, "source": _CONDA} | dict.fromkeys(("module", "ml"), "/etc/profile.d/modules.sh")
"""First word of a command that only login shells have -> a file that usually defines it."""
_MOST_FILES = 500
LIMIT = 1 << 20  # bytes of a source file


def check_workspace(settings: Settings) -> None:
    """Check that the package exists and can run, and that the options are valid for it.

    Raises:
        UsageError: an option is not valid for this workspace.
        WorkspaceError: the package is missing or cannot run.
    """
    _check_config(settings)
    _check_launcher(settings)
    if settings.job.package is not None:
        _check_package(settings.job.package, settings.job.entry, settings.job.shard_dirs)


def _check_config(settings: Settings) -> None:
    """Check that `--config` names a trainer configuration in the workspace.

    Suggest --conf if it describes a cluster.
    """
    given = dict(settings.job.flags).get("config")
    if given is None:
        return
    path, package = PurePosixPath(given), settings.job.package
    is_inside = not path.is_absolute() and ".." not in path.parts
    if package is not None and not (is_inside and (package / path).is_file()):
        missing = f"the workspace {package} does not contain it"
    elif package is None and Path(path).is_file():
        missing = "it is a file on this machine, but the job uses files that are already on the nodes"
    else:
        return
    entry = settings.job.entry.text
    unneeded = (
        f" If {entry} builds the network, omit --config." if package and (package / entry).is_file() else ""
    )
    raise UsageError(
        f"--config={given}: {missing}. --config names the trainers' configuration file in the "
        f"workspace.{unneeded} If {given} is the file that lists the hosts, give --conf={given}"
    )


def check_directory(package: Path, following: Sequence[str] = ()) -> None:
    """Raise WorkspaceError if the package does not exist or is not a directory.

    Args:
        following: arguments that are not options; the first may be the rest of a path with a space.
    """
    if not package.exists():
        raise WorkspaceError(
            f"--job_dispatch_package: {package} does not exist; {_instead(package, following)}"
        )
    if not package.is_dir():
        hint = f"give the directory that contains it: --job_dispatch_package={package.parent}"
        if package.suffix in entries.SCRIPTS:
            hint += f" --entry={package.name}"
        elif package.suffix in _ARCHIVES:
            hint = "unpack it, and give the new directory"
        raise WorkspaceError(f"--job_dispatch_package: {package} is not a directory; {hint}")


def _instead(package: Path, following: Sequence[str]) -> str:
    """Return advice for a workspace that does not exist."""
    if any(token[:2] in ("-N", "-n") for token in following):
        return (
            "-p is the workspace, not a partition of Slurm (SLURM_OPTIONS in conf.py); -N is --nnodes, and "
            "--nproc_per_node=N is the number of processes per node"
        )
    if following and (whole := Path(f"{package} {following[0]}")).is_dir():
        return f"put a path with a space in quotes: -p '{whole}'"
    if _URL.match(str(package)):
        return "download or clone it, and give the directory on this machine"
    if str(package).startswith("~"):
        return f"the shell expands ~ only outside quotes: {package.expanduser()}"
    if package.is_symlink():
        return f"the link leads to {os.readlink(package)}; correct it"
    others = [Path(one).name for one in glob.glob(f"{glob.escape(str(package.parent))}/*/")]
    near = nearest(package.name, others)
    if not near and os.path.isfile(entries.DEFAULT):
        return f"the current directory has {entries.DEFAULT}: -p ."
    return f"did you mean {package.parent / near}?" if near else "give the directory to dispatch"


def _check_package(package: Path, entry: Entry, shard_dirs: Iterable[str]) -> None:
    check_directory(package)
    try:
        names = os.listdir(package)
    except OSError as error:
        raise WorkspaceError(
            f"--job_dispatch_package: {package} cannot be read: {error.strerror}; make it readable by your user"
        ) from error
    if not names:
        raise WorkspaceError(
            f"--job_dispatch_package: {package} is empty; put {entry.text} and its data into it"
        )
    for name in _SHADOWS:
        if name in names:
            raise WorkspaceError(
                f"{package / name} would hide the paddle package from {entry.text} on the nodes; rename it"
            )
    entries.check(entry, package)
    for directory in shard_dirs:
        if not (package / directory).is_dir():
            raise WorkspaceError(f"--shard_dirs: {package} has no directory {directory}")


def _check_launcher(settings: Settings) -> None:
    """Check that the job is not meant for another launcher or another mode.

    Raises:
        UsageError: the job is meant for another launcher or mode; the message names the options to use.
    """
    launcher = _launcher(settings.job.entry, settings.job.package)
    if settings.job.package is not None and settings.job.entry.is_program and settings.num_trainers > 1:
        _check_script(settings.job.package / settings.job.entry.path)
    if launcher:
        _refuse_launcher(launcher, settings)
    if not settings.job.mode_is_explicit and settings.job.package is not None:
        framework = foreign_framework(settings.job.entry, settings.job.package)
        if framework:
            raise UsageError(
                f"{settings.job.entry.text} imports {framework}, not paddle: did you mean --mode=collective? "
                f"(--mode={settings.job.mode} starts it with parameter servers)"
            )


def _launcher(entry: Entry, package: Path | None) -> str:
    """Return the launcher that an entry starts; "" if it is another program or a file of the workspace."""
    if package is not None and any((package / name).exists() for name in entries.files(entry, package)):
        return ""
    names = {entry.text, PurePosixPath(entry.path).name}
    if entry.module:
        names = {f"-m{entry.module}"[:end] for end in _dots(f"-m{entry.module}")}
    return next((name for name, known in LAUNCHERS.items() if names & set(known)), "")


def _check_script(file: Path) -> None:
    try:
        source = read_bounded(file, LIMIT).decode("utf-8", "replace").replace("\\\n", " ")
    except OSError:  # reported by the check of programs
        return
    if source.startswith("#!") and not _OTHER_NODES.search(source) and _TORCHRUN.search(source):
        raise UsageError(
            f"{file} starts torchrun without --nnodes and --rdzv_endpoint, so each node would train a "
            "separate model. Add them, or give --mode=collective --entry=train.py --nproc_per_node=N instead"
        )
    is_alone = source.count(".py") == 1 and not _CHOOSES_NODES.search(source)
    if source.startswith("#!") and is_alone and (found := _STARTERS.search(source)):
        raise UsageError(
            f"{file} starts {found[1]}, so each process of the job would train a separate model. The launcher starts "
            "the processes itself: give --mode=collective --entry=train.py --nproc_per_node=N instead"
        )


def _dots(module: str) -> Iterator[int]:
    yield from (found.start() for found in re.finditer(r"\.", module))
    yield len(module)


def _refuse_launcher(launcher: str, settings: Settings) -> None:
    count = settings.num_trainers
    is_module = bool(settings.job.entry.module)
    if count == 1 and is_module and settings.job.mode is Mode.COLLECTIVE:
        return  # all processes belong to it: one world
    if is_module and any(map(_JOINED.match, settings.job.passthrough)):
        return  # the processes of all nodes meet at the endpoint
    why = f"would train {count} separate models, one per process"
    if count == 1:
        why = "needs --mode=collective" if is_module else "is not in the workspace"
    raise UsageError(
        f"--entry={settings.job.entry.text}: {launcher} {why}. paddle.py starts the processes "
        "itself and sets RANK, WORLD_SIZE, MASTER_ADDR and MASTER_PORT. Use: "
        f"{shlex.join(equivalent_options(settings))}"
    )


def equivalent_options(settings: Settings) -> list[str]:
    """Return the options of paddle.py that start the same processes without the launcher that the script uses."""
    return options_for(settings.job.passthrough, len(settings.cluster.trainers), settings.job.nproc_per_node)


def options_for(line: Sequence[str], nodes: int, per_node: int = 1) -> list[str]:
    """Return the options of paddle.py for the words that follow another launcher's name.

    Args:
        per_node: the number of processes per node if the words give none.
    """
    given = [word for word in line if word != "--"]
    found = (
        (at, word) for at, word in enumerate(given) if word.endswith(entries.SCRIPTS) or word in _IS_MODULE
    )
    at, first = next(found, (len(given), ""))
    is_module = first in _IS_MODULE
    at += is_module
    script = given[at] if at < len(given) else entries.DEFAULT
    count = _processes(given[:at], nodes) or per_node
    arguments = given[at + 1 :]
    return [
        "--mode=collective",
        f"--entry={'-m' if is_module else ''}{script}",
        *([f"--nproc_per_node={count}"] if count > 1 else []),
        *(["--", *arguments] if arguments else []),
    ]


def _processes(given: Sequence[str], nodes: int) -> int:
    """Return the number of processes per node in another launcher's options; 0 if they give none."""
    for word, following in itertools.zip_longest(given, given[1:], fillvalue=""):
        name, equals, value = word.lstrip("-").partition("=")
        value = value if equals else following
        name = name.replace("-", "_")
        if word.startswith("-") and value.isdecimal() and name in (*_PER_NODE, *_IN_ALL):
            return int(value) if name in _PER_NODE else -(-int(value) // nodes)
    return 0


def foreign_framework(entry: Entry, package: Path) -> str:
    """Return the framework that a script imports, unless the script or its modules in the workspace import paddle.

    Returns:
        The name of the framework; "" if there is none or a source file cannot be read.
    """
    imported, files = sources(entry, package)
    is_ours = any(_OURS in source for source in files.values())
    return "" if is_ours else next((name for name in imported if name in FRAMEWORKS), "")


def sources(entry: Entry, package: Path) -> tuple[list[str], dict[Path, bytes]]:
    """Return the packages that a script and its modules in the workspace import, and the source of each of these files.

    Both are empty if a file cannot be read.
    """
    todo = [package / name for name in entries.files(entry, package)[:2] if name.endswith(".py")]
    todo += _files_of(package, entry.module) if entry.module else ()
    roots = {package, *([] if entry.module else [(package / entry.path).parent])}
    seen: dict[Path, bytes] = {}
    imported = []
    while todo:
        file = todo.pop()
        if file in seen or not file.is_file():
            continue
        try:
            seen[file] = read_bounded(file, LIMIT)
            names = _imported(seen[file], file.parent.relative_to(package).parts)
        except (OSError, SyntaxError, ValueError, RecursionError, MemoryError):
            return [], {}
        if len(seen) > _MOST_FILES:
            return [], {}
        for name in names:
            top = name.partition(".")[0]
            found = [root for root in roots if (root / top).is_dir() or (root / f"{top}.py").is_file()]
            todo += [file for root in found for file in _files_of(root, name)]
            imported += [] if found else [top]
    return imported, seen


def hiding_files(package: Path) -> list[Path]:
    """Return the files at the top of the workspace that hide a package of the same name, such as torch.py."""
    return [file for name in (*FRAMEWORKS, *_OFTEN_HIDDEN) if (file := package / f"{name}.py").is_file()]


def unprepared_commands(entry: Entry, package: Path) -> Iterator[tuple[str, str, str]]:
    """Yield "FILE:LINE", each command of a shell script that only login shells have, and a file that defines it."""
    try:
        source = read_bounded(package / entry.path, LIMIT) if entry.is_program else b""
    except OSError:  # reported by the check of programs
        return
    lines = source.decode("utf-8", "replace").splitlines() if source.startswith(b"#!") else []
    if not lines or _IS_LOGIN.search(lines[0]):
        return
    for number, line in enumerate(lines, 1):
        if _DEFINES.search(line.partition("#")[0]):
            return
        if found := _OF_LOGIN.match(line):
            yield f"{package / entry.path}:{number}", found[1], _FILES[found[1].split()[0]]


@functools.lru_cache(_MOST_FILES)  # several checks of a job need them
def _imported(source: bytes, folder: Sequence[str]) -> list[str]:
    """Return the dotted names that a module imports; relative names start at the top of the workspace."""
    names = []
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.Import):
            names += [alias.name for alias in node.names]
        elif isinstance(node, ast.ImportFrom):
            above = folder[: len(folder) - node.level + 1] if node.level else ()
            module = ".".join([*above, *([node.module] if node.module else [])])
            names += [f"{module}.{alias.name}" if module else alias.name for alias in node.names]
    return names


def _files_of(package: Path, name: str) -> Iterator[Path]:
    """Return the files of the workspace that an import of this name can execute."""
    place = package
    for part in name.split("."):
        place = place / part
        yield place.with_name(f"{part}.py")
        yield place / "__init__.py"
