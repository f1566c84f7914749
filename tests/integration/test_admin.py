"""The admin clients against a real broker, both faces of them; what they claim holds on Apache Kafka too."""

from __future__ import annotations

import contextlib
import inspect
import threading
import uuid
from collections.abc import Callable, Iterator
from typing import Any

import pytest
from tests.rigs.waiting import wait_until

from tidelog import (
    Admin,
    AlterConfigOp,
    AsyncAdmin,
    ClientClosedError,
    ConfigResource,
    Consumer,
    ErrorCode,
    KafkaError,
    NewPartitions,
    NewTopic,
    OffsetAndMetadata,
    OffsetSpec,
    Producer,
    ProducerFencedError,
    ResourceType,
    TopicPartition,
)
from tidelog.client._loop_thread import LoopThread
from tidelog.client.admin.cluster_resources import ElectionType, FeatureUpdate, UpgradeType
from tidelog.client.admin.group_resources import GroupState, GroupType
from tidelog.client.admin.transaction_resources import TransactionState
from tidelog.client.resources import TopicDescription

WAIT_S = 30.0


class AsyncFace:
    """An ``AsyncAdmin`` on a loop of its own, called like an ``Admin``."""

    def __init__(self, thread: LoopThread, options: dict[str, object]) -> None:
        self._admin = AsyncAdmin(options)
        self._thread = thread

    def __getattr__(self, name: str) -> Callable[..., Any]:
        method = getattr(self._admin, name)
        if not inspect.iscoroutinefunction(method):
            return method  # type: ignore[no-any-return]
        return lambda *args, **keywords: self._thread.call(method(*args, **keywords), WAIT_S, name)


@pytest.fixture(params=["sync", "async"])
def admin(request: pytest.FixtureRequest, bootstrap: str) -> Iterator[Any]:
    options: dict[str, object] = {
        "bootstrap.servers": bootstrap,
        "request.timeout.ms": 10_000,
        "default.api.timeout.ms": 20_000,
    }
    if request.param == "sync":
        with Admin(options) as client:
            yield client
        return
    with contextlib.closing(LoopThread("admin under test")) as thread:
        face = AsyncFace(thread, options)
        yield face
        face.close()


@pytest.fixture
def topic(admin: Any, topic_name: Callable[[], str]) -> str:
    """A fresh topic with two partitions."""
    name = topic_name()
    create(admin, NewTopic(name, 2, 1))
    return name


def create(admin: Any, *topics: NewTopic) -> None:
    for result in admin.create_topics(topics):
        result.raise_for_error()
    names = [topic.name for topic in topics]
    wait_until(
        lambda: all(_led(described) for described in admin.describe_topics(names).values()),
        f"leaders for {names}",
    )


def _led(described: TopicDescription) -> bool:
    return described.error is None and all(partition.leader is not None for partition in described.partitions)


def code_of(result: Any) -> ErrorCode | None:
    return None if result.error is None else result.error.code


def fill(bootstrap: str, topic: str, count: int, partition: int = 0) -> None:
    with Producer(bootstrap_servers=bootstrap) as producer:
        sent = [producer.send(topic, b"value", partition=partition) for _ in range(count)]
        for future in sent:
            future.result(WAIT_S)


# -- topics


def test_a_topic_is_created_described_grown_and_deleted(admin: Any, topic_name: Callable[[], str]) -> None:
    name = topic_name()
    (made,) = admin.create_topics([NewTopic(name, 2, 1, configs={"retention.ms": "60000"})])
    assert (made.name, made.error, made.partitions, made.replication_factor) == (name, None, 2, 1)
    wait_until(lambda: _led(admin.describe_topics([name])[name]), "the topic")
    described = admin.describe_topics([name])[name]
    assert (described.topic_id, len(described.partitions)) == (made.topic_id, 2)
    assert name in {each.name for each in admin.list_topics()}

    (grown,) = admin.create_partitions({name: 4})
    assert grown.error is None
    wait_until(lambda: len(admin.describe_topics([name])[name].partitions) == 4, "four partitions")

    (gone,) = admin.delete_topics([name])
    assert gone.error is None
    wait_until(lambda: name not in {each.name for each in admin.list_topics()}, "the topic's end")
    missing = admin.describe_topics([name])[name]
    assert missing.error is not None
    assert missing.error.code is ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    assert missing.partitions == ()
    with pytest.raises(KafkaError, match="does not exist"):
        missing.raise_for_error()


def test_a_topic_can_be_deleted_by_its_id(admin: Any, topic: str) -> None:
    topic_id = admin.describe_topics([topic])[topic].topic_id
    (gone,) = admin.delete_topics([topic_id])
    assert (gone.error, gone.topic_id) == (None, topic_id)
    wait_until(lambda: topic not in {each.name for each in admin.list_topics()}, "the topic's end")


def test_one_bad_topic_does_not_hide_the_others(
    admin: Any, topic: str, topic_name: Callable[[], str]
) -> None:
    fresh = topic_name()
    results = {
        each.name: each for each in admin.create_topics([NewTopic(topic, 1, 1), NewTopic(fresh, 1, 1)])
    }
    assert code_of(results[topic]) is ErrorCode.TOPIC_ALREADY_EXISTS
    assert results[fresh].error is None
    with pytest.raises(KafkaError, match=topic):
        results[topic].raise_for_error()


def test_validating_creates_nothing(admin: Any, topic_name: Callable[[], str]) -> None:
    name = topic_name()
    (checked,) = admin.create_topics([NewTopic(name, 3, 1)], validate_only=True)
    assert checked.error is None
    assert name not in {each.name for each in admin.list_topics()}


def test_new_partitions_go_to_the_brokers_named(admin: Any, topic: str) -> None:
    broker = admin.describe_cluster().nodes[0].id
    (grown,) = admin.create_partitions({topic: NewPartitions(3, [[broker]])})
    assert grown.error is None
    wait_until(lambda: len(admin.describe_topics([topic])[topic].partitions) == 3, "three partitions")
    assert admin.describe_topics([topic])[topic].partitions[2].replicas == (broker,)
    (refused,) = admin.create_partitions({topic: NewPartitions(4, [[broker + 1000]])})
    assert code_of(refused) is ErrorCode.INVALID_REPLICA_ASSIGNMENT


def test_offsets_are_found_and_records_deleted(admin: Any, bootstrap: str, topic: str) -> None:
    fill(bootstrap, topic, 5)
    first, second = TopicPartition(topic, 0), TopicPartition(topic, 1)
    ends = admin.list_offsets({first: OffsetSpec.LATEST, second: OffsetSpec.LATEST})
    assert (ends[first].offset, ends[second].offset) == (5, 0)
    assert admin.delete_records({first: 3})[first].low_watermark == 3
    assert admin.list_offsets({first: OffsetSpec.EARLIEST})[first].offset == 3
    absent = TopicPartition(topic, 99)
    assert code_of(admin.delete_records({absent: 0})[absent]) is ErrorCode.UNKNOWN_TOPIC_OR_PARTITION


# -- configs


@pytest.mark.parametrize(
    ("kind", "option", "value"),
    [
        (ResourceType.TOPIC, "retention.ms", "123456"),
        (ResourceType.GROUP, "consumer.session.timeout.ms", "46000"),
    ],
)
def test_configs_of_topics_and_groups_are_changed_and_read_back(
    admin: Any, topic: str, kind: ResourceType, option: str, value: str
) -> None:
    resource = ConfigResource(kind, topic)
    (changed,) = admin.alter_configs({resource: [AlterConfigOp(option, value)]})
    assert changed.error is None

    def current() -> str | None:
        (described,) = admin.describe_configs([resource], names=[option])
        described.raise_for_error()
        (entry,) = described.entries
        found: str | None = entry.value
        return found

    wait_until(lambda: current() == value, f"{option}={value}")
    (refused,) = admin.alter_configs({resource: [AlterConfigOp(option, "soon")]})
    assert code_of(refused) is ErrorCode.INVALID_CONFIG


def test_what_has_configs_is_listed_by_type(admin: Any, topic: str) -> None:
    listed = admin.list_config_resources([ResourceType.TOPIC])
    assert ConfigResource(ResourceType.TOPIC, topic) in listed
    assert {each.type for each in listed} == {ResourceType.TOPIC}


# -- groups


def test_offsets_of_a_group_are_set_read_and_forgotten(admin: Any, bootstrap: str, topic: str) -> None:
    fill(bootstrap, topic, 5)
    group = f"group-{uuid.uuid4().hex}"
    first, second = TopicPartition(topic, 0), TopicPartition(topic, 1)
    results = admin.alter_group_offsets(group, {first: OffsetAndMetadata(2, 0, "by hand"), second: 0})
    assert [each.error for each in results] == [None, None]
    committed = admin.list_group_offsets([group])[group].offsets
    assert (committed[first].offset, committed[first].metadata, committed[second].offset) == (2, "by hand", 0)
    assert admin.describe_group_lag([group])[group].total == 3
    assert group in {each.group_id for each in admin.list_groups(states=[GroupState.EMPTY]).groups}

    (forgotten,) = admin.delete_group_offsets(group, [second])
    assert forgotten.error is None
    assert set(admin.list_group_offsets([group])[group].offsets) == {first}
    (deleted,) = admin.delete_groups([group])
    assert deleted.error is None
    assert admin.list_group_offsets([group])[group].offsets == {}


def test_a_group_with_members_is_described_and_not_deleted(admin: Any, bootstrap: str, topic: str) -> None:
    group = f"group-{uuid.uuid4().hex}"
    with Consumer(bootstrap_servers=bootstrap, group_id=group, client_id="reader") as consumer:
        consumer.subscribe([topic])
        wait_until(lambda: bool(consumer.poll(0.1)) or len(consumer.assignment()) == 2, "an assignment")
        described = admin.describe_groups([group])[group]
        assert (described.state, described.type) == (GroupState.STABLE, GroupType.CLASSIC)
        (member,) = described.members
        assert member.client_id == "reader"
        assert set(member.assignment) == {TopicPartition(topic, 0), TopicPartition(topic, 1)}
        (refused,) = admin.delete_groups([group])
        assert code_of(refused) is ErrorCode.NON_EMPTY_GROUP


@pytest.mark.parametrize("everybody", [False, True])
def test_members_are_removed_by_instance_id_or_all_at_once(
    admin: Any, bootstrap: str, topic: str, everybody: bool
) -> None:
    group = f"group-{uuid.uuid4().hex}"
    with Consumer(bootstrap_servers=bootstrap, group_id=group, group_instance_id="desk-1") as consumer:
        consumer.subscribe([topic])
        wait_until(lambda: bool(consumer.poll(0.1)) or len(consumer.assignment()) == 2, "an assignment")
    # A static member that closes does not leave: it is still there to be removed.
    assert [each.instance_id for each in admin.describe_groups([group])[group].members] == ["desk-1"]
    if not everybody:
        (unknown,) = admin.remove_group_members(group, ["desk-2"])
        assert (unknown.instance_id, code_of(unknown)) == ("desk-2", ErrorCode.UNKNOWN_MEMBER_ID)
    (removed,) = admin.remove_group_members(group, None if everybody else ["desk-1"], reason="moved out")
    assert (removed.instance_id, removed.error) == ("desk-1", None)
    assert admin.describe_groups([group])[group].members == ()
    assert everybody is False or admin.remove_group_members(group) == []


# -- producers and transactions


def test_an_open_transaction_is_described_and_ended_by_fencing(
    admin: Any, bootstrap: str, topic: str
) -> None:
    name, place = f"tx-{uuid.uuid4().hex}", TopicPartition(topic, 0)
    producer = Producer(bootstrap_servers=bootstrap, transactional_id=name)
    try:
        producer.init_transactions()
        producer.begin_transaction()
        producer.send(topic, b"value", partition=0)
        producer.flush()
        described = admin.describe_transactions([name])[name]
        assert (described.state, described.partitions) == (TransactionState.ONGOING, (place,))
        listed = admin.list_transactions(pattern=f"{name}.*").transactions
        assert [each.transactional_id for each in listed] == [name]
        (known,) = admin.describe_producers([place])[place].producers
        assert (known.producer_id, known.txn_start_offset) == (described.producer_id, 0)

        admin.fence_producer(name)
        wait_until(
            lambda: admin.describe_transactions([name])[name].state is not TransactionState.ONGOING,
            "the transaction's end",
        )
        with pytest.raises(ProducerFencedError):
            producer.commit_transaction()
    finally:
        producer.close(0)


# -- brokers


def test_the_cluster_is_described(admin: Any) -> None:
    cluster = admin.describe_cluster()
    assert cluster.cluster_id
    assert cluster.controller in cluster.nodes


def test_log_dirs_tell_the_sizes_of_partitions(admin: Any, bootstrap: str, topic: str) -> None:
    fill(bootstrap, topic, 5)
    place = TopicPartition(topic, 0)
    broker = admin.describe_cluster().nodes[0].id
    described = admin.describe_log_dirs(partitions=[place])[broker]
    assert described.error is None
    (directory,) = [each for each in described.log_dirs if each.replicas]
    (replica,) = directory.replicas
    assert (replica.partition, replica.is_future) == (place, False)
    assert replica.size_bytes > 0
    assert place in {
        each.partition for each in admin.describe_log_dirs([broker])[broker].log_dirs[0].replicas
    }


def test_a_replica_does_not_move_to_a_directory_that_its_broker_has_not(admin: Any, topic: str) -> None:
    broker, place = admin.describe_cluster().nodes[0].id, TopicPartition(topic, 0)
    (refused,) = admin.alter_replica_log_dirs({(broker, place): "/there/is/no/such/directory"})
    assert (refused.partition, code_of(refused)) == (place, ErrorCode.LOG_DIR_NOT_FOUND)


def test_features_are_described_and_a_bad_update_changes_nothing(admin: Any) -> None:
    before = admin.describe_features()
    level = before.finalized["transaction.version"].max_version
    assert level <= before.supported["transaction.version"].max_version
    (refused,) = admin.update_features({"transaction.version": FeatureUpdate(99)}, validate_only=True)
    assert code_of(refused) is ErrorCode.INVALID_UPDATE_VERSION
    (unknown,) = admin.update_features({"no.such.feature": FeatureUpdate(1, UpgradeType.SAFE_DOWNGRADE)})
    assert unknown.feature == "no.such.feature"
    assert unknown.error is not None
    assert admin.describe_features().finalized == before.finalized


def test_elections_that_are_not_needed_are_told(admin: Any, topic: str) -> None:
    place, absent = TopicPartition(topic, 0), TopicPartition(topic, 99)
    results = {each.partition: code_of(each) for each in admin.elect_leaders([place, absent])}
    assert results == {
        place: ErrorCode.ELECTION_NOT_NEEDED,
        absent: ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
    }
    (unclean,) = admin.elect_leaders([place], ElectionType.UNCLEAN)
    assert code_of(unclean) is ErrorCode.ELECTION_NOT_NEEDED
    assert place not in {each.partition for each in admin.elect_leaders()}


def test_no_reassignment_is_under_way_and_none_can_be_given_up(admin: Any, topic: str) -> None:
    place = TopicPartition(topic, 0)
    assert admin.list_partition_reassignments([place]) == {}
    assert place not in admin.list_partition_reassignments()
    (refused,) = admin.alter_partition_reassignments({place: None})
    assert (refused.partition, code_of(refused)) == (place, ErrorCode.NO_REASSIGNMENT_IN_PROGRESS)


# -- life


def test_a_closed_client_says_so(admin: Any) -> None:
    admin.describe_cluster()
    assert admin.metrics()
    admin.close()
    with pytest.raises(ClientClosedError):
        admin.describe_cluster()


def test_many_threads_share_one_client(bootstrap: str, topic_name: Callable[[], str]) -> None:
    names = [topic_name() for _ in range(8)]
    with Admin({"bootstrap.servers": bootstrap}) as admin:
        threads = [
            threading.Thread(target=lambda name=name: create(admin, NewTopic(name, 1, 1))) for name in names
        ]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join(WAIT_S)
        assert set(names) <= {each.name for each in admin.list_topics()}
