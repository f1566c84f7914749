"""Clients of all kinds over TLS, with and without certificates of their own, while certificates change."""

from __future__ import annotations

import asyncio
import os
import ssl
import subprocess
import sys
import time
from collections.abc import Iterator
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from aiokafka import AIOKafkaConsumer, AIOKafkaProducer
from confluent_kafka import Consumer as ConfluentConsumer
from confluent_kafka import Producer as ConfluentProducer
from cryptography import x509
from kafka import KafkaConsumer, KafkaProducer
from tests.rigs.tls_files import TlsFiles, jks_store, pkcs12_store, pkcs12_trust

from tidelog.client import Admin, AlterConfigOp, ConfigResource, Consumer, NewTopic, Producer, ResourceType
from tidelog.client.errors import AuthenticationError, BrokerUnreachableError
from tidelog.errors import ErrorCode, KafkaError
from tidelog.testing.broker_process import STRICT_LOOP, BrokerProcess

DEADLINE_S = 60.0
LARGE = 900_000


@pytest.fixture(scope="module")
def files(tmp_path_factory: pytest.TempPathFactory) -> TlsFiles:
    return TlsFiles(tmp_path_factory.mktemp("tls"))


def tls_options(files: TlsFiles, **more: str) -> dict[str, str]:
    return {
        "listeners": "SSL://127.0.0.1:0",
        "security.inter.broker.protocol": "SSL",
        "ssl.keystore.location": str(files.server),
        "ssl.truststore.location": str(files.trust),
        "offsets.topic.replication.factor": "1",
        "transaction.state.log.replication.factor": "1",
        "transaction.state.log.min.isr": "1",
        **STRICT_LOOP,
        **{name.replace("_", "."): value for name, value in more.items()},
    }


@pytest.fixture(scope="module", params=["none", "required"])
def broker(
    request: pytest.FixtureRequest, files: TlsFiles, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[BrokerProcess]:
    options = tls_options(files, ssl_client_auth=request.param)
    with BrokerProcess(tmp_path_factory.mktemp("broker") / "data", options=options) as running:
        yield running
        assert not running.broken_rule


@pytest.fixture
def topic(broker: BrokerProcess, files: TlsFiles, request: pytest.FixtureRequest) -> str:
    name = "".join(each if each.isalnum() else "-" for each in request.node.name)
    with Admin(bootstrap_servers=broker.bootstrap, **ours(files)) as admin:
        admin.create_topics([NewTopic(name, 2)])
    return name


def ours(files: TlsFiles) -> dict[str, Any]:
    return {
        "security_protocol": "SSL",
        "ssl_truststore_location": files.trust,
        "ssl_keystore_location": files.client,
    }


VALUES = [b"small-%d" % number for number in range(500)] + [os.urandom(LARGE) for _ in range(5)]


def test_our_own_clients(broker: BrokerProcess, files: TlsFiles, topic: str) -> None:
    with Producer(bootstrap_servers=broker.bootstrap, **ours(files)) as producer:
        for value in VALUES:
            producer.send(topic, value)
        producer.flush()
    with Consumer(
        bootstrap_servers=broker.bootstrap,
        group_id=f"{topic}-group",
        auto_offset_reset="earliest",
        **ours(files),
    ) as consumer:
        consumer.subscribe([topic])
        found: list[bytes] = []
        end_s = time.monotonic() + DEADLINE_S
        while len(found) < len(VALUES) and time.monotonic() < end_s:
            found += [record.value or b"" for record in consumer.poll(1.0)]
    assert sorted(found) == sorted(VALUES)


def test_confluent_kafka(broker: BrokerProcess, files: TlsFiles, topic: str) -> None:
    security = {
        "bootstrap.servers": broker.bootstrap,
        "security.protocol": "SSL",
        "ssl.ca.location": str(files.trust),
        "ssl.certificate.location": str(files.client),
        "ssl.key.location": str(files.client),
    }
    producer = ConfluentProducer({**security, "enable.idempotence": True})
    for value in VALUES:
        producer.produce(topic, value)
    assert producer.flush(DEADLINE_S) == 0
    consumer = ConfluentConsumer({**security, "group.id": f"{topic}-group", "auto.offset.reset": "earliest"})
    consumer.subscribe([topic])
    found: list[bytes] = []
    end_s = time.monotonic() + DEADLINE_S
    while len(found) < len(VALUES) and time.monotonic() < end_s:
        found += [message.value() or b"" for message in consumer.consume(500, 1.0) if message.error() is None]
    consumer.close()
    assert sorted(found) == sorted(VALUES)


def test_kafka_python(broker: BrokerProcess, files: TlsFiles, topic: str) -> None:
    security = {
        "bootstrap_servers": broker.bootstrap,
        "security_protocol": "SSL",
        "ssl_cafile": str(files.trust),
        "ssl_certfile": str(files.client),
        "ssl_keyfile": str(files.client),
        "ssl_check_hostname": True,
    }
    producer = KafkaProducer(**security)
    for value in VALUES:
        producer.send(topic, value)
    producer.flush(DEADLINE_S)
    producer.close()
    consumer = KafkaConsumer(
        topic, **security, group_id=f"{topic}-group", auto_offset_reset="earliest", consumer_timeout_ms=20_000
    )
    found = [record.value for _, record in zip(VALUES, consumer, strict=False)]
    consumer.close()
    assert sorted(found) == sorted(VALUES)


def test_aiokafka(broker: BrokerProcess, files: TlsFiles, topic: str) -> None:
    context = ssl.create_default_context(cafile=str(files.trust))
    context.load_cert_chain(files.client)
    security = {
        "bootstrap_servers": broker.bootstrap,
        "security_protocol": "SSL",
        "ssl_context": context,
    }

    async def scenario() -> None:
        async with AIOKafkaProducer(**security) as producer:
            for value in VALUES:
                await producer.send_and_wait(topic, value)
        async with AIOKafkaConsumer(
            topic, **security, group_id=f"{topic}-group", auto_offset_reset="earliest"
        ) as consumer:
            async with asyncio.timeout(DEADLINE_S):
                found = [(await consumer.getone()).value for _ in VALUES]
        assert sorted(found) == sorted(VALUES)

    asyncio.run(scenario())


def test_our_clients_read_javas_stores(broker: BrokerProcess, files: TlsFiles) -> None:
    issued = files.authority.issue("from a store")
    stores = {
        "jks": (jks_store("hush", key=issued), jks_store("hush", trusted=[files.authority.own])),
        "p12": (pkcs12_store(issued, "hush", files.authority), pkcs12_trust(files.authority, "hush")),
    }
    for kind, (key, trust) in stores.items():
        with Admin(
            bootstrap_servers=broker.bootstrap,
            security_protocol="SSL",
            ssl_keystore_location=files.write(f"key.{kind}", key),
            ssl_keystore_password="hush",
            ssl_truststore_location=files.write(f"trust.{kind}", trust),
            ssl_truststore_password="hush",
            ssl_cipher_suites="TLS_ECDHE_ECDSA_WITH_AES_256_GCM_SHA384",
        ) as admin:
            assert len(admin.describe_cluster().nodes) == 1


@pytest.mark.slow
def test_a_hundred_megabytes_hold_up_the_loop_nowhere(files: TlsFiles, tmp_path: Path) -> None:
    count = 100
    with BrokerProcess(tmp_path / "data", options=tls_options(files)) as broker:
        with Admin(bootstrap_servers=broker.bootstrap, **ours(files)) as admin:
            admin.create_topics([NewTopic("much", 1)])
        with Producer(
            bootstrap_servers=broker.bootstrap,
            max_request_size=2_000_000,
            batch_size=1_000_000,
            **ours(files),
        ) as producer:
            value = os.urandom(1_000_000)
            for _ in range(count):
                producer.send("much", value)
            producer.flush()
        consumers = [
            ConfluentConsumer(
                {
                    "bootstrap.servers": broker.bootstrap,
                    "security.protocol": "SSL",
                    "ssl.ca.location": str(files.trust),
                    "group.id": f"group-{number}",
                    "auto.offset.reset": "earliest",
                    "fetch.message.max.bytes": 50_000_000,
                }
            )
            for number in range(2)
        ]
        for consumer in consumers:
            consumer.subscribe(["much"])
        found = [0, 0]
        end_s = time.monotonic() + DEADLINE_S
        while min(found) < count and time.monotonic() < end_s:
            for number, consumer in enumerate(consumers):
                messages = consumer.consume(50, 0.2)
                assert all(message.value() == value for message in messages if message.error() is None)
                found[number] += sum(message.error() is None for message in messages)
        for consumer in consumers:
            consumer.close()
        assert found == [count] * 2
        assert not broker.broken_rule


def test_who_cannot_prove_himself_is_refused(files: TlsFiles, tmp_path: Path) -> None:
    options = tls_options(files, ssl_client_auth="required")
    with BrokerProcess(tmp_path / "data", options=options) as broker:
        trust: dict[str, Any] = {"security_protocol": "SSL", "ssl_truststore_location": files.trust}
        # At once, whatever the time limits are.
        stores: list[tuple[dict[str, Any], str]] = [
            ({}, r"(?=.*ssl\.keystore\.location).*requires? a client certificate"),
            (
                {"ssl_keystore_location": files.stranger},
                r"unknown ca\); set ssl\.keystore\.location to a client certificate",
            ),
        ]
        for store, words in stores:
            for versions in ("TLSv1.2", "TLSv1.3"):
                with (
                    pytest.raises(AuthenticationError, match=words),
                    Admin(
                        bootstrap_servers=broker.bootstrap, ssl_enabled_protocols=versions, **trust, **store
                    ) as admin,
                ):
                    admin.describe_cluster()
        patience: dict[str, Any] = {"default_api_timeout_ms": 2000, "request_timeout_ms": 1500}
        with (
            pytest.raises(BrokerUnreachableError, match=r"TLS listener, set security\.protocol=SSL"),
            Admin(bootstrap_servers=broker.bootstrap, **patience) as admin,
        ):
            admin.describe_cluster()
        assert "No TLS with 127.0.0.1" in broker.log
        assert "looks like a plaintext Kafka client" in broker.log


def test_a_broker_without_a_usable_key_does_not_start_and_says_why(files: TlsFiles, tmp_path: Path) -> None:
    for number, (more, words) in enumerate(
        (
            ({"ssl.keystore.location": "/no/such/file"}, "there is no file /no/such/file"),
            ({"ssl.keystore.location": str(files.trust)}, "in which there is no private key"),
            ({"ssl.cipher.suites": "TLS_NULL"}, "ssl.cipher.suites names TLS_NULL"),
            ({"ssl.principal.mapping.rules": "nonsense"}, "has a rule that cannot be read"),
        )
    ):
        refusal = BrokerProcess(tmp_path / f"data{number}", options={**tls_options(files), **more}).refusal()
        assert words in refusal
        assert "Traceback" not in refusal


def test_what_certs_init_makes_is_enough_for_all_commands(tmp_path: Path) -> None:
    tls = tmp_path / "tls"

    def tidelog(*arguments: str, given: bytes = b"", reach: dict[str, str] | None = None) -> bytes:
        done = subprocess.run(
            [sys.executable, "-m", "tidelog", *arguments],
            input=given,
            capture_output=True,
            timeout=DEADLINE_S,
            env={**os.environ, **(reach or {})},
        )
        assert done.returncode == 0, done.stderr.decode()
        return done.stdout

    tidelog("certs", "init", str(tls), "--client", "alice")
    with BrokerProcess(tmp_path / "data", properties=tls / "server.properties") as broker:
        reach = {
            "TIDELOG_COMMAND_CONFIG": str(tls / "alice.properties"),
            "TIDELOG_BOOTSTRAP": broker.bootstrap,
        }
        tidelog("topics", "create", "greetings", reach=reach)
        tidelog("produce", "greetings", given=b"hello\n", reach=reach)
        found = tidelog("consume", "greetings", "--from-beginning", "--until-end", reach=reach)
        assert found == b"hello\n"


def test_certificates_change_under_load(tmp_path: Path) -> None:
    """By the watch over the files, and by an administrator who names the same path again."""
    files = TlsFiles(tmp_path / "tls")
    listener = "listener.name.ssl.ssl.keystore.location"
    resource = ConfigResource(ResourceType.BROKER, "1")
    with BrokerProcess(tmp_path / "data", options=tls_options(files)) as broker:

        def shown() -> int:
            pem = ssl.get_server_certificate(
                (broker.host, broker.port), ca_certs=str(files.trust), timeout=10
            )
            return x509.load_pem_x509_certificate(pem.encode()).serial_number

        def alter(path: Path) -> None:
            with Admin(bootstrap_servers=broker.bootstrap, **ours(files)) as admin:
                (changed,) = admin.alter_configs({resource: [AlterConfigOp(listener, str(path))]})
                changed.raise_for_error()

        with Admin(bootstrap_servers=broker.bootstrap, **ours(files)) as admin:
            admin.create_topics([NewTopic("load", 1)])
        with Producer(bootstrap_servers=broker.bootstrap, acks="all", **ours(files)) as producer:
            sent: list[Any] = []
            for number in range(3):
                renewed = files.authority.issue("server", ["localhost", "127.0.0.1"])
                files.pair("server.pem", renewed)
                if number == 0:
                    # Left to the watch.
                    wait_until(partial(_is, shown, renewed.certificate.serial_number), producer, sent)
                else:
                    alter(files.server)
                    assert shown() == renewed.certificate.serial_number
                sent += [producer.send("load", b"x" * 1000) for _ in range(500)]
            good = shown()
            other = files.pair("other.pem", files.authority.issue("other", ["localhost", "127.0.0.1"]))
            with pytest.raises(KafkaError, match="DistinguishedName does not match"):
                alter(other)
            with pytest.raises(KafkaError, match="there is no file") as refusal:
                alter(tmp_path / "missing.pem")
            assert refusal.value.code is ErrorCode.INVALID_REQUEST
            assert shown() == good
            producer.flush()
            assert len({record.result(DEADLINE_S).offset for record in sent}) == len(sent)
        with Admin(bootstrap_servers=broker.bootstrap, **ours(files)) as admin:
            (described,) = admin.describe_configs([resource], names=[listener])
        assert [entry.value for entry in described.entries] == [str(files.server)]


def _is(shown: Any, wanted: int) -> bool:
    return bool(shown() == wanted)


def wait_until(condition: Any, producer: Producer, sent: list[Any]) -> None:
    end_s = time.monotonic() + DEADLINE_S
    while not condition():
        assert time.monotonic() < end_s, "it did not come to be"
        sent.append(producer.send("load", b"while waiting"))
        time.sleep(0.05)
