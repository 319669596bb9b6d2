# SPDX-License-Identifier: Apache-2.0
"""Watches the collected directories for new and changed files and directories, and passes them to the sender.

A renamed log is recognized by its inode and the digests of the sent bytes: `moved` reports the new name, and sending
continues at the same position. Any other file that is replaced, shrinks, or is rewritten in place is sent again from
its beginning (`reset`). A link within output/ is sent as a link. A link in log/ to a file inside the job directory is
sent under the link's name, and its target is not sent a second time. Files that were removed before they were sent are
counted and reported. `finish` runs a last scan, which determines the collected files.
"""

from __future__ import annotations

import os
import stat
import time
from typing import Any, Dict, List, Optional, Sequence, Set, Tuple

from paddle_node.agent.files.saved_files import SavedFiles
from paddle_node.agent.files.sender import Sender
from paddle_node.agent.files.sent_files import Listing, Tailed, inode, listing, permissions
from paddle_node.agent.link.loop import Loop, Timer
from paddle_node.agent.link.outbox import Outbox
from paddle_node.contract.names import LOG, OUTPUT
from paddle_node.contract.text import visible_line

SCAN_S = 0.25
IDLE_SCAN_S = 1.0
SCAN_SHARE = 10  # a scan may take one tenth of the time
POKE_S = 0.03
TELL_S = 10.0
_MOST_NAMES, _MOST_OF_A_NAME = 10, 100  # of uncollected files; characters of a name
_NEVER = ("__pycache__", "nohup.out")  # and hidden files


class Tailer:
    """Finds new and changed files in the collected directories of one job directory.

    Args:
        outbox: the queue that requests chunks and carries reports to the launcher.
        saved: the directory of checkpoints that scripts save, outside the job directory.

    Attributes:
        sender: sends the files that were found.
    """

    def __init__(self, loop: Loop, job_dir: str, outbox: Outbox, saved: Optional[SavedFiles] = None) -> None:
        self._saved = saved
        self._loop = loop
        self._job_dir = os.path.realpath(job_dir)
        self._outbox = outbox
        self._lost: Dict[str, int] = {}
        self._lost_told_at = 0.0
        self._dirs: Sequence[str] = []
        self._old_names: Set[str] = set()
        self._wait_s = SCAN_S
        self._timer: Optional[Timer] = None
        self._poke_timer: Optional[Timer] = None
        self._poked: Dict[str, None] = {}
        self._led_away: Dict[str, None] = {}
        self._folders: Dict[str, os.stat_result] = {}
        self._links: Dict[str, str] = {}
        self._left_out: Dict[str, str] = {}
        self._was_left_out: Dict[str, str] = {}
        self.sender = Sender(loop, outbox, self._absolute)
        self._files = self.sender.files

    def watch(self, dirs: Sequence[str]) -> None:
        """Start watching; existing files count as known, and are sent only if they change."""
        self._dirs = dirs
        self._old_names = self._names()
        there = self._listing()
        self._folders, self._links = there.folders, there.links
        self._was_left_out = there.left_out
        for path, status in there.files.items():
            tailed = self._files[path] = Tailed(status)
            tailed.is_old = True
        self._timer = self._loop.after(SCAN_S, self._scan_again)

    def written(self, path: str, rotated: bool) -> None:
        """Note that a file was written to, so that it need not wait for the next scan; after a rotation, scan now."""
        if rotated:
            self.scan()
            return
        self._poked[path] = None
        if self._poke_timer is None:
            self._poke_timer = self._loop.after(POKE_S, self._look_at_poked)

    def finish(self) -> None:
        """Scan one last time, after all processes of the job have exited."""
        if self.sender.is_watching:
            self.scan()
            self._date_folders()
            self._tell_lost(now=True)
            self._report_left_out()
        self.sender.finish()

    def left(self) -> Dict[str, Any]:
        """Return the fields of `goodbye`: the job directory if data was not sent, and new names that are not collected.

        Names of directories end with a slash.
        """
        new = sorted(self._names() - self._old_names - {path + "/" for path in self._dirs})
        new = [path + " (a link)" for path in self._led_away if os.path.islink(self._absolute(path))] + new
        return {
            "rest": None if self.sender.is_verified else self._job_dir,
            "uncollected": [visible_line(name)[:_MOST_OF_A_NAME] for name in new[:_MOST_NAMES]],
            "has_saved": self._saved is not None and self._saved.has_unnamed(),
        }

    def _names(self) -> Set[str]:
        """Return the names in the job directory, without hidden files, caches and an empty output/."""
        found: Set[str] = set()
        try:
            for entry in os.scandir(self._job_dir):
                if entry.name.startswith(".") or entry.name in _NEVER:
                    continue
                is_folder = entry.is_dir()
                if not is_folder or entry.name != OUTPUT or os.listdir(entry.path):
                    found.add(entry.name + "/" * is_folder)
        except OSError:
            pass  # a script may have removed the directory
        return found

    def scan(self) -> bool:
        """Scan all collected directories; return whether any file changed."""
        if not self.sender.is_watching:
            return False
        self.sender.is_held = True  # data sent after this exceeds what was listed
        try:
            changed = self._scan()
        finally:
            self.sender.is_held = False
        self._outbox.soon()
        return changed

    def _scan(self) -> bool:
        listed, folders, links, self.sender.problems, self._left_out = self._listing()
        self._tell_of_links()
        self._follow(listed)
        self._remove_links(links)
        removed = self._send_folders(folders)
        self._send_links(links)
        changed = self.sender.has_orders
        for path, status in listed.items():
            if self._compare(path, status):
                changed = True
                self._send_folder_of(path)
        for path in [path for path in self._files if path not in listed]:
            self._lose(path)
        for path in removed:
            if path not in listed and path not in links:
                self.sender.order("removed", path=path)
        self._tell_lost()
        return changed

    def _listing(self) -> Listing:
        found = listing(self._job_dir, self._dirs)
        if self._saved is not None:
            self._saved.add_to(found)
        return found

    def _tell_of_links(self) -> None:
        for path in self._dirs:
            if path not in self._led_away and os.path.islink(self._absolute(path)):
                self._led_away[path] = None
                self._outbox.notice("%s has become a link; its target is not collected" % path)

    def _report_left_out(self) -> None:
        """Report the first of the new links and special files that are not collected, and their number."""
        found = sorted(set(self._left_out.items()) - set(self._was_left_out.items()))
        if found:
            path, target = found[0]
            self._outbox.send(
                "notice",
                text="%s: not collected: %s%s"
                % (
                    path,
                    "this link to %s points outside the job directory or to a missing file" % target
                    if target
                    else "not a regular file, directory or link",
                    "; %d more links and special files were skipped, too" % (len(found) - 1)
                    if found[1:]
                    else "",
                ),
            )

    def _send_folders(self, folders: Dict[str, os.stat_result]) -> List[str]:
        """Send new directories and new permissions; return sent directories that were removed, subdirectories first."""
        for path, status in folders.items():
            known = self._folders.get(path)
            if known is None or permissions(known) != permissions(status):
                self.sender.send_folder(path, status)
        removed = sorted(self.sender.folders.keys() - folders.keys(), reverse=True)
        for path in removed:
            del self.sender.folders[path]
        self._folders = folders
        return removed

    def _send_folder_of(self, path: str) -> None:
        """Send the directory of a file if it existed before the job and has not been sent."""
        folder = path.rpartition("/")[0]
        if folder in self._folders and folder not in self.sender.folders:
            self._send_folder_of(folder)
            self.sender.send_folder(folder, self._folders[folder])

    def _date_folders(self) -> None:
        """Send the final times of directories, which change with every new file."""
        for path, sent in self.sender.folders.items():
            if sent.st_mtime_ns != self._folders[path].st_mtime_ns:
                self.sender.send_folder(path, self._folders[path])

    def _remove_links(self, links: Dict[str, str]) -> None:
        for path in [path for path in self._links if path not in links]:
            self.sender.links.pop(path, None)
            self.sender.order("removed", path=path)

    def _send_links(self, links: Dict[str, str]) -> None:
        for path, target in links.items():
            if self._links.get(path) != target:
                self.sender.links[path] = target
                self.sender.send_link(path)
        self._links = links

    def _lose(self, path: str) -> None:
        """Handle a removed file, so that the launcher does not wait for the rest of a partially sent one."""
        if self._files[path].is_partial and not _is_log(path):
            self.sender.order("removed", path=path)
        self._tell_of_log(
            path, "was removed; the part already sent is preserved" + _unsent(self._forget(path))
        )

    def _follow(self, listed: Dict[str, os.stat_result]) -> None:
        """Detect renamed logs, and report them before any more of their data is sent."""
        places = {inode(status): path for path, status in listed.items() if _is_log(path)}
        moves = {}
        for path, tailed in self._files.items():
            there = listed.get(path)
            if not _is_log(path) or (there is not None and inode(there) == tailed.inode):
                continue
            to = places.get(tailed.inode)
            if to is not None and self._is_same(to, tailed, listed[to]):
                moves[path] = to
        for path, to in _in_order(moves):
            self._move(path, to)

    def _is_same(self, path: str, tailed: Tailed, status: os.stat_result) -> bool:
        """Return whether a file with the same inode number is the same file: these numbers are reused."""
        if status.st_size < max(tailed.size, tailed.offset):
            return False
        return tailed.offset == 0 or tailed.is_beginning_of(self._absolute(path)) is True

    def _move(self, path: str, to: str) -> None:
        if not self._files[path].reset:
            self.sender.order("moved", path=path, to=to)  # before any chunk can be sent under the new name
        if to in self._files:
            self._lost[to] = self._lost.get(to, 0) + self._forget(to)
        self._files[to] = self._files.pop(path)
        if self.sender.forget(path):
            self.sender.enqueue(to)

    def _forget(self, path: str) -> int:
        """Stop following a file; return how many of its bytes were not sent."""
        tailed = self._files.pop(path)
        self.sender.forget(path)
        return max(0, tailed.size - tailed.offset)

    def _tell_lost(self, now: bool = False) -> None:
        moment = time.monotonic()
        if not now and self._lost_told_at and moment - self._lost_told_at < TELL_S:
            return
        for path, size in self._lost.items():
            if size:
                self._lost_told_at = moment
                self._outbox.notice(
                    "%s: %d bytes were dropped before they were sent: the file grows faster than the connection can "
                    "send" % (path, size)
                )
        self._lost.clear()

    def _scan_again(self) -> None:
        if not self.sender.is_watching:
            return
        began = time.monotonic()
        changed = self.scan()
        took = time.monotonic() - began
        self._wait_s = SCAN_S if changed else min(self._wait_s * 2, IDLE_SCAN_S)
        self._timer = self._loop.after(max(self._wait_s, took * SCAN_SHARE), self._scan_again)

    def _look_at_poked(self) -> None:
        self._poke_timer = None
        if not self.sender.is_watching:
            return
        poked, self._poked = self._poked, {}
        for path in poked:
            try:
                status = os.stat(self._absolute(path), follow_symlinks=False)
            except OSError:
                continue
            tailed = self._files.get(path)
            if tailed is not None and tailed.inode != inode(status):
                self.scan()  # it may have been renamed
            elif stat.S_ISREG(status.st_mode):
                self._compare(path, status)
        self._outbox.soon()

    def _compare(self, path: str, status: os.stat_result) -> bool:
        tailed = self._files.get(path)
        if tailed is None:
            self._files[path] = Tailed(status)
        elif tailed.inode != inode(status):
            rest = _unsent(tailed.size - tailed.offset)
            tailed.restart(status)
            self._tell_of_log(path, "was replaced; the new file is sent from its start" + rest)
        elif status.st_size < tailed.offset:
            tailed.restart(status)
            self._tell_of_log(path, "was truncated; it is sent again from its start")
        elif (
            status.st_mtime_ns != tailed.changed
            and (tailed.reset or self._was_rewritten(path, tailed, status))
        ) or tailed.was_touched(status):
            tailed.restart(status)
        elif status.st_size == tailed.offset and permissions(status) == tailed.mode:
            tailed.check(status)
            return False
        tailed = self._files[path]
        tailed.check(status)
        self.sender.enqueue(path)
        return True

    def _was_rewritten(self, path: str, tailed: Tailed, status: os.stat_result) -> bool:
        if tailed.offset == 0 or (_is_log(path) and status.st_size > tailed.offset and tailed.has_samples):
            return False  # logs grow; reading them again after each line would cost too much
        if not _is_log(path) and status.st_size == tailed.offset:
            return True  # same size, rewritten: only reading the whole file would reveal it
        return tailed.is_beginning_of(self._absolute(path)) is False

    def _absolute(self, path: str) -> str:
        saved = None if self._saved is None else self._saved.absolute(path)
        return self._job_dir + "/" + path if saved is None else saved

    def _tell_of_log(self, path: str, what: str) -> None:
        if _is_log(path):
            self._outbox.notice("%s %s" % (path, what))


def _is_log(path: str) -> bool:
    return path.startswith(LOG + "/")


def _unsent(size: int) -> str:
    return " (%d bytes of it were not sent)" % size if size > 0 else ""


def _in_order(moves: Dict[str, str]) -> List[Tuple[str, str]]:
    """Return renames (from, to), the end of each chain first; cyclic renames are left out."""
    rest = dict(moves)
    ordered = []
    while rest:
        free = [path for path, to in rest.items() if to not in rest]
        if not free:
            break
        for path in free:
            ordered.append((path, rest.pop(path)))
    return ordered
