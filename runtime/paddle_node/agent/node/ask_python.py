# SPDX-License-Identifier: Apache-2.0
"""Runs the job's Python to determine its version and the versions of modules."""

from __future__ import annotations

import errno
import os
import signal
from typing import Any, Callable, Dict, List, Optional, Tuple

from paddle_node.agent.files import storage
from paddle_node.agent.link.loop import Loop
from paddle_node.agent.processes import environment
from paddle_node.agent.processes.spawn import spawn

OUTPUT_LIMIT = 1 << 18

# Not isolated (-I): a job sees packages of the user's site directory too. An installed package's version is in the
# name of a directory next to it, a hundred times faster to read than to import; other modules are imported. Words have
# no blanks, so that printing them needs no import. A module's own version, from one of its files, shows whether two
# installations overlap; a libzmq that does not come with pyzmq is queried itself.
_ASK = """
import os, sys
sys.path = [entry for entry in sys.path if entry]

def folder_of(name):
    for finder in sys.meta_path:
        spec = finder.find_spec(name, None)
        if spec is None:
            continue
        if spec.submodule_search_locations:
            return os.path.dirname(list(spec.submodule_search_locations)[0])
        return spec.origin and os.path.dirname(spec.origin)
    return ""

def installed(name):
    folder = folder_of(name)
    if folder == "":
        return ""
    for entry in os.listdir(folder) if folder else []:
        package, dash, rest = entry.partition("-")
        version, dot, kind = rest.rpartition(".")
        if package.lower() in (name, "py" + name) and kind in ("dist-info", "egg-info"):
            own = own_word(os.path.join(folder, name))
            return version if own in ("", version) else version + "|" + own
    return None

def own_word(folder):
    for name in ("version.py", "sugar/version.py"):
        try:
            with open(os.path.join(folder, name), encoding="utf-8") as file:
                lines = file.read().splitlines()
        except OSError:
            continue
        for line in lines:
            word, equals, value = line.partition("=")
            value = value.strip()
            if word.split(":")[0].strip() in ("version", "__version__") and value[:1] in ("'", '"'):
                return value[1:].split(value[0])[0]
    return ""

def libzmq():
    folder = folder_of("zmq")
    if not folder or os.path.isdir(os.path.join(folder, "pyzmq.libs")):
        return ""
    try:
        import zmq
        return zmq.zmq_version()
    except Exception:
        return ""

def version_of(name):
    try:
        found = None if name in sys.modules else installed(name)
        if found is None:
            __import__(name)
            found = getattr(sys.modules[name], "__version__", "unknown")
    except Exception:
        found = ""
    return "".join(str(found).split())

def own_files():
    try:
        with open("/proc/self/maps", encoding="utf-8", errors="surrogateescape") as file:
            mapped = [line.rstrip("\\n").split(None, 5)[5:] for line in file]
        libraries = {path for named in mapped for path in named if "/libpython" in path}
        return [os.readlink("/proc/self/exe"), *sorted(libraries)]
    except OSError:
        return []

def libc():
    try:
        return "-".join((os.confstr("CS_GNU_LIBC_VERSION") or "").split())
    except (ValueError, OSError):
        return "musl" if "musl" in getattr(sys.implementation, "_multiarch", "") else ""

bits = "64" if sys.maxsize > 1 << 32 else "32"
kind = [sys.implementation.name, getattr(sys, "abiflags", ""), os.uname()[4], bits, libc()]
words = [name + "=" + version_of(name) for name in sys.argv[1:]]
if "zmq" in sys.argv[1:]:
    words += ["libzmq=" + word for word in [libzmq()] if word]
if not words:
    words = ["files=" + "-".join([os.fsencode(path).hex() for path in own_files()])]
print("\\nPYTHON", "|".join([sys.version.split()[0], *kind]), *words)
"""

Told = Callable[[Optional[str], Dict[str, Any], str, List[str]], None]


def ask_python(loop: Loop, python: str, modules: List[str], limit_s: float, done: Told) -> None:
    """Run the job's Python in the background, and call `done` with its identity, its modules' versions, and a problem.

    The identity is version, implementation, ABI flags, machine, bits and libc, separated by |. The version of a module
    whose import failed is None. If no modules are given, `done` also gets the files that make up the interpreter, the
    program first.
    """

    def answered(status: int, output: bytes) -> None:
        try:
            version, versions = _read(output.splitlines()[-1].decode())
            names = [] if modules else (versions.pop("files", None) or "").split("-")
            files = [os.fsdecode(bytes.fromhex(name)) for name in names if name]
        except (ValueError, IndexError):
            said = output.decode("utf-8", "replace").strip()[-120:]
            text = "%s %s and printed %r; expected Python 3.11 or newer (PYTHON in conf.py)"
            done(None, {}, text % (python, _how(status, limit_s), said), [])
        else:
            done(version, *_settled(versions), files)

    env = environment.base(os.environ)
    try:
        site = [] if modules else ["-S"]  # a folder that is not searched need not exist
        _Capture(loop, [python, *site, "-c", _ASK, *modules], env, limit_s, answered)
    except (OSError, ValueError) as error:
        done(None, {}, "cannot run %s: %s" % (python, _why(error, python, env["PATH"])), [])


def _read(line: str) -> Tuple[str, Dict[str, Any]]:
    """Parse the last line that the interpreter printed, into its identity and the versions of the modules."""
    word, version, *found = line.split(" ")
    if word != "PYTHON":
        raise ValueError(line)
    named = (one.partition("=") for one in found)
    return version, {name: value or None for name, _, value in named}


def _settled(found: Dict[str, Any]) -> Tuple[Dict[str, Any], str]:
    """Return the versions that modules report, and a problem where an installed distribution reports another one."""
    versions, odd = {}, []
    for name, said in found.items():
        listed, _, own = (said or "").partition("|")
        versions[name] = own or listed or None
        if own and _release(own) != _release(listed):
            odd.append(
                "%s reports version %s, but its distribution reports %s; reinstall it" % (name, own, listed)
            )
    return versions, "; ".join(odd)


def _release(version: str) -> str:
    return version[: len(version) - len(version.lstrip("0123456789."))].rstrip(".")


def _how(status: int, limit_s: float) -> str:
    """Describe how a process ended, given its wait status."""
    if os.WIFSIGNALED(status):
        return "was killed by signal %d (its time limit is %g s)" % (os.WTERMSIG(status), limit_s)
    return "exited with status %d" % os.WEXITSTATUS(status)


def _why(error: Exception, python: str, path: str) -> str:
    reason = (isinstance(error, OSError) and error.strerror) or str(error)
    if isinstance(error, OSError) and error.errno == errno.EACCES:
        from shutil import which  # imported only here: it loads the compressors

        program = python if "/" in python else which(python, mode=os.F_OK, path=path) or ""
        mount = storage.mount_of(os.path.realpath(program)) if program else None
        if os.path.isdir(program):
            return "it is a directory; give its interpreter, %s/bin/python (PYTHON in conf.py)" % program
        if mount is not None and "noexec" in mount.options:
            point = mount.point
            return "%s: %s is mounted noexec; remount it with exec, or set PYTHON in conf.py" % (
                reason,
                point,
            )
    return (
        "%s; set PYTHON in conf.py to a Python on that node (`command -v python3` there prints one)" % reason
    )


class _Capture:
    """One short command, run in bounded time and memory.

    Args:
        done: called once with the wait status and the output, truncated to OUTPUT_LIMIT.
    """

    def __init__(
        self,
        loop: Loop,
        argv: List[str],
        env: Dict[str, str],
        timeout_s: float,
        done: Callable[[int, bytes], None],
    ) -> None:
        self._loop = loop
        self._done = done
        self._output = b""
        self._fd, write = os.pipe()
        try:
            pid = spawn(argv, env, "/", write)
        except (OSError, ValueError):
            os.close(self._fd)
            raise
        finally:
            os.close(write)
        os.set_blocking(self._fd, False)
        loop.on_readable(self._fd, self._read)
        self._timer = loop.after(timeout_s, lambda: os.kill(pid, signal.SIGKILL))
        loop.on_exit(pid, self._ended)

    def _read(self) -> None:
        try:
            data = os.read(self._fd, OUTPUT_LIMIT)
        except BlockingIOError:
            return
        if not data:
            self._loop.on_readable(self._fd, None)
        self._output = (self._output + data)[-OUTPUT_LIMIT:]

    def _ended(self, status: int) -> None:
        self._timer.cancel()
        self._read()
        self._loop.on_readable(self._fd, None)
        os.close(self._fd)
        self._done(status, self._output)
