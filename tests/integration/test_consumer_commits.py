"""Commits of both faces of the consumer: what is committed is what the application has got, never more."""

from __future__ import annotations

import threading
from collections.abc import Callable, Collection, Iterator
from typing import Any

import pytest
from tests.integration.consumer_faces import (
    DEADLINE_S,
    FACES,
    AsyncFace,
    create_topic,
    end,
    numbered,
    produce,
    read,
    tp,
    values,
)

from tidelog.client.consumer.interceptors import ConsumerInterceptor
from tidelog.client.subscription.listener import RebalanceListener
from tidelog.client.subscription.offsets import OffsetAndMetadata
from tidelog.ids import TopicPartition

Open = Callable[..., Any]


@pytest.fixture(params=FACES)
def consumer_of(request: pytest.FixtureRequest, group_bootstrap: str) -> Iterator[Open]:
    opened = []

    def open_one(**options: object) -> Any:
        defaults = {"bootstrap_servers": group_bootstrap, "auto_offset_reset": "earliest"}
        consumer = FACES[request.param](**{**defaults, **options})
        opened.append(consumer)
        return consumer

    yield open_one
    for consumer in opened:
        end(consumer)


@pytest.fixture
def topic(group_bootstrap: str, topic_name: Callable[[], str]) -> str:
    name = topic_name()
    create_topic(group_bootstrap, name, 2)
    for partition in (0, 1):
        produce(group_bootstrap, name, numbered(30), partition)
    return name


def committed(consumer_of: Open, group_id: str, *partitions: TopicPartition) -> list[int]:
    consumer = consumer_of(group_id=group_id)
    found = consumer.committed(partitions)
    return [each.offset if (each := found[partition]) is not None else -1 for partition in partitions]


def test_positions_are_committed_and_read_back_with_their_notes(consumer_of: Open, topic: str) -> None:
    consumer = consumer_of(group_id=topic, enable_auto_commit=False)
    consumer.assign([tp(topic, 0), tp(topic, 1)])
    read(consumer, 60)
    consumer.commit({tp(topic, 0): 7, tp(topic, 1): OffsetAndMetadata(9, 0, "a note")})
    assert consumer.committed([tp(topic, 0), tp(topic, 1)]) == {
        tp(topic, 0): OffsetAndMetadata(7),
        tp(topic, 1): OffsetAndMetadata(9, 0, "a note"),
    }
    consumer.commit()
    assert committed(consumer_of, topic, tp(topic, 0), tp(topic, 1)) == [30, 30]


def test_a_group_goes_on_where_it_committed(consumer_of: Open, topic: str) -> None:
    first = consumer_of(group_id=topic, enable_auto_commit=False)
    first.subscribe([topic])
    read(first, 60)
    first.commit({tp(topic, 0): 20, tp(topic, 1): 30})
    first.close()
    second = consumer_of(group_id=topic)
    second.subscribe(topic)
    records = read(second, 10)
    assert {record.partition for record in records} == {0}
    assert values(records) == numbered(10, 20)


def test_a_commit_inside_an_iteration_covers_what_the_loop_has_got(consumer_of: Open, topic: str) -> None:
    consumer = consumer_of(group_id=topic, enable_auto_commit=False)
    consumer.assign([tp(topic, 0)])
    for record in consumer:
        if record.offset == 11:
            consumer.commit()
            break
    assert committed(consumer_of, topic, tp(topic, 0)) == [12]


def test_an_iteration_that_is_left_commits_what_it_has_got_when_the_consumer_closes(
    consumer_of: Open, topic: str
) -> None:
    consumer = consumer_of(group_id=topic, enable_auto_commit=True)
    consumer.subscribe([topic])
    seen: dict[int, int] = {0: 0, 1: 0}
    for count, record in enumerate(consumer, 1):
        seen[record.partition] = record.offset + 1
        if count == 17:
            break
    consumer.close()
    assert committed(consumer_of, topic, tp(topic, 0), tp(topic, 1)) == [seen[0], seen[1]]


def test_commits_without_waiting_keep_their_order_and_tell(consumer_of: Open, topic: str) -> None:
    consumer = consumer_of(group_id=topic, enable_auto_commit=False)
    consumer.assign([tp(topic, 0)])
    read(consumer, 30)
    told: list[tuple[int, Exception | None]] = []
    for offset in range(1, 6):
        consumer.commit_nowait(
            {tp(topic, 0): offset},
            lambda offsets, error: told.append((offsets[tp(topic, 0)].offset, error)),
        )
    consumer.commit({tp(topic, 0): 6})
    consumer.close()
    assert told == [(offset, None) for offset in range(1, 6)]
    assert committed(consumer_of, topic, tp(topic, 0)) == [6]


def test_listeners_run_inside_poll_and_may_use_the_consumer(consumer_of: Open, topic: str) -> None:
    consumer = consumer_of(group_id=topic, enable_auto_commit=False)
    seen: list[tuple[str, list[TopicPartition]]] = []
    threads: set[int] = set()

    class Listener(RebalanceListener):
        def on_partitions_assigned(self, partitions: Collection[TopicPartition]) -> object:
            seen.append(("assigned", sorted(partitions)))
            threads.add(threading.get_ident())
            return self._move(partitions)

        def _move(self, partitions: Collection[TopicPartition]) -> object:
            inner = consumer.consumer if isinstance(consumer, AsyncFace) else consumer
            for partition in partitions:
                inner.seek(partition, 25)
            return None

        def on_partitions_revoked(self, partitions: Collection[TopicPartition]) -> object:
            seen.append(("revoked", sorted(partitions)))
            if isinstance(consumer, AsyncFace):
                return consumer.consumer.commit()
            consumer.commit()
            return None

    consumer.subscribe([topic], listener=Listener())
    assert sorted(values(read(consumer, 10))) == sorted(numbered(5, 25) * 2)
    consumer.close()
    both = [tp(topic, 0), tp(topic, 1)]
    assert seen == [("assigned", both), ("revoked", both)]
    if not isinstance(consumer, AsyncFace):
        assert threads == {threading.get_ident()}
    assert committed(consumer_of, topic, *both) == [30, 30]


def test_a_pattern_takes_topics_that_match_also_later_ones(
    consumer_of: Open, group_bootstrap: str, topic: str
) -> None:
    consumer = consumer_of(group_id=topic, metadata_max_age_ms=200)
    consumer.subscribe(pattern=f"{topic}(-more)?")
    assert len(read(consumer, 60)) == 60
    assert consumer.subscription() == {topic}
    create_topic(group_bootstrap, f"{topic}-more")
    create_topic(group_bootstrap, f"{topic}-other")
    produce(group_bootstrap, f"{topic}-more", [b"new"])
    assert values(read(consumer, 1)) == [b"new"]
    assert consumer.subscription() == {topic, f"{topic}-more"}


def test_unsubscribing_leaves_the_group_and_another_topic_can_be_read(
    consumer_of: Open, group_bootstrap: str, topic: str
) -> None:
    other = f"{topic}-other"
    create_topic(group_bootstrap, other)
    produce(group_bootstrap, other, [b"other"])
    consumer = consumer_of(group_id=topic)
    consumer.subscribe([topic])
    read(consumer, 60)
    consumer.unsubscribe()
    assert consumer.assignment() == frozenset()
    assert committed(consumer_of, topic, tp(topic, 0), tp(topic, 1)) == [30, 30]
    consumer.subscribe([other])
    assert values(read(consumer, 1)) == [b"other"]


def test_interceptors_see_records_and_commits(consumer_of: Open, topic: str) -> None:
    commits: list[dict[TopicPartition, OffsetAndMetadata]] = []

    class Even(ConsumerInterceptor):
        def on_consume(self, records: list[Any]) -> list[Any]:
            return [record for record in records if record.offset % 2 == 0]

        def on_commit(self, offsets: Any) -> None:
            commits.append(dict(offsets))

    consumer = consumer_of(group_id=topic, interceptor_classes=[Even()], enable_auto_commit=False)
    consumer.assign([tp(topic, 0)])
    assert [record.offset for record in read(consumer, 15)] == list(range(0, 30, 2))
    consumer.commit()
    assert commits == [{tp(topic, 0): OffsetAndMetadata(30, commits[0][tp(topic, 0)].leader_epoch)}]


def test_who_the_member_is_can_be_told_to_a_producer(consumer_of: Open, topic: str) -> None:
    consumer = consumer_of(group_id=topic)
    consumer.subscribe([topic])
    read(consumer, 1)
    identity = consumer.group_metadata()
    assert identity.group_id == topic
    assert identity.generation_id >= 1
    assert identity.member_id


def test_a_consumer_that_polls_often_is_not_starved_of_its_group(consumer_of: Open, topic: str) -> None:
    """Short polls of buffered records must not keep the automatic commit from happening."""
    consumer = consumer_of(group_id=topic, auto_commit_interval_ms=50, max_poll_records=1)
    consumer.subscribe([topic])
    watcher = consumer_of(group_id=topic)
    read(consumer, 60)
    waiting = threading.Event()
    for _ in range(int(DEADLINE_S / 0.05)):
        consumer.poll(0)
        found = watcher.committed([tp(topic, 0), tp(topic, 1)])
        if [each and each.offset for each in found.values()] == [30, 30]:
            break
        waiting.wait(0.05)
    else:
        pytest.fail("nothing was committed automatically")
