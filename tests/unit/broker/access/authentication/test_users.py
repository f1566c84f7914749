"""Users with SCRAM credentials: changed by requests, kept as Kafka keeps them, in force at once."""

from __future__ import annotations

import asyncio
import base64
import json
from collections.abc import Iterator
from pathlib import Path

import pytest
from tests.rigs.raw_client import RawClient
from tests.rigs.sasl_broker import authenticate, log_in, port_of, sasl_broker, shake_hands

from tidelog.errors import ConfigError, ErrorCode
from tidelog.metadata.embedded.embedded_store import EmbeddedStore
from tidelog.security.sasl.scram_credential import BY_TYPE, ScramCredential, salted_password
from tidelog.testing.broker_thread import BrokerThread
from tidelog.wire.messages.alter_user_scram_credentials import (
    AlterUserScramCredentialsRequest,
    AlterUserScramCredentialsResponse,
    ScramCredentialDeletion,
    ScramCredentialUpsertion,
)
from tidelog.wire.messages.describe_configs import (
    DescribeConfigsRequest,
    DescribeConfigsResource,
    DescribeConfigsResponse,
)
from tidelog.wire.messages.describe_user_scram_credentials import (
    DescribeUserScramCredentialsRequest,
    DescribeUserScramCredentialsResponse,
    UserName,
)


@pytest.fixture
def broker(tmp_path: Path) -> Iterator[BrokerThread]:
    with sasl_broker(tmp_path, connection_failed_authentication_delay_ms="10") as broker:
        yield broker


@pytest.fixture
def client(broker: BrokerThread) -> Iterator[RawClient]:
    with RawClient("127.0.0.1", port_of(broker)) as client:
        assert log_in(client, "SCRAM-SHA-512", "admin", "admin-secret").error_code == ErrorCode.NONE
        yield client


def upsertion(
    name: str, password: str = "secret", mechanism: int = 1, iterations: int = 4096, salt: bytes = b"salt"
) -> ScramCredentialUpsertion:
    salted = salted_password(BY_TYPE.get(mechanism, BY_TYPE[1]), password, salt, max(iterations, 1))
    return ScramCredentialUpsertion(
        name=name, mechanism=mechanism, iterations=iterations, salt=salt, salted_password=salted
    )


def deletion(name: str, mechanism: int = 1) -> ScramCredentialDeletion:
    return ScramCredentialDeletion(name=name, mechanism=mechanism)


def alter(
    client: RawClient, *changes: ScramCredentialUpsertion | ScramCredentialDeletion
) -> dict[str, tuple[int, str | None]]:
    request = AlterUserScramCredentialsRequest(
        deletions=[each for each in changes if isinstance(each, ScramCredentialDeletion)],
        upsertions=[each for each in changes if isinstance(each, ScramCredentialUpsertion)],
    )
    response = client.ask(0, request, AlterUserScramCredentialsResponse)
    return {each.user: (each.error_code, each.error_message) for each in response.results}


def describe(client: RawClient, *users: str) -> dict[str, list[tuple[int, int]] | int]:
    request = DescribeUserScramCredentialsRequest(users=[UserName(name=each) for each in users])
    response = client.ask(0, request, DescribeUserScramCredentialsResponse)
    assert response.error_code == ErrorCode.NONE
    return {
        each.user: each.error_code or [(one.mechanism, one.iterations) for one in each.credential_infos]
        for each in response.results
    }


def can_log_in(broker: BrokerThread, mechanism: str, name: str, password: str) -> bool:
    with RawClient("127.0.0.1", port_of(broker)) as client:
        return log_in(client, mechanism, name, password).error_code == ErrorCode.NONE


def test_a_new_user_logs_in_at_once_and_a_removed_one_no_more(
    broker: BrokerThread, client: RawClient
) -> None:
    assert not can_log_in(broker, "SCRAM-SHA-256", "dora", "secret")
    assert alter(client, upsertion("dora")) == {"dora": (0, None)}
    assert can_log_in(broker, "SCRAM-SHA-256", "dora", "secret")
    assert not can_log_in(broker, "SCRAM-SHA-512", "dora", "secret")
    assert alter(client, upsertion("dora", "other")) == {"dora": (0, None)}
    assert not can_log_in(broker, "SCRAM-SHA-256", "dora", "secret")
    assert can_log_in(broker, "SCRAM-SHA-256", "dora", "other")
    assert alter(client, deletion("dora")) == {"dora": (0, None)}
    assert not can_log_in(broker, "SCRAM-SHA-256", "dora", "other")


def first_answer(broker: BrokerThread, name: str) -> tuple[bytes, int]:
    """The salt and the number of iterations that a login begins with."""
    with RawClient("127.0.0.1", port_of(broker)) as client:
        assert shake_hands(client, "SCRAM-SHA-256").error_code == ErrorCode.NONE
        response = authenticate(client, f"n,,n={name},r=x".encode())
        _, salt, iterations = bytes(response.auth_bytes).decode().split(",")
        return base64.b64decode(salt.removeprefix("s=")), int(iterations.removeprefix("i="))


def test_names_without_a_user_look_like_the_users_of_this_cluster_also_after_a_restart(
    tmp_path: Path,
) -> None:
    names = [f"somebody-{number}" for number in range(40)]
    with sasl_broker(tmp_path) as broker, RawClient("127.0.0.1", port_of(broker)) as client:
        log_in(client, "SCRAM-SHA-512", "admin", "admin-secret")
        short, long = bytes(range(128, 144)), bytes(range(128, 198))
        alter(client, upsertion("one", salt=short), upsertion("two", salt=long, iterations=12000))
        assert first_answer(broker, "one") == (short, 4096)
        before = {name: first_answer(broker, name) for name in names}
    assert {(len(salt), iterations) for salt, iterations in before.values()} == {(16, 4096), (70, 12000)}
    with sasl_broker(tmp_path) as broker:
        assert {name: first_answer(broker, name) for name in names} == before


def test_sessions_outlive_their_credential(broker: BrokerThread, client: RawClient) -> None:
    assert alter(client, deletion("admin", 2)) == {"admin": (0, None)}
    assert describe(client) == {}


def test_credentials_are_kept_as_kafka_keeps_them(tmp_path: Path) -> None:
    with sasl_broker(tmp_path) as broker, RawClient("127.0.0.1", port_of(broker)) as client:
        log_in(client, "SCRAM-SHA-512", "admin", "admin-secret")
        alter(client, upsertion("a/b c"), upsertion("a/b c", mechanism=2, iterations=8192))

    async def read() -> bytes:
        store = EmbeddedStore(tmp_path)
        raw, _ = await store.get("/config/users/a%2Fb%20c")
        await store.close()
        return raw

    raw = asyncio.run(read())
    found = json.loads(raw)
    assert found["version"] == 1
    assert sorted(found["config"]) == ["SCRAM-SHA-256", "SCRAM-SHA-512"]
    credential = ScramCredential.parse(found["config"]["SCRAM-SHA-512"])
    assert (credential.salt, credential.iterations) == (b"salt", 8192)
    assert b"secret" not in raw


def test_users_survive_a_restart(tmp_path: Path) -> None:
    with sasl_broker(tmp_path) as broker, RawClient("127.0.0.1", port_of(broker)) as client:
        log_in(client, "SCRAM-SHA-512", "admin", "admin-secret")
        alter(client, upsertion("dora"), deletion("admin", 2))
    with sasl_broker(tmp_path) as broker:
        assert can_log_in(broker, "SCRAM-SHA-256", "dora", "secret")
        assert not can_log_in(broker, "SCRAM-SHA-512", "admin", "admin-secret"), (
            "the first user stays removed"
        )


@pytest.mark.parametrize(
    ("changes", "code"),
    [
        ([upsertion("")], ErrorCode.UNACCEPTABLE_CREDENTIAL),
        ([upsertion("x", iterations=4095)], ErrorCode.UNACCEPTABLE_CREDENTIAL),
        ([upsertion("x", iterations=16385)], ErrorCode.UNACCEPTABLE_CREDENTIAL),
        ([upsertion("x", salt=b"")], ErrorCode.UNACCEPTABLE_CREDENTIAL),
        ([ScramCredentialUpsertion(name="x", mechanism=1, iterations=4096, salt=b"s")], 93),
        ([upsertion("x", mechanism=0)], ErrorCode.UNSUPPORTED_SASL_MECHANISM),
        ([upsertion("x", mechanism=3)], ErrorCode.UNSUPPORTED_SASL_MECHANISM),
        ([deletion("x", 9)], ErrorCode.UNSUPPORTED_SASL_MECHANISM),
        ([deletion("x")], ErrorCode.RESOURCE_NOT_FOUND),
        ([upsertion("x"), upsertion("x", "again")], ErrorCode.DUPLICATE_RESOURCE),
        ([deletion("x"), upsertion("x")], ErrorCode.DUPLICATE_RESOURCE),
        ([upsertion("x", mechanism=2), upsertion("x", iterations=1)], ErrorCode.UNACCEPTABLE_CREDENTIAL),
    ],
)
def test_a_user_with_a_wrong_change_is_left_as_he_is(
    client: RawClient, changes: list[ScramCredentialUpsertion | ScramCredentialDeletion], code: int
) -> None:
    name = changes[0].name
    outcome = alter(client, *changes, upsertion("fine"))
    assert outcome[name][0] == code
    assert outcome[name][1]
    assert outcome["fine"] == (0, None)
    assert describe(client) == {"admin": [(2, 8192)], "fine": [(1, 4096)]}


def test_users_are_described_by_name_or_all(client: RawClient) -> None:
    alter(client, upsertion("dora"), upsertion("dora", mechanism=2))
    assert describe(client, "dora") == {"dora": [(1, 4096), (2, 4096)]}
    assert describe(client, "dora", "nobody") == {
        "dora": [(1, 4096), (2, 4096)],
        "nobody": ErrorCode.RESOURCE_NOT_FOUND,
    }
    assert describe(client, "dora", "dora") == {"dora": ErrorCode.DUPLICATE_RESOURCE}


def test_no_secret_is_described(client: RawClient) -> None:
    request = DescribeConfigsRequest(
        resources=[DescribeConfigsResource(resource_type=4, resource_name="1")], include_synonyms=True
    )
    response = client.ask(4, request, DescribeConfigsResponse)
    values = {each.name: each.value for each in response.results[0].configs}
    assert values["sasl.jaas.config"] is None
    assert values["listener.name.closed.plain.sasl.jaas.config"] is None
    assert values["tidelog.bootstrap.user"] is None
    assert "alice-secret" not in repr(response)
    assert "admin-secret" not in repr(response)


def test_the_first_user_is_made_once(tmp_path: Path) -> None:
    with sasl_broker(tmp_path, tidelog_bootstrap_user="one:pass:word") as broker:
        assert can_log_in(broker, "SCRAM-SHA-256", "one", "pass:word")
    with sasl_broker(tmp_path, tidelog_bootstrap_user="two:password") as broker:
        assert not can_log_in(broker, "SCRAM-SHA-256", "two", "password")
        assert can_log_in(broker, "SCRAM-SHA-256", "one", "pass:word")


def test_the_first_user_may_come_from_the_environment(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("TIDELOG_BOOTSTRAP_USER", "eve:hush:scram-sha-512")
    with sasl_broker(tmp_path, tidelog_bootstrap_user="") as broker:
        assert can_log_in(broker, "SCRAM-SHA-512", "eve", "hush")


@pytest.mark.parametrize("text", ["hush", ":hush", "name:"])
def test_a_first_user_without_name_or_password_stops_the_start(tmp_path: Path, text: str) -> None:
    with pytest.raises(ConfigError, match=r"tidelog\.bootstrap\.user must be") as refused:
        sasl_broker(tmp_path, tidelog_bootstrap_user=text).start()
    assert "hush" not in str(refused.value)
