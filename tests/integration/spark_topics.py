"""Topics with records, and the data source's readers called the way Spark calls them, without a JVM."""

from __future__ import annotations

import json
import pickle
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import pyarrow as pa
from pyspark.sql.datasource_internal import _SimpleStreamReaderWrapper
from pyspark.sql.streaming.datasource import ReadLimit
from pyspark.sql.types import StructType

from tidelog.client.producer.producer import Producer
from tidelog.ids import TopicPartition
from tidelog.records.record import RecordHeader
from tidelog.spark.data_source import TidelogDataSource
from tidelog.spark.read._batch_reader import TidelogReader
from tidelog.spark.read._stream_reader import TidelogStreamReader
from tidelog.testing.broker import LocalBroker

KAFKA_COLUMNS = "key binary, value binary, topic string, partition int, offset bigint, timestamp timestamp"


def fill(
    bootstrap: str,
    topic: str,
    values: Iterable[bytes | None],
    *,
    partition: int = 0,
    key: bytes | None = None,
    headers: Sequence[RecordHeader] = (),
    timestamp_ms: int | None = None,
    **producer_options: Any,
) -> None:
    """Write records to one partition and wait until they are there."""
    with Producer(bootstrap_servers=bootstrap, **producer_options) as producer:
        for value in values:
            producer.send(
                topic, value, key=key, partition=partition, headers=headers, timestamp_ms=timestamp_ms
            )
        producer.flush()


def options(broker: LocalBroker | str, **given: object) -> dict[str, str]:
    """Options as Spark hands them over; ``kafka_x_y`` means ``kafka.x.y``."""
    bootstrap = broker if isinstance(broker, str) else broker.bootstrap_servers
    named = {
        name.replace("_", ".") if name.startswith("kafka_") else name: value for name, value in given.items()
    }
    return {"kafka.bootstrap.servers": bootstrap, **{name: str(value) for name, value in named.items()}}


def schema_of(given: Mapping[str, str]) -> StructType:
    schema = TidelogDataSource(dict(given)).schema()
    assert isinstance(schema, StructType)
    return schema


def read_batch(given: Mapping[str, str]) -> pa.Table:
    """All rows of a batch, read task by task."""
    reader = TidelogReader(given, schema_of(given))
    batches = [batch for each in reader.partitions() for batch in _shipped(reader).read(_shipped(each))]
    return pa.Table.from_batches(batches) if batches else pa.table({"value": []})


class Stream:
    """A streaming query over a stream reader: what Spark does, one micro-batch at a time."""

    def __init__(self, given: Mapping[str, str], start: dict[str, Any] | None = None) -> None:
        self._given = given
        self.reader = TidelogStreamReader(given, schema_of(given))
        self.prefetched: pa.Table | None = None
        self.start = start if start is not None else _through_json(self.reader.initialOffset())

    @property
    def position(self) -> dict[str, Any]:
        """Where the query stands, without the ids of topics."""
        return without_ids(self.start)

    def end_of_next(self, limit: ReadLimit | None = None) -> dict[str, Any]:
        """The offset at which the next micro-batch would end."""
        chosen = limit or self.reader.getDefaultReadLimit()
        return _through_json(self.reader.latestOffset(self.start, chosen))

    def step(self, limit: ReadLimit | None = None) -> list[bytes | None]:
        """The values of the next micro-batch."""
        end = self.end_of_next(limit)
        if end == self.start:
            return []
        values: list[bytes | None] = self.rows(self.start, end).column("value").to_pylist()
        self.start = end
        return values

    def rows(self, start: dict[str, Any], end: dict[str, Any]) -> pa.Table:
        """What the tasks of one micro-batch read, which is what was prefetched for them."""
        tasks = self.reader.partitions(start, end)
        self.prefetched = self._take_prefetched(start, end)
        executor = _shipped(TidelogStreamReader(self._given, schema_of(self._given)))
        batches = [batch for each in tasks for batch in executor.read(_shipped(each))]
        read = pa.Table.from_batches(batches) if batches else pa.table({"value": []})
        assert self.prefetched is None or self.prefetched.equals(read)
        return read

    def _take_prefetched(self, start: dict[str, Any], end: dict[str, Any]) -> pa.Table | None:
        """What PySpark's `partitions_func` sends to the JVM behind the tasks."""
        batches = (
            self.reader.getCache(start, end) if isinstance(self.reader, _SimpleStreamReaderWrapper) else None
        )
        assert not isinstance(self.reader, _SimpleStreamReaderWrapper)
        return None if batches is None else pa.Table.from_batches(batches)

    def close(self) -> None:
        self.reader.stop()

    def __enter__(self) -> Stream:
        return self

    def __exit__(self, *exc_info: object) -> None:
        self.close()


def offsets(topic: str, *numbers: int) -> dict[str, dict[str, int]]:
    """Offsets of a topic's partitions, in order, as JSON has them."""
    return {topic: {str(partition): number for partition, number in enumerate(numbers)}}


def without_ids(offset: dict[str, Any]) -> dict[str, Any]:
    """Offsets in JSON as Spark's Kafka connector would have them."""
    return {topic: numbers for topic, numbers in offset.items() if "#" not in topic}


def partition(topic: str, number: int = 0) -> TopicPartition:
    return TopicPartition(topic, number)


def _shipped(thing: Any) -> Any:
    """As it arrives in another process."""
    return pickle.loads(pickle.dumps(thing))


def _through_json(offset: dict[str, Any]) -> dict[str, Any]:
    found: dict[str, Any] = json.loads(json.dumps(offset))
    return found
