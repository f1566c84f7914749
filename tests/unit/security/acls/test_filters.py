from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tidelog.security.acls.filters import AclFilter
from tidelog.security.acls.model import (
    AclBinding,
    AclEntry,
    Operation,
    PatternType,
    Permission,
    ResourcePattern,
    ResourceType,
    operation_of,
    pattern_type_of,
    permission_of,
    resource_type_of,
)
from tidelog.security.acls.rule_index import RuleIndex

ENTRY = AclEntry("User:alice", "*", Operation.READ, Permission.ALLOW)


def binding(name: str, pattern_type: PatternType = PatternType.LITERAL) -> AclBinding:
    return AclBinding(ResourcePattern(ResourceType.TOPIC, name, pattern_type), ENTRY)


LITERAL = binding("orders")
OTHER = binding("orders2")
EVERY = binding("*")
PREFIX = binding("ord", PatternType.PREFIXED)
LONGER = binding("orders-", PatternType.PREFIXED)
SAME_PREFIX = binding("orders", PatternType.PREFIXED)
ALL = [LITERAL, OTHER, EVERY, PREFIX, LONGER, SAME_PREFIX]


@pytest.mark.parametrize(
    ("wanted", "found"),
    [
        (AclFilter(), ALL),
        (AclFilter(name="orders"), [LITERAL, SAME_PREFIX]),
        (AclFilter(name="orders", pattern_type=PatternType.LITERAL), [LITERAL]),
        (AclFilter(name="orders", pattern_type=PatternType.PREFIXED), [SAME_PREFIX]),
        (AclFilter(name="orders", pattern_type=PatternType.MATCH), [LITERAL, EVERY, PREFIX, SAME_PREFIX]),
        (AclFilter(name="*", pattern_type=PatternType.LITERAL), [EVERY]),
        (AclFilter(name="*", pattern_type=PatternType.MATCH), [EVERY]),
        (AclFilter(pattern_type=PatternType.PREFIXED), [PREFIX, LONGER, SAME_PREFIX]),
        (AclFilter(pattern_type=PatternType.MATCH), ALL),
        (AclFilter(resource_type=ResourceType.GROUP), []),
        (AclFilter(principal="User:alice"), ALL),
        (AclFilter(principal="User:*"), []),
        (AclFilter(host="*"), ALL),
        (AclFilter(host="10.0.0.1"), []),
        (AclFilter(operation=Operation.READ), ALL),
        (AclFilter(operation=Operation.ALL), []),
        (AclFilter(permission=Permission.DENY), []),
    ],
    ids=str,
)
def test_a_filter_means_the_rules_that_kafka_says(wanted: AclFilter, found: list[AclBinding]) -> None:
    assert [each for each in ALL if wanted.matches(each)] == found


@given(
    st.sampled_from([None, "orders", "*", "ord", "orders-1"]),
    st.sampled_from([PatternType.ANY, PatternType.MATCH, PatternType.LITERAL, PatternType.PREFIXED]),
    st.sampled_from([ResourceType.ANY, ResourceType.TOPIC, ResourceType.GROUP]),
)
def test_an_index_finds_what_the_filter_matches(
    name: str | None, pattern_type: PatternType, kind: ResourceType
) -> None:
    wanted = AclFilter(kind, name, pattern_type)
    index = RuleIndex(ALL)
    found = {
        AclBinding(pattern, entry)
        for pattern in index.candidates(wanted)
        for entry in index.entries(pattern)
        if wanted.matches_entry(entry)
    }
    assert found == {each for each in ALL if wanted.matches(each)}


def test_codes_of_the_future_are_unknown() -> None:
    assert resource_type_of(99) is ResourceType.UNKNOWN
    assert pattern_type_of(-1) is PatternType.UNKNOWN
    assert operation_of(77) is Operation.UNKNOWN
    assert permission_of(9) is Permission.UNKNOWN


def test_labels_are_those_of_kafkas_znodes() -> None:
    assert [each.label for each in ResourceType if each > 1] == [
        "Topic",
        "Group",
        "Cluster",
        "TransactionalId",
        "DelegationToken",
        "User",
    ]
    assert Operation.DESCRIBE_CONFIGS.label == "DescribeConfigs"
    assert Permission.ALLOW.label == "Allow"
