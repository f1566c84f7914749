"""Message streams on a real broker: parallel, in order per partition, committed after handling."""

from __future__ import annotations

import asyncio
import threading
from collections import defaultdict
from collections.abc import Callable
from typing import Any

import pytest
from tests.integration.consumer_faces import DEADLINE_S, create_topic, numbered, produce, read, tp

from tidelog.client.consumer.consumer import Consumer
from tidelog.client.consumer.errors import IllegalStateError
from tidelog.client.consumer.failure_policy import DeadLetter, Retry, Skip
from tidelog.client.consumer.stream_consumer import StreamConsumer
from tidelog.errors import ConfigError
from tidelog.records.record_codec import ConsumerRecord
from tidelog.spark.dead_letters.letter import Place, read_letter
from tidelog.spark.dead_letters.redrive import OriginalRecords


class Collected:
    """Counts down records; ``wait`` ends when all are there."""

    def __init__(self, expected: int) -> None:
        self.seen: dict[tuple[str, int], list[Any]] = defaultdict(list)
        self.threads: dict[tuple[str, int], set[str]] = defaultdict(set)
        self._left = expected
        self._lock = threading.Lock()
        self._done = threading.Event()

    def add(self, record: ConsumerRecord) -> None:
        with self._lock:
            self.seen[record.topic, record.partition].append(record.value)
            self.threads[record.topic, record.partition].add(threading.current_thread().name)
            self._left -= 1
            if not self._left:
                self._done.set()

    def wait(self) -> None:
        assert self._done.wait(DEADLINE_S), f"{self._left} records have not come within {DEADLINE_S} s"


def streams_of(bootstrap: str, topics: dict[str, int], handler: Any, **options: Any) -> StreamConsumer:
    defaults = {
        "bootstrap_servers": bootstrap,
        "group_id": next(iter(topics)),
        "auto_offset_reset": "earliest",
    }
    return StreamConsumer(topics, handler, **{**defaults, **options})


def committed(bootstrap: str, group_id: str, topic: str, partitions: int) -> list[int]:
    with Consumer(bootstrap_servers=bootstrap, group_id=group_id) as consumer:
        found = consumer.committed([tp(topic, number) for number in range(partitions)])
        return [each.offset if each is not None else -1 for _, each in sorted(found.items())]


def test_streams_share_the_partitions_and_keep_their_order(
    group_bootstrap: str, topic_name: Callable[[], str]
) -> None:
    orders, payments = topic_name(), topic_name()
    create_topic(group_bootstrap, orders, 4)
    create_topic(group_bootstrap, payments, 2)
    for topic, partitions in ((orders, 4), (payments, 2)):
        for number in range(partitions):
            produce(group_bootstrap, topic, numbered(200), number)
    collected = Collected(1200)
    with streams_of(group_bootstrap, {orders: 4, payments: 2}, collected.add, max_poll_records=50):
        collected.wait()
    assert all(values == numbered(200) for values in collected.seen.values())
    assert len(collected.seen) == 6
    assert committed(group_bootstrap, orders, orders, 4) == [200] * 4
    assert committed(group_bootstrap, orders, payments, 2) == [200] * 2


def test_each_stream_has_a_handler_of_its_own(group_bootstrap: str, topic_name: Callable[[], str]) -> None:
    topic = topic_name()
    create_topic(group_bootstrap, topic, 2)
    for number in (0, 1):
        produce(group_bootstrap, topic, numbered(10), number)
    collected = Collected(20)
    made: list[Any] = []

    class Handler:
        def __init__(self) -> None:
            self.closed = False
            made.append(self)

        def handle(self, record: ConsumerRecord) -> None:
            collected.add(record)

        def close(self) -> None:
            self.closed = True

    with streams_of(group_bootstrap, {topic: 2}, Handler):
        collected.wait()
    assert len(made) == 2
    assert all(handler.closed for handler in made)


def test_async_handlers_are_awaited(group_bootstrap: str, topic_name: Callable[[], str]) -> None:
    topic = topic_name()
    create_topic(group_bootstrap, topic)
    produce(group_bootstrap, topic, [b'{"n": %d}' % number for number in range(10)])
    collected = Collected(10)

    async def handle(record: ConsumerRecord) -> None:
        await asyncio.sleep(0)
        collected.add(record)

    with streams_of(group_bootstrap, {topic: 1}, handle, value_deserializer="json"):
        collected.wait()
    assert collected.seen[topic, 0] == [{"n": number} for number in range(10)]


def test_a_handler_that_fails_stops_the_streams_and_its_record_is_not_committed(
    group_bootstrap: str, topic_name: Callable[[], str]
) -> None:
    topic = topic_name()
    create_topic(group_bootstrap, topic)
    produce(group_bootstrap, topic, numbered(10))

    def handle(record: ConsumerRecord) -> None:
        if record.offset == 6:
            raise ValueError("six is too many")

    streams = streams_of(group_bootstrap, {topic: 1}, handle)
    with pytest.raises(ValueError, match="six"):
        streams.run()
    assert committed(group_bootstrap, topic, topic, 1) == [6]
    seen = Collected(4)
    with streams_of(group_bootstrap, {topic: 1}, seen.add):
        seen.wait()
    assert seen.seen[topic, 0] == numbered(4, 6)


def test_dead_letters_carry_the_record_and_the_reason(
    group_bootstrap: str, topic_name: Callable[[], str]
) -> None:
    topic = topic_name()
    create_topic(group_bootstrap, topic)
    create_topic(group_bootstrap, f"{topic}.dlq")
    produce(group_bootstrap, topic, [b"1", b"poison", b"3"])
    collected = Collected(2)
    with streams_of(
        group_bootstrap,
        {topic: 1},
        collected.add,
        value_deserializer=int,
        on_failure=DeadLetter("{topic}.dlq"),
    ):
        collected.wait()
        with Consumer(bootstrap_servers=group_bootstrap, auto_offset_reset="earliest") as consumer:
            consumer.assign([tp(f"{topic}.dlq")])
            (letter,) = read(consumer, 1)
    assert collected.seen[topic, 0] == [1, 3]
    assert letter.value == b"poison"
    headers = dict(letter.headers)
    reason = headers["dead-letter.reason"]
    assert reason is not None
    assert b"invalid literal" in reason
    assert headers["dead-letter.topic"] == topic.encode()
    assert headers["dead-letter.offset"] == b"1"
    assert committed(group_bootstrap, topic, topic, 1) == [3]


def test_a_dead_letter_that_would_be_too_large_says_where_its_record_is_and_the_stream_goes_on(
    group_bootstrap: str, topic_name: Callable[[], str]
) -> None:
    topic = topic_name()
    create_topic(group_bootstrap, topic)
    # One is too large for the client, and one for the broker.
    create_topic(group_bootstrap, f"{topic}.dlq", max_message_bytes="5000")
    produce(group_bootstrap, topic, [b"x" * 1_048_400, b"y" * 4900, b"fine"], message_max_bytes=1_048_588)
    collected = Collected(1)

    def handle(record: ConsumerRecord) -> None:
        if record.value != b"fine":
            raise ValueError("no, " * 1000)
        collected.add(record)

    with streams_of(group_bootstrap, {topic: 1}, handle, on_failure=DeadLetter("{topic}.dlq")):
        collected.wait()
    assert committed(group_bootstrap, topic, topic, 1) == [3]
    with Consumer(bootstrap_servers=group_bootstrap, auto_offset_reset="earliest") as consumer:
        consumer.assign([tp(f"{topic}.dlq")])
        letters = [read_letter(each) for each in read(consumer, 2)]
    for offset, letter in enumerate(letters):
        assert letter is not None
        assert letter.left_out
        assert (letter.place, letter.code) == (Place(topic, 0, offset), "builtins.ValueError")
        assert (letter.key, letter.value, letter.headers) == (None, None, ())
        assert letter.reason == "no, " * 500
    options = {"bootstrap.servers": group_bootstrap}
    with OriginalRecords(options) as records:
        found = [each and records.whole(each) for each in letters]
    assert [each and each.value for each in found] == [b"x" * 1_048_400, b"y" * 4900]


def test_a_handler_is_called_again_before_it_is_given_up(
    group_bootstrap: str, topic_name: Callable[[], str]
) -> None:
    topic = topic_name()
    create_topic(group_bootstrap, topic)
    produce(group_bootstrap, topic, numbered(5))
    collected = Collected(4)
    calls: list[int] = []

    def handle(record: ConsumerRecord) -> None:
        calls.append(record.offset)
        if record.offset == 3 or (record.offset == 1 and calls.count(1) < 3):
            raise RuntimeError("not now")
        collected.add(record)

    policy = Retry(attempts=2, backoff_ms=1, then=Skip())
    with streams_of(group_bootstrap, {topic: 1}, handle, on_failure=policy):
        collected.wait()
    assert calls == [0, 1, 1, 1, 2, 3, 3, 3, 4]
    assert committed(group_bootstrap, topic, topic, 1) == [5]


def test_streams_that_are_stopped_from_a_handler_commit_what_was_handled(
    group_bootstrap: str, topic_name: Callable[[], str]
) -> None:
    topic = topic_name()
    create_topic(group_bootstrap, topic)
    produce(group_bootstrap, topic, numbered(10))

    def handle(record: ConsumerRecord) -> None:
        if record.offset == 4:
            streams.stop()

    streams = streams_of(group_bootstrap, {topic: 1}, handle)
    streams.run()
    assert committed(group_bootstrap, topic, topic, 1) == [5]


@pytest.mark.parametrize("is_async", [False, True], ids=["plain", "async"])
def test_streams_that_are_closed_in_a_handler_do_not_wait_for_it(
    group_bootstrap: str, topic_name: Callable[[], str], caplog: pytest.LogCaptureFixture, is_async: bool
) -> None:
    topic = topic_name()
    create_topic(group_bootstrap, topic)
    produce(group_bootstrap, topic, numbered(10))
    refused: list[str] = []

    def handle(record: ConsumerRecord) -> None:
        if record.offset == 4:
            streams.close()
            with pytest.raises(IllegalStateError) as raised:
                streams.wait()
            refused.append(str(raised.value))

    async def handle_on_loop(record: ConsumerRecord) -> None:
        handle(record)

    streams = streams_of(group_bootstrap, {topic: 1}, handle_on_loop if is_async else handle)
    streams.start()
    assert streams.wait(DEADLINE_S)
    streams.close()
    streams.stop()
    assert refused == ["a handler waits for its own streams to end: call stop() there"]
    assert "a handler still runs" not in caplog.text
    assert committed(group_bootstrap, topic, topic, 1) == [5]


def test_options_that_streams_cannot_have_are_refused() -> None:
    with pytest.raises(ConfigError, match=r"group\.id"):
        StreamConsumer({"t": 1}, print, bootstrap_servers="localhost:1")
    with pytest.raises(ConfigError, match=r"enable\.auto\.commit"):
        StreamConsumer(
            {"t": 1}, print, bootstrap_servers="localhost:1", group_id="g", enable_auto_commit=True
        )
    with pytest.raises(ConfigError, match="at least one stream"):
        StreamConsumer({"t": 0}, print, bootstrap_servers="localhost:1", group_id="g")
