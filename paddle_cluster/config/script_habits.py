# SPDX-License-Identifier: Apache-2.0
"""Warnings about PyTorch scripts whose ranks would not train together: habits of scripts for one machine.

The packages that a script imports, and the sources, are those of `workspace.sources`.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Collection, Container, Iterable, Iterator, Mapping, Sequence
from itertools import islice
from pathlib import Path

from paddle_cluster.config import entry as entries
from paddle_cluster.config.entry import Entry
from paddle_cluster.config.workspace import LIMIT, sources
from paddle_cluster.system.state_dir import read_bounded
from paddle_node.contract.classes import regex

_OF_RANKS = (
    b"RANK",
    b"WORLD_SIZE",
    b"MASTER_",
    b"distributed",
    b"init_rpc",
    b"ccelerat",
    b"ightning",
    b"transformers",
    b"deepspeed",
    b"horovod",
    b"paddle",
    b"mpi4py",
    b"abric",
    b"ray",
    b"xgboost",
)
_OTHER_LIBRARIES = r"ccelerat|ightning|transformers|deepspeed|horovod|fabric|\bray\b|colossalai|megatron"

SAMPLES = (
    "every rank reads the same samples: give DataLoader a sampler=DistributedSampler(dataset) and call its "
    "set_epoch(epoch), unless the script divides the data itself"
)
ADDRESS = (
    "ranks of other nodes cannot find rank 0 at an address in the script: remove the line, because the launcher sets "
    "MASTER_ADDR and MASTER_PORT"
)
_IS_STARTED = (  # the script asks whether a launcher started it
    r"[\"'](?:(?:LOCAL_)?RANK|WORLD_SIZE|MASTER_(?:ADDR|PORT))[\"'](?:\)\s*is\b|\s*(?:not\s+)?in\b)"
    r"|environ\.get\([\"']MASTER_|getenv\([\"']MASTER_|is_torchelastic_launched"
)
_HABITS = tuple(
    (regex(present.encode()), regex(f"{absent}|{_OTHER_LIBRARIES}".encode()), text)
    for present, absent, text in (
        (
            r"\bDataLoader\(",
            r"[Ss]ampler|Iterable|[Ss]hard|[Ss]plit|Subset|rank\s*::|\[\s*rank|seed\([^)]*rank|world_size\s*[:)\]]"
            r"|DeviceMesh|device_mesh|parallelize|[Pp]ipelin",
            SAMPLES,
        ),
        (
            r"environ\[[\"']MASTER_ADDR[\"']\]\s*=\s*[\"'](?:localhost|127\.)"
            r"|init_method\s*=\s*f?[\"']tcp://(?:localhost|127\.)",
            _IS_STARTED,
            ADDRESS,
        ),
        (
            r"\b(?:mp|multiprocessing)\.spawn\(",
            rf"\bNODE_RANK\b|\bLOCAL_WORLD_SIZE\b|rank\s*\*|\*\s*(?:args\.)?(?:node_?)?rank\b|{_IS_STARTED}",
            "each rank of the job starts ranks of its own: call the function without mp.spawn, with the rank in RANK, "
            "and let --nproc_per_node=N start the processes of a node",
        ),
        (
            r"\.backward\(",
            r"DistributedDataParallel|\bDDP\b|[Ff]ully_?[Ss]hard|FSDP|all_reduce|all_gather|reduce|broadcast|isend|\.send\("
            r"|rpc|DeviceMesh|device_mesh|parallelize|pserver|paddle",
            "nothing exchanges gradients, so each rank trains a model of its own: wrap the model, as in "
            "model = torch.nn.parallel.DistributedDataParallel(model)",
        ),
        (
            r"\brank\s*=.*gethostname\(",
            r"environ|getenv",
            "names of hosts are not ranks: call init_process_group without rank and world_size, because the launcher "
            "sets RANK and WORLD_SIZE",
        ),
    )
)
"""Pattern of a habit, pattern of what makes it harmless, anywhere in the script or its modules -> the warning."""
MEANT = {
    name: ours
    for ours, names in {
        "RANK": "SLURM_PROCID PMI_RANK PMIX_RANK MV2_COMM_WORLD_RANK",
        "WORLD_SIZE": "SLURM_NTASKS SLURM_NPROCS PMI_SIZE MV2_COMM_WORLD_SIZE",
        "LOCAL_RANK": "SLURM_LOCALID MPI_LOCALRANKID MV2_COMM_WORLD_LOCAL_RANK",
        "LOCAL_WORLD_SIZE": "SLURM_NTASKS_PER_NODE MPI_LOCALNRANKS MV2_COMM_WORLD_LOCAL_SIZE",
        "NODE_RANK": "SLURM_NODEID",
        "MASTER_ADDR": "SLURM_JOB_NODELIST SLURM_NODELIST SLURM_LAUNCH_NODE_IPADDR",
    }.items()
    for name in names.split()
}
"""Variable of Slurm or an MPI, which no engine passes on to trainers -> the launcher's variable."""
_EXPANDED = regex(rf"\$\{{?({'|'.join(MEANT)})(?!\w|:?[-=+?])")
_OTHER_MAIN = regex(r"__name__ == ('(?!__(?:mp_)?main__')\w*main\w*')", re.IGNORECASE)
_MAINS = ("main", "train", "run", "_main")
_INERT = (ast.Import, ast.ImportFrom, ast.FunctionDef, ast.ClassDef)
_MEETS = b"init_process_group"


def harmful(
    imported: Collection[str], files: Mapping[Path, bytes], harmless: Container[str]
) -> Iterator[tuple[str, str]]:
    """Yield "FILE:LINE" and a warning for each habit of a script, or its modules, that calls init_process_group.

    Args:
        harmless: warnings about what is correct in this job.
    """
    everything = b"\n".join(files.values())
    if "torch" not in imported or _MEETS not in everything:
        return
    for present, absent, text in _HABITS:
        if text in harmless or absent.search(everything):
            continue
        found = ((file, source, match) for file, source in files.items() if (match := present.search(source)))
        for file, source, match in found:
            line = source.count(b"\n", 0, match.start()) + 1
            yield f"{file}:{line}", text
            break


def trains_alone(imported: Collection[str], files: Mapping[Path, bytes]) -> bool:
    """Return whether a script and its modules import torch, but mention neither ranks nor a library that uses them."""
    return "torch" in imported and not any(word in source for source in files.values() for word in _OF_RANKS)


def unused_main(entry: Entry, package: Path) -> str:
    """Return "FILE:LINE: what is wrong" of a script that defines functions, but calls none of them; "" for others."""
    for file, tree in islice(_trees(entry, package, b""), 1):
        for part in tree.body:
            if isinstance(part, ast.If) and (found := _OTHER_MAIN.fullmatch(ast.unparse(part.test))):
                return f"{file}:{part.lineno}: the name of a script is '__main__', never {found[1]}"
        mains = [part for part in tree.body if isinstance(part, ast.FunctionDef) and part.name in _MAINS]
        if mains and all(_is_inert(part) for part in tree.body):
            return f"{file}:{mains[0].lineno}: the script defines {mains[0].name}, but never calls it"
    return ""


def _is_inert(part: ast.stmt) -> bool:
    """Return whether a statement only imports or defines; a decorator may run the function that it decorates."""
    if isinstance(part, _INERT):
        return not getattr(part, "decorator_list", ())
    return isinstance(part, ast.Expr | ast.Assign) and isinstance(part.value, ast.Constant | ast.Name)


def reading(entry: Entry, package: Path, option: str, given: Iterable[str]) -> str:
    """Return the name of a file of the script that defines an option which is not among the given arguments, or ""."""
    if option in {one.partition("=")[0] for one in given}:
        return ""
    defines = regex(rf"(?:argument|option)\([^()]*[\"']{option}[\"']".encode())
    _, files = sources(entry, package)
    return next((file.name for file, source in files.items() if defines.search(source)), "")


def fixed_world_sizes(entry: Entry, package: Path) -> Iterator[tuple[str, int]]:
    """Yield "FILE:LINE" and the number of each call of init_process_group with a constant world_size."""
    for file, tree in _trees(entry, package, b"world_size"):
        constants = {
            node.targets[0].id: node.value
            for node in tree.body
            if isinstance(node, ast.Assign) and isinstance(node.targets[0], ast.Name)
        }
        for node in ast.walk(tree):
            if not (isinstance(node, ast.Call) and ast.unparse(node.func).endswith("init_process_group")):
                continue
            for given in node.keywords:
                value = constants.get(given.value.id) if isinstance(given.value, ast.Name) else given.value
                if given.arg == "world_size" and isinstance(value, ast.Constant) and type(value.value) is int:
                    yield f"{file}:{given.value.lineno}", value.value


_OF_TRAINERS = (
    ("trainer_id", 0, regex(r"['_](?:TRAINER_ID|NODE_ID|RANK)")),
    ("num_gradient_servers", 1, regex(r"['_](?:NUM_GRADIENT|TRAINERS|WORLD_SIZE)")),
)
"""An option by which old scripts divide the data, its value without a job, the variables that can replace it."""


def unset_ranks(entry: Entry, package: Path, given: Container[str]) -> Iterator[tuple[str, str]]:
    """Yield "FILE:LINE" and a warning for each option about trainers that is not given and has a constant default."""
    for name, alone, variables in _OF_TRAINERS:
        for file, tree in _trees(entry, package, f"--{name}".encode()):
            if name in given or variables.search(ast.unparse(tree)):
                continue
            for call in ast.walk(tree):
                if isinstance(call, ast.Call) and f"'--{name}'" in map(ast.unparse, call.args):
                    defaults = [one.value for one in call.keywords if one.arg == "default"]
                    if all(isinstance(value, ast.Constant) for value in defaults):
                        yield (
                            f"{file}:{call.lineno}",
                            f"--{name} has the same value in all trainers, so readers that use it do not divide the "
                            f'data: write default=int(os.getenv("PADDLE_INIT_{name.upper()}", {alone}))',
                        )


def hidden_errors(entry: Entry, package: Path) -> Iterator[tuple[str, str]]:
    """Yield "FILE:LINE" and a warning for each statement that lets a script exit with code 0 after a failure."""
    for file, tree in _trees(entry, package, b"except"):
        looped = {
            each
            for loop in ast.walk(tree)
            if isinstance(loop, (ast.For, ast.While))
            for each in ast.walk(loop)
        }
        for node in ast.walk(tree):
            if not isinstance(node, ast.Try) or node in looped:
                continue
            body = [each for one in node.body for each in ast.walk(one)]
            trains = any(map(_trains, body)) and not _notes_success(node, body)
            for handler in node.handlers:
                name = "Exception" if handler.type is None else ast.unparse(handler.type)
                last = handler.body[-1]
                if name.endswith(_ERRORS) and not name.endswith(_ENDS) and _ends_well(last):
                    yield f"{file}:{last.lineno}", _ENDS_WELL
                elif trains and name in _BROAD and all(map(_only_tells, handler.body)):
                    yield f"{file}:{handler.lineno}", _DISCARDS
    for file, tree in _trees(entry, package, b"PoolExecutor"):
        yield from ((f"{file}:{line}", _UNREAD) for line in _unread_futures(tree))
    for name in _COMMANDS:
        for file, tree in _trees(entry, package, name.encode()):
            yield from ((f"{file}:{line}", _UNCHECKED) for line in _unchecked_commands(tree, name))
    lines = entries.shell_lines(entry, package)
    yield from ((f"{package / entry.path}:{line}", text) for line, text in _lost_codes(lines))


_BROAD = ("Exception", "BaseException")
_ERRORS = ("Exception", "Error")
_ENDS = ("EOFException", "EOFError", "BrokenPipeError")  # of the data, or of the reader of the output
_EXITS = ("sys.exit", "exit", "quit", "os._exit", "SystemExit")
_ENDS_WELL = (
    "this line reports success after an error, and the job ends with exit code 0: use sys.exit(1), or raise"
)
_DISCARDS = (
    "if training fails in this try statement, the job ends with exit code 0: end the except branch with raise"
)

_PYTHON_LINE = (
    r"\s*(?:\w+=\S*\s+)*\"?(?:\S*/python|python|\$\{?PADDLE_PYTHON\b)[\d.]*\}?\"?\s(?:[^#|;&\\\n]|>&)*"
)
_SHELL_LOSSES = (
    (
        regex(rf"{_PYTHON_LINE}\|(?![|&])"),
        regex(r"pipefail|PIPESTATUS"),
        "the exit code of this line is that of the last program of the pipe, so the job ends with exit code 0 if "
        "Python fails: write `set -eo pipefail` above it",
    ),
    (
        regex(rf"(?!.*<<){_PYTHON_LINE}\n"),  # a script in the script may be its last command
        regex(r"\bset -\w*e|^#!.* -\w*e|\$\?|\|\||&&|\b(?:if|exit|exec|trap|wait)\b"),
        "if this line fails, the script continues, and the job ends with the exit code of its last line: write "
        "`set -e` above it",
    ),
)
"""Pattern of a shell script's line, pattern of what makes it harmless, anywhere in the script -> the warning."""


def _lost_codes(lines: Sequence[str]) -> Iterator[tuple[int, str]]:
    """Yield the lines of a shell script whose failure the exit code of the script does not show."""
    bare = [line for line in lines if line.strip() and not line.lstrip().startswith("#")]
    text = "\n".join(lines)
    for pattern, harmless, warning in _SHELL_LOSSES:
        found = [line for line in bare if pattern.match(line + "\n" * (line is not bare[-1]))]
        if found and not harmless.search(text):
            yield lines.index(found[0]) + 1, warning


def empty_variables(entry: Entry, package: Path, known: Container[str]) -> Iterator[tuple[str, str]]:
    """Yield "FILE:LINE" and a warning for each variable of another launcher that a shell script needs.

    Args:
        known: the variables that the user sets.
    """
    lines = entries.shell_lines(entry, package)
    bare = [re.sub(r"(?:^|\s)#.*|.*\bsrun\b.*", "", line) for line in lines]
    for name in dict.fromkeys(_EXPANDED.findall("\n".join(bare))):
        # assigned, or tested
        if name not in known and not re.search(rf"\b{name}(?:=|:?[-+?])|-[nzv] \W*{name}\b", "\n".join(bare)):
            number = next(at for at, line in enumerate(bare, 1) if name in _EXPANDED.findall(line))
            yield f"{package / entry.path}:{number}", f"{name} is empty in a job: use {MEANT[name]} instead"


_COMMANDS = ("os.system", "subprocess.call", "subprocess.run")
_PYTHON = regex(r"\bpython|sys\.executable")
_UNCHECKED = (
    "this line discards the exit code of its command, so the job ends with exit code 0 if it fails: use "
    "subprocess.run(..., check=True)"
)
_UNREAD = (
    "an error in the function is lost, because nothing reads the result: keep it, as in done = pool.submit(...), and "
    "call done.result()"
)


def _unread_futures(tree: ast.Module) -> Iterator[int]:
    """Yield the lines that give a pool of executors a function without a `try`, and discard the result."""
    nodes = list(ast.walk(tree))
    pools = {
        ast.unparse(target)
        for node in nodes
        for target, value in _bindings(node)
        if isinstance(value, ast.Call) and ast.unparse(value.func).endswith("PoolExecutor")
    }
    bare = {
        node.name
        for node in nodes
        if isinstance(node, ast.FunctionDef) and not any(isinstance(each, ast.Try) for each in ast.walk(node))
    }
    for call in (node.value for node in nodes if isinstance(node, ast.Expr)):
        if isinstance(call, ast.Call) and isinstance(call.func, ast.Attribute) and call.args:
            is_given = call.func.attr in ("submit", "map") and ast.unparse(call.func.value) in pools
            if is_given and ast.unparse(call.args[0]) in bare:
                yield call.lineno


def _unchecked_commands(tree: ast.Module, name: str) -> Iterator[int]:
    """Yield the lines that run Python with a function of this name, and discard its exit code."""
    for call in (node.value for node in ast.walk(tree) if isinstance(node, ast.Expr)):
        if not isinstance(call, ast.Call) or ast.unparse(call.func) != name:
            continue
        if _PYTHON.search(ast.unparse(call)) and not any(one.arg == "check" for one in call.keywords):
            yield call.lineno


def _bindings(node: ast.AST) -> Iterator[tuple[ast.expr, ast.expr]]:
    if isinstance(node, ast.Assign):
        yield node.targets[0], node.value
    elif isinstance(node, ast.withitem) and node.optional_vars is not None:
        yield node.optional_vars, node.context_expr


def _trains(node: ast.AST) -> bool:
    if not isinstance(node, ast.Call):
        return False
    name = ast.unparse(node.func).rpartition(".")[2]
    return name.startswith("train") or name in ("main", "fit", "minimize", "backward")


def _notes_success(statement: ast.Try, body: Sequence[ast.AST]) -> bool:
    """Return whether the code after a `try` can differ: it returns, exits or sets a flag, or it has an `else`."""
    flag = statement.body[-1]
    return (
        bool(statement.orelse)
        or (isinstance(flag, ast.Assign) and isinstance(flag.value, ast.Constant))
        or any(
            isinstance(each, ast.Return) or (isinstance(each, ast.Call) and ast.unparse(each.func) in _EXITS)
            for each in body
        )
    )


def _ends_well(statement: ast.stmt) -> bool:
    """Return whether a statement is a call such as sys.exit(0)."""
    call = statement.exc if isinstance(statement, ast.Raise) else getattr(statement, "value", None)
    if not isinstance(call, ast.Call) or ast.unparse(call.func) not in _EXITS:
        return False
    return not call.args or (
        isinstance(call.args[0], ast.Constant) and call.args[0].value in (0, None, False)
    )


def _only_tells(statement: ast.stmt) -> bool:
    """Return whether a statement does nothing, or only prints or logs."""
    if isinstance(statement, ast.Expr) and isinstance(statement.value, ast.Call):
        name = ast.unparse(statement.value.func)
        return name.startswith(("print", "traceback.print", "log", "warnings.warn"))
    return isinstance(statement, ast.Pass) or (
        isinstance(statement, ast.Expr) and isinstance(statement.value, ast.Constant)
    )


def _trees(entry: Entry, package: Path, word: bytes) -> Iterator[tuple[Path, ast.Module]]:
    """Yield the files of the script that contain a word, parsed, without those that cannot be read."""
    for file in (package / name for name in entries.files(entry, package)[:2] if name.endswith(".py")):
        try:
            source = read_bounded(file, LIMIT)
            tree = ast.parse(source if word in source else b"")
        except (OSError, SyntaxError, ValueError, RecursionError, MemoryError):
            continue
        yield file, tree
