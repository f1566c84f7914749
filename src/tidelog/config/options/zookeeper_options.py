"""Options of the connection to ZooKeeper that protect it, and what is kept there. Names are Kafka 3.9's.

Part of the table in ``broker_options``; ``zookeeper_settings`` makes of them what a store connects with.
"""

from __future__ import annotations

from tidelog.options import Option, at_least, matching, one_of, option
from tidelog.security.password_encoder import CIPHERS, KEY_FACTORIES, KEY_LENGTHS

ZOOKEEPER_JAAS = "tidelog.zookeeper.jaas.config"
_SOCKETS = ("org.apache.zookeeper.ClientCnxnSocketNetty", "org.apache.zookeeper.ClientCnxnSocketNIO")

ZOOKEEPER_SECURITY_OPTIONS: tuple[Option, ...] = (
    option(
        "zookeeper.set.acl",
        "boolean",
        False,
        "Whether the nodes that this broker makes belong to whoever it is to ZooKeeper: others may read "
        "them, except what is secret, and change none. Needs a login or a certificate, the same for all "
        "brokers.",
        importance="high",
    ),
    option(
        ZOOKEEPER_JAAS,
        "password",
        None,
        "How this broker logs in at ZooKeeper (SASL/DIGEST-MD5), as Kafka has it in the section Client of "
        'its JAAS file: `org.apache.zookeeper.server.auth.DigestLoginModule required username="…" '
        'password="…";`.',
        internal=True,
    ),
    option(
        "zookeeper.ssl.client.enable",
        "boolean",
        False,
        "Whether connections to ZooKeeper speak TLS; zookeeper.connect then names its ports for that.",
    ),
    option(
        "zookeeper.clientCnxnSocket",
        "string",
        None,
        "The class by which Kafka connects, which must be set there for TLS. Here it changes nothing.",
        one_of(*_SOCKETS),
    ),
    option(
        "zookeeper.ssl.keystore.location",
        "string",
        None,
        "The broker's key and certificate for ZooKeeper, if that asks for one.",
    ),
    option("zookeeper.ssl.keystore.password", "password", None, "The password of that file, and of the key."),
    option(
        "zookeeper.ssl.keystore.type",
        "string",
        None,
        "PEM, PKCS12 or JKS; told by the file if it is not set.",
    ),
    option(
        "zookeeper.ssl.truststore.location",
        "string",
        None,
        "Whose certificates ZooKeeper's may be of; the system's authorities if it is not set.",
    ),
    option("zookeeper.ssl.truststore.password", "password", None, "The password of that file."),
    option(
        "zookeeper.ssl.truststore.type",
        "string",
        None,
        "PEM, PKCS12 or JKS; told by the file if it is not set.",
    ),
    option(
        "zookeeper.ssl.protocol",
        "string",
        "TLSv1.2",
        "Kafka's newest version of TLS where zookeeper.ssl.enabled.protocols is not set; here TLSv1.3.",
        importance="low",
    ),
    option(
        "zookeeper.ssl.enabled.protocols",
        "list",
        None,
        "The versions of TLS that may be spoken: TLSv1.2, TLSv1.3.",
        importance="low",
    ),
    option(
        "zookeeper.ssl.cipher.suites",
        "list",
        None,
        "The cipher suites that may be used, by IANA's names; all that are sound if it is not set.",
        importance="low",
    ),
    option(
        "zookeeper.ssl.endpoint.identification.algorithm",
        "string",
        "HTTPS",
        "Whether ZooKeeper's certificate must be for the host that was connected to; empty for no.",
        importance="low",
    ),
)

PASSWORD_ENCODER_OPTIONS: tuple[Option, ...] = (
    option(
        "password.encoder.secret",
        "password",
        None,
        "What passwords among dynamic options are encrypted with; the same on every broker. Brokers of a "
        "cluster need it before such an option can be set.",
    ),
    option(
        "password.encoder.old.secret",
        "password",
        None,
        "The secret before the last change of password.encoder.secret, for what was encrypted with it.",
    ),
    option(
        "password.encoder.keyfactory.algorithm",
        "string",
        None,
        "How the key is made of the secret; PBKDF2WithHmacSHA512 if it is not set.",
        matching(f"one of {', '.join(KEY_FACTORIES)}", "it is not known", lambda text: text in KEY_FACTORIES),
        importance="low",
    ),
    option(
        "password.encoder.cipher.algorithm",
        "string",
        "AES/CBC/PKCS5Padding",
        "What passwords are encrypted with.",
        one_of(*CIPHERS),
        importance="low",
    ),
    option(
        "password.encoder.key.length",
        "int",
        128,
        f"The length of the key in bits: {', '.join(map(str, KEY_LENGTHS))}.",
        at_least(8),
        importance="low",
    ),
    option(
        "password.encoder.iterations",
        "int",
        4096,
        "How often the secret is hashed to make the key.",
        at_least(1024),
        importance="low",
    ),
)
