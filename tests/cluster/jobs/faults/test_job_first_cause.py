# SPDX-License-Identifier: Apache-2.0
"""The first cause of collective jobs: a rank that left, a path that was cut, a path that drops large packets."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator

import pytest

from tests.beside import Outcomes, Scenarios
from tests.cluster.host import Host
from tests.cluster.hosts import Cluster
from tests.cluster.jobs.job import JobRunner
from tests.cluster.jobs.oracle import Oracle
from tests.cluster.jobs.own_hosts import BESIDE_S, own_hosts

pytestmark = [pytest.mark.cluster, pytest.mark.timeout(BESIDE_S)]

scenarios = Scenarios(own_hosts)
outcomes = scenarios.fixture()

TOLD_S = 12.0  # 10 s, and what a busy machine adds
SUMS = """
import os, sys, time
import numpy as np
from paddle.collective import Membership, connect

os.environ["PADDLE_COLLECTIVE_TIMEOUT_S"] = str(TIMEOUT)
rank, step = int(os.environ["RANK"]), 0
group = connect(Membership.of_environment())
while True:
    if step == LEAVES_AT and rank == LEAVES:
        os._exit(CODE)
    group.all_reduce([np.zeros(FLOATS, np.float32)])
    step += 1
    if step == 3:
        print("holding", flush=True)
    time.sleep(0.02)
"""
# As gloo does: a connection between each two ranks, and an error with the peer's address when it ends.
BARRIERS = """
import os, socket, sys, time

rank, size = int(os.environ["RANK"]), int(os.environ["WORLD_SIZE"])
hosts = [endpoint.rpartition(":")[0] for endpoint in os.environ["PADDLE_TRAINER_ENDPOINTS"].split(",")]
listener = socket.create_server((hosts[rank], 7900), reuse_port=True)
peers = []
for other in range(rank):
    while True:
        try:
            peers.append(socket.create_connection((hosts[other], 7900), 5))
            break
        except OSError:
            time.sleep(0.05)
peers += [listener.accept()[0] for _ in range(rank + 1, size)]
names = {peer: "[%s]:%d" % peer.getpeername() for peer in peers}
for peer in peers:
    peer.settimeout(TIMEOUT)
if LEAVES == rank:
    print("holding", flush=True)
    time.sleep(0.5)
    os._exit(CODE)
sent = 0
while True:
    for peer in peers:
        peer.sendall(bytes(SIZE))
    for peer in peers:
        came = 0
        while came < SIZE:
            try:
                data = peer.recv(SIZE - came)
            except OSError as error:
                data, why = b"", error
            else:
                why = "Connection closed by peer"
            if not data:
                raise RuntimeError(f"[pair.cc:534] {why} {names[peer]}")
            came += len(data)
    sent += 1
    if sent == 3:
        print("holding", flush=True)
    time.sleep(0.02)
"""
LEFT = "trainer 1 on root@node-b: exited early with code 0 while other ranks were waiting for it"


def write(job: JobRunner, script: str, **values: int) -> None:
    """Write a script that hangs for TIMEOUT seconds before it gives up, with these values in place of the usual."""
    names = {"LEAVES": -1, "LEAVES_AT": 5, "CODE": 0, "FLOATS": 8, "SIZE": 8, "TIMEOUT": 25, **values}
    head = "".join(f"{name} = {value}\n" for name, value in names.items())
    (job.workspace / "train.py").write_text(head + script)


@contextlib.contextmanager
def small_packets_only(source: Host, router: Host, target: Host, mtu: int = 1000) -> Iterator[None]:
    """Lead what `source` sends to `target` over a router with a smaller MTU, which cannot tell the source of it."""
    rules = "/proc/sys/net/ipv4"
    router.run(
        ["sh", "-c", f"echo 1 > {rules}/ip_forward; echo 0 > {rules}/conf/all/rp_filter;"
         f"echo 0 > {rules}/conf/eth0/rp_filter; echo 0 > {rules}/conf/all/send_redirects;"
         f"echo 0 > {rules}/conf/eth0/send_redirects"]
    )  # fmt: skip
    router.run(["ip", "route", "add", target.address, "dev", "eth0", "mtu", "lock", str(mtu)])
    router.run(["ip", "route", "add", "blackhole", source.address])
    source.run(["ip", "route", "add", target.address, "via", router.address])
    try:
        yield
    finally:
        source.run(["ip", "route", "del", target.address, "via", router.address])
        router.run(["ip", "route", "del", "blackhole", source.address])
        router.run(["ip", "route", "del", target.address, "dev", "eth0"])


@scenarios.each("paddle.collective", "sockets")
def a_rank_that_ended_with_0_is_the_cause(
    program: str, cluster: Cluster, job: JobRunner, oracle: Oracle
) -> None:
    write(job, SUMS if program == "paddle.collective" else BARRIERS, LEAVES=1)
    oracle.check(job.start("--mode=collective"), 1, f"^FIRST ERROR: {LEFT}$", within_s=90)
    failure = job.failure()
    assert (failure["first_cause"]["kind"], failure["first_cause"]["rank"]) == ("ended early", 1)
    assert failure["first_cause"]["code"] == 0
    assert not failure["failed_too"]


@scenarios.each("paddle.collective", "sockets")
def a_rank_that_ended_with_1_is_the_cause_with_its_code(
    program: str, cluster: Cluster, job: JobRunner, oracle: Oracle
) -> None:
    write(job, SUMS if program == "paddle.collective" else BARRIERS, LEAVES=1, CODE=1)
    oracle.check(
        job.start("--mode=collective"), 1, "^FIRST ERROR: trainer 1 on root@node-b: exit code 1$", within_s=90
    )
    assert not job.failure()["failed_too"]


@scenarios.each("paddle.collective", "sockets")
def a_path_that_is_cut_is_named_within_seconds_and_as_the_cause(
    program: str, cluster: Cluster, job: JobRunner, oracle: Oracle
) -> None:
    write(job, SUMS if program == "paddle.collective" else BARRIERS)
    launch = job.start("--mode=collective")
    job.wait_until_holding(launch)
    cluster["node-c"].part(cluster["node-a"].address)
    launch.wait_for_line("^root@node-[ac] cannot reach root@node-[ac] at .*: no answer within 2 s", TOLD_S)
    oracle.check(
        launch,
        5,
        "^FIRST ERROR: node root@node-[ac]: it cannot reach root@node-[ac] at 10",
        within_s=90,
        never=["cannot reach root@node-b", "root@node-b cannot reach"],
    )
    cluster["node-c"].rejoin(cluster["node-a"].address)


@scenarios.add
def a_path_that_drops_large_packets_is_refused_in_preflight(
    cluster: Cluster, job: JobRunner, oracle: Oracle
) -> None:
    job.conf["HOSTS"] = ["root@node-a", "root@node-c"]
    write(job, BARRIERS)
    with small_packets_only(cluster["node-a"], cluster["node-b"], cluster["node-c"]):
        assert cluster["node-a"].run(["ping", "-c1", "-W2", cluster["node-c"].address], check=False)
        oracle.check(
            job.start("--mode=collective"),
            3,
            r"root@node-a: route: cannot reach root@node-c at \S+: connections open, but packets of 1500 bytes do not "
            r"arrive .*\(the other direction works\)",
            never=["^== dispatch"],
        )


@scenarios.each("paddle.collective", "sockets")
def a_path_that_begins_to_drop_large_packets_is_named_within_seconds_and_as_the_cause(
    program: str, cluster: Cluster, job: JobRunner, oracle: Oracle
) -> None:
    job.conf["HOSTS"] = ["root@node-a", "root@node-c"]
    write(job, SUMS if program == "paddle.collective" else BARRIERS, FLOATS=100_000, SIZE=100_000)
    launch = job.start("--mode=collective")
    job.wait_until_holding(launch, 2)
    with small_packets_only(cluster["node-a"], cluster["node-b"], cluster["node-c"]):
        launch.wait_for_line(
            "^root@node-a cannot reach root@node-c at .*: connections open, but packets", TOLD_S
        )
        oracle.check(
            launch,
            5,
            "^FIRST ERROR: node root@node-a: it cannot reach root@node-c at .*packets of 1500 bytes do not arrive",
            "try: allow ICMP",
            within_s=90,
        )


@scenarios.each("ca", "ac")
def a_path_that_drops_large_packets_of_a_pserver_job_is_the_cause_in_either_direction(
    routes: str, cluster: Cluster, job: JobRunner, oracle: Oracle
) -> None:
    source, target = (cluster[f"node-{letter}"] for letter in routes)
    job.conf |= {"HOSTS": ["root@node-a", "root@node-c"], "STEP_TIMEOUT_S": 20}
    job.learn()
    script = job.workspace / "train.py"
    script.write_text(
        script.read_text()
        .replace("dense_vector(2)", "dense_vector(50_000)")
        .replace("(x / 10, 1.0 - x / 10)", "(x / 500_000,) * 50_000")  # the cost stays finite
    )
    launch = job.start("--passes=100000")
    launch.wait_for_line("trainer 1 life 0: end of pass 1", 60)
    with small_packets_only(source, cluster["node-b"], target):
        cannot = f"{source.name} cannot reach root@{target.name} at .*: connections open, but packets of 1500"
        launch.wait_for_line(f"^root@{cannot}", 2 * TOLD_S)
        says = f"^FIRST ERROR: node root@{source.name}: it cannot reach root@{target.name} at .*1500 bytes"
        oracle.check(launch, 5, says, within_s=90)


@pytest.mark.parametrize("scenario", scenarios)
def test_on_hosts_of_its_own(scenario: str, outcomes: Outcomes) -> None:
    outcomes.of(scenario)
