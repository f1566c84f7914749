"""Options of TLS and SASL, shared by all clients.

Keys and certificates are PEM, in files or in the options themselves; Java's own formats (JKS, PKCS12) are
refused with the command that converts them. ``sasl.username`` and ``sasl.password`` are librdkafka's names,
for those who would rather not write JAAS; ``sasl.login.callback.handler.class`` takes a Python function
that returns a token.
"""

from __future__ import annotations

from tidelog.client.options.common import one_of_any_case
from tidelog.options import distinct_items, one_of, option

MECHANISMS = ("PLAIN", "SCRAM-SHA-256", "SCRAM-SHA-512", "OAUTHBEARER")

PROTOCOL = (
    option(
        "security.protocol",
        "string",
        "PLAINTEXT",
        "How to talk to brokers: with TLS (`SSL`), with a login (`SASL_PLAINTEXT`), with both (`SASL_SSL`) "
        "or with "
        "neither.",
        one_of_any_case("PLAINTEXT", "SSL", "SASL_PLAINTEXT", "SASL_SSL"),
    ),
)

TLS = (
    option(
        "ssl.truststore.location",
        "string",
        None,
        "PEM file with the certificates of the authorities to trust. Not set: those of the operating system.",
        importance="high",
    ),
    option(
        "ssl.truststore.certificates",
        "password",
        None,
        "The same certificates as PEM text instead of a file.",
        importance="high",
    ),
    option(
        "ssl.truststore.type",
        "string",
        "PEM",
        "Format of the file; PEM is the one that is read. (Java: JKS.)",
    ),
    option(
        "ssl.keystore.location",
        "string",
        None,
        "PEM file with this client's private key and certificate chain, for brokers that ask for one.",
        importance="high",
    ),
    option("ssl.keystore.key", "password", None, "The private key as PEM text.", importance="high"),
    option(
        "ssl.keystore.certificate.chain",
        "password",
        None,
        "The certificate chain as PEM text, this client's first.",
        importance="high",
    ),
    option(
        "ssl.keystore.type", "string", "PEM", "Format of the file; PEM is the one that is read. (Java: JKS.)"
    ),
    option("ssl.key.password", "password", None, "Password of an encrypted private key.", importance="high"),
    option(
        "ssl.endpoint.identification.algorithm",
        "string",
        "https",
        "`https`: the broker's certificate must name the host connected to. Empty: it need not; any trusted "
        "certificate will do.",
        one_of("https", "HTTPS", ""),
        importance="low",
    ),
    option(
        "ssl.enabled.protocols",
        "list",
        ("TLSv1.2", "TLSv1.3"),
        "Versions of TLS to offer.",
        distinct_items(of=("TLSv1.2", "TLSv1.3"), empty_ok=False),
    ),
    option(
        "ssl.cipher.suites",
        "list",
        (),
        "Ciphers for TLS 1.2, in OpenSSL's names. Empty: OpenSSL's own choice.",
        distinct_items(),
        importance="low",
    ),
)

SASL = (
    option(
        "sasl.mechanism",
        "string",
        "GSSAPI",
        f"How to log in: {', '.join(f'`{name}`' for name in MECHANISMS)}. Kafka's default, Kerberos, is not "
        "supported: set one.",
    ),
    option("sasl.username", "string", None, "User name for PLAIN and SCRAM."),
    option("sasl.password", "password", None, "Password for PLAIN and SCRAM."),
    option(
        "sasl.jaas.config",
        "password",
        None,
        "User name and password the way Java's clients take them: "
        '`…LoginModule required username="u" password="p";`.',
    ),
    option(
        "sasl.login.callback.handler.class",
        "class",
        None,
        "For OAUTHBEARER: a function, plain or `async`, that returns a token as text, called for each "
        "connection.",
    ),
)
