"""Waiting for what was produced: each partition that changes is looked at, and no other."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

from tidelog.broker.network.answer import PromisedAnswer
from tidelog.broker.produce.produce_wait import ProduceWait, WrittenBatch
from tidelog.errors import ErrorCode
from tidelog.replication.partition import ACKS_ALL
from tidelog.scheduling.promise import Promise
from tidelog.wire.produce import PartitionAnswer

RESULT: PartitionAnswer = (0, 0, 5, -1, 0, (), None, None)


class Deadlines:
    def __init__(self) -> None:
        self.waiting: set[object] = set()

    def add(self, waiter: object, timeout_ms: int) -> None:
        self.waiting.add(waiter)

    def remove(self, waiter: object, timeout_ms: int) -> None:
        self.waiting.discard(waiter)


class Replicated:
    """What a wait knows of a partition."""

    flushing = offline = closed = False
    is_leader = True

    def __init__(self) -> None:
        self.log = SimpleNamespace(high_watermark=0)
        self.looks = 0
        self.waiters: set[ProduceWait] = set()

    def is_synced(self, offset: int) -> bool:
        self.looks += 1
        return True

    def watch(self, waiter: ProduceWait) -> None:
        self.waiters.add(waiter)

    def unwatch(self, waiter: ProduceWait) -> None:
        self.waiters.discard(waiter)

    def commit(self) -> None:
        self.log.high_watermark = 1
        for waiter in tuple(self.waiters):
            waiter.partition_changed(self)  # type: ignore[arg-type]


class Scene:
    def __init__(self, count: int, encode: Any = lambda: b"answer") -> None:
        self.deadlines = Deadlines()
        self.partitions = [Replicated() for _ in range(count)]
        self.results: list[PartitionAnswer] = [RESULT] * count
        self.wait = ProduceWait(ACKS_ALL, encode, self.deadlines)  # type: ignore[arg-type]

    def add_all(self) -> None:
        for slot, partition in enumerate(self.partitions):
            self.wait.add(WrittenBatch(partition, 1, self.results, slot))  # type: ignore[arg-type]

    def start(self) -> PromisedAnswer:
        return self.wait.start(1000, refused=False)


def test_each_partition_of_a_wide_request_is_looked_at_once() -> None:
    scene = Scene(500)
    scene.add_all()
    pending = scene.start()
    for partition in scene.partitions:
        assert not pending.done
        partition.commit()
    assert pending.value == b"answer"
    assert {partition.looks for partition in scene.partitions} == {1}
    assert not any(partition.waiters for partition in scene.partitions)
    assert not scene.deadlines.waiting


@pytest.mark.parametrize("count", [1, 3])
def test_what_is_committed_before_all_batches_are_known_is_not_waited_for(count: int) -> None:
    scene = Scene(count)
    scene.add_all()
    for partition in scene.partitions:
        partition.commit()
    assert scene.start().value == b"answer"
    assert not scene.deadlines.waiting


def test_what_is_lost_before_all_batches_are_known_is_refused() -> None:
    scene = Scene(2)
    scene.add_all()
    scene.partitions[0].closed = True
    scene.wait.partition_changed(scene.partitions[0])  # type: ignore[arg-type]
    pending = scene.start()
    assert not pending.pipelined
    scene.partitions[1].commit()
    assert pending.value == b"answer"
    assert [result[1] for result in scene.results] == [ErrorCode.NOT_LEADER_OR_FOLLOWER, 0]


def test_an_answer_that_takes_a_while_to_write_is_followed() -> None:
    written: PromisedAnswer = Promise()
    scene = Scene(1, lambda: written)
    scene.add_all()
    pending = scene.start()
    scene.partitions[0].commit()
    assert not pending.done
    written.resolve(b"wide")
    assert pending.value == b"wide"


def test_the_rest_is_refused_when_time_is_up() -> None:
    scene = Scene(3)
    scene.add_all()
    pending = scene.start()
    scene.partitions[1].commit()
    scene.wait.time_is_up()
    assert pending.value == b"answer"
    codes = [result[1] for result in scene.results]
    assert codes == [ErrorCode.REQUEST_TIMED_OUT, 0, ErrorCode.REQUEST_TIMED_OUT]
