# SPDX-License-Identifier: Apache-2.0
"""The payload of a job: the files that each node gets (runtime, workspace, nodefile and optional environment).

The workspace is listed and hashed before any connection, and one that cannot be sent is rejected here; the runtime is
packed while nodes connect. `--dry_run` and the warning before large transfers list the files.
"""

from __future__ import annotations

import hashlib
import json
import marshal
import time
import zlib
from collections import Counter
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING

from paddle_cluster.config.entry import files
from paddle_cluster.connection.link import Link
from paddle_cluster.errors import WorkspaceError
from paddle_cluster.files.dispatch import ENVIRONMENT, RUNTIME, WORKSPACE, Dispatch
from paddle_cluster.files.package import (
    IGNORE_FILE,
    LeftOut,
    Package,
    TreeEntry,
    runtime_package,
    runtime_state,
    shard,
    survey,
    workspace_package,
)
from paddle_cluster.plan.plan import Node, Plan
from paddle_cluster.system.digests import (
    DIGEST_SIZE,
    FRESH_S,
    MEMORIES,
    Digests,
    cache_file,
    load_cached,
    memory_of,
)
from paddle_cluster.system.installation import RUNTIME_DIR
from paddle_cluster.text.sizes import counted, size_text
from paddle_cluster.text.wrapping import visible
from paddle_node.contract.classes import NamedTuple, dataclass
from paddle_node.contract.names import LOG, OUTPUT

if TYPE_CHECKING:
    from paddle_cluster.files.wheels import Environment  # imports packaging


OUTPUT_NODE = 0
FILES_BESIDE = 20  # the folders of the cache and of a job, its record and its first logs
NAME = "bundle"
_KEPT_AS = "bundle-3"  # format version, in the names of cached files
_LENGTH = 8


@dataclass(frozen=True)
class Bundle:
    """The packages of the runtime, packed into one file for sending.

    Attributes:
        digest: the digest of the unpacked tree.
        items: the number of files and folders in the tree.
        unpacked_bytes: the space needed on a node, for the file and its unpacked contents.
        package: a tree that contains only that file.
    """

    digest: str
    items: int
    unpacked_bytes: int
    package: Package


def bundle(root: Path, folder: Path, clock: Callable[[], float] = time.time) -> Bundle:
    """Pack the packages that jobs import into one file, or reuse the file that an earlier job packed.

    The packed file is reused if the metadata of all source files is unchanged, as for `Digests`; it is not saved if a
    source file has just changed.

    Args:
        folder: cache of packed files; if it cannot be written, only the next job takes longer.

    Raises:
        WorkspaceError: a file cannot be read, or has just changed.
    """
    state, changed_at = runtime_state(root)
    path = folder / f"{state}.{_KEPT_AS}"
    content = load_cached(path)
    if content is None:
        tree = runtime_package(root)
        packed = _pack(tree)
        content = marshal.dumps((tree.digest, len(tree.entries), tree.total_bytes, _digest(packed), packed))
        if changed_at < clock() - FRESH_S:
            cache_file(path, content)
    digest, items, size, own, packed = marshal.loads(content)  # noqa: S302 - of this user, as the sources are
    entry = TreeEntry(NAME, 0o600, len(packed), own, content=packed)
    return Bundle(digest, items, size + len(packed), Package((entry,)))


def _pack(tree: Package) -> bytes:
    manifest = json.dumps([entry.manifest_item() for entry in tree.entries], separators=(",", ":")).encode()
    parts = [len(manifest).to_bytes(_LENGTH, "big"), manifest]
    for entry in tree.files:
        try:
            content = Path(entry.source).read_bytes()
        except OSError as error:
            raise WorkspaceError(f"cannot read {entry.source}: {error.strerror}") from error
        if _digest(content) != entry.digest:
            raise WorkspaceError(f"{entry.source} is being modified; start again when it is complete")
        parts.append(content)
    return zlib.compress(b"".join(parts))


def _digest(data: bytes) -> str:
    return hashlib.blake2b(data, digest_size=DIGEST_SIZE).hexdigest()


class Payload:
    """The trees of files that one job sends to its nodes.

    Args:
        note: called with a message for the user, if reading the workspace takes long.

    Attributes:
        environments: the wheels by node ID, for a job that brings its packages; known after the nodes have answered.

    Raises:
        WorkspaceError: an item of the workspace cannot be sent, or a directory of --shard_dirs has no shards.
    """

    def __init__(self, plan: Plan, note: Callable[[str], object] = lambda _: None) -> None:
        self._plan = plan
        self.environments: Mapping[int, Environment] = {}
        package = plan.settings.job.package
        self._workspace = None if package is None else _workspace(package, plan, note)

    @cached_property
    def _runtime(self) -> Bundle:
        return bundle(RUNTIME_DIR, self._plan.settings.state.jobs / MEMORIES)

    def pack_runtime(self) -> None:
        """Pack the runtime, which the other methods need.

        Raises:
            WorkspaceError: a file of the runtime cannot be read, or has just changed.
        """
        self._runtime  # noqa: B018 - computed on first access

    def describe(self) -> str:
        """Describe the files to send and their size, for the screen."""
        packages = max((len(one.package.files) for one in self.environments.values()), default=0)
        more = f", {counted(packages, 'package')}" if packages else ""
        if self._workspace is None:
            return f"the runtime{more}; the workspace is already on the nodes"
        files = counted(len(self._workspace.files), "file")
        return f"{files} and the runtime{more}"

    def warning(self, node: str, dispatch: Dispatch) -> str:
        """Return a note about the size of the files to be sent to a node; "" if they are small."""
        limit_mb = self._plan.settings.limits.warn_size_mb
        if self._workspace is None or sum(dispatch.lacking.values()) <= limit_mb << 20:
            return ""
        lacking = [Sized(self._workspace.by_digest[one].path, size) for one, size in dispatch.lacking.items()]
        return "\n".join(warning(lacking, node, limit_mb, self._workspace.left_out))

    def bytes_for(self, node: Node) -> int:
        """Return the number of bytes that a node needs; the cache and the job directory may each contain a copy."""
        share = self._share(node)
        return self._runtime.unpacked_bytes + 2 * (share.total_bytes if share else 0)

    def files_for(self, node: Node) -> int:
        """Return the number of free inodes that a node needs.

        The cache and the job directory may each contain a copy.
        """
        share = self._share(node)
        copies = len(share.entries) + len(share.by_digest) if share else 0
        return self._runtime.items + copies + FILES_BESIDE

    def offer(self, node: Node, link: Link, hold: bool = False) -> dict[str, Dispatch]:
        """Start the transfer of all trees to a node; return the transfers by tree.

        Args:
            hold: whether files are sent only once a dispatch is explicitly released.
        """
        dispatches = [
            Dispatch(
                link,
                self._runtime.package,
                tree=RUNTIME,
                dest=f".paddle/runtime/{self._runtime.digest[:32]}",
                unpacked_bytes=self._runtime.unpacked_bytes,
                hold=hold,
            ),
            Dispatch(
                link,
                self._share(node),
                tree=WORKSPACE,
                dest=node.job_dir if self._workspace is None else _below(node),
                files={"nodefile": f"{node.node_id}\n"},
                collect=[LOG, OUTPUT] if node.node_id == OUTPUT_NODE else [LOG],
                hold=hold,
            ),
        ]
        environment = self.environments.get(node.node_id)
        if environment is not None:
            dispatches.append(
                Dispatch(
                    link,
                    environment.package,
                    tree=ENVIRONMENT,
                    dest=f".paddle/environments/{environment.package.digest[:32]}",
                    unpacked_bytes=environment.unpacked_bytes,
                    hold=hold,
                )
            )
        for dispatch in dispatches:
            dispatch.start()
        return {dispatch.tree: dispatch for dispatch in dispatches}

    def _share(self, node: Node) -> Package | None:
        shard_dirs = self._plan.settings.job.shard_dirs
        if self._workspace is None or not shard_dirs:
            return self._workspace
        # scripts choose their shard by trainer rank; a node without a trainer needs none
        trainer_nodes = self._plan.trainer_nodes
        ranks = {rank for rank, node_id in enumerate(trainer_nodes) if node_id == node.node_id}
        return shard(self._workspace, shard_dirs, ranks, len(trainer_nodes))


def _below(node: Node) -> str:
    """Return the job directory relative to ROOT_DIR; nodes that share ROOT_DIR have separate ones."""
    return node.job_dir.removeprefix(node.root_dir.rstrip("/") + "/")


def listed(plan: Plan) -> list[str]:
    """Return a listing, as lines, of the files that would be sent, for --dry_run."""
    package = plan.settings.job.package
    shard_dirs = plan.settings.job.shard_dirs
    return [] if package is None else of_workspace(package, _withheld(plan), shard_dirs)


def _withheld(plan: Plan) -> frozenset[str]:
    """Return the workspace's files of variables, relative to it: they are not sent, as they may contain secrets."""
    root = plan.settings.job.package
    found = [form for path in plan.settings.job.env_files for form in (path.absolute(), path.resolve())]
    roots = [root.absolute(), root.resolve()] if root is not None else []
    return frozenset(
        str(path.relative_to(top)) for path in found for top in roots if path.is_relative_to(top)
    )


def _workspace(root: Path, plan: Plan, note: Callable[[str], object]) -> Package:
    """Return the package of the workspace, after checking that it contains the trainers' entry and the shards."""
    digests = Digests(
        memory_of(root, plan.settings.state.jobs),
        reads=lambda size: note(
            f"reading {size_text(size)} in {root}; later jobs read only changed files, and .paddleignore excludes files"
        ),
    )
    package = workspace_package(root, _withheld(plan), digests, plan.settings.job.keep_links)
    names = files(plan.settings.job.entry, root)
    if names and not {one.path for one in package.entries}.intersection(names):
        raise WorkspaceError(
            f"{names[0]} is not sent to the nodes: a pattern in .paddleignore matches it, or it is in log/ or "
            "output/, which are never sent; move the file or change the pattern"
        )
    for directory in plan.settings.job.shard_dirs:
        if len(shard(package, [directory], (), 1).entries) == len(package.entries):
            raise WorkspaceError(
                f"--shard_dirs: no file in {directory} has a number of five digits, as in train-00003.txt, so every "
                "trainer would get all files; number the files, or omit --shard_dirs"
            )
    return package


_SELDOM_NEEDED = {
    *(".venv", "venv", ".tox", "node_modules", ".cache", ".svn"),
    *("wandb", "mlruns", "lightning_logs", "checkpoints"),
}
_WORTH_BYTES = 10 << 20
SHOWN = 20  # maximum number of files with one line each
LARGEST = 5  # number of files listed if there are more
FOLDERS = 10


class Sized(NamedTuple):
    """A path in the workspace, with the size of the file in bytes."""

    path: str
    size: int


def of_workspace(root: Path, withheld: Collection[str], shard_dirs: Sequence[str]) -> list[str]:
    """Describe the files that a dispatch would send, as lines; reads no file."""
    left_out: list[LeftOut] = []
    files = [Sized(path, size) for path, size in survey(root, withheld, left_out)]
    share = f"; {', '.join(shard_dirs)}: one shard per node" if shard_dirs else ""
    lines = [f"to send: {_total(files)} (only where missing){share}"]
    if len(files) <= SHOWN:
        lines += _rows(sorted(files))
    else:
        lines += [*_folders(files), "  the largest:", *_rows(largest(files), "    ")]
    return [*lines, *_unneeded(files), *omitted_file_lines(left_out)]


def warning(files: Sequence[Sized], node: str, limit_mb: int, left_out: Sequence[LeftOut]) -> list[str]:
    """Return the warning to print before a large transfer to a node; "" if the files are small."""
    return [
        f"{node} is missing {_total(files)}, more than WARN_SIZE_MB = {limit_mb}; the largest:",
        *_rows(largest(files)),
        *omitted_file_lines(left_out),
        *(list(_unneeded(files)) or [f"  (files named in {IGNORE_FILE} are not sent)"]),
    ]


def _unneeded(files: Sequence[Sized]) -> Iterator[str]:
    """Yield a line about directories that jobs seldom need, and how to leave them out."""
    sizes = Counter[str]()
    for one in files:
        for name in set(one.path.split("/")[:-1]) & _SELDOM_NEEDED:
            sizes[name] += one.size
    large = {name: size for name, size in sizes.most_common(LARGEST) if size >= _WORTH_BYTES}
    if large:
        found = ", ".join(f"{name}/ ({size_text(size)})" for name, size in large.items())
        patterns = "".join(f"{name}/\\n" for name in large)
        yield f"  unless the job reads {found}, run in the workspace: printf '{patterns}' >> {IGNORE_FILE}"


def largest(files: Sequence[Sized]) -> list[Sized]:
    """Return the LARGEST largest files, in descending order of size."""
    return sorted(files, key=lambda one: (-one.size, one.path))[:LARGEST]


def omitted_file_lines(left_out: Sequence[LeftOut]) -> list[str]:
    """Return lines about the files that are not sent, grouped by rule."""
    lines = []
    for rule in dict.fromkeys(one.rule for one in left_out):
        paths = sorted(one.path for one in left_out if one.rule == rule)
        names = Counter(path.rstrip("/").rpartition("/")[2] for path in paths)
        if len(names) == 1 and len(paths) > 1:
            shown = [f"{len(paths)} {visible(next(iter(names)))}"]
        else:
            shown = [visible(path) for path in paths[:LARGEST]]
            shown += [f"{len(paths) - LARGEST} more"] if len(paths) > LARGEST else []
        lines.append(f"  not sent because of {rule}: {', '.join(shown)}")
    return lines


def _total(files: Sequence[Sized]) -> str:
    return f"{counted(len(files), 'file')}, {size_text(sum(one.size for one in files))}"


def _rows(files: Sequence[Sized], indent: str = "  ") -> Iterator[str]:
    sizes = [size_text(one.size) for one in files]
    wide = max(map(len, sizes), default=0)
    for one, size in zip(files, sizes, strict=True):
        yield f"{indent}{size:>{wide}}  {visible(one.path)}"


def _folders(files: Sequence[Sized]) -> Iterator[str]:
    """Yield one line per top-level folder, largest first."""
    sizes, counts = Counter[str](), Counter[str]()
    for one in files:
        folder = one.path.partition("/")[0] + "/" if "/" in one.path else "at the top"
        sizes[folder] += one.size
        counts[folder] += 1
    order = sorted(counts, key=lambda folder: (-sizes[folder], folder))
    wide = max(len(size_text(sizes[folder])) for folder in order[:FOLDERS])
    for folder in order[:FOLDERS]:
        yield f"  {size_text(sizes[folder]):>{wide}}  {visible(folder)}  ({counted(counts[folder], 'file')})"
    if len(order) > FOLDERS:
        rest = order[FOLDERS:]
        size = sum(sizes[folder] for folder in rest)
        yield f"  {size_text(size):>{wide}}  in {counted(len(rest), 'more folder')}"
