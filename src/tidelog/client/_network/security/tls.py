"""TLS from Kafka's options: keys and certificates into an ``ssl.SSLContext``.

The loader is the broker's (``tidelog.security.tls``): PEM, PKCS12 and JKS, IANA's names of ciphers. Text in
options and files exclude each other. Nothing is read again while the client lives.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from tidelog.security.tls.context import client_context
from tidelog.security.tls.settings import read_settings

if TYPE_CHECKING:
    import ssl

    from tidelog.client.options import ClientConfig


def tls_context(config: ClientConfig) -> ssl.SSLContext:
    """The context that all connections of a client share."""
    check_hostname = config.str("ssl.endpoint.identification.algorithm") != ""
    return client_context(read_settings(config), check_hostname=check_hostname).context
