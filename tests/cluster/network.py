# SPDX-License-Identifier: Apache-2.0
"""The network of a test cluster: a bridge in the gate's namespace, a veth pair per host and one for the gate.

Nothing here touches the network namespace of the test process. Names of devices are short because Linux
allows 15 characters; they cannot clash, as every cluster has a bridge namespace of its own.
"""

from __future__ import annotations

import string
from collections.abc import Iterable
from dataclasses import dataclass

from tests.cluster.namespaces import Namespaces

BRIDGE = "br0"
NIC = "eth0"
GATE_NIC = "gate0"  # the gate's own cable: what the launcher sends and gets goes through it
FAST_MBIT = 100
_GATE_PORT = "gateport"
NOWHERE = "02:00:00:00:00:01"  # a hardware address that nobody has
MOST = 1000  # a Linux bridge has 1023 ports
PREFIX_LENGTH = 16
CLUSTERS = range(1, 255)
_PER_BLOCK = 200


@dataclass(frozen=True)
class Port:
    """Where a host is plugged in.

    Attributes:
        device: the end of the veth pair on the bridge.
        mac: hardware address of the host's end.
        address: IPv4 address of the host.
    """

    device: str
    mac: str
    address: str


def make_bridge(gate: Namespaces, address: str) -> None:
    """Makes the bridge and plugs the gate in."""
    ip(
        gate,
        "link set lo up",
        f"link add {BRIDGE} type bridge stp_state 0 forward_delay 0",
        f"link set {BRIDGE} up",
        f"link add {_GATE_PORT} type veth peer name {GATE_NIC}",
        f"link set {_GATE_PORT} master {BRIDGE} up",
        f"addr add {address}/{PREFIX_LENGTH} dev {GATE_NIC}",
        f"link set {GATE_NIC} up",
    )


def plug_in(gate: Namespaces, cables: Iterable[tuple[Namespaces, Port]]) -> None:
    """Connects hosts to the bridge; each brings up its own end with `host_commands`."""
    ip(
        gate,
        *(
            command
            for host, port in cables
            for command in (
                f"link add {port.device} type veth peer name {NIC} address {port.mac} netns {host.pid}",
                f"link set {port.device} master {BRIDGE} up",
            )
        ),
    )


def host_commands(port: Port, pinned: Iterable[Port] = ()) -> str:
    """What a host gives to `ip -batch` once its cable is in.

    Args:
        pinned: neighbours that it knows for good, see `pin_neighbour`.
    """
    lines = ["link set lo up", f"addr add {port.address}/{PREFIX_LENGTH} dev {NIC}", f"link set {NIC} up"]
    lines += [f"neigh add {to.address} lladdr {to.mac} nud permanent dev {NIC}" for to in pinned]
    return "\n".join(lines) + "\n"


def unplug(gate: Namespaces, ports: Iterable[Port]) -> None:
    """Removes hosts' cables, both ends; they may not have been plugged in."""
    ip(gate, *(f"link del {port.device}" for port in ports), check=False)


def set_link(gate: Namespaces, port: Port, state: str) -> None:
    """Sets the bridge's end of a host's cable "up" or "down"."""
    ip(gate, f"link set {port.device} {state}")


def pin_neighbour(viewer: Namespaces, device: str, address: str, mac: str) -> None:
    """Makes `viewer` send packets for `address` to `mac` without ever asking who has it."""
    ip(viewer, f"neigh replace {address} lladdr {mac} nud permanent dev {device}")


def forget_neighbour(viewer: Namespaces, device: str, address: str) -> None:
    """Makes `viewer` ask again who has `address`."""
    ip(viewer, f"neigh del {address} dev {device}", check=False)


def set_rate(gate: Namespaces, host: Namespaces, port: Port, mbit: float | None) -> None:
    """Limits a host's cable in both directions, or lifts the limit with None."""
    _limit(gate, port.device, mbit)
    _limit(host, NIC, mbit)


def set_gate_rate(gate: Namespaces, mbit: float | None) -> None:
    """Limits the gate's cable in both directions, or lifts the limit with None."""
    _limit(gate, GATE_NIC, mbit)
    _limit(gate, _GATE_PORT, mbit)


def gate_bytes(gate: Namespaces) -> tuple[int, int]:
    """Bytes that left and reached the gate over its cable since it was made."""
    files = [f"/sys/class/net/{GATE_NIC}/statistics/{route}_bytes" for route in ("tx", "rx")]
    sent, received = gate.run(["cat", *files]).stdout.split()
    return int(sent), int(received)


def _limit(side: Namespaces, device: str, mbit: float | None) -> None:
    if mbit is None:
        _tc(side, f"qdisc del dev {device} root", check=False)
    else:
        # a burst above 64 KiB lets through whole what TCP hands over at once; cut into packets, it would keep the
        # machine busier than what is tested. On a slow cable it would be a second's worth.
        sizes = "burst 256kb limit 1mb" if mbit >= FAST_MBIT else "burst 64kb limit 512kb"
        _tc(side, f"qdisc replace dev {device} root tbf rate {mbit}mbit {sizes}")


def ip(where: Namespaces, *commands: str, check: bool = True) -> None:
    """Runs ip(8) commands in a network namespace as one batch; without `check` each is tried."""
    force = [] if check else ["-force"]
    where.run(["ip", *force, "-batch", "-"], kinds=("--net",), input="\n".join(commands) + "\n", check=check)


def _tc(where: Namespaces, command: str, check: bool = True) -> None:
    where.run(["tc", "-batch", "-"], kinds=("--net",), input=command + "\n", check=check)


def host_name(index: int) -> str:
    """node-a to node-z, then node-27 and so on."""
    letters = string.ascii_lowercase
    return f"node-{letters[index]}" if index < len(letters) else f"node-{index + 1}"


def gate_address(cluster: int) -> str:
    """Address of the launcher's side."""
    return f"10.{cluster}.0.1"


def host_address(cluster: int, index: int) -> str:
    """Address of host `index`."""
    block, place = divmod(index, _PER_BLOCK)
    return f"10.{cluster}.{block}.{11 + place}"


def host_mac(index: int) -> str:
    """Hardware address of host `index`; it stays when the host is switched off and on, as a real machine's."""
    return f"02:77:00:00:{index // 256:02x}:{index % 256:02x}"
