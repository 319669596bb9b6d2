# SPDX-License-Identifier: Apache-2.0
"""Finds other users who can replace files below a path, by owner, mode and access lists of each directory.

A user who owns a directory, or can write to it, can replace its files, however well these are protected. The walk opens
each directory by descriptor from the root and follows links itself, so that the checked directories are the ones that
are used.

POSIX access lists are read where the group may write, since the mode shows their mask, which limits all named entries.
A default list applies to new files, so it counts on the last existing directory. Modes do not show named entries of
NFSv4 lists, so these are read on every directory; deny entries are ignored.
"""

from __future__ import annotations

import errno
import os
import stat
import struct
from typing import Callable, List, Optional, Tuple

_MAX_LINKS = 40
_ADVICE = "use a directory of your own inside one that only you or root can write to"

_ACCESS, _DEFAULT, _NFS4 = "system.posix_acl_access", "system.posix_acl_default", "system.nfs4_acl"
_NO_LIST = (errno.ENODATA, errno.EOPNOTSUPP, errno.ENOSYS, errno.EINVAL)
_VERSION, _WRITE = 2, 2  # of linux/posix_acl_xattr.h, as are the tags
_OWNER, _USER, _OWN_GROUP, _GROUP, _MASK, _OTHER = 0x01, 0x02, 0x04, 0x08, 0x10, 0x20
_ALLOW, _LAST_TYPE = 0, 3  # of RFC 8881, 6.2.1, as are the flags and bits
_INHERITED, _INHERITED_ONLY, _IS_GROUP = 0x1 | 0x2, 0x8, 0x40
_CHANGES = (
    0x2 | 0x4 | 0x40 | 0x10000 | 0x40000 | 0x80000
)  # add, delete a child or itself, write list or owner

Writer = Tuple[int, str]
"""Tag of an entry that grants writing; the name or number of its user or group, empty for the directory's own."""

_SPECIAL = {"GROUP@": (_OWN_GROUP, ""), "EVERYONE@": (_OTHER, "")}


def problem(path: str, may_be_roots: bool = False) -> str:
    """Return how other users could replace files below `path`, as a sentence with a remedy; "" if they cannot.

    Every parent directory must belong to this user or to root, and must be closed to other users or sticky. Links must
    belong to one of the two. `path` itself must be closed, and must belong to this user or, with `may_be_roots`, to
    root. Missing directories are not checked.

    Raises:
        OSError: a directory cannot be examined.
    """
    at, todo, links = "/", _parts(path), 0
    fd = os.open("/", os.O_PATH | os.O_CLOEXEC)
    try:
        found = _fault("/", fd, os.fstat(fd), not todo, may_be_roots)
        while todo and not found:
            name = todo.pop()
            try:
                inner = os.open(name, os.O_PATH | os.O_NOFOLLOW | os.O_CLOEXEC, dir_fd=fd)
            except FileNotFoundError:
                break
            status = os.fstat(inner)
            if not stat.S_ISLNK(status.st_mode):
                os.close(fd)
                fd, at = inner, os.path.normpath(os.path.join(at, name))
                found = _fault(at, fd, status, not todo, may_be_roots)
                continue
            os.close(inner)
            links += 1
            if links > _MAX_LINKS:
                return "%s: too many links" % path
            if not _trusted(status):
                return "%s/%s is a link that belongs to uid %d; %s" % (at, name, status.st_uid, _ADVICE)
            target = os.readlink(name, dir_fd=fd)
            todo += _parts(target)
            if target.startswith("/"):
                os.close(fd)
                fd, at = os.open("/", os.O_PATH | os.O_CLOEXEC), "/"
        return found or _text(at, "new files in %s can", _inherited_writer(fd))
    finally:
        os.close(fd)


def problem_of_new_files(path: str) -> str:
    """Return how other users could change new files in a directory, like `problem`, without a check of its parents."""
    fd = os.open(path, os.O_PATH | os.O_NOFOLLOW | os.O_CLOEXEC)
    try:
        return _text(path, "new files in %s can", _inherited_writer(fd))
    finally:
        os.close(fd)


def is_closed(fd: int) -> bool:
    """Return whether only the owner and root can write to a file or directory that is open in any mode."""
    return not _writer(fd, os.fstat(fd))[0]


def _parts(path: str) -> List[str]:
    """Return the path's components, last first, including `..`, whose meaning changes after a link."""
    return [part for part in reversed(path.split("/")) if part not in ("", ".")]


def _trusted(status: os.stat_result) -> bool:
    return status.st_uid in (0, os.geteuid())


def _fault(path: str, fd: int, status: os.stat_result, last: bool, may_be_roots: bool) -> str:
    if not _trusted(status) or (last and not may_be_roots and status.st_uid != os.geteuid()):
        return "%s belongs to uid %d, who can replace the files in it; %s" % (path, status.st_uid, _ADVICE)
    return "" if status.st_mode & stat.S_ISVTX and not last else _text(path, "%s can", _writer(fd, status))


def _text(path: str, what: str, found: Tuple[str, str]) -> str:
    who, command = found
    return "%s be written by %s: %s %s, or %s" % (what % path, who, command, path, _ADVICE) if who else ""


def _writer(fd: int, status: os.stat_result) -> Tuple[str, str]:
    """Return another user or group that can write, and the command that prevents it; empty strings if there is none."""
    writers: List[Writer] = [(_OTHER, "")] if status.st_mode & stat.S_IWOTH else []
    try:
        if status.st_mode & stat.S_IWGRP:
            listed = _list(fd, _ACCESS, posix_writers)
            writers += [(_OWN_GROUP, "")] if listed is None else listed
        who = _first_other(writers, status.st_gid)
        if who:
            return who, "chmod go-w"
        return _first_other(_list(fd, _NFS4, nfs4_writers) or [], status.st_gid), "nfs4_setfacl -e"
    except ValueError as error:
        return "users in an access list that cannot be read (%s)" % error, "setfacl -b"


def _inherited_writer(fd: int) -> Tuple[str, str]:
    """Do the same as `_writer` for new files of this user in a directory; without a default list the umask applies."""
    status = os.fstat(fd)
    gid = status.st_gid if status.st_mode & stat.S_ISGID else os.getegid()
    try:
        who = _first_other(_list(fd, _DEFAULT, posix_writers) or [], gid)
        if who:
            return who, "setfacl -k"
        inherited = _list(fd, _NFS4, lambda data: nfs4_writers(data, inherited=True))
        return _first_other(inherited or [], gid), "nfs4_setfacl -e"
    except ValueError as error:
        return "users in a default access list that cannot be read (%s)" % error, "setfacl -k"


def _list(fd: int, name: str, parse: Callable[[bytes], List[Writer]]) -> Optional[List[Writer]]:
    """Return the writers in an access list, or None if there is no list.

    Raises:
        ValueError: it cannot be read or understood.
    """
    try:
        data = os.getxattr("/proc/self/fd/%d" % fd, name)  # O_PATH descriptors do not support this call
    except OSError as error:
        if error.errno in _NO_LIST:
            return None
        raise ValueError("%s: %s" % (name, error.strerror)) from None
    return parse(data)


def posix_writers(data: bytes) -> List[Writer]:
    """Return the entries of a POSIX access list, given as its extended attribute, that grant writing under its mask.

    Raises:
        ValueError: the attribute does not have this form.
    """
    if len(data) < 4 or len(data) % 8 != 4 or data[:4] != struct.pack("<I", _VERSION):
        raise ValueError("the POSIX ACL (%d bytes) is malformed or of an unknown version" % len(data))
    entries = list(struct.iter_unpack("<HHI", data[4:]))
    tags = [tag for tag, _, _ in entries]
    if tags != sorted(tags) or any(perm > 7 for _, perm, _ in entries):
        raise ValueError("the POSIX entries are out of order")
    counts = {tag: tags.count(tag) for tag in (_OWNER, _OWN_GROUP, _OTHER, _MASK)}
    named = tags.count(_USER) + tags.count(_GROUP)
    if {counts[tag] for tag in (_OWNER, _OWN_GROUP, _OTHER)} != {1} or sum(counts.values()) + named != len(
        tags
    ):
        raise ValueError("the POSIX entries are incomplete or of an unknown kind")
    if counts[_MASK] > 1 or (named and not counts[_MASK]):
        raise ValueError("the POSIX form does not have exactly one mask")
    mask = [perm for tag, perm, _ in entries if tag == _MASK] or [7]
    return [
        (tag, str(number) if tag in (_USER, _GROUP) else "")
        for tag, perm, number in entries
        if tag not in (_OWNER, _MASK) and perm & (7 if tag == _OTHER else mask[0]) & _WRITE
    ]


def nfs4_writers(data: bytes, inherited: bool = False) -> List[Writer]:
    """Return the entries of an NFSv4 list, in XDR, that allow changes of a directory, or of new files in it.

    Raises:
        ValueError: the attribute does not have this form.
    """
    found, at = [], 4
    try:
        for _ in range(*struct.unpack_from(">I", data)):
            kind, flags, bits, length = struct.unpack_from(">4I", data, at)
            who = data[at + 16 : at + 16 + length].decode()
            at += 16 + length + -length % 4
            if kind > _LAST_TYPE or at > len(data):
                raise ValueError("the NFSv4 form has an entry of an unknown kind")
            counts = flags & _INHERITED if inherited else not flags & _INHERITED_ONLY
            if kind == _ALLOW and bits & _CHANGES and counts and who != "OWNER@":
                named = (_GROUP if flags & _IS_GROUP else _USER, who.partition("@")[0])
                found.append(_SPECIAL.get(who, named))
    except (struct.error, UnicodeDecodeError):
        raise ValueError("the NFSv4 form is truncated at %d bytes" % len(data)) from None
    if at != len(data):
        raise ValueError("expected an NFSv4 ACL of %d bytes for its entries, got %d" % (at, len(data)))
    return found


def _first_other(writers: List[Writer], gid: int) -> str:
    """Return the first writer who is not this user or root, as text; `gid` is the directory's own group."""
    if not writers:
        return ""
    import grp  # few directories have such writers
    import pwd

    users, groups = {"0", "root", str(os.geteuid())}, set()
    try:
        own = pwd.getpwuid(os.geteuid())
        users.add(own.pw_name)
        group = grp.getgrgid(own.pw_gid)
        # many systems create a group per user, with the same name and no other member
        if group.gr_name == own.pw_name and not set(group.gr_mem) - {own.pw_name}:
            groups = {str(group.gr_gid), group.gr_name}
    except KeyError:
        pass  # a user without a name
    for tag, who in writers:
        who = who or str(gid)
        if tag == _OTHER:
            return "everybody"
        if tag == _USER and who not in users:
            return "user %s" % _name(who, lambda number: pwd.getpwuid(number).pw_name)
        if tag in (_OWN_GROUP, _GROUP) and who not in groups:
            return "the group %s" % _name(who, lambda number: grp.getgrgid(number).gr_name)
    return ""


def _name(who: str, named: Callable[[int], str]) -> str:
    try:
        return named(int(who))
    except (ValueError, KeyError, OverflowError):
        return who
