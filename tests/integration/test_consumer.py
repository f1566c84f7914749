"""Reading partitions assigned by hand, with both faces of the consumer, against a real broker."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator
from typing import Any

import pytest
from confluent_kafka import Producer
from tests.integration.consumer_faces import (
    DEADLINE_S,
    FACES,
    create_topic,
    end,
    numbered,
    produce,
    read,
    tp,
    values,
)

from tidelog.client.consumer.errors import (
    ConsumerTimeoutError,
    IllegalStateError,
    OffsetOutOfRangeError,
    RecordDeserializationError,
    WakeupError,
)
from tidelog.client.errors import ClientClosedError
from tidelog.client.subscription.offsets import OffsetAndMetadata
from tidelog.errors import ConfigError, KafkaError

Open = Callable[..., Any]


@pytest.fixture(params=FACES)
def consumer_of(request: pytest.FixtureRequest, bootstrap: str) -> Iterator[Open]:
    """Opens consumers of one face, and closes them in the end."""
    opened = []

    def open_one(**options: object) -> Any:
        options = {"bootstrap_servers": bootstrap, "auto_offset_reset": "earliest", **options}
        consumer = FACES[request.param](**options)
        opened.append(consumer)
        return consumer

    yield open_one
    for consumer in opened:
        end(consumer)


def test_a_record_comes_with_everything_it_was_sent_with(
    consumer_of: Open, bootstrap: str, topic_name: Callable[[], str]
) -> None:
    topic = topic_name()
    create_topic(bootstrap, topic, 3)
    producer = Producer({"bootstrap.servers": bootstrap})
    headers: list[tuple[str, str | bytes | None]] = [("a", b"1"), ("a", None), ("b", b"")]
    producer.produce(topic, b"value", b"key", partition=2, timestamp=1_700_000_000_123, headers=headers)
    producer.produce(topic, None, b"key", partition=2)
    assert producer.flush(DEADLINE_S) == 0
    consumer = consumer_of()
    consumer.assign([tp(topic, 2)])
    first, second = read(consumer, 2)
    assert (first.topic, first.partition, first.offset) == (topic, 2, 0)
    assert (first.key, first.value, list(first.headers)) == (b"key", b"value", headers)
    assert (first.timestamp, first.timestamp_type) == (1_700_000_000_123, 0)
    assert first.topic_partition == tp(topic, 2)
    assert (second.offset, second.value, list(second.headers)) == (1, None, [])


@pytest.mark.parametrize("codec", ["none", "gzip", "snappy", "lz4", "zstd"])
def test_every_codec_is_read(
    consumer_of: Open, bootstrap: str, topic_name: Callable[[], str], codec: str
) -> None:
    topic = topic_name()
    create_topic(bootstrap, topic)
    sent = [b"%d %s" % (number, b"x" * 200) for number in range(1000)]
    produce(bootstrap, topic, sent, compression_type=codec)
    consumer = consumer_of()
    consumer.assign([tp(topic)])
    assert values(read(consumer, len(sent))) == sent


def test_poll_hands_out_at_most_max_poll_records(
    consumer_of: Open, bootstrap: str, topic_name: Callable[[], str]
) -> None:
    topic = topic_name()
    create_topic(bootstrap, topic)
    produce(bootstrap, topic, numbered(25))
    consumer = consumer_of(max_poll_records=10)
    consumer.assign([tp(topic)])
    polled = [consumer.poll(DEADLINE_S)]
    assert len(polled[0]) == 10
    assert consumer.position(tp(topic)) == 10
    polled.append(consumer.poll(DEADLINE_S, max_records=3))
    assert len(polled[1]) == 3
    assert values([*polled[0], *polled[1], *read(consumer, 12)]) == numbered(25)


def test_iteration_gives_all_records_in_order_and_positions_follow_it(
    consumer_of: Open, bootstrap: str, topic_name: Callable[[], str]
) -> None:
    topic = topic_name()
    create_topic(bootstrap, topic)
    produce(bootstrap, topic, numbered(50))
    consumer = consumer_of(max_poll_records=20)
    consumer.assign([tp(topic)])
    seen = []
    for record in consumer:
        seen.append(record.value)
        if len(seen) == 7:
            assert consumer.position(tp(topic)) == 7
            assert consumer.current_lag(tp(topic)) == 43
            break
    assert values(consumer.poll(DEADLINE_S)) == numbered(13, 7)
    for record in consumer.records(timeout=DEADLINE_S):
        seen.append(record.value)
        if record.offset == 49:
            break
    assert seen == numbered(7) + numbered(30, 20)


def test_iteration_with_a_timeout_ends_when_nothing_comes(
    consumer_of: Open, bootstrap: str, topic_name: Callable[[], str]
) -> None:
    topic = topic_name()
    create_topic(bootstrap, topic)
    produce(bootstrap, topic, numbered(3))
    consumer = consumer_of(fetch_max_wait_ms=50)
    consumer.assign([tp(topic)])
    assert [record.value for record in consumer.records(timeout=4.0)] == numbered(3)


def test_a_seek_inside_an_iteration_takes_effect_at_once(
    consumer_of: Open, bootstrap: str, topic_name: Callable[[], str]
) -> None:
    topic = topic_name()
    create_topic(bootstrap, topic)
    produce(bootstrap, topic, numbered(20))
    consumer = consumer_of()
    consumer.assign([tp(topic)])
    seen = []
    for record in consumer:
        seen.append(record.offset)
        if record.offset == 4 and len(seen) < 10:
            consumer.seek(tp(topic), 15)
        if record.offset == 19:
            break
    assert seen == [0, 1, 2, 3, 4, 15, 16, 17, 18, 19]


def test_seeking_goes_anywhere_in_the_log(
    consumer_of: Open, bootstrap: str, topic_name: Callable[[], str]
) -> None:
    topic = topic_name()
    create_topic(bootstrap, topic)
    produce(bootstrap, topic, numbered(30))
    consumer = consumer_of()
    consumer.assign([tp(topic)])
    consumer.seek(tp(topic), 20)
    assert values(read(consumer, 10)) == numbered(10, 20)
    consumer.seek_to_beginning()
    assert consumer.position(tp(topic)) == 0
    assert values(read(consumer, 30)) == numbered(30)
    consumer.seek(tp(topic), OffsetAndMetadata(28))
    assert values(read(consumer, 2)) == numbered(2, 28)
    consumer.seek(tp(topic), 3)
    consumer.seek_to_end([tp(topic)])
    assert consumer.position(tp(topic)) == 30
    produce(bootstrap, topic, numbered(1, 30))
    assert values(read(consumer, 1)) == [b"30"]


def test_offsets_are_found_by_place_and_by_time(
    consumer_of: Open, bootstrap: str, topic_name: Callable[[], str]
) -> None:
    topic = topic_name()
    create_topic(bootstrap, topic, 2)
    producer = Producer({"bootstrap.servers": bootstrap})
    for number in range(10):
        producer.produce(topic, b"%d" % number, partition=1, timestamp=1_700_000_000_000 + number * 1000)
    assert producer.flush(DEADLINE_S) == 0
    consumer = consumer_of()
    both = [tp(topic, 0), tp(topic, 1)]
    assert consumer.beginning_offsets(both) == {both[0]: 0, both[1]: 0}
    assert consumer.end_offsets(both) == {both[0]: 0, both[1]: 10}
    found = consumer.offsets_for_times({both[0]: 0, both[1]: 1_700_000_000_000 + 3500})
    assert found[both[0]] is None
    assert (found[both[1]].offset, found[both[1]].timestamp) == (4, 1_700_000_004_000)
    assert consumer.offsets_for_times({both[1]: 1_800_000_000_000}) == {both[1]: None}


def test_a_paused_partition_is_silent_and_loses_nothing(
    consumer_of: Open, bootstrap: str, topic_name: Callable[[], str]
) -> None:
    topic = topic_name()
    create_topic(bootstrap, topic, 2)
    consumer = consumer_of(max_poll_records=5, fetch_max_wait_ms=50)
    both = [tp(topic, 0), tp(topic, 1)]
    consumer.assign(both)
    produce(bootstrap, topic, numbered(20), partition=0)
    first = read(consumer, 5)
    consumer.pause([both[0]])
    assert consumer.paused() == {both[0]}
    produce(bootstrap, topic, numbered(10, 100), partition=1)
    others = read(consumer, 10)
    assert {record.partition for record in others} == {1}
    consumer.resume([both[0]])
    assert consumer.paused() == frozenset()
    assert values(first + read(consumer, 15)) == numbered(20)


def test_assigning_anew_keeps_the_positions_of_partitions_that_stay(
    consumer_of: Open, bootstrap: str, topic_name: Callable[[], str]
) -> None:
    topic = topic_name()
    create_topic(bootstrap, topic, 2)
    produce(bootstrap, topic, numbered(10), partition=0)
    produce(bootstrap, topic, numbered(10), partition=1)
    consumer = consumer_of()
    consumer.assign([tp(topic, 0)])
    assert len(read(consumer, 10)) == 10
    consumer.assign([tp(topic, 0), tp(topic, 1)])
    assert consumer.assignment() == {tp(topic, 0), tp(topic, 1)}
    assert {record.partition for record in read(consumer, 10)} == {1}
    assert consumer.position(tp(topic, 0)) == 10
    with pytest.raises(IllegalStateError, match="is not assigned"):
        consumer.seek(tp(topic, 7), 0)


def test_a_position_out_of_range_is_reset_by_the_policy(
    consumer_of: Open, bootstrap: str, topic_name: Callable[[], str]
) -> None:
    topic = topic_name()
    create_topic(bootstrap, topic)
    produce(bootstrap, topic, numbered(5))
    early = consumer_of(auto_offset_reset="earliest")
    early.assign([tp(topic)])
    early.seek(tp(topic), 1000)
    assert values(read(early, 5)) == numbered(5)
    late = consumer_of(auto_offset_reset="latest", fetch_max_wait_ms=50)
    late.assign([tp(topic)])
    late.seek(tp(topic), 1000)
    deadline = time.monotonic() + DEADLINE_S
    while late.position(tp(topic)) == 1000 and time.monotonic() < deadline:
        late.poll(0.05)
    assert late.position(tp(topic)) == 5
    strict = consumer_of(auto_offset_reset="none")
    strict.assign([tp(topic)])
    strict.seek(tp(topic), 1000)
    with pytest.raises(OffsetOutOfRangeError, match="1000"):
        read(strict, 1)
    strict.seek(tp(topic), 2)
    assert values(read(strict, 3)) == numbered(3, 2)


def test_records_not_older_than_a_duration_are_a_place_to_start(
    consumer_of: Open, bootstrap: str, topic_name: Callable[[], str]
) -> None:
    topic = topic_name()
    create_topic(bootstrap, topic)
    producer = Producer({"bootstrap.servers": bootstrap})
    now_ms = int(time.time() * 1000)
    for hours in (5, 4, 3, 2, 0):
        producer.produce(topic, b"%d" % hours, timestamp=now_ms - hours * 3_600_000)
    assert producer.flush(DEADLINE_S) == 0
    consumer = consumer_of(auto_offset_reset="by_duration:PT2H30M")
    consumer.assign([tp(topic)])
    assert values(read(consumer, 2)) == [b"2", b"0"]
    with pytest.raises(ConfigError, match=r"auto\.offset\.reset"):
        consumer_of(auto_offset_reset="by_duration:soon")


def test_a_batch_larger_than_a_fetch_may_be_still_comes(
    consumer_of: Open, bootstrap: str, topic_name: Callable[[], str]
) -> None:
    topic = topic_name()
    create_topic(bootstrap, topic)
    sent = [b"a" * 100_000, b"b" * 200_000, b"c"]
    for value in sent:
        produce(bootstrap, topic, [value])
    consumer = consumer_of(max_partition_fetch_bytes=1000, fetch_max_bytes=2000)
    consumer.assign([tp(topic)])
    assert values(read(consumer, 3)) == sent


def test_many_partitions_are_all_read_within_small_buffers(
    consumer_of: Open, bootstrap: str, topic_name: Callable[[], str]
) -> None:
    topic = topic_name()
    create_topic(bootstrap, topic, 12)
    sent = {number: [b"%d-%d" % (number, each) for each in range(200)] for number in range(12)}
    for number, records in sent.items():
        produce(bootstrap, topic, records, partition=number)
    consumer = consumer_of(max_partition_fetch_bytes=1024, fetch_max_bytes=8192, max_poll_records=37)
    consumer.assign([tp(topic, number) for number in sent])
    got: dict[int, list[bytes]] = {number: [] for number in sent}
    for record in read(consumer, 2400):
        got[record.partition].append(record.value)
    assert got == sent


def test_values_are_deserialized_and_a_poison_record_can_be_passed(
    consumer_of: Open, bootstrap: str, topic_name: Callable[[], str]
) -> None:
    topic = topic_name()
    create_topic(bootstrap, topic)
    produce(bootstrap, topic, [b'{"n": 1}', b'{"n": 2}', b"{poison", b'{"n": 4}'])
    consumer = consumer_of(value_deserializer="json")
    consumer.assign([tp(topic)])
    assert values(read(consumer, 2)) == [{"n": 1}, {"n": 2}]
    for _ in range(2):
        with pytest.raises(RecordDeserializationError) as raised:
            read(consumer, 1)
        assert (raised.value.partition, raised.value.offset, raised.value.part) == (tp(topic), 2, "value")
    assert consumer.position(tp(topic)) == 2
    consumer.seek(tp(topic), raised.value.offset + 1)
    assert values(read(consumer, 1)) == [{"n": 4}]


def test_only_committed_records_are_seen_with_read_committed(
    consumer_of: Open, bootstrap: str, topic_name: Callable[[], str]
) -> None:
    topic = topic_name()
    create_topic(bootstrap, topic, 2)
    producer = Producer({"bootstrap.servers": bootstrap, "transactional.id": topic})
    producer.init_transactions(DEADLINE_S)
    expected = []
    for number in range(9):
        producer.begin_transaction()
        for part in range(3):
            value = b"%d-%d" % (number, part)
            for partition in (0, 1):
                producer.produce(topic, value, partition=partition)
            if number % 3:
                expected.append(value)
        producer.flush(DEADLINE_S)
        if number % 3:
            producer.commit_transaction(DEADLINE_S)
        else:
            producer.abort_transaction(DEADLINE_S)
    for partition in (0, 1):
        careful = consumer_of(isolation_level="read_committed")
        careful.assign([tp(topic, partition)])
        assert values(read(careful, len(expected))) == expected
        assert (
            careful.position(tp(topic, partition))
            == careful.end_offsets([tp(topic, partition)])[tp(topic, partition)]
        )
        curious = consumer_of(isolation_level="read_uncommitted", max_poll_records=4)
        curious.assign([tp(topic, partition)])
        assert len(read(curious, 27)) == 27


def test_an_open_transaction_hides_what_comes_after_it(
    consumer_of: Open, bootstrap: str, topic_name: Callable[[], str]
) -> None:
    topic = topic_name()
    create_topic(bootstrap, topic)
    produce(bootstrap, topic, [b"before"])
    producer = Producer({"bootstrap.servers": bootstrap, "transactional.id": topic})
    producer.init_transactions(DEADLINE_S)
    producer.begin_transaction()
    producer.produce(topic, b"open")
    producer.flush(DEADLINE_S)
    produce(bootstrap, topic, [b"after"])
    consumer = consumer_of(isolation_level="read_committed", fetch_max_wait_ms=50)
    consumer.assign([tp(topic)])
    assert values(read(consumer, 1)) == [b"before"]
    assert consumer.end_offsets([tp(topic)]) == {tp(topic): 1}
    assert consumer.poll(0.2) == []
    producer.commit_transaction(DEADLINE_S)
    assert values(read(consumer, 2)) == [b"open", b"after"]


def test_records_sent_while_a_poll_waits_end_it(
    consumer_of: Open, bootstrap: str, topic_name: Callable[[], str]
) -> None:
    topic = topic_name()
    create_topic(bootstrap, topic)
    consumer = consumer_of()
    consumer.assign([tp(topic)])
    assert consumer.position(tp(topic)) == 0
    sender = threading.Thread(target=produce, args=(bootstrap, topic, [b"late"]))
    sender.start()
    assert values(consumer.poll(DEADLINE_S)) == [b"late"]
    sender.join(DEADLINE_S)


def test_wakeup_ends_a_waiting_poll_once(
    consumer_of: Open, bootstrap: str, topic_name: Callable[[], str]
) -> None:
    topic = topic_name()
    create_topic(bootstrap, topic)
    produce(bootstrap, topic, [b"one"])
    consumer = consumer_of()
    consumer.assign([tp(topic)])
    assert len(read(consumer, 1)) == 1
    waker = threading.Thread(target=consumer.wakeup)
    waker.start()
    with pytest.raises(WakeupError):
        consumer.poll(DEADLINE_S)
    waker.join(DEADLINE_S)
    produce(bootstrap, topic, [b"two"])
    assert values(read(consumer, 1)) == [b"two"]


def test_a_topic_that_does_not_exist_is_waited_for_and_named(
    consumer_of: Open, bootstrap: str, topic_name: Callable[[], str]
) -> None:
    topic = topic_name()
    consumer = consumer_of(allow_auto_create_topics=False)
    consumer.assign([tp(topic)])
    assert consumer.poll(0.2) == []
    with pytest.raises(ConsumerTimeoutError, match=topic):
        consumer.position(tp(topic), timeout=0.2)
    create_topic(bootstrap, topic)
    produce(bootstrap, topic, [b"here"])
    assert values(read(consumer, 1)) == [b"here"]


def test_topics_are_listed_and_a_missing_one_is_an_error_at_once(
    consumer_of: Open, bootstrap: str, topic_name: Callable[[], str]
) -> None:
    topic = topic_name()
    create_topic(bootstrap, topic, 3)
    consumer = consumer_of(allow_auto_create_topics=False)
    assert [each.partition for each in consumer.partitions_for(topic)] == [0, 1, 2]
    assert len(consumer.list_topics()[topic]) == 3
    missing = topic_name()
    with pytest.raises(KafkaError, match="does not exist"):
        consumer.partitions_for(missing)
    assert missing not in consumer.list_topics()
    assert consumer.ongoing_error() is None


def test_calls_that_make_no_sense_say_why(
    consumer_of: Open, bootstrap: str, topic_name: Callable[[], str]
) -> None:
    consumer = consumer_of()
    with pytest.raises(IllegalStateError, match="subscribe to topics or assign"):
        consumer.poll(0.1)
    with pytest.raises(IllegalStateError, match=r"group\.id"):
        consumer.subscribe(["a"])
    consumer.assign([tp("a")])
    with pytest.raises(KafkaError, match=r"group\.id"):
        consumer.commit()
    consumer.close()
    with pytest.raises(ClientClosedError):
        consumer.assign([tp("a")])
    consumer.close()


def test_metrics_count_what_was_read(
    consumer_of: Open, bootstrap: str, topic_name: Callable[[], str]
) -> None:
    topic = topic_name()
    create_topic(bootstrap, topic)
    produce(bootstrap, topic, numbered(10))
    consumer = consumer_of()
    consumer.assign([tp(topic)])
    read(consumer, 10)
    figures = consumer.metrics()
    assert figures["records-consumed-total"] == figures[f"records-consumed-total{{topic={topic}}}"] == 10
    assert figures["fetch-total"] >= 1
    assert figures["records-per-request-avg"] >= 1
    assert figures["bytes-consumed-total"] >= 10
    place = f"{{topic={topic},partition=0}}"
    assert (figures[f"records-lag{place}"], figures[f"records-lead{place}"]) == (0, 10)
    assert figures[f"records-lag-max{place}"] == figures["records-lag-max"]
    assert 0 < figures["poll-idle-ratio-avg"] <= 1
    assert 0 <= figures["last-poll-seconds-ago"] < 60
    names = {name.group for name in figures}
    assert names >= {"consumer-metrics", "consumer-node-metrics", "consumer-fetch-manager-metrics"}
    consumer.assign([])
    assert f"records-lag{place}" not in consumer.metrics()


def test_records_come_as_an_arrow_table(
    consumer_of: Open, bootstrap: str, topic_name: Callable[[], str]
) -> None:
    pytest.importorskip("pyarrow")
    topic = topic_name()
    create_topic(bootstrap, topic, 2)
    for partition in (0, 1):
        produce(bootstrap, topic, numbered(500), partition, compression_type="lz4")
    consumer = consumer_of(max_poll_records=7)
    consumer.assign([tp(topic, 0), tp(topic, 1)])
    first = read(consumer, 7)
    rows: list[dict[str, Any]] = []
    while len(rows) < 993:
        table = consumer.poll_arrow(DEADLINE_S, with_headers=True)
        assert table.num_rows
        rows += table.to_pylist()
    assert {row["topic"] for row in rows} == {topic}
    for partition in (0, 1):
        mine = [each.value for each in first if each.partition == partition]
        mine += [row["value"] for row in rows if row["partition"] == partition]
        assert mine == numbered(500)
        assert consumer.position(tp(topic, partition)) == 500
    assert consumer.poll_arrow(0).num_rows == 0
    consumer.seek(tp(topic, 0), 490)
    for record in consumer:
        assert record.offset == 490
        break
    assert consumer.poll_arrow(DEADLINE_S).column("offset").to_pylist() == list(range(491, 500))
