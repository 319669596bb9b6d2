# SPDX-License-Identifier: Apache-2.0
"""Receives trees of files and publishes each by one rename, so that nobody ever sees half of one.

Long work runs in slices of the loop. What fails leaves no files behind except whole ones in the cache, from
which a later try goes on.
"""

from __future__ import annotations

import errno
import os
import shutil
from typing import Any, Callable, Dict, Iterator, List, Set

from agent import disk
from agent.cache import STALE_S, Cache, DigestError, Incoming, copy, is_digest
from agent.fields import names_and_texts, relative_path, text, texts, whole
from agent.loop import Loop
from agent.manifest import Entry, File, Folder, ManifestError, Symlink, add, check_tree, parse
from agent.protocol import Fields

LOG_DIR = "log"
DIGESTS_A_FRAME = 50_000

Send = Callable[..., None]


class Tree:
    """One tree between its manifest and its commit."""

    def __init__(self, dest: str) -> None:
        self.dest = dest
        self.entries: Dict[str, Entry] = {}
        self.failed = False
        self.there = False  # the node has it already

    def files(self) -> Dict[str, int]:
        """Sizes by digest."""
        return {entry.digest: entry.size for entry in self.entries.values() if isinstance(entry, File)}

    def size(self) -> int:
        """Bytes of all files."""
        return sum(entry.size for entry in self.entries.values() if isinstance(entry, File))


class Trees:
    """All trees of one agent.

    Args:
        committed: called with the tree's name, its absolute path and the directories to collect.
    """

    def __init__(
        self, loop: Loop, root_dir: str, send: Send, committed: Callable[[str, str, List[str]], None]
    ) -> None:
        self._loop = loop
        self._root_dir = root_dir
        self._send = send
        self._committed = committed
        self._own = root_dir + "/.paddle"
        self._building = self._own + "/building"
        self._cache = Cache(self._own + "/cache")
        self._trees: Dict[str, Tree] = {}
        self._incoming: Dict[str, Incoming] = {}
        self._asides: Set[str] = set()

    def manifest(self, fields: Fields, body: bytes) -> None:
        """Take a part of a manifest; after the final one answer what is lacking."""
        name = text(fields, "tree")
        tree = self._trees.get(name)
        if tree is None or fields.get("first", False):
            tree = self._trees[name] = Tree(relative_path(text(fields, "dest")))
        if tree.failed:
            return
        try:
            for path, entry in parse(body).items():
                add(tree.entries, path, entry)
            if fields.get("final", True):
                check_tree(tree.entries)
        except ManifestError as error:
            self._fail(tree, "manifest", name, "manifest", str(error))
            return
        if fields.get("final", True):
            self._loop.work(self._guarded("manifest", name, tree, self._compare(name, tree)))

    def blob(self, fields: Fields, body: bytes) -> None:
        """Take a piece of a file."""
        digest = text(fields, "digest")
        if not is_digest(digest):
            raise ValueError("%.80r is no digest" % digest)
        name = text(fields, "tree")
        tree = self._trees.get(name)
        if tree is None or tree.failed:
            return  # the rest of a stream whose failure was told
        try:
            self._store(digest, whole(fields, "offset"), body, bool(fields.get("last", True)))
        except DigestError as error:
            self._fail(tree, "blob", name, "digest", str(error))
        except OSError as error:
            self._fail_on_disk(tree, "blob", name, error)

    def commit(self, fields: Fields) -> None:
        """Build a tree and publish it, or take a directory that is there (`dest`, without a manifest)."""
        name = text(fields, "tree")
        tree = self._trees.pop(name, None)
        files = {relative_path(path): content for path, content in names_and_texts(fields, "files").items()}
        collect = [relative_path(path) for path in texts(fields, "collect")]
        if tree is None:
            tree = Tree(text(fields, "dest"))
            steps = self._adopt(name, tree, files, collect)
        elif tree.failed:
            return
        else:
            steps = self._build(name, tree, files, collect)
        self._loop.work(self._guarded("commit", name, tree, steps))

    def drop(self) -> None:
        """Forget what is half done."""
        self._drop_incoming()
        for aside in self._asides:
            shutil.rmtree(aside, ignore_errors=True)

    def _drop_incoming(self) -> None:
        for incoming in self._incoming.values():
            incoming.drop()
        self._incoming.clear()

    def _guarded(self, request: str, name: str, tree: Tree, steps: Iterator[None]) -> Iterator[None]:
        try:
            yield from steps
        except OSError as error:
            self._fail_on_disk(tree, request, name, error)
        except ManifestError as error:
            self._fail(tree, request, name, "path", str(error))
        except ValueError as error:  # a name that no file can have
            self._fail(tree, request, name, "value", str(error))

    def _compare(self, name: str, tree: Tree) -> Iterator[None]:
        for folder in (self._own, self._building):
            disk.own_folder(folder)
        self._cache.prepare()
        there = self._root_dir + "/" + tree.dest
        if os.path.isdir(there):  # a runtime is shared; a job's own was published before a connection broke
            tree.there = True
            self._send(
                "lacking", tree=name, digests=[], cached_files=len(tree.entries), have_tree=True, final=True
            )
            return
        for path in disk.older_than(self._building, STALE_S):
            shutil.rmtree(path, ignore_errors=True)
            yield
        lacking = []
        files = tree.files()
        for digest, size in files.items():
            yield from self._cache.check(digest, size)
            if not self._cache.has(digest, size):
                lacking.append(digest)
            yield
        need = sum(files[digest] for digest in lacking) + tree.size()
        free = disk.free_bytes(self._root_dir)
        if need > free:
            message = "%s has %d bytes free, %d are needed" % (self._root_dir, free, need)
            self._fail(tree, "manifest", name, "disk", message, missing_bytes=need - free)
            return
        cached = len(files) - len(lacking)
        for start in range(0, max(1, len(lacking)), DIGESTS_A_FRAME):
            part = lacking[start : start + DIGESTS_A_FRAME]
            final = start + DIGESTS_A_FRAME >= len(lacking)
            self._send("lacking", tree=name, digests=part, cached_files=cached, have_tree=False, final=final)

    def _store(self, digest: str, offset: int, body: bytes, last: bool) -> None:
        if offset == 0:
            stale = self._incoming.pop(digest, None)
            if stale is not None:
                stale.drop()
            self._incoming[digest] = self._cache.incoming(digest)
        incoming = self._incoming.get(digest)
        if incoming is None:
            raise DigestError("%s: its first bytes never arrived" % digest)
        incoming.write(offset, body)
        if last:
            incoming.publish()
            del self._incoming[digest]

    def _build(self, name: str, tree: Tree, files: Dict[str, str], collect: List[str]) -> Iterator[None]:
        final = self._root_dir + "/" + tree.dest
        if tree.there:
            self._done(name, final, tree, collect)
            return
        parent, base = os.path.split(final)
        aside = "%s/%s.%s" % (self._building, base, os.urandom(8).hex())
        os.makedirs(parent, exist_ok=True)
        os.mkdir(aside)
        self._asides.add(aside)
        try:
            yield from self._fill(aside, tree)
            for folder in collect:
                os.makedirs(aside + "/" + folder, exist_ok=True)
            for path, content in files.items():
                disk.write_text(aside + "/" + path, content)
            _set_modes(aside, tree)
            try:
                os.rename(aside, final)
            except OSError as error:
                # another agent published the same tree meanwhile
                if error.errno not in (errno.EEXIST, errno.ENOTEMPTY):
                    raise
        finally:
            shutil.rmtree(aside, ignore_errors=True)
            self._asides.discard(aside)
        self._done(name, final, tree, collect)
        yield from self._cache.prune()

    def _fill(self, aside: str, tree: Tree) -> Iterator[None]:
        for path, entry in sorted(tree.entries.items()):
            target = aside + "/" + path
            os.makedirs(target if isinstance(entry, Folder) else os.path.dirname(target), exist_ok=True)
            if isinstance(entry, File):
                fd = os.open(
                    target, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC, 0o600
                )
                try:
                    yield from copy(self._cache.path(entry.digest), fd)
                    os.fchmod(fd, entry.mode)
                finally:
                    os.close(fd)
            yield
        # last, so that nothing is ever written through one
        for path, entry in tree.entries.items():
            if isinstance(entry, Symlink):
                os.symlink(entry.target, aside + "/" + path)

    def _adopt(self, name: str, tree: Tree, files: Dict[str, str], collect: List[str]) -> Iterator[None]:
        job_dir = os.path.join(self._root_dir, os.path.expanduser(tree.dest))
        if not tree.dest or not os.path.isdir(job_dir):
            raise ManifestError("%s is no directory on this node" % job_dir)
        for folder in collect:
            disk.ready_folder(job_dir + "/" + folder, empty=folder == LOG_DIR)
            yield
        for path, content in files.items():
            disk.write_text(job_dir + "/" + path, content)
        self._done(name, job_dir, tree, collect)

    def _done(self, name: str, path: str, tree: Tree, collect: List[str]) -> None:
        self._committed(name, path, collect)
        self._send("committed", tree=name, job_dir=path, files=len(tree.entries), bytes=tree.size())

    def _fail_on_disk(self, tree: Tree, request: str, name: str, error: OSError) -> None:
        if error.errno not in (errno.ENOSPC, errno.EDQUOT):
            self._fail(tree, request, name, "files", str(error))
            return
        self._drop_incoming()
        free = disk.free_bytes(self._root_dir)
        files = tree.files()
        lacking = sum(size for digest, size in files.items() if not self._cache.has(digest, size))
        missing = max(1, lacking + tree.size() - free)
        text = "%s is full: %d bytes free, %d more are needed" % (self._root_dir, free, missing)
        self._fail(tree, request, name, "disk", text, missing_bytes=missing)

    def _fail(self, tree: Tree, request: str, name: str, reason: str, detail: str, **more: Any) -> None:
        tree.failed = True
        self._drop_incoming()
        self._send("failed", request=request, tree=name, reason=reason, detail=detail, **more)


def _set_modes(aside: str, tree: Tree) -> None:
    """Directories last and deepest first: one may forbid to write into it."""
    for path, entry in sorted(tree.entries.items(), reverse=True):
        if isinstance(entry, Folder):
            os.chmod(aside + "/" + path, entry.mode)
