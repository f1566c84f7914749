"""A scripted broker that keeps logs and producer state as Kafka does, and fails when a test says so."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from typing import Any

from tidelog.errors import ErrorCode
from tidelog.ids import Uuid
from tidelog.records.batch import add_sequence, parse_header
from tidelog.records.record import Record, decode_batch
from tidelog.wire.api import ApiKey
from tidelog.wire.messages.init_producer_id import InitProducerIdResponse
from tidelog.wire.messages.produce import (
    PartitionProduceResponse,
    ProduceRequest,
    ProduceResponse,
    TopicProduceResponse,
)

Fault = Callable[["PartitionLog", bytes], PartitionProduceResponse | ErrorCode | None]


class PartitionLog:
    """One partition: its records, and the last batches of each producer."""

    def __init__(self) -> None:
        self.records: list[Record] = []
        self.producers: dict[int, tuple[int, deque[tuple[int, int, int]]]] = {}

    @property
    def values(self) -> list[bytes | None]:
        return [record.value for record in self.records]

    def append(self, data: bytes) -> tuple[ErrorCode, int]:
        """Kafka's rules: the next sequence, a known duplicate, any sequence of an unknown producer."""
        header = parse_header(data)
        first, last = header.base_sequence, header.last_sequence
        epoch, batches = self.producers.get(header.producer_id, (-1, deque(maxlen=5)))
        if header.producer_id >= 0:
            if header.producer_epoch < epoch:
                return ErrorCode.INVALID_PRODUCER_EPOCH, -1
            for known_first, known_last, offset in batches if header.producer_epoch == epoch else ():
                if (known_first, known_last) == (first, last):
                    return ErrorCode.NONE, offset
            if batches:
                expected = add_sequence(batches[-1][1], 1) if header.producer_epoch == epoch else 0
                if first != expected:
                    return ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER, -1
            if header.producer_epoch != epoch:
                batches = deque(maxlen=5)
        offset = len(self.records)
        self.records += decode_batch(data)
        batches.append((first, last, offset))
        self.producers[header.producer_id] = (header.producer_epoch, batches)
        return ErrorCode.NONE, offset


class IdempotentBroker:
    """Answers Produce and InitProducerId of a ``ScriptedBroker``.

    ``faults`` are taken one per partition of a request: what one returns is the answer instead of an append;
    None lets it be written.
    """

    def __init__(self, broker: Any) -> None:
        self.broker = broker
        self.logs: dict[int, PartitionLog] = {}
        self.faults: deque[Fault | None] = deque()
        self.versions: list[int] = []
        self.requests: list[ProduceRequest] = []
        self.drop_answers = 0
        self.before_answer: Callable[[], None] = lambda: None
        broker.handlers[ApiKey.PRODUCE] = self.produce
        broker.handlers[ApiKey.INIT_PRODUCER_ID] = self.init_producer_id
        self.next_producer_id = 40

    def init_producer_id(self, request: Any, version: int) -> InitProducerIdResponse:
        self.next_producer_id += 1
        return InitProducerIdResponse(producer_id=self.next_producer_id, producer_epoch=0)

    def log(self, partition: int = 0) -> PartitionLog:
        return self.logs.setdefault(partition, PartitionLog())

    def produce(self, request: ProduceRequest, version: int) -> ProduceResponse | None:
        self.versions.append(version)
        self.requests.append(request)
        answers: dict[tuple[str, Uuid], list[PartitionProduceResponse]] = {}
        for topic in request.topic_data:
            for data in topic.partition_data:
                log = self.log(data.index)
                fault = self.faults.popleft() if self.faults else None
                answer = self._answer(log, data.index, data.records or b"", fault)
                answers.setdefault((topic.name, topic.topic_id), []).append(answer)
        self.before_answer()
        if request.acks == 0:
            return None
        return ProduceResponse(
            responses=[
                TopicProduceResponse(name=name, topic_id=topic_id, partition_responses=partitions)
                for (name, topic_id), partitions in answers.items()
            ]
        )

    def _answer(
        self, log: PartitionLog, index: int, records: bytes, fault: Fault | None
    ) -> PartitionProduceResponse:
        outcome = fault(log, records) if fault is not None else None
        if isinstance(outcome, PartitionProduceResponse):
            outcome.index = index
            return outcome
        if outcome is not None:
            return PartitionProduceResponse(index=index, error_code=outcome, base_offset=-1)
        code, offset = log.append(records)
        return PartitionProduceResponse(index=index, error_code=code, base_offset=offset)


def refuse(code: ErrorCode) -> Fault:
    """Refuse without writing."""
    return lambda log, records: code


def write_but_say(code: ErrorCode) -> Fault:
    """Write, and answer with an error all the same."""

    def fault(log: PartitionLog, records: bytes) -> ErrorCode:
        log.append(records)
        return code

    return fault
