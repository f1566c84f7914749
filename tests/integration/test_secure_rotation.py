"""Certificates, passwords and access rules change while clients of all kinds write over SASL_SSL."""

from __future__ import annotations

import asyncio
import ssl
import threading
import time
from collections.abc import Callable
from pathlib import Path

import aiokafka
import kafka
import pytest
from confluent_kafka import KafkaException, Producer
from confluent_kafka.admin import (
    AclBinding,
    AclBindingFilter,
    AdminClient,
    AlterConfigOpType,
    ConfigEntry,
    ConfigResource,
    ScramCredentialInfo,
    ScramMechanism,
    UserScramCredentialUpsertion,
)
from tests.integration.sasl_setup import ADMIN, WAIT_S, allow, closed_broker, safe_bootstrap
from tests.rigs.tls_files import HOSTS, TlsFiles

import tidelog.client as ours
from tidelog.client.errors import AuthenticationError

TOPICS = ("test-confluent", "test-kafka-python", "test-aiokafka", "test-ours")
USER, FIRST, SECOND = "erin", "first-password", "second-password"
KEY_STORE = "listener.name.safe.ssl.keystore.location"


class Writer:
    """A client that writes one record after another, and counts what became of them."""

    def __init__(self, topic: str, write: Callable[[Writer], None]) -> None:
        self.topic = topic
        self.acknowledged = 0
        self.denied = 0
        self.failures: list[object] = []
        self.stop = threading.Event()
        self._thread = threading.Thread(target=self._run, args=(write,), name=topic)
        self._thread.start()

    def _run(self, write: Callable[[Writer], None]) -> None:
        try:
            write(self)
        except Exception as error:
            self.failures.append(error)

    def told(self, error: object) -> None:
        """What became of a record."""
        # Nobody is served by clients that write as fast as they can.
        self.stop.wait(0.002)
        if error is None:
            self.acknowledged += 1
        elif "authoriz" in f"{type(error).__name__} {error}".lower():
            self.denied += 1
        else:
            self.failures.append(error)

    def join(self) -> None:
        self.stop.set()
        self._thread.join(WAIT_S)
        assert not self._thread.is_alive()


def confluent(bootstrap: str, tls: TlsFiles) -> Callable[[Writer], None]:
    def write(writer: Writer) -> None:
        producer = Producer(
            {
                "bootstrap.servers": bootstrap,
                "security.protocol": "SASL_SSL",
                "sasl.mechanism": "SCRAM-SHA-512",
                "sasl.username": USER,
                "sasl.password": FIRST,
                "ssl.ca.location": str(tls.trust),
                "linger.ms": 1,
            }
        )
        while not writer.stop.is_set():
            try:
                producer.produce(writer.topic, b"x", on_delivery=lambda error, _: writer.told(error))
            except KafkaException as error:
                # It remembers that the topic was refused, for a while.
                writer.told(error)
            assert producer.flush(WAIT_S) == 0

    return write


def kafka_python(bootstrap: str, tls: TlsFiles) -> Callable[[Writer], None]:
    def write(writer: Writer) -> None:
        producer = kafka.KafkaProducer(
            bootstrap_servers=bootstrap,
            security_protocol="SASL_SSL",
            sasl_mechanism="SCRAM-SHA-512",
            sasl_plain_username=USER,
            sasl_plain_password=FIRST,
            ssl_cafile=str(tls.trust),
            # An idempotent one of this client does not get over a refusal.
            enable_idempotence=False,
        )
        while not writer.stop.is_set():
            try:
                producer.send(writer.topic, b"x").get(WAIT_S)
            except kafka.errors.KafkaError as error:
                writer.told(error)
            else:
                writer.told(None)
        producer.close()

    return write


def aio(bootstrap: str, tls: TlsFiles) -> Callable[[Writer], None]:
    async def run(writer: Writer) -> None:
        producer = aiokafka.AIOKafkaProducer(
            bootstrap_servers=bootstrap,
            security_protocol="SASL_SSL",
            sasl_mechanism="SCRAM-SHA-512",
            sasl_plain_username=USER,
            sasl_plain_password=FIRST,
            ssl_context=ssl.create_default_context(cafile=str(tls.trust)),
        )
        await producer.start()
        while not writer.stop.is_set():
            try:
                await producer.send_and_wait(writer.topic, b"x")
            except aiokafka.errors.KafkaError as error:
                writer.told(error)
            else:
                writer.told(None)
        await producer.stop()

    return lambda writer: asyncio.run(run(writer))


def own_options(bootstrap: str, tls: TlsFiles, password: str) -> dict[str, object]:
    return {
        "bootstrap_servers": bootstrap,
        "security_protocol": "SASL_SSL",
        "sasl_mechanism": "SCRAM-SHA-512",
        "sasl_username": USER,
        "sasl_password": password,
        "ssl_truststore_location": tls.trust,
    }


def own(bootstrap: str, tls: TlsFiles) -> Callable[[Writer], None]:
    def write(writer: Writer) -> None:
        with ours.Producer(own_options(bootstrap, tls, FIRST)) as producer:
            while not writer.stop.is_set():
                try:
                    producer.send(writer.topic, b"x").result(WAIT_S)
                except Exception as error:
                    writer.told(error)
                else:
                    writer.told(None)

    return write


def test_certificates_users_and_rules_change_while_clients_write(tmp_path: Path) -> None:
    tls = TlsFiles(tmp_path / "tls")
    with closed_broker(tmp_path / "data", tls=tls) as broker:
        safe = safe_bootstrap(broker)
        admin = AdminClient({"bootstrap.servers": broker.bootstrap, **ADMIN})
        set_password(admin, FIRST)
        allow(admin, f"User:{USER}")
        kinds = (confluent, kafka_python, aio, own)
        writers = [Writer(topic, kind(safe, tls)) for topic, kind in zip(TOPICS, kinds, strict=True)]
        try:
            all_go_on(writers)
            # A certificate: for those who come, whoever is there goes on.
            renewed = tls.authority.issue("server", HOSTS)
            tls.pair("server.pem", renewed)
            alter(admin, KEY_STORE, str(tls.server))
            assert shown_serial(safe, tls) == renewed.certificate.serial_number
            all_go_on(writers)
            # A password: the new one is good at once, the old one no more.
            set_password(admin, SECOND)
            with ours.Admin(own_options(safe, tls, SECOND)) as new:
                assert {each.name for each in new.list_topics()} == set(TOPICS)
            with ours.Admin(own_options(safe, tls, FIRST)) as old, pytest.raises(AuthenticationError):
                old.list_topics()
            all_go_on(writers)
            # A rule that denies acts on connections that are there, and so does its end.
            denying = allow(admin, f"User:{USER}", deny=True)
            wait_for_all(writers, lambda each: each.denied > 0)
            remove(admin, denying)
            all_go_on(writers)
        finally:
            for writer in writers:
                writer.join()
        assert [writer.failures for writer in writers] == [[], [], [], []]
        with ours.Consumer(own_options(safe, tls, SECOND)) as consumer:
            partitions = [ours.TopicPartition(topic, 0) for topic in TOPICS]
            ends = consumer.end_offsets(partitions)
        assert {each.topic: ends[each] for each in partitions} == {
            writer.topic: writer.acknowledged for writer in writers
        }


def set_password(admin: AdminClient, password: str) -> None:
    info = ScramCredentialInfo(ScramMechanism.SCRAM_SHA_512, 4096)
    change = UserScramCredentialUpsertion(USER, info, password.encode())
    for future in admin.alter_user_scram_credentials([change]).values():
        future.result(WAIT_S)


def alter(admin: AdminClient, name: str, value: str) -> None:
    entry = ConfigEntry(name, value, incremental_operation=AlterConfigOpType.SET)
    resource = ConfigResource(ConfigResource.Type.BROKER, "1", incremental_configs=[entry])
    for future in admin.incremental_alter_configs([resource]).values():
        future.result(WAIT_S)


def remove(admin: AdminClient, bindings: list[AclBinding]) -> None:
    filters = [
        AclBindingFilter(
            each.restype,
            each.name,
            each.resource_pattern_type,
            each.principal,
            each.host,
            each.operation,
            each.permission_type,
        )
        for each in bindings
    ]
    for future in admin.delete_acls(filters).values():
        assert len(future.result(WAIT_S)) == 1


def shown_serial(bootstrap: str, tls: TlsFiles) -> int:
    from cryptography import x509

    host, port = bootstrap.split(":")
    pem = ssl.get_server_certificate((host, int(port)), ca_certs=str(tls.trust), timeout=60)
    return x509.load_pem_x509_certificate(pem.encode()).serial_number


def all_go_on(writers: list[Writer]) -> None:
    """Wait until every client has written some more."""
    before = {writer.topic: writer.acknowledged for writer in writers}
    wait_for_all(writers, lambda each: each.acknowledged > before[each.topic] + 5)


def wait_for_all(writers: list[Writer], holds: Callable[[Writer], bool]) -> None:
    end_s = time.monotonic() + WAIT_S
    while not all(map(holds, writers)):
        assert time.monotonic() < end_s, [(each.topic, each.acknowledged, each.denied) for each in writers]
        assert not any(writer.failures for writer in writers), [writer.failures for writer in writers]
        time.sleep(0.01)
