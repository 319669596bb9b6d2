# SPDX-License-Identifier: Apache-2.0
"""TLS between the nodes of one job: both sides present one certificate, the job's, and accept no other.

The certificate and its key come from the launcher and stay in memory; the key is never in a named file where the
kernel has memory files.
"""

from __future__ import annotations

import ssl

from paddle_node.contract.classes import NamedTuple
from paddle_node.linux.descriptors import memory_file


class Identity(NamedTuple):
    """What a node needs to speak to its peers.

    Attributes:
        certificate: DER, what a peer must present.
    """

    server: ssl.SSLContext
    client: ssl.SSLContext
    certificate: bytes


def identity(certificate: str, key: str) -> Identity:
    """Make both sides from PEM texts.

    Raises:
        ValueError: they are no certificate and its key.
        OSError: no file can be made for the key.
    """
    try:
        der = ssl.PEM_cert_to_DER_cert(certificate)
        contexts = []
        with memory_file("relay", (certificate + key).encode("ascii")) as path:
            for protocol in (ssl.PROTOCOL_TLS_SERVER, ssl.PROTOCOL_TLS_CLIENT):
                context = ssl.SSLContext(protocol)
                context.minimum_version = (
                    ssl.TLSVersion.TLSv1_3 if ssl.HAS_TLSv1_3 else ssl.TLSVersion.TLSv1_2
                )
                context.options |= ssl.OP_NO_COMPRESSION
                context.check_hostname = False  # the certificate itself is compared
                context.verify_mode = ssl.CERT_REQUIRED
                context.load_cert_chain(path)
                context.load_verify_locations(cadata=der)
                contexts.append(context)
    except ssl.SSLError as error:
        raise ValueError("the relay's certificate or key cannot be used: %s" % error) from error
    if hasattr(contexts[0], "num_tickets"):
        contexts[0].num_tickets = 0  # nobody comes a second time
    return Identity(contexts[0], contexts[1], der)
