# SPDX-License-Identifier: Apache-2.0
"""Receives trees of files from the launcher and from other nodes, and publishes each in one step.

Long work runs in slices on the loop. A failure leaves only complete files in the cache; a later attempt continues from
them.
"""

from __future__ import annotations

import errno
import os
from typing import Any, Callable, Dict, Iterator, List, Sequence

from paddle_node.agent.files import disk
from paddle_node.agent.files.arrivals import Arrivals, DigestError
from paddle_node.agent.files.building import Builder
from paddle_node.agent.files.cache import STALE_S, Cache
from paddle_node.agent.files.manifest import ManifestError, add, check_tree, parse
from paddle_node.agent.files.shared_folders import SharedFolders
from paddle_node.agent.files.shared_trees import SharedTrees
from paddle_node.agent.files.tree import Tree, pieces
from paddle_node.agent.link.loop import Loop
from paddle_node.contract.names import LOG
from paddle_node.contract.to_agent import Blob, Commit, Extras, File, Manifest

DIGESTS_A_FRAME = 50_000
TELL_S = 1.0  # seconds between reports of the progress
STEP = 64  # files checked without returning to the loop
AT_ONCE = (
    1 << 20
)  # bytes of a tree that is built so fast that `committed` alone reports that no file is missing

Send = Callable[..., None]


class Trees:
    """The trees of files that one agent receives.

    Args:
        committed: function that is called with the tree's name, its absolute path and the directories to collect.

    Attributes:
        shared: the trees' interface for the relay.
    """

    def __init__(
        self, loop: Loop, root_dir: str, send: Send, committed: Callable[[str, str, Sequence[str]], None]
    ) -> None:
        self._loop = loop
        self._root_dir = root_dir
        self._send = send
        self._committed = committed
        self._own = root_dir + "/.paddle"
        self._building = self._own + "/building"
        self._cache = Cache(self._own + "/cache")
        self._arrivals = Arrivals(self._cache, self._took)
        self._builder = Builder(self._building, self._cache)
        self._shared_folders = SharedFolders(root_dir)
        self._trees: Dict[str, Tree] = {}
        self._will_tell = False
        self.shared = SharedTrees(
            self._cache,
            self._arrivals,
            self._trees,
            lacking=self._say_lacking,
            broken=lambda name, tree, error: self._fail_on_disk(tree, "fetch", name, error),
        )

    def manifest(self, asked: Manifest, body: bytes) -> None:
        """Handle part of a manifest; after the last part, report the missing files or build the tree.

        Raises:
            ValueError: the first part lacks `dest`.
        """
        name = asked.tree
        tree = self._trees.get(name)
        if tree is None or asked.first:
            if asked.dest is None:
                raise ValueError("manifest.dest is missing in the first part")
            tree = self._trees[name] = Tree(asked.dest, asked.unpacked, asked.wheels)
        if tree.failed:
            return
        if asked.commit is not None:
            tree.extras = asked.commit
        try:
            for entry in parse(body).values():
                add(tree.entries, entry)
            if asked.final:
                check_tree(tree.entries)
                tree.check()
        except ManifestError as error:
            self._fail(tree, "manifest", name, "manifest", str(error))
            return
        if asked.final:
            self._loop.work(self._guarded("manifest", name, tree, self._compare(name, tree)))

    def blob(self, asked: Blob, body: bytes) -> None:
        """Store the piece of a file, or the small files, that a `blob` carries."""
        name = asked.tree
        found = pieces(asked, body)
        tree = self._trees.get(name)
        if tree is None or tree.failed:
            return  # the rest of a stream whose failure was already reported
        try:
            for digest, offset, data, last in found:
                self._store(digest, offset, data, last)
        except DigestError as error:
            self._fail(tree, "blob", name, "digest", str(error))
        except OSError as error:
            self._fail_on_disk(tree, "blob", name, error)

    def commit(self, asked: Commit) -> None:
        """Build and publish a tree, or use an existing directory (`dest`, without a manifest)."""
        name, extras = asked.tree, Extras(asked.files, asked.collect)
        tree = self._trees.get(name)
        if tree is None:
            tree = Tree(asked.dest)
            self._loop.work(self._guarded("commit", name, tree, self._adopt(name, tree, extras)))
        elif tree.failed:
            self._forget(name, tree)
        else:
            self._build_soon(name, tree, extras)

    def close(self) -> None:
        """Discard all incomplete trees; mark cached files as unchanged, so that the next job need not read them."""
        self._arrivals.drop_all()
        self._builder.drop()
        self._cache.settle()

    def _took(self) -> None:
        if not self._will_tell:
            self._will_tell = True
            self._loop.after(TELL_S, self._report_arrived)

    def _report_arrived(self) -> None:
        self._will_tell = False
        if self._trees:
            self._send("arrived", bytes=self._arrivals.taken)

    # Steps

    def _guarded(self, request: str, name: str, tree: Tree, steps: Iterator[None]) -> Iterator[None]:
        try:
            yield from steps
        except OSError as error:
            self._fail_on_disk(tree, request, name, error)
        except ManifestError as error:
            self._fail(tree, request, name, "path", str(error))
        except ValueError as error:  # not a valid file name
            self._fail(tree, request, name, "value", str(error))

    def _prepare(self) -> None:
        disk.own_folder(*os.path.split(self._building))
        for folder in (self._own, self._building):
            disk.spread(folder)
        self._cache.prepare()

    def _compare(self, name: str, tree: Tree) -> Iterator[None]:
        self._prepare()
        # runtimes and environments are shared; a job's own tree was published before a connection was lost
        if self._shared_folders.hold(self._root_dir + "/" + tree.dest):
            tree.there = True
            self._say_lacking(name, tree, [])
            return
        yield from disk.removing(disk.older_than(self._building, STALE_S))
        tree.files = {entry.digest: entry.size for entry in tree.entries.values() if isinstance(entry, File)}
        self.shared.offered.update(tree.files)
        lacking = []
        for count, (digest, size) in enumerate(tree.files.items()):
            if not self._cache.use(digest, size) and not (yield from self._cache.check(digest)):
                lacking.append(digest)
            if count % STEP == 0:
                yield
        need = sum(tree.files[digest] for digest in lacking) + tree.size()
        free = disk.free_bytes(self._root_dir)
        if need > free:
            message = "%s has %s free, but %s are needed" % (
                self._root_dir,
                disk.size_text(free),
                disk.size_text(need),
            )
            self._fail(tree, "manifest", name, "disk", message, missing_bytes=need - free)
            return
        self._say_lacking(name, tree, lacking)

    def _say_lacking(self, name: str, tree: Tree, lacking: List[str]) -> None:
        common = {"tree": name, "cached_files": len(tree.files) - len(lacking), "have_tree": tree.there}
        relayed = self.shared.relayed(tree)
        extras = None if lacking else tree.extras
        is_soon = extras is not None and not relayed and (tree.there or tree.size() <= AT_ONCE)
        for start in () if is_soon else range(0, max(1, len(lacking)), DIGESTS_A_FRAME):
            part = lacking[start : start + DIGESTS_A_FRAME]
            offsets = {digest: self._arrivals.size_of(digest) for digest in part}
            self._send(
                "lacking",
                digests=part,
                offsets={digest: offset for digest, offset in offsets.items() if offset},
                relayed=relayed,
                final=start + DIGESTS_A_FRAME >= len(lacking),
                **common,
            )
        if extras is not None:
            self._build_soon(name, tree, extras)

    def _store(self, digest: str, offset: int, data: memoryview, last: bool) -> None:
        incoming = self._arrivals.get(digest)
        if offset == 0:
            if last:
                self._arrivals.put(digest, data)
                return
            incoming = self._arrivals.begin(digest)
        if incoming is None:
            raise DigestError("%s: the first bytes of this file never arrived" % digest)
        self._arrivals.write(incoming, offset, data)
        if last:
            self._arrivals.publish(incoming)

    def _build_soon(self, name: str, tree: Tree, extras: Extras) -> None:
        self._loop.work(self._guarded("commit", name, tree, self._build(name, tree, extras)))

    def _build(self, name: str, tree: Tree, extras: Extras) -> Iterator[None]:
        final = self._root_dir + "/" + tree.dest
        if not tree.there:
            if tree.unpacked is None:
                yield from self._builder.build(final, tree.entries, *extras)
            elif tree.is_wheels:
                wheels = [(path, self._cache.path(digest)) for path, digest in tree.wheels()]
                yield from self._builder.install(final, wheels, tree.unpacked)
            else:
                yield from self._builder.unpack(final, self._cache.path(tree.bundle()))
            self._shared_folders.hold(final)
            self._cache.save()
        self._done(name, final, tree, extras.collect)
        if not tree.there:
            self._loop.chore(self._cache.prune())
            self._loop.chore(self._shared_folders.prune())

    def _adopt(self, name: str, tree: Tree, extras: Extras) -> Iterator[None]:
        job_dir = os.path.join(self._root_dir, os.path.expanduser(tree.dest))
        if not tree.dest or not os.path.isdir(job_dir):
            raise ManifestError("%s is not a directory on this node" % job_dir)
        for folder in extras.collect:
            disk.ready_folder(job_dir + "/" + folder, empty=folder == LOG)
            yield
        for path, content in extras.files.items():
            disk.write_text(job_dir + "/" + path, content)
        self._done(name, job_dir, tree, extras.collect)

    def _done(self, name: str, path: str, tree: Tree, collect: Sequence[str]) -> None:
        self._forget(name, tree)
        self._committed(name, path, collect)
        size = {"files": len(tree.entries), "bytes": tree.size()}
        self._send("committed", tree=name, job_dir=path, have_tree=tree.there, **size)

    def _forget(self, name: str, tree: Tree) -> None:
        if self._trees.get(name) is tree:
            del self._trees[name]

    def _fail_on_disk(self, tree: Tree, request: str, name: str, error: OSError) -> None:
        if error.errno not in (errno.ENOSPC, errno.EDQUOT):
            text = "%s: %s" % (error.filename or self._root_dir, error.strerror or error)
            self._fail(tree, request, name, "files", text)
            return
        self._arrivals.drop_all()
        if error.errno == errno.EDQUOT:
            text = "your disk quota for %s is exhausted; remove files, or set a different ROOT_DIR"
            self._fail(tree, request, name, "disk", text % self._root_dir)
            return
        free, inodes = disk.free_bytes(self._root_dir), disk.free_inodes(self._root_dir)
        lacking = sum(size for digest, size in tree.files.items() if not self._cache.has(digest, size))
        missing = lacking + tree.size() - free
        if missing <= 0 and inodes is not None:  # free space, but no free inodes
            text = "%s has only %d free inodes; remove files, or set a different ROOT_DIR" % (
                self._root_dir,
                inodes,
            )
        else:
            text = "%s is full: %s free, %s more needed" % (
                self._root_dir,
                disk.size_text(free),
                disk.size_text(max(1, missing)),
            )
        self._fail(tree, request, name, "disk", text, missing_bytes=max(0, missing))

    def _fail(self, tree: Tree, request: str, name: str, reason: str, detail: str, **more: Any) -> None:
        tree.failed = True
        self._arrivals.drop_all()
        self._arrivals.wake()  # agents waiting for a file of this tree must get it elsewhere
        self._send("failed", request=request, tree=name, reason=reason, detail=detail, **more)
