"""Kafka's own tool for delegation tokens, of 3.9 and 4.x, and foreign clients that log in by one (SASL_SSL).

What the tool makes our clients use, and the other way round; refusals are the errors that Java knows.
"""

from __future__ import annotations

import re
import subprocess
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import NamedTuple

import pytest
from foreign import toolchain
from tests.compat.conftest import Tool, available
from tests.integration.command_line import CommandLine
from tests.rigs.sasl_broker import KAFKA
from tests.rigs.sasl_ssl_broker import PASSWORDS, sasl_ssl_broker

from tidelog import Admin, Consumer, NewTopic, TopicPartition
from tidelog.client.errors import AuthenticationError
from tidelog.properties import read_properties

TOKENS = "org.apache.kafka.tools.DelegationTokenCommand"
TOPICS = "org.apache.kafka.tools.TopicCommand"
PRODUCER = "org.apache.kafka.tools.ConsoleProducer"
TOPIC = "orders"


class Secured(NamedTuple):
    """A broker, and the files by which clients log in there."""

    address: str
    directory: Path
    trust: Path

    def login(self, name: str, module: str, mechanism: str, options: str) -> Path:
        file = self.directory / f"{name}.properties"
        file.write_text(
            f"bootstrap.servers={self.address}\n"
            "security.protocol=SASL_SSL\n"
            f"sasl.mechanism={mechanism}\n"
            f"sasl.jaas.config={KAFKA}{module} required {options};\n"
            f"ssl.truststore.type=PEM\nssl.truststore.location={self.trust}\n"
        )
        return file

    def user(self, name: str) -> Path:
        return self.login(
            name, "plain.PlainLoginModule", "PLAIN", f'username="{name}" password="{PASSWORDS[name]}"'
        )

    def token(self, token_id: str, password: str, mechanism: str = "SCRAM-SHA-256") -> Path:
        options = f'username="{token_id}" password="{password}" tokenauth="true"'
        return self.login(f"token-{mechanism}", "scram.ScramLoginModule", mechanism, options)


@pytest.fixture(scope="module")
def secured(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Secured]:
    directory = tmp_path_factory.mktemp("tokens")
    with sasl_ssl_broker(directory) as broker:
        yield Secured(broker.address, directory, broker.trust)


Run = Callable[..., str]


@pytest.fixture
def run(kafka_tool: Tool, secured: Secured) -> Run:
    """Runs one of Kafka's tools with a login; gives what it says, and whether that is a success if asked."""

    def call(main: str, login: Path, *arguments: str, ok: bool = True, stdin: str = "") -> str:
        done = kafka_tool(
            main,
            *("--bootstrap-server", secured.address, "--command-config", login, *arguments),
            stdin=stdin,
        )
        assert (done.returncode == 0) is ok, done.stdout + done.stderr
        return done.stdout + done.stderr

    return call


class Printed(NamedTuple):
    token_id: str
    hmac: str
    owner: str
    requester: str
    renewers: str


def rows(printed: str) -> list[Printed]:
    """The lines of the tool's table."""
    found = re.findall(r"^(\S{22})\s+(\S{88})\s+(\S+)\s+(\S+)\s+(.*?)\s+20\d\d-", printed, re.MULTILINE)
    return [Printed(*each) for each in found]


def test_kafkas_tool_makes_shows_renews_and_ends_tokens(run: Run, kafka_tool: Tool, secured: Secured) -> None:
    alice, bob, carol = (secured.user(name) for name in PASSWORDS)
    made = run(
        TOKENS, alice, *("--create", "--max-life-time-period", "-1", "--renewer-principal", "User:bob")
    )
    (token,) = rows(made)
    assert (token.owner, token.requester, token.renewers) == ("User:alice", "User:alice", "[User:bob]")
    with Admin(read_properties(alice)) as admin:
        (ours,) = (each for each in admin.describe_delegation_tokens() if each.token_id == token.token_id)
        assert (ours.password, ours.renewers) == (token.hmac, ("User:bob",))
        admin.create_topics([NewTopic(TOPIC, 1)])
    described = ("--describe", "--owner-principal", "User:alice")
    assert rows(run(TOKENS, alice, *described)) == [token]
    assert rows(run(TOKENS, bob, *described)) == [token]
    assert rows(run(TOKENS, carol, *described)) == []

    by_token = secured.token(token.token_id, token.hmac)
    done = kafka_tool(
        PRODUCER,
        *("--bootstrap-server", secured.address, "--topic", TOPIC),
        *(_config_option(kafka_tool), by_token),
        stdin="by a token\n",
    )
    assert done.returncode == 0, done.stderr
    with Consumer(read_properties(by_token), auto_offset_reset="earliest") as consumer:
        consumer.assign([TopicPartition(TOPIC, 0)])
        (record, *_) = consumer.poll(30)
        assert record.value == b"by a token"
    assert TOPIC in run(TOPICS, secured.token(token.token_id, token.hmac, "SCRAM-SHA-512"), "--list")
    refused = run(TOKENS, by_token, "--create", "--max-life-time-period", "-1", ok=False)
    assert "DelegationTokenDisabled" in refused or "UnsupportedByAuthentication" in refused, refused

    renewed = run(TOKENS, bob, "--renew", "--renew-time-period", "3600000", "--hmac", token.hmac)
    assert "Completed renew operation" in renewed
    with Admin(read_properties(alice)) as admin:
        (later,) = (each for each in admin.describe_delegation_tokens() if each.token_id == token.token_id)
        assert later.expires_ms < ours.expires_ms
    refused = run(TOKENS, carol, "--expire", "--expiry-time-period", "-1", "--hmac", token.hmac, ok=False)
    assert "DelegationTokenOwnerMismatchException" in refused
    assert "Completed expire operation" in run(
        TOKENS, alice, "--expire", "--expiry-time-period", "-1", "--hmac", token.hmac
    )
    refused = run(TOKENS, alice, "--renew", "--renew-time-period", "-1", "--hmac", token.hmac, ok=False)
    assert "DelegationTokenNotFoundException" in refused
    assert "Authentication failed" in run(TOPICS, by_token, "--list", ok=False)


def test_a_file_of_our_command_logs_kafkas_tools_in(
    run: Run, secured: Secured, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setenv("TIDELOG_COMMAND_CONFIG", str(secured.user("alice")))
    cli = CommandLine(secured.address)
    file = tmp_path / "token.properties"
    made = cli.json("tokens", "create", "--to", str(file), "--renewer", "User:bob")
    run(TOPICS, file, "--list")
    with Admin(read_properties(file)) as admin:
        admin.list_topics()
    shown = rows(run(TOKENS, secured.user("bob"), "--describe", "--owner-principal", "User:bob"))
    assert made["token"] in {each.token_id for each in shown}
    assert cli("tokens", "expire", made["token"]).returncode == 0
    assert "Authentication failed" in run(TOPICS, file, "--list", ok=False)
    with Admin(read_properties(file)) as admin, pytest.raises(AuthenticationError):
        admin.list_topics()


@pytest.mark.parametrize("mechanism", ["SCRAM-SHA-256", "SCRAM-SHA-512"])
def test_franz_go_logs_in_by_a_token(secured: Secured, mechanism: str) -> None:
    with available():
        driver = toolchain.go_driver("franz_login")
    with Admin(read_properties(secured.user("alice"))) as admin:
        token = admin.create_delegation_token()
        admin.create_topics([NewTopic("gophers", 1)])

        def write(password: str) -> subprocess.CompletedProcess[str]:
            return subprocess.run(
                [*driver, secured.address, str(secured.trust), mechanism, "gophers"],
                input=f"{token.token_id}\n{password}\n",
                capture_output=True,
                text=True,
                timeout=60,
            )

        done = write(token.password)
        assert done.returncode == 0, done.stderr
        assert done.stdout.strip().isdigit()
        assert "SASL_AUTHENTICATION_FAILED" in write("a guess").stderr
        admin.expire_delegation_token(token.hmac)
        assert "SASL_AUTHENTICATION_FAILED" in write(token.password).stderr


def _config_option(kafka_tool: Tool) -> str:
    """What the producer's tool calls the file with its options, in either generation."""
    return "--command-config" if "--command-config" in kafka_tool(PRODUCER).stderr else "--producer.config"
