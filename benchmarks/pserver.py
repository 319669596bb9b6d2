# SPDX-License-Identifier: Apache-2.0
"""Measures how fast trainers push gradients and pull values, compared with plain sockets and the machine's limits.

    python -m benchmarks.pserver [--json FILE] [--turns N] [--quick] [--only NAME,...] [--peers_python PYTHON]

One server, float32, plain gradient descent, loopback. docs/benchmarks-pserver.md explains each figure.
"""

from __future__ import annotations

import contextlib
import os
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from pathlib import Path

import numpy as np

from benchmarks import machine
from benchmarks.arguments import add_peers_python, parser
from benchmarks.report import Report, tell
from benchmarks.rows.loopback import own_loopback
from benchmarks.serving import memory
from benchmarks.serving.measuring import Plan, goodput, latency, mixed_sizes, pace
from benchmarks.serving.sides import KEY, Processes, ours, peer, raw, trained

PEERS = ("ray", "torch", "mxnet")
PACKAGES = ("numpy", "pyzmq", *PEERS)
SIZES = {"4KB": 4 << 10, "1MB": 1 << 20, "40MB": 40_000_000, "400MB": 400_000_000}
TRAINERS = (1, 2)
WAYS = {"gloo": ("torch", (1, 2)), "ps_lite": ("mxnet", (1, 2)), "ray": ("ray", (1,))}
"""way -> the package that it needs, and with how many trainers it is measured."""
SMALL = ("4KB", "1MB")
"""Sizes that are also measured with ps-lite."""

_START_S = 60.0
_LINK_MBIT = 1000
PIECE = 256 << 10
_FAR_END = """
import socket, sys
listener = socket.create_server(("127.0.0.1", 0))
print(listener.getsockname()[1], flush=True)
sock, _ = listener.accept()
piece = memoryview(bytearray(int(sys.argv[2])))
while count := sock.recv_into(piece):
    if sys.argv[1] == "echo":
        sock.sendall(piece[:count])
"""


def _limits(plan: Plan) -> None:
    for name, run in {
        "memcpy": lambda: copied(plan.size(SIZES["400MB"])),
        "loopback_one_way": lambda: sent(plan.size(SIZES["400MB"]), back=False),
        "loopback_both_ways": lambda: sent(plan.size(SIZES["400MB"]), back=True),
    }.items():
        plan.repeat(f"{name}_GBps", run, "GB/s")


def _size(name: str) -> Callable[[Plan], None]:
    def measure(plan: Plan) -> None:
        size = plan.size(SIZES[name])
        for count in TRAINERS:
            sides: dict[str, Callable[[], Processes]] = {
                f"raw_{name}_w{count}": partial(raw, size, count),
                f"tcp_{name}_w{count}": partial(ours, [size], count, within_node=False),
                f"node_{name}_w{count}": partial(ours, [size], count, in_place=True),
                f"node_copied_{name}_w{count}": partial(ours, [size], count),
            }
            at = f"{name}_w{count}"
            if name != "4KB":
                # Ours does not leave it to the system within a machine: see byte_stream.
                sides[f"raw_reno_{name}_w{count}"] = partial(raw, size, count, "reno")
            if name == "4KB" and count == 1:
                for way in ("raw", "tcp", "node"):
                    sides[f"{way}_apart_{at}"] = _parted(sides[f"{way}_{at}"])
            _contest(plan, sides, latency if name == "4KB" else goodput, size)
            if name == "4KB" and count == 1:
                for way in ("tcp", "node"):
                    plan.report.compare(f"{way}_apart_{at}_vs_raw", f"{way}_apart_{at}", f"raw_apart_{at}")
            if name != "4KB":
                plan.report.compare(f"tcp_{at}_vs_raw_reno", f"tcp_{at}", f"raw_reno_{at}")
            for way in ("tcp", "node", "node_copied"):
                plan.report.compare(f"{way}_{at}_vs_raw", f"{way}_{at}", f"raw_{at}")
            plan.report.compare(f"node_{at}_vs_tcp", f"node_{at}", f"tcp_{at}")

    return measure


def _parted(start: Callable[[], Processes]) -> Callable[[], Processes]:
    return lambda: start().part()


def _mixed(plan: Plan) -> None:
    sizes = mixed_sizes(plan.size(SIZES["40MB"]))
    sides = {
        "step_one_parameter": lambda: ours([sum(sizes)], 1, within_node=False),
        "step_100_parameters": lambda: ours(sizes, 1, within_node=False),
    }
    _contest(plan, sides, latency, sum(sizes))
    plan.report.compare("step_100_vs_1_parameter", "step_100_parameters", "step_one_parameter")


def _wires(plan: Plan) -> None:
    for name, count in (("40MB", 1), ("40MB", 2), ("1MB", 1), ("1MB", 2), ("4KB", 1), ("4KB", 2)):
        size, at = plan.size(SIZES[name]), f"{name}_w{count}"
        sides = {
            f"plain_{at}": partial(ours, [size], count, within_node=False),
            f"sealed_{at}": partial(ours, [size], count, key=KEY, within_node=False),
            f"curve_{at}": partial(ours, [size], count, key=KEY, within_node=False, sealed=False),
        }
        _contest(plan, sides, latency if name == "4KB" else goodput, size)
        plan.report.compare(f"sealed_{at}_vs_plain", f"sealed_{at}", f"plain_{at}")
        plan.report.compare(f"sealed_{at}_vs_curve", f"sealed_{at}", f"curve_{at}")


def _ports(plan: Plan) -> None:
    for name, count in (("40MB", 1), ("1MB", 2)):
        size, at = plan.size(SIZES[name]), f"{name}_w{count}"
        sides = {
            f"{wire}_{at}_ports{ports}": partial(ours, [size], count, key=key, ports=ports, within_node=False)
            for wire, key in (("plain", None), ("sealed", KEY))
            for ports in (1, 2)
        }
        _contest(plan, sides, goodput, size)
        for wire in ("plain", "sealed"):
            plan.report.compare(f"{wire}_{at}_ports2_vs_ports1", f"{wire}_{at}_ports2", f"{wire}_{at}_ports1")


def _trained(face: str) -> Callable[[Plan], None]:
    def measure(plan: Plan) -> None:
        width = 2048 if plan.scale == 1.0 else 256
        for count in TRAINERS:
            at = f"{face}_w{count}"
            sides = {
                at: partial(trained, face, count, width=width, batch=32),
                f"{face}_sent_w{count}": partial(trained, face, count, width=width, batch=32, apart=True),
            }
            _contest(plan, sides, pace, 4 * 2 * width * width)
            plan.report.compare(f"{at}_vs_sent", at, f"{face}_sent_w{count}")

    return measure


def _link(plan: Plan) -> None:
    """Measure steps of a Fluid program over 1 Gbit/s that sends gradients during the backward pass, or after it."""
    if os.geteuid() != 0:
        plan.report.lack("fluid_link", "a slow loopback needs root")
        return
    for name, width in (("10MB", 900), ("100MB", 3350)):
        width = width if plan.scale == 1.0 else width // 5
        sides = {
            f"fluid_{when}_{name}": partial(
                trained, "fluid", 1, width=width, batch=256, apart=True, early=when == "early"
            )
            for when in ("early", "late")
        }
        with own_loopback("reno", _LINK_MBIT):
            _contest(plan, sides, latency, 4 * 2 * width * width)
        plan.report.compare(f"early_vs_late_{name}", f"fluid_early_{name}", f"fluid_late_{name}")


def _peers(plan: Plan, python: str) -> None:
    size = plan.size(SIZES["40MB"])
    for count in TRAINERS:
        at = f"40MB_w{count}"
        sides: dict[str, Callable[[], Processes]] = {
            f"tcp_beside_{at}": partial(ours, [size], count, within_node=False)
        }
        for way, (package, counts) in WAYS.items():
            if not has(python, package):
                plan.report.lack(f"{way}_{at}", f"{package} is not installed")
            elif count in counts:
                sides[f"{way}_{at}"] = partial(peer, way, size, count, python)
        _contest(plan, sides, goodput, size)
        for way in WAYS:
            if f"{way}_{at}" in sides:
                plan.report.compare(f"tcp_vs_{way}_{at}", f"tcp_beside_{at}", f"{way}_{at}")


def _small_peers(plan: Plan, python: str) -> None:
    for name in SMALL:
        for count in TRAINERS:
            size, at = SIZES[name], f"{name}_w{count}"
            if not has(python, "mxnet"):
                plan.report.lack(f"ps_lite_{at}", "mxnet is not installed")
                continue
            sides: dict[str, Callable[[], Processes]] = {
                f"tcp_beside_{at}": partial(ours, [size], count, within_node=False),
                f"sealed_beside_{at}": partial(ours, [size], count, key=KEY, within_node=False),
                f"ps_lite_{at}": partial(peer, "ps_lite", size, count, python),
            }
            _contest(plan, sides, latency, size)
            for wire in ("tcp", "sealed"):
                plan.report.compare(f"{wire}_vs_ps_lite_{at}", f"{wire}_beside_{at}", f"ps_lite_{at}")


def _contest(
    plan: Plan,
    sides: Mapping[str, Callable[[], Processes]],
    measure: Callable[[Plan, Mapping[str, Processes], int], None],
    size: int,
) -> None:
    with contextlib.ExitStack() as stack:
        started: dict[str, Processes] = {}
        for name, start in sides.items():
            try:
                started[name] = stack.enter_context(start())
            except (RuntimeError, OSError) as error:
                plan.report.lack(name, str(error))
        measure(plan, started, size)


MEASUREMENTS: Mapping[str, Callable[[Plan], None]] = {
    "limits": _limits,
    **{name: _size(name) for name in SIZES},
    "mixed": _mixed,
    "wires": _wires,
    "ports": _ports,
    **{face: _trained(face) for face in ("v2", "fluid")},
    "link": _link,
    "memory": memory.measure,
}
NAMES = (*MEASUREMENTS, "peers")


def main(argv: Sequence[str] | None = None) -> int:
    """Measure, print, and write the results."""
    arguments = parser("benchmarks.pserver", __doc__, NAMES)
    add_peers_python(arguments, "torch, ray and mxnet")
    arguments.add_argument("--turns", type=int, default=9, metavar="N", help="of each side (9)")
    given = arguments.parse_args(argv)
    facts = machine.describe(PACKAGES)
    congestion = Path("/proc/sys/net/ipv4/tcp_congestion_control")
    if congestion.exists():
        facts["tcp"] = congestion.read_text().strip()
    quick = given.quick
    plan = Plan(Report(tell=tell), turns=1 if quick else given.turns, scale=0.05 if quick else 1.0)
    for name in given.only:
        tell(f"benchmarks.pserver: {name} ...")
        if name == "peers":
            _small_peers(plan, given.peers_python)
            _peers(plan, given.peers_python)
        else:
            MEASUREMENTS[name](plan)
    plan.report.show(facts, given.json, given.plot)
    return 0


def has(python: str, package: str) -> bool:
    """Return whether a Python has a package."""
    code = "import importlib.util, sys; sys.exit(importlib.util.find_spec(sys.argv[1]) is None)"
    return subprocess.run([python, "-c", code, package], timeout=_START_S, check=False).returncode == 0


def copied(size: int) -> float:
    """Return GB/s of `numpy.copyto`, counting the bytes of the source."""
    source, target = np.ones(size, np.uint8), np.ones(size, np.uint8)
    at = time.perf_counter()
    np.copyto(target, source)
    return size / (time.perf_counter() - at) / 1e9


def sent(size: int, back: bool) -> float:
    """Return GB/s through a loopback connection to another process, counting both directions if it returns the data."""
    with subprocess.Popen(
        [sys.executable, "-c", _FAR_END, "echo" if back else "take", str(PIECE)],
        stdout=subprocess.PIPE,
        text=True,
    ) as child:
        assert child.stdout is not None
        sock = socket.create_connection(("127.0.0.1", int(child.stdout.readline())))
        piece = memoryview(bytes(PIECE))
        at = time.perf_counter()
        sending = threading.Thread(target=_send, args=(sock, piece, size))
        sending.start()
        received, inbox = 0, memoryview(bytearray(PIECE))
        while count := sock.recv_into(inbox):
            received += count
        sending.join()
        took_s = time.perf_counter() - at
        sock.close()
        assert received == (size if back else 0)
    return size * (2 if back else 1) / took_s / 1e9


def _send(sock: socket.socket, piece: memoryview, size: int) -> None:
    for start in range(0, size, PIECE):
        sock.sendall(piece[: min(PIECE, size - start)])
    sock.shutdown(socket.SHUT_WR)


if __name__ == "__main__":
    sys.exit(main())
