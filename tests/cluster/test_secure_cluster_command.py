"""``tidelog cluster start --secure``: a whole cluster with TLS, logins and access rules in one command."""

from __future__ import annotations

import os
import signal
import ssl
import stat
import struct
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

import pytest
from confluent_kafka import Consumer, KafkaException, Producer
from tests.cluster.requests_of_brokers import NOT_SERVED, Target, attacks, error_codes
from tests.rigs.raw_client import RawClient
from tests.rigs.sasl_broker import log_in

from tidelog.client import Admin
from tidelog.client.errors import AuthenticationError
from tidelog.client.resources import TopicDescription
from tidelog.errors import ErrorCode
from tidelog.properties import read_properties
from tidelog.wire.messages.fetch import FetchResponse

TIMEOUT_S = 90.0
_REFUSED = {ErrorCode.CLUSTER_AUTHORIZATION_FAILED, ErrorCode.TOPIC_AUTHORIZATION_FAILED}
STOP_S = 40.0


class Running:
    """The command in a process of its own, and what it said."""

    def __init__(self, directory: Path) -> None:
        self.directory = directory
        command = [sys.executable, "-m", "tidelog", "cluster", "start", "--secure"]
        self._process = subprocess.Popen(
            [*command, "--port", "0", "--zookeeper-port", "0", "--data-dir", str(directory)],
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
        )
        self.said: dict[str, str] = {}
        assert self._process.stdout is not None
        lines = []
        for line in self._process.stdout:
            lines.append(line)
            if line == "ready\n":
                return
            name, _, value = line.strip().partition("=")
            self.said[name] = value
        raise AssertionError("".join(lines))

    @property
    def clients(self) -> Path:
        return Path(self.said["command.config"])

    def librdkafka(self) -> dict[str, str]:
        return read_properties(self.directory / "security" / "admin.librdkafka.properties")

    def command(self, *arguments: str, given: str | None = None, config: Path | None = None) -> str:
        """What ``tidelog …`` prints."""
        environment = {**os.environ, "TIDELOG_COMMAND_CONFIG": str(config or self.clients)}
        done = subprocess.run(
            [sys.executable, "-m", "tidelog", *arguments],
            env=environment,
            input=given,
            capture_output=True,
            text=True,
            timeout=TIMEOUT_S,
            check=False,
        )
        return done.stdout + done.stderr

    def stop(self) -> None:
        self._process.send_signal(signal.SIGTERM)
        try:
            self._process.wait(STOP_S)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Running]:
    running = Running(tmp_path_factory.mktemp("secure"))
    yield running
    running.stop()


def test_commands_and_foreign_clients_connect_by_the_files_that_it_names(cluster: Running) -> None:
    assert "orders" in cluster.command("topics", "create", "orders", "--partitions", "3")
    producer = Producer({**cluster.librdkafka(), "acks": "all"})
    failures = []
    for number in range(100):
        producer.produce("orders", str(number), on_delivery=lambda error, _: failures.append(error))
    assert producer.flush(TIMEOUT_S) == 0
    assert failures == [None] * 100
    consumer = Consumer({**cluster.librdkafka(), "group.id": "readers", "auto.offset.reset": "earliest"})
    consumer.subscribe(["orders"])
    found: set[bytes | None] = set()
    while len(found) < 100:
        message = consumer.poll(TIMEOUT_S)
        assert message is not None
        assert message.error() is None
        found.add(message.value())
    consumer.close()
    assert found == {str(number).encode() for number in range(100)}


def test_a_user_may_do_what_rules_allow_and_nothing_else(cluster: Running) -> None:
    cluster.command("topics", "create", "open-to-alice")
    cluster.command("topics", "create", "closed-to-alice")
    said = cluster.command("users", "add", "alice", "--password-stdin", given="her-word\n")
    assert "alice" in said, said
    cluster.command("acls", "add", "--principal", "User:alice", "--producer", "--topic", "open-to-alice")
    hers = cluster.librdkafka() | {"sasl.username": "alice", "sasl.password": "her-word"}
    told: list[object] = []
    producer = Producer(hers)
    for name in ("open-to-alice", "closed-to-alice"):
        producer.produce(name, b"x", on_delivery=lambda error, _: told.append(error and error.name()))
    producer.flush(TIMEOUT_S)
    assert sorted(map(str, told)) == ["None", "TOPIC_AUTHORIZATION_FAILED"]
    explained = cluster.command(
        "acls", "explain", "--principal", "User:alice", "--operation", "WRITE", "--topic", "closed-to-alice"
    )
    assert "may not" in explained


def test_nobody_gets_in_without_a_login_or_without_tls(cluster: Running) -> None:
    with_wrong_word = cluster.librdkafka() | {"sasl.password": "guessed"}
    consumer = Consumer({**with_wrong_word, "group.id": "g", "socket.timeout.ms": "5000"})
    with pytest.raises(KafkaException):
        consumer.list_topics(timeout=5)
    consumer.close()
    plain = Consumer({"bootstrap.servers": cluster.said["bootstrap.servers"], "group.id": "g"})
    with pytest.raises(KafkaException):
        plain.list_topics(timeout=5)
    plain.close()


def test_a_token_of_one_broker_is_good_at_all_of_them(cluster: Running, tmp_path: Path) -> None:
    file = tmp_path / "job.properties"
    assert "User:admin" in cluster.command("tokens", "create", "--to", str(file))
    login = read_properties(file)
    for broker in cluster.said["bootstrap.servers"].split(","):
        wait_until_known(login | {"bootstrap.servers": broker})
    assert "by-token" in cluster.command("topics", "create", "by-token", config=file)
    assert "cannot" not in cluster.command("topics", "list", config=file)
    password = login["sasl.jaas.config"].split('password="')[1].split('"')[0]
    for log in (cluster.directory / "logs").iterdir():
        assert password not in log.read_text()


def wait_until_known(login: dict[str, str]) -> None:
    deadline = time.monotonic() + TIMEOUT_S
    while True:
        try:
            with Admin(login) as admin:
                admin.describe_cluster()
            return
        except AuthenticationError:
            assert time.monotonic() < deadline


@contextmanager
def over_tls(cluster: Running, port: int, user: tuple[str, str] | None) -> Iterator[RawClient]:
    """A client of one broker, before its login without a user."""
    context = ssl.create_default_context(cafile=str(cluster.directory / "security" / "ca.pem"))
    with RawClient("127.0.0.1", port) as client:
        client.sock = context.wrap_socket(client.sock, server_hostname="localhost")
        if user is not None:
            assert log_in(client, "SCRAM-SHA-512", *user).error_code == ErrorCode.NONE
        yield client


def test_requests_of_brokers_are_refused_to_clients_from_outside(cluster: Running) -> None:
    cluster.command("topics", "create", "attacked", "--partitions", "1")
    cluster.command("users", "add", "mallory", "--password-stdin", given="her-word\n")
    # All that a client may have, CLUSTER_ACTION excepted, and ALTER on the cluster, which brings the right to
    # write markers, as in Kafka.
    for kind in (("--topic", "*"), ("--group", "*"), ("--transactional-id", "*")):
        cluster.command("acls", "add", "-p", "User:mallory", "-o", "ALL", *kind)
    for operation in ("DESCRIBE", "DESCRIBE_CONFIGS", "CREATE", "IDEMPOTENT_WRITE"):
        cluster.command("acls", "add", "-p", "User:mallory", "-o", operation, "--cluster")
    with Admin(read_properties(cluster.clients)) as admin:
        before = admin.describe_topics(["attacked"])["attacked"]
    assert isinstance(before, TopicDescription)
    target = Target("attacked", before.topic_id, "hers")
    mallory = ("mallory", "her-word")
    ports = [int(each.rpartition(":")[2]) for each in cluster.said["bootstrap.servers"].split(",")]
    count = 0
    for port in ports:
        with over_tls(cluster, port, mallory) as client:
            for key, version, request in attacks(target):
                response = client.request(key, version, request)
                # Fetch is refused topic by topic, and not as a whole.
                parts = response.responses if isinstance(response, FetchResponse) else [response]
                found = {code for part in parts for code in error_codes(part)}
                assert found
                assert found <= _REFUSED, (key.name, version, found)
                count += 1
    for key, version, request in attacks(target):
        with over_tls(cluster, ports[0], None) as client, suppress(ConnectionError):
            found = set(error_codes(client.request(key, version, request)))
            assert found == {ErrorCode.ILLEGAL_SASL_STATE}, (key.name, version, found)
    for api_key in NOT_SERVED:
        with over_tls(cluster, ports[0], mallory) as client:
            client.send_frame(struct.pack(">hhih", api_key, 0, 1, -1) + bytes(64))
            assert client.is_closed()
    assert count == 3 * len(list(attacks(target)))
    with Admin(read_properties(cluster.clients)) as admin:
        assert admin.describe_topics(["attacked"])["attacked"] == before
        assert len(admin.describe_cluster().nodes) == 3
    producer = Producer({**cluster.librdkafka(), "acks": "all"})
    producer.produce("attacked", b"still served")
    assert producer.flush(TIMEOUT_S) == 0


def test_what_is_secret_can_be_read_by_its_owner_alone(cluster: Running) -> None:
    directory = cluster.directory / "security"
    for path in [*directory.iterdir(), *(cluster.directory / "config").iterdir()]:
        mode = stat.S_IMODE(path.stat().st_mode)
        assert mode == (0o644 if path.name == "ca.pem" else 0o600), path
    password = read_properties(directory / "admin.librdkafka.properties")["sasl.password"]
    for log in (cluster.directory / "logs").iterdir():
        assert password not in log.read_text()
    assert password not in cluster.command("configs", "describe", "--broker", "1")
