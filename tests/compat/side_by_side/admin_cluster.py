"""The cluster, its partitions and directories, elections, features, reassignments and ACLs."""

from __future__ import annotations

from tests.compat.side_by_side.batches import batch
from tests.compat.side_by_side.cases import case
from tests.compat.side_by_side.records_requests import append
from tests.compat.side_by_side.side import Side

from tidelog.wire.messages.alter_partition_reassignments import (
    AlterPartitionReassignmentsRequest,
    ReassignablePartition,
    ReassignableTopic,
)
from tidelog.wire.messages.alter_replica_log_dirs import (
    AlterReplicaLogDir,
    AlterReplicaLogDirsRequest,
    AlterReplicaLogDirTopic,
)
from tidelog.wire.messages.create_acls import AclCreation, CreateAclsRequest
from tidelog.wire.messages.delete_acls import DeleteAclsFilter, DeleteAclsRequest
from tidelog.wire.messages.describe_acls import DescribeAclsRequest
from tidelog.wire.messages.describe_cluster import DescribeClusterRequest
from tidelog.wire.messages.describe_log_dirs import DescribableLogDirTopic, DescribeLogDirsRequest
from tidelog.wire.messages.describe_topic_partitions import (
    Cursor,
    DescribeTopicPartitionsRequest,
    TopicRequest,
)
from tidelog.wire.messages.elect_leaders import ElectLeadersRequest, TopicPartitions
from tidelog.wire.messages.list_partition_reassignments import (
    ListPartitionReassignmentsRequest,
    ListPartitionReassignmentsTopics,
)
from tidelog.wire.messages.update_features import FeatureUpdateKey, UpdateFeaturesRequest

ME = 1
NOBODY = 77


# DescribeCluster


@case({"with-operations": True, "without": False}, versions=(0, 1, 2))
def cluster(side: Side, operations: bool, version: int) -> object:
    return side.ask(version, DescribeClusterRequest(include_cluster_authorized_operations=operations))


@case((2, 9, 0, -1), versions=(1, 2))
def cluster_endpoint_type(side: Side, kind: int, version: int) -> object:
    return side.ask(version, DescribeClusterRequest(endpoint_type=kind))


@case()
def cluster_with_fenced_brokers(side: Side) -> object:
    return side.ask(2, DescribeClusterRequest(include_fenced_brokers=True))


# DescribeTopicPartitions


def partitions_of(
    side: Side, *names: str, limit: int = 2000, cursor: tuple[str, int] | None = None
) -> object:
    start = None if cursor is None else Cursor(topic_name=cursor[0], partition_index=cursor[1])
    request = DescribeTopicPartitionsRequest(
        topics=[TopicRequest(name=name) for name in names], response_partition_limit=limit, cursor=start
    )
    return side.ask(0, request)


@case((2000, 5, 4, 3, 2, 1, 0, -5))
def topic_partitions(side: Side, limit: int) -> object:
    return partitions_of(side, side.topic("b"), side.topic("a", 3), limit=limit)


@case({"middle": ("a", 1), "last": ("a", 2), "beyond": ("a", 50), "negative": ("a", -1), "second": ("b", 0)})
def topic_partitions_from_cursor(side: Side, cursor: tuple[str, int]) -> object:
    first, second = side.topic("a", 3), side.topic("b")
    stem, index = cursor
    return partitions_of(side, first, second, limit=2, cursor=(side.name_of(stem), index))


@case()
def topic_partitions_from_cursor_elsewhere(side: Side) -> object:
    return partitions_of(side, side.topic("a"), cursor=(side.name_of("b"), 0))


@case()
def topic_partitions_unknown(side: Side) -> object:
    return partitions_of(side, side.topic("a"), side.name_of("none"), "bad name")


@case()
def topic_partitions_twice(side: Side) -> object:
    name = side.topic()
    return partitions_of(side, name, name)


@case()
def topic_partitions_empty_name(side: Side) -> object:
    return partitions_of(side, "")


# Log directories


def log_dirs(side: Side, topics: list[tuple[str, list[int]]] | None, version: int = 5) -> object:
    """Sizes of disks and other people's topics left out."""
    wanted = None
    if topics is not None:
        wanted = [DescribableLogDirTopic(topic=name, partitions=parts) for name, parts in topics]
    answer = side.ask(version, DescribeLogDirsRequest(topics=wanted))
    if isinstance(answer, dict):
        for result in answer["results"]:
            result["log_dir"] = "a directory"
            for name in ("total_bytes", "usable_bytes"):
                if name in result:
                    result[name] = result[name] > 0
            result["topics"] = sorted(
                (each for each in result["topics"] if each["name"].startswith(side.prefix)),
                key=lambda each: each["name"],
            )
            for each in result["topics"]:
                each["partitions"].sort(key=lambda partition: partition["partition_index"])
    return answer


@case(versions=range(1, 6))
def directories(side: Side, version: int) -> object:
    name = side.topic("t", 2)
    append(side, name, batch(3))
    return log_dirs(side, [(name, [0, 1])], version)


@case()
def directories_of_everything(side: Side) -> object:
    side.topic("a", 2)
    side.topic("b")
    return log_dirs(side, None)


@case()
def directories_of_nothing(side: Side) -> object:
    side.topic()
    return log_dirs(side, [])


@case()
def directories_of_unknown(side: Side) -> object:
    return log_dirs(side, [(side.topic(), [44]), (side.name_of("none"), [0])])


def move(side: Side, path: str, name: str, partition: int = 0, version: int = 2) -> object:
    topics = [AlterReplicaLogDirTopic(name=name, partitions=[partition])]
    return side.ask(version, AlterReplicaLogDirsRequest(dirs=[AlterReplicaLogDir(path=path, topics=topics)]))


def own_directory(side: Side) -> str:
    response = side.expect(4, DescribeLogDirsRequest(topics=[]))
    return str(response.results[0].log_dir)  # type: ignore[attr-defined]


@case(("/no/such/directory", "relative", ""), versions=(1, 2))
def move_to_odd_directory(side: Side, path: str, version: int) -> object:
    return move(side, path, side.topic(), version=version)


@case()
def move_unknown_topic_to_odd_directory(side: Side) -> object:
    return move(side, "/no/such/directory", side.name_of("none"))


@case({"same": ("t", 0), "unknown-topic": ("none", 0), "unknown-partition": ("t", 55)})
def move_to_own_directory(side: Side, given: tuple[str, int]) -> object:
    stem, partition = given
    side.topic()
    return move(side, own_directory(side), side.name_of(stem), partition)


@case()
def move_nothing(side: Side) -> object:
    return side.ask(2, AlterReplicaLogDirsRequest(dirs=[]))


# Elections


def elect(side: Side, topics: list[tuple[str, list[int]]] | None, kind: int = 0, version: int = 2) -> object:
    wanted = (
        None if topics is None else [TopicPartitions(topic=name, partitions=parts) for name, parts in topics]
    )
    request = ElectLeadersRequest(topic_partitions=wanted, timeout_ms=3000)
    if version >= 1:
        request.election_type = kind
    answer = side.ask(version, request)
    if isinstance(answer, dict):
        answer["replica_election_results"].sort(key=lambda each: each["topic"])
        for each in answer["replica_election_results"]:
            each["partition_result"].sort(key=lambda result: result["partition_id"])
    return answer


@case(versions=(0, 1, 2))
def election_not_needed(side: Side, version: int) -> object:
    return elect(side, [(side.topic("t", 2), [0, 1])], version=version)


@case((1, 9, -1))
def election_type(side: Side, kind: int) -> object:
    return elect(side, [(side.topic(), [0])], kind)


@case()
def election_of_unknown(side: Side) -> object:
    return elect(side, [(side.name_of("none"), [0]), (side.topic(), [9, -1])])


@case()
def election_of_nothing(side: Side) -> object:
    return elect(side, [])


@case()
def election_of_everything(side: Side) -> object:
    """Where no election is needed nothing is told."""
    side.topic()
    answer = elect(side, None)
    assert isinstance(answer, dict)
    return [each for each in answer["replica_election_results"] if each["topic"].startswith(side.prefix)]


# Features

UPDATES: dict[str, tuple[tuple[str, int, int], ...]] = {
    "unknown": (("no.such", 1, 1),),
    "unknown-to-0": (("no.such", 0, 1),),
    "unknown-to-0-downgrade": (("no.such", 0, 2),),
    "negative": (("no.such", -1, 1),),
    "type-9": (("no.such", 1, 9),),
    "nothing": (),
}


@case(UPDATES, versions=(0, 1, 2))
def update_features(side: Side, updates: tuple[tuple[str, int, int], ...], version: int) -> object:
    request = UpdateFeaturesRequest(timeout_ms=3000)
    for feature, level, kind in updates:
        update = FeatureUpdateKey(feature=feature, max_version_level=level)
        if version >= 1:
            update.upgrade_type = kind
        else:
            update.allow_downgrade = kind > 1
        request.feature_updates.append(update)
    return side.ask(version, request)


# Reassignments


@case({"all": None, "none": []})
def reassignments(side: Side, topics: list[ListPartitionReassignmentsTopics] | None) -> object:
    return side.ask(0, ListPartitionReassignmentsRequest(timeout_ms=1000, topics=topics))


@case()
def reassignments_of_topics(side: Side) -> object:
    wanted = [
        ListPartitionReassignmentsTopics(name=name, partition_indexes=[0, 9])
        for name in (side.topic(), side.name_of("none"))
    ]
    return side.ask(0, ListPartitionReassignmentsRequest(timeout_ms=1000, topics=wanted))


@case(
    {
        "cancel": (0, None),
        "same": (0, [ME]),
        "nobody": (0, [NOBODY]),
        "both": (0, [ME, NOBODY]),
        "same-twice": (0, [ME, ME]),
        "empty": (0, []),
        "negative": (0, [-1]),
        "unknown-partition": (9, [ME]),
        "unknown-partition-cancel": (9, None),
    },
    versions=(0, 1),
)
def reassign(side: Side, given: tuple[int, list[int] | None], version: int) -> object:
    partition, replicas = given
    part = ReassignablePartition(partition_index=partition, replicas=replicas)
    topics = [ReassignableTopic(name=side.topic(), partitions=[part])]
    return side.ask(version, AlterPartitionReassignmentsRequest(timeout_ms=1000, topics=topics))


@case((True, False))
def reassign_without_changing_the_factor(side: Side, allowed: bool) -> object:
    part = ReassignablePartition(partition_index=0, replicas=[ME])
    topics = [ReassignableTopic(name=side.topic(), partitions=[part])]
    request = AlterPartitionReassignmentsRequest(timeout_ms=1000, topics=topics)
    request.allow_replication_factor_change = allowed
    return side.ask(1, request)


@case(("none", "bad name"))
def reassign_unknown_topic(side: Side, stem: str) -> object:
    part = ReassignablePartition(partition_index=0, replicas=[ME])
    name = side.name_of(stem) if stem == "none" else stem
    topics = [ReassignableTopic(name=name, partitions=[part])]
    return side.ask(1, AlterPartitionReassignmentsRequest(timeout_ms=1000, topics=topics))


@case()
def reassign_nothing(side: Side) -> object:
    return side.ask(1, AlterPartitionReassignmentsRequest(timeout_ms=1000))


# ACLs, which nobody can have without an authorizer

ANY, ALLOW, READ, LITERAL, TOPIC = 1, 3, 3, 3, 2


@case(versions=(1, 2, 3))
def describe_acls(side: Side, version: int) -> object:
    request = DescribeAclsRequest(
        resource_type_filter=ANY,
        resource_name_filter=None,
        pattern_type_filter=ANY,
        principal_filter=None,
        host_filter=None,
        operation=ANY,
        permission_type=ANY,
    )
    return side.ask(version, request)


@case((0, 1, 2), versions=(1, 2, 3))
def create_acls(side: Side, count: int, version: int) -> object:
    creation = AclCreation(
        resource_type=TOPIC,
        resource_name="t",
        resource_pattern_type=LITERAL,
        principal="User:a",
        host="*",
        operation=READ,
        permission_type=ALLOW,
    )
    return side.ask(version, CreateAclsRequest(creations=[creation] * count))


@case((0, 1, 2), versions=(1, 2, 3))
def delete_acls(side: Side, count: int, version: int) -> object:
    wanted = DeleteAclsFilter(
        resource_type_filter=TOPIC,
        resource_name_filter="t",
        pattern_type_filter=LITERAL,
        principal_filter=None,
        host_filter=None,
        operation=ANY,
        permission_type=ANY,
    )
    return side.ask(version, DeleteAclsRequest(filters=[wanted] * count))
