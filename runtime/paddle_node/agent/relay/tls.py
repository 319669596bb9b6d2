# SPDX-License-Identifier: Apache-2.0
"""TLS between the nodes of one job: both sides present the job's certificate, and accept no other.

The launcher sends the certificate and its key, which stay in memory; where the kernel supports in-memory files, the key
is never in a named file.
"""

from __future__ import annotations

import ssl

from paddle_node.contract.classes import NamedTuple
from paddle_node.linux.descriptors import memory_file


class Identity(NamedTuple):
    """The certificate and key with which a node authenticates to its peers.

    Attributes:
        certificate: the certificate that a peer must present, as DER.
    """

    server: ssl.SSLContext
    client: ssl.SSLContext
    certificate: bytes


def identity(certificate: str, key: str) -> Identity:
    """Create the identity, for both sides of a connection, from PEM texts.

    Raises:
        ValueError: the texts are not a certificate and its key.
        OSError: the file for the key cannot be created.
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
        raise ValueError("cannot use the relay's certificate or key: %s" % error) from error
    if hasattr(contexts[0], "num_tickets"):
        contexts[0].num_tickets = 0  # no peer connects a second time
    return Identity(contexts[0], contexts[1], der)
