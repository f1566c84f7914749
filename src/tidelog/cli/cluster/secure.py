"""``tidelog cluster start --secure``: certificates, a first user, and the files by which clients connect.

Made at the first start, in ``security`` under ``--data-dir``, and found there by the next one: an authority
and a certificate for localhost, the options of all brokers (SASL_SSL, SCRAM-SHA-512, access rules), and
property files for the first user, ``admin``, who is the brokers', too, and whom no rule binds. His password
is drawn then; what holds it, or a private key, is for its owner's eyes only.
"""

from __future__ import annotations

import os
import secrets
from collections.abc import Mapping
from pathlib import Path

from tidelog.cli.foreground import HOST
from tidelog.properties import read_properties

ADMIN = "admin"
_MECHANISM = "SCRAM-SHA-512"
_MODULE = "org.apache.kafka.common.security.scram.ScramLoginModule"
_PRIVATE, _PUBLIC = 0o600, 0o644


class SecureCluster:
    """The directory with all of it."""

    def __init__(self, directory: Path) -> None:
        self._directory = directory
        self.clients = directory / "admin.properties"
        """For Tidelog's clients and commands, and for Java's."""
        self.librdkafka = directory / "admin.librdkafka.properties"
        self._brokers = directory / "brokers.properties"

    def broker_options(self) -> Mapping[str, str]:
        """The options of every broker; made, with all files, if there are none yet."""
        if not self._brokers.exists():
            self._create()
        return read_properties(self._brokers)

    def tell_clients(self, bootstrap: str) -> None:
        """Write where the brokers are into the files of clients."""
        for file in (self.clients, self.librdkafka):
            lines = [each for each in file.read_text().splitlines() if not each.startswith("bootstrap.")]
            _write(file, "\n".join((*lines, f"bootstrap.servers={bootstrap}", "")), _PRIVATE)

    def _create(self) -> None:
        from tidelog.cli.certs.authority import Authority

        self._directory.mkdir(parents=True, exist_ok=True)
        authority = Authority.create(f"Tidelog development authority of {os.uname().nodename}")
        server = authority.issue("localhost", ["localhost", HOST, "::1"])
        ca, pair = self._directory / "ca.pem", self._directory / "server.pem"
        _write(self._directory / "ca.key", authority.own.key_pem, _PRIVATE)
        _write(ca, authority.own.certificate_pem, _PUBLIC)
        _write(pair, server.key_pem + server.certificate_pem, _PRIVATE)
        password = secrets.token_urlsafe(18)
        jaas = f'{_MODULE} required username="{ADMIN}" password="{password}";'
        _write(
            self.clients,
            f"""\
# For Tidelog's clients and commands (TIDELOG_COMMAND_CONFIG), Java's clients and Kafka's own tools.
security.protocol=SASL_SSL
sasl.mechanism={_MECHANISM}
sasl.jaas.config={jaas}
ssl.truststore.type=PEM
ssl.truststore.location={ca}
""",
            _PRIVATE,
        )
        _write(
            self.librdkafka,
            f"""\
# For librdkafka and what stands on it: confluent-kafka, kcat (-F), …
security.protocol=SASL_SSL
sasl.mechanism={_MECHANISM}
sasl.username={ADMIN}
sasl.password={password}
ssl.ca.location={ca}
""",
            _PRIVATE,
        )
        # Last: who finds it finds the others.
        _write(
            self._brokers,
            f"""\
# For every broker of this cluster.
listeners=SASL_SSL://{HOST}:0
security.inter.broker.protocol=SASL_SSL
sasl.enabled.mechanisms={_MECHANISM}
sasl.mechanism.inter.broker.protocol={_MECHANISM}
listener.name.sasl_ssl.{_MECHANISM.lower()}.sasl.jaas.config={jaas}
tidelog.bootstrap.user={ADMIN}:{password}:{_MECHANISM}
delegation.token.secret.key={secrets.token_urlsafe(32)}
ssl.keystore.type=PEM
ssl.keystore.location={pair}
ssl.truststore.type=PEM
ssl.truststore.location={ca}
authorizer.class.name=kafka.security.authorizer.AclAuthorizer
super.users=User:{ADMIN}
""",
            _PRIVATE,
        )


def _write(path: Path, text: str, mode: int) -> None:
    """In one step, and never readable by others than its mode says."""
    beside = path.with_name(f".{path.name}.new")
    beside.unlink(missing_ok=True)
    with os.fdopen(os.open(beside, os.O_WRONLY | os.O_CREAT | os.O_EXCL, mode), "w") as file:
        file.write(text)
    beside.replace(path)
