"""Tidelog's clients against an Apache Kafka that asks for TLS, for a login, or for both."""

from __future__ import annotations

import asyncio
import base64
import hashlib
import json
import os
import time
from collections.abc import Iterator
from typing import Any, NamedTuple

import pytest
from foreign.apache_kafka import ApacheKafka
from foreign.broker_process import free_port
from tests.compat.conftest import available
from tests.rigs.certificates import Certificates
from tests.rigs.waiting import wait_until

from tidelog import Admin, Consumer, Producer, TopicPartition
from tidelog.client._address import Address
from tidelog.client._network.cluster import Cluster
from tidelog.client._network.from_options import network_settings
from tidelog.client.errors import AuthenticationError, BrokerUnreachableError
from tidelog.client.options import ADMIN, ClientConfig
from tidelog.errors import ErrorCode, KafkaError
from tidelog.spark.runtime._executor_login import DriverLogin
from tidelog.wire.messages.alter_user_scram_credentials import (
    AlterUserScramCredentialsRequest,
    AlterUserScramCredentialsResponse,
    ScramCredentialUpsertion,
)
from tidelog.wire.messages.describe_cluster import DescribeClusterRequest, DescribeClusterResponse

_LISTENERS = {
    "TLS": "SSL",
    "MUTUAL": "SSL",
    "FOREIGN": "SSL",
    "LOGIN": "SASL_PLAINTEXT",
    "LIMITED": "SASL_PLAINTEXT",
    "TLSLOGIN": "SASL_SSL",
}
_SCRAM = {"SCRAM-SHA-256": ("sha256", 1), "SCRAM-SHA-512": ("sha512", 2)}
_SESSION_MS = 2000


class Secured(NamedTuple):
    """A running broker, its ports by listener, and the certificates around it."""

    ports: dict[str, int]
    certificates: Certificates

    def address(self, listener: str) -> str:
        return f"127.0.0.1:{self.ports[listener]}"


def broker_options(ports: dict[str, int], plain: str, controller: int, pem: Certificates) -> dict[str, str]:
    modules = "org.apache.kafka.common.security"
    login = {
        "plain": f'{modules}.plain.PlainLoginModule required user_alice="alice, secret";',
        "scram-sha-256": f"{modules}.scram.ScramLoginModule required;",
        "scram-sha-512": f"{modules}.scram.ScramLoginModule required;",
        "oauthbearer": f"{modules}.oauthbearer.OAuthBearerLoginModule required "
        'unsecuredLoginStringClaim_sub="broker";',
    }
    listeners = [f"{name}://127.0.0.1:{port}" for name, port in ports.items()]
    options = {
        "listeners": ",".join([f"PLAINTEXT://{plain}", *listeners, f"CONTROLLER://127.0.0.1:{controller}"]),
        "advertised.listeners": ",".join([f"PLAINTEXT://{plain}", *listeners]),
        "listener.security.protocol.map": ",".join(
            ["CONTROLLER:PLAINTEXT", "PLAINTEXT:PLAINTEXT", *(f"{a}:{b}" for a, b in _LISTENERS.items())]
        ),
        "ssl.keystore.type": "PEM",
        "ssl.keystore.location": str(pem.broker),
        "ssl.truststore.type": "PEM",
        "ssl.truststore.location": str(pem.authority),
        "listener.name.mutual.ssl.client.auth": "required",
        "listener.name.foreign.ssl.keystore.location": str(pem.foreign_broker),
        "listener.name.limited.plain.connections.max.reauth.ms": str(_SESSION_MS),
        "sasl.enabled.mechanisms": "PLAIN,SCRAM-SHA-256,SCRAM-SHA-512,OAUTHBEARER",
        "delegation.token.secret.key": "brokers-only",
    }
    for listener, protocol in _LISTENERS.items():
        if protocol.startswith("SASL"):
            for mechanism, module in login.items():
                options[f"listener.name.{listener.lower()}.{mechanism}.sasl.jaas.config"] = module
    return options


@pytest.fixture(scope="module")
def secured(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Secured]:
    pem = Certificates(tmp_path_factory.mktemp("certificates"))
    ports = {name: free_port() for name in _LISTENERS}
    with available():
        broker = ApacheKafka(tmp_path_factory.mktemp("secured"))
        broker.options = broker_options(ports, broker.address, broker.controller_port, pem)
        broker.start()
    try:
        asyncio.run(add_scram_user(broker.address))
        yield Secured(ports, pem)
    finally:
        broker.stop()


async def add_scram_user(address: str) -> None:
    salt = os.urandom(16)
    async with Cluster(address) as cluster:
        for digest, number in _SCRAM.values():
            upsertion = ScramCredentialUpsertion(
                name="bob=, smith",
                mechanism=number,
                iterations=4096,
                salt=salt,
                salted_password=hashlib.pbkdf2_hmac(digest, b"bob's secret", salt, 4096),
            )
            response = await cluster.request_controller(
                AlterUserScramCredentialsRequest(upsertions=[upsertion]),
                AlterUserScramCredentialsResponse,
                lambda answer: (each.error_code for each in answer.results),
            )
            assert [each.error_code for each in response.results] == [0]


def ask(address: str, **options: Any) -> str | None:
    """Log in and have one request answered."""
    config = ClientConfig.parse(ADMIN, bootstrap_servers=address, **options)

    async def main() -> str | None:
        async with Cluster(address, network_settings(config)) as cluster:
            (node,) = cluster.metadata.nodes
            return (
                await cluster.ask_node(node, DescribeClusterRequest(), DescribeClusterResponse)
            ).cluster_id

    return asyncio.run(main())


def token(**claims: Any) -> str:
    def part(value: dict[str, Any]) -> str:
        return base64.urlsafe_b64encode(json.dumps(value).encode()).decode().rstrip("=")

    now = int(time.time())
    return f"{part({'alg': 'none'})}.{part({'sub': 'alice', 'iat': now, 'exp': now + 600} | claims)}."


def test_tls_with_the_authority_in_a_file_or_in_the_options(secured: Secured) -> None:
    pem, address = secured.certificates, secured.address("TLS")
    assert ask(address, security_protocol="SSL", ssl_truststore_location=pem.authority)
    assert ask(address, security_protocol="ssl", ssl_truststore_certificates=pem.authority.read_text())


def test_a_broker_of_another_authority_is_not_trusted(secured: Secured) -> None:
    with pytest.raises(AuthenticationError, match="not trusted"):
        ask(
            secured.address("TLS"),
            security_protocol="SSL",
            ssl_truststore_location=secured.certificates.other_authority,
        )


def test_a_certificate_for_another_host_is_refused_unless_names_are_not_looked_at(secured: Secured) -> None:
    options: dict[str, Any] = {
        "security_protocol": "SSL",
        "ssl_truststore_location": secured.certificates.authority,
    }
    with pytest.raises(AuthenticationError, match=r"IP address mismatch.*endpoint\.identification"):
        ask(secured.address("FOREIGN"), **options)
    assert ask(secured.address("FOREIGN"), ssl_endpoint_identification_algorithm="", **options)


def test_a_broker_that_asks_for_a_certificate_gets_one(secured: Secured) -> None:
    pem = secured.certificates
    options: dict[str, Any] = {"security_protocol": "SSL", "ssl_truststore_location": pem.authority}
    assert ask(secured.address("MUTUAL"), ssl_keystore_location=pem.client, **options)
    encrypted = pem.encrypted_client("pass word")
    assert ask(
        secured.address("MUTUAL"),
        ssl_keystore_location=encrypted,
        ssl_key_password="pass word",
        **options,
    )
    text = pem.client.read_text()
    key, begin, certificate = text.partition("-----BEGIN CERTIFICATE-----")
    assert ask(
        secured.address("MUTUAL"),
        ssl_keystore_key=key,
        ssl_keystore_certificate_chain=begin + certificate,
        **options,
    )


def test_a_broker_that_asks_for_a_certificate_and_gets_none_is_an_error_that_says_so(
    secured: Secured,
) -> None:
    with pytest.raises((AuthenticationError, BrokerUnreachableError), match=r"ssl\.keystore|protocol=SSL"):
        ask(
            secured.address("MUTUAL"),
            security_protocol="SSL",
            ssl_truststore_location=secured.certificates.authority,
        )


def test_speaking_without_tls_to_a_tls_listener_is_told_apart(secured: Secured) -> None:
    with pytest.raises(
        BrokerUnreachableError, match=r"security\.protocol=PLAINTEXT.*TLS listener, set|is a TLS listener"
    ):
        ask(secured.address("TLS"))


def test_speaking_tls_to_a_listener_without_is_told_apart(secured: Secured) -> None:
    with pytest.raises(BrokerUnreachableError, match=r"not a TLS listener, set security\.protocol="):
        ask(
            secured.address("LOGIN"),
            security_protocol="SSL",
            ssl_truststore_location=secured.certificates.authority,
        )


@pytest.mark.parametrize("listener", ["LOGIN", "TLSLOGIN"])
@pytest.mark.parametrize(
    "options",
    [
        {"sasl_mechanism": "PLAIN", "sasl_username": "alice", "sasl_password": "alice, secret"},
        {
            "sasl_mechanism": "PLAIN",
            "sasl_jaas_config": "org.apache.kafka.common.security.plain.PlainLoginModule required "
            'username="alice" password="alice, secret";',
        },
        {"sasl_mechanism": "SCRAM-SHA-256", "sasl_username": "bob=, smith", "sasl_password": "bob's secret"},
        {"sasl_mechanism": "SCRAM-SHA-512", "sasl_username": "bob=, smith", "sasl_password": "bob's secret"},
        {"sasl_mechanism": "OAUTHBEARER", "sasl_login_callback_handler_class": token},
    ],
    ids=["plain", "jaas", "scram-256", "scram-512", "oauth"],
)
def test_every_mechanism_logs_in_with_and_without_tls(
    secured: Secured, listener: str, options: dict[str, Any]
) -> None:
    protocol = _LISTENERS[listener]
    authority = {"ssl_truststore_location": secured.certificates.authority} if "SSL" in protocol else {}
    assert ask(secured.address(listener), security_protocol=protocol, **authority, **options)


@pytest.mark.parametrize("mechanism", ["PLAIN", "SCRAM-SHA-256", "SCRAM-SHA-512"])
def test_a_wrong_password_is_refused_and_not_tried_again(secured: Secured, mechanism: str) -> None:
    user = "alice" if mechanism == "PLAIN" else "bob=, smith"
    with pytest.raises(AuthenticationError, match=f"refused the login by {mechanism}"):
        ask(
            secured.address("LOGIN"),
            security_protocol="SASL_PLAINTEXT",
            sasl_mechanism=mechanism,
            sasl_username=user,
            sasl_password="wrong",
        )


def test_a_token_that_has_expired_is_refused_with_the_brokers_reason(secured: Secured) -> None:
    async def expired() -> str:
        return token(iat=1, exp=2)

    with pytest.raises(AuthenticationError, match=r"refused the login by OAUTHBEARER.*invalid_token"):
        ask(
            secured.address("LOGIN"),
            security_protocol="SASL_PLAINTEXT",
            sasl_mechanism="OAUTHBEARER",
            sasl_login_callback_handler_class=expired,
        )


def test_a_mechanism_that_the_broker_lacks_is_an_error_that_lists_those_it_has(secured: Secured) -> None:
    from tidelog.client._network.security import Security
    from tidelog.client._network.security.mechanisms import Dialogue, plain
    from tidelog.client._network.security.sasl import SaslLogin

    async def begin(_: Address) -> Dialogue:
        return plain("alice", "x")

    async def main() -> None:
        security = Security("SASL_PLAINTEXT", sasl=SaslLogin("GSSAPI", begin))
        async with Cluster(secured.address("LOGIN"), security=security):
            pass

    with pytest.raises(AuthenticationError, match=r"does not take sasl\.mechanism=GSSAPI; it takes .*PLAIN"):
        asyncio.run(main())


def test_a_session_that_the_broker_limits_goes_on_by_logging_in_again_on_the_same_connection(
    secured: Secured,
) -> None:
    config = ClientConfig.parse(
        ADMIN,
        bootstrap_servers=secured.address("LIMITED"),
        security_protocol="SASL_PLAINTEXT",
        sasl_mechanism="PLAIN",
        sasl_username="alice",
        sasl_password="alice, secret",
    )

    async def main() -> None:
        async with Cluster(secured.address("LIMITED"), network_settings(config)) as cluster:
            (node,) = cluster.metadata.nodes
            connection = await cluster.connection_to(node)
            assert connection.session_lifetime_ms == _SESSION_MS
            # Kafka closes a connection on the first request after its session: three lifetimes must pass.
            end = asyncio.get_running_loop().time() + 3 * _SESSION_MS / 1000
            while asyncio.get_running_loop().time() < end:
                await cluster.ask_node(node, DescribeClusterRequest(), DescribeClusterResponse)
            assert await cluster.connection_to(node) is connection

    asyncio.run(main())


def test_a_producer_and_a_consumer_work_over_tls_with_a_login(secured: Secured, topic: str) -> None:
    options: dict[str, Any] = {
        "bootstrap_servers": secured.address("TLSLOGIN"),
        "security_protocol": "SASL_SSL",
        "sasl_mechanism": "SCRAM-SHA-512",
        "sasl_username": "bob=, smith",
        "sasl_password": "bob's secret",
        "ssl_truststore_location": secured.certificates.authority,
    }
    sent = [os.urandom(20_000) for _ in range(200)]
    with Producer(**options) as producer:
        futures = [producer.send(topic, value=value) for value in sent]
        assert [future.result(30).offset for future in futures] == list(range(200))
    received: list[bytes | None] = []
    with Consumer(**options, auto_offset_reset="earliest") as consumer:
        consumer.assign([TopicPartition(topic, 0)])
        end = time.monotonic() + 30
        while len(received) < len(sent) and time.monotonic() < end:
            received += [record.value for record in consumer.poll(1.0)]
    assert received == sent


def of_alice(secured: Secured) -> dict[str, str]:
    return {
        "bootstrap.servers": secured.address("TLSLOGIN"),
        "security.protocol": "SASL_SSL",
        "ssl.truststore.location": str(secured.certificates.authority),
        "sasl.mechanism": "PLAIN",
        "sasl.username": "alice",
        "sasl.password": "alice, secret",
    }


def logs_in(options: dict[str, str]) -> bool:
    try:
        with Admin(options) as admin:
            admin.describe_cluster()
    except AuthenticationError:
        return False
    return True


def test_tokens_of_apache_kafka_are_made_used_renewed_and_ended(secured: Secured) -> None:
    with Admin(of_alice(secured)) as admin:
        token = admin.create_delegation_token(renewers=["User:bob"], max_lifetime_ms=3_600_000)
        wait_until(lambda: token in admin.describe_delegation_tokens(["User:bob"]))
        assert admin.describe_delegation_tokens([]) == []
        login = of_alice(secured) | {
            "sasl.mechanism": "SCRAM-SHA-256",
            "sasl.username": token.token_id,
            "sasl.password": token.password,
            "sasl.tokenauth": "true",
        }
        wait_until(lambda: logs_in(login))
        other = "B" if token.password.startswith("A") else "A"
        assert not logs_in(login | {"sasl.password": other + token.password[1:]})
        assert not logs_in(login | {"sasl.tokenauth": "false"})
        with Admin(login) as by_token, pytest.raises(KafkaError) as told:
            by_token.create_delegation_token()
        assert told.value.code is ErrorCode.DELEGATION_TOKEN_REQUEST_NOT_ALLOWED
        assert admin.renew_delegation_token(token.hmac, period_ms=10**12) == token.max_ms
        with pytest.raises(KafkaError) as told:
            admin.renew_delegation_token(b"x" * 64)
        assert told.value.code is ErrorCode.DELEGATION_TOKEN_NOT_FOUND
        admin.expire_delegation_token(token.hmac)
        wait_until(lambda: not logs_in(login))


def test_sparks_driver_gets_a_token_of_apache_kafka_for_its_executors(secured: Secured) -> None:
    options = of_alice(secured)
    given = {name: text for name, text in options.items() if name.startswith("sasl.")}
    client = {name: text for name, text in options.items() if name not in given}
    token = DriverLogin(client, given, "SCRAM-SHA-512").for_tasks()
    assert logs_in({**client, **token.options()})
