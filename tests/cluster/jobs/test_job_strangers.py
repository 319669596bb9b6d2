# SPDX-License-Identifier: Apache-2.0
"""A machine of the same network that has no key: it learns nothing from a job's ports and disturbs nobody."""

from __future__ import annotations

import json
import sys

import pytest

from tests.beside import Outcomes, Scenarios
from tests.cluster import sshd
from tests.cluster.host import Host
from tests.cluster.hosts import Cluster
from tests.cluster.jobs.job import JobRunner
from tests.cluster.jobs.oracle import Oracle
from tests.cluster.jobs.own_hosts import BESIDE_S, own_hosts
from tests.cluster.zmtp import GREETING_BYTES

pytestmark = [pytest.mark.cluster, pytest.mark.timeout(BESIDE_S)]

scenarios = Scenarios(own_hosts)
outcomes = scenarios.fixture()

CANARY = "/tmp/owned"
# What it sends and how much it got back, for each port and each way to speak.
STRANGER = f"""
import json, os, pickle, socket, sys

class Bomb:
    def __reduce__(self):
        return (os.system, ("touch {CANARY}",))

SAYINGS = {{
    "nothing": b"",
    "noise": bytes(range(256)) * 64,
    "http": b"GET / HTTP/1.1\\r\\nHost: a\\r\\n\\r\\n",
    "tls": bytes.fromhex("16030100c8010000c40303") + bytes(190),
    "pickle": pickle.dumps(Bomb()),
    "zmtp null": b"\\xff" + bytes(8) + b"\\x7f\\x03\\x00NULL".ljust(55, b"\\0") + b"\\x04\\x19\\x05READY" + bytes(18),
    "long frame": b"\\x00\\x00\\x01\\x00" + (1 << 40).to_bytes(8, "big"),
}}
address, ports = sys.argv[1], [int(port) for port in sys.argv[2:]]
heard = {{}}
for port in ports:
    for name, said in SAYINGS.items():
        got = b""
        try:
            with socket.create_connection((address, port), 2) as peer:
                peer.settimeout(1)
                peer.sendall(said)
                while len(got) < 1 << 16:
                    data = peer.recv(1 << 16)
                    if not data:
                        break
                    got += data
        except OSError:
            pass
        heard[f"{{port}} {{name}}"] = got.hex()
print(json.dumps(heard))
"""


def visit(stranger: Host, host: Host, ports: set[int]) -> dict[str, bytes]:
    """Speaks to every port in every way; returns what each one answered."""
    argv = [sys.executable, "-c", STRANGER, host.address, *map(str, sorted(ports))]
    said = json.loads(stranger.run(argv, timeout_s=120).stdout)
    return {what: bytes.fromhex(text) for what, text in said.items()}


@scenarios.add
def a_stranger_learns_nothing_and_disturbs_nobody(cluster: Cluster, job: JobRunner, oracle: Oracle) -> None:
    """The greeting of the message protocol is all that any port says to who cannot prove the job's key."""
    job.conf["HOSTS"] = ["root@node-a", "root@node-b"]
    launch = job.start("--act=hold")
    job.wait_until_holding(launch, 2)
    stranger = cluster["node-c"]
    for host in cluster.hosts[:2]:
        ports = host.listening() - {22}
        assert ports, "a pserver listens"
        for what, answer in visit(stranger, host, ports).items():
            assert len(answer) <= GREETING_BYTES, f"{what} got {answer!r}"
        assert not host.path(CANARY).exists()
    assert launch.poll() is None, launch.output
    launch.interrupt()
    oracle.check(launch, 130, within_s=15)


@scenarios.add
def nothing_listens_on_an_address_that_was_not_chosen(
    cluster: Cluster, job: JobRunner, oracle: Oracle
) -> None:
    launch = job.start("--act=hold")
    job.wait_until_holding(launch)
    for host in cluster.hosts:
        table = host.run(["ss", "-Hltn"]).stdout.split("\n")
        local = {line.split()[3].replace("[::ffff:", "").replace("]", "") for line in table if line.strip()}
        assert all(address.startswith(f"{host.address}:") for address in local - {"0.0.0.0:22"}), local
        assert len(local) > 1, "the pserver listens"
    launch.interrupt()
    oracle.check(launch, 130, within_s=15)


@scenarios.each("unknown", "changed")
def a_jump_host_with_another_key_is_refused(
    known: str, cluster: Cluster, job: JobRunner, oracle: Oracle
) -> None:
    """Only the key of the jump host is wrong; the node behind it is known."""
    jump = cluster["node-b"]
    lines = [
        line for line in cluster.known_hosts.read_text().splitlines(keepends=True) if "node-b" not in line
    ]
    if known == "changed":
        other = sshd.make_key(cluster.state / "jump_key", "other")
        lines.append(sshd.known_hosts_line((jump.name, jump.address), other))
        for path in (other.private, other.private.with_suffix(".pub")):
            path.unlink()
    cluster.known_hosts.write_text("".join(lines))
    job.conf |= {"HOSTS": ["root@node-c"], "SSH_JUMP": "root@node-b"}
    oracle.check(job.start("--mode=collective"), 3, r"node-c: jump host .*(?i:host key)", within_s=20)
    assert not list(cluster["node-c"].path("/root").glob("JOB2*"))


@pytest.mark.parametrize("scenario", scenarios)
def test_on_hosts_of_its_own(scenario: str, outcomes: Outcomes) -> None:
    outcomes.of(scenario)
