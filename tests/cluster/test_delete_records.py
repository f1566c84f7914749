"""DeleteRecords in a cluster: the answer comes when all live replicas have deleted, or says that they have
not."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator

import pytest
from tests.rigs.cluster_thread import ClusterThread
from tests.rigs.raw_client import RawClient

from tidelog import Admin, NewTopic, Producer
from tidelog.errors import ErrorCode
from tidelog.ids import TopicPartition
from tidelog.wire.messages.delete_records import (
    DeleteRecordsPartition,
    DeleteRecordsPartitionResult,
    DeleteRecordsRequest,
    DeleteRecordsResponse,
    DeleteRecordsTopic,
)

WAIT_S = 60


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ClusterThread]:
    with ClusterThread(tmp_path_factory.mktemp("deleting"), 3) as running:
        yield running


@pytest.fixture
def topic(cluster: ClusterThread, topic_name: Callable[[], str]) -> str:
    """A topic that broker 1 leads, with ten records."""
    name = topic_name()
    with Admin(bootstrap_servers=cluster.bootstrap) as admin:
        admin.create_topics([NewTopic(name, assignments={0: [1, 2, 3]})])
    with Producer(bootstrap_servers=cluster.bootstrap, acks="all") as producer:
        for sent in [producer.send(name, b"x", partition=0) for _ in range(10)]:
            sent.result(timeout=WAIT_S)
    cluster.wait_for(lambda: cluster.partition(1, name).log.high_watermark == 10)
    return name


def delete(
    cluster: ClusterThread, topic: str, offset: int, timeout_ms: int = 30_000
) -> DeleteRecordsPartitionResult:
    request = DeleteRecordsRequest(
        topics=[
            DeleteRecordsTopic(
                name=topic, partitions=[DeleteRecordsPartition(partition_index=0, offset=offset)]
            )
        ],
        timeout_ms=timeout_ms,
    )
    with RawClient("127.0.0.1", cluster.brokers[1].advertised[0].port) as client:
        return client.ask(2, request, DeleteRecordsResponse).topics[0].partitions[0]


def starts(cluster: ClusterThread, topic: str) -> list[int]:
    return cluster.call(lambda: [cluster.partition(each, topic).log.log_start_offset for each in (1, 2, 3)])


def test_all_replicas_have_deleted_when_the_answer_comes(cluster: ClusterThread, topic: str) -> None:
    result = delete(cluster, topic, 4)
    assert (result.error_code, result.low_watermark) == (ErrorCode.NONE, 4)
    assert starts(cluster, topic) == [4, 4, 4]
    result = delete(cluster, topic, -1)
    assert (result.error_code, result.low_watermark) == (ErrorCode.NONE, 10)
    assert starts(cluster, topic) == [10, 10, 10]
    assert delete(cluster, topic, 11).error_code == ErrorCode.OFFSET_OUT_OF_RANGE


def test_the_answer_says_that_a_live_follower_has_not_deleted_in_time(
    cluster: ClusterThread, topic: str
) -> None:
    name = TopicPartition(topic, 0)
    loops = cluster.brokers[3].cluster.loops
    cluster.call(lambda: loops.stop(name))
    result = delete(cluster, topic, 4, timeout_ms=300)
    assert result.error_code == ErrorCode.REQUEST_TIMED_OUT
    assert cluster.call(lambda: cluster.partition(1, topic).log.log_start_offset) == 4

    cluster.call(lambda: loops.follow(cluster.partition(3, topic)))
    result = delete(cluster, topic, 5)
    assert (result.error_code, result.low_watermark) == (ErrorCode.NONE, 5)
    assert starts(cluster, topic) == [5, 5, 5]


def test_a_leader_that_is_one_no_more_says_so_to_those_who_wait(cluster: ClusterThread, topic: str) -> None:
    loops = cluster.brokers[3].cluster.loops
    cluster.call(lambda: loops.stop(TopicPartition(topic, 0)))
    answers: list[DeleteRecordsPartitionResult] = []
    waiting = threading.Thread(target=lambda: answers.append(delete(cluster, topic, 4)))
    waiting.start()
    cluster.wait_for(lambda: cluster.partition(1, topic).log.log_start_offset == 4)
    cluster.call(lambda: cluster.partition(1, topic).resign())
    waiting.join(WAIT_S)
    assert [each.error_code for each in answers] == [ErrorCode.NOT_LEADER_OR_FOLLOWER]


def test_nobody_waits_for_a_follower_that_is_gone(cluster: ClusterThread, topic: str) -> None:
    cluster.stop(3)
    try:
        cluster.wait_for(lambda: 3 not in cluster.brokers[1].image.brokers)
        result = delete(cluster, topic, 4)
        assert (result.error_code, result.low_watermark) == (ErrorCode.NONE, 4)
    finally:
        cluster.start(3)
    cluster.wait_for(
        lambda: starts_now(cluster, topic), lambda seen: seen == [4, 4, 4], "the start at broker 3"
    )


def starts_now(cluster: ClusterThread, topic: str) -> list[int]:
    held = [broker.partitions.by_name.get((topic, 0)) for broker in cluster.brokers.values()]
    return [each.log.log_start_offset for each in held if each is not None]
