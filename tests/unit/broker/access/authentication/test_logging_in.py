"""What a client may do before and while it logs in, byte by byte."""

from __future__ import annotations

import gc
import struct
import threading
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from tests.rigs.raw_client import RawClient
from tests.rigs.sasl_broker import (
    OPEN,
    authenticate,
    dialogue_of,
    log_in,
    port_of,
    sasl_broker,
    shake_hands,
    unsecured_token,
)
from tests.rigs.waiting import wait_until

from tidelog.broker.access.authentication.authenticator import SaslAuthenticator
from tidelog.errors import ErrorCode
from tidelog.security.principal import Principal
from tidelog.testing.broker_thread import BrokerThread
from tidelog.wire.api import ApiKey
from tidelog.wire.headers import RequestHeader, encode_request
from tidelog.wire.messages.api_versions import ApiVersionsRequest, ApiVersionsResponse
from tidelog.wire.messages.describe_cluster import DescribeClusterRequest, DescribeClusterResponse
from tidelog.wire.messages.metadata import MetadataRequest, MetadataResponse
from tidelog.wire.messages.sasl_authenticate import SaslAuthenticateRequest
from tidelog.wire.messages.sasl_handshake import SaslHandshakeRequest, SaslHandshakeResponse

VERSIONS_REQUEST = ApiVersionsRequest(client_software_name="raw", client_software_version="1")
ALL = ["PLAIN", "SCRAM-SHA-256", "SCRAM-SHA-512", "OAUTHBEARER"]


@pytest.fixture(scope="module")
def broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[BrokerThread]:
    with sasl_broker(
        tmp_path_factory.mktemp("sasl"),
        connection_failed_authentication_delay_ms="30",
        sasl_server_max_receive_size="20000",
    ) as broker:
        yield broker


@pytest.fixture
def client(broker: BrokerThread) -> Iterator[RawClient]:
    with RawClient("127.0.0.1", port_of(broker)) as client:
        yield client


def is_served(client: RawClient) -> bool:
    return bool(client.ask(12, MetadataRequest(), MetadataResponse).brokers)


def credential(mechanism: str) -> tuple[str, str]:
    if mechanism == "OAUTHBEARER":
        return "carol", unsecured_token("carol")
    return ("alice", "alice-secret") if mechanism == "PLAIN" else ("admin", "admin-secret")


@pytest.mark.parametrize("mechanism", ["PLAIN", "SCRAM-SHA-512", "OAUTHBEARER"])
@pytest.mark.parametrize("version", [0, 1, 2])
def test_who_logs_in_is_known_by_his_name(
    broker: BrokerThread, client: RawClient, mechanism: str, version: int
) -> None:
    versions = client.ask(3, VERSIONS_REQUEST, ApiVersionsResponse)
    assert ApiKey.SASL_AUTHENTICATE in {each.api_key for each in versions.api_keys}
    name, password = credential(mechanism)
    assert log_in(client, mechanism, name, password, version).error_code == ErrorCode.NONE
    assert is_served(client)
    port = client.sock.getsockname()[1]
    session = broker.call(
        lambda each: next(one.session for one in each.network.connections if one.peer[1] == port)
    )
    assert session.principal == Principal(name)
    assert session.mechanism == mechanism
    assert session.security_protocol == "SASL_PLAINTEXT"
    assert not session.by_token


@pytest.mark.parametrize("mechanism", ["PLAIN", "SCRAM-SHA-512", "OAUTHBEARER"])
def test_the_old_handshake_is_followed_by_bare_tokens(client: RawClient, mechanism: str) -> None:
    assert shake_hands(client, mechanism, 0).error_code == ErrorCode.NONE
    dialogue = dialogue_of(mechanism, *credential(mechanism))
    message = next(dialogue)
    while True:
        client.send_frame(message)
        try:
            message = dialogue.send(client.receive())
        except StopIteration:
            break
    assert is_served(client)


@pytest.mark.parametrize("mechanism", ["PLAIN", "SCRAM-SHA-256", "SCRAM-SHA-512"])
@pytest.mark.parametrize("name", ["admin", "alice", "nobody"])
def test_all_refusals_are_alike(client: RawClient, mechanism: str, name: str) -> None:
    response = log_in(client, mechanism, name, "wrong")
    assert response.error_code == ErrorCode.SASL_AUTHENTICATION_FAILED
    assert response.error_message == (
        "Authentication failed during authentication due to invalid credentials with SASL mechanism "
        + mechanism
    )
    assert response.auth_bytes == b""
    assert client.is_closed()


def test_a_token_that_is_not_believed_is_refused_after_its_json(client: RawClient) -> None:
    shake_hands(client, "OAUTHBEARER")
    dialogue = dialogue_of("OAUTHBEARER", "", unsecured_token("carol", -60))
    first = authenticate(client, next(dialogue))
    assert (first.error_code, bytes(first.auth_bytes)) == (0, b'{"status":"invalid_token"}')
    assert authenticate(client, b"\x01").error_code == ErrorCode.SASL_AUTHENTICATION_FAILED
    assert client.is_closed()


def test_a_wrong_bare_token_closes_the_connection(client: RawClient) -> None:
    shake_hands(client, "PLAIN", 0)
    client.send_frame(b"\0alice\0wrong")
    assert client.is_closed()


def test_a_mechanism_that_is_not_offered_is_refused_with_those_that_are(client: RawClient) -> None:
    response = shake_hands(client, "GSSAPI")
    assert response.error_code == ErrorCode.UNSUPPORTED_SASL_MECHANISM
    assert response.mechanisms == ALL
    assert client.is_closed()


def test_a_request_before_the_login_is_refused_and_ends_it(client: RawClient) -> None:
    response = client.ask(0, DescribeClusterRequest(), DescribeClusterResponse)
    assert response.error_code == ErrorCode.ILLEGAL_SASL_STATE
    assert client.is_closed()


@pytest.mark.parametrize("begun", [False, True])
def test_a_request_whose_response_has_no_error_closes_the_connection(client: RawClient, begun: bool) -> None:
    if begun:
        shake_hands(client, "PLAIN")
    client.send_request(ApiKey.METADATA, 1, MetadataRequest(topics=None))
    assert client.is_closed()


def test_messages_out_of_order_are_refused(broker: BrokerThread) -> None:
    port = port_of(broker)
    with RawClient("127.0.0.1", port) as client:
        assert authenticate(client, b"\0alice\0alice-secret").error_code == ErrorCode.ILLEGAL_SASL_STATE
        assert client.is_closed()
    with RawClient("127.0.0.1", port) as client:
        shake_hands(client, "PLAIN")
        assert shake_hands(client, "PLAIN").error_code == ErrorCode.ILLEGAL_SASL_STATE
        assert client.is_closed()
    with RawClient("127.0.0.1", port) as client:
        client.ask(3, VERSIONS_REQUEST, ApiVersionsResponse)
        client.send_request(ApiKey.API_VERSIONS, 3, VERSIONS_REQUEST)
        assert client.receive()[4:6] == ErrorCode.ILLEGAL_SASL_STATE.to_bytes(2, "big")
        assert client.is_closed()
    with RawClient("127.0.0.1", port) as client:
        shake_hands(client, "SCRAM-SHA-256")
        refused = authenticate(client, b"c=biws,r=x,p=AAAA")
        assert refused.error_code == ErrorCode.SASL_AUTHENTICATION_FAILED
        assert client.is_closed()


def test_a_client_from_the_future_is_told_versions_and_may_ask_again(client: RawClient) -> None:
    client.send_frame(struct.pack(">hhih", 18, 99, 1, -1) + b"\0")
    assert client.receive()[4:6] == ErrorCode.UNSUPPORTED_VERSION.to_bytes(2, "big")
    client.ask(3, VERSIONS_REQUEST, ApiVersionsResponse)
    assert log_in(client, "PLAIN", "alice", "alice-secret").error_code == ErrorCode.NONE


@pytest.mark.parametrize("slow", [False, True])
def test_requests_behind_the_last_message_wait_for_the_login(client: RawClient, slow: bool) -> None:
    mechanism = "OAUTHBEARER" if slow else "PLAIN"
    token = next(dialogue_of(mechanism, *credential(mechanism)))
    parts = [
        (ApiKey.SASL_HANDSHAKE, 1, SaslHandshakeRequest(mechanism=mechanism)),
        (ApiKey.SASL_AUTHENTICATE, 2, SaslAuthenticateRequest(auth_bytes=token)),
        (ApiKey.METADATA, 12, MetadataRequest()),
        (ApiKey.METADATA, 12, MetadataRequest()),
    ]
    client.send(
        b"".join(
            encode_request(RequestHeader(key, version, number, "raw"), message)
            for number, (key, version, message) in enumerate(parts)
        )
    )
    answers = [client.receive() for _ in parts]
    assert [int.from_bytes(each[:4], "big") for each in answers] == [0, 1, 2, 3]


def test_nothing_behind_a_refusal_is_served(client: RawClient) -> None:
    parts = [
        (ApiKey.SASL_HANDSHAKE, 1, SaslHandshakeRequest(mechanism="PLAIN")),
        (ApiKey.SASL_AUTHENTICATE, 2, SaslAuthenticateRequest(auth_bytes=b"\0alice\0wrong")),
        (ApiKey.SASL_AUTHENTICATE, 2, SaslAuthenticateRequest(auth_bytes=b"\0alice\0alice-secret")),
        (ApiKey.METADATA, 12, MetadataRequest()),
    ]
    client.send(
        b"".join(
            encode_request(RequestHeader(key, version, number, "raw"), message)
            for number, (key, version, message) in enumerate(parts)
        )
    )
    assert int.from_bytes(client.receive()[:4], "big") == 0
    assert int.from_bytes(client.receive()[:4], "big") == 1
    assert client.is_closed()


def test_a_long_message_is_refused_before_it_is_received(client: RawClient) -> None:
    client.send(struct.pack(">i", 20_001))
    assert client.is_closed()


def test_long_requests_are_taken_from_those_who_are_known(client: RawClient) -> None:
    log_in(client, "PLAIN", "alice", "alice-secret")
    client.client_id = "x" * 30_000
    assert is_served(client)


@pytest.mark.parametrize("garbage", [b"", b"\0" * 7, b"GET / HTTP/1.1\r\n\r\n", b"\xff" * 200])
def test_garbage_closes_the_connection(client: RawClient, garbage: bytes) -> None:
    client.send_frame(garbage)
    assert client.is_closed()


def test_who_says_nothing_is_closed_after_a_while(tmp_path: Path) -> None:
    with (
        sasl_broker(tmp_path, tidelog_authentication_timeout_ms="5000") as broker,
        RawClient("127.0.0.1", port_of(broker)) as silent,
        RawClient("127.0.0.1", port_of(broker)) as known,
    ):
        log_in(known, "PLAIN", "alice", "alice-secret")
        assert silent.is_closed()
        assert is_served(known)


def test_logging_in_twice_is_illegal_where_sessions_do_not_end(client: RawClient) -> None:
    log_in(client, "PLAIN", "alice", "alice-secret")
    assert shake_hands(client, "PLAIN").error_code == ErrorCode.ILLEGAL_SASL_STATE
    assert authenticate(client, b"").error_code == ErrorCode.ILLEGAL_SASL_STATE
    assert is_served(client)


def test_nobody_logs_in_on_a_plaintext_listener(broker: BrokerThread) -> None:
    with RawClient("127.0.0.1", port_of(broker, OPEN)) as client:
        response = client.ask(1, SaslHandshakeRequest(mechanism="PLAIN"), SaslHandshakeResponse)
        assert (response.error_code, response.mechanisms) == (ErrorCode.ILLEGAL_SASL_STATE, [])
        assert authenticate(client, b"").error_code == ErrorCode.ILLEGAL_SASL_STATE
        assert is_served(client)


def test_a_flood_of_wrong_passwords_harms_no_neighbour(broker: BrokerThread) -> None:
    stop = threading.Event()
    attempts = [0]

    def flood() -> None:
        while not stop.is_set():
            with RawClient("127.0.0.1", port) as client:
                assert log_in(client, "PLAIN", "alice", f"guess-{attempts[0]}").error_code
                attempts[0] += 1

    port = port_of(broker)
    with RawClient("127.0.0.1", port) as neighbour:
        log_in(neighbour, "PLAIN", "bob", "bob-secret")
        threads = [threading.Thread(target=flood) for _ in range(8)]
        for thread in threads:
            thread.start()
        served = 0
        end_s = time.monotonic() + 60
        while (attempts[0] < 100 or served < 200) and time.monotonic() < end_s:
            assert is_served(neighbour)
            served += 1
        stop.set()
        for thread in threads:
            thread.join(10)
        assert attempts[0] >= 100
        assert served >= 200


def test_refused_logins_leave_nothing_behind(broker: BrokerThread) -> None:
    before = broker.call(lambda each: len(each.network.connections))
    for _ in range(20):
        with RawClient("127.0.0.1", port_of(broker)) as client:
            log_in(client, "PLAIN", "alice", "wrong")
            assert client.is_closed()
    assert broker.call(lambda each: len(each.network.connections)) <= before


@pytest.mark.parametrize("mechanism", ["PLAIN", "OAUTHBEARER"])
def test_refused_logins_leave_no_cycles_for_the_garbage_collector(tmp_path: Path, mechanism: str) -> None:
    """A crowd of them would make it hold up the loop."""
    with sasl_broker(tmp_path, metrics_listeners="127.0.0.1:0") as broker:

        def refused() -> None:
            with RawClient("127.0.0.1", port_of(broker)) as client:
                assert log_in(client, mechanism, "nobody", "x.y.z").error_code

        refused()
        wait_until(lambda: not broker.call(lambda each: each.network.connections))
        gc.collect()
        gc.disable()
        try:
            for _ in range(5):
                refused()
            # The listener forgets connections that have gone once a second.
            wait_until(lambda: not any(isinstance(each, SaslAuthenticator) for each in gc.get_objects()))
        finally:
            gc.enable()


def test_no_secret_is_logged(broker: BrokerThread, caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level("DEBUG"):
        for mechanism in ("PLAIN", "SCRAM-SHA-256"):
            with RawClient("127.0.0.1", port_of(broker)) as client:
                log_in(client, mechanism, "alice", "my-guess")
                assert client.is_closed()
    assert "Failed authentication with 127.0.0.1" in caplog.text
    assert "my-guess" not in caplog.text
    assert "secret" not in caplog.text
