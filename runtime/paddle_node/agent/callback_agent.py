# SPDX-License-Identifier: Apache-2.0
"""The callback agent of a node, started by mpirun or srun: connects to the launcher and starts what it requests.

It is a separate program, in a single module because it is sent as text on a command line. One connection always waits
for the launcher's next request; a child process serves each connection with a request. All children exit with this
process.
"""

import base64
import errno
import json
import os
import select
import socket
import ssl
import subprocess
import sys
import time

INVITATION = "_PADDLE_PORTER"
CALL_S = 5.0
NEXT_S = 0.3  # seconds before the next address is tried in parallel with one that has not answered
REFUSED = os.strerror(errno.ECONNREFUSED)
AGAIN_S = 0.3
MOST_LINE = 1 << 17
ROOM = 1 << 20  # bytes that wait for one side before reading from the other one pauses
PIECE = 1 << 16
LOOK_S = 1.0
DONE, ALONE = 0, 69


def main() -> int:
    """Serve one launcher until it sends a goodbye or disconnects; return the exit code."""
    given = json.loads(base64.b64decode(os.environ.pop(INVITATION)).decode())
    rank = next((os.environ[name] for name in given["ranks"] if name in os.environ), "")
    word = {"word": given["word"], "rank": int(rank or -1), "host": os.uname().nodename}
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.check_hostname = False  # this certificate itself is trusted
    context.load_verify_locations(cadata=given["certificate"])
    alive, held = os.pipe()  # `alive` ends when this process does
    was_reached = False
    while True:
        faults: "dict[str, str]" = {}
        connection = call(given["addresses"], context, given["patience_s"], given["refused_s"], faults)
        if connection is None:
            tried = ", ".join("%s (%s)" % fault for fault in faults.items())
            what = "rank %s could not reach the launcher at %s" % (rank, tried)
            sys.stderr.write("paddle: %s\n" % ("the launcher has exited" if was_reached else what))
            return ALONE
        was_reached = True
        given["addresses"] = [
            connection.getpeername()[:2]
        ]  # the other addresses are unreachable or reach another machine
        try:
            connection.sendall(json.dumps(word).encode() + b"\n")
            connection.settimeout(None)  # keepalive detects a peer that has disappeared
            request = json.loads(read_line(connection) or b"null")
        except (OSError, ValueError):
            request = None
        if request is None:  # interrupted or ended: the next call finds out
            connection.close()
            continue
        if request["argv"] is None:
            return DONE
        while reap():
            pass
        if os.fork() == 0:
            os.close(held)
            start(request["argv"], connection, alive)
            os._exit(0)
        os.close(connection.detach())  # without closing TLS: the child continues with it


def reap() -> bool:
    """Reap one child that has exited, if any; return whether there was one."""
    try:
        return os.waitpid(-1, os.WNOHANG)[0] != 0
    except ChildProcessError:
        return False


def call(
    addresses: "list[tuple[str, int]]",
    context: ssl.SSLContext,
    patience_s: float,
    refused_s: float,
    faults: "dict[str, str]",
) -> "ssl.SSLSocket | None":
    """Connect to the first address that answers, retrying for `patience_s` seconds; return None if there is none.

    Errors are added to `faults`, by address.
    """
    first = heard = time.monotonic()  # `heard`: the last time that an address did not refuse
    while True:
        connection = connect(addresses, context, faults)
        if connection is not None:
            return connection
        now = time.monotonic()
        if any(why != REFUSED for why in faults.values()):
            heard = now
        if now - heard >= refused_s or now - first >= patience_s:
            return None
        time.sleep(AGAIN_S)


def connect(
    addresses: "list[tuple[str, int]]", context: ssl.SSLContext, faults: "dict[str, str]"
) -> "ssl.SSLSocket | None":
    """Try all addresses with a short delay between them; return the first authenticated connection, or None.

    Errors are added to `faults`, by address.
    """
    todo = list(addresses)
    waiting: "dict[int, tuple[socket.socket, str]]" = {}
    poll = select.poll()
    deadline = time.monotonic() + CALL_S
    try:
        while todo or waiting:
            if todo:
                host, port = todo.pop(0)
                shown = ("[%s]:%d" if ":" in host else "%s:%d") % (host, port)
                faults[shown] = "no answer"
                try:
                    raw = begun(host, port)
                except OSError as error:
                    faults[shown] = error.strerror or str(error)
                    continue
                waiting[raw.fileno()] = raw, shown
                poll.register(raw, select.POLLOUT)
            limit_s = min(NEXT_S, deadline - time.monotonic()) if todo else deadline - time.monotonic()
            for fd, _ in poll.poll(max(0.0, limit_s) * 1000):
                raw, shown = waiting.pop(fd)
                poll.unregister(fd)
                connection = greeted(raw, context, shown, faults)
                if connection is not None:
                    return connection
            if time.monotonic() >= deadline:
                break
    finally:
        for raw, _ in waiting.values():
            raw.close()
    return None


def begun(host: str, port: int) -> socket.socket:
    """Return a non-blocking socket that has started to connect. Raises OSError if the connection fails immediately."""
    family, kind, _, _, address = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)[0]
    raw = socket.socket(family, kind)
    raw.setblocking(False)
    code = raw.connect_ex(address)
    if code not in (0, errno.EINPROGRESS):
        raw.close()
        raise OSError(code, os.strerror(code))
    return raw


def greeted(
    raw: socket.socket, context: ssl.SSLContext, shown: str, faults: "dict[str, str]"
) -> "ssl.SSLSocket | None":
    """Complete the TLS handshake on a connected socket; if it fails, return None and add the reason to `faults`."""
    try:
        code = raw.getsockopt(socket.SOL_SOCKET, socket.SO_ERROR)
        if code:
            raise OSError(code, os.strerror(code))
        raw.settimeout(CALL_S)
        keep_alive(raw)
        return context.wrap_socket(raw)
    except ssl.SSLError:
        faults[shown] = "another program is listening there"
    except OSError as error:
        faults[shown] = error.strerror or str(error)
    raw.close()
    return None


def keep_alive(raw: socket.socket) -> None:
    """Set the options by which the kernel closes a connection whose peer has been silent for about 10 s."""
    raw.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
    for name, value in (("TCP_KEEPIDLE", 4), ("TCP_KEEPINTVL", 2), ("TCP_KEEPCNT", 3)):
        if hasattr(socket, name):
            raw.setsockopt(socket.IPPROTO_TCP, getattr(socket, name), value)
    raw.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)


def read_line(connection: ssl.SSLSocket) -> bytes:
    """Read one line, byte by byte, because later bytes are for a different reader.

    Return b"" at the end of the stream.
    """
    line = b""
    while not line.endswith(b"\n"):
        byte = connection.recv(1)
        if not byte or len(line) > MOST_LINE:
            return b""
        line += byte
    return line


def start(argv: "list[str]", connection: ssl.SSLSocket, alive: int) -> None:
    """Run a command in a new session with the connection as its standard input and output."""
    ours, theirs = socket.socketpair()
    local, peer = connection.getsockname(), connection.getpeername()
    came = "%s %d %s %d" % (
        peer[0],
        peer[1],
        local[0],
        local[1],
    )  # like sshd, set the client's address for the command
    try:
        child = subprocess.Popen(
            argv,
            stdin=theirs.fileno(),
            stdout=theirs.fileno(),
            cwd="/",
            start_new_session=True,
            env=dict(os.environ, SSH_CONNECTION=came),
        )
    except OSError as error:
        sys.stderr.write("paddle: cannot start %s: %s\n" % (argv[0], error.strerror))
        return
    finally:
        theirs.close()
    if not carry(connection, ours, alive):
        return
    child.wait()
    try:
        connection.settimeout(CALL_S)
        connection.unwrap()  # announces a proper end, not an interruption
    except (OSError, ValueError):
        pass


def carry(connection: ssl.SSLSocket, ours: socket.socket, alive: int) -> bool:
    """Copy bytes both ways until one side ends; return whether the command ended and all its output was sent."""
    connection.setblocking(False)
    ours.setblocking(False)
    to_command, to_launcher = bytearray(), bytearray()
    ended = False
    while True:
        moved = False
        if len(to_command) < ROOM:
            data = receive(connection)
            if data == b"":
                return False
            if data:
                to_command += data
                moved = True
        if not ended and len(to_launcher) < ROOM:
            data = receive(ours)
            ended = data == b""
            if data:
                to_launcher += data
                moved = True
        try:
            moved = send(ours, to_command) or moved
        except OSError:  # it reads no more, but its output still counts
            del to_command[:]
        try:
            moved = send(connection, to_launcher) or moved
        except OSError:
            return False
        if ended and not to_launcher:
            return True
        if not moved and not wait(connection, ours, alive, to_command, to_launcher, ended):
            return False


def wait(
    connection: ssl.SSLSocket,
    ours: socket.socket,
    alive: int,
    to_command: bytearray,
    to_launcher: bytearray,
    ended: bool,
) -> bool:
    """Block until bytes can be copied in some direction; return False when the callback agent has exited."""
    poll = select.poll()
    poll.register(alive, select.POLLIN)
    from_launcher = select.POLLIN if len(to_command) < ROOM else 0
    poll.register(connection, from_launcher | (select.POLLOUT if to_launcher else 0))
    if not ended:
        from_command = select.POLLIN if len(to_launcher) < ROOM else 0
        poll.register(ours, from_command | (select.POLLOUT if to_command else 0))
    return all(fd != alive for fd, _ in poll.poll(LOOK_S * 1000))


def receive(end: socket.socket) -> "bytes | None":
    """Receive available bytes from a non-blocking socket; return None if there are none, b"" at the end."""
    try:
        return end.recv(PIECE)
    except (BlockingIOError, ssl.SSLWantReadError, ssl.SSLWantWriteError):
        return None
    except OSError:
        return b""


def send(end: socket.socket, data: bytearray) -> bool:
    """Send as much of the data as the socket accepts, and remove it; return whether any was sent."""
    if not data:
        return False
    try:
        sent = end.send(bytes(data[:PIECE]))
    except (BlockingIOError, ssl.SSLWantReadError, ssl.SSLWantWriteError):
        return False
    del data[:sent]
    return sent > 0


if __name__ == "__main__":
    sys.exit(main())
