"""Foreign clients over TLS, by certificates and by each login: what they may they do, what not they are told.

Told in the words of each client: the exception that its users catch.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from typing import Any, NamedTuple

import pytest
from tests.compat.clients import CLIENTS
from tests.compat.conftest import BROKERS, available
from tests.compat.driver import Client, Driver, OperationFailed, b64
from tests.compat.secured_broker import (
    OAUTH_MODULE,
    PASSWORD,
    PLAIN_MODULE,
    SCRAM_MODULE,
    TOKEN_FILE_HANDLER,
    USER,
    SecuredBroker,
    secured_broker,
)

SECURED = [client for client in CLIENTS if client.name in ("java-4", "java-3.9", "franz-go", "kafkajs")]
LOGINS = ("PLAIN", "SCRAM-SHA-256", "SCRAM-SHA-512", "OAUTHBEARER")
DENIED = "TOPIC_AUTHORIZATION_FAILED"


class Way(NamedTuple):
    """How somebody connects."""

    name: str
    listener: str
    mechanism: str = ""
    secret: str = ""
    """A password, or the name of a file with a token."""
    certificate: bool = False
    trusts: str = "authority"


TLS = Way("tls", "TLS")
MUTUAL = Way("mutual", "MUTUAL", certificate=True)
BY_LOGIN = [
    Way(mechanism.lower(), "LOGIN", mechanism, "token" if mechanism == "OAUTHBEARER" else PASSWORD)
    for mechanism in LOGINS
]
WAYS = [TLS, MUTUAL, *BY_LOGIN]
STRANGERS = [way._replace(secret="forged" if way.mechanism == "OAUTHBEARER" else "wrong") for way in BY_LOGIN]

# What users of a client catch.
REFUSED_LOGIN = {
    "java-4": "SaslAuthenticationException",
    "java-3.9": "SaslAuthenticationException",
    "franz-go": "SASL_AUTHENTICATION_FAILED",
    "kafkajs": "KafkaJSSASLAuthenticationError",
}
# Brokers refuse a token by a message (RFC 7628) before the error code, which these two do not read.
REFUSED_TOKEN = REFUSED_LOGIN | {
    "franz-go": "unexpected data in oauth response",
    "kafkajs": "KafkaJSConnectionClosedError|KafkaJSBrokerNotFound",
}
UNTRUSTED = {
    "java-4": "SslAuthenticationException",
    "java-3.9": "SslAuthenticationException",
    "franz-go": "certificate signed by unknown authority",
    "kafkajs": "KafkaJSConnectionError.*certificate",
}
NO_CERTIFICATE = {
    "java-4": "SslAuthenticationException",
    "java-3.9": "SslAuthenticationException",
    "franz-go": "certificate required|bad certificate",
    "kafkajs": "KafkaJSConnectionError.*(certificate required|bad certificate)",
}


class Secured(NamedTuple):
    """The broker, as drivers are told of it."""

    broker: SecuredBroker

    def security(self, client: Client, way: Way) -> dict[str, Any]:
        """What a client's driver is told."""
        trusted = getattr(self.broker.pem, way.trusts)
        if client.name.startswith("java"):
            return self._java(way) | {"ssl.truststore.location": str(trusted)}
        secret = self.broker.token(way.secret).read_text() if way.mechanism == "OAUTHBEARER" else way.secret
        return {
            "authority": str(trusted),
            "pair": str(self.broker.pem.client) if way.certificate else "",
            "mechanism": way.mechanism,
            "username": USER,
            "password": secret,
        }

    def _java(self, way: Way) -> dict[str, str]:
        options = {"security.protocol": "SASL_SSL" if way.mechanism else "SSL", "ssl.truststore.type": "PEM"}
        if way.certificate:
            options |= {"ssl.keystore.type": "PEM", "ssl.keystore.location": str(self.broker.pem.client)}
        if way.mechanism == "OAUTHBEARER":
            options |= {
                "sasl.jaas.config": f"{OAUTH_MODULE};",
                "sasl.login.callback.handler.class": TOKEN_FILE_HANDLER,
                "sasl.oauthbearer.token.endpoint.url": self.broker.token(way.secret).as_uri(),
            }
        elif way.mechanism:
            module = PLAIN_MODULE if way.mechanism == "PLAIN" else SCRAM_MODULE
            options["sasl.jaas.config"] = f'{module} username="{USER}" password="{way.secret}";'
        return options | ({"sasl.mechanism": way.mechanism} if way.mechanism else {})


@pytest.fixture(scope="module", params=BROKERS)
def secured(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Secured]:
    with available(), secured_broker(request.param, tmp_path_factory.mktemp(request.param)) as broker:
        yield Secured(broker)


@pytest.fixture(scope="module")
def start(secured: Secured, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Callable[[Client], Driver]]:
    running: dict[str, Driver] = {}
    logs = tmp_path_factory.mktemp("drivers")

    def find(client: Client) -> Driver:
        if client.name not in running or not running[client.name].alive:
            with available():
                running[client.name] = Driver(client, "each", logs / f"{client.name}.log")
        return running[client.name]

    yield find
    for driver in running.values():
        driver.close()


class Somebody:
    """A client that connects in one way."""

    def __init__(self, secured: Secured, driver: Driver, way: Way) -> None:
        self._driver = driver
        self._where = {
            "address": secured.broker.address(way.listener),
            "security": secured.security(driver.client, way),
        }

    def __call__(self, operation: str, **fields: Any) -> Any:
        return self._driver(operation, **self._where, **fields)

    def produce(self, topic: str, *values: bytes) -> Any:
        records: list[Any] = [{"key": None, "value": b64(value), "headers": []} for value in values]
        return self("produce", topic=topic, partition=0, acks="all", codec="none", records=records)

    def consume(self, topic: str, count: int) -> list[str | None]:
        found = self("consume", topic=topic, partition=0, offset="earliest", count=count)
        return [each["value"] for each in found]


@pytest.mark.parametrize("way", WAYS, ids=lambda way: way.name)
@pytest.mark.parametrize("client", SECURED, ids=lambda client: client.name)
def test_who_is_known_does_what_rules_allow_and_is_told_of_what_they_do_not(
    secured: Secured, start: Callable[[Client], Driver], client: Client, way: Way
) -> None:
    somebody = Somebody(secured, start(client), way)
    topic = f"open-{client.name}-{way.name}"
    secured.broker.make_topic(topic)
    assert somebody.produce(topic, b"one", b"two") == [0, 1]
    assert somebody.consume(topic, 2) == [b64(b"one"), b64(b"two")]
    names = somebody("list_topics")
    assert {topic, "shown"} <= set(names)
    assert "hidden" not in names
    for denied in ("shown", "hidden"):
        with pytest.raises(OperationFailed) as refused:
            somebody.produce(denied, b"x")
        assert refused.value.name == DENIED, denied
    with pytest.raises(OperationFailed) as unread:
        somebody.consume("shown", 1)
    assert unread.value.name == DENIED


@pytest.mark.parametrize("way", STRANGERS, ids=lambda way: way.name)
@pytest.mark.parametrize("client", SECURED, ids=lambda client: client.name)
def test_a_refused_login_is_the_clients_own_error(
    secured: Secured, start: Callable[[Client], Driver], client: Client, way: Way
) -> None:
    with pytest.raises(OperationFailed) as refused:
        Somebody(secured, start(client), way)("list_topics")
    expected = REFUSED_TOKEN if way.mechanism == "OAUTHBEARER" else REFUSED_LOGIN
    assert re.search(expected[client.name], str(refused.value), re.DOTALL), refused.value


@pytest.mark.parametrize("client", SECURED, ids=lambda client: client.name)
def test_a_broker_that_is_not_trusted_is_the_clients_own_error(
    secured: Secured, start: Callable[[Client], Driver], client: Client
) -> None:
    with pytest.raises(OperationFailed) as refused:
        Somebody(secured, start(client), TLS._replace(trusts="other_authority"))("list_topics")
    assert re.search(UNTRUSTED[client.name], str(refused.value), re.DOTALL), refused.value


@pytest.mark.parametrize("client", SECURED, ids=lambda client: client.name)
def test_a_client_without_a_certificate_is_told_that_it_needs_one(
    secured: Secured, start: Callable[[Client], Driver], client: Client
) -> None:
    with pytest.raises(OperationFailed) as refused:
        Somebody(secured, start(client), MUTUAL._replace(certificate=False))("list_topics")
    assert re.search(NO_CERTIFICATE[client.name], str(refused.value), re.DOTALL), refused.value
