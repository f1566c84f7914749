"""What a coordinator asks of its log, of the one in memory and of a partition on disk alike."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from tests.rigs.clock import ManualClock
from tests.rigs.memory_log import MemoryLog

from tidelog.broker.coordination.coordinator_log import PartitionLog
from tidelog.coordinator.log import CoordinatorLog
from tidelog.errors import ErrorCode, KafkaError
from tidelog.ids import TopicPartition, random_uuid
from tidelog.metadata.image import PartitionImage
from tidelog.records.batch import iter_batches
from tidelog.records.control import ControlType, EndTxnMarker, encode_end_txn_marker
from tidelog.records.record import Record, decode_batch, encode_batch
from tidelog.replication.partition import Partition
from tidelog.storage.log.log import Log
from tidelog.storage.log.log_context import LogContext
from tidelog.storage.log_config import LogConfig

ME, OTHER = 1, 2


class Bench:
    """A log, and the replicas that have not got everything."""

    def __init__(self, log: CoordinatorLog, hold: Callable[[], None], release: Callable[[], None]) -> None:
        self.log = log
        self.hold = hold
        """From now on appends are not committed."""
        self.release = release
        """The other replicas have caught up."""


def in_memory(_: Path, loop: asyncio.AbstractEventLoop) -> Bench:
    log = MemoryLog()

    def hold() -> None:
        log.autocommit = False

    return Bench(log, hold, log.commit)


def on_disk(tmp_path: Path, loop: asyncio.AbstractEventLoop) -> Bench:
    log = Log.open(LogContext(tmp_path / "__numbers-0", LogConfig(), ManualClock()), clean_shutdown=True)
    partition = Partition(TopicPartition("__numbers", 0), random_uuid(), log, ME, loop, lambda error: None)

    def lead(isr: tuple[int, ...]) -> None:
        partition.apply(PartitionImage(replicas=(ME, OTHER), leader=ME, leader_epoch=0, isr=isr))

    lead((ME,))
    return Bench(PartitionLog(partition, lambda error: None), lambda: lead((ME, OTHER)), lambda: lead((ME,)))


@pytest.fixture
def loop() -> Iterator[asyncio.AbstractEventLoop]:
    loop = asyncio.new_event_loop()
    yield loop
    loop.close()


@pytest.fixture(params=[in_memory, on_disk], ids=["memory", "disk"])
def bench(request: pytest.FixtureRequest, tmp_path: Path, loop: asyncio.AbstractEventLoop) -> Bench:
    made: Bench = request.param(tmp_path, loop)
    return made


def turn(loop: asyncio.AbstractEventLoop) -> None:
    """Let those be told who are told in a turn of their own."""
    loop.run_until_complete(asyncio.sleep(0))
    loop.run_until_complete(asyncio.sleep(0))


def batch(*keys: bytes) -> bytes:
    return encode_batch([Record(timestamp=1, key=key) for key in keys])


def keys(data: bytes) -> list[tuple[int, bytes | None]]:
    return [
        (record.offset, record.key)
        for pos, header in iter_batches(data)
        for record in decode_batch(data[pos : pos + header.size_bytes])
    ]


def test_appends_are_numbered_and_read_back(bench: Bench) -> None:
    log = bench.log
    assert (log.start_offset, log.end_offset, log.committed_offset) == (0, 0, 0)
    assert log.append(batch(b"a", b"b")) == 0
    assert log.append(batch(b"c")) == 2
    assert log.end_offset == 3
    assert keys(log.read(0, 1 << 20)) == [(0, b"a"), (1, b"b"), (2, b"c")]
    assert keys(log.read(2, 1 << 20)) == [(2, b"c")]
    assert log.read(3, 1 << 20) == b""


def test_a_read_gives_one_batch_at_least(bench: Bench) -> None:
    bench.log.append(batch(b"a"))
    bench.log.append(batch(b"b"))
    assert keys(bench.log.read(0, 1)) == [(0, b"a")]


def test_what_others_have_not_got_is_readable_but_not_committed(
    bench: Bench, loop: asyncio.AbstractEventLoop
) -> None:
    bench.log.append(batch(b"a"))
    told: list[int] = []
    bench.log.on_committed = lambda: told.append(bench.log.committed_offset)
    bench.hold()
    bench.log.append(batch(b"b"))
    turn(loop)
    assert bench.log.committed_offset == 1
    assert keys(bench.log.read(0, 1 << 20))[-1] == (1, b"b")
    bench.release()
    turn(loop)
    assert bench.log.committed_offset == 2
    assert told[-1] == 2


def test_what_lies_before_a_truncation_is_gone(bench: Bench) -> None:
    for key in (b"a", b"b", b"c"):
        bench.log.append(batch(key))
    bench.log.truncate_before(2)
    assert bench.log.start_offset == 2
    assert keys(bench.log.read(2, 1 << 20)) == [(2, b"c")]


def test_transactional_batches_and_markers_need_no_sequence_numbers(bench: Bench) -> None:
    record = Record(timestamp=1, key=b"a")
    for epoch in (0, 1):
        bench.log.append(encode_batch([record], producer_id=5, producer_epoch=epoch, transactional=True))
        bench.log.append(encode_batch([record], producer_id=5, producer_epoch=epoch, transactional=True))
        marker = EndTxnMarker(ControlType.COMMIT, 0)
        bench.log.append(encode_end_txn_marker(marker, producer_id=5, producer_epoch=epoch, timestamp=1))
    headers = [header for _, header in iter_batches(bench.log.read(0, 1 << 20))]
    assert [header.is_control for header in headers] == [False, False, True] * 2
    assert bench.log.end_offset == 6


def test_a_batch_over_the_limit_is_refused(bench: Bench) -> None:
    huge = encode_batch([Record(timestamp=1, key=b"a", value=bytes(bench.log.max_batch_bytes))])
    assert len(huge) > bench.log.max_batch_bytes
    with pytest.raises(KafkaError) as caught:
        bench.log.append(huge)
    assert caught.value.code is ErrorCode.MESSAGE_TOO_LARGE
    assert bench.log.end_offset == 0


def test_a_partition_that_is_led_elsewhere_takes_no_appends(
    tmp_path: Path, loop: asyncio.AbstractEventLoop
) -> None:
    bench = on_disk(tmp_path, loop)
    assert isinstance(bench.log, PartitionLog)
    bench.log.partition.apply(
        PartitionImage(replicas=(ME, OTHER), leader=OTHER, leader_epoch=1, isr=(OTHER,))
    )
    with pytest.raises(KafkaError) as caught:
        bench.log.append(batch(b"a"))
    assert caught.value.code is ErrorCode.NOT_LEADER_OR_FOLLOWER
