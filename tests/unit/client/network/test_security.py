from __future__ import annotations

import asyncio
import ssl
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

import pytest
from tests.rigs.certificates import Certificates

from tidelog.client._network.cluster import Cluster
from tidelog.client._network.from_options import network_settings
from tidelog.client._network.security.from_options import parse_jaas
from tidelog.client._network.security.mechanisms import Dialogue, oauthbearer, plain
from tidelog.client._network.security.scram import scram
from tidelog.client.errors import AuthenticationError, BrokerUnreachableError
from tidelog.client.options import ADMIN, ClientConfig
from tidelog.errors import ConfigError, ErrorCode
from tidelog.wire.api import ApiKey
from tidelog.wire.messages.describe_cluster import DescribeClusterRequest, DescribeClusterResponse
from tidelog.wire.messages.sasl_authenticate import SaslAuthenticateResponse
from tidelog.wire.messages.sasl_handshake import SaslHandshakeResponse

# RFC 7677, section 3.
NONCE = "rOprNGfwEbeRWgbNEkqO"
SERVER_FIRST = b"r=rOprNGfwEbeRWgbNEkqO%hvYDpWUa2RaTCAfuxFIlj)hNlF$k0,s=W22ZaJ0SNY7soEsUEjb6gQ==,i=4096"
CLIENT_FINAL = (
    b"c=biws,r=rOprNGfwEbeRWgbNEkqO%hvYDpWUa2RaTCAfuxFIlj)hNlF$k0,"
    b"p=dHzbZapWIk4jUhN+Ute9ytag9zjfMHgsqmmiz7AndVQ="
)
SERVER_FINAL = b"v=6rriTRBi23WpRR/wtup+mMhUZUn/dB5nLTJRsjl95G4="


def login() -> Dialogue:
    return scram("SCRAM-SHA-256", "user", "pencil", nonce=NONCE)


def test_scram_says_what_the_standards_example_says() -> None:
    dialogue = login()
    assert next(dialogue) == b"n,,n=user,r=rOprNGfwEbeRWgbNEkqO"
    assert dialogue.send(SERVER_FIRST) == CLIENT_FINAL
    with pytest.raises(StopIteration):
        dialogue.send(SERVER_FINAL)


@pytest.mark.parametrize(
    ("server_first", "words"),
    [
        (SERVER_FIRST.replace(b"r=rO", b"r=xO"), "does not continue ours"),
        (SERVER_FIRST.replace(b"i=4096", b"i=1"), "asks for 1 iterations"),
        (SERVER_FIRST.replace(b"i=4096", b"i=999999999999"), "iterations"),
        (SERVER_FIRST.replace(b"i=4096", b"i="), "asks for no iterations"),
        (SERVER_FIRST.replace(b"s=W", b"s=*"), "no salt"),
        (b"e=unknown-user", "no salt: unknown-user"),
        (b"\xff\xfe", "no salt"),
    ],
)
def test_scram_refuses_a_first_answer_that_weakens_the_login(server_first: bytes, words: str) -> None:
    dialogue = login()
    next(dialogue)
    with pytest.raises(AuthenticationError, match=words):
        dialogue.send(server_first)


@pytest.mark.parametrize("server_final", [b"v=AAAA", b"v=!", b"", b"x"])
def test_scram_refuses_a_broker_that_cannot_prove_to_know_the_password(server_final: bytes) -> None:
    dialogue = login()
    next(dialogue)
    dialogue.send(SERVER_FIRST)
    with pytest.raises(AuthenticationError, match="does not know the password"):
        dialogue.send(server_final)


def test_scram_names_the_brokers_own_error() -> None:
    dialogue = login()
    next(dialogue)
    dialogue.send(SERVER_FIRST)
    with pytest.raises(AuthenticationError, match="invalid-proof"):
        dialogue.send(b"e=invalid-proof")


def test_names_with_commas_and_tokens_are_written_the_way_kafka_reads_them() -> None:
    first = next(scram("SCRAM-SHA-512", "a=b,c", "x", tokenauth=True, nonce="n"))
    assert first == b"n,,n=a=3Db=2Cc,r=n,tokenauth=true"
    assert next(plain("ü", "p")) == "\0ü\0p".encode()


def test_a_refused_token_is_acknowledged_and_then_an_error() -> None:
    dialogue = oauthbearer("abc")
    assert next(dialogue) == b"n,,\x01auth=Bearer abc\x01\x01"
    assert dialogue.send(b'{"status":"invalid_token"}') == b"\x01"
    with pytest.raises(AuthenticationError, match="invalid_token"):
        dialogue.send(b"")


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ('x.PlainLoginModule required username="a" password="b";', ("a", "b", False)),
        ("x required username='a' password=b;", ("a", "b", False)),
        (r'x required password="say \"hi\", ; \\" username="=a";', ("=a", 'say "hi", ; \\', False)),
        ('x required username="a" password="b" tokenauth="true";', ("a", "b", True)),
        ('x required username="a" password="";', ("a", "", False)),
    ],
)
def test_users_are_found_in_jaas(text: str, expected: tuple[str, str, bool]) -> None:
    assert parse_jaas(text) == expected


def test_jaas_without_a_user_is_refused_without_showing_it() -> None:
    with pytest.raises(ConfigError, match="names no user") as refused:
        parse_jaas('x required password="hush";')
    assert "hush" not in str(refused.value)


def settings(**options: Any) -> Any:
    return network_settings(ClientConfig.parse(ADMIN, bootstrap_servers="127.0.0.1:1", **options))


PLAIN_LOGIN = {
    "security_protocol": "SASL_PLAINTEXT",
    "sasl_mechanism": "PLAIN",
    "sasl_username": "alice",
    "sasl_password": "secret",
}


def ask(broker: Any, action: Callable[[Cluster], Awaitable[None]] | None = None, /, **options: Any) -> None:
    """Connect to a scripted broker and have one request answered."""
    broker.handlers[ApiKey.DESCRIBE_CLUSTER] = lambda request, version: DescribeClusterResponse()

    async def main() -> None:
        async with broker, Cluster(broker.address, settings(**options)) as cluster:
            await cluster.ask_node(7, DescribeClusterRequest(), DescribeClusterResponse)
            if action is not None:
                await action(cluster)

    asyncio.run(main())


def accept(broker: Any, **fields: Any) -> list[bytes]:
    """Have the broker accept any login; what it was told."""
    told: list[bytes] = []

    def authenticate(request: Any, version: int) -> SaslAuthenticateResponse:
        told.append(bytes(request.auth_bytes))
        return SaslAuthenticateResponse(**fields)

    broker.handlers[ApiKey.SASL_HANDSHAKE] = lambda request, version: SaslHandshakeResponse()
    broker.handlers[ApiKey.SASL_AUTHENTICATE] = authenticate
    return told


@pytest.mark.parametrize("version", [0, 1, 2])
def test_a_login_comes_before_the_first_request_in_every_version(scripted_broker: Any, version: int) -> None:
    scripted_broker.versions[ApiKey.SASL_AUTHENTICATE] = (0, version)
    told = accept(scripted_broker)
    ask(scripted_broker, **PLAIN_LOGIN)
    assert told == [b"\0alice\0secret"]
    keys = [key for key, _, _ in scripted_broker.seen]
    assert keys == [
        ApiKey.API_VERSIONS,
        ApiKey.SASL_HANDSHAKE,
        ApiKey.SASL_AUTHENTICATE,
        ApiKey.METADATA,
        ApiKey.DESCRIBE_CLUSTER,
    ]
    assert scripted_broker.requests(ApiKey.SASL_AUTHENTICATE)[0][0] == version


def test_a_refused_login_gives_the_brokers_reason_and_is_not_tried_again(scripted_broker: Any) -> None:
    accept(scripted_broker, error_code=ErrorCode.SASL_AUTHENTICATION_FAILED, error_message="no such user")
    with pytest.raises(
        AuthenticationError, match=r"127\.0\.0\.1:\d+ refused the login by PLAIN: no such user"
    ):
        ask(scripted_broker, **PLAIN_LOGIN)
    assert scripted_broker.connections == 1


def test_a_broker_without_the_mechanism_is_an_error_that_lists_its_own(scripted_broker: Any) -> None:
    scripted_broker.handlers[ApiKey.SASL_HANDSHAKE] = lambda request, version: SaslHandshakeResponse(
        error_code=ErrorCode.UNSUPPORTED_SASL_MECHANISM, mechanisms=["GSSAPI", "OAUTHBEARER"]
    )
    with pytest.raises(AuthenticationError, match=r"does not take .*PLAIN; it takes GSSAPI, OAUTHBEARER"):
        ask(scripted_broker, **PLAIN_LOGIN)


def test_a_broker_that_hangs_up_during_the_login_is_named_with_the_protocol(scripted_broker: Any) -> None:
    accept(scripted_broker)
    del scripted_broker.versions[ApiKey.SASL_AUTHENTICATE]
    scripted_broker.handlers[ApiKey.API_VERSIONS] = lambda request, version: (
        scripted_broker.versions.update({ApiKey.SASL_AUTHENTICATE: (0, 2)}) or scripted_broker.api_versions()
    )
    answer = scripted_broker._answer
    scripted_broker._answer = lambda frame, writer: (
        frame[1] != ApiKey.SASL_AUTHENTICATE and answer(frame, writer)
    )
    with pytest.raises(BrokerUnreachableError, match=r"security\.protocol=SASL_PLAINTEXT"):
        ask(scripted_broker, **PLAIN_LOGIN)


@pytest.mark.parametrize("asynchronous", [False, True])
def test_a_token_is_asked_for_with_each_connection(scripted_broker: Any, asynchronous: bool) -> None:
    told = accept(scripted_broker)
    numbers = iter(range(10))

    async def later() -> str:
        return f"token-{next(numbers)}"

    provider = later if asynchronous else (lambda: f"token-{next(numbers)}")

    async def reconnect(cluster: Cluster) -> None:
        await cluster.connection_to(7, channel="another")

    ask(
        scripted_broker,
        reconnect,
        security_protocol="SASL_PLAINTEXT",
        sasl_mechanism="OAUTHBEARER",
        sasl_login_callback_handler_class=provider,
    )
    assert [b"token-0" in told[0], b"token-1" in told[1]] == [True, True]


@pytest.mark.parametrize(
    ("provider", "words"), [(lambda: 1 / 0, "division by zero"), (lambda: b"abc", "as text, not a bytes")]
)
def test_a_provider_that_gives_no_token_is_an_error_that_names_the_option(
    scripted_broker: Any, provider: Callable[[], Any], words: str
) -> None:
    accept(scripted_broker)
    with pytest.raises(AuthenticationError, match=f"sasl.login.callback.handler.class .*{words}"):
        ask(
            scripted_broker,
            security_protocol="SASL_PLAINTEXT",
            sasl_mechanism="OAUTHBEARER",
            sasl_login_callback_handler_class=provider,
        )


def test_a_limited_session_is_renewed_on_the_same_connection_while_requests_go_on(
    scripted_broker: Any,
) -> None:
    accept(scripted_broker, session_lifetime_ms=50)

    async def go_on(cluster: Cluster) -> None:
        connection = await cluster.connection_to(7)
        while len(scripted_broker.requests(ApiKey.SASL_AUTHENTICATE)) < 4:
            await cluster.ask_node(7, DescribeClusterRequest(), DescribeClusterResponse)
        assert await cluster.connection_to(7) is connection

    ask(scripted_broker, go_on, **PLAIN_LOGIN)
    keys = [key for key, _, _ in scripted_broker.seen]
    for place, key in enumerate(keys):
        if key is ApiKey.SASL_HANDSHAKE and place + 1 < len(keys):
            assert keys[place + 1] is ApiKey.SASL_AUTHENTICATE, "nothing comes between the two"


def test_a_session_that_cannot_be_renewed_ends_its_connection(scripted_broker: Any) -> None:
    accept(scripted_broker, session_lifetime_ms=20)

    async def go_on(cluster: Cluster) -> None:
        scripted_broker.handlers[ApiKey.SASL_AUTHENTICATE] = lambda request, version: (
            SaslAuthenticateResponse(error_code=ErrorCode.SASL_AUTHENTICATION_FAILED, error_message="locked")
        )

        async def ask_until_refused() -> None:
            while True:
                await cluster.request_node(7, DescribeClusterRequest(), DescribeClusterResponse)

        with pytest.raises(AuthenticationError, match="locked"):
            await asyncio.wait_for(ask_until_refused(), 20)

    ask(scripted_broker, go_on, **PLAIN_LOGIN)


@pytest.fixture(scope="module")
def pem(tmp_path_factory: pytest.TempPathFactory) -> Certificates:
    return Certificates(tmp_path_factory.mktemp("certificates"))


def serve_tls(broker: Any, certificate: Path, *, clients: Path | None = None) -> None:
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(certificate)
    if clients is not None:
        context.verify_mode = ssl.CERT_REQUIRED
        context.load_verify_locations(clients)
    broker.tls = context


def test_tls_is_spoken_and_long_answers_come_through(scripted_broker: Any, pem: Certificates) -> None:
    serve_tls(scripted_broker, pem.broker)
    for number in range(3000):
        scripted_broker.add_topic(f"topic-{number}")

    async def refresh(cluster: Cluster) -> None:
        assert len((await cluster.refresh(None)).topics) == 3000

    ask(scripted_broker, refresh, security_protocol="SSL", ssl_truststore_location=pem.authority)


def test_a_certificate_of_another_authority_or_host_is_not_trusted(
    scripted_broker: Any, pem: Certificates
) -> None:
    serve_tls(scripted_broker, pem.foreign_broker)
    trusts = "not trusted .*set ssl.truststore.location", pem.other_authority
    names = "for another name .*ssl.endpoint.identification.algorithm", pem.authority
    for words, authority in (trusts, names):
        with pytest.raises(AuthenticationError, match=words):
            ask(scripted_broker, security_protocol="SSL", ssl_truststore_location=authority)
    ask(
        scripted_broker,
        security_protocol="SSL",
        ssl_truststore_location=pem.authority,
        ssl_endpoint_identification_algorithm="",
    )


def test_a_client_certificate_is_shown_when_it_is_asked_for(scripted_broker: Any, pem: Certificates) -> None:
    serve_tls(scripted_broker, pem.broker, clients=pem.authority)
    trust = {"security_protocol": "SSL", "ssl_truststore_location": pem.authority}
    ask(scripted_broker, **trust, ssl_keystore_location=pem.client)
    encrypted = pem.encrypted_client("hush")
    ask(scripted_broker, **trust, ssl_keystore_location=encrypted, ssl_key_password="hush")
    with pytest.raises((AuthenticationError, BrokerUnreachableError)):
        ask(scripted_broker, **trust)


def test_a_listener_that_speaks_no_tls_is_told_apart(scripted_broker: Any, pem: Certificates) -> None:
    with pytest.raises(BrokerUnreachableError, match=r"not a TLS listener, set security\.protocol=PLAINTEXT"):
        ask(
            scripted_broker,
            security_protocol="SSL",
            ssl_truststore_location=pem.authority,
            socket_connection_setup_timeout_ms=100,
        )


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"ssl_truststore_location": "missing.pem"}, "ssl.truststore.location: there is no file missing.pem"),
        (
            {"ssl_truststore_certificates": "nonsense"},
            r"ssl\.truststore\.certificates, in which there is no certificate",
        ),
        ({"ssl_truststore_location": "x.bcfks", "ssl_truststore_type": "BCFKS"}, "convert x.bcfks"),
        ({"ssl_keystore_key": "k"}, "must be set together"),
        ({"ssl_keystore_key": "k", "ssl_keystore_certificate_chain": "c"}, "no private key"),
        ({"ssl_cipher_suites": "nonsense"}, "ssl.cipher.suites"),
    ],
)
def test_tls_options_that_cannot_be_used_are_refused_before_connecting(
    options: dict[str, Any], words: str
) -> None:
    with pytest.raises(ConfigError, match=words):
        settings(security_protocol="SSL", **options)


def test_a_wrong_password_of_a_key_is_an_error_and_no_question_on_the_terminal(pem: Certificates) -> None:
    encrypted = pem.encrypted_client("hush")
    for password in (None, "wrong"):
        with pytest.raises(ConfigError, match=r"ssl\.key\.password"):
            settings(security_protocol="SSL", ssl_keystore_location=encrypted, ssl_key_password=password)


def test_versions_of_tls_can_be_chosen(pem: Certificates) -> None:
    chosen = settings(
        security_protocol="SSL", ssl_enabled_protocols="TLSv1.3", ssl_truststore_location=pem.authority
    )
    assert chosen.security.tls().minimum_version is ssl.TLSVersion.TLSv1_3


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({}, "set sasl.kerberos.service.name, or sasl.mechanism to one of PLAIN, SCRAM"),
        (
            {"sasl_jaas_config": 'a.PlainLoginModule required username="a" password="hush";'},
            "for the login module a.PlainLoginModule",
        ),
        (
            {
                "sasl_jaas_config": "com.sun.security.auth.module.Krb5LoginModule required "
                "useTicketCache=true;"
            },
            "set sasl.kerberos.service.name",
        ),
        ({"sasl_mechanism": "PLAIN"}, "needs a user"),
        ({"sasl_mechanism": "OAUTHBEARER"}, "needs a function that returns a token"),
        ({"sasl_mechanism": "SCRAM-SHA-1"}, "set it to one of PLAIN, SCRAM-SHA-256"),
    ],
)
def test_a_login_that_cannot_work_is_refused_before_connecting(options: dict[str, Any], words: str) -> None:
    with pytest.raises(ConfigError, match=words):
        settings(security_protocol="SASL_SSL", **options)
