"""A scripted broker that serves fetch sessions from batches in memory, and says what a test tells it to."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Awaitable, Callable
from typing import Any

import pytest
from tests.unit.client.conftest import ScriptedBroker

from tidelog.client.consumer.async_consumer import AsyncConsumer
from tidelog.ids import TopicPartition, Uuid, random_uuid
from tidelog.records.record import Record, encode_batch
from tidelog.records.record_codec import ConsumerRecord
from tidelog.wire.api import ApiKey
from tidelog.wire.codec import decode
from tidelog.wire.headers import parse_request_header
from tidelog.wire.messages.fetch import FetchableTopicResponse, FetchRequest, FetchResponse, PartitionData
from tidelog.wire.messages.list_offsets import (
    ListOffsetsPartitionResponse,
    ListOffsetsRequest,
    ListOffsetsResponse,
    ListOffsetsTopicResponse,
)
from tidelog.wire.schema import Payload

TIMEOUT_S = 20.0


def batch(base_offset: int, *values: bytes, **fields: Any) -> bytes:
    return encode_batch(
        [Record(timestamp=1, value=value) for value in values], base_offset=base_offset, **fields
    )


class PatientBroker(ScriptedBroker):
    """Keeps connections waiting that ask for a session's next records while ``is_holding``: a long poll."""

    def __init__(self) -> None:
        super().__init__()
        self.is_holding = False
        self.held = 0

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.connections += 1
        with contextlib.suppress(asyncio.IncompleteReadError, ConnectionError):
            while True:
                frame = await reader.readexactly(int.from_bytes(await reader.readexactly(4), "big"))
                if self.is_holding and self._asks_a_session(frame):
                    self.held += 1
                    await reader.read()
                    break
                if not self._answer(frame, writer):
                    break
        writer.close()

    def _asks_a_session(self, frame: bytes) -> bool:
        header, position = parse_request_header(frame)
        if header.api_key != ApiKey.FETCH:
            return False
        request, _ = decode(FetchRequest, header.api_version, frame, position)
        return request.session_epoch > 0


@pytest.fixture
def scripted_broker() -> ScriptedBroker:
    return PatientBroker()


class ServedLog:
    """One partition: its batches, and what is said about it instead of records while ``answers`` lasts."""

    def __init__(self, *batches: bytes, end: int) -> None:
        self.data = b"".join(batches)
        self.end = end
        self.start = 0
        self.aborted: list[Any] = []
        self.answers: list[dict[str, Any]] = []


class FetchService:
    """Fetch and ListOffsets over ``logs``; put its methods into a scripted broker's handlers."""

    def __init__(self, broker: Any, topic: str = "t", partitions: int = 1) -> None:
        self.broker = broker
        self.topic = topic
        self.topic_id: Uuid = random_uuid()
        self.logs: dict[int, ServedLog] = {number: ServedLog(end=0) for number in range(partitions)}
        self.sessions: dict[int, dict[int, Any]] = {}
        self.whole_answers: list[int] = []
        self.fetched_from: list[tuple[int, int]] = []
        self._next_session = 100
        broker.add_topic(topic, partitions, topic_id=self.topic_id)
        broker.handlers[ApiKey.FETCH] = self.fetch
        broker.handlers[ApiKey.LIST_OFFSETS] = self.list_offsets

    def fetch(self, request: Payload, version: int) -> Payload | None:
        assert isinstance(request, FetchRequest)
        if self.whole_answers:
            return FetchResponse(error_code=self.whole_answers.pop(0))
        asked = {
            each.partition: each
            for topic in request.topics
            if topic.topic == self.topic or topic.topic_id == self.topic_id
            for each in topic.partitions
        }
        session_id = 0
        if version >= 7 and request.session_epoch == 0:
            session_id = self._next_session = self._next_session + 1
            self.sessions[session_id] = {}
        elif version >= 7 and request.session_epoch > 0:
            session_id = request.session_id
            if session_id not in self.sessions:
                return FetchResponse(error_code=70)
        elif version >= 7 and request.session_id:
            self.sessions.pop(request.session_id)
            return FetchResponse()
        held = self.sessions.get(session_id, {})
        for gone in request.forgotten_topics_data:
            for number in gone.partitions:
                held.pop(number, None)
        held.update(asked)
        answers = [each for number, ask in held.items() if (each := self._partition(number, ask)) is not None]
        named = {"topic": self.topic} if version < 13 else {"topic_id": self.topic_id}
        responses = [FetchableTopicResponse(partitions=answers, **named)] if answers else []
        return FetchResponse(session_id=session_id, responses=responses)

    def _partition(self, number: int, ask: Any) -> PartitionData | None:
        log = self.logs[number]
        self.fetched_from.append((number, ask.fetch_offset))
        fields: dict[str, Any] = {
            "high_watermark": log.end,
            "last_stable_offset": log.end,
            "log_start_offset": 0,
        }
        if log.answers:
            return PartitionData(partition_index=number, **{**fields, **log.answers.pop(0)})
        if ask.fetch_offset > log.end:
            return PartitionData(partition_index=number, error_code=1, **fields)
        if ask.fetch_offset == log.end:
            return PartitionData(partition_index=number, records=b"", **fields)
        return PartitionData(
            partition_index=number, records=log.data, aborted_transactions=log.aborted, **fields
        )

    def list_offsets(self, request: Payload, version: int) -> Payload | None:
        assert isinstance(request, ListOffsetsRequest)
        return ListOffsetsResponse(
            topics=[
                ListOffsetsTopicResponse(
                    name=topic.name,
                    partitions=[
                        ListOffsetsPartitionResponse(
                            partition_index=each.partition_index,
                            offset=self.logs[each.partition_index].end if each.timestamp == -1 else 0,
                        )
                        for each in topic.partitions
                    ],
                )
                for topic in request.topics
            ]
        )


Action = Callable[[AsyncConsumer, FetchService], Awaitable[None]]


@pytest.fixture
def consume(scripted_broker: Any) -> Callable[..., None]:
    """Runs an action with a consumer of a scripted broker, which ``prepare`` sets up."""

    def run(
        action: Action, prepare: Callable[[FetchService], None], partitions: int = 1, **options: Any
    ) -> None:
        async def main() -> None:
            async with scripted_broker, asyncio.timeout(TIMEOUT_S):
                service = FetchService(scripted_broker, partitions=partitions)
                prepare(service)
                fast: dict[str, Any] = {
                    "retry_backoff_ms": 1,
                    "retry_backoff_max_ms": 5,
                    "auto_offset_reset": "earliest",
                }
                given: dict[str, Any] = {**fast, **options}
                consumer = AsyncConsumer(bootstrap_servers=scripted_broker.address, **given)
                async with consumer:
                    consumer.assign([TopicPartition(service.topic, each) for each in range(partitions)])
                    await action(consumer, service)

        asyncio.run(main())

    return run


async def read(consumer: AsyncConsumer, count: int) -> list[ConsumerRecord]:
    records: list[ConsumerRecord] = []
    while len(records) < count:
        records += await consumer.poll(TIMEOUT_S)
    return records
