"""Sessions that end, and logging in again (KIP-368)."""

from __future__ import annotations

import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from tests.rigs.raw_client import RawClient
from tests.rigs.sasl_broker import (
    CLOSED,
    authenticate,
    log_in,
    port_of,
    sasl_broker,
    shake_hands,
    unsecured_token,
)
from tests.rigs.waiting import wait_until

from tidelog.broker.access.authentication.authenticator import session_lifetime_ms
from tidelog.errors import ErrorCode
from tidelog.testing.broker_thread import BrokerThread
from tidelog.wire.messages.metadata import MetadataRequest, MetadataResponse

LIFETIME_MS = 60_000
SHORT_LIFETIME_MS = 2500


def broker_with(data_dir: Path, lifetime_ms: int) -> BrokerThread:
    return sasl_broker(
        data_dir,
        connections_max_reauth_ms=str(lifetime_ms),
        connection_failed_authentication_delay_ms="10",
    )


@pytest.fixture(scope="module")
def broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[BrokerThread]:
    with broker_with(tmp_path_factory.mktemp("sasl"), LIFETIME_MS) as broker:
        yield broker


@pytest.fixture
def client(broker: BrokerThread) -> Iterator[RawClient]:
    with RawClient("127.0.0.1", port_of(broker)) as client:
        yield client


@pytest.fixture
def short_lived(tmp_path: Path) -> Iterator[RawClient]:
    """A client of a broker whose sessions end soon."""
    with (
        broker_with(tmp_path, SHORT_LIFETIME_MS) as broker,
        RawClient("127.0.0.1", port_of(broker)) as client,
    ):
        yield client


def is_served(client: RawClient) -> bool:
    return bool(client.ask(12, MetadataRequest(), MetadataResponse).brokers)


def wait_until_served_no_more(client: RawClient) -> None:
    def is_over() -> bool:
        try:
            assert is_served(client)
        except ConnectionError:
            return True
        return False

    wait_until(is_over, "the session to end")


def test_the_end_of_a_session_is_told_and_kept(short_lived: RawClient) -> None:
    began_s = time.monotonic()
    response = log_in(short_lived, "PLAIN", "alice", "alice-secret")
    assert response.session_lifetime_ms == SHORT_LIFETIME_MS
    wait_until_served_no_more(short_lived)
    assert time.monotonic() - began_s >= SHORT_LIFETIME_MS / 1000


def test_the_end_of_a_token_is_that_of_its_session(broker: BrokerThread) -> None:
    for lifetime_s in (1.5, 6, 30):
        with RawClient("127.0.0.1", port_of(broker)) as client:
            response = log_in(client, "OAUTHBEARER", "", unsecured_token("carol", lifetime_s))
            # On a busy machine the first one may be over when it arrives.
            if response.error_code == ErrorCode.NONE:
                assert 0 < response.session_lifetime_ms <= lifetime_s * 1000
                return wait_until_served_no_more(client)
    pytest.fail("no token was taken")


def test_a_client_of_old_versions_is_not_told_and_closed_all_the_same(short_lived: RawClient) -> None:
    response = log_in(short_lived, "PLAIN", "alice", "alice-secret", version=0)
    assert response.session_lifetime_ms == 0
    wait_until_served_no_more(short_lived)


def test_who_logs_in_again_goes_on(broker: BrokerThread, client: RawClient) -> None:
    counts = broker.call(lambda each: each.network.counts[CLOSED])
    succeeded = counts.succeeded_again
    log_in(client, "SCRAM-SHA-512", "admin", "admin-secret")
    assert is_served(client)
    first = log_in(client, "SCRAM-SHA-512", "admin", "admin-secret")
    assert (first.error_code, first.session_lifetime_ms) == (ErrorCode.NONE, LIFETIME_MS)
    assert is_served(client)
    average_ms, longest_ms = counts.reauthentication.read(time.monotonic())
    assert 0 < average_ms <= longest_ms
    assert counts.succeeded_again == succeeded + 1


def test_nobody_logs_in_again_more_than_once_a_second(client: RawClient) -> None:
    for _ in range(20):
        began_s = time.monotonic()
        log_in(client, "PLAIN", "alice", "alice-secret")
        log_in(client, "PLAIN", "alice", "alice-secret")
        code = shake_hands(client, "PLAIN").error_code
        if time.monotonic() - began_s < 1.0:
            break
        # A machine so busy took a second for this; a handshake that was let in waits for its password.
        client.close()
        client = RawClient("127.0.0.1", client.sock.getpeername()[1])
    assert code == ErrorCode.ILLEGAL_SASL_STATE
    assert is_served(client)


@pytest.mark.parametrize(
    ("mechanism", "name", "password"),
    [("PLAIN", "alice", "wrong"), ("PLAIN", "bob", "bob-secret")],
)
def test_a_second_login_as_somebody_else_or_nobody_ends_the_session(
    client: RawClient, mechanism: str, name: str, password: str
) -> None:
    log_in(client, "PLAIN", "alice", "alice-secret")
    refused = log_in(client, mechanism, name, password)
    assert refused.error_code == ErrorCode.SASL_AUTHENTICATION_FAILED
    assert "during re-authentication" in (refused.error_message or "")
    assert client.is_closed()


def test_the_mechanism_stays_the_same(client: RawClient) -> None:
    log_in(client, "PLAIN", "alice", "alice-secret")
    refused = shake_hands(client, "SCRAM-SHA-256")
    assert refused.error_code == ErrorCode.UNSUPPORTED_SASL_MECHANISM
    assert refused.mechanisms == ["PLAIN"]
    assert client.is_closed()


def test_nothing_else_is_served_while_a_client_logs_in_again(client: RawClient) -> None:
    log_in(client, "PLAIN", "alice", "alice-secret")
    shake_hands(client, "PLAIN")
    client.send_request(MetadataRequest.API_KEY, 1, MetadataRequest())  # type: ignore[arg-type]
    assert client.is_closed()


def test_long_messages_are_refused_also_then(client: RawClient) -> None:
    log_in(client, "PLAIN", "alice", "alice-secret")
    shake_hands(client, "PLAIN")
    assert authenticate(client, b"x" * 600_000).error_code == ErrorCode.SASL_AUTHENTICATION_FAILED
    assert client.is_closed()


@pytest.mark.parametrize(
    ("max_reauth_ms", "expires_at_ms", "lifetime_ms"),
    [
        (0, None, None),
        (-1, None, None),
        (500, None, 500),
        (0, 7000, 6000),
        (500, 7000, 500),
        (9000, 7000, 6000),
    ],
)
def test_a_session_is_as_long_as_option_and_credential_allow(
    max_reauth_ms: int, expires_at_ms: float | None, lifetime_ms: float | None
) -> None:
    assert session_lifetime_ms(max_reauth_ms, expires_at_ms, 1000.0) == lifetime_ms
