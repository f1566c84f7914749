"""The audit log as a topic: what waits is bounded, what is lost is counted, and all brokers can write."""

from __future__ import annotations

import asyncio
import json
from types import SimpleNamespace
from typing import Any

import pytest
from tests.rigs.waiting import until

from tidelog.broker.access import audit_topic
from tidelog.broker.access.audit_topic import AuditBuffer, AuditPlaces, AuditTopic
from tidelog.clock import SystemClock
from tidelog.errors import ErrorCode, KafkaError
from tidelog.ids import random_uuid
from tidelog.records.record import decode_batch
from tidelog.wire.messages.produce import (
    PartitionProduceResponse,
    ProduceRequest,
    ProduceResponse,
    TopicProduceResponse,
)


def lines(buffer: AuditBuffer) -> list[Any]:
    return [json.loads(each.value or b"") for each in buffer.first()]


def test_what_waits_is_bounded_and_what_did_not_fit_is_counted() -> None:
    buffer = AuditBuffer(SystemClock(), max_entries=3)
    for number in range(10):
        buffer.write(b"%d" % number)
    assert lines(buffer) == [0, 1, 2]
    assert len(buffer) == 4, "the count is an entry, too"
    buffer.written(1)
    buffer.write(b"10")
    assert lines(buffer)[:2] == [1, 2]
    assert lines(buffer)[2]["lostEntries"] == 7
    buffer.written(3)
    assert lines(buffer)[0]["lostEntries"] == 1, "the one that came when the count took the last place"


def test_long_entries_are_bounded_by_their_bytes() -> None:
    buffer = AuditBuffer(SystemClock(), max_bytes=1000)
    for _ in range(100):
        buffer.write(b'"' + b"x" * 98 + b'"')
    assert len(lines(buffer)) == 10
    buffer.written(10)
    assert lines(buffer)[0]["lostEntries"] == 90
    buffer.written(1)
    assert not buffer


def test_a_batch_has_a_bounded_size() -> None:
    buffer = AuditBuffer(SystemClock())
    for _ in range(1000):
        buffer.write(b"1")
    assert len(buffer.first()) == audit_topic._BATCH_ENTRIES
    long = AuditBuffer(SystemClock())
    for _ in range(10):
        long.write(b"1" * 100_000)
    assert len(long.first()) == 1


class Cluster:
    """Broker 1 of two; the leader of the only partition is whoever the test says."""

    def __init__(self) -> None:
        self.leader = 2
        self.here: list[int] = []
        self.elsewhere: list[int] = []
        self.refusal = 0
        self.made = 0
        self.topics: dict[str, Any] = {}
        self.buffer = AuditBuffer(SystemClock())
        image: Any = SimpleNamespace(topics=self.topics)
        partitions: Any = SimpleNamespace(get=lambda *_: SimpleNamespace(append=self._append))
        places = AuditPlaces(1, image, partitions, self, self, lambda _: None)
        self.writer = AuditTopic("audit", self.buffer, places, SystemClock())

    def _append(self, batch: memoryview) -> None:
        self.here += [json.loads(each.value or b"") for each in decode_batch(bytes(batch))]

    async def auto_create_topics(self, names: list[str]) -> dict[str, KafkaError | None]:
        self.made += 1
        if self.made == 1:
            return {"audit": KafkaError(ErrorCode.NOT_CONTROLLER, "not now")}
        part = SimpleNamespace(leader=self.leader)
        self.topics["audit"] = SimpleNamespace(name="audit", id=random_uuid(), partitions={0: part})
        return {"audit": None}

    async def produce(self, broker_id: int, request: ProduceRequest, timeout_ms: float) -> ProduceResponse:
        assert broker_id == self.leader
        if self.refusal:
            code, self.refusal = self.refusal, 0
        else:
            code = 0
            (part,) = request.topic_data[0].partition_data
            self.elsewhere += [
                json.loads(each.value or b"") for each in decode_batch(bytes(part.records or b""))
            ]
        answer = PartitionProduceResponse(index=0, error_code=code)
        topic = TopicProduceResponse(name="audit", partition_responses=[answer])
        return ProduceResponse(responses=[topic])


@pytest.mark.parametrize("leader", [1, 2])
def test_entries_go_to_whoever_leads_and_none_is_lost_by_a_refusal(
    leader: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(audit_topic, "_WRITE_EVERY_S", 0.001)
    monkeypatch.setattr(audit_topic, "_RETRY_S", 0.001)

    async def scenario() -> list[int]:
        cluster = Cluster()
        cluster.leader = leader
        cluster.refusal = ErrorCode.NOT_LEADER_OR_FOLLOWER
        cluster.writer.start()
        for number in range(500):
            cluster.buffer.write(b"%d" % number)
        await until(lambda: not cluster.buffer)
        cluster.buffer.write(b"500")
        await cluster.writer.close()
        assert cluster.made == 2
        return cluster.here if leader == 1 else cluster.elsewhere

    assert asyncio.run(asyncio.wait_for(scenario(), 30)) == list(range(501))
