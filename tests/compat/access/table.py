"""The requests, and the rules that somebody needs for each: as ``docs/reference/access.md`` has them.

A request is sent by users who have all rules but one, by one who has all, and by one who has none. Where
either of two rules will do, there are two entries. Everything that a request is about is made for it by the
superuser: a topic with a record, its group, its transactional id.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import NamedTuple

from tests.compat.access.user_side import (
    CLUSTER,
    CLUSTER_NAME,
    GROUP,
    OTHER_USER,
    TOPIC,
    TRANSACTIONAL_ID,
    USER,
)
from tests.compat.side_by_side.batches import TRANSACTIONAL, Batch, batch, records
from tests.compat.side_by_side.records_requests import append
from tests.compat.side_by_side.side import Side

from tidelog.ids import Uuid
from tidelog.wire.messages import (
    add_offsets_to_txn,
    add_partitions_to_txn,
    alter_client_quotas,
    alter_configs,
    alter_partition_reassignments,
    alter_replica_log_dirs,
    alter_user_scram_credentials,
    consumer_group_describe,
    consumer_group_heartbeat,
    create_acls,
    create_delegation_token,
    create_partitions,
    create_topics,
    delete_acls,
    delete_groups,
    delete_records,
    delete_topics,
    describe_acls,
    describe_client_quotas,
    describe_cluster,
    describe_configs,
    describe_groups,
    describe_log_dirs,
    describe_producers,
    describe_topic_partitions,
    describe_transactions,
    describe_user_scram_credentials,
    elect_leaders,
    end_txn,
    fetch,
    find_coordinator,
    heartbeat,
    incremental_alter_configs,
    init_producer_id,
    join_group,
    leave_group,
    list_config_resources,
    list_groups,
    list_offsets,
    list_partition_reassignments,
    list_transactions,
    metadata,
    offset_commit,
    offset_delete,
    offset_fetch,
    offset_for_leader_epoch,
    produce,
    sync_group,
    txn_offset_commit,
    update_features,
    write_txn_markers,
)
from tidelog.wire.schema import Payload

READ, WRITE, CREATE, DELETE, ALTER, DESCRIBE, CLUSTER_ACTION = 3, 4, 5, 6, 7, 8, 9
DESCRIBE_CONFIGS, ALTER_CONFIGS, IDEMPOTENT_WRITE, CREATE_TOKENS = 10, 11, 12, 13
_TOPIC_CONFIG, _BROKER_CONFIG, _GROUP_CONFIG = 2, 4, 32


class Rule(NamedTuple):
    """May do something with a resource of a case."""

    operation: int
    kind: int
    stem: str = ""


def topic(operation: int, stem: str = "t") -> Rule:
    return Rule(operation, TOPIC, stem)


def group(operation: int) -> Rule:
    return Rule(operation, GROUP, "g")


def transaction(operation: int) -> Rule:
    return Rule(operation, TRANSACTIONAL_ID, "x")


def cluster(operation: int) -> Rule:
    return Rule(operation, CLUSTER, CLUSTER_NAME)


class Ground:
    """What a request is about, made by the superuser on one broker."""

    def __init__(self, admin: Side) -> None:
        self.admin = admin
        self.topic = admin.topic("t")
        self.other = admin.topic("o")
        self.topic_id: Uuid = admin.topic_id(self.topic)
        self.missing = admin.name_of("new")
        self.group = self.name_of("g")
        self.transaction = self.name_of("x")
        append(admin, self.topic, batch())

    def name_of(self, stem: str) -> str:
        return stem if stem in (CLUSTER_NAME, OTHER_USER) else f"{self.admin.prefix}-{stem}"

    def commit(self) -> None:
        """Bring the group into being."""
        self.admin.expect(9, self.offset_commit())

    def offset_commit(self) -> offset_commit.OffsetCommitRequest:
        place = offset_commit.OffsetCommitRequestPartition(partition_index=0, committed_offset=1)
        return offset_commit.OffsetCommitRequest(
            group_id=self.group,
            topics=[
                offset_commit.OffsetCommitRequestTopic(name=name, partitions=[place])
                for name in (self.topic, self.other)
            ],
        )

    def begin_transaction(self) -> None:
        """Bring the transactional id into being, with the topic in its transaction."""
        request = init_producer_id.InitProducerIdRequest(
            transactional_id=self.transaction, transaction_timeout_ms=60_000
        )
        found = self.admin.expect(4, request)
        producer_id = found.producer_id  # type: ignore[attr-defined]
        self.admin.call("producer", producer_id)
        self.producer = producer_id
        self.admin.expect(3, self.add_partitions(self.topic))

    producer: int = 4711

    def add_partitions(self, *names: str) -> add_partitions_to_txn.AddPartitionsToTxnRequest:
        return add_partitions_to_txn.AddPartitionsToTxnRequest(
            v3_and_below_transactional_id=self.transaction,
            v3_and_below_producer_id=self.producer,
            v3_and_below_producer_epoch=0,
            v3_and_below_topics=[
                add_partitions_to_txn.AddPartitionsToTxnTopic(name=name, partitions=[0]) for name in names
            ],
        )

    def end_transaction(self) -> None:
        """Leave nothing behind that holds up others."""
        self.admin.ask(3, self.end(committed=False))

    def end(self, *, committed: bool) -> end_txn.EndTxnRequest:
        return end_txn.EndTxnRequest(
            transactional_id=self.transaction,
            producer_id=self.producer,
            producer_epoch=0,
            committed=committed,
        )


def nothing(ground: Ground) -> None:
    """No more is needed than what there is."""


@dataclass(frozen=True)
class Access:
    """A request and what it needs."""

    name: str
    version: int
    needs: tuple[Rule, ...]
    request: Callable[[Ground], Payload]
    before: Callable[[Ground], None] = nothing
    after: Callable[[Ground], None] = nothing
    shown: Callable[[object], object] = field(default=lambda answer: answer)
    """The answer without what has nothing to do with access."""


def _produce(ground: Ground, *, by_id: bool = False, transactional: bool = False) -> Payload:
    data = batch()
    if transactional:
        data = Batch(
            tuple(records(1)), attributes=TRANSACTIONAL, producer_id=4711, producer_epoch=0, base_sequence=0
        ).bytes()
    topics = [
        produce.TopicProduceData(
            name="" if by_id else name,
            topic_id=ground.admin.topic_id(name) if by_id else Uuid(bytes(16)),
            partition_data=[produce.PartitionProduceData(index=0, records=data)],
        )
        for name in (ground.topic, ground.other)
    ]
    return produce.ProduceRequest(
        transactional_id=ground.transaction if transactional else None,
        acks=-1,
        timeout_ms=60_000,
        topic_data=topics,
    )


def _fetch(ground: Ground, *, by_id: bool = False, replica: int = -1) -> Payload:
    part = fetch.FetchPartition(partition=0, fetch_offset=0, partition_max_bytes=1 << 20)
    topics = [
        fetch.FetchTopic(
            topic="" if by_id else name,
            topic_id=ground.admin.topic_id(name) if by_id else Uuid(bytes(16)),
            partitions=[part],
        )
        for name in (ground.topic, ground.other)
    ]
    return fetch.FetchRequest(
        replica_id=replica,
        max_wait_ms=0,
        min_bytes=0,
        max_bytes=1 << 20,
        session_id=0,
        session_epoch=-1,
        topics=topics,
    )


def _metadata(*names: str | None, ground: Ground, by_id: bool = False, **more: bool) -> Payload:
    wanted = [
        metadata.MetadataRequestTopic(
            name=None if by_id else name,
            topic_id=ground.admin.topic_id(str(name)) if by_id else Uuid(bytes(16)),
        )
        for name in names
    ]
    fields = {"allow_auto_topic_creation": False, **more}
    return metadata.MetadataRequest(topics=wanted, **fields)


def _config(kind: int, name: str) -> Payload:
    return describe_configs.DescribeConfigsRequest(
        resources=[
            describe_configs.DescribeConfigsResource(
                resource_type=kind, resource_name=name, configuration_keys=["no.such.option"]
            )
        ]
    )


def _alter(kind: int, name: str, option: str, value: str) -> Payload:
    return incremental_alter_configs.IncrementalAlterConfigsRequest(
        resources=[
            incremental_alter_configs.AlterConfigsResource(
                resource_type=kind,
                resource_name=name,
                configs=[incremental_alter_configs.AlterableConfig(name=option, value=value)],
            )
        ],
        validate_only=True,
    )


def _offset_fetch(ground: Ground, *, every_topic: bool) -> Payload:
    wanted = [
        offset_fetch.OffsetFetchRequestTopics(name=name, partition_indexes=[0])
        for name in (ground.topic, ground.other)
    ]
    asked = offset_fetch.OffsetFetchRequestGroup(
        group_id=ground.group, topics=None if every_topic else wanted
    )
    return offset_fetch.OffsetFetchRequest(groups=[asked])


def _create(ground: Ground) -> Payload:
    return create_topics.CreateTopicsRequest(
        topics=[create_topics.CreatableTopic(name=ground.missing, num_partitions=1, replication_factor=1)],
        timeout_ms=60_000,
    )


def _acl(ground: Ground) -> dict[str, object]:
    return {
        "resource_type_filter": TOPIC,
        "resource_name_filter": ground.topic,
        "pattern_type_filter": 3,
        "principal_filter": None,
        "host_filter": None,
    }


def _own_groups(answer: object) -> object:
    """Whether there is one; which ones there are depends on the cases before."""
    if isinstance(answer, dict):
        answer["groups"] = [each for each in answer["groups"] if each["group_id"].endswith("-g")][:1]
        for each in answer["groups"]:
            each["group_id"] = "a group"
    return answer


def _without_values(answer: object) -> object:
    if isinstance(answer, dict):
        for each in answer.get("results", ()):
            each.pop("configs", None)
    return answer


def _codes_only(answer: object) -> object:
    """Error codes and how many results there are: the rest is another matter's."""
    if isinstance(answer, dict):
        return {name: _codes_only(value) for name, value in answer.items() if _tells(name, value)}
    if isinstance(answer, list):
        return [_codes_only(each) for each in answer]
    return answer


def _tells(name: str, value: object) -> bool:
    return name.endswith("error_code") or isinstance(value, list)


def _first_code(answer: object) -> object:
    return answer["error_code"] if isinstance(answer, dict) else answer


def _new_member(answer: object) -> object:
    """What came of a heartbeat: whether one is a member, and not with which assignment."""
    if isinstance(answer, dict):
        answer.pop("assignment", None)
    return answer


TABLE: tuple[Access, ...] = (
    Access("produce-by-name", 12, (topic(WRITE),), _produce),
    Access("produce-by-id", 13, (topic(WRITE),), lambda g: _produce(g, by_id=True)),
    Access(
        "produce-transactional",
        11,
        (topic(WRITE), transaction(WRITE)),
        lambda g: _produce(g, transactional=True),
        shown=_codes_only,
    ),
    Access("fetch-by-name", 12, (topic(READ),), _fetch, shown=_codes_only),
    Access("fetch-by-id", 17, (topic(READ),), lambda g: _fetch(g, by_id=True), shown=_codes_only),
    Access(
        "fetch-as-follower",
        12,
        (cluster(CLUSTER_ACTION),),
        lambda g: _fetch(g, replica=77),
        shown=_codes_only,
    ),
    Access(
        "list-offsets",
        8,
        (topic(DESCRIBE),),
        lambda g: list_offsets.ListOffsetsRequest(
            topics=[
                list_offsets.ListOffsetsTopic(
                    name=name,
                    partitions=[list_offsets.ListOffsetsPartition(partition_index=0, timestamp=-1)],
                )
                for name in (g.topic, g.other)
            ]
        ),
    ),
    Access(
        "metadata-by-name", 12, (topic(DESCRIBE),), lambda g: _metadata(g.topic, g.other, g.missing, ground=g)
    ),
    Access(
        "metadata-by-id",
        12,
        (topic(DESCRIBE),),
        lambda g: _metadata(g.topic, g.other, ground=g, by_id=True),
    ),
    Access(
        "metadata-of-all",
        12,
        (topic(DESCRIBE),),
        lambda g: metadata.MetadataRequest(topics=None),
        shown=lambda answer: (
            [each["name"].rpartition("-")[2] for each in answer["topics"]][-1:]
            if isinstance(answer, dict)
            else answer
        ),
    ),
    *(
        Access(
            f"metadata-with-operations-{operation}",
            version,
            (topic(DESCRIBE), topic(operation), cluster(DESCRIBE), cluster(ALTER)),
            lambda g: _metadata(
                g.topic,
                ground=g,
                include_topic_authorized_operations=True,
                include_cluster_authorized_operations=True,
            ),
        )
        for operation, version in ((READ, 10), (ALTER_CONFIGS, 10))
    ),
    Access(
        "metadata-auto-create-by-cluster",
        12,
        (cluster(CREATE), topic(DESCRIBE, "new")),
        lambda g: _metadata(g.missing, ground=g, allow_auto_topic_creation=True),
        shown=_codes_only,
    ),
    Access(
        "metadata-auto-create-by-topic",
        12,
        (topic(CREATE, "new"), topic(DESCRIBE, "new")),
        lambda g: _metadata(g.missing, ground=g, allow_auto_topic_creation=True),
        shown=_codes_only,
    ),
    Access("offset-commit", 9, (group(READ), topic(READ)), Ground.offset_commit),
    Access(
        "offset-fetch",
        9,
        (group(DESCRIBE), topic(DESCRIBE)),
        lambda g: _offset_fetch(g, every_topic=False),
        before=Ground.commit,
    ),
    Access(
        "offset-fetch-of-all",
        9,
        (group(DESCRIBE), topic(DESCRIBE)),
        lambda g: _offset_fetch(g, every_topic=True),
        before=Ground.commit,
    ),
    Access(
        "find-group-coordinator",
        4,
        (group(DESCRIBE),),
        lambda g: find_coordinator.FindCoordinatorRequest(key_type=0, coordinator_keys=[g.group, "another"]),
    ),
    Access(
        "find-transaction-coordinator",
        3,
        (transaction(DESCRIBE),),
        lambda g: find_coordinator.FindCoordinatorRequest(key_type=1, key=g.transaction),
    ),
    Access(
        "join-group",
        9,
        (group(READ),),
        lambda g: join_group.JoinGroupRequest(
            group_id=g.group,
            session_timeout_ms=10_000,
            rebalance_timeout_ms=10_000,
            protocol_type="consumer",
            protocols=[join_group.JoinGroupRequestProtocol(name="range", metadata=b"")],
        ),
        shown=_first_code,
    ),
    Access(
        "heartbeat",
        4,
        (group(READ),),
        lambda g: heartbeat.HeartbeatRequest(group_id=g.group, generation_id=1, member_id="nobody"),
    ),
    Access(
        "leave-group",
        5,
        (group(READ),),
        lambda g: leave_group.LeaveGroupRequest(
            group_id=g.group, members=[leave_group.MemberIdentity(member_id="nobody")]
        ),
        before=Ground.commit,
    ),
    Access(
        "sync-group",
        5,
        (group(READ),),
        lambda g: sync_group.SyncGroupRequest(
            group_id=g.group,
            generation_id=1,
            member_id="nobody",
            protocol_type="consumer",
            protocol_name="range",
        ),
    ),
    *(
        Access(
            f"describe-groups-v{version}",
            version,
            (group(DESCRIBE), group(DELETE)),
            lambda g: describe_groups.DescribeGroupsRequest(
                groups=[g.group], include_authorized_operations=True
            ),
            before=Ground.commit,
        )
        for version in (5, 6)
    ),
    Access(
        "list-groups-by-cluster",
        5,
        (cluster(DESCRIBE),),
        lambda g: list_groups.ListGroupsRequest(),
        before=Ground.commit,
        shown=_own_groups,
    ),
    Access(
        "list-groups-by-group",
        5,
        (group(DESCRIBE),),
        lambda g: list_groups.ListGroupsRequest(),
        before=Ground.commit,
        shown=_own_groups,
    ),
    Access("create-topics-by-topic", 7, (topic(CREATE, "new"),), _create),
    Access("create-topics-by-cluster", 7, (cluster(CREATE),), _create),
    Access(
        "create-topics-and-see-configs",
        7,
        (topic(CREATE, "new"), topic(DESCRIBE_CONFIGS, "new")),
        _create,
        shown=_codes_only,
    ),
    Access(
        "delete-topics-by-name",
        6,
        (topic(DELETE), topic(DESCRIBE)),
        lambda g: delete_topics.DeleteTopicsRequest(
            topics=[delete_topics.DeleteTopicState(name=name) for name in (g.topic, g.other, g.missing)],
            timeout_ms=60_000,
        ),
    ),
    Access(
        "delete-topics-by-id",
        6,
        (topic(DELETE), topic(DESCRIBE)),
        lambda g: delete_topics.DeleteTopicsRequest(
            topics=[delete_topics.DeleteTopicState(name=None, topic_id=g.topic_id)], timeout_ms=60_000
        ),
    ),
    Access(
        "delete-records",
        2,
        (topic(DELETE),),
        lambda g: delete_records.DeleteRecordsRequest(
            topics=[
                delete_records.DeleteRecordsTopic(
                    name=name,
                    partitions=[delete_records.DeleteRecordsPartition(partition_index=0, offset=0)],
                )
                for name in (g.topic, g.other)
            ],
            timeout_ms=60_000,
        ),
    ),
    Access(
        "init-producer-id-transactional",
        4,
        (transaction(WRITE),),
        lambda g: init_producer_id.InitProducerIdRequest(
            transactional_id=g.transaction, transaction_timeout_ms=1000
        ),
        shown=_first_code,
    ),
    Access(
        "init-producer-id-by-cluster",
        4,
        (cluster(IDEMPOTENT_WRITE),),
        lambda g: init_producer_id.InitProducerIdRequest(transactional_id=None, transaction_timeout_ms=1000),
        shown=_first_code,
    ),
    Access(
        "init-producer-id-by-topic",
        4,
        (topic(WRITE),),
        lambda g: init_producer_id.InitProducerIdRequest(transactional_id=None, transaction_timeout_ms=1000),
        shown=_first_code,
    ),
    *(
        Access(
            f"offset-for-leader-epoch-by-{name}",
            4,
            (rule,),
            lambda g: offset_for_leader_epoch.OffsetForLeaderEpochRequest(
                replica_id=-1,
                topics=[
                    offset_for_leader_epoch.OffsetForLeaderTopic(
                        topic=each,
                        partitions=[
                            offset_for_leader_epoch.OffsetForLeaderPartition(partition=0, leader_epoch=0)
                        ],
                    )
                    for each in (g.topic, g.other)
                ],
            ),
        )
        for name, rule in (("topic", topic(DESCRIBE)), ("cluster", cluster(CLUSTER_ACTION)))
    ),
    Access(
        "add-partitions-to-txn",
        3,
        (transaction(WRITE), topic(WRITE), topic(WRITE, "o")),
        lambda g: g.add_partitions(g.topic, g.other),
    ),
    Access(
        "add-offsets-to-txn",
        3,
        (transaction(WRITE), group(READ)),
        lambda g: add_offsets_to_txn.AddOffsetsToTxnRequest(
            transactional_id=g.transaction, producer_id=4711, producer_epoch=0, group_id=g.group
        ),
    ),
    Access("end-txn", 3, (transaction(WRITE),), lambda g: g.end(committed=True)),
    *(
        Access(
            f"write-txn-markers-by-{name}",
            1,
            (cluster(operation),),
            lambda g: write_txn_markers.WriteTxnMarkersRequest(
                markers=[
                    write_txn_markers.WritableTxnMarker(
                        producer_id=4711,
                        producer_epoch=0,
                        transaction_result=False,
                        coordinator_epoch=0,
                        topics=[
                            write_txn_markers.WritableTxnMarkerTopic(name=g.topic, partition_indexes=[0])
                        ],
                    )
                ]
            ),
        )
        for name, operation in (("alter", ALTER), ("action", CLUSTER_ACTION))
    ),
    Access(
        "txn-offset-commit",
        3,
        (transaction(WRITE), group(READ), topic(READ)),
        lambda g: txn_offset_commit.TxnOffsetCommitRequest(
            transactional_id=g.transaction,
            group_id=g.group,
            producer_id=4711,
            producer_epoch=0,
            topics=[
                txn_offset_commit.TxnOffsetCommitRequestTopic(
                    name=name,
                    partitions=[
                        txn_offset_commit.TxnOffsetCommitRequestPartition(
                            partition_index=0, committed_offset=1
                        )
                    ],
                )
                for name in (g.topic, g.other)
            ],
        ),
    ),
    Access(
        "describe-acls",
        3,
        (cluster(DESCRIBE),),
        lambda g: describe_acls.DescribeAclsRequest(**_acl(g), operation=1, permission_type=1),  # type: ignore[arg-type]
    ),
    Access(
        "create-acls",
        3,
        (cluster(ALTER),),
        lambda g: create_acls.CreateAclsRequest(
            creations=[
                create_acls.AclCreation(
                    resource_type=TOPIC,
                    resource_name=g.topic,
                    resource_pattern_type=3,
                    principal="User:somebody",
                    host="*",
                    operation=READ,
                    permission_type=3,
                )
            ]
        ),
    ),
    Access(
        "delete-acls",
        3,
        (cluster(ALTER),),
        lambda g: delete_acls.DeleteAclsRequest(
            filters=[delete_acls.DeleteAclsFilter(**_acl(g), operation=1, permission_type=1)]  # type: ignore[arg-type]
        ),
    ),
    Access("describe-topic-config", 4, (topic(DESCRIBE_CONFIGS),), lambda g: _config(_TOPIC_CONFIG, g.topic)),
    Access("describe-broker-config", 4, (cluster(DESCRIBE_CONFIGS),), lambda g: _config(_BROKER_CONFIG, "1")),
    Access("describe-group-config", 4, (group(DESCRIBE_CONFIGS),), lambda g: _config(_GROUP_CONFIG, g.group)),
    Access(
        "describe-configs-by-altering",
        4,
        (topic(ALTER_CONFIGS),),
        lambda g: _config(_TOPIC_CONFIG, g.topic),
    ),
    Access(
        "alter-topic-config",
        1,
        (topic(ALTER_CONFIGS),),
        lambda g: _alter(_TOPIC_CONFIG, g.topic, "retention.ms", "1000"),
    ),
    Access(
        "alter-broker-config",
        1,
        (cluster(ALTER_CONFIGS),),
        lambda g: _alter(_BROKER_CONFIG, "1", "log.cleaner.backoff.ms", "1000"),
    ),
    Access(
        "alter-group-config",
        1,
        (group(ALTER_CONFIGS),),
        lambda g: _alter(_GROUP_CONFIG, g.group, "consumer.session.timeout.ms", "50000"),
    ),
    Access(
        "alter-configs-whole",
        2,
        (topic(ALTER_CONFIGS),),
        lambda g: alter_configs.AlterConfigsRequest(
            resources=[
                alter_configs.AlterConfigsResource(
                    resource_type=_TOPIC_CONFIG,
                    resource_name=g.topic,
                    configs=[alter_configs.AlterableConfig(name="retention.ms", value="1000")],
                )
            ],
            validate_only=True,
        ),
    ),
    Access(
        "alter-replica-log-dirs",
        2,
        (cluster(ALTER),),
        lambda g: alter_replica_log_dirs.AlterReplicaLogDirsRequest(
            dirs=[
                alter_replica_log_dirs.AlterReplicaLogDir(
                    path="/nowhere",
                    topics=[alter_replica_log_dirs.AlterReplicaLogDirTopic(name=g.topic, partitions=[0])],
                )
            ]
        ),
    ),
    Access(
        "describe-log-dirs",
        4,
        (cluster(DESCRIBE),),
        lambda g: describe_log_dirs.DescribeLogDirsRequest(
            topics=[describe_log_dirs.DescribableLogDirTopic(topic=g.topic, partitions=[0])]
        ),
        shown=_codes_only,
    ),
    Access(
        "create-partitions",
        3,
        (topic(ALTER),),
        lambda g: create_partitions.CreatePartitionsRequest(
            topics=[
                create_partitions.CreatePartitionsTopic(name=name, count=2) for name in (g.topic, g.other)
            ],
            timeout_ms=60_000,
            validate_only=True,
        ),
    ),
    Access(
        "create-token-of-another",
        3,
        (Rule(CREATE_TOKENS, USER, OTHER_USER),),
        lambda g: create_delegation_token.CreateDelegationTokenRequest(
            owner_principal_type="User", owner_principal_name=OTHER_USER.partition(":")[2]
        ),
        shown=_first_code,
    ),
    Access(
        "delete-groups",
        2,
        (group(DELETE),),
        lambda g: delete_groups.DeleteGroupsRequest(groups_names=[g.group]),
        before=Ground.commit,
    ),
    Access(
        "elect-leaders",
        2,
        (cluster(ALTER),),
        lambda g: elect_leaders.ElectLeadersRequest(
            election_type=0,
            topic_partitions=[elect_leaders.TopicPartitions(topic=g.topic, partitions=[0])],
            timeout_ms=60_000,
        ),
    ),
    Access(
        "alter-reassignments",
        0,
        (cluster(ALTER),),
        lambda g: alter_partition_reassignments.AlterPartitionReassignmentsRequest(
            timeout_ms=60_000,
            topics=[
                alter_partition_reassignments.ReassignableTopic(
                    name=g.topic,
                    partitions=[
                        alter_partition_reassignments.ReassignablePartition(partition_index=0, replicas=None)
                    ],
                )
            ],
        ),
    ),
    Access(
        "list-reassignments",
        0,
        (cluster(DESCRIBE),),
        lambda g: list_partition_reassignments.ListPartitionReassignmentsRequest(
            timeout_ms=60_000, topics=None
        ),
    ),
    Access(
        "offset-delete",
        0,
        (group(DELETE), topic(READ)),
        lambda g: offset_delete.OffsetDeleteRequest(
            group_id=g.group,
            topics=[
                offset_delete.OffsetDeleteRequestTopic(
                    name=name, partitions=[offset_delete.OffsetDeleteRequestPartition(partition_index=0)]
                )
                for name in (g.topic, g.other)
            ],
        ),
        before=Ground.commit,
    ),
    Access(
        "describe-quotas",
        1,
        (cluster(DESCRIBE_CONFIGS),),
        lambda g: describe_client_quotas.DescribeClientQuotasRequest(),
    ),
    Access(
        "alter-quotas",
        1,
        (cluster(ALTER_CONFIGS),),
        lambda g: alter_client_quotas.AlterClientQuotasRequest(
            entries=[
                alter_client_quotas.AlterClientQuotasRequestEntryData(
                    entity=[alter_client_quotas.EntityData(entity_type="user", entity_name="nobody")],
                    ops=[alter_client_quotas.OpData(key="producer_byte_rate", value=1e9)],
                )
            ],
            validate_only=True,
        ),
    ),
    Access(
        "describe-scram-credentials",
        0,
        (cluster(DESCRIBE),),
        lambda g: describe_user_scram_credentials.DescribeUserScramCredentialsRequest(
            users=[describe_user_scram_credentials.UserName(name="nobody")]
        ),
    ),
    Access(
        "alter-scram-credentials",
        0,
        (cluster(ALTER),),
        lambda g: alter_user_scram_credentials.AlterUserScramCredentialsRequest(
            deletions=[alter_user_scram_credentials.ScramCredentialDeletion(name="nobody", mechanism=1)]
        ),
    ),
    Access(
        "update-features",
        1,
        (cluster(ALTER),),
        lambda g: update_features.UpdateFeaturesRequest(
            timeout_ms=60_000,
            feature_updates=[
                update_features.FeatureUpdateKey(feature="no.such", max_version_level=1, upgrade_type=1)
            ],
            validate_only=True,
        ),
        shown=_codes_only,
    ),
    Access(
        "describe-cluster",
        1,
        (cluster(DESCRIBE), cluster(ALTER)),
        lambda g: describe_cluster.DescribeClusterRequest(include_cluster_authorized_operations=True),
    ),
    Access(
        "describe-producers",
        0,
        (topic(READ),),
        lambda g: describe_producers.DescribeProducersRequest(
            topics=[
                describe_producers.TopicRequest(name=name, partition_indexes=[0])
                for name in (g.topic, g.other)
            ]
        ),
    ),
    Access(
        "describe-transactions",
        0,
        (transaction(DESCRIBE), topic(DESCRIBE)),
        lambda g: describe_transactions.DescribeTransactionsRequest(transactional_ids=[g.transaction]),
        before=Ground.begin_transaction,
        after=Ground.end_transaction,
    ),
    Access(
        "list-transactions",
        1,
        (transaction(DESCRIBE),),
        lambda g: list_transactions.ListTransactionsRequest(producer_id_filters=[g.producer]),
        before=Ground.begin_transaction,
        after=Ground.end_transaction,
    ),
    Access(
        "consumer-group-heartbeat",
        1,
        (group(READ), topic(DESCRIBE)),
        lambda g: consumer_group_heartbeat.ConsumerGroupHeartbeatRequest(
            group_id=g.group,
            member_id="0123456789abcdefghijkl",
            member_epoch=0,
            rebalance_timeout_ms=30_000,
            subscribed_topic_names=[g.topic],
            topic_partitions=[],
        ),
        shown=_new_member,
    ),
    Access(
        "consumer-group-describe",
        0,
        (group(DESCRIBE), topic(DESCRIBE)),
        lambda g: consumer_group_describe.ConsumerGroupDescribeRequest(
            group_ids=[g.group], include_authorized_operations=True
        ),
        before=Ground.commit,
    ),
    Access(
        "list-config-resources",
        0,
        (cluster(DESCRIBE_CONFIGS),),
        lambda g: list_config_resources.ListConfigResourcesRequest(),
    ),
    Access(
        "describe-topic-partitions",
        0,
        (topic(DESCRIBE),),
        lambda g: describe_topic_partitions.DescribeTopicPartitionsRequest(
            topics=[
                describe_topic_partitions.TopicRequest(name=name) for name in (g.topic, g.other, g.missing)
            ],
            response_partition_limit=100,
        ),
    ),
)
