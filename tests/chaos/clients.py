"""Clients that know exactly what they were told: one request at a time, on one socket, no background work.

A ``Writer`` sends each batch, under the same sequence numbers, until it is acknowledged, however often the
broker dies in between. So after a scenario its partition must hold what it wrote, once, in order: nothing
lost, nothing doubled, nothing torn.
"""

from __future__ import annotations

import contextlib
import threading
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import NamedTuple, TypeVar

from tests.rigs.raw_client import RawClient

from tidelog.errors import ErrorCode
from tidelog.records.batch import check_crc, iter_batches
from tidelog.records.record import Record, decode_batch, encode_batch
from tidelog.wire.messages import (
    alter_replica_log_dirs,
    create_partitions,
    create_topics,
    delete_records,
    delete_topics,
    describe_configs,
    describe_log_dirs,
    fetch,
    incremental_alter_configs,
    init_producer_id,
    list_offsets,
    metadata,
    produce,
)
from tidelog.wire.schema import Payload

WAIT_S = 30.0
EARLIEST, LATEST = -2, -1
TOPIC_RESOURCE = 2
READY_BYTES = 4 * 1024 * 1024

P = TypeVar("P", bound=Payload)


def wait_until(condition: str, check: Callable[[], object], deadline_s: float = WAIT_S) -> None:
    """Wait until ``check`` gives something true."""
    end = time.monotonic() + deadline_s
    while not check():
        assert time.monotonic() < end, f"not within {deadline_s} s: {condition}"
        time.sleep(0.005)


class Refused(Exception):
    """The broker has answered with an error."""

    def __init__(self, code: int, message: str | None = None) -> None:
        self.code = ErrorCode(code)
        super().__init__(f"{self.code.name}: {message}" if message else self.code.name)


def accepted(code: int, message: str | None = None) -> None:
    """Raise unless ``code`` says that all went well."""
    if code:
        raise Refused(code, message)


class Session:
    """A connection that is made when it is needed, and again after it broke."""

    def __init__(self, bootstrap: str, *, timeout_s: float = WAIT_S) -> None:
        host, _, port = bootstrap.rpartition(":")
        self._address = host, int(port)
        self._timeout_s = timeout_s
        self._client: RawClient | None = None

    def ask(self, version: int, request: Payload, response: type[P]) -> P:
        """Send a request and read its answer; ``OSError`` when the connection breaks before."""
        if self._client is None:
            self._client = RawClient(*self._address, timeout_s=self._timeout_s)
        try:
            return self._client.ask(version, request, response)
        except OSError:
            self.close()
            raise

    def limit(self, timeout_s: float) -> None:
        """How long to wait for an answer from the next read on; another thread may be asking."""
        self._timeout_s = timeout_s
        if (client := self._client) is not None:
            with contextlib.suppress(OSError):  # it has just been closed
                client.sock.settimeout(timeout_s)

    def close(self) -> None:
        if self._client is not None:
            self._client.close()
            self._client = None


def with_retry(call: Callable[[], P], stop: threading.Event | None = None) -> P:
    """Call again while the broker is not there."""
    end = time.monotonic() + WAIT_S
    while True:
        try:
            return call()
        except OSError:
            if time.monotonic() > end or (stop is not None and stop.is_set()):
                raise
            time.sleep(0.005)


class Admin(Session):
    """What an administrator does; every refusal is raised."""

    def create_topic(self, name: str, partitions: int = 1, /, **configs: str) -> None:
        """Create a topic; options with ``_`` in the place of ``.``."""
        topic = create_topics.CreatableTopic(
            name=name,
            num_partitions=partitions,
            replication_factor=1,
            configs=[
                create_topics.CreatableTopicConfig(name=option.replace("_", "."), value=value)
                for option, value in configs.items()
            ],
        )
        request = create_topics.CreateTopicsRequest(topics=[topic], timeout_ms=30_000)
        (result,) = self.ask(7, request, create_topics.CreateTopicsResponse).topics
        accepted(result.error_code, result.error_message)

    def delete_topic(self, name: str) -> None:
        topic = delete_topics.DeleteTopicState(name=name)
        request = delete_topics.DeleteTopicsRequest(topics=[topic], timeout_ms=30_000)
        (result,) = self.ask(6, request, delete_topics.DeleteTopicsResponse).responses
        accepted(result.error_code, result.error_message)

    def add_partitions(self, name: str, count: int) -> None:
        topic = create_partitions.CreatePartitionsTopic(name=name, count=count, assignments=None)
        request = create_partitions.CreatePartitionsRequest(topics=[topic], timeout_ms=30_000)
        (result,) = self.ask(3, request, create_partitions.CreatePartitionsResponse).results
        accepted(result.error_code, result.error_message)

    def topics(self) -> dict[str, tuple[bytes, int]]:
        """The id and the number of partitions of every topic."""
        request = metadata.MetadataRequest(topics=None, allow_auto_topic_creation=False)
        answer = self.ask(12, request, metadata.MetadataResponse)
        return {topic.name or "": (topic.topic_id, len(topic.partitions)) for topic in answer.topics}

    def set_topic_configs(self, name: str, configs: Mapping[str, str]) -> None:
        resource = incremental_alter_configs.AlterConfigsResource(
            resource_type=TOPIC_RESOURCE,
            resource_name=name,
            configs=[incremental_alter_configs.AlterableConfig(name=k, value=v) for k, v in configs.items()],
        )
        request = incremental_alter_configs.IncrementalAlterConfigsRequest(resources=[resource])
        (result,) = self.ask(1, request, incremental_alter_configs.IncrementalAlterConfigsResponse).responses
        accepted(result.error_code, result.error_message)

    def topic_configs(self, name: str) -> dict[str, str | None]:
        resource = describe_configs.DescribeConfigsResource(
            resource_type=TOPIC_RESOURCE, resource_name=name, configuration_keys=None
        )
        request = describe_configs.DescribeConfigsRequest(resources=[resource])
        (result,) = self.ask(4, request, describe_configs.DescribeConfigsResponse).results
        accepted(result.error_code, result.error_message)
        return {config.name: config.value for config in result.configs}

    def delete_records(self, topic: str, partition: int, before: int) -> int:
        """Delete the records before an offset; gives where the log starts now."""
        wanted = delete_records.DeleteRecordsPartition(partition_index=partition, offset=before)
        request = delete_records.DeleteRecordsRequest(
            topics=[delete_records.DeleteRecordsTopic(name=topic, partitions=[wanted])], timeout_ms=30_000
        )
        answer = self.ask(2, request, delete_records.DeleteRecordsResponse)
        result = answer.topics[0].partitions[0]
        accepted(result.error_code)
        return result.low_watermark

    def offset(self, topic: str, partition: int, at: int) -> int:
        """``EARLIEST``, ``LATEST``, or the offset for a timestamp."""
        wanted = list_offsets.ListOffsetsPartition(partition_index=partition, timestamp=at)
        request = list_offsets.ListOffsetsRequest(
            replica_id=-1, topics=[list_offsets.ListOffsetsTopic(name=topic, partitions=[wanted])]
        )
        result = self.ask(7, request, list_offsets.ListOffsetsResponse).topics[0].partitions[0]
        accepted(result.error_code)
        return result.offset

    def log_dirs(self) -> dict[str, describe_log_dirs.DescribeLogDirsResult]:
        """What the broker says of each of its directories."""
        request = describe_log_dirs.DescribeLogDirsRequest(topics=None)
        answer = self.ask(4, request, describe_log_dirs.DescribeLogDirsResponse)
        accepted(answer.error_code)
        return {result.log_dir: result for result in answer.results}

    def where_is(self, topic: str, partition: int) -> dict[str, bool]:
        """The directories that have the partition, and whether it is only on its way there."""
        return {
            path: each.is_future_key
            for path, result in self.log_dirs().items()
            for named in result.topics
            if named.name == topic
            for each in named.partitions
            if each.partition_index == partition
        }

    def move(self, topic: str, partition: int, log_dir: str) -> None:
        wanted = alter_replica_log_dirs.AlterReplicaLogDir(
            path=log_dir,
            topics=[alter_replica_log_dirs.AlterReplicaLogDirTopic(name=topic, partitions=[partition])],
        )
        request = alter_replica_log_dirs.AlterReplicaLogDirsRequest(dirs=[wanted])
        answer = self.ask(2, request, alter_replica_log_dirs.AlterReplicaLogDirsResponse)
        accepted(answer.results[0].partitions[0].error_code)


class Writer(Session):
    """An idempotent producer of one partition."""

    def __init__(self, bootstrap: str, topic: str, partition: int = 0, *, timeout_s: float = WAIT_S) -> None:
        super().__init__(bootstrap, timeout_s=timeout_s)
        self.topic = topic
        self.partition = partition
        self.written: list[bytes] = []
        """The values that were acknowledged, in order."""
        self.sequence = 0
        self._producer_id: int | None = None

    def write(
        self,
        values: Sequence[bytes],
        *,
        keys: Sequence[bytes | None] | None = None,
        timestamp_ms: int | None = None,
        stop: threading.Event | None = None,
    ) -> int:
        """Send until the batch is acknowledged; gives its first offset."""
        if self._producer_id is None:
            self._producer_id = with_retry(self._init_producer_id, stop).producer_id
        now_ms = timestamp_ms if timestamp_ms is not None else int(time.time() * 1000)
        records = [
            Record(index, now_ms, None if keys is None else keys[index], value, ())
            for index, value in enumerate(values)
        ]
        batch = encode_batch(
            records, producer_id=self._producer_id, producer_epoch=0, base_sequence=self.sequence
        )
        answer = with_retry(lambda: self.send(bytes(batch)), stop)
        result = answer.responses[0].partition_responses[0]
        accepted(result.error_code, result.error_message)
        self.sequence += len(values)
        self.written += values
        return result.base_offset

    def send(self, records: bytes, *, acks: int = -1) -> produce.ProduceResponse:
        """One produce request, once."""
        data = produce.PartitionProduceData(index=self.partition, records=records)
        topic = produce.TopicProduceData(name=self.topic, partition_data=[data])
        request = produce.ProduceRequest(acks=acks, timeout_ms=30_000, topic_data=[topic])
        return self.ask(11, request, produce.ProduceResponse)

    def _init_producer_id(self) -> init_producer_id.InitProducerIdResponse:
        request = init_producer_id.InitProducerIdRequest(transactional_id=None, transaction_timeout_ms=60_000)
        answer = self.ask(4, request, init_producer_id.InitProducerIdResponse)
        accepted(answer.error_code)
        return answer


class Stored(NamedTuple):
    """A record as it was read."""

    offset: int
    key: bytes | None
    value: bytes | None


def fetch_once(
    session: Session, topic: str, partition: int, offset: int, *, max_wait_ms: int = 0
) -> fetch.PartitionData:
    """One fetch request for one partition; its error, if any, is in the answer."""
    wanted = fetch.FetchPartition(partition=partition, fetch_offset=offset, partition_max_bytes=READY_BYTES)
    request = fetch.FetchRequest(
        max_wait_ms=max_wait_ms, min_bytes=1, topics=[fetch.FetchTopic(topic=topic, partitions=[wanted])]
    )
    return session.ask(12, request, fetch.FetchResponse).responses[0].partitions[0]


def read_from(bootstrap: str, topic: str, partition: int, offset: int | None = None) -> list[Stored]:
    """Everything from ``offset`` (by default the start) to the end, every batch checked."""
    admin = Admin(bootstrap)
    try:
        position = admin.offset(topic, partition, EARLIEST) if offset is None else offset
        end = admin.offset(topic, partition, LATEST)
        found: list[Stored] = []
        while position < end:
            answer = fetch_once(admin, topic, partition, position)
            accepted(answer.error_code)
            assert answer.records, f"nothing at offset {position} of {topic}-{partition}, which ends at {end}"
            before = position
            data = memoryview(answer.records)
            for pos, header in iter_batches(data):
                assert check_crc(data, pos, header.size_bytes), (
                    f"the batch at {header.base_offset} is damaged"
                )
                for record in decode_batch(data[pos : pos + header.size_bytes]):
                    if record.offset >= before:
                        found.append(Stored(record.offset, record.key, record.value))
                position = header.next_offset
            assert position > before
        return found
    finally:
        admin.close()


def values(stored: Iterable[Stored]) -> list[bytes]:
    """Only what they say."""
    return [record.value or b"" for record in stored]


def assert_kept(bootstrap: str, writer: Writer) -> None:
    """The partition holds what the writer wrote, once, in order, from offset 0 on."""
    stored = read_from(bootstrap, writer.topic, writer.partition)
    assert values(stored) == writer.written
    assert [record.offset for record in stored] == list(range(len(stored)))
