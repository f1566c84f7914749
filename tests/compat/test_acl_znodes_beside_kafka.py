"""The same changes of access rules leave the same bytes in ZooKeeper, whoever made them: Kafka or Tidelog.

Names and contents of the nodes of rules, and all notices in their order. Kafka reads a pattern's rules into a
hash set, so that their order in a node is by chance; all else is compared as bytes. Versions of nodes are
not: Kafka writes a node anew where nothing has changed, and tells nobody of it.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from tests.compat.conftest import available
from tests.compat.mixed_cluster import MixedCluster
from tests.compat.side_by_side.side import Side

from tidelog.wire.messages.create_acls import AclCreation, CreateAclsRequest
from tidelog.wire.messages.delete_acls import DeleteAclsFilter, DeleteAclsRequest

ROOTS = ("/kafka-acl", "/kafka-acl-extended", "/kafka-acl-changes", "/kafka-acl-extended-changes")
OPTIONS = {
    "authorizer.class.name": "kafka.security.authorizer.AclAuthorizer",
    "super.users": "User:ANONYMOUS",
}
ANY, MATCH, LITERAL, PREFIXED = 1, 2, 3, 4
DENY, ALLOW = 2, 3
TOPIC, GROUP, CLUSTER, TRANSACTIONAL_ID, DELEGATION_TOKEN, USER = 2, 3, 4, 5, 6, 7
OF_KIND = {
    TOPIC: (2, 3, 4, 5, 6, 7, 8, 10, 11),
    GROUP: (2, 3, 6, 8),
    CLUSTER: (2, 5, 7, 8, 9, 10, 11, 12),
    TRANSACTIONAL_ID: (2, 4, 8),
    DELEGATION_TOKEN: (2, 8),
    USER: (13, 14),
}

Tree = dict[str, object]


def rule(
    kind: int,
    name: str,
    operation: int,
    principal: str = "User:alice",
    *,
    pattern: int = LITERAL,
    permission: int = ALLOW,
    host: str = "*",
) -> AclCreation:
    return AclCreation(
        resource_type=kind,
        resource_name=name,
        resource_pattern_type=pattern,
        principal=principal,
        host=host,
        operation=operation,
        permission_type=permission,
    )


def removal(kind: int = ANY, name: str | None = None, pattern: int = ANY, **more: object) -> DeleteAclsFilter:
    fields: dict[str, object] = {"principal_filter": None, "host_filter": None, "operation": 1} | more
    return DeleteAclsFilter(
        resource_type_filter=kind,
        resource_name_filter=name,
        pattern_type_filter=pattern,
        permission_type=ANY,
        **fields,  # type: ignore[arg-type]
    )


def add(admin: Side, *rules: AclCreation) -> None:
    answer = admin.expect(3, CreateAclsRequest(creations=list(rules)))
    codes = [each.error_code for each in answer.results]  # type: ignore[attr-defined]
    assert codes == [0] * len(rules), f"{admin.name}: {answer}"


def remove(admin: Side, *filters: DeleteAclsFilter) -> None:
    answer = admin.expect(3, DeleteAclsRequest(filters=list(filters)))
    codes = [each.error_code for each in answer.filter_results]  # type: ignore[attr-defined]
    assert codes == [0] * len(filters), f"{admin.name}: {answer}"


def name_of(kind: int) -> str:
    return {CLUSTER: "kafka-cluster", USER: "User:bob"}.get(kind, f"name.of_{kind}-0")


def steps(cluster: MixedCluster, admin: Side) -> Iterator[Tree]:
    yield tree(cluster)

    for kind, operations in OF_KIND.items():
        for operation in operations:
            add(admin, rule(kind, name_of(kind), operation))
    yield tree(cluster)

    for kind in (TOPIC, GROUP, TRANSACTIONAL_ID, USER):
        name = "User:bo" if kind == USER else "pre.fix_"
        add(admin, rule(kind, name, OF_KIND[kind][-1], pattern=PREFIXED))
        add(
            admin, rule(kind, name, OF_KIND[kind][0], "User:CN=bob,O=Ünlü", pattern=PREFIXED, permission=DENY)
        )
    yield tree(cluster)

    add(admin, rule(TOPIC, "*", 3, "User:*", host="10.0.0.1"))
    for _ in range(2):
        add(admin, rule(TOPIC, "told-twice", 3))
    add(admin, rule(TOPIC, "*", 4, 'User:a"b\\c/d', host="::1"))
    add(admin, rule(TOPIC, "*", 4, "User:café\u2028", permission=DENY))
    yield tree(cluster)

    several = [rule(TOPIC, "several", operation) for operation in (3, 4, 8)]
    add(admin, several[0])
    add(admin, *several[1:2])
    add(admin, several[2])
    add(admin, rule(GROUP, "several", 3))
    yield tree(cluster)

    remove(admin, removal(TOPIC, "several", LITERAL, operation=4))
    remove(admin, removal(TOPIC, "nothing-there", LITERAL))
    yield tree(cluster)
    remove(admin, removal(TOPIC, "several", MATCH, operation=8))
    remove(admin, removal(GROUP, "several", LITERAL))
    yield tree(cluster)
    add(admin, rule(GROUP, "several", 8))
    yield tree(cluster)

    remove(admin, removal(TOPIC, "pre.fix_and-more", MATCH, principal_filter="User:alice"))
    remove(admin, removal(USER))
    yield tree(cluster)


def tree(cluster: MixedCluster) -> Tree:
    """Every node of rules and every notice, with its bytes."""
    found: Tree = {}

    def visit(path: str) -> None:
        raw, _ = cluster.store.get(path)
        found[path] = _comparable(path, raw)
        for name in cluster.store.get_children(path):
            visit(f"{path}/{name}")

    for root in ROOTS:
        visit(root)
    return found


def _comparable(path: str, raw: bytes | None) -> object:
    """The bytes as they are, apart from the order of rules in a node."""
    if not raw or path.partition("changes/")[2]:
        return raw or b""
    begin, bracket, rest = raw.partition(b"[")
    rules, end_bracket, end = rest.rpartition(b"]")
    each = sorted(rules.removeprefix(b"{").removesuffix(b"}").split(b"},{"))
    return begin + bracket, each, end_bracket + end


STEPS = [
    "start",
    "each-operation-of-each-kind",
    "prefixes-and-denials",
    "names-that-need-care",
    "several-of-one",
    "one-removed",
    "some-removed-the-last-removed",
    "back-again",
    "removed-by-match",
]


@pytest.fixture(scope="module")
def trees(tmp_path_factory: pytest.TempPathFactory) -> dict[str, list[Tree]]:
    """What ZooKeeper holds after each step, by the kind of the broker."""
    found: dict[str, list[Tree]] = {}
    for kind in ("kafka", "tidelog"):
        directory: Path = tmp_path_factory.mktemp(kind)
        with available(), MixedCluster(directory, OPTIONS) as cluster:
            broker = cluster.kafka(1) if kind == "kafka" else cluster.tidelog(1)
            found[kind] = list(steps(cluster, Side(kind, "127.0.0.1", broker.port)))
    return found


@pytest.mark.parametrize("step", range(len(STEPS)), ids=STEPS)
def test_the_same_changes_of_rules_leave_the_same_bytes(trees: dict[str, list[Tree]], step: int) -> None:
    kafka, tidelog = trees["kafka"][step], trees["tidelog"][step]
    different = {
        path: {"kafka": kafka.get(path), "tidelog": tidelog.get(path)}
        for path in sorted(kafka.keys() | tidelog.keys())
        if kafka.get(path) != tidelog.get(path)
    }
    assert different == {}


def test_the_steps_leave_something(trees: dict[str, list[Tree]]) -> None:
    for found in trees.values():
        assert len(found) == len(STEPS)
        assert len({str(each) for each in found}) == len(STEPS)
