"""Broker options of TLS: keys, trust, versions, ciphers, and who a client with a certificate is.

Part of the table in ``broker_options``; names, types, defaults and bounds are Kafka 4's. Each can be set for
one listener, ``listener.name.<listener>.<option>``. While the broker runs, only the stores of single
listeners can change (``RECONFIGURABLE``): ``dynamic_config`` refuses everything else. ``security/tls`` makes
contexts of them.
"""

from __future__ import annotations

from tidelog.options import Option, distinct_items, one_of, option

TLS_OPTIONS: tuple[Option, ...] = (
    option(
        "ssl.keystore.location",
        "string",
        None,
        "File with the private key and the certificate chain that the broker shows: PEM, PKCS12 or JKS. It "
        "is watched, and read again when it changes.",
        dynamic="per-broker",
    ),
    option(
        "ssl.keystore.type",
        "string",
        "JKS",
        "JKS, PKCS12 or PEM; the file itself tells which of them it is.",
        dynamic="per-broker",
    ),
    option(
        "ssl.keystore.password",
        "password",
        None,
        "The password of a PKCS12 or JKS key store; a PEM file has none.",
        dynamic="per-broker",
    ),
    option(
        "ssl.key.password",
        "password",
        None,
        "The password of an encrypted private key, where it is not that of its store.",
        dynamic="per-broker",
    ),
    option(
        "ssl.keystore.key",
        "password",
        None,
        "The private key as PEM text, in place of a file.",
        dynamic="per-broker",
    ),
    option(
        "ssl.keystore.certificate.chain",
        "password",
        None,
        "The certificate chain as PEM text, the key's own first; goes with ssl.keystore.key.",
        dynamic="per-broker",
    ),
    option(
        "ssl.truststore.location",
        "string",
        None,
        "File with the certificates of the authorities whose clients are let in: PEM, PKCS12 or JKS. It is "
        "watched, too. Not set: those of the operating system.",
        dynamic="per-broker",
    ),
    option(
        "ssl.truststore.type",
        "string",
        "JKS",
        "JKS, PKCS12 or PEM; the file itself tells which of them it is.",
        dynamic="per-broker",
    ),
    option(
        "ssl.truststore.password",
        "password",
        None,
        "The password of a PKCS12 or JKS trust store; without it a JKS is not checked for changes.",
        dynamic="per-broker",
    ),
    option(
        "ssl.truststore.certificates",
        "password",
        None,
        "The certificates to trust as PEM text, in place of a file.",
        dynamic="per-broker",
    ),
    option(
        "ssl.client.auth",
        "string",
        "none",
        "Whether clients have to show a certificate, may, or are not asked. On SASL_SSL listeners it holds "
        "only where it is set for the listener itself.",
        one_of("required", "requested", "none"),
        dynamic="per-broker",
    ),
    option(
        "ssl.principal.mapping.rules",
        "string",
        "DEFAULT",
        "Rules that make a name of a client certificate's distinguished name: RULE:pattern/replacement/ with "
        "L or U for lower or upper case, or DEFAULT. The first that matches counts; where none does, the "
        "client is refused.",
        importance="low",
    ),
    option(
        "ssl.enabled.protocols",
        "list",
        ("TLSv1.2", "TLSv1.3"),
        "The versions of TLS that are offered. Older ones may be named, and are not.",
        distinct_items(),
        dynamic="per-broker",
    ),
    option(
        "ssl.protocol",
        "string",
        "TLSv1.3",
        "TLSv1.2 leaves out TLS 1.3, TLSv1.3 nothing.",
        dynamic="per-broker",
    ),
    option(
        "ssl.cipher.suites",
        "list",
        (),
        "The cipher suites that are offered, by their IANA names; empty means all that OpenSSL finds good. "
        "Of TLS 1.3 either none is named or TLS_AES_256_GCM_SHA384 among others.",
        distinct_items(),
        dynamic="per-broker",
    ),
    option(
        "ssl.endpoint.identification.algorithm",
        "string",
        "https",
        "Where this broker connects to others: https means that their certificates have to name the host, "
        "nothing that any trusted certificate will do.",
        importance="low",
        dynamic="per-broker",
    ),
    option(
        "ssl.allow.dn.changes",
        "boolean",
        False,
        "Whether a new certificate may have another distinguished name than the one it follows.",
        importance="low",
    ),
    option(
        "ssl.allow.san.changes",
        "boolean",
        False,
        "Whether a new certificate may lack names of hosts that the one it follows has.",
        importance="low",
    ),
)

RECONFIGURABLE: frozenset[str] = frozenset(
    {
        "ssl.keystore.location",
        "ssl.keystore.type",
        "ssl.keystore.password",
        "ssl.key.password",
        "ssl.keystore.key",
        "ssl.keystore.certificate.chain",
        "ssl.truststore.location",
        "ssl.truststore.type",
        "ssl.truststore.password",
        "ssl.truststore.certificates",
    }
)
"""Those that can change for a listener that is open."""
