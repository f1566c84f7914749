"""Streaming with a real broker, called as Spark calls it: micro-batches, limits, what comes and goes."""

from __future__ import annotations

from collections.abc import Callable, Iterator

import pytest
from pyspark.sql.streaming.datasource import ReadAllAvailable, ReadMaxRows, ReadMinRows
from tests.integration.spark_topics import Stream, fill, offsets, options, without_ids

from tidelog.client import metadata
from tidelog.client._ranges import range_fetcher
from tidelog.errors import ConfigError, KafkaError
from tidelog.ids import ZERO_UUID, TopicPartition
from tidelog.spark.read import _offset_reader as offset_reader
from tidelog.spark.read._data_loss import DataLossError
from tidelog.spark.read._prefetch import MAX_BYTES, MAX_OFFSETS, PAUSE
from tidelog.testing.broker import LocalBroker
from tidelog.testing.broker import broker as start_broker

DEADLINE_S = 30


@pytest.fixture(scope="module")
def broker() -> Iterator[LocalBroker]:
    with start_broker() as running:
        yield running


@pytest.fixture
def topic(broker: LocalBroker) -> str:
    return broker.create_topic(partitions=2)


@pytest.fixture
def write(broker: LocalBroker, topic: str) -> Callable[..., None]:
    """Writes records to the topic."""

    def write(*values: bytes, partition: int = 0, topic: str = topic) -> None:
        fill(broker.bootstrap_servers, topic, values, partition=partition)

    return write


def numbers(first: int, last: int) -> list[bytes]:
    return [b"%05d" % number for number in range(first, last)]


def earliest(broker: LocalBroker, topic: str, **more: object) -> dict[str, str]:
    return options(broker, subscribe=topic, startingOffsets="earliest", **more)


def test_a_stream_begins_with_what_comes_next(
    broker: LocalBroker, topic: str, write: Callable[..., None]
) -> None:
    write(b"before")
    with Stream(options(broker, subscribe=topic)) as stream:
        assert stream.step() == []
        write(b"after")
        assert stream.step() == [b"after"]
        assert stream.step() == []


def test_a_stream_goes_on_from_its_checkpoint_whatever_its_options_say(
    broker: LocalBroker, topic: str, write: Callable[..., None]
) -> None:
    write(b"1", b"2", b"3")
    with Stream(options(broker, subscribe=topic), start=offsets(topic, 1, 0)) as stream:
        assert stream.step() == [b"2", b"3"]


def test_a_stream_can_begin_at_a_time(broker: LocalBroker, topic: str) -> None:
    for second in range(4):
        fill(broker.bootstrap_servers, topic, [b"%d" % second], timestamp_ms=second * 1000)
    given = options(
        broker, subscribe=topic, startingTimestamp=2000, startingOffsetsByTimestampStrategy="latest"
    )
    with Stream(given) as stream:
        assert stream.step() == [b"2", b"3"]


def test_an_offset_that_has_no_new_records_is_the_same_text(
    broker: LocalBroker, topic: str, write: Callable[..., None]
) -> None:
    write(b"1")
    with Stream(earliest(broker, topic)) as stream:
        stream.step()
        assert stream.reader.latestOffset(stream.start, ReadAllAvailable()) == stream.start
        assert stream.position == offsets(topic, 1, 0)


# Rows that go along with the plan


def test_the_rows_of_a_small_micro_batch_come_with_its_plan(
    broker: LocalBroker, topic: str, write: Callable[..., None]
) -> None:
    write(*numbers(0, 30))
    write(*numbers(30, 40), partition=1)
    with Stream(earliest(broker, topic, maxOffsetsPerTrigger=16)) as stream:
        for count in (16, 16, 8):
            stream.step()
            assert stream.prefetched is not None
            assert stream.prefetched.num_rows == count


def test_many_rows_are_left_to_tasks(broker: LocalBroker, topic: str, write: Callable[..., None]) -> None:
    write(*numbers(0, MAX_OFFSETS + 1))
    with Stream(earliest(broker, topic)) as stream:
        assert stream.step() == numbers(0, MAX_OFFSETS + 1)
        assert stream.prefetched is None


def test_many_bytes_are_left_to_tasks_and_so_is_what_follows_for_a_while(
    broker: LocalBroker, topic: str, write: Callable[..., None]
) -> None:
    write(b"x" * (MAX_BYTES // 2), b"y" * (MAX_BYTES // 2), *numbers(0, PAUSE + 1))
    with Stream(earliest(broker, topic)) as stream:
        assert len(stream.step(ReadMaxRows(2))) == 2
        assert stream.prefetched is None
        for _ in range(PAUSE):
            stream.step(ReadMaxRows(1))
            assert stream.prefetched is None
        assert stream.step(ReadMaxRows(1)) == numbers(PAUSE, PAUSE + 1)
        assert stream.prefetched is not None


def test_several_tasks_read_for_themselves(
    broker: LocalBroker, topic: str, write: Callable[..., None]
) -> None:
    write(*numbers(0, 10))
    with Stream(earliest(broker, topic, minPartitions=2)) as stream:
        assert sorted(stream.step(), key=lambda value: value or b"") == numbers(0, 10)
        assert stream.prefetched is None


def test_a_micro_batch_that_is_planned_anew_after_a_restart_is_left_to_its_task(
    broker: LocalBroker, topic: str, write: Callable[..., None]
) -> None:
    write(*numbers(0, 10))
    with Stream(earliest(broker, topic)) as stream:
        # Spark replays a batch of its offset log without asking for the latest offset first.
        rows = stream.rows(offsets(topic, 2, 0), offsets(topic, 7, 0))
        assert rows.column("value").to_pylist() == numbers(2, 7)
        assert stream.prefetched is None


def test_records_that_are_gone_are_counted_by_the_task_alone(
    broker: LocalBroker, topic: str, write: Callable[..., None], caplog: pytest.LogCaptureFixture
) -> None:
    write(*numbers(0, 10))
    with Stream(earliest(broker, topic, failOnDataLoss="false")) as stream:
        end = stream.end_of_next()
        broker.admin.delete_records({TopicPartition(topic, 0): 4})
        end = stream.end_of_next()
        with caplog.at_level("WARNING", "tidelog.spark"):
            rows = stream.rows(stream.start, end)
        assert rows.column("value").to_pylist() == numbers(4, 10)
        assert stream.prefetched is None
        assert [record.levelname for record in caplog.records] == ["WARNING"]


# Limits


def test_a_micro_batch_takes_no_more_than_max_offsets(
    broker: LocalBroker, topic: str, write: Callable[..., None]
) -> None:
    write(*numbers(0, 30))
    write(*numbers(30, 40), partition=1)
    with Stream(earliest(broker, topic, maxOffsetsPerTrigger=16)) as stream:
        assert stream.reader.getDefaultReadLimit() == ReadMaxRows(16)
        batches = [stream.step() for _ in range(4)]
        assert [len(batch) for batch in batches] == [16, 16, 8, 0]
        values = [value for batch in batches for value in batch]
        assert sorted(values, key=lambda value: value or b"") == numbers(0, 40)


def test_a_trigger_that_takes_everything_passes_over_the_limit(
    broker: LocalBroker, topic: str, write: Callable[..., None]
) -> None:
    write(*numbers(0, 30))
    with Stream(earliest(broker, topic, maxOffsetsPerTrigger=5)) as stream:
        assert len(stream.step(ReadAllAvailable())) == 30


def test_a_micro_batch_waits_for_min_offsets(
    broker: LocalBroker, topic: str, write: Callable[..., None]
) -> None:
    write(b"first")
    with Stream(earliest(broker, topic, minOffsetsPerTrigger=3, maxOffsetsPerTrigger=4)) as stream:
        assert stream.reader.getDefaultReadLimit() == ReadMinRows(3)
        assert stream.step() == [b"first"], "the first trigger does not wait"
        write(*numbers(0, 2))
        assert stream.step() == []
        write(*numbers(2, 6))
        assert stream.step() == numbers(0, 4)
        assert stream.step() == []


def test_a_micro_batch_waits_no_longer_than_max_trigger_delay(
    broker: LocalBroker, topic: str, write: Callable[..., None]
) -> None:
    with Stream(earliest(broker, topic, minOffsetsPerTrigger=1000, maxTriggerDelay="0ms")) as stream:
        write(b"one")
        assert stream.step() == [b"one"]


def test_the_backlog_is_reported(broker: LocalBroker, topic: str, write: Callable[..., None]) -> None:
    write(*numbers(0, 9))
    with Stream(earliest(broker, topic, maxOffsetsPerTrigger=2)) as stream:
        assert stream.reader.reportLatestOffset() is None
        stream.step()
        assert stream.position == offsets(topic, 2, 0)
        assert stream.reader.reportLatestOffset() == offsets(topic, 9, 0)


# Trigger.AvailableNow


def test_available_now_ends_with_what_was_there_when_it_began(
    broker: LocalBroker, topic: str, write: Callable[..., None]
) -> None:
    write(*numbers(0, 5))
    with Stream(earliest(broker, topic, maxOffsetsPerTrigger=3)) as stream:
        stream.reader.prepareForTriggerAvailableNow()
        write(*numbers(5, 9))
        assert [stream.step(), stream.step(), stream.step()] == [numbers(0, 3), numbers(3, 5), []]


def test_available_now_does_not_wait_for_min_offsets(
    broker: LocalBroker, topic: str, write: Callable[..., None]
) -> None:
    write(b"one")
    given = earliest(broker, topic, minOffsetsPerTrigger=100)
    with Stream(given) as stream:
        stream.step()
        write(b"two")
        stream.reader.prepareForTriggerAvailableNow()
        assert stream.step() == [b"two"]


def test_available_now_reads_partitions_that_the_checkpoint_does_not_know(
    broker: LocalBroker, topic: str, write: Callable[..., None]
) -> None:
    write(b"old")
    write(b"new", partition=1)
    with Stream(earliest(broker, topic), start={topic: {"0": 1}}) as stream:
        stream.reader.prepareForTriggerAvailableNow()
        assert stream.step() == [b"new"]
        assert stream.step() == []


# What comes


def test_new_partitions_are_read_from_their_beginning(
    broker: LocalBroker, topic: str, write: Callable[..., None]
) -> None:
    with Stream(options(broker, subscribe=topic, maxOffsetsPerTrigger=100)) as stream:
        assert stream.step() == []
        for result in broker.admin.create_partitions({topic: 4}):
            result.raise_for_error()
        write(b"a", b"b", partition=3)
        assert stream.step() == [b"a", b"b"]
        assert stream.position == offsets(topic, 0, 0, 0, 2)


def test_new_topics_that_match_are_read_from_their_beginning(broker: LocalBroker) -> None:
    broker.create_topic("tide-1")
    with Stream(options(broker, subscribePattern="tide-[0-9]+")) as stream:
        assert stream.step() == []
        broker.create_topic("tide-2")
        broker.create_topic("other-tide-2")
        fill(broker.bootstrap_servers, "tide-2", [b"x"])
        assert stream.step() == [b"x"]
        assert stream.position == {"tide-1": {"0": 0}, "tide-2": {"0": 1}}


def test_a_topic_that_does_not_exist_yet_is_refused_at_the_start(broker: LocalBroker) -> None:
    with pytest.raises(KafkaError, match="'nothing' does not exist"):
        Stream(options(broker, subscribe="nothing"))


def test_specific_offsets_must_name_every_partition(broker: LocalBroker, topic: str) -> None:
    with pytest.raises(ConfigError, match=f"names no place for {topic}-1"):
        Stream(options(broker, subscribe=topic, startingOffsets=f'{{"{topic}":{{"0":0}}}}'))


# What goes


def two_topics(broker: LocalBroker) -> tuple[str, str]:
    stays, goes = broker.create_topic(), broker.create_topic()
    fill(broker.bootstrap_servers, goes, numbers(0, 5))
    return stays, goes


def test_a_deleted_topic_fails_the_query_with_the_number_of_unread_offsets(broker: LocalBroker) -> None:
    stays, goes = two_topics(broker)
    with Stream(earliest(broker, f"{stays},{goes}", maxOffsetsPerTrigger=2)) as stream:
        assert len(stream.step()) == 2
        broker.admin.delete_topics([goes])
        with pytest.raises(
            DataLossError, match=f"{goes}-0 was deleted, and 3 offsets from 2 on were not read"
        ):
            stream.step()


def test_a_stream_that_may_lose_records_goes_on_without_a_deleted_topic(
    broker: LocalBroker, caplog: pytest.LogCaptureFixture
) -> None:
    stays, goes = two_topics(broker)
    given = earliest(broker, f"{stays},{goes}", maxOffsetsPerTrigger=2, failOnDataLoss="false")
    with Stream(given) as stream:
        stream.step()
        broker.admin.delete_topics([goes])
        fill(broker.bootstrap_servers, stays, [b"stays"])
        assert stream.step() == [b"stays"]
        assert "3 offsets from 2 on were not read" in caplog.text


def test_a_topic_that_is_deleted_while_a_task_runs_is_counted(
    broker: LocalBroker, topic: str, write: Callable[..., None]
) -> None:
    write(*numbers(0, 5))
    with Stream(earliest(broker, topic)) as stream:
        end = stream.end_of_next()
        stream.reader.partitions(stream.start, end)
        broker.admin.delete_topics([topic])
        with pytest.raises(
            DataLossError, match=f"5 offsets of {topic}-0, from 0 on, are gone: the partition was"
        ):
            stream.rows(stream.start, end)


def test_a_topic_made_anew_is_data_loss_and_is_read_from_its_beginning(
    broker: LocalBroker, topic: str, write: Callable[..., None], caplog: pytest.LogCaptureFixture
) -> None:
    write(*numbers(0, 5))
    start = offsets(topic, 5, 0)
    broker.admin.delete_topics([topic])
    broker.create_topic(topic, partitions=2)
    write(b"new")
    with (
        Stream(earliest(broker, topic), start=start) as stream,
        pytest.raises(DataLossError, match="made anew"),
    ):
        stream.step()
    with Stream(earliest(broker, topic, failOnDataLoss="false"), start=start) as stream:
        assert stream.step() == [b"new"]
        assert "made anew" in caplog.text
        assert stream.step() == []


@pytest.fixture
def remade(
    broker: LocalBroker, topic: str, write: Callable[..., None], monkeypatch: pytest.MonkeyPatch
) -> Callable[[], None]:
    """Deletes the topic and makes it again, with more records than the old one had."""
    # There is no second broker here that could know better after a while.
    for module in (offset_reader, range_fetcher):
        monkeypatch.setattr(module, "_GONE_AFTER_MS", 50)

    def remake() -> None:
        broker.admin.delete_topics([topic])
        broker.create_topic(topic, partitions=2)
        write(*numbers(100, 110))

    return remake


def test_a_longer_topic_by_the_same_name_fails_the_next_run(
    broker: LocalBroker, topic: str, write: Callable[..., None], remade: Callable[[], None]
) -> None:
    write(*numbers(0, 5))
    with Stream(earliest(broker, topic)) as stream:
        assert stream.step() == numbers(0, 5)
    remade()
    with (
        Stream(earliest(broker, topic), start=stream.start) as again,
        pytest.raises(DataLossError, match=r"deleted and made anew.*failOnDataLoss to false to go on with"),
    ):
        again.end_of_next()


@pytest.mark.parametrize("more", [{}, {"maxOffsetsPerTrigger": 20}, {"minOffsetsPerTrigger": 20}])
def test_a_longer_topic_by_the_same_name_is_read_from_its_beginning_if_records_may_be_lost(
    broker: LocalBroker,
    topic: str,
    write: Callable[..., None],
    remade: Callable[[], None],
    caplog: pytest.LogCaptureFixture,
    more: dict[str, object],
) -> None:
    write(*numbers(0, 5))
    given = earliest(broker, topic, failOnDataLoss="false", commitGroup=f"anew-{topic}", **more)
    with Stream(given) as stream:
        assert stream.step(ReadMaxRows(3)) == numbers(0, 3)
        remade()
        assert stream.step() == numbers(100, 110)
        assert (
            f"topic {topic} was deleted and made anew since the query read it, and 2 offsets" in caplog.text
        )
        write(b"next")
        assert stream.step(ReadMaxRows(5)) == [b"next"]
        assert lag(broker, f"anew-{topic}") == {0: 10, 1: 0}
        assert caplog.text.count("made anew") == 1


def test_available_now_finds_a_topic_made_anew(
    broker: LocalBroker, topic: str, write: Callable[..., None], remade: Callable[[], None]
) -> None:
    write(*numbers(0, 5))
    with Stream(earliest(broker, topic)) as stream:
        stream.step()
    remade()
    with Stream(earliest(broker, topic), start=stream.start) as again:
        again.reader.prepareForTriggerAvailableNow()
        with pytest.raises(DataLossError, match="deleted and made anew"):
            again.step()
    with Stream(earliest(broker, topic, failOnDataLoss="false"), start=stream.start) as again:
        again.reader.prepareForTriggerAvailableNow()
        assert again.step() == numbers(100, 110)
        assert again.step() == []


def test_a_micro_batch_that_was_planned_of_a_topic_that_is_gone_reads_nothing_of_the_new_one(
    broker: LocalBroker, topic: str, write: Callable[..., None], remade: Callable[[], None]
) -> None:
    write(*numbers(0, 5))
    with Stream(earliest(broker, topic)) as stream:
        end = stream.end_of_next()
    remade()
    with (
        Stream(earliest(broker, topic), start=stream.start) as again,
        pytest.raises(DataLossError, match=r"5 offsets of .* the topic was deleted and made anew"),
    ):
        again.rows(stream.start, end)
    with Stream(earliest(broker, topic, failOnDataLoss="false"), start=stream.start) as again:
        assert again.rows(stream.start, end).num_rows == 0
        again.start = end
        assert again.step() == numbers(100, 110)


def test_a_checkpoint_without_ids_is_taken_over_and_has_them_afterwards(
    broker: LocalBroker, topic: str, write: Callable[..., None]
) -> None:
    write(*numbers(0, 5))
    with Stream(earliest(broker, topic), start=offsets(topic, 5, 0)) as stream:
        end = stream.end_of_next()
        assert without_ids(end) == offsets(topic, 5, 0)
        assert end != stream.start
        assert stream.rows(stream.start, end).num_rows == 0
        stream.start = end
        assert stream.end_of_next() == end


def test_brokers_without_topic_ids_are_read_as_ever(
    broker: LocalBroker, topic: str, write: Callable[..., None], monkeypatch: pytest.MonkeyPatch
) -> None:
    write(*numbers(0, 3))
    parse = metadata.TopicMetadata
    with Stream(earliest(broker, topic)) as stream:
        assert stream.step() == numbers(0, 3)
        known = stream.start
    # What metadata before version 10 says.
    monkeypatch.setattr(
        metadata, "TopicMetadata", lambda name, topic_id, *rest: parse(name, ZERO_UUID, *rest)
    )
    with Stream(earliest(broker, topic)) as stream:
        assert stream.step() == numbers(0, 3)
        assert stream.start == offsets(topic, 3, 0)
    write(b"more")
    with Stream(earliest(broker, topic), start=known) as stream:
        assert stream.step() == [b"more"]
        assert stream.start.keys() == known.keys(), "an id that is known is not forgotten"


def test_retention_that_overtakes_the_stream_is_counted(
    broker: LocalBroker, topic: str, write: Callable[..., None], caplog: pytest.LogCaptureFixture
) -> None:
    write(*numbers(0, 10))
    start = offsets(topic, 2, 0)
    broker.admin.delete_records({TopicPartition(topic, 0): 6})
    with (
        Stream(earliest(broker, topic), start=start) as stream,
        pytest.raises(DataLossError, match="4 offsets of"),
    ):
        stream.step()
    with Stream(earliest(broker, topic, failOnDataLoss="false"), start=start) as stream:
        assert stream.step() == numbers(6, 10)
        assert f"4 offsets of {topic}-0, from 2 on, are gone: the log begins at 6" in caplog.text


# Progress, and brokers that restart


def lag(broker: LocalBroker, group: str) -> dict[int, int]:
    found = broker.admin.list_group_offsets([group])[group]
    return {each.partition.partition: each.offset for each in found.offsets.values()}


def test_finished_micro_batches_are_committed_to_a_group(
    broker: LocalBroker, topic: str, write: Callable[..., None]
) -> None:
    write(*numbers(0, 5))
    with Stream(earliest(broker, topic, commitGroup=f"group-{topic}")) as stream:
        stream.step()
        assert lag(broker, f"group-{topic}") == {0: 0, 1: 0}, "the micro-batch was planned, not finished"
        stream.step()
        assert lag(broker, f"group-{topic}") == {0: 5, 1: 0}
        stream.reader.commit(offsets(topic, 9, 3))
        assert lag(broker, f"group-{topic}") == {0: 9, 1: 3}


def test_connections_survive_a_restart_of_the_broker() -> None:
    with start_broker(topics={"t": 1}) as broker, Stream(earliest(broker, "t")) as stream:
        fill(broker.bootstrap_servers, "t", [b"1"])
        assert stream.step() == [b"1"]
        broker.kill()
        broker.restart()
        fill(broker.bootstrap_servers, "t", [b"2"])
        assert stream.step() == [b"2"]
