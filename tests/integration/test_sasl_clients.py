"""Clients of all kinds log in by every mechanism, and are refused with an error of their own.

They write and read over TLS, as far as access rules let them, and are refused also without TLS.
"""

from __future__ import annotations

import asyncio
import ssl
import threading
import time
from collections.abc import Callable, Iterator
from typing import Any

import aiokafka
import kafka
import pytest
from aiokafka.abc import AbstractTokenProvider as AioTokenProvider
from confluent_kafka import Consumer, KafkaError, KafkaException, Producer
from confluent_kafka.admin import (
    AdminClient,
    ScramCredentialInfo,
    ScramMechanism,
    UserScramCredentialDeletion,
    UserScramCredentialUpsertion,
)
from kafka.net.sasl.oauth import AbstractTokenProvider
from tests.integration.sasl_setup import (
    ADMIN,
    MECHANISMS,
    PASSWORD,
    WAIT_S,
    Issuer,
    Login,
    allow,
    closed_broker,
    safe_bootstrap,
)
from tests.rigs.sasl_broker import unsecured_token
from tests.rigs.tls_files import TlsFiles
from tests.rigs.waiting import wait_until

import tidelog.client as ours
from tidelog.client.errors import AuthenticationError
from tidelog.errors import KafkaError as OurError
from tidelog.testing.broker_process import BrokerProcess

FORBIDDEN = "forbidden"


@pytest.fixture(scope="module")
def tls(tmp_path_factory: pytest.TempPathFactory) -> TlsFiles:
    return TlsFiles(tmp_path_factory.mktemp("tls"))


@pytest.fixture(scope="module")
def broker(tmp_path_factory: pytest.TempPathFactory, tls: TlsFiles) -> Iterator[BrokerProcess]:
    with closed_broker(tmp_path_factory.mktemp("sasl") / "data", tls=tls) as broker:
        admin = AdminClient({"bootstrap.servers": broker.bootstrap, **ADMIN})
        for mechanism in (ScramMechanism.SCRAM_SHA_256, ScramMechanism.SCRAM_SHA_512):
            upsert(admin, "alice", PASSWORD, mechanism)
        allow(admin, "User:alice", "User:carol")
        yield broker


@pytest.fixture(scope="module")
def issuer(tmp_path_factory: pytest.TempPathFactory) -> Issuer:
    return Issuer(tmp_path_factory.mktemp("issuer") / "keys.json")


@pytest.fixture(scope="module")
def signing_broker(
    tmp_path_factory: pytest.TempPathFactory, issuer: Issuer, tls: TlsFiles
) -> Iterator[BrokerProcess]:
    with closed_broker(tmp_path_factory.mktemp("signed") / "data", issuer=issuer, tls=tls) as broker:
        allow(AdminClient({"bootstrap.servers": broker.bootstrap, **ADMIN}), "User:alice")
        yield broker


@pytest.fixture(params=[*MECHANISMS, "signed"])
def login(request: pytest.FixtureRequest, issuer: Issuer) -> tuple[str, Login]:
    """Which broker, and how to log in there."""
    if request.param == "signed":
        return "signing_broker", Login("OAUTHBEARER", "alice", issuer.token("alice"))
    password = unsecured_token("alice", 120) if request.param == "OAUTHBEARER" else PASSWORD
    return "broker", Login(request.param, "alice", password)


@pytest.fixture
def place(request: pytest.FixtureRequest, login: tuple[str, Login], tls: TlsFiles) -> tuple[str, Login]:
    """A listener with TLS, and how to log in there."""
    broker: BrokerProcess = request.getfixturevalue(login[0])
    return safe_bootstrap(broker), login[1]._replace(trust=tls.trust)


@pytest.fixture
def open_place(request: pytest.FixtureRequest, login: tuple[str, Login]) -> tuple[str, Login]:
    """One without."""
    broker: BrokerProcess = request.getfixturevalue(login[0])
    return broker.bootstrap, login[1]


def upsert(
    admin: AdminClient, user: str, password: str, mechanism: Any = ScramMechanism.SCRAM_SHA_256
) -> None:
    change = UserScramCredentialUpsertion(user, ScramCredentialInfo(mechanism, 4096), password.encode())
    for future in admin.alter_user_scram_credentials([change]).values():
        future.result(WAIT_S)


# confluent-kafka


def confluent(bootstrap: str, login: Login, **more: Any) -> dict[str, Any]:
    config: dict[str, Any] = {
        "bootstrap.servers": bootstrap,
        "security.protocol": login.protocol,
        "sasl.mechanism": login.mechanism,
        **more,
    }
    if login.trust is not None:
        config["ssl.ca.location"] = str(login.trust)
    if login.is_token:
        config["oauth_cb"] = lambda _: (login.password, time.time() + 100)
    else:
        config |= {"sasl.username": login.username, "sasl.password": login.password}
    return config


def test_confluent_kafka_writes_and_reads(place: tuple[str, Login], topic_name: Callable[[], str]) -> None:
    bootstrap, login = place
    topic = topic_name()
    producer = Producer(confluent(bootstrap, login))
    for number in range(10):
        producer.produce(topic, str(number).encode())
    denied: list[KafkaError | None] = []
    producer.produce(FORBIDDEN, b"x", on_delivery=lambda error, _: denied.append(error))
    assert producer.flush(WAIT_S) == 0
    assert denied[0] is not None
    assert denied[0].code() == KafkaError.TOPIC_AUTHORIZATION_FAILED
    consumer = Consumer(confluent(bootstrap, login, **{"group.id": topic, "auto.offset.reset": "earliest"}))
    consumer.subscribe([topic])
    seen: list[bytes | None] = []
    end_s = time.monotonic() + WAIT_S
    while len(seen) < 10 and time.monotonic() < end_s:
        message = consumer.poll(1.0)
        if message is not None and message.error() is None:
            seen.append(message.value())
    consumer.close()
    assert seen == [str(number).encode() for number in range(10)]


def test_confluent_kafka_is_refused(open_place: tuple[str, Login]) -> None:
    bootstrap, login = open_place
    errors: list[KafkaError] = []
    producer = Producer(confluent(bootstrap, login.wrong(), error_cb=errors.append))
    end_s = time.monotonic() + WAIT_S
    while not errors and time.monotonic() < end_s:
        producer.poll(0.2)
    assert errors[0].code() == KafkaError._AUTHENTICATION


# kafka-python


class Token(AbstractTokenProvider):  # type: ignore[misc]
    def __init__(self, token: str) -> None:
        super().__init__()
        self._token = token

    def token(self) -> str:
        return self._token


def kafka_python(bootstrap: str, login: Login) -> dict[str, Any]:
    config: dict[str, Any] = {
        "bootstrap_servers": bootstrap,
        "security_protocol": login.protocol,
        "sasl_mechanism": login.mechanism,
    }
    if login.trust is not None:
        config["ssl_cafile"] = str(login.trust)
    if login.is_token:
        return {**config, "sasl_oauth_token_provider": Token(login.password)}
    return {**config, "sasl_plain_username": login.username, "sasl_plain_password": login.password}


def test_kafka_python_writes_and_reads(place: tuple[str, Login], topic_name: Callable[[], str]) -> None:
    bootstrap, login = place
    topic = topic_name()
    producer = kafka.KafkaProducer(**kafka_python(bootstrap, login))
    for number in range(10):
        producer.send(topic, str(number).encode())
    producer.flush(WAIT_S)
    with pytest.raises(kafka.errors.TopicAuthorizationFailedError):
        producer.send(FORBIDDEN, b"x").get(WAIT_S)
    producer.close()
    consumer = kafka.KafkaConsumer(
        topic,
        auto_offset_reset="earliest",
        consumer_timeout_ms=int(WAIT_S * 1000),
        **kafka_python(bootstrap, login),
    )
    seen = [record.value for _, record in zip(range(10), consumer, strict=False)]
    consumer.close()
    assert seen == [str(number).encode() for number in range(10)]


def test_kafka_python_is_refused(open_place: tuple[str, Login], caplog: pytest.LogCaptureFixture) -> None:
    """It tries again for as long as it may, and logs why."""
    bootstrap, login = open_place
    for timeout_ms in (1500, 5000, 30_000):
        with pytest.raises(kafka.errors.KafkaError):
            kafka.KafkaProducer(**kafka_python(bootstrap, login.wrong()), bootstrap_timeout_ms=timeout_ms)
        # On a busy machine the first one may end before it is refused.
        if "SaslAuthenticationFailedError" in caplog.text:
            return
    pytest.fail("the login was not refused")


# aiokafka


class AioToken(AioTokenProvider):  # type: ignore[misc]
    def __init__(self, token: str) -> None:
        self._token = token

    async def token(self) -> str:
        return self._token


def aio(bootstrap: str, login: Login) -> dict[str, Any]:
    config: dict[str, Any] = {
        "bootstrap_servers": bootstrap,
        "security_protocol": login.protocol,
        "sasl_mechanism": login.mechanism,
    }
    if login.trust is not None:
        config["ssl_context"] = ssl.create_default_context(cafile=str(login.trust))
    if login.is_token:
        return {**config, "sasl_oauth_token_provider": AioToken(login.password)}
    return {**config, "sasl_plain_username": login.username, "sasl_plain_password": login.password}


def test_aiokafka_writes_and_reads(place: tuple[str, Login], topic_name: Callable[[], str]) -> None:
    bootstrap, login = place
    topic = topic_name()

    async def scenario() -> list[bytes | None]:
        producer = aiokafka.AIOKafkaProducer(**aio(bootstrap, login))
        await producer.start()
        for number in range(10):
            await producer.send_and_wait(topic, str(number).encode())
        with pytest.raises(aiokafka.errors.TopicAuthorizationFailedError):
            await producer.send_and_wait(FORBIDDEN, b"x")
        await producer.stop()
        consumer = aiokafka.AIOKafkaConsumer(topic, auto_offset_reset="earliest", **aio(bootstrap, login))
        await consumer.start()
        try:
            async with asyncio.timeout(WAIT_S):
                return [(await consumer.getone()).value for _ in range(10)]
        finally:
            await consumer.stop()

    assert asyncio.run(scenario()) == [str(number).encode() for number in range(10)]


def test_aiokafka_is_refused(open_place: tuple[str, Login]) -> None:
    bootstrap, login = open_place

    async def scenario() -> None:
        producer = aiokafka.AIOKafkaProducer(**aio(bootstrap, login.wrong()))
        try:
            await producer.start()
        finally:
            await producer.stop()

    with pytest.raises(aiokafka.errors.KafkaError):
        asyncio.run(scenario())


# Our own


def own(bootstrap: str, login: Login) -> dict[str, Any]:
    config: dict[str, Any] = {
        "bootstrap_servers": bootstrap,
        "security_protocol": login.protocol,
        "sasl_mechanism": login.mechanism,
    }
    if login.trust is not None:
        config["ssl_truststore_location"] = login.trust
    if login.is_token:
        return {**config, "sasl_login_callback_handler_class": lambda: login.password}
    return {**config, "sasl_username": login.username, "sasl_password": login.password}


def test_our_clients_write_and_read(place: tuple[str, Login], topic_name: Callable[[], str]) -> None:
    bootstrap, login = place
    topic = topic_name()
    with ours.Producer(**own(bootstrap, login)) as producer:
        for number in range(10):
            producer.send(topic, str(number).encode())
        producer.flush()
        with pytest.raises(OurError, match="forbidden"):
            producer.send(FORBIDDEN, b"x").result(WAIT_S)
    with ours.Consumer(**own(bootstrap, login), group_id=topic, auto_offset_reset="earliest") as consumer:
        consumer.subscribe([topic])
        seen: list[bytes | None] = []
        end_s = time.monotonic() + WAIT_S
        while len(seen) < 10 and time.monotonic() < end_s:
            seen += [record.value for record in consumer.poll(1.0)]
    assert seen == [str(number).encode() for number in range(10)]


def test_our_clients_are_refused(open_place: tuple[str, Login]) -> None:
    bootstrap, login = open_place
    with (
        ours.Admin(**own(bootstrap, login.wrong())) as admin,
        pytest.raises(AuthenticationError, match=r"refused"),
    ):
        admin.list_topics()


# Users


def test_credentials_change_under_load(broker: BrokerProcess, topic_name: Callable[[], str]) -> None:
    """Those who are in stay in, those who come need the password of the day."""
    admin = AdminClient({"bootstrap.servers": broker.bootstrap, **ADMIN})
    upsert(admin, "carol", "first")
    topic = topic_name()
    acknowledged: list[int] = []
    stop = threading.Event()

    def write() -> None:
        producer = Producer(confluent(broker.bootstrap, Login("SCRAM-SHA-256", "carol", "first")))
        while not stop.is_set():
            producer.produce(topic, b"x", on_delivery=lambda error, _: acknowledged.append(error is None))
            producer.poll(0.005)
        producer.flush(WAIT_S)

    writer = threading.Thread(target=write)
    writer.start()
    try:
        wait_until(lambda: len(acknowledged) > 10)
        for day in range(3):
            password = f"day-{day}"
            upsert(admin, "carol", password)
            before = len(acknowledged)
            with ours.Admin(**own(broker.bootstrap, Login("SCRAM-SHA-256", "carol", password))) as new:
                assert new.list_topics()
            with (
                ours.Admin(**own(broker.bootstrap, Login("SCRAM-SHA-256", "carol", "first"))) as old,
                pytest.raises(AuthenticationError),
            ):
                old.list_topics()
            wait_until(lambda before=before: len(acknowledged) > before + 10)  # type: ignore[misc]
    finally:
        stop.set()
        writer.join(WAIT_S)
    assert all(acknowledged)


def test_users_are_listed_and_removed_by_a_foreign_client(broker: BrokerProcess) -> None:
    admin = AdminClient({"bootstrap.servers": broker.bootstrap, **ADMIN})
    upsert(admin, "dora", "secret")
    asked = admin.describe_user_scram_credentials(["dora"])
    assert isinstance(asked, dict)
    described = asked["dora"].result(WAIT_S)
    assert [(each.mechanism, each.iterations) for each in described.scram_credential_infos] == [
        (ScramMechanism.SCRAM_SHA_256, 4096)
    ]
    removal = UserScramCredentialDeletion("dora", ScramMechanism.SCRAM_SHA_256)
    admin.alter_user_scram_credentials([removal])["dora"].result(WAIT_S)
    with pytest.raises(KafkaException) as refused:
        admin.alter_user_scram_credentials([removal])["dora"].result(WAIT_S)
    assert refused.value.args[0].code() == KafkaError.RESOURCE_NOT_FOUND


# Sessions that end


def test_clients_log_in_again_on_the_same_connection(
    tmp_path_factory: pytest.TempPathFactory, topic_name: Callable[[], str]
) -> None:
    topic = topic_name()
    options = {"connections.max.reauth.ms": "2000"}
    with closed_broker(tmp_path_factory.mktemp("again") / "data", options) as broker:
        login = Login("PLAIN", "alice", PASSWORD)
        errors: list[KafkaError] = []
        foreign = Producer(confluent(broker.bootstrap, login, error_cb=errors.append))
        failed: list[object] = []

        def told(error: KafkaError | None, _: object) -> None:
            if error is not None:
                failed.append(error)

        with ours.Producer(**own(broker.bootstrap, login)) as producer:
            end_s = time.monotonic() + 7
            while time.monotonic() < end_s:
                foreign.produce(topic, b"f", on_delivery=told)
                foreign.poll(0.02)
                producer.send(topic, b"o").result(WAIT_S)
        assert foreign.flush(WAIT_S) == 0
        assert not failed
        assert not errors
        assert "has not logged in again" not in broker.log
