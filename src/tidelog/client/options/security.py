"""Options of TLS and SASL, shared by all clients.

Keys and certificates are PEM, in files or in the options themselves, or Java's own formats (PKCS12, JKS);
what a file is is told by how it begins. ``sasl.username`` and ``sasl.password`` are librdkafka's names,
for those who would rather not write JAAS; ``sasl.login.callback.handler.class`` takes a Python function
that returns a token.
"""

from __future__ import annotations

from tidelog.client.options.common import one_of_any_case
from tidelog.options import distinct_items, one_of, option

MECHANISMS = ("PLAIN", "SCRAM-SHA-256", "SCRAM-SHA-512", "OAUTHBEARER", "GSSAPI")

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
        "File with the certificates of the authorities to trust: PEM, PKCS12 or JKS. Not set: those of the "
        "operating system.",
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
        "PEM, PKCS12 or JKS; the file itself tells which of them it is. (Java: JKS.)",
    ),
    option(
        "ssl.truststore.password", "password", None, "Password of a PKCS12 or JKS file.", importance="high"
    ),
    option(
        "ssl.keystore.location",
        "string",
        None,
        "File with this client's private key and certificate chain, for brokers that ask for one: PEM, "
        "PKCS12 or JKS.",
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
        "ssl.keystore.type",
        "string",
        "PEM",
        "PEM, PKCS12 or JKS; the file itself tells which of them it is. (Java: JKS.)",
    ),
    option("ssl.keystore.password", "password", None, "Password of a PKCS12 or JKS file.", importance="high"),
    option("ssl.key.password", "password", None, "Password of an encrypted private key.", importance="high"),
    option("ssl.protocol", "string", "TLSv1.3", "The newest version of TLS: TLSv1.3 or TLSv1.2."),
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
        "Ciphers, by their IANA names or OpenSSL's. Those of TLS 1.3 are on together, if one is named, or "
        "off. Empty: OpenSSL's own choice.",
        distinct_items(),
        importance="low",
    ),
)

SASL = (
    option(
        "sasl.mechanism",
        "string",
        "GSSAPI",
        f"How to log in: {', '.join(f'`{name}`' for name in MECHANISMS)}. The default is Kafka's; Kerberos "
        "needs the extra `tidelog[gssapi]`.",
    ),
    option("sasl.username", "string", None, "User name for PLAIN and SCRAM."),
    option("sasl.password", "password", None, "Password for PLAIN and SCRAM."),
    option(
        "sasl.tokenauth",
        "boolean",
        False,
        "For SCRAM: user name and password are the id and the HMAC (in Base64) of a delegation token. In "
        "`sasl.jaas.config` it is `tokenauth=true`, as in Java.",
    ),
    option(
        "sasl.jaas.config",
        "password",
        None,
        "User name and password the way Java's clients take them: "
        '`…LoginModule required username="u" password="p";`. For GSSAPI: `…Krb5LoginModule required '
        'useKeyTab=true keyTab="…" principal="…";` or `useTicketCache=true`; not set: what the environment '
        "says (`KRB5CCNAME`, `KRB5_CLIENT_KTNAME`).",
    ),
    option(
        "sasl.kerberos.service.name",
        "string",
        None,
        "For GSSAPI: the name that brokers have before the slash in their principals, such as `kafka`.",
    ),
    option(
        "sasl.login.callback.handler.class",
        "class",
        None,
        "For OAUTHBEARER: a function, plain or `async`, that returns a token as text, called for each "
        "connection.",
    ),
)
