"""``tidelog users`` against a broker on which everybody has to log in."""

from __future__ import annotations

import io
from collections.abc import Iterator
from pathlib import Path

import pytest
from tests.integration.command_line import CommandLine
from tests.integration.sasl_setup import closed_broker

import tidelog.client as ours
from tidelog.client.errors import AuthenticationError
from tidelog.testing.broker_process import BrokerProcess


@pytest.fixture(scope="module")
def broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[BrokerProcess]:
    with closed_broker(tmp_path_factory.mktemp("users") / "data") as broker:
        yield broker


@pytest.fixture
def cli(broker: BrokerProcess, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> CommandLine:
    """Commands that log in as the first user."""
    file = tmp_path / "admin.properties"
    file.write_text(
        "security.protocol=SASL_PLAINTEXT\n"
        "sasl.mechanism=SCRAM-SHA-512\n"
        "sasl.jaas.config=org.apache.kafka.common.security.scram.ScramLoginModule required "
        'username="admin" password="admin-secret";\n'
    )
    monkeypatch.setenv("TIDELOG_COMMAND_CONFIG", str(file))
    return CommandLine(broker.bootstrap)


def can_log_in(broker: BrokerProcess, user: str, password: str, mechanism: str = "SCRAM-SHA-512") -> bool:
    try:
        with ours.Admin(
            bootstrap_servers=broker.bootstrap,
            security_protocol="SASL_PLAINTEXT",
            sasl_mechanism=mechanism,
            sasl_username=user,
            sasl_password=password,
        ) as admin:
            admin.list_topics()
    except AuthenticationError:
        return False
    return True


def test_a_user_comes_gets_a_new_password_and_goes(
    broker: BrokerProcess, cli: CommandLine, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("NEW_PASSWORD", "first")
    done = cli(
        "users",
        "add",
        "alice",
        "--mechanism",
        "SCRAM-SHA-256",
        "--mechanism",
        "scram-sha-512",
        "--password-env",
        "NEW_PASSWORD",
    )
    assert (done.returncode, done.stdout) == (0, "")
    assert done.stderr == "User alice can authenticate with SCRAM-SHA-256, SCRAM-SHA-512.\n"
    assert can_log_in(broker, "alice", "first")
    assert {
        "user": "alice",
        "credentials": [
            {"mechanism": "SCRAM-SHA-256", "iterations": 8192},
            {"mechanism": "SCRAM-SHA-512", "iterations": 8192},
        ],
    } in cli.json("users", "list")

    monkeypatch.setattr("sys.stdin", io.StringIO("second\n"))
    assert cli("users", "passwd", "alice", "--password-stdin", "--iterations", "4096").returncode == 0
    assert not can_log_in(broker, "alice", "first")
    assert can_log_in(broker, "alice", "second")
    assert "alice\tSCRAM-SHA-256\t4096\n" in cli.ok("users", "list")

    assert cli("users", "remove", "alice", "--mechanism", "SCRAM-SHA-256").returncode == 0
    assert can_log_in(broker, "alice", "second")
    assert cli("users", "remove", "alice").returncode == 0
    assert not can_log_in(broker, "alice", "second")
    assert "alice" not in cli.ok("users", "list")


def test_mistakes_are_told_with_the_way_out(cli: CommandLine, monkeypatch: pytest.MonkeyPatch) -> None:
    assert "run `tidelog users passwd admin`" in cli.refusal("users", "add", "admin", "--password-stdin")
    assert "`tidelog users add nobody` to add it" in cli.refusal("users", "remove", "nobody")
    assert "`tidelog users add nobody` to add it" in cli.refusal(
        "users", "passwd", "nobody", "--password-stdin"
    )
    assert "does not have SCRAM-SHA-256" in cli.refusal(
        "users", "remove", "admin", "--mechanism", "SCRAM-SHA-256"
    )
    monkeypatch.setattr("sys.stdin", io.StringIO(""))
    assert "without a terminal" in cli("users", "add", "bob").stderr
    assert "no password on stdin" in cli.refusal("users", "add", "bob", "--password-stdin")
    assert "NO_SUCH_NAME is not set" in cli.refusal("users", "add", "bob", "--password-env", "NO_SUCH_NAME")
    assert "choose from SCRAM-SHA-256" in cli("users", "add", "bob", "--mechanism", "PLAIN").stderr


def test_who_does_not_log_in_is_told_so(
    cli: CommandLine, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    file = tmp_path / "wrong.properties"
    file.write_text(
        "security.protocol=SASL_PLAINTEXT\nsasl.mechanism=SCRAM-SHA-512\n"
        "sasl.username=admin\nsasl.password=my-guess\n"
    )
    monkeypatch.setenv("TIDELOG_COMMAND_CONFIG", str(file))
    said = cli.refusal("users", "list")
    assert "refused the login by SCRAM-SHA-512" in said
    assert "my-guess" not in said
