"""Fetches that wait for something to happen, and records that wait to be readable."""

from __future__ import annotations

from tests.compat.side_by_side.batches import batch
from tests.compat.side_by_side.cases import case
from tests.compat.side_by_side.records_requests import (
    append,
    fetch,
    fetch_request,
    fetch_topic,
    produce,
    shown,
    wanted,
)
from tests.compat.side_by_side.side import Side

from tidelog.wire.api import ApiKey
from tidelog.wire.messages.delete_topics import DeleteTopicsRequest, DeleteTopicState
from tidelog.wire.messages.incremental_alter_configs import (
    AlterableConfig,
    AlterConfigsResource,
    IncrementalAlterConfigsRequest,
)


@case({"enough": (1, 1), "not-yet-enough": (200, 3)}, versions=(4, 18))
def wait_for_records(side: Side, given: tuple[int, int], version: int) -> object:
    """A fetch at the end of the log is answered when enough has been appended."""
    min_bytes, batches = given
    topic = side.topic()
    asked = fetch_topic(side, topic, wanted(), version=version)
    side.send(version, fetch_request(asked, min_bytes=min_bytes, max_wait_ms=4000))
    other = side.another()
    for _ in range(batches):
        append(other, topic, batch(1))
    other.reconnect()
    return shown(side.plain_answer(ApiKey.FETCH, version))


@case(versions=(4, 18))
def wait_for_one_of_several(side: Side, version: int) -> object:
    topic = side.topic("t", 3)
    asked = fetch_topic(side, topic, *(wanted(partition=each) for each in range(3)), version=version)
    side.send(version, fetch_request(asked, min_bytes=1, max_wait_ms=4000))
    other = side.another()
    append(other, topic, batch(2), partition=1)
    other.reconnect()
    return shown(side.plain_answer(ApiKey.FETCH, version))


@case(versions=(4, 18))
def wait_while_the_topic_is_deleted(side: Side, version: int) -> object:
    topic = side.topic()
    asked = fetch_topic(side, topic, wanted(), version=version)
    side.send(version, fetch_request(asked, min_bytes=1, max_wait_ms=4000))
    other = side.another()
    other.expect(6, DeleteTopicsRequest(topics=[DeleteTopicState(name=topic)], timeout_ms=3000))
    other.reconnect()
    answer = shown(side.plain_answer(ApiKey.FETCH, version))
    assert isinstance(answer, dict)
    return [each["error_code"] for topic in answer["responses"] for each in topic["partitions"]]


@case((-1, 1), versions=(3, 13))
def too_few_replicas(side: Side, acks: int, version: int) -> object:
    """One broker where the topic asks for two in-sync replicas."""
    topic = side.topic(min_insync_replicas="2")
    answer = produce(side, topic, batch(2), version=version, acks=acks)
    return [answer, fetch(side, 12, fetch_request(fetch_topic(side, topic, wanted(), version=12)))]


@case()
def min_insync_replicas_lowered(side: Side) -> object:
    """What was appended before becomes readable."""
    topic = side.topic(min_insync_replicas="2")
    produce(side, topic, batch(2), acks=1)
    change = AlterableConfig(name="min.insync.replicas", value="1")
    resource = AlterConfigsResource(resource_type=2, resource_name=topic, configs=[change])
    side.expect(1, IncrementalAlterConfigsRequest(resources=[resource]))
    side.settle()
    append(side, topic, batch(1))
    return fetch(side, 12, fetch_request(fetch_topic(side, topic, wanted(), version=12)))
