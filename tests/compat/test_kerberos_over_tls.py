"""GSSAPI within TLS, with a real KDC: Java, librdkafka, franz-go, our clients, brokers among themselves."""

from __future__ import annotations

import subprocess
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

import pytest
from foreign import toolchain
from foreign.apache_kafka import ApacheKafka
from foreign.broker_process import BrokerProcess, Tidelog, free_port
from foreign.kerberos import Realm
from tests.compat.conftest import Tool, available
from tests.compat.mixed_cluster import KAFKA, TIDELOG, MixedCluster
from tests.compat.test_kerberos import SERVICE, by_keytab, listener_options
from tests.rigs.certificates import Certificates

from tidelog import Admin, Consumer, NewTopic, Producer, TopicPartition
from tidelog.client.errors import AuthenticationError, BrokerUnreachableError

PROTOCOLS = {"BARE": "SASL_PLAINTEXT", "TLS": "SASL_SSL"}
VALUES = ["one", "two", "three"]


@pytest.fixture(scope="module")
def realm(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Realm]:
    with available():
        made = Realm(tmp_path_factory.mktemp("realm"))
    with made, made.environment():
        yield made


@pytest.fixture(scope="module")
def pem(tmp_path_factory: pytest.TempPathFactory) -> Certificates:
    return Certificates(tmp_path_factory.mktemp("certificates"))


def tls_options(address: str, ports: dict[str, int], keytab: Path, pem: Certificates) -> dict[str, str]:
    """Listeners with GSSAPI, those named BARE without TLS."""
    protocols = [f"{name}:{PROTOCOLS[name]}" for name in ports]
    return {
        **listener_options(address, ports, keytab),
        "listener.security.protocol.map": ",".join(
            ["CONTROLLER:PLAINTEXT", "PLAINTEXT:PLAINTEXT", *protocols]
        ),
        "ssl.keystore.type": "PEM",
        "ssl.keystore.location": str(pem.issue("localhost", "DNS:localhost")),
        "ssl.truststore.type": "PEM",
        "ssl.truststore.location": str(pem.authority),
    }


class Secured(NamedTuple):
    """A broker with GSSAPI, bare and within TLS."""

    process: BrokerProcess
    ports: dict[str, int]
    pem: Certificates
    realm: Realm

    def address(self, listener: str = "TLS") -> str:
        return f"localhost:{self.ports[listener]}"

    def options(self, user: str, **more: Any) -> dict[str, Any]:
        return {
            "bootstrap_servers": self.address(),
            "security_protocol": "SASL_SSL",
            "sasl_mechanism": "GSSAPI",
            "sasl_kerberos_service_name": "kafka",
            "sasl_jaas_config": by_keytab(self.realm.keytab(user), user),
            "ssl_truststore_location": self.pem.authority,
            **more,
        }

    def create(self, topic: str) -> None:
        with Admin(**self.options("alice")) as admin:
            admin.create_topics([NewTopic(topic, 1, 1)])

    def values(self, topic: str, count: int) -> list[str]:
        """What is in a topic, read by our consumer."""
        received: list[str] = []
        with Consumer(**self.options("alice"), auto_offset_reset="earliest") as consumer:
            consumer.assign([TopicPartition(topic, 0)])
            deadline = time.monotonic() + 30
            while len(received) < count and time.monotonic() < deadline:
                received += [(record.value or b"").decode() for record in consumer.poll(1.0)]
        return received


@pytest.fixture(scope="module", params=["tidelog", "apache"])
def secured(
    request: pytest.FixtureRequest, realm: Realm, pem: Certificates, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Secured]:
    directory = tmp_path_factory.mktemp(request.param)
    ports = {name: free_port() for name in PROTOCOLS}
    with available():
        running: BrokerProcess
        if request.param == "tidelog":
            running = Tidelog(directory)
            running.options = tls_options(running.address, ports, realm.keytab(SERVICE), pem)
        else:
            running = ApacheKafka(directory)
            options = tls_options(running.address, ports, realm.keytab(SERVICE), pem)
            running.options = {
                **options,
                "advertised.listeners": options["listeners"],
                "listeners": f"{options['listeners']},CONTROLLER://127.0.0.1:{running.controller_port}",
            }
        running.start()
    yield Secured(running, ports, pem, realm)
    running.stop()


def test_our_clients_write_and_read(secured: Secured, topic: str) -> None:
    secured.create(topic)
    with Producer(**secured.options("alice")) as producer:
        for value in VALUES:
            producer.send(topic, value=value.encode()).result(30)
    assert secured.values(topic, 3) == VALUES


def test_our_clients_trust_no_broker_because_of_its_ticket(secured: Secured) -> None:
    others = secured.options("alice", ssl_truststore_location=secured.pem.other_authority)
    with (
        pytest.raises((AuthenticationError, BrokerUnreachableError), match="certificate"),
        Admin(**others) as admin,
    ):
        admin.list_topics()


def test_the_consoles_of_java_write_and_read(
    secured: Secured, kafka_tool: Tool, realm: Realm, tmp_path: Path, topic: str
) -> None:
    secured.create(topic)
    config = tmp_path / "client.properties"
    config.write_text(
        "security.protocol=SASL_SSL\nsasl.mechanism=GSSAPI\nsasl.kerberos.service.name=kafka\n"
        f"sasl.jaas.config={by_keytab(realm.keytab('java'), 'java')}\n"
        f"ssl.truststore.type=PEM\nssl.truststore.location={secured.pem.authority}\n"
    )
    where = ("--bootstrap-server", secured.address(), "--topic", topic)
    written = kafka_tool(
        "org.apache.kafka.tools.ConsoleProducer",
        *(*where, "--producer.config", config),
        stdin="\n".join(VALUES) + "\n",
        timeout=120,
    )
    assert written.returncode == 0, written.stdout + written.stderr
    assert secured.values(topic, 3) == VALUES
    read = kafka_tool(
        "org.apache.kafka.tools.consumer.ConsoleConsumer",
        *(*where, "--consumer.config", config, "--from-beginning", "--max-messages", "3"),
        *("--timeout-ms", "60000"),
        timeout=120,
    )
    assert [line for line in read.stdout.splitlines() if line in VALUES] == VALUES, read.stderr


def test_kcat_writes_and_reads(
    secured: Secured, realm: Realm, topic: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    with available():
        program = toolchain.kcat()
    secured.create(topic)
    monkeypatch.setenv("KRB5CCNAME", realm.tickets("cyrus", realm.keytab("cyrus")))
    login = {
        "security.protocol": "SASL_SSL",
        "sasl.mechanism": "GSSAPI",
        "sasl.kerberos.service.name": "kafka",
        "sasl.kerberos.kinit.cmd": "true",
        "ssl.ca.location": str(secured.pem.authority),
    }
    command = [program, "-b", secured.address(), *(f"-X{name}={value}" for name, value in login.items())]

    def run(*arguments: str, stdin: str = "") -> str:
        done = subprocess.run([*command, *arguments], input=stdin, capture_output=True, text=True, timeout=60)
        assert done.returncode == 0, done.stderr
        return done.stdout

    run("-P", "-t", topic, "-p", "0", stdin="\n".join(VALUES) + "\n")
    assert run("-C", "-t", topic, "-p", "0", "-o", "beginning", "-e", "-q").split() == VALUES


@pytest.mark.parametrize("listener", list(PROTOCOLS))
def test_franz_go_writes(secured: Secured, realm: Realm, topic: str, listener: str) -> None:
    with available():
        driver = toolchain.go_driver("franz_kerberos")
    secured.create(topic)

    def write(keytab: Path) -> subprocess.CompletedProcess[str]:
        authority = [str(secured.pem.authority)] if listener == "TLS" else []
        return subprocess.run(
            [*driver, secured.address(listener), "gopher", str(keytab), topic, *authority],
            capture_output=True,
            text=True,
            timeout=60,
        )

    keytab = realm.keytab("gopher")
    done = write(keytab)
    assert done.returncode == 0, done.stderr
    assert done.stdout.strip() == "0"
    assert secured.values(topic, 1) == ["by franz-go"]
    assert write(realm.keytab("alice")).returncode == 1


def test_brokers_of_a_mixed_cluster_log_in_at_each_other(
    realm: Realm, pem: Certificates, tmp_path: Path, topic: str
) -> None:
    def between_brokers(address: str) -> dict[str, str]:
        listeners = tls_options(address, {"TLS": free_port()}, realm.keytab(SERVICE), pem)
        return {
            **listeners,
            "advertised.listeners": listeners["listeners"],
            "inter.broker.listener.name": "TLS",
            "sasl.mechanism.inter.broker.protocol": "GSSAPI",
        }

    with available(), MixedCluster(tmp_path) as cluster:
        cluster.kafka(KAFKA, between_brokers)
        cluster.tidelog(TIDELOG, between_brokers)
        with Admin(bootstrap_servers=cluster.bootstrap) as admin:
            admin.create_topics([NewTopic(topic, assignments={0: [KAFKA, TIDELOG], 1: [TIDELOG, KAFKA]})])
        cluster.wait_all_in_sync([(topic, 0), (topic, 1)])
        with Producer(bootstrap_servers=cluster.bootstrap, acks="all") as producer:
            for partition in (0, 1):
                assert producer.send(topic, value=b"x", partition=partition).result(30).offset == 0
