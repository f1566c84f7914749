"""Random lives of a log, with crashes, against a list of batches that says what must be there."""

from __future__ import annotations

import shutil
import tempfile
from pathlib import Path
from typing import NamedTuple

import hypothesis.strategies as st
import pytest
from hypothesis import HealthCheck, settings
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule
from tests.rigs.clock import ManualClock
from tests.rigs.faulty_disk import FaultyDisk

from tidelog.errors import ErrorCode, KafkaError, LogDirOfflineError
from tidelog.records.batch import BatchHeader, iter_batches, parse_header
from tidelog.records.control import ControlType, EndTxnMarker, encode_end_txn_marker
from tidelog.records.record import Record, encode_batch
from tidelog.storage.log.log import Isolation, Log
from tidelog.storage.log.log_appender import AppendInfo
from tidelog.storage.log.log_context import LogContext
from tidelog.storage.log_config import LogConfig
from tidelog.storage.producers.producer_state import AppendOrigin

CONFIG = LogConfig(
    segment_bytes=4096, segment_index_bytes=120, index_interval_bytes=300, segment_ms=3_600_000
)
IDEMPOTENT = (11, 12)
TRANSACTIONAL = (21, 22)


class Written(NamedTuple):
    header: BatchHeader
    data: bytes
    marker: EndTxnMarker | None


class Producer(NamedTuple):
    epoch: int
    last_sequence: int
    last_offset: int
    txn_first_offset: int


NEW = Producer(0, -1, -1, -1)


def replayed(batches: list[Written]) -> dict[int, Producer]:
    """What is to be known of every producer after these batches."""
    known: dict[int, Producer] = {}
    for header, _, marker in batches:
        if not header.has_producer_id:
            continue
        now = known.get(header.producer_id, NEW)
        if marker is not None:
            kept = now if now.epoch == header.producer_epoch else NEW
            known[header.producer_id] = kept._replace(epoch=header.producer_epoch, txn_first_offset=-1)
            continue
        txn = now.txn_first_offset
        if header.is_transactional and txn < 0:
            txn = header.base_offset
        known[header.producer_id] = Producer(
            header.producer_epoch, header.last_sequence, header.last_offset, txn
        )
    return known


def aborted(batches: list[Written]) -> list[tuple[int, int, int]]:
    """``(first offset, marker's offset, producer id)`` of every aborted transaction."""
    found = []
    for slot, (header, _, marker) in enumerate(batches):
        if marker is not None and marker.control_type is ControlType.ABORT:
            first = replayed(batches[:slot]).get(header.producer_id, NEW).txn_first_offset
            if first >= 0:
                found.append((first, header.base_offset, header.producer_id))
    return found


class LogLife(RuleBasedStateMachine):
    def __init__(self) -> None:
        super().__init__()
        self.root = Path(tempfile.mkdtemp(prefix="log-model-"))
        self.directory = self.root / "orders-0"
        self.clock = ManualClock()
        self.disk = FaultyDisk()
        self.batches: list[Written] = []
        self.producers: dict[int, Producer] = {}
        self.epoch = 0
        self.start_offset = 0
        self.checkpointed = 0
        self.log = self.opened(clean=True)

    def teardown(self) -> None:
        self.log.close(clean=False)
        shutil.rmtree(self.root)

    def opened(self, *, clean: bool) -> Log:
        log = Log.open(
            LogContext(self.directory, CONFIG, self.clock, self.disk),
            clean_shutdown=clean,
            recovery_point=self.checkpointed,
            log_start_offset=self.start_offset,
        )
        log.update_high_watermark(log.log_end_offset)
        return log

    @property
    def end_offset(self) -> int:
        return self.batches[-1].header.next_offset if self.batches else self.start_offset

    @property
    def visible(self) -> list[Written]:
        return [one for one in self.batches if one.header.last_offset >= self.start_offset]

    # -- appending ------------------------------------------------------------------------------------

    def records(self, count: int, size: int) -> list[Record]:
        now = self.clock.time_ms()
        return [Record(timestamp=now + slot, value=bytes([slot + 1]) * size) for slot in range(count)]

    def known(self, producer_id: int) -> Producer:
        return self.producers.get(producer_id, NEW)

    def encoded(self, producer_id: int, count: int, size: int) -> bytearray:
        if producer_id < 0:
            return bytearray(encode_batch(self.records(count, size)))
        known = self.known(producer_id)
        return bytearray(
            encode_batch(
                self.records(count, size),
                producer_id=producer_id,
                producer_epoch=known.epoch,
                base_sequence=known.last_sequence + 1,
                transactional=producer_id in TRANSACTIONAL,
            )
        )

    def written(self, data: bytes | bytearray, info: AppendInfo, marker: EndTxnMarker | None = None) -> None:
        header = parse_header(data)
        assert (info.first_offset, info.last_offset) == (header.base_offset, header.last_offset)
        assert header.base_offset >= self.end_offset
        assert header.partition_leader_epoch == self.epoch
        self.batches.append(Written(header, bytes(data), marker))
        self.producers = replayed(self.batches)

    any_producer = st.sampled_from((-1, *IDEMPOTENT, *TRANSACTIONAL))

    @rule(producer_id=any_producer, count=st.integers(1, 4), size=st.integers(0, 400))
    def append(self, producer_id: int, count: int, size: int) -> None:
        data = self.encoded(producer_id, count, size)
        self.written(data, self.log.append_as_leader(memoryview(data), self.epoch))
        self.log.update_high_watermark(self.log.log_end_offset)

    @rule(producer_ids=st.lists(any_producer, min_size=2, max_size=6), size=st.integers(0, 300))
    def append_group(self, producer_ids: list[int], size: int) -> None:
        end_before = self.log.log_end_offset
        staged = []
        for producer_id in producer_ids:
            data = self.encoded(producer_id, 2, size)
            info = self.log.stage_as_leader(memoryview(data), self.epoch)
            staged.append((data, info))
            # The next batch of the same producer is numbered as if this one were written.
            self.producers = replayed(
                [*self.batches, *(Written(parse_header(one), b"", None) for one, _ in staged)]
            )
        assert self.log.log_end_offset >= end_before
        self.log.write_staged()
        for data, info in staged:
            self.written(data, info)
        self.log.update_high_watermark(self.log.log_end_offset)

    @rule(producer_ids=st.lists(any_producer, min_size=1, max_size=4), free_bytes=st.integers(0, 250))
    def disk_is_full(self, producer_ids: list[int], free_bytes: int) -> None:
        before = self.log.log_end_offset, dict(self.log.producers.entries)
        self.disk.free_bytes = free_bytes
        try:
            with pytest.raises(LogDirOfflineError):
                self.stage_and_write(list(dict.fromkeys(producer_ids)))
        finally:
            self.disk.free_bytes = None
        assert (self.log.log_end_offset, self.log.producers.entries) == before

    def stage_and_write(self, producer_ids: list[int]) -> None:
        for producer_id in producer_ids:
            self.log.stage_as_leader(memoryview(self.encoded(producer_id, 1, 300)), self.epoch)
        self.log.write_staged()

    @rule(producer_id=st.sampled_from(TRANSACTIONAL), abort=st.booleans())
    def end_transaction(self, producer_id: int, abort: bool) -> None:
        marker = EndTxnMarker(ControlType.ABORT if abort else ControlType.COMMIT, 0)
        known = self.known(producer_id)
        data = bytearray(
            encode_end_txn_marker(
                marker,
                producer_id=producer_id,
                producer_epoch=known.epoch,
                timestamp=self.clock.time_ms(),
            )
        )
        info = self.log.append_as_leader(memoryview(data), self.epoch, origin=AppendOrigin.COORDINATOR)
        self.written(data, info, marker)
        self.log.update_high_watermark(self.log.log_end_offset)

    @precondition(lambda self: any(one.header.producer_id in IDEMPOTENT for one in self.visible))
    @rule()
    def repeat_the_last_batch(self) -> None:
        last = [one for one in self.visible if one.header.producer_id in IDEMPOTENT][-1]
        data = bytearray(last.data)
        data[0:8] = bytes(8)
        info = self.log.append_as_leader(memoryview(data), self.epoch)
        assert info.duplicate
        assert info.first_offset == last.header.base_offset
        assert info.last_offset == last.header.last_offset

    @rule(producer_id=st.sampled_from(IDEMPOTENT), gap=st.integers(1, 5))
    def leave_a_gap(self, producer_id: int, gap: int) -> None:
        known = self.log.producers.entries.get(producer_id)
        if known is None:
            return
        data = encode_batch(
            self.records(1, 5),
            producer_id=producer_id,
            producer_epoch=known.epoch,
            base_sequence=known.last_sequence + 1 + gap,
        )
        with pytest.raises(KafkaError) as refused:
            self.log.append_as_leader(bytearray(data), self.epoch)
        assert refused.value.code is ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER

    # -- everything else that happens to a log --------------------------------------------------------

    @rule()
    def new_leader(self) -> None:
        self.epoch += 1

    @rule(delta_ms=st.integers(1, 2_000_000))
    def time_passes(self, delta_ms: int) -> None:
        self.clock.advance(delta_ms)

    @rule()
    def roll(self) -> None:
        self.log.roll()

    @rule()
    def flush_and_checkpoint(self) -> None:
        self.log.files.flush()
        self.checkpointed = self.log.files.recovery_point

    @precondition(lambda self: self.end_offset > self.start_offset)
    @rule(data=st.data())
    def truncate(self, data: st.DataObject) -> None:
        cut = data.draw(st.sampled_from([one.header.base_offset for one in self.visible]))
        self.log.truncate_to(cut)
        self.forget_from(cut)
        self.log.update_high_watermark(self.log.log_end_offset)

    def forget_from(self, offset: int) -> None:
        self.batches = [one for one in self.batches if one.header.last_offset < offset]
        self.producers = replayed(self.batches)
        self.start_offset = min(self.start_offset, offset)
        self.checkpointed = min(self.checkpointed, offset)

    @rule()
    def restart(self) -> None:
        self.log.close()
        self.checkpointed = self.log.files.recovery_point
        self.log = self.opened(clean=True)
        assert self.log.recovery is None

    @rule()
    def crash(self) -> None:
        self.log.close(clean=False)
        self.log = self.opened(clean=False)
        assert self.log.recovery is not None
        assert self.log.recovery.bytes_truncated == 0

    @rule(data=st.data(), kind=st.sampled_from(("cut", "zeros", "garbage", "more zeros", "more garbage")))
    def crash_with_a_torn_tail(self, data: st.DataObject, kind: str) -> None:
        unflushed = self.log.segments.from_floor(self.checkpointed)
        damaged = data.draw(st.sampled_from(unflushed))
        path = damaged.path()
        intact = path.read_bytes()[: damaged.size]
        self.log.close(clean=False)
        at = data.draw(st.integers(0, len(intact)))
        noise = data.draw(st.binary(min_size=1, max_size=200))
        torn = {
            "cut": intact[:at],
            "zeros": intact[:at] + bytes(len(intact) - at),
            "garbage": intact[:at] + (noise * (len(intact) // len(noise) + 1))[: len(intact) - at],
            "more zeros": intact + bytes(at),
            "more garbage": intact + noise,
        }[kind]
        path.write_bytes(torn)
        position = 0
        survivors = [one for one in self.batches if one.header.base_offset < damaged.base_offset]
        for one in self.batches[len(survivors) :]:
            if torn[position : position + len(one.data)] != one.data:
                break
            position += len(one.data)
            survivors.append(one)
        if position == len(torn):
            # Cut between two batches, which cannot be told from a segment that was compacted.
            following = self.log.segments.higher(damaged.base_offset)
            behind = self.end_offset if following is None else following.base_offset
            survivors += [one for one in self.batches if one.header.base_offset >= behind]
        end = max(survivors[-1].header.next_offset if survivors else 0, damaged.base_offset)
        if end < self.start_offset:
            # What is left lies before the start of the log: it begins anew, empty, at its start.
            survivors, end = [], self.start_offset
        if position == len(torn):
            end = max(end, self.log.segments.active.base_offset)
        self.batches = survivors
        self.forget_from(end)
        self.log = self.opened(clean=False)
        assert self.log.recovery is not None
        assert self.log.recovery.bytes_truncated == len(torn) - position
        assert self.log.log_end_offset == max(end, self.log.segments.first.base_offset)

    # -- what must hold -------------------------------------------------------------------------------

    @invariant()
    def the_log_ends_where_the_model_ends(self) -> None:
        assert self.log.log_end_offset == max(self.end_offset, self.log.segments.active.base_offset)
        assert self.log.producers.end_offset == self.log.log_end_offset

    @invariant()
    def files_hold_exactly_the_batches(self) -> None:
        stored = b"".join(segment.path().read_bytes()[: segment.size] for segment in self.log.segments)
        expected = b"".join(
            one.data for one in self.batches if one.header.base_offset >= self.log.segments.first.base_offset
        )
        assert stored == expected

    @invariant()
    def indexes_point_at_batches(self) -> None:
        for segment in self.log.segments:
            positions = dict(segment.scan())
            index = segment.offset_index
            for slot in range(index.entries):
                offset, position = index.entry(slot)
                assert positions[position].last_offset == offset
            times = segment.time_index
            ends = {header.last_offset: header for header in positions.values()}
            for slot in range(times.entries):
                timestamp, offset = times.entry(slot)
                assert ends[offset].max_timestamp == timestamp
            highest = max((header.max_timestamp for header in positions.values()), default=-1)
            assert segment.max_timestamp.timestamp == highest

    @invariant()
    def producers_are_known(self) -> None:
        entries = self.log.producers.entries
        assert entries.keys() == self.producers.keys()
        for producer_id, expected in self.producers.items():
            entry = entries[producer_id]
            assert entry.epoch == expected.epoch
            assert (entry.last_sequence, entry.last_offset) == (expected.last_sequence, expected.last_offset)
            assert entry.txn_first_offset == expected.txn_first_offset

    @invariant()
    def undecided_transactions_hold_readers_back(self) -> None:
        open_offsets = [one.txn_first_offset for one in self.producers.values() if one.txn_first_offset >= 0]
        assert self.log.last_stable_offset == min(open_offsets, default=self.log.log_end_offset)

    @precondition(lambda self: bool(self.visible))
    @rule(data=st.data(), max_bytes=st.integers(1, 3000))
    def read(self, data: st.DataObject, max_bytes: int) -> None:
        wanted = data.draw(st.integers(self.start_offset, self.end_offset))
        found = self.log.read_bytes(wanted, max_bytes)
        following = [one for one in self.batches if one.header.last_offset >= wanted]
        if not following:
            assert found == b""
            return
        assert b"".join(one.data for one in following).startswith(found)
        whole = [header for _, header in iter_batches(found)]
        assert whole
        assert whole[0].base_offset == following[0].header.base_offset
        assert len(found) <= max(max_bytes, len(following[0].data))

    @precondition(lambda self: bool(self.visible))
    @rule(data=st.data())
    def read_committed(self, data: st.DataObject) -> None:
        wanted = data.draw(st.integers(self.start_offset, self.end_offset))
        found = self.log.read(wanted, 10**6, isolation=Isolation.TXN_COMMITTED)
        assert found.aborted is not None
        if not found.length:
            return
        read = self.log.read_bytes(wanted, 10**6, isolation=Isolation.TXN_COMMITTED)
        headers = [header for _, header in iter_batches(read)]
        assert headers[-1].next_offset <= self.log.last_stable_offset
        reported = {(one.first_offset, one.producer_id) for one in found.aborted}
        needed = {
            (first, producer_id)
            for first, last, producer_id in aborted(self.batches)
            if last >= wanted and first < headers[-1].next_offset
        }
        if self.start_offset == 0:
            assert needed <= reported
            assert reported <= {(first, producer_id) for first, _, producer_id in aborted(self.batches)}

    @rule(back_ms=st.integers(0, 4_000_000))
    def look_up_a_timestamp(self, back_ms: int) -> None:
        timestamp = self.clock.time_ms() - back_ms
        found = self.log.offset_for_timestamp(timestamp)
        expected = None
        for header, _, marker in self.visible:
            for slot in range(header.record_count):
                when = header.base_timestamp + (0 if marker else slot)
                offset = header.base_offset + slot
                if when >= timestamp and offset >= self.start_offset and expected is None:
                    expected = when, offset
        assert (found and found[:2]) == expected

    @initialize()
    def begin(self) -> None:
        assert self.log.log_end_offset == 0


class ShrinkingLogLife(LogLife):
    """The same with records deleted at the start of the log, and with them what was known of producers."""

    def known(self, producer_id: int) -> Producer:
        entry = self.log.producers.entries.get(producer_id)
        if entry is None:
            # As real producers do: they go on counting, and an unknown one may begin anywhere.
            return self.producers.get(producer_id, NEW)
        return Producer(entry.epoch, entry.last_sequence, entry.last_offset, entry.txn_first_offset)

    @precondition(lambda self: self.end_offset > self.start_offset)
    @rule(data=st.data())
    def delete_records(self, data: st.DataObject) -> None:
        self.start_offset = data.draw(st.integers(self.start_offset, self.end_offset))
        self.log.increment_log_start_offset(self.start_offset)
        self.log.delete_old_segments()
        assert self.log.segments.first.base_offset <= self.start_offset

    @invariant()
    def producers_are_known(self) -> None:
        for producer_id, expected in self.producers.items():
            if expected.last_offset >= self.start_offset:
                entry = self.log.producers.entries[producer_id]
                assert (entry.epoch, entry.last_offset) == (expected.epoch, expected.last_offset)
                assert entry.last_sequence == expected.last_sequence

    @invariant()
    def undecided_transactions_hold_readers_back(self) -> None:
        open_offsets = [
            one.txn_first_offset for one in self.log.producers.entries.values() if one.txn_first_offset >= 0
        ]
        first = max(min(open_offsets, default=self.log.log_end_offset), self.start_offset)
        assert self.log.last_stable_offset == first


SETTINGS = settings(
    max_examples=40,
    stateful_step_count=40,
    deadline=None,
    suppress_health_check=[HealthCheck.too_slow, HealthCheck.filter_too_much, HealthCheck.data_too_large],
    derandomize=True,
)
LogLife.TestCase.settings = SETTINGS
ShrinkingLogLife.TestCase.settings = SETTINGS
TestLogLife = LogLife.TestCase
TestShrinkingLogLife = ShrinkingLogLife.TestCase
