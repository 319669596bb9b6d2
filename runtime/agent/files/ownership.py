# SPDX-License-Identifier: Apache-2.0
"""Who can put other files in the place of a job's: the owners and modes of every directory on the way to a path.

A directory that somebody else owns, or that others can write, lets him rename what lies in it and put his own code
there, however well that is protected itself. The walk goes by descriptors from the root, and follows links by itself,
so that what was looked at is what is there. Access lists need no look of their own: their mask is the group's bits.
"""

from __future__ import annotations

import os
import stat
from typing import List

_MAX_LINKS = 40
_OTHERS = stat.S_IWGRP | stat.S_IWOTH
_WAY_OUT = "name a directory of your own, below one that only you or root can write"


def problem(path: str) -> str:
    """Why files below `path` are not safe from other users of this machine, with the way out; empty if they are.

    Directories on the way must belong to this user or to root and be closed to others, or be sticky; `path` itself
    must be this user's and closed. What is not there yet is no problem: who makes it looks again.

    Raises:
        OSError: a directory cannot be looked at.
    """
    at, todo, links = "/", _parts(path), 0
    fd = os.open("/", os.O_PATH | os.O_CLOEXEC)
    try:
        found = _fault("/", os.fstat(fd), last=not todo)
        while todo and not found:
            holder, name = os.fstat(fd), todo.pop()
            try:
                inner = os.open(name, os.O_PATH | os.O_NOFOLLOW | os.O_CLOEXEC, dir_fd=fd)
            except FileNotFoundError:
                return ""
            status = os.fstat(inner)
            if not stat.S_ISLNK(status.st_mode):
                os.close(fd)
                fd, at = inner, os.path.normpath(os.path.join(at, name))
                found = _fault(at, status, last=not todo)
                continue
            os.close(inner)
            links += 1
            if links > _MAX_LINKS:
                return "%s: too many links" % path
            if holder.st_mode & stat.S_ISVTX and not _trusted(status):
                return "%s/%s is a link of uid %d; %s" % (at, name, status.st_uid, _WAY_OUT)
            target = os.readlink(name, dir_fd=fd)
            todo += _parts(target)
            if target.startswith("/"):
                os.close(fd)
                fd, at = os.open("/", os.O_PATH | os.O_CLOEXEC), "/"
        return found
    finally:
        os.close(fd)


def closed_to_others(status: os.stat_result) -> bool:
    """Whether nobody but the owner can write; the group that this user has to himself counts as the owner."""
    mode = status.st_mode & _OTHERS
    return not mode or (mode == stat.S_IWGRP and status.st_uid == os.geteuid() and _is_private(status.st_gid))


def _parts(path: str) -> List[str]:
    """Components, the last one first; `..` stays, for it means something else behind a link."""
    return [part for part in reversed(path.split("/")) if part not in ("", ".")]


def _trusted(status: os.stat_result) -> bool:
    return status.st_uid in (0, os.geteuid())


def _fault(path: str, status: os.stat_result, last: bool) -> str:
    if not _trusted(status) or (last and status.st_uid != os.geteuid()):
        return "%s belongs to uid %d, who can put other files there; %s" % (path, status.st_uid, _WAY_OUT)
    if closed_to_others(status) or (status.st_mode & stat.S_ISVTX and not last):
        return ""
    who = "everybody" if status.st_mode & stat.S_IWOTH else "the group %d" % status.st_gid
    return "%s can be written by %s: chmod go-w %s, or %s" % (path, who, path, _WAY_OUT)


def _is_private(gid: int) -> bool:
    """Whether a group is the one that many systems make for each user, of his name and with nobody else in it."""
    import grp
    import pwd

    try:
        user, group = pwd.getpwuid(os.geteuid()), grp.getgrgid(gid)
    except KeyError:
        return False
    return user.pw_gid == gid and group.gr_name == user.pw_name and not set(group.gr_mem) - {user.pw_name}
