"""Delegation tokens as our own clients and ``tidelog tokens`` handle them, on a broker with access rules."""

from __future__ import annotations

import asyncio
import base64
import contextlib
import json
import logging
import stat
from collections.abc import Iterator
from pathlib import Path

import pytest
from tests.integration.command_line import CommandLine
from tests.rigs.sasl_broker import OPEN, port_of, sasl_broker

from tidelog.client import Admin, AsyncAdmin
from tidelog.client.admin.delegation_tokens import DelegationToken
from tidelog.client.errors import AuthenticationError
from tidelog.errors import ConfigError, ErrorCode, KafkaError
from tidelog.properties import read_properties
from tidelog.security.acls.model import (
    AclBinding,
    AclEntry,
    Operation,
    PatternType,
    Permission,
    ResourcePattern,
    ResourceType,
)
from tidelog.testing.broker_thread import BrokerThread

SCRAM = "org.apache.kafka.common.security.scram.ScramLoginModule required"
DAY_MS = 86_400_000


@pytest.fixture(scope="module")
def broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[BrokerThread]:
    with sasl_broker(
        tmp_path_factory.mktemp("tokens"),
        delegation_token_secret_key="brokers-only",
        connection_failed_authentication_delay_ms="10",
        authorizer_class_name="kafka.security.authorizer.AclAuthorizer",
        super_users="User:admin",
    ) as broker:
        yield broker


def address(broker: BrokerThread) -> str:
    return f"127.0.0.1:{port_of(broker)}"


def admin_of(broker: BrokerThread, name: str) -> Admin:
    mechanism = "SCRAM-SHA-512" if name == "admin" else "PLAIN"
    return Admin(
        bootstrap_servers=address(broker),
        security_protocol="SASL_PLAINTEXT",
        sasl_mechanism=mechanism,
        sasl_username=name,
        sasl_password=f"{name}-secret",
    )


@contextlib.contextmanager
def by_token(broker: BrokerThread, token_id: str, password: str, **more: object) -> Iterator[Admin]:
    options: dict[str, object] = {
        "bootstrap.servers": address(broker),
        "security.protocol": "SASL_PLAINTEXT",
        "sasl.mechanism": "SCRAM-SHA-512",
        "sasl.jaas.config": f'{SCRAM} username="{token_id}" password="{password}" tokenauth=true;',
        **more,
    }
    with Admin(options) as admin:
        yield admin


def is_good(broker: BrokerThread, token: DelegationToken, password: str | None = None) -> bool:
    try:
        with by_token(broker, token.token_id, password or token.password) as admin:
            admin.list_topics()
    except AuthenticationError:
        return False
    return True


@pytest.fixture
def alice(broker: BrokerThread) -> Iterator[Admin]:
    with admin_of(broker, "alice") as admin:
        yield admin


@pytest.fixture
def bob(broker: BrokerThread) -> Iterator[Admin]:
    with admin_of(broker, "bob") as admin:
        yield admin


def refusal(told: pytest.ExceptionInfo[KafkaError], code: ErrorCode) -> str:
    assert told.value.code is code
    return str(told.value)


def test_a_token_is_made_used_renewed_and_ended(broker: BrokerThread, alice: Admin) -> None:
    token = alice.create_delegation_token(renewers=["User:bob"], max_lifetime_ms=2 * DAY_MS)
    assert (token.owner, token.requester, token.renewers) == ("User:alice", "User:alice", ("User:bob",))
    assert token.expires_ms - token.issued_ms == DAY_MS
    assert token.max_ms - token.issued_ms == 2 * DAY_MS
    assert token in alice.describe_delegation_tokens()
    assert token in alice.describe_delegation_tokens(["User:alice"])
    assert alice.describe_delegation_tokens([]) == []
    with by_token(broker, token.token_id, token.password) as admin, pytest.raises(KafkaError) as told:
        admin.create_delegation_token()
    assert "log in with a password" in refusal(told, ErrorCode.DELEGATION_TOKEN_REQUEST_NOT_ALLOWED)
    plain = {"sasl.username": token.token_id, "sasl.password": token.password, "sasl.tokenauth": "true"}
    with by_token(broker, "", "", **plain, **{"sasl.jaas.config": None}) as admin:
        admin.list_topics()
    assert alice.renew_delegation_token(token.hmac, period_ms=1000 * DAY_MS) == token.max_ms
    assert alice.renew_delegation_token(token.hmac) < token.max_ms
    assert alice.expire_delegation_token(token.hmac) <= token.expires_ms
    assert not is_good(broker, token)
    assert token.token_id not in {each.token_id for each in alice.describe_delegation_tokens()}


def test_the_asyncio_client_has_the_same(broker: BrokerThread) -> None:
    async def main() -> None:
        async with AsyncAdmin(
            bootstrap_servers=address(broker),
            security_protocol="SASL_PLAINTEXT",
            sasl_mechanism="PLAIN",
            sasl_username="alice",
            sasl_password="alice-secret",
        ) as admin:
            token = await admin.create_delegation_token()
            assert token in await admin.describe_delegation_tokens()
            assert await admin.renew_delegation_token(token.hmac, period_ms=5000) < token.expires_ms
            await admin.expire_delegation_token(token.hmac)

    asyncio.run(main())


def test_secrets_are_in_no_repr_and_in_no_log(
    broker: BrokerThread, alice: Admin, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.DEBUG)
    token = alice.create_delegation_token()
    assert is_good(broker, token)
    assert not is_good(broker, token, "a guess of mine")
    alice.describe_delegation_tokens()
    alice.expire_delegation_token(token.hmac)
    seen = caplog.text + repr(token) + str(token)
    assert token.password not in seen
    assert repr(token.hmac) not in seen
    assert token.hmac.hex() not in seen
    assert "brokers-only" not in seen


def test_others_tokens_are_neither_shown_nor_changed(broker: BrokerThread, alice: Admin, bob: Admin) -> None:
    token = alice.create_delegation_token()
    assert bob.describe_delegation_tokens(["User:alice"]) == []
    for change in (bob.renew_delegation_token, bob.expire_delegation_token):
        with pytest.raises(KafkaError) as told:
            change(token.hmac)
        assert "log in as one of them" in refusal(told, ErrorCode.DELEGATION_TOKEN_OWNER_MISMATCH)
        with pytest.raises(KafkaError) as told:
            change(b"\0" * 64)
        assert "no such delegation token" in refusal(told, ErrorCode.DELEGATION_TOKEN_NOT_FOUND)
    with pytest.raises(KafkaError) as told:
        bob.create_delegation_token(owner="User:alice")
    assert "CREATE_TOKENS" in refusal(told, ErrorCode.DELEGATION_TOKEN_AUTHORIZATION_FAILED)
    forged = base64.b64encode(b"\0" * 64).decode()
    assert not is_good(broker, token, forged)
    with pytest.raises(KafkaError) as told:
        alice.create_delegation_token(renewers=["Group:all"])
    assert "User:NAME" in refusal(told, ErrorCode.INVALID_PRINCIPAL_TYPE)
    with pytest.raises(ValueError, match="User:alice"):
        alice.create_delegation_token(renewers=["bob"])


def test_rules_let_somebody_make_and_see_tokens_of_others(broker: BrokerThread, bob: Admin) -> None:
    user = ResourcePattern(ResourceType.USER, "User:carol", PatternType.LITERAL)
    rules = [
        AclBinding(user, AclEntry("User:bob", "*", operation, Permission.ALLOW))
        for operation in (Operation.CREATE_TOKENS, Operation.DESCRIBE_TOKENS)
    ]
    with admin_of(broker, "admin") as admin:
        assert all(each.error is None for each in admin.create_acls(rules))
        token = bob.create_delegation_token(owner="User:carol")
        assert (token.owner, token.requester) == ("User:carol", "User:bob")
        of_admin = admin.create_delegation_token(owner="User:carol")
        assert {of_admin.token_id, token.token_id} <= {
            each.token_id for each in bob.describe_delegation_tokens(["User:carol"])
        }
        with pytest.raises(KafkaError) as told:
            bob.renew_delegation_token(of_admin.hmac)
        refusal(told, ErrorCode.DELEGATION_TOKEN_OWNER_MISMATCH)
    with by_token(broker, token.token_id, token.password) as admin:
        assert admin.list_topics() == []


def test_who_is_not_known_or_has_no_tokens_is_told_so(broker: BrokerThread, tmp_path: Path) -> None:
    with (
        Admin(bootstrap_servers=f"127.0.0.1:{port_of(broker, OPEN)}") as admin,
        pytest.raises(KafkaError) as told,
    ):
        admin.create_delegation_token()
    refusal(told, ErrorCode.DELEGATION_TOKEN_REQUEST_NOT_ALLOWED)
    with sasl_broker(tmp_path) as without, admin_of(without, "alice") as admin:
        with pytest.raises(KafkaError) as told:
            admin.describe_delegation_tokens()
        assert "delegation.token.secret.key" in refusal(told, ErrorCode.DELEGATION_TOKEN_AUTH_DISABLED)
    with pytest.raises(ConfigError, match="SCRAM-SHA-256 or SCRAM-SHA-512"):
        Admin(
            bootstrap_servers="127.0.0.1:1",
            security_protocol="SASL_PLAINTEXT",
            sasl_mechanism="PLAIN",
            sasl_username="a",
            sasl_password="b",
            sasl_tokenauth=True,
        )


# The command


@pytest.fixture
def cli(broker: BrokerThread, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> CommandLine:
    """Commands that log in as alice."""
    file = tmp_path / "alice.properties"
    file.write_text(
        "security.protocol=SASL_PLAINTEXT\nsasl.mechanism=PLAIN\n"
        "sasl.username=alice\nsasl.password=alice-secret\nrequest.timeout.ms=20000\n"
    )
    monkeypatch.setenv("TIDELOG_COMMAND_CONFIG", str(file))
    return CommandLine(address(broker))


def test_the_command_shows_a_password_once_and_names_tokens_by_their_ids(
    broker: BrokerThread, cli: CommandLine
) -> None:
    made = cli.json("tokens", "create", "--renewer", "User:bob", "--max-life", "P2D")
    with by_token(broker, made["token"], made["password"]) as admin:
        admin.list_topics()
    (listed,) = (each for each in cli.json("tokens", "list") if each["token"] == made["token"])
    assert listed == {name: value for name, value in made.items() if name != "password"}
    assert made["max_ms"] - made["issued_ms"] == 2 * DAY_MS
    assert made["token"] in cli.ok("tokens", "list", "--owner", "User:alice")
    assert cli.json("tokens", "list", "--owner", "User:nobody") == []
    assert cli.json("tokens", "renew", made["token"], "--for", "P9D")["expires_ms"] == made["max_ms"]
    done = cli("tokens", "expire", made["token"], "--in", "PT1H")
    assert done.stderr.startswith(f"Token {made['token']} expires at ")
    assert cli("tokens", "expire", made["token"]).returncode == 0
    assert "run `tidelog tokens list`" in cli.refusal("tokens", "renew", made["token"])
    everything = cli.ok("tokens", "list") + json.dumps(cli.json("tokens", "list"))
    assert made["password"] not in everything


def test_the_command_writes_a_file_that_logs_in_by_the_token(cli: CommandLine, tmp_path: Path) -> None:
    file = tmp_path / "token.properties"
    printed = cli.ok("tokens", "create", "--to", str(file))
    written = read_properties(file)
    assert stat.S_IMODE(file.stat().st_mode) == 0o600
    assert written["sasl.mechanism"] == "SCRAM-SHA-512"
    assert written["request.timeout.ms"] == "20000"
    assert "alice-secret" not in file.read_text()
    password = written["sasl.jaas.config"].split('password="')[1].split('"')[0]
    assert password not in printed
    assert "log in with a password" in cli.refusal("tokens", "create", "--command-config", str(file))
    assert "already exists" in cli.refusal("tokens", "create", "--to", str(file))
    with Admin(written) as admin:
        admin.list_topics()


def test_mistakes_are_told_with_the_way_out(
    cli: CommandLine, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert "write it as User:alice" in cli("tokens", "create", "--owner", "alice").stderr
    assert "write a duration" in cli("tokens", "create", "--max-life", "long").stderr
    assert "write P1D, PT12H" in cli("tokens", "renew", "x", "--for", "-PT1H").stderr
    assert "CREATE_TOKENS" in cli.refusal("tokens", "create", "--owner", "User:bob")
    assert "create it first" in cli.refusal("tokens", "create", "--to", str(tmp_path / "no" / "file"))
    monkeypatch.delenv("TIDELOG_COMMAND_CONFIG")
    assert "SASL_SSL" in cli.refusal("tokens", "create", "--to", str(tmp_path / "file"))
