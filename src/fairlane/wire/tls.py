"""The TLS context of programs that connect to a server: client, command line, Spark, nodes of a cluster."""

from __future__ import annotations

import ssl


def client_context(
    *,
    ca: str | None = None,
    certificate: str | None = None,
    certificate_key: str | None = None,
    trusts_system: bool = False,
) -> ssl.SSLContext:
    """Create the TLS context of a client.

    Args:
        ca: a file with the certificate authorities to trust; None for those of the system.
        certificate: a file with the client's own certificate, for servers that require one.
        certificate_key: a file with the key of ``certificate``; None if both are in one file.
        trusts_system: trust the authorities of the system in addition to those in ``ca``.
    """
    # create_default_context trusts the system only when it gets no file, so both together take two steps.
    context = ssl.create_default_context(cafile=None if trusts_system else ca)
    if trusts_system and ca is not None:
        context.load_verify_locations(ca)
    if certificate is not None:
        context.load_cert_chain(certificate, certificate_key)
    return context
