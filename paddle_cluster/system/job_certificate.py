# SPDX-License-Identifier: Apache-2.0
"""A job's certificate and its key, by which nodes authenticate each other when they relay files, or their launcher.

The key is sent only inside SSH, or not at all.
"""

from __future__ import annotations

from datetime import UTC, datetime

from paddle_node.contract.classes import dataclass, field

_FROM = datetime(2000, 1, 1, tzinfo=UTC)  # jobs are short; the clocks of nodes may have any offset
_UNTIL = datetime(9999, 12, 31, tzinfo=UTC)


@dataclass(frozen=True)
class Certificate:
    """A certificate and its key, as PEM texts.

    Attributes:
        key: secret; not in the repr.
    """

    certificate: str
    key: str = field(repr=False)


def make() -> Certificate:
    """Create a new key and its self-signed certificate, as PEM texts."""
    from cryptography import x509
    from cryptography.hazmat.primitives import hashes, serialization
    from cryptography.hazmat.primitives.asymmetric import ec
    from cryptography.x509.oid import NameOID

    key = ec.generate_private_key(ec.SECP256R1())
    name = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, "paddle job")])
    usage = x509.KeyUsage(True, False, False, False, False, True, False, False, False)
    certificate = (
        x509.CertificateBuilder()
        .subject_name(name)
        .issuer_name(name)
        .public_key(key.public_key())
        .serial_number(x509.random_serial_number())
        .not_valid_before(_FROM)
        .not_valid_after(_UNTIL)
        .add_extension(x509.BasicConstraints(ca=True, path_length=0), critical=True)
        .add_extension(usage, critical=True)
        .add_extension(x509.SubjectKeyIdentifier.from_public_key(key.public_key()), critical=False)
        .sign(key, hashes.SHA256())
    )
    return Certificate(
        certificate.public_bytes(serialization.Encoding.PEM).decode(),
        key.private_bytes(
            serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
        ).decode(),
    )
