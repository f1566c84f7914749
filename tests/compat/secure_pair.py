"""Apache Kafka 3.9 and Tidelog on one ZooKeeper, with SASL_SSL everywhere and access rules.

There is one listener, which clients and brokers use alike, and one user of the brokers, ``admin``, whom no
rule binds. Whichever broker is first makes him: Kafka's by ``kafka-configs --zookeeper``, as its documents
say, ours by ``tidelog.bootstrap.user``; the other one logs in with what it finds.
"""

from __future__ import annotations

import asyncio
import ssl
import subprocess
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any, NamedTuple, TypeVar

from foreign import toolchain
from tests.compat.mixed_cluster import JARS, KAFKA, TIDELOG, MixedCluster, without_features
from tests.rigs.certificates import Certificates

from tidelog.client._network.cluster import Cluster
from tidelog.client._network.from_options import network_settings
from tidelog.client.options import ADMIN as ADMIN_OPTIONS
from tidelog.client.options import ClientConfig
from tidelog.wire.schema import Payload

ADMIN, ADMIN_PASSWORD = "admin", "the brokers' word"
SCRAM, PLAIN = "SCRAM-SHA-512", "PLAIN"

_MODULES = "org.apache.kafka.common.security"
_SCRAM_MODULE = f"{_MODULES}.scram.ScramLoginModule required"
_OWN = f'username="{ADMIN}" password="{ADMIN_PASSWORD}"'

ResponseT = TypeVar("ResponseT", bound=Payload)


class Login(NamedTuple):
    """How somebody logs in."""

    username: str
    password: str
    mechanism: str = SCRAM
    by_token: bool = False

    @property
    def jaas(self) -> str:
        """As Java's clients are told."""
        module = f"{_MODULES}.plain.PlainLoginModule required" if self.mechanism == PLAIN else _SCRAM_MODULE
        token = " tokenauth=true" if self.by_token else ""
        return f'{module} username="{self.username}" password="{self.password}"{token};'


ADMINISTRATOR = Login(ADMIN, ADMIN_PASSWORD)


def options(pem: Certificates, mechanism: str) -> dict[str, str]:
    """The options of either broker, apart from its addresses; ``mechanism`` is that between brokers."""
    return {
        "listener.security.protocol.map": "SECURE:SASL_SSL",
        "inter.broker.listener.name": "SECURE",
        "sasl.enabled.mechanisms": "PLAIN,SCRAM-SHA-256,SCRAM-SHA-512",
        "sasl.mechanism.inter.broker.protocol": mechanism,
        "listener.name.secure.plain.sasl.jaas.config": (
            f"{_MODULES}.plain.PlainLoginModule required {_OWN}"
            f' user_{ADMIN}="{ADMIN_PASSWORD}" user_paula="plain word";'
        ),
        "listener.name.secure.scram-sha-512.sasl.jaas.config": f"{_SCRAM_MODULE} {_OWN};",
        "listener.name.secure.scram-sha-256.sasl.jaas.config": f"{_SCRAM_MODULE};",
        "ssl.keystore.type": "PEM",
        "ssl.keystore.location": str(pem.broker),
        "ssl.truststore.type": "PEM",
        "ssl.truststore.location": str(pem.authority),
        "authorizer.class.name": "kafka.security.authorizer.AclAuthorizer",
        "super.users": f"User:{ADMIN}",
        "delegation.token.secret.key": "known to brokers alone",
        "offsets.topic.replication.factor": "2",
    }


def listeners(address: str) -> dict[str, str]:
    """The one listener of a broker."""
    return {"listeners": f"SECURE://{address}", "advertised.listeners": f"SECURE://{address}"}


class SecurePair:
    """The two brokers and those who talk to them."""

    def __init__(self, cluster: MixedCluster, pem: Certificates) -> None:
        self.cluster = cluster
        self.pem = pem

    def address(self, broker_id: int) -> str:
        return self.cluster.brokers[broker_id].address

    def client(self, login: Login) -> dict[str, Any]:
        """Options of Tidelog's clients."""
        return {
            "security_protocol": "SASL_SSL",
            "sasl_mechanism": login.mechanism,
            "sasl_jaas_config": login.jaas,
            "ssl_truststore_location": self.pem.authority,
        }

    def librdkafka(self, login: Login, **more: Any) -> dict[str, Any]:
        """Options of librdkafka's clients."""
        return {
            "bootstrap.servers": self.cluster.bootstrap,
            "security.protocol": "SASL_SSL",
            "sasl.mechanism": login.mechanism,
            "sasl.username": login.username,
            "sasl.password": login.password,
            "ssl.ca.location": str(self.pem.authority),
            **{name.replace("_", "."): value for name, value in more.items()},
        }

    def ask(
        self, broker_id: int, request: Payload, response: type[ResponseT], login: Login = ADMINISTRATOR
    ) -> ResponseT:
        """Log in at one broker and have it answer a request."""
        address = self.address(broker_id)
        config = ClientConfig.parse(ADMIN_OPTIONS, bootstrap_servers=address, **self.client(login))

        async def main() -> ResponseT:
            async with Cluster(address, network_settings(config)) as cluster:
                return await cluster.ask_node(broker_id, request, response)

        return asyncio.run(main())


@contextmanager
def secure_pair(directory: Path, controller: str, mechanism: str) -> Iterator[SecurePair]:
    """``controller`` says which broker comes first and so is elected."""
    pem = Certificates(directory / "certificates")
    tls = ssl.create_default_context(cafile=str(pem.authority))
    with MixedCluster(directory, options(pem, mechanism), tls=tls) as cluster:
        pair = SecurePair(cluster, pem)

        def with_first_user(address: str) -> Mapping[str, str]:
            return {**listeners(address), "tidelog.bootstrap.user": f"{ADMIN}:{ADMIN_PASSWORD}:{SCRAM}"}

        if controller == "kafka":
            _make_admin(cluster)
            cluster.kafka(KAFKA, listeners)
            cluster.tidelog(TIDELOG, listeners)
            assert cluster.controller == KAFKA
        else:
            address = cluster.tidelog(TIDELOG, with_first_user).address
            without_features(address, **pair.client(ADMINISTRATOR))
            cluster.kafka(KAFKA, listeners)
            assert cluster.controller == TIDELOG
        yield pair


def _make_admin(cluster: MixedCluster) -> None:
    """As one does before the first Kafka broker of a cluster whose brokers log in by SCRAM."""
    credentials = f"SCRAM-SHA-512=[iterations=4096,password={ADMIN_PASSWORD}]"
    command = toolchain.java(JARS, "-Xmx128m", "-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1")
    done = subprocess.run(
        [
            *(*command, "kafka.admin.ConfigCommand", "--zookeeper", cluster.zookeeper, "--alter"),
            *("--entity-type", "users", "--entity-name", ADMIN, "--add-config", credentials),
        ],
        capture_output=True,
        text=True,
        timeout=60,
    )
    assert done.returncode == 0, done.stdout + done.stderr
