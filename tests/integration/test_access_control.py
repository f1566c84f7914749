"""Access control on a running broker: what is hidden, kept and told, and that rules act at once."""

from __future__ import annotations

import json
import logging
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from tests.rigs.guarded_broker import ADDRESSES, ALICE, BOB, OPTIONS, ROOT, GuardedBroker, rule
from tests.rigs.raw_client import RawClient
from tests.rigs.raw_topic import batch

from tidelog.broker.access.authorized_operations import CLUSTER_OPERATIONS, NOT_ASKED, TOPIC_OPERATIONS
from tidelog.broker.app import Broker
from tidelog.config.broker_config import BrokerConfig
from tidelog.controller.config_changes import ResourceType as ConfigType
from tidelog.errors import ConfigError, ErrorCode
from tidelog.ids import ZERO_UUID
from tidelog.records.batch import iter_batches
from tidelog.records.record import decode_batch
from tidelog.security.acls.model import (
    CLUSTER_NAME,
    AclBinding,
    AclEntry,
    Operation,
    PatternType,
    Permission,
    ResourcePattern,
    ResourceType,
)
from tidelog.testing.broker_thread import BrokerThread
from tidelog.wire.messages.consumer_group_heartbeat import (
    ConsumerGroupHeartbeatRequest,
    ConsumerGroupHeartbeatResponse,
)
from tidelog.wire.messages.create_acls import AclCreation, CreateAclsRequest, CreateAclsResponse
from tidelog.wire.messages.create_topics import CreatableTopic, CreateTopicsRequest, CreateTopicsResponse
from tidelog.wire.messages.delete_acls import DeleteAclsFilter, DeleteAclsRequest, DeleteAclsResponse
from tidelog.wire.messages.delete_topics import (
    DeletableTopicResult,
    DeleteTopicsRequest,
    DeleteTopicsResponse,
    DeleteTopicState,
)
from tidelog.wire.messages.describe_acls import DescribeAclsRequest, DescribeAclsResponse
from tidelog.wire.messages.describe_cluster import DescribeClusterRequest, DescribeClusterResponse
from tidelog.wire.messages.fetch import FetchPartition, FetchRequest, FetchResponse, FetchTopic
from tidelog.wire.messages.find_coordinator import FindCoordinatorRequest, FindCoordinatorResponse
from tidelog.wire.messages.incremental_alter_configs import (
    AlterableConfig,
    AlterConfigsResource,
    IncrementalAlterConfigsRequest,
    IncrementalAlterConfigsResponse,
)
from tidelog.wire.messages.metadata import MetadataRequest, MetadataRequestTopic, MetadataResponse
from tidelog.wire.messages.produce import (
    PartitionProduceData,
    ProduceRequest,
    ProduceResponse,
    TopicProduceData,
)

TOPIC, GROUP, CLUSTER = ResourceType.TOPIC, ResourceType.GROUP, ResourceType.CLUSTER
Op, E = Operation, ErrorCode
NAMES = ("orders", "orders-eu", "payments")


@pytest.fixture(scope="module")
def broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[GuardedBroker]:
    with GuardedBroker(tmp_path_factory.mktemp("guarded") / "data") as broker:
        create(broker, *NAMES)
        yield broker


def create(broker: GuardedBroker, *names: str) -> None:
    topics = [CreatableTopic(name=name, num_partitions=1, replication_factor=1) for name in names]
    with broker.connect(ROOT) as root:
        made = root.ask(7, CreateTopicsRequest(topics=topics), CreateTopicsResponse)
        assert all(each.error_code == 0 for each in made.topics)


def all_topics(broker: GuardedBroker, *, operations: bool = False) -> MetadataResponse:
    asked = MetadataRequest(topics=None, include_topic_authorized_operations=operations)
    with broker.connect() as client:
        return client.ask(9, asked, MetadataResponse)


def produce_to(*names: str) -> ProduceRequest:
    part = PartitionProduceData(index=0, records=batch(b"x"))
    topics = [TopicProduceData(name=name, partition_data=[part]) for name in names]
    return ProduceRequest(acks=1, timeout_ms=1000, topic_data=topics)


def produced(broker: GuardedBroker, client: RawClient, name: str, *, by_id: bool) -> int:
    """The error that a record for a topic is answered with, the topic called by its id or its name."""
    request = produce_to(name)
    if by_id:
        request.topic_data[0].topic_id = broker.thread.call(lambda inner: inner.image.topics[name].id)
    answer = client.ask(13 if by_id else 9, request, ProduceResponse)
    return answer.responses[0].partition_responses[0].error_code


def outcomes(response: ProduceResponse) -> dict[str, int]:
    return {each.name: each.partition_responses[0].error_code for each in response.responses}


def test_a_list_of_all_topics_has_those_that_may_be_described(broker: GuardedBroker) -> None:
    broker.allow()
    assert all_topics(broker).topics == []
    broker.allow(rule(TOPIC, "orders", Op.READ, prefixed=True))
    assert {each.name for each in all_topics(broker).topics} == {"orders", "orders-eu"}
    denied = rule(TOPIC, "orders-eu", Op.DESCRIBE, deny=True)
    broker.allow(rule(TOPIC, "*", Op.DESCRIBE), denied)
    assert {each.name for each in all_topics(broker).topics} >= {"orders", "payments"}
    assert "orders-eu" not in {each.name for each in all_topics(broker).topics}


@pytest.mark.parametrize("create", [False, True])
@pytest.mark.parametrize(
    "names", [("absent-1", "payments", "absent-2"), ("payments", "absent-1", "absent-2")]
)
def test_the_order_of_metadata_does_not_tell_which_hidden_topics_there_are(
    broker: GuardedBroker, names: tuple[str, ...], create: bool
) -> None:
    broker.allow(rule(TOPIC, "orders", Op.DESCRIBE), rule(TOPIC, "nothing", Op.DESCRIBE))
    topics = [MetadataRequestTopic(name=name) for name in (names[0], "nothing", *names[1:], "orders")]
    asked = MetadataRequest(topics=topics, allow_auto_topic_creation=create)
    with broker.connect() as client:
        answered = client.ask(12, asked, MetadataResponse).topics
    # As in Kafka: what there is, what there is not, what may not be known of.
    assert [each.name for each in answered] == ["orders", "nothing", *names]
    assert {each.error_code for each in answered[2:]} == {E.TOPIC_AUTHORIZATION_FAILED}


def test_a_topic_that_may_not_be_described_is_the_same_whether_it_exists_or_not(
    broker: GuardedBroker,
) -> None:
    broker.allow()
    topics = [MetadataRequestTopic(name=name) for name in ("orders", "nothing")]
    with broker.connect() as client:
        answer = client.ask(
            12, MetadataRequest(topics=topics, include_topic_authorized_operations=True), MetadataResponse
        )
    for each in answer.topics:
        assert each.error_code == E.TOPIC_AUTHORIZATION_FAILED
        assert each.topic_id == ZERO_UUID
        assert each.partitions == []
        assert each.topic_authorized_operations == NOT_ASKED


def test_a_topic_that_is_being_deleted_is_still_guarded_by_its_id(broker: GuardedBroker) -> None:
    """Its name has gone from the metadata, its logs go one by one."""
    wanted = CreatableTopic(name="leaving", num_partitions=2, replication_factor=1)
    with broker.connect(ROOT) as root:
        root.ask(7, CreateTopicsRequest(topics=[wanted]), CreateTopicsResponse)
        topic_id = broker.thread.call(lambda inner: inner.image.topics["leaving"].id)
        parts = [PartitionProduceData(index=index, records=batch(b"x")) for index in (0, 1)]
        topics = [TopicProduceData(topic_id=topic_id, partition_data=parts)]
        write = ProduceRequest(acks=1, timeout_ms=1000, topic_data=topics)
        asked = [FetchPartition(partition=index, partition_max_bytes=1000) for index in (0, 1)]
        read = FetchRequest(session_epoch=-1, topics=[FetchTopic(topic_id=topic_id, partitions=asked)])

        def codes(client: RawClient) -> tuple[list[int], list[int]]:
            written = client.ask(13, write, ProduceResponse).responses[0].partition_responses
            found = client.ask(13, read, FetchResponse).responses[0].partitions
            assert all(not each.records for each in found if each.error_code)
            by_index = sorted(found, key=lambda each: each.partition_index)
            return [each.error_code for each in written], [each.error_code for each in by_index]

        assert codes(root) == ([0, 0], [0, 0])
        steps = broker.thread.call(lambda inner: inner.partitions.apply_in_steps(["leaving"]))
        broker.thread.call(lambda inner: inner.image.drop_topic("leaving"))
        broker.allow(rule(TOPIC, "leaving", Op.DESCRIBE))
        with broker.connect() as alice:
            denied, gone = E.TOPIC_AUTHORIZATION_FAILED, E.UNKNOWN_TOPIC_ID
            assert codes(alice) == ([denied, denied], [denied, denied])
            broker.thread.call(lambda inner: next(steps))
            assert codes(alice) == ([denied, denied], [denied, denied])
            assert codes(root) == ([gone, 0], [gone, 0])
            broker.thread.call(lambda inner: list(steps))
            assert codes(alice) == codes(root) == ([gone, gone], [gone, gone])


def test_authorized_operations_are_those_that_rules_allow(broker: GuardedBroker) -> None:
    broker.allow(rule(TOPIC, "orders", Op.READ), rule(TOPIC, "payments", Op.ALL))
    told = {
        each.name: each.topic_authorized_operations for each in all_topics(broker, operations=True).topics
    }
    assert told == {"orders": 1 << Op.READ | 1 << Op.DESCRIBE, "payments": TOPIC_OPERATIONS}
    assert all_topics(broker).topics[0].topic_authorized_operations == NOT_ASKED
    # What one client is told is not kept for another.
    with broker.connect(ROOT) as root:
        asked = MetadataRequest(topics=None, include_topic_authorized_operations=True)
        found = root.ask(9, asked, MetadataResponse)
        assert {each.topic_authorized_operations for each in found.topics} == {TOPIC_OPERATIONS}


def test_operations_of_the_cluster_need_describe(broker: GuardedBroker) -> None:
    asked = DescribeClusterRequest(include_cluster_authorized_operations=True)

    def told(*rules: AclBinding) -> int:
        broker.allow(*rules)
        with broker.connect() as client:
            return client.ask(0, asked, DescribeClusterResponse).cluster_authorized_operations

    assert told() == 0
    assert told(rule(CLUSTER, CLUSTER_NAME, Op.CREATE)) == 0
    assert told(rule(CLUSTER, CLUSTER_NAME, Op.DESCRIBE)) == 1 << Op.DESCRIBE
    assert told(rule(CLUSTER, CLUSTER_NAME, Op.ALTER)) == 1 << Op.ALTER | 1 << Op.DESCRIBE
    assert told(rule(CLUSTER, CLUSTER_NAME, Op.ALL)) == CLUSTER_OPERATIONS


def test_one_denied_topic_of_a_produce_request_does_not_harm_the_others(broker: GuardedBroker) -> None:
    broker.allow(rule(TOPIC, "orders", Op.WRITE))
    with broker.connect() as client:
        for _ in range(2):
            answer = client.ask(9, produce_to("orders", "payments", "nothing"), ProduceResponse)
            assert outcomes(answer) == {
                "orders": 0,
                "payments": E.TOPIC_AUTHORIZATION_FAILED,
                "nothing": E.TOPIC_AUTHORIZATION_FAILED,
            }
            assert all(each.partition_responses[0].log_start_offset == -1 for each in answer.responses[1:]), (
                "nothing is told of a topic that is denied"
            )


@pytest.mark.parametrize("partitions", [1, 300])
def test_a_long_transactional_id_is_refused_in_an_answer_of_any_width(
    broker: GuardedBroker, caplog: pytest.LogCaptureFixture, partitions: int
) -> None:
    """A request about more than 256 partitions is carried out in slices, and refused in the same words."""
    broker.allow(rule(TOPIC, "orders", Op.WRITE))
    records = batch(b"x", producer_id=1, producer_epoch=0, base_sequence=0, transactional=True)
    parts = [PartitionProduceData(index=index, records=records) for index in range(partitions)]
    request = ProduceRequest(
        transactional_id="t" * 32_767,
        acks=-1,
        timeout_ms=1000,
        topic_data=[TopicProduceData(name="orders", partition_data=parts)],
    )
    with broker.connect() as client:
        answer = client.ask(9, request, ProduceResponse)
    found = [
        (each.index, each.error_code, each.error_message) for each in answer.responses[0].partition_responses
    ]
    code = int(E.TRANSACTIONAL_ID_AUTHORIZATION_FAILED)
    assert found == [(index, code, None) for index in range(partitions)]
    assert [each.getMessage() for each in caplog.records if each.exc_info] == []


@pytest.mark.parametrize("by_id", [False, True])
def test_rules_act_at_once_on_connections_that_are_open(broker: GuardedBroker, *, by_id: bool) -> None:
    with broker.connect() as client:
        for allowed in (True, False, True, False):
            broker.allow(*([rule(TOPIC, "orders", Op.WRITE)] if allowed else []))
            for _ in range(3):
                code = produced(broker, client, "orders", by_id=by_id)
                assert code == (0 if allowed else E.TOPIC_AUTHORIZATION_FAILED)


def test_hosts_of_rules_are_those_that_clients_come_from(broker: GuardedBroker) -> None:
    for host, code in ((ADDRESSES[ALICE], 0), (ADDRESSES[BOB], E.TOPIC_AUTHORIZATION_FAILED)):
        broker.allow(rule(TOPIC, "orders", Op.WRITE, host=host))
        with broker.connect() as client:
            assert outcomes(client.ask(9, produce_to("orders"), ProduceResponse)) == {"orders": code}


def test_a_fetch_waits_for_what_may_be_read_and_says_nothing_of_the_rest(broker: GuardedBroker) -> None:
    broker.allow(rule(TOPIC, "orders", Op.READ))
    parts = [FetchPartition(partition=0, fetch_offset=1 << 40, partition_max_bytes=1000)]
    with broker.connect() as client:
        denied = FetchRequest(
            max_wait_ms=30_000, min_bytes=1, topics=[FetchTopic(topic="payments", partitions=parts)]
        )
        answer = client.ask(12, denied, FetchResponse)
        found = answer.responses[0].partitions[0]
        assert found.error_code == E.TOPIC_AUTHORIZATION_FAILED
        assert (found.high_watermark, found.log_start_offset) == (-1, -1)

        with broker.connect(ROOT) as root:
            root.ask(9, produce_to("payments"), ProduceResponse)
        parts = [FetchPartition(partition=0, fetch_offset=0, partition_max_bytes=1000)]
        both = FetchRequest(
            max_wait_ms=1,
            min_bytes=1,
            topics=[FetchTopic(topic=name, partitions=parts) for name in ("payments", "orders")],
        )
        by_name = {each.topic: each.partitions[0] for each in client.ask(12, both, FetchResponse).responses}
        assert by_name["payments"].error_code == E.TOPIC_AUTHORIZATION_FAILED
        assert not by_name["payments"].records
        assert by_name["orders"].error_code == 0


def test_an_expression_finds_no_topic_that_may_not_be_described(broker: GuardedBroker) -> None:
    with broker.connect(ROOT) as root:
        listed = root.ask(12, MetadataRequest(topics=None), MetadataResponse)
        asked = FindCoordinatorRequest(coordinator_keys=["readers"])
        while root.ask(4, asked, FindCoordinatorResponse).coordinators[0].error_code:
            time.sleep(0.01)
    ids = {each.topic_id: each.name for each in listed.topics}
    broker.allow(rule(GROUP, "readers", Op.READ), rule(TOPIC, "orders-eu", Op.DESCRIBE))
    with broker.connect() as client:
        beat = ConsumerGroupHeartbeatRequest(
            group_id="readers",
            member_id="a",
            rebalance_timeout_ms=30_000,
            subscribed_topic_names=[],
            subscribed_topic_regex="orders.*",
            topic_partitions=[],
        )
        deadline_s = time.monotonic() + 30
        while True:
            answer = client.ask(1, beat, ConsumerGroupHeartbeatResponse)
            if answer.error_code in (E.COORDINATOR_LOAD_IN_PROGRESS, E.NOT_COORDINATOR):
                assert time.monotonic() < deadline_s
                continue
            assert answer.error_code == E.NONE, answer
            if answer.assignment is not None and answer.assignment.topic_partitions:
                break
            assert time.monotonic() < deadline_s
            beat = ConsumerGroupHeartbeatRequest(
                group_id="readers", member_id="a", member_epoch=answer.member_epoch, topic_partitions=[]
            )
        assert [ids[each.topic_id] for each in answer.assignment.topic_partitions] == ["orders-eu"]


def test_a_topic_that_is_deleted_by_its_id_keeps_its_name_to_itself(broker: GuardedBroker) -> None:
    topic_id = broker.thread.call(lambda inner: inner.image.topics["orders"].id)
    asked = DeleteTopicsRequest(topics=[DeleteTopicState(name=None, topic_id=topic_id)], timeout_ms=9000)

    def told(*rules: AclBinding) -> DeletableTopicResult:
        broker.allow(*rules)
        with broker.connect() as client:
            return client.ask(6, asked, DeleteTopicsResponse).responses[0]

    hidden = told()
    assert (hidden.error_code, hidden.name) == (E.TOPIC_AUTHORIZATION_FAILED, None)
    assert "orders" not in (hidden.error_message or "")
    known = told(rule(TOPIC, "orders", Op.DESCRIBE))
    assert (known.error_code, known.name) == (E.TOPIC_AUTHORIZATION_FAILED, "orders")


WEAKENING = {
    "super.users": "User:alice",
    "authorizer.class.name": "",
    "allow.everyone.if.no.acl.found": "true",
    "tidelog.audit.log.file": "/dev/null",
    "tidelog.audit.log.topic": "elsewhere",
    "listeners": "PLAINTEXT://0.0.0.0:0",
    "listener.security.protocol.map": "PLAINTEXT:PLAINTEXT",
    "tidelog.bootstrap.user": "alice:x",
    "delegation.token.secret.key": "x",
    "password.encoder.secret": "x",
    "ssl.client.auth": "none",
    "listener.name.plaintext.ssl.client.auth": "none",
    "ssl.principal.mapping.rules": "DEFAULT",
    "sasl.oauthbearer.jwks.endpoint.url": "http://localhost/",
    "tidelog.oauthbearer.allowed.urls": "http://localhost/",
    "zookeeper.set.acl": "false",
    "connection.failed.authentication.delay.ms": "0",
    "tidelog.authentication.timeout.ms": "1",
}


def altered(client: RawClient, kind: int, resource: str, name: str, value: str) -> int:
    change = AlterableConfig(name=name, value=value)
    resources = [AlterConfigsResource(resource_type=kind, resource_name=resource, configs=[change])]
    asked = IncrementalAlterConfigsRequest(resources=resources)
    return client.ask(1, asked, IncrementalAlterConfigsResponse).responses[0].error_code


def test_nobody_weakens_what_protects_by_changing_options(broker: GuardedBroker) -> None:
    """Without the right nothing is changed, and with it only what Kafka lets change, too."""
    every = [(ConfigType.BROKER, name, value) for name, value in WEAKENING.items()]
    loggers = [(ConfigType.BROKER_LOGGER, name, "FATAL") for name in ("kafka.authorizer.logger", "ROOT")]
    broker.allow(rule(TOPIC, "*", Op.ALL), rule(GROUP, "*", Op.ALL))
    with broker.connect() as alice:
        denied = {altered(alice, kind, "1", name, value) for kind, name, value in (*every, *loggers)}
        assert denied == {E.CLUSTER_AUTHORIZATION_FAILED}
        broker.allow(rule(CLUSTER, CLUSTER_NAME, Op.ALTER_CONFIGS))
        for resource in ("1", ""):
            refused = {altered(alice, kind, resource, name, value) for kind, name, value in every}
            assert refused == {E.INVALID_REQUEST}


def test_a_denial_is_logged_with_the_rule_that_decided(
    broker: GuardedBroker, caplog: pytest.LogCaptureFixture
) -> None:
    # Of each principal some denials a second are logged, and tests before this one have had Alice's.
    denying = rule(TOPIC, "pay", Op.WRITE, deny=True, prefixed=True, principal=BOB)
    broker.allow(rule(TOPIC, "payments", Op.WRITE, principal=BOB), denying)
    with caplog.at_level(logging.INFO, "kafka.authorizer.logger"), broker.connect(BOB) as client:
        client.ask(9, produce_to("payments"), ProduceResponse)
        all_topics(broker)
    (line,) = [each.getMessage() for each in caplog.records if each.name == "kafka.authorizer.logger"]
    assert line == (
        "Principal = User:bob is Denied operation = WRITE from host = 127.0.0.3 on resource = "
        "Topic:LITERAL:payments based on: DENY WRITE to User:bob from any host on TOPIC:PREFIXED:pay"
    )


@pytest.mark.parametrize("by_id", [False, True])
def test_at_debug_everything_that_is_allowed_is_logged_each_time(
    broker: GuardedBroker, caplog: pytest.LogCaptureFixture, *, by_id: bool
) -> None:
    broker.allow(rule(TOPIC, "orders", Op.WRITE))
    with caplog.at_level(logging.DEBUG, "kafka.authorizer.logger"), broker.connect() as client:
        for _ in range(2):
            assert produced(broker, client, "orders", by_id=by_id) == E.NONE
    allowed = [each for each in caplog.records if "is Allowed operation = WRITE" in each.getMessage()]
    assert len(allowed) == 2


# Requests about rules


def creation(
    name: str = "orders",
    *,
    kind: int = TOPIC,
    pattern: int = PatternType.LITERAL,
    principal: str = "User:alice",
    operation: int = Op.READ,
    permission: int = Permission.ALLOW,
) -> AclCreation:
    return AclCreation(
        resource_type=kind,
        resource_name=name,
        resource_pattern_type=pattern,
        principal=principal,
        host="*",
        operation=operation,
        permission_type=permission,
    )


ANY: dict[str, Any] = {
    "pattern_type_filter": 1,
    "principal_filter": None,
    "host_filter": None,
    "operation": 1,
    "permission_type": 1,
}
EVERYTHING = DescribeAclsRequest(resource_type_filter=1, resource_name_filter=None, **ANY)


def described(broker: GuardedBroker, asked: DescribeAclsRequest = EVERYTHING) -> set[AclBinding]:
    with broker.connect(ROOT) as root:
        answer = root.ask(3, asked, DescribeAclsResponse)
    assert (answer.error_code, answer.error_message) == (0, None)
    return {
        AclBinding(
            ResourcePattern(
                ResourceType(each.resource_type), each.resource_name, PatternType(each.pattern_type)
            ),
            AclEntry(acl.principal, acl.host, Operation(acl.operation), Permission(acl.permission_type)),
        )
        for each in answer.resources
        for acl in each.acls
    }


@pytest.mark.parametrize("version", [1, 2, 3])
def test_rules_are_created_described_and_deleted(broker: GuardedBroker, version: int) -> None:
    broker.allow()
    creations = [creation(), creation("pay", pattern=PatternType.PREFIXED), creation(operation=Op.WRITE)]
    with broker.connect(ROOT) as root:
        made = root.ask(version, CreateAclsRequest(creations=creations), CreateAclsResponse)
        assert [each.error_code for each in made.results] == [0, 0, 0]
        orders, pay = rule(TOPIC, "orders", Op.READ), rule(TOPIC, "pay", Op.READ, prefixed=True)
        written = rule(TOPIC, "orders", Op.WRITE)
        assert described(broker) == {orders, pay, written}
        matching = {**ANY, "pattern_type_filter": PatternType.MATCH}
        under = DescribeAclsRequest(resource_type_filter=TOPIC, resource_name_filter="payments", **matching)
        assert described(broker, under) == {pay}
        with broker.connect() as alice:
            assert outcomes(alice.ask(9, produce_to("orders"), ProduceResponse)) == {"orders": 0}
        gone = DeleteAclsFilter(resource_type_filter=TOPIC, resource_name_filter="orders", **ANY)
        removed = root.ask(version, DeleteAclsRequest(filters=[gone]), DeleteAclsResponse)
        assert {each.operation for each in removed.filter_results[0].matching_acls} == {Op.READ, Op.WRITE}
    assert described(broker) == {pay}


@pytest.mark.parametrize(
    ("bad", "sentence"),
    [
        (creation(kind=ResourceType.ANY), "Invalid resourceType ANY"),
        (creation(kind=99), "Invalid resourceType UNKNOWN"),
        (creation(kind=CLUSTER), "The only valid name for the CLUSTER resource is kafka-cluster"),
        (creation(""), "Invalid empty resource name"),
        (creation(pattern=PatternType.MATCH), "Invalid patternType MATCH"),
        (creation(pattern=PatternType.ANY), "Invalid patternType ANY"),
        (creation(operation=Op.ANY), "Invalid operation ANY"),
        (creation(permission=Permission.ANY), "Invalid permissionType ANY"),
        (creation("a/b"), "must not hold a slash"),
        (creation(principal="alice"), "write it as User:alice"),
    ],
    ids=lambda value: value if isinstance(value, str) else "",
)
def test_a_rule_that_cannot_be_is_refused_alone(
    broker: GuardedBroker, bad: AclCreation, sentence: str
) -> None:
    broker.allow()
    with broker.connect(ROOT) as root:
        made = root.ask(3, CreateAclsRequest(creations=[bad, creation()]), CreateAclsResponse)
    assert [each.error_code for each in made.results] == [E.INVALID_REQUEST, 0]
    assert sentence in (made.results[0].error_message or "")
    assert described(broker) == {rule(TOPIC, "orders", Op.READ)}


def test_rules_outlive_a_restart_and_the_audit_log_knows_of_them(tmp_path: Path) -> None:
    audit = tmp_path / "audit.jsonl"
    options = {"tidelog.audit.log.file": str(audit)}
    with GuardedBroker(tmp_path / "data", options) as broker:
        create(broker, "orders")
        with broker.connect(ROOT) as root:
            root.ask(3, CreateAclsRequest(creations=[creation(operation=Op.WRITE)]), CreateAclsResponse)
    with GuardedBroker(tmp_path / "data", options) as broker:
        acls = broker.thread.call(lambda inner: list(inner.authorization.acls.rules))  # type: ignore[union-attr]
        assert acls == [rule(TOPIC, "orders", Op.WRITE)]
        with broker.connect() as client:
            all_topics(broker)
            assert outcomes(client.ask(9, produce_to("orders"), ProduceResponse)) == {"orders": 0}
            client.ask(9, produce_to("payments"), ProduceResponse)
    lines = [json.loads(line) for line in audit.read_text().splitlines()]
    (change,) = [line for line in lines if "change" in line]
    assert change["principal"] == "User:root"
    assert change["rule"] == "ALLOW WRITE to User:alice from any host on TOPIC:LITERAL:orders"
    asked = [line for line in lines if line.get("operation") == "WRITE"]
    assert [(line["resourceName"], line["allowed"]) for line in asked] == [
        ("orders", True),
        ("payments", False),
    ]
    assert asked[1]["rule"] == "no rule covers the resource"


def test_without_an_authorizer_there_are_no_rules(tmp_path: Path) -> None:
    from tests.rigs.raw_client import RawClient

    with BrokerThread(tmp_path / "data") as thread, RawClient(thread.host, thread.port) as client:
        assert client.ask(3, EVERYTHING, DescribeAclsResponse).error_code == E.SECURITY_DISABLED
        made = client.ask(3, CreateAclsRequest(creations=[creation()]), CreateAclsResponse)
        assert made.results[0].error_code == E.SECURITY_DISABLED
        gone = DeleteAclsFilter(resource_type_filter=1, resource_name_filter=None, **ANY)
        removed = client.ask(3, DeleteAclsRequest(filters=[gone]), DeleteAclsResponse)
        assert removed.filter_results[0].error_code == E.SECURITY_DISABLED


AUDIT = {"tidelog.audit.log.topic": "audit", "num.partitions": "1"}


def audited(broker: GuardedBroker, offset: int = 0) -> list[dict[str, Any]]:
    """What is in the topic of the audit log."""

    def read(inner: Broker) -> bytes:
        if "audit" not in inner.image.topics:
            return b""
        log = inner.partitions.get("audit", 0).log
        return log.read_bytes(offset, 1 << 20) if log.log_end_offset > offset else b""

    raw = broker.thread.call(read)
    values = [record.value or b"" for pos, _ in iter_batches(raw) for record in decode_batch(raw, pos)]
    # What tests write there themselves is no entry.
    return [json.loads(value) for value in values if value.startswith(b"{")]


def wait_for_entry(broker: GuardedBroker, **wanted: object) -> dict[str, Any]:
    deadline_s = time.monotonic() + 30
    while time.monotonic() < deadline_s:
        for entry in audited(broker):
            if wanted.items() <= entry.items():
                return entry
        time.sleep(0.02)
    raise AssertionError(f"no entry has {wanted}: {audited(broker)}")


def test_the_audit_log_may_be_a_topic_that_brokers_alone_write(tmp_path: Path) -> None:
    with GuardedBroker(tmp_path / "data", AUDIT) as broker:
        create(broker, "orders")
        with broker.connect() as alice:
            alice.ask(9, produce_to("orders"), ProduceResponse)
            entry = wait_for_entry(broker, principal="User:alice", allowed=False)
            assert (entry["operation"], entry["resourceName"]) == ("WRITE", "orders")
            # Rules about the topic do not let anybody else change it.
            broker.allow(rule(TOPIC, "*", Op.ALL), rule(GROUP, "*", Op.ALL))
            assert outcomes(alice.ask(9, produce_to("audit"), ProduceResponse)) == {
                "audit": E.TOPIC_AUTHORIZATION_FAILED
            }
            wait_for_entry(broker, resourceName="audit", allowed=False)
            deletion = DeleteTopicsRequest(topics=[DeleteTopicState(name="audit")], timeout_ms=10_000)
            (deleted,) = alice.ask(6, deletion, DeleteTopicsResponse).responses
            assert deleted.error_code == E.TOPIC_AUTHORIZATION_FAILED
            assert "audit" in {each.name for each in all_topics(broker).topics}, "who may, sees it"
            # Nor does a rule about the cluster, by which all other topics can be deleted.
            topic_id = broker.thread.call(lambda inner: inner.image.topics["audit"].id)
            for rules_of_topics in ([], [rule(TOPIC, "*", Op.ALL)]):
                broker.allow(rule(CLUSTER, CLUSTER_NAME, Op.DELETE), *rules_of_topics)
                for named in (DeleteTopicState(name="audit"), DeleteTopicState(topic_id=topic_id, name=None)):
                    deletion = DeleteTopicsRequest(topics=[named], timeout_ms=10_000)
                    (deleted,) = alice.ask(6, deletion, DeleteTopicsResponse).responses
                    assert deleted.error_code == E.TOPIC_AUTHORIZATION_FAILED
            gone = DeleteTopicsRequest(topics=[DeleteTopicState(name="orders")], timeout_ms=10_000)
            assert alice.ask(6, gone, DeleteTopicsResponse).responses[0].error_code == 0
            broker.allow(rule(TOPIC, "*", Op.ALL), rule(CLUSTER, CLUSTER_NAME, Op.CLUSTER_ACTION))
            assert outcomes(alice.ask(9, produce_to("audit"), ProduceResponse)) == {"audit": 0}
            alice.ask(7, CreateTopicsRequest(topics=[CreatableTopic(name="last")]), CreateTopicsResponse)
    with GuardedBroker(tmp_path / "data", AUDIT) as broker:
        # What was written down last is there after a stop.
        assert {"operation": "CREATE", "resourceName": "last"}.items() <= audited(broker)[-1].items()


def test_writing_the_audit_log_is_not_written_down(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    """At DEBUG every use of a right is decided anew: here it would never end."""
    caplog.set_level(logging.DEBUG, "kafka.authorizer.logger")
    with GuardedBroker(tmp_path / "data", AUDIT) as broker, broker.connect(ROOT) as root:
        root.ask(9, produce_to("audit"), ProduceResponse)
        create(broker, "orders")
        wait_for_entry(broker, principal="User:root", operation="CREATE")
        for _ in range(20):
            root.ask(9, produce_to("audit"), ProduceResponse)
        create(broker, "payments")
        deadline_s = time.monotonic() + 30
        while sum(each.get("operation") == "CREATE" for each in audited(broker)) < 2:
            assert time.monotonic() < deadline_s
            time.sleep(0.02)
        assert not [each for each in audited(broker) if each.get("resourceName") == "audit"]


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({**OPTIONS, "tidelog.audit.log.topic": "no topic"}, "cannot be the name of a topic"),
        ({**OPTIONS, "tidelog.audit.log.topic": "__consumer_offsets"}, "cannot be the name of a topic"),
        ({"tidelog.audit.log.topic": "audit"}, "without authorizer.class.name"),
        ({"tidelog.audit.log.file": "/tmp/audit"}, "without authorizer.class.name"),
    ],
)
def test_an_audit_log_that_cannot_be_stops_the_start(options: dict[str, str], words: str) -> None:
    with pytest.raises(ConfigError, match=words):
        BrokerConfig(options)


def test_an_audit_log_that_cannot_be_written_stops_the_start(tmp_path: Path) -> None:
    options = {**OPTIONS, "tidelog.audit.log.file": str(tmp_path / "no" / "audit.jsonl")}
    with pytest.raises(ConfigError, match=r"tidelog\.audit\.log\.file: .* cannot be written"):
        BrokerThread(tmp_path / "data", options=options).start()
