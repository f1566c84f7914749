"""A broker whose one listener speaks SASL_SSL, with users by PLAIN and SCRAM and with delegation tokens."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path

from tests.rigs.sasl_broker import KAFKA
from tests.rigs.tls_files import TlsFiles

from tidelog.testing.broker_thread import BrokerThread

PASSWORDS: Mapping[str, str] = {
    "alice": "alice-secret",
    "bob": "bob-secret",
    "carol": "carol-secret",
}
"""Of those who log in by PLAIN; ``admin`` does by SCRAM-SHA-512, with ``admin-secret``."""


class SaslSslBroker:
    """The broker, and what clients have to be told."""

    def __init__(self, broker: BrokerThread, files: TlsFiles) -> None:
        self.thread = broker
        self.trust = files.trust
        self.port = broker.call(lambda each: each.advertised[0].port)
        self.address = f"localhost:{self.port}"

    def client(self, name: str) -> dict[str, str]:
        """The options of a client who logs in as somebody."""
        return {
            "bootstrap.servers": self.address,
            "security.protocol": "SASL_SSL",
            "ssl.truststore.location": str(self.trust),
            "sasl.mechanism": "SCRAM-SHA-512" if name == "admin" else "PLAIN",
            "sasl.username": name,
            "sasl.password": f"{name}-secret",
        }


@contextmanager
def sasl_ssl_broker(directory: Path, **more: str) -> Iterator[SaslSslBroker]:
    """Started, on a port of its own; options with underscores for dots."""
    files = TlsFiles(directory / "tls")
    users = " ".join(f'user_{name}="{password}"' for name, password in PASSWORDS.items())
    options = {
        "listeners": "SASL_SSL://127.0.0.1:0",
        "security.inter.broker.protocol": "SASL_SSL",
        "sasl.enabled.mechanisms": "PLAIN,SCRAM-SHA-256,SCRAM-SHA-512",
        "sasl.mechanism.inter.broker.protocol": "PLAIN",
        "listener.name.sasl_ssl.plain.sasl.jaas.config": (
            f'{KAFKA}plain.PlainLoginModule required username="alice" password="alice-secret" {users};'
        ),
        "tidelog.bootstrap.user": "admin:admin-secret:SCRAM-SHA-512",
        "ssl.keystore.location": str(files.server),
        "ssl.truststore.location": str(files.trust),
        "delegation.token.secret.key": "brokers-only",
        "connection.failed.authentication.delay.ms": "10",
        "offsets.topic.replication.factor": "1",
        "offsets.topic.num.partitions": "1",
        "transaction.state.log.replication.factor": "1",
        "transaction.state.log.num.partitions": "1",
        "transaction.state.log.min.isr": "1",
        **{name.replace("_", "."): text for name, text in more.items()},
    }
    with BrokerThread(
        directory / "data", options={name: text for name, text in options.items() if text}
    ) as broker:
        yield SaslSslBroker(broker, files)
