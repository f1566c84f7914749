"""How Apache Kafka 3.9 with ZooKeeper differs from Kafka 4, which Tidelog follows: apart from access."""

from __future__ import annotations

from fnmatch import fnmatch
from typing import NamedTuple

from tests.compat.side_by_side.side import CLOSED

LACKS: dict[str, object] = {
    "produce-by-id": CLOSED,
    "describe-groups-v6": CLOSED,
    "consumer-group-heartbeat": CLOSED,
    "list-config-resources": CLOSED,
    "describe-topic-partitions": CLOSED,
    "consumer-group-describe": "UNSUPPORTED_VERSION",
    "describe-group-config": "INVALID_REQUEST",
    "alter-group-config": "INVALID_REQUEST",
}
"""Requests that it does not know, and what it answers to everybody: nothing can be compared."""

VERSIONS = {"produce-by-name": 11}
"""The newest version that it knows, where that is an older one."""


class Otherwise(NamedTuple):
    """Fields that are another matter than access."""

    fields: frozenset[str]
    why: str


OTHERWISE: dict[str, Otherwise] = {
    "create-topics-by-*-all": Otherwise(
        frozenset({"topic_id"}), "3.9 answers before its controller has given the topic one"
    ),
    "create-topics-*-none": Otherwise(
        frozenset({"topic_config_error_code"}),
        "beside the refusal, 3.9 refuses to show the configs of the topic that there is not",
    ),
    "create-topics-and-see-configs-all": Otherwise(frozenset({"configs"}), "3.9 has more options of topics"),
    "delete-topics-by-name-*": Otherwise(
        frozenset({"topic_id"}), "3.9 tells ids only where it was asked by them"
    ),
    "update-features-all": Otherwise(
        frozenset({"error_code", "results"}), "3.9 refuses each feature, 4 the whole request"
    ),
}
"""By the names of the cases, with wildcards."""


def otherwise(case: str) -> frozenset[str]:
    """The fields of a case's answer that are not compared."""
    return frozenset().union(*(each.fields for name, each in OTHERWISE.items() if fnmatch(case, name)))
