# SPDX-License-Identifier: Apache-2.0
"""Names and addresses of test hosts: pure functions of a cluster's number and a host's index.

Every cluster has a /16 of its own, all hosts on one link: the bridge has room for MOST of them.
"""

from __future__ import annotations

import string

MOST = 1000  # a Linux bridge has 1023 ports
PREFIX_LENGTH = 16
CLUSTERS = range(1, 255)
_PER_BLOCK = 200


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
