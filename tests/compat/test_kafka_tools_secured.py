"""Apache Kafka's own tools, of 3.9 and 4.x, over TLS and with a login: rules, users, records."""

from __future__ import annotations

import re
import subprocess
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from tests.compat.conftest import BROKERS, Tool, available
from tests.compat.secured_broker import PASSWORD, USER, SecuredBroker, secured_broker

TOOLS = "org.apache.kafka.tools."
ACLS = TOOLS + "AclCommand"
CONFIGS = "kafka.admin.ConfigCommand"

Run = Callable[..., str]


@pytest.fixture(scope="module", params=BROKERS)
def secured(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[SecuredBroker]:
    with available(), secured_broker(request.param, tmp_path_factory.mktemp(request.param)) as broker:
        yield broker


@pytest.fixture
def run(kafka_tool: Tool, secured: SecuredBroker) -> Run:
    """Runs a tool as the administrator; it must end well. Returns what it printed."""

    def call(main: str, *arguments: str | Path) -> str:
        where = ("--bootstrap-server", secured.address("LOGIN"), "--command-config", secured.administrator)
        done = kafka_tool(main, *where, *arguments)
        assert done.returncode == 0, done.stdout + done.stderr
        return done.stdout

    return call


Pattern = tuple[str, str, str]
_PATTERN = re.compile(
    r"Current ACLs for resource `ResourcePattern\(resourceType=(\w+), name=(\S+), patternType=(\w+)\)"
)
_ENTRY = re.compile(r"\(principal=(\S+), host=(\S+), operation=(\w+), permissionType=(\w+)\)")


def rules(printed: str) -> dict[Pattern, set[tuple[str, str, str, str]]]:
    """What kafka-acls says that there is: by patterns, with principal, host, operation and permission."""
    found: dict[Pattern, set[tuple[str, str, str, str]]] = {}
    current = ("", "", "")
    for line in printed.splitlines():
        if pattern := _PATTERN.search(line):
            current = (pattern[1], pattern[2], pattern[3])
        elif entry := _ENTRY.search(line):
            found.setdefault(current, set()).add((entry[1], entry[2], entry[3], entry[4]))
    return found


def test_kafka_acls_adds_lists_and_removes_rules(run: Run, topic: str) -> None:
    bob, carol = f"User:bob-{topic}", f"User:carol-{topic}"
    of_topic = ("--topic", topic)
    run(ACLS, "--add", "--allow-principal", bob, "--operation", "Read", "--operation", "Alter", *of_topic)
    run(
        *(ACLS, "--add", "--deny-principal", carol, "--deny-host", "10.0.0.1", "--operation", "All"),
        *(*of_topic, "--resource-pattern-type", "prefixed"),
    )
    assert rules(run(ACLS, "--list", *of_topic, "--resource-pattern-type", "match")) == {
        ("TOPIC", topic, "LITERAL"): {(bob, "*", "READ", "ALLOW"), (bob, "*", "ALTER", "ALLOW")},
        ("TOPIC", topic, "PREFIXED"): {(carol, "10.0.0.1", "ALL", "DENY")},
    }
    run(ACLS, "--remove", "--force", "--allow-principal", bob, "--operation", "Alter", *of_topic)
    run(ACLS, "--remove", "--force", *of_topic, "--resource-pattern-type", "prefixed")
    assert rules(run(ACLS, "--list", "--principal", bob, "--principal", carol)) == {
        ("TOPIC", topic, "LITERAL"): {(bob, "*", "READ", "ALLOW")}
    }


def test_kafka_acls_has_shorthands_for_producers_and_consumers(run: Run, topic: str) -> None:
    writer, reader = f"User:writer-{topic}", f"User:reader-{topic}"
    run(
        *(ACLS, "--add", "--allow-principal", writer, "--producer", "--topic", topic),
        *("--transactional-id", f"{topic}-x", "--idempotent"),
    )
    run(ACLS, "--add", "--allow-principal", reader, "--consumer", "--topic", topic, "--group", f"{topic}-g")
    listed = rules(run(ACLS, "--list", "--principal", writer, "--principal", reader))
    assert listed.pop(("CLUSTER", "kafka-cluster", "LITERAL")) == {(writer, "*", "IDEMPOTENT_WRITE", "ALLOW")}
    assert listed == {
        ("TOPIC", topic, "LITERAL"): {
            *((writer, "*", operation, "ALLOW") for operation in ("WRITE", "DESCRIBE", "CREATE")),
            *((reader, "*", operation, "ALLOW") for operation in ("READ", "DESCRIBE")),
        },
        ("TRANSACTIONAL_ID", f"{topic}-x", "LITERAL"): {
            (writer, "*", operation, "ALLOW") for operation in ("WRITE", "DESCRIBE")
        },
        ("GROUP", f"{topic}-g", "LITERAL"): {(reader, "*", "READ", "ALLOW")},
    }


class Console:
    """kafka-console-producer and kafka-console-consumer of somebody."""

    def __init__(self, tool: Tool, secured: SecuredBroker, config: Path) -> None:
        self._tool = tool
        self._where = ("--bootstrap-server", secured.address("LOGIN"))
        self._config = config

    def produce(self, topic: str) -> subprocess.CompletedProcess[str]:
        return self._tool(
            TOOLS + "ConsoleProducer",
            *(*self._where, "--topic", topic, "--producer.config", self._config),
            stdin="one\ntwo\nthree\n",
        )

    def consume(self, topic: str, group: str) -> subprocess.CompletedProcess[str]:
        return self._tool(
            TOOLS + "consumer.ConsoleConsumer",
            *(*self._where, "--topic", topic, "--consumer.config", self._config, "--group", group),
            *("--from-beginning", "--max-messages", "3", "--timeout-ms", "30000"),
        )


def test_kafka_configs_makes_users_who_write_and_read_by_the_consoles(
    kafka_tool: Tool, run: Run, secured: SecuredBroker, topic: str
) -> None:
    name, password, group = f"user-{topic}", "some-word", f"{topic}-g"
    entity = ("--entity-type", "users", "--entity-name", name)
    credential = f"SCRAM-SHA-512=[iterations=8192,password={password}]"
    printed = run(CONFIGS, "--alter", *entity, "--add-config", credential)
    assert f"Completed updating config for user {name}." in printed
    secured.open_topic(topic, name, group)
    config = secured.properties(name, mechanism="SCRAM-SHA-512", username=name, password=password)
    console = Console(kafka_tool, secured, config)
    written = console.produce(topic)
    assert written.returncode == 0, written.stdout + written.stderr
    assert "Exception" not in written.stderr, written.stderr
    read = console.consume(topic, group)
    assert re.findall("^(?:one|two|three)$", read.stdout, re.MULTILINE) == ["one", "two", "three"], read

    refused = console.produce("hidden")
    assert "TopicAuthorizationException" in refused.stderr, refused.stdout + refused.stderr
    run(CONFIGS, "--alter", *entity, "--delete-config", "SCRAM-SHA-512")
    kept_out = console.consume(topic, group)
    assert "SaslAuthenticationException" in kept_out.stderr, kept_out.stdout + kept_out.stderr


def test_kafka_configs_describes_users(run: Run) -> None:
    described = run(CONFIGS, "--describe", "--entity-type", "users", "--entity-name", USER)
    assert f"SCRAM credential configs for user-principal '{USER}' are" in described
    assert "SCRAM-SHA-256=iterations=4096" in described
    assert "SCRAM-SHA-512=iterations=4096" in described
    assert PASSWORD not in described
