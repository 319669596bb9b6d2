# SPDX-License-Identifier: Apache-2.0
"""A program that logs in to every host with paramiko alone and prints its CPU time per host as JSON.

bare_logins.py KNOWN_HOSTS PRIVATE_KEY HOST...

It is the least that a launcher with paramiko does to start agents: one thread per host, the same algorithms, a check of
the host's key, one command, and as many bytes for this command as an agent receives. The command answers with a line.
"""

from __future__ import annotations

import importlib.util
import json
import sys
import threading
import time

import paramiko

from paddle_cluster.connection.bootstrap import packed_agent
from paddle_cluster.ssh.transport import CIPHERS, KEX

LIMIT_S = 120.0
ANSWER = b"ready\n"


def main(known_hosts: str, private_key: str, *hosts: str) -> None:
    """Log in to all hosts at the same time, and print the CPU time per host."""
    known = paramiko.HostKeys(known_hosts)
    key = paramiko.PKey.from_path(private_key)
    packed = packed_agent()
    content = packed.first + packed.rest_for(importlib.util.MAGIC_NUMBER.hex())
    answers: list[bytes] = []

    def log_in(host: str) -> None:
        transport = paramiko.Transport((host, 22))
        security = transport.get_security_options()
        security.ciphers = CIPHERS[:1]
        security.kex = [name for name in KEX if name in security.kex]
        transport.start_client(timeout=LIMIT_S)
        if known.check(host, transport.get_remote_server_key()):
            transport.auth_publickey("root", key)
            channel = transport.open_session(timeout=LIMIT_S)
            channel.exec_command(f"head -c {len(content)} >/dev/null && echo ready")
            channel.sendall(content)
            answers.append(channel.recv(len(ANSWER)))

    cpu_begun = time.process_time()
    threads = [threading.Thread(target=log_in, args=(host,)) for host in hosts]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    cpu_s = time.process_time() - cpu_begun
    if answers != [ANSWER] * len(hosts):
        raise RuntimeError(f"{len(hosts)} hosts, but these answers: {answers}")
    print(json.dumps({"cpu_s": cpu_s / len(hosts)}), flush=True)


if __name__ == "__main__":
    main(*sys.argv[1:])
