"""Access rules as people and foreign clients handle them: `tidelog acls`, and confluent-kafka's admin."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest
from confluent_kafka.admin import (
    AclBinding,
    AclBindingFilter,
    AclOperation,
    AclPermissionType,
    AdminClient,
    ResourcePatternType,
    ResourceType,
)
from tests.integration.command_line import CommandLine

from tidelog.client import Admin
from tidelog.security.acls import model
from tidelog.security.acls.filters import AclFilter
from tidelog.testing.broker_thread import BrokerThread

WAIT_S = 30.0
# What confluent-kafka takes for anything, and its annotations do not know.
ANYTHING: Any = None


@pytest.fixture(scope="module")
def bootstrap(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    options = {
        "authorizer.class.name": "kafka.security.authorizer.AclAuthorizer",
        "super.users": "User:ANONYMOUS;User:root",
    }
    with BrokerThread(tmp_path_factory.mktemp("acls") / "data", options=options) as broker:
        yield broker.bootstrap


@pytest.fixture
def tidelog(bootstrap: str) -> Iterator[CommandLine]:
    tidelog = CommandLine(bootstrap)
    yield tidelog
    for each in tidelog.json("acls", "list"):
        tidelog("acls", "remove", "--principal", each["principal"], "--yes")


def rules(tidelog: CommandLine, *arguments: str) -> list[str]:
    return [
        " ".join(
            str(each[name])
            for name in ("permission", "operation", "resource_type", "resource_name", "pattern_type")
        )
        for each in tidelog.json("acls", "list", *arguments)
    ]


def test_a_foreign_admin_client_creates_describes_and_deletes_rules(bootstrap: str) -> None:
    admin = AdminClient({"bootstrap.servers": bootstrap})
    wanted = [
        AclBinding(
            ResourceType.TOPIC,
            "foreign",
            ResourcePatternType.LITERAL,
            "User:alice",
            "*",
            AclOperation.READ,
            AclPermissionType.ALLOW,
        ),
        AclBinding(
            ResourceType.GROUP,
            "foreign-",
            ResourcePatternType.PREFIXED,
            "User:bob",
            "10.0.0.1",
            AclOperation.ALL,
            AclPermissionType.DENY,
        ),
        AclBinding(
            ResourceType.BROKER,
            "kafka-cluster",
            ResourcePatternType.LITERAL,
            "User:carol",
            "*",
            AclOperation.ALTER,
            AclPermissionType.ALLOW,
        ),
    ]
    for future in admin.create_acls(wanted, request_timeout=WAIT_S).values():
        assert future.result(WAIT_S) is None
    everything = AclBindingFilter(
        ResourceType.ANY,
        ANYTHING,
        ResourcePatternType.ANY,
        ANYTHING,
        ANYTHING,
        AclOperation.ANY,
        AclPermissionType.ANY,
    )
    assert set(admin.describe_acls(everything, request_timeout=WAIT_S).result(WAIT_S)) == set(wanted)
    matching = AclBindingFilter(
        ResourceType.GROUP,
        "foreign-group",
        ResourcePatternType.MATCH,
        ANYTHING,
        ANYTHING,
        AclOperation.ANY,
        AclPermissionType.ANY,
    )
    assert admin.describe_acls(matching, request_timeout=WAIT_S).result(WAIT_S) == [wanted[1]]
    for future in admin.delete_acls([everything], request_timeout=WAIT_S).values():
        assert set(future.result(WAIT_S)) == set(wanted)
    assert admin.describe_acls(everything, request_timeout=WAIT_S).result(WAIT_S) == []


def test_what_a_producer_needs_is_added_at_once(tidelog: CommandLine) -> None:
    tidelog.ok(
        "acls", "add", "--principal", "alice", "--producer", "-t", "orders", "--transactional-id", "tx"
    )
    assert rules(tidelog, "--principal", "User:alice") == [
        "ALLOW WRITE TOPIC orders LITERAL",
        "ALLOW CREATE TOPIC orders LITERAL",
        "ALLOW DESCRIBE TOPIC orders LITERAL",
        "ALLOW WRITE TRANSACTIONAL_ID tx LITERAL",
        "ALLOW DESCRIBE TRANSACTIONAL_ID tx LITERAL",
    ]
    removed = tidelog.json("acls", "remove", "--principal", "alice", "--producer", "-t", "orders", "--yes")
    assert len(removed) == 3
    assert rules(tidelog, "-t", "orders") == []


def test_what_a_consumer_needs_is_added_at_once(tidelog: CommandLine) -> None:
    tidelog.ok("acls", "add", "--principal", "User:bob", "--consumer", "-t", "orders", "-g", "billing")
    assert rules(tidelog) == [
        "ALLOW READ TOPIC orders LITERAL",
        "ALLOW DESCRIBE TOPIC orders LITERAL",
        "ALLOW READ GROUP billing LITERAL",
    ]


def test_a_list_shows_the_rules_that_cover_a_topic_or_bear_its_name(tidelog: CommandLine) -> None:
    tidelog.ok("acls", "add", "--principal", "User:a", "--operation", "read", "-t", "team-", "--prefixed")
    tidelog.ok("acls", "add", "--principal", "User:a", "--operation", "read", "-t", "*")
    tidelog.ok(
        "acls", "add", "--principal", "User:a", "--operation", "read", "-t", "team-x", "--host", "10.0.0.1"
    )
    assert len(rules(tidelog, "--topic", "team-x")) == 3
    assert rules(tidelog, "--topic", "team-x", "--exactly") == ["ALLOW READ TOPIC team-x LITERAL"]
    lines = tidelog.ok("acls", "list", "--headings").splitlines()
    assert lines[0].split("\t") == [
        "PRINCIPAL",
        "PERMISSION",
        "OPERATION",
        "TYPE",
        "NAME",
        "PATTERN",
        "HOST",
    ]
    assert "User:a\tALLOW\tREAD\tTOPIC\tteam-x\tLITERAL\t10.0.0.1" in lines


def explained(tidelog: CommandLine, *arguments: str) -> str:
    return tidelog.ok("acls", "explain", *arguments).strip()


def test_explain_names_the_rule_that_decides(tidelog: CommandLine) -> None:
    question = ("--principal", "User:alice", "--operation", "READ", "--topic", "orders")
    assert explained(tidelog, *question) == (
        "User:alice may not READ topic orders: no rule covers the resource"
    )
    tidelog.ok("acls", "add", "--principal", "User:alice", "--operation", "READ", "-t", "ord", "--prefixed")
    assert explained(tidelog, *question) == (
        "User:alice may READ topic orders: ALLOW READ to User:alice from any host on TOPIC:PREFIXED:ord"
    )
    tidelog.ok(
        "acls",
        "add",
        "--principal",
        "User:*",
        "--deny",
        "--operation",
        "READ",
        "-t",
        "orders",
        "--host",
        "10.0.0.7",
    )
    assert "may READ" in explained(tidelog, *question)
    assert explained(tidelog, *question, "--host", "10.0.0.7") == (
        "User:alice may not READ topic orders from 10.0.0.7: "
        "DENY READ to User:* from host 10.0.0.7 on TOPIC:LITERAL:orders"
    )
    assert explained(tidelog, "--principal", "User:root", "--operation", "READ", "--topic", "orders") == (
        "User:root may READ topic orders: a super user may do everything"
    )


def test_explain_without_an_operation_tells_all_of_them(tidelog: CommandLine) -> None:
    tidelog.ok("acls", "add", "--principal", "User:alice", "--consumer", "-t", "orders", "-g", "g")
    told = tidelog.json("acls", "explain", "--principal", "User:alice", "--topic", "orders")
    allowed = {each["operation"] for each in told if each["allowed"]}
    assert allowed == {"READ", "DESCRIBE"}
    assert {each["operation"] for each in told} >= {"WRITE", "CREATE", "DELETE", "ALTER_CONFIGS"}
    rule = "ALLOW READ to User:alice from any host on TOPIC:LITERAL:orders"
    assert f"READ\tTOPIC\torders\tyes\t{rule}" in explained(
        tidelog, "--principal", "alice", "--topic", "orders"
    )
    consumer = tidelog.json(
        "acls", "explain", "--principal", "alice", "--consumer", "-t", "orders", "-g", "g"
    )
    assert all(each["allowed"] for each in consumer)
    assert consumer[0]["rule"]["principal"] == "User:alice"


@pytest.mark.parametrize(
    ("arguments", "sentence"),
    [
        (("add", "-t", "orders", "--operation", "READ"), "specify --principal"),
        (("add", "--principal", "User:a", "--operation", "READ"), "specify a resource: --topic"),
        (("add", "--principal", "User:a", "-t", "orders"), "specify --operation"),
        (
            ("add", "--principal", "User:a", "-t", "o", "--operation", "FLY"),
            "unknown operation 'FLY'; choose from ALL, READ",
        ),
        (
            ("add", "--principal", "User:a", "--cluster", "--operation", "READ"),
            "READ does not apply to a cluster",
        ),
        (("add", "--principal", "User:a", "--consumer", "-t", "o"), "--consumer requires --group"),
        (("add", "--principal", ":a", "-t", "o", "--operation", "READ"), "write it as User:alice"),
        (("remove", "--operation", "READ", "--yes"), "specify which ACLs"),
        (("explain", "--principal", "User:a"), "specify a resource"),
    ],
)
def test_a_mistake_is_answered_with_what_to_write(
    tidelog: CommandLine, arguments: tuple[str, ...], sentence: str
) -> None:
    done = tidelog("acls", *arguments)
    assert done.returncode == 2
    assert sentence in done.stderr


def test_a_name_that_cannot_be_kept_is_refused_with_the_reason(tidelog: CommandLine) -> None:
    assert "must not hold a slash" in tidelog.refusal(
        "acls", "add", "--principal", "a", "--operation", "READ", "-g", "a/b"
    )


def test_without_an_authorizer_the_way_to_one_is_named(
    tmp_path_factory: pytest.TempPathFactory,
) -> None:
    with BrokerThread(tmp_path_factory.mktemp("open") / "data") as broker:
        refusal = CommandLine(broker.bootstrap).refusal("acls", "list")
    assert "No Authorizer is configured" in refusal
    assert "set authorizer.class.name and super.users on the brokers" in refusal


def test_our_own_admin_client_creates_describes_and_deletes_rules(bootstrap: str) -> None:
    def rule(name: str, operation: model.Operation) -> model.AclBinding:
        pattern = model.ResourcePattern(model.ResourceType.TOPIC, name, model.PatternType.LITERAL)
        return model.AclBinding(pattern, model.AclEntry("User:dora", "*", operation, model.Permission.ALLOW))

    wanted = [rule("ours", model.Operation.READ), rule("ours", model.Operation.WRITE)]
    hers = AclFilter(principal="User:dora")
    with Admin(bootstrap_servers=bootstrap) as admin:
        assert [each.error for each in admin.create_acls(wanted)] == [None, None]
        assert sorted(admin.describe_acls(hers), key=str) == sorted(wanted, key=str)
        (deleted,) = admin.delete_acls([hers])
        assert sorted((each.binding for each in deleted.results), key=str) == sorted(wanted, key=str)
        assert admin.describe_acls(hers) == []
