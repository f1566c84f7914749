"""Every API with exactly one of the ACLs missing that it needs: the errors that Kafka answers, and no others.

What Kafka 3.9 answers is in its KafkaApis and ControllerApis.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import msgspec
import pytest
from tests.rigs.guarded_broker import ROOT, GuardedBroker, rule
from tests.rigs.raw_topic import batch

from tidelog.broker.access.required_access import REQUIRED
from tidelog.broker.served import SERVED
from tidelog.errors import ErrorCode
from tidelog.ids import Uuid
from tidelog.security.acls.model import CLUSTER_NAME, AclBinding, Operation, ResourceType
from tidelog.wire.api import ApiKey
from tidelog.wire.messages import add_offsets_to_txn as aot
from tidelog.wire.messages import add_partitions_to_txn as apt
from tidelog.wire.messages import alter_configs as ac
from tidelog.wire.messages import alter_partition_reassignments as apr
from tidelog.wire.messages import alter_replica_log_dirs as ard
from tidelog.wire.messages import consumer_group_describe as cgd
from tidelog.wire.messages import consumer_group_heartbeat as cgh
from tidelog.wire.messages import create_acls as ca
from tidelog.wire.messages import create_partitions as cp
from tidelog.wire.messages import create_topics as ct
from tidelog.wire.messages import delete_acls as da
from tidelog.wire.messages import delete_groups as dg
from tidelog.wire.messages import delete_records as dr
from tidelog.wire.messages import delete_topics as dt
from tidelog.wire.messages import describe_acls as sa
from tidelog.wire.messages import describe_configs as dc
from tidelog.wire.messages import describe_groups as sg
from tidelog.wire.messages import describe_log_dirs as dl
from tidelog.wire.messages import describe_producers as dp
from tidelog.wire.messages import describe_topic_partitions as dtp
from tidelog.wire.messages import describe_transactions as dtx
from tidelog.wire.messages import elect_leaders as el
from tidelog.wire.messages import end_txn as et
from tidelog.wire.messages import fetch as fe
from tidelog.wire.messages import find_coordinator as fc
from tidelog.wire.messages import heartbeat as hb
from tidelog.wire.messages import incremental_alter_configs as iac
from tidelog.wire.messages import init_producer_id as ip
from tidelog.wire.messages import join_group as jg
from tidelog.wire.messages import leave_group as lg
from tidelog.wire.messages import list_config_resources as lcr
from tidelog.wire.messages import list_groups as lgs
from tidelog.wire.messages import list_offsets as lo
from tidelog.wire.messages import list_partition_reassignments as lpr
from tidelog.wire.messages import list_transactions as lt
from tidelog.wire.messages import metadata as md
from tidelog.wire.messages import offset_commit as oc
from tidelog.wire.messages import offset_delete as od
from tidelog.wire.messages import offset_fetch as of
from tidelog.wire.messages import offset_for_leader_epoch as ole
from tidelog.wire.messages import produce as pr
from tidelog.wire.messages import sync_group as sy
from tidelog.wire.messages import txn_offset_commit as toc
from tidelog.wire.messages import update_features as uf
from tidelog.wire.messages import write_txn_markers as wtm
from tidelog.wire.messages.alter_client_quotas import (
    AlterClientQuotasRequest,
    AlterClientQuotasRequestEntryData,
    EntityData,
    OpData,
)
from tidelog.wire.messages.alter_user_scram_credentials import (
    AlterUserScramCredentialsRequest,
    ScramCredentialDeletion,
)
from tidelog.wire.messages.describe_client_quotas import DescribeClientQuotasRequest
from tidelog.wire.messages.describe_user_scram_credentials import DescribeUserScramCredentialsRequest
from tidelog.wire.schema import Payload

E, Op = ErrorCode, Operation
TOPIC, GROUP, ID = "orders", "readers", "tx"
T29, G30, C31, X53 = (
    E.TOPIC_AUTHORIZATION_FAILED,
    E.GROUP_AUTHORIZATION_FAILED,
    E.CLUSTER_AUTHORIZATION_FAILED,
    E.TRANSACTIONAL_ID_AUTHORIZATION_FAILED,
)
DENIALS = {T29, G30, C31, X53, E.DELEGATION_TOKEN_AUTHORIZATION_FAILED}


def topic(operation: Operation, name: str = TOPIC) -> AclBinding:
    return rule(ResourceType.TOPIC, name, operation)


def group(operation: Operation, name: str = GROUP) -> AclBinding:
    return rule(ResourceType.GROUP, name, operation)


def cluster(operation: Operation) -> AclBinding:
    return rule(ResourceType.CLUSTER, CLUSTER_NAME, operation)


def transactional_id(operation: Operation) -> AclBinding:
    return rule(ResourceType.TRANSACTIONAL_ID, ID, operation)


@dataclass(frozen=True)
class Case:
    """A request, the rules that it needs, and what is answered without each of them."""

    key: ApiKey
    version: int
    request: Callable[[Uuid], Payload]
    needs: dict[AclBinding, ErrorCode | None]
    """None: something is hidden, without an error."""
    others: list[AclBinding] = field(default_factory=list)
    """Rules that do as well, each by itself."""

    def __str__(self) -> str:
        names = "+".join(f"{need.pattern.type.name}.{need.entry.operation.name}" for need in self.needs)
        return f"{self.key.name}-{self.version}-{names}"


def case(
    key: ApiKey,
    version: int,
    request: Payload | Callable[[Uuid], Payload],
    needs: dict[AclBinding, ErrorCode | None],
    *others: AclBinding,
) -> Case:
    def build(topic_id: Uuid) -> Payload:
        return request if isinstance(request, Payload) else request(topic_id)

    return Case(key, version, build, needs, list(others))


def produce(*, transactional: bool = False) -> Payload:
    marked: dict[str, Any] = {"producer_id": 7, "producer_epoch": 0, "base_sequence": 0}
    records = batch(b"x", transactional=True, **marked) if transactional else batch(b"x")
    return pr.ProduceRequest(
        transactional_id=ID if transactional else None,
        acks=1,
        timeout_ms=1000,
        topic_data=[
            pr.TopicProduceData(
                name=TOPIC, partition_data=[pr.PartitionProduceData(index=0, records=records)]
            )
        ],
    )


def produce_by_id(topic_id: Uuid) -> Payload:
    request = produce()
    assert isinstance(request, pr.ProduceRequest)
    request.topic_data[0].name = ""
    request.topic_data[0].topic_id = topic_id
    return request


def fetch(topic_id: Uuid | None = None, *, replica_id: int = -1) -> Payload:
    partitions = [fe.FetchPartition(partition=0, partition_max_bytes=1000)]
    asked = fe.FetchTopic(topic=TOPIC, partitions=partitions)
    if topic_id is not None:
        asked = fe.FetchTopic(topic_id=topic_id, partitions=partitions)
    return fe.FetchRequest(replica_id=replica_id, topics=[asked])


def metadata(*names: str, by_id: Uuid | None = None, create: bool = False) -> Payload:
    topics = [md.MetadataRequestTopic(name=name) for name in names]
    if by_id is not None:
        topics = [md.MetadataRequestTopic(name=None, topic_id=by_id)]
    return md.MetadataRequest(topics=topics, allow_auto_topic_creation=create)


def find(key_type: int, key: str, *, many: bool) -> Payload:
    if many:
        return fc.FindCoordinatorRequest(key_type=key_type, coordinator_keys=[key])
    return fc.FindCoordinatorRequest(key_type=key_type, key=key)


def configs_of(kind: int, name: str) -> Payload:
    return dc.DescribeConfigsRequest(
        resources=[
            dc.DescribeConfigsResource(resource_type=kind, resource_name=name, configuration_keys=None)
        ]
    )


def alter(kind: int, name: str) -> Payload:
    return ac.AlterConfigsRequest(
        resources=[ac.AlterConfigsResource(resource_type=kind, resource_name=name)], validate_only=True
    )


def incremental(kind: int, name: str) -> Payload:
    return iac.IncrementalAlterConfigsRequest(
        resources=[iac.AlterConfigsResource(resource_type=kind, resource_name=name)], validate_only=True
    )


OFFSETS = [oc.OffsetCommitRequestTopic(name=TOPIC, partitions=[oc.OffsetCommitRequestPartition()])]
COMMIT = oc.OffsetCommitRequest(group_id=GROUP, topics=OFFSETS)
FETCH_OFFSETS_7 = of.OffsetFetchRequest(
    group_id=GROUP, topics=[of.OffsetFetchRequestTopic(name=TOPIC, partition_indexes=[0])]
)
FETCH_OFFSETS_9 = of.OffsetFetchRequest(
    groups=[
        of.OffsetFetchRequestGroup(
            group_id=GROUP, topics=[of.OffsetFetchRequestTopics(name=TOPIC, partition_indexes=[0])]
        )
    ]
)
NEW = ct.CreateTopicsRequest(
    topics=[ct.CreatableTopic(name="fresh", num_partitions=1, replication_factor=1)], validate_only=True
)
ADD_3 = apt.AddPartitionsToTxnRequest(
    v3_and_below_transactional_id=ID,
    v3_and_below_producer_id=1,
    v3_and_below_topics=[apt.AddPartitionsToTxnTopic(name=TOPIC, partitions=[0])],
)
ADD_4 = apt.AddPartitionsToTxnRequest(
    transactions=[
        apt.AddPartitionsToTxnTransaction(
            transactional_id=ID, topics=[apt.AddPartitionsToTxnTopic(name=TOPIC, partitions=[0])]
        )
    ]
)
BEGIN = ip.InitProducerIdRequest(
    transactional_id=ID, transaction_timeout_ms=1000, producer_id=-1, producer_epoch=-1
)
MARKERS = wtm.WriteTxnMarkersRequest(
    markers=[
        wtm.WritableTxnMarker(
            producer_id=99, topics=[wtm.WritableTxnMarkerTopic(name=TOPIC, partition_indexes=[0])]
        )
    ]
)
TXN_COMMIT = toc.TxnOffsetCommitRequest(
    transactional_id=ID,
    group_id=GROUP,
    topics=[toc.TxnOffsetCommitRequestTopic(name=TOPIC, partitions=[toc.TxnOffsetCommitRequestPartition()])],
)
NEW_RULE = ca.CreateAclsRequest(
    creations=[
        ca.AclCreation(
            resource_type=2,
            resource_name="other",
            principal="User:bob",
            host="*",
            operation=3,
            permission_type=3,
        )
    ]
)
ANY_RULE = da.DeleteAclsRequest(
    filters=[
        da.DeleteAclsFilter(
            resource_type_filter=2,
            resource_name_filter="other",
            pattern_type_filter=3,
            operation=1,
            permission_type=1,
        )
    ]
)
HEARTBEAT = cgh.ConsumerGroupHeartbeatRequest(
    group_id="members",
    member_id="AAAAAAAAAAAAAAAAAAAAAA",
    member_epoch=0,
    rebalance_timeout_ms=1000,
    subscribed_topic_names=[TOPIC],
    topic_partitions=[],
)

CASES = [
    case(ApiKey.PRODUCE, 9, produce(), {topic(Op.WRITE): T29}),
    case(ApiKey.PRODUCE, 13, produce_by_id, {topic(Op.WRITE): T29}),
    case(
        ApiKey.PRODUCE,
        9,
        produce(transactional=True),
        {topic(Op.WRITE): T29, transactional_id(Op.WRITE): X53},
    ),
    case(ApiKey.FETCH, 12, fetch(), {topic(Op.READ): T29}),
    case(ApiKey.FETCH, 17, fetch, {topic(Op.READ): T29}),
    case(ApiKey.FETCH, 12, fetch(replica_id=2), {cluster(Op.CLUSTER_ACTION): T29}),
    case(
        ApiKey.LIST_OFFSETS,
        7,
        lo.ListOffsetsRequest(
            replica_id=-1,
            topics=[lo.ListOffsetsTopic(name=TOPIC, partitions=[lo.ListOffsetsPartition(timestamp=-1)])],
        ),
        {topic(Op.DESCRIBE): T29},
        topic(Op.READ),
        topic(Op.WRITE),
    ),
    case(ApiKey.METADATA, 4, metadata(TOPIC), {topic(Op.DESCRIBE): T29}, topic(Op.ALTER), topic(Op.DELETE)),
    case(ApiKey.METADATA, 12, metadata(TOPIC), {topic(Op.DESCRIBE): T29}),
    case(ApiKey.METADATA, 12, lambda topic_id: metadata(by_id=topic_id), {topic(Op.DESCRIBE): T29}),
    case(
        ApiKey.METADATA,
        12,
        metadata("made-on-the-way", create=True),
        {topic(Op.DESCRIBE, "made-on-the-way"): T29, topic(Op.CREATE, "made-on-the-way"): T29},
    ),
    case(ApiKey.METADATA, 12, md.MetadataRequest(topics=None), {topic(Op.DESCRIBE): None}),
    case(ApiKey.OFFSET_COMMIT, 8, COMMIT, {group(Op.READ): G30, topic(Op.READ): T29}),
    case(ApiKey.OFFSET_FETCH, 7, FETCH_OFFSETS_7, {group(Op.DESCRIBE): G30, topic(Op.DESCRIBE): T29}),
    case(ApiKey.OFFSET_FETCH, 9, FETCH_OFFSETS_9, {group(Op.DESCRIBE): G30, topic(Op.DESCRIBE): T29}),
    case(ApiKey.FIND_COORDINATOR, 3, find(0, GROUP, many=False), {group(Op.DESCRIBE): G30}, group(Op.READ)),
    case(ApiKey.FIND_COORDINATOR, 4, find(0, GROUP, many=True), {group(Op.DESCRIBE): G30}),
    case(ApiKey.FIND_COORDINATOR, 4, find(1, ID, many=True), {transactional_id(Op.DESCRIBE): X53}),
    *(
        case(ApiKey.JOIN_GROUP, version, jg.JoinGroupRequest(group_id=GROUP), {group(Op.READ): G30})
        for version in (0, 5, 9)
    ),
    case(ApiKey.HEARTBEAT, 4, hb.HeartbeatRequest(group_id=GROUP), {group(Op.READ): G30}),
    case(ApiKey.LEAVE_GROUP, 1, lg.LeaveGroupRequest(group_id=GROUP), {group(Op.READ): G30}),
    case(ApiKey.LEAVE_GROUP, 5, lg.LeaveGroupRequest(group_id=GROUP), {group(Op.READ): G30}),
    case(ApiKey.SYNC_GROUP, 5, sy.SyncGroupRequest(group_id=GROUP), {group(Op.READ): G30}),
    case(ApiKey.DESCRIBE_GROUPS, 5, sg.DescribeGroupsRequest(groups=[GROUP]), {group(Op.DESCRIBE): G30}),
    case(
        ApiKey.LIST_GROUPS,
        4,
        lgs.ListGroupsRequest(),
        {group(Op.DESCRIBE): None},
        cluster(Op.DESCRIBE),
    ),
    case(
        ApiKey.CREATE_TOPICS,
        7,
        NEW,
        {topic(Op.CREATE, "fresh"): T29, topic(Op.DESCRIBE_CONFIGS, "fresh"): T29},
        cluster(Op.CREATE),
    ),
    case(
        ApiKey.DELETE_TOPICS,
        5,
        dt.DeleteTopicsRequest(topic_names=["ghost"], timeout_ms=9000),
        {topic(Op.DELETE, "ghost"): T29},
        cluster(Op.DELETE),
    ),
    case(
        ApiKey.DELETE_RECORDS,
        2,
        dr.DeleteRecordsRequest(
            topics=[dr.DeleteRecordsTopic(name=TOPIC, partitions=[dr.DeleteRecordsPartition(offset=0)])]
        ),
        {topic(Op.DELETE): T29},
    ),
    case(
        ApiKey.INIT_PRODUCER_ID,
        4,
        ip.InitProducerIdRequest(
            transactional_id=ID, transaction_timeout_ms=1000, producer_id=-1, producer_epoch=-1
        ),
        {transactional_id(Op.WRITE): X53},
    ),
    case(
        ApiKey.INIT_PRODUCER_ID,
        6,
        ip.InitProducerIdRequest(
            transactional_id=ID,
            transaction_timeout_ms=1000,
            producer_id=-1,
            producer_epoch=-1,
            enable2_pc=True,
        ),
        {transactional_id(Op.WRITE): X53, transactional_id(Op.TWO_PHASE_COMMIT): X53},
    ),
    case(
        ApiKey.INIT_PRODUCER_ID,
        4,
        ip.InitProducerIdRequest(transactional_id=None, producer_id=-1, producer_epoch=-1),
        {cluster(Op.IDEMPOTENT_WRITE): C31},
        topic(Op.WRITE, "anything"),
    ),
    case(
        ApiKey.OFFSET_FOR_LEADER_EPOCH,
        4,
        ole.OffsetForLeaderEpochRequest(
            topics=[ole.OffsetForLeaderTopic(topic=TOPIC, partitions=[ole.OffsetForLeaderPartition()])]
        ),
        {topic(Op.DESCRIBE): T29},
        cluster(Op.CLUSTER_ACTION),
    ),
    case(ApiKey.ADD_PARTITIONS_TO_TXN, 3, ADD_3, {transactional_id(Op.WRITE): X53, topic(Op.WRITE): T29}),
    case(ApiKey.ADD_PARTITIONS_TO_TXN, 4, ADD_4, {cluster(Op.CLUSTER_ACTION): C31}),
    case(
        ApiKey.ADD_OFFSETS_TO_TXN,
        3,
        aot.AddOffsetsToTxnRequest(transactional_id=ID, group_id=GROUP),
        {transactional_id(Op.WRITE): X53, group(Op.READ): G30},
    ),
    case(ApiKey.END_TXN, 3, et.EndTxnRequest(transactional_id=ID), {transactional_id(Op.WRITE): X53}),
    case(ApiKey.WRITE_TXN_MARKERS, 1, MARKERS, {cluster(Op.CLUSTER_ACTION): C31}, cluster(Op.ALTER)),
    case(
        ApiKey.TXN_OFFSET_COMMIT,
        3,
        TXN_COMMIT,
        {transactional_id(Op.WRITE): X53, group(Op.READ): G30, topic(Op.READ): T29},
    ),
    case(
        ApiKey.DESCRIBE_ACLS,
        3,
        sa.DescribeAclsRequest(resource_type_filter=1, pattern_type_filter=1, operation=1, permission_type=1),
        {cluster(Op.DESCRIBE): C31},
        cluster(Op.ALTER),
    ),
    case(ApiKey.CREATE_ACLS, 3, NEW_RULE, {cluster(Op.ALTER): C31}),
    case(ApiKey.DELETE_ACLS, 3, ANY_RULE, {cluster(Op.ALTER): C31}),
    case(ApiKey.DESCRIBE_CONFIGS, 4, configs_of(2, TOPIC), {topic(Op.DESCRIBE_CONFIGS): T29}),
    case(ApiKey.DESCRIBE_CONFIGS, 4, configs_of(4, "1"), {cluster(Op.DESCRIBE_CONFIGS): C31}),
    case(ApiKey.DESCRIBE_CONFIGS, 4, configs_of(8, "1"), {cluster(Op.DESCRIBE_CONFIGS): C31}),
    case(ApiKey.DESCRIBE_CONFIGS, 4, configs_of(32, GROUP), {group(Op.DESCRIBE_CONFIGS): G30}),
    case(ApiKey.ALTER_CONFIGS, 2, alter(2, TOPIC), {topic(Op.ALTER_CONFIGS): T29}),
    case(ApiKey.ALTER_CONFIGS, 2, alter(4, "1"), {cluster(Op.ALTER_CONFIGS): C31}),
    case(ApiKey.INCREMENTAL_ALTER_CONFIGS, 1, incremental(2, TOPIC), {topic(Op.ALTER_CONFIGS): T29}),
    case(ApiKey.INCREMENTAL_ALTER_CONFIGS, 1, incremental(8, "1"), {cluster(Op.ALTER_CONFIGS): C31}),
    case(ApiKey.INCREMENTAL_ALTER_CONFIGS, 1, incremental(32, GROUP), {group(Op.ALTER_CONFIGS): G30}),
    case(
        ApiKey.ALTER_REPLICA_LOG_DIRS,
        2,
        ard.AlterReplicaLogDirsRequest(
            dirs=[
                ard.AlterReplicaLogDir(
                    path="nowhere", topics=[ard.AlterReplicaLogDirTopic(name=TOPIC, partitions=[0])]
                )
            ]
        ),
        {cluster(Op.ALTER): C31},
    ),
    case(
        ApiKey.DESCRIBE_CLIENT_QUOTAS, 1, DescribeClientQuotasRequest(), {cluster(Op.DESCRIBE_CONFIGS): C31}
    ),
    case(
        ApiKey.ALTER_CLIENT_QUOTAS,
        1,
        AlterClientQuotasRequest(
            entries=[
                AlterClientQuotasRequestEntryData(
                    entity=[EntityData(entity_type="user", entity_name="nobody")],
                    ops=[OpData(key="producer_byte_rate", value=1e9)],
                )
            ],
            validate_only=True,
        ),
        {cluster(Op.ALTER_CONFIGS): C31},
    ),
    case(
        ApiKey.DESCRIBE_USER_SCRAM_CREDENTIALS,
        0,
        DescribeUserScramCredentialsRequest(users=None),
        {cluster(Op.DESCRIBE): C31},
    ),
    case(
        ApiKey.ALTER_USER_SCRAM_CREDENTIALS,
        0,
        AlterUserScramCredentialsRequest(deletions=[ScramCredentialDeletion(name="nobody", mechanism=1)]),
        {cluster(Op.ALTER): C31},
    ),
    case(ApiKey.DESCRIBE_LOG_DIRS, 3, dl.DescribeLogDirsRequest(topics=None), {cluster(Op.DESCRIBE): C31}),
    case(ApiKey.DESCRIBE_LOG_DIRS, 1, dl.DescribeLogDirsRequest(topics=None), {cluster(Op.DESCRIBE): None}),
    case(
        ApiKey.CREATE_PARTITIONS,
        3,
        cp.CreatePartitionsRequest(
            topics=[cp.CreatePartitionsTopic(name=TOPIC, count=2, assignments=None)],
            timeout_ms=9000,
            validate_only=True,
        ),
        {topic(Op.ALTER): T29},
    ),
    case(ApiKey.DELETE_GROUPS, 2, dg.DeleteGroupsRequest(groups_names=[GROUP]), {group(Op.DELETE): G30}),
    *(
        case(
            ApiKey.ELECT_LEADERS,
            version,
            el.ElectLeadersRequest(topic_partitions=[el.TopicPartitions(topic=TOPIC, partitions=[0])]),
            {cluster(Op.ALTER): C31},
        )
        for version in (0, 2)
    ),
    case(
        ApiKey.ALTER_PARTITION_REASSIGNMENTS,
        1,
        apr.AlterPartitionReassignmentsRequest(
            topics=[apr.ReassignableTopic(name=TOPIC, partitions=[apr.ReassignablePartition()])]
        ),
        {cluster(Op.ALTER): C31},
    ),
    case(
        ApiKey.LIST_PARTITION_REASSIGNMENTS,
        0,
        lpr.ListPartitionReassignmentsRequest(topics=None),
        {cluster(Op.DESCRIBE): C31},
    ),
    case(
        ApiKey.OFFSET_DELETE,
        0,
        od.OffsetDeleteRequest(
            group_id=GROUP,
            topics=[od.OffsetDeleteRequestTopic(name=TOPIC, partitions=[od.OffsetDeleteRequestPartition()])],
        ),
        {group(Op.DELETE): G30, topic(Op.READ): T29},
    ),
    case(ApiKey.UPDATE_FEATURES, 1, uf.UpdateFeaturesRequest(validate_only=True), {cluster(Op.ALTER): C31}),
    case(
        ApiKey.DESCRIBE_PRODUCERS,
        0,
        dp.DescribeProducersRequest(topics=[dp.TopicRequest(name=TOPIC, partition_indexes=[0])]),
        {topic(Op.READ): T29},
    ),
    case(
        ApiKey.DESCRIBE_TRANSACTIONS,
        0,
        dtx.DescribeTransactionsRequest(transactional_ids=[ID]),
        {transactional_id(Op.DESCRIBE): X53},
    ),
    case(ApiKey.LIST_TRANSACTIONS, 0, lt.ListTransactionsRequest(), {transactional_id(Op.DESCRIBE): None}),
    case(
        ApiKey.CONSUMER_GROUP_HEARTBEAT,
        0,
        HEARTBEAT,
        {group(Op.READ, "members"): G30, topic(Op.DESCRIBE): T29},
    ),
    case(
        ApiKey.CONSUMER_GROUP_DESCRIBE,
        0,
        cgd.ConsumerGroupDescribeRequest(group_ids=[GROUP]),
        {group(Op.DESCRIBE): G30},
    ),
    case(
        ApiKey.LIST_CONFIG_RESOURCES,
        1,
        lcr.ListConfigResourcesRequest(),
        {cluster(Op.DESCRIBE_CONFIGS): C31},
    ),
    case(
        ApiKey.DESCRIBE_TOPIC_PARTITIONS,
        0,
        dtp.DescribeTopicPartitionsRequest(topics=[dtp.TopicRequest(name=TOPIC)]),
        {topic(Op.DESCRIBE): T29},
    ),
    case(
        ApiKey.DESCRIBE_TOPIC_PARTITIONS,
        0,
        dtp.DescribeTopicPartitionsRequest(),
        {topic(Op.DESCRIBE): None},
    ),
]


@pytest.fixture(scope="module")
def broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[GuardedBroker]:
    data: Path = tmp_path_factory.mktemp("guarded") / "data"
    with GuardedBroker(data) as broker:
        with broker.connect(ROOT) as root:
            wanted = ct.CreatableTopic(name=TOPIC, num_partitions=1, replication_factor=1)
            made = root.ask(7, ct.CreateTopicsRequest(topics=[wanted]), ct.CreateTopicsResponse)
            assert made.topics[0].error_code == 0
            for asked in (find(0, GROUP, many=True), find(1, ID, many=True)):
                root.request(ApiKey.FIND_COORDINATOR, 4, asked)
            committed = root.ask(8, COMMIT, oc.OffsetCommitResponse)
            assert committed.topics[0].partitions[0].error_code == 0
            assert root.ask(4, BEGIN, ip.InitProducerIdResponse).error_code == 0
        yield broker


@pytest.fixture(scope="module")
def topic_id(broker: GuardedBroker) -> Uuid:
    return broker.thread.call(lambda inner: inner.image.topics[TOPIC].id)


def codes(answer: Any) -> set[int]:
    """All error codes that are anywhere in an answer."""
    found: set[int] = set()
    if isinstance(answer, list):
        for each in answer:
            found |= codes(each)
    elif isinstance(answer, msgspec.Struct):
        for name in answer.__struct_fields__:
            value = getattr(answer, name)
            if name.endswith("error_code"):
                found.add(value)
            else:
                found |= codes(value)
    return found


def denials(answer: Payload) -> set[int]:
    return codes(answer) & {int(each) for each in DENIALS}


def names_in(answer: Any) -> set[str]:
    """All text that is anywhere in an answer."""
    if isinstance(answer, str):
        return {answer}
    if isinstance(answer, list):
        return {name for each in answer for name in names_in(each)}
    if isinstance(answer, msgspec.Struct):
        fields = answer.__struct_fields__
        return {name for each in fields for name in names_in(getattr(answer, each))}
    return set()


def ask(broker: GuardedBroker, each: Case, topic_id: Uuid, *rules: AclBinding) -> Payload:
    broker.allow(*rules)
    request = each.request(topic_id)
    with broker.connect() as client:
        return client.request(each.key, each.version, request)


MISSING = [(each, missing) for each in CASES for missing in each.needs]


@pytest.mark.parametrize(("each", "missing"), MISSING, ids=str)
def test_an_api_without_one_of_its_rules_answers_as_kafka_does(
    broker: GuardedBroker, topic_id: Uuid, each: Case, missing: AclBinding
) -> None:
    granted = [need for need in each.needs if need != missing]
    answer = ask(broker, each, topic_id, *granted)
    refusal = each.needs[missing]
    assert denials(answer) == (set() if refusal is None else {refusal})
    if refusal is None:
        assert missing.pattern.name not in names_in(answer)


@pytest.mark.parametrize("each", CASES, ids=str)
def test_an_api_with_all_of_its_rules_is_not_denied(
    broker: GuardedBroker, topic_id: Uuid, each: Case
) -> None:
    answer = ask(broker, each, topic_id, *each.needs)
    assert denials(answer) == set()
    if None in each.needs.values() and each.key is not ApiKey.DESCRIBE_LOG_DIRS:
        assert next(iter(each.needs)).pattern.name in names_in(answer)


OTHERS = [(each, other) for each in CASES for other in each.others]


@pytest.mark.parametrize(("each", "other"), OTHERS, ids=str)
def test_a_rule_that_does_as_well_does(
    broker: GuardedBroker, topic_id: Uuid, each: Case, other: AclBinding
) -> None:
    assert denials(ask(broker, each, topic_id, other)) <= {T29 if each.key is ApiKey.CREATE_TOPICS else 0}


@pytest.mark.parametrize("each", CASES, ids=str)
def test_a_super_user_needs_no_rule(broker: GuardedBroker, topic_id: Uuid, each: Case) -> None:
    broker.allow()
    with broker.connect(ROOT) as client:
        assert denials(client.request(each.key, each.version, each.request(topic_id))) == set()


def test_every_api_with_needs_is_in_this_table() -> None:
    named = {each.key for each in CASES}
    assert {key for key in SERVED if REQUIRED[key].needs} == named
