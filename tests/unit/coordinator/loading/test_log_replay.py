"""From bytes to a shard: every record once, in order, and past what nobody can read."""

from __future__ import annotations

import asyncio
import logging
import struct
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.rigs.coordinator import GroupHarness
from tests.rigs.old_formats import OLD_CODECS, Old, old_set
from tests.unit.coordinator.loading.replay_modules import ReplayModules

from tidelog.coordinator import runtime as runtime_module
from tidelog.coordinator.loading.log_replay import NO_PRODUCER, Producer
from tidelog.coordinator.stored_record import RecordSchemas, StoredRecord, encode_key, encode_value
from tidelog.errors import CorruptRecordError
from tidelog.records.batch import ATTRIBUTES_AT, RECORD_COUNT_AT, set_base_offset, write_crc
from tidelog.records.compression import Codec
from tidelog.records.control import ControlType, EndTxnMarker, encode_end_txn_marker
from tidelog.records.legacy import pack_legacy
from tidelog.records.record import Record, encode_batch
from tidelog.wire.internal_topics.transaction_state import TransactionLogKey, TransactionLogValue

SCHEMAS = RecordSchemas([(TransactionLogKey, TransactionLogValue)])


def named(name: str, number: int = 0) -> Record:
    value = TransactionLogValue(producer_id=number, transaction_partitions=None)
    return Record(
        timestamp=1,
        key=encode_key(TransactionLogKey(transactional_id=name)),
        value=encode_value(value, 0) if number >= 0 else None,
    )


def batch(
    *records: Record, offset: int = 0, producer: Producer | None = None, codec: Codec = Codec.NONE
) -> bytes:
    return encode_batch(
        records,
        base_offset=offset,
        codec=codec,
        producer_id=producer.producer_id if producer else -1,
        producer_epoch=producer.epoch if producer else -1,
        transactional=producer is not None,
    )


def marker(kind: ControlType, producer: Producer, offset: int) -> bytes:
    written = bytearray(
        encode_end_txn_marker(
            EndTxnMarker(kind, 3),
            producer_id=producer.producer_id,
            producer_epoch=producer.epoch,
            timestamp=1,
        )
    )
    set_base_offset(written, 0, offset)
    return bytes(written)


class Notes:
    """A shard that writes down what it is given."""

    def __init__(self) -> None:
        self.seen: list[object] = []

    def replay(self, offset: int, producer: Producer, record: StoredRecord) -> None:
        assert isinstance(record.key, TransactionLogKey)
        value = record.value
        number = value.producer_id if isinstance(value, TransactionLogValue) else None
        self.seen.append((offset, tuple(producer), record.key.transactional_id, number))

    def replay_marker(self, producer: Producer, committed: bool) -> None:
        self.seen.append((tuple(producer), committed))


class ShortWay(Notes):
    """Takes keys that end in an even byte as they are."""

    def __init__(self) -> None:
        super().__init__()
        self.taken: list[tuple[int, Producer, bytes, bytes | None]] = []

    def replay_raw(self, offset: int, producer: Producer, key: bytes, value: bytes | None) -> bool:
        if key[-1] % 2:
            return False
        self.taken.append((offset, producer, key, value))
        return True


def replay_all(replay: Any, *chunks: bytes) -> int:
    """Walk over and apply everything; gives the offset that follows."""
    for chunk in chunks:
        replay.open(chunk)
        done = False
        while not done:
            done = replay.walk()
            for _ in replay.apply():
                pass
    for _ in replay.finish():
        pass
    end: int = replay.next_offset
    return end


def replayed(modules: ReplayModules, *chunks: bytes) -> tuple[list[Any], int]:
    notes = Notes()
    end = replay_all(modules.log_replay.LogReplay("log-0", SCHEMAS, notes), *chunks)
    return notes.seen, end


@pytest.mark.parametrize("codec", list(Codec))
def test_records_come_in_order_with_offset_and_producer(replay_modules: ReplayModules, codec: Codec) -> None:
    somebody = Producer(7, 2)
    chunk = (
        batch(named("a", 1), named("b", 2), named("a", -1), offset=10, codec=codec)
        + batch(named("c", 3), offset=13, producer=somebody, codec=codec)
        + marker(ControlType.COMMIT, somebody, 14)
        + marker(ControlType.ABORT, Producer(8, 0), 15)
        + batch(named("d", 4), offset=20)
    )
    seen, end = replayed(replay_modules, chunk)
    assert end == 21
    assert seen == [
        (10, NO_PRODUCER, "a", 1),
        (11, NO_PRODUCER, "b", 2),
        (12, NO_PRODUCER, "a", None),
        (13, somebody, "c", 3),
        (somebody, True),
        (Producer(8, 0), False),
        (20, NO_PRODUCER, "d", 4),
    ]


def test_a_batch_that_compaction_has_thinned_out_ends_where_it_did(replay_modules: ReplayModules) -> None:
    thinned = batch(
        Record(offset=10, timestamp=1, key=named("a").key, value=named("a").value),
        Record(offset=19, timestamp=1, key=named("b").key, value=named("b").value),
        offset=10,
    )
    seen, end = replayed(replay_modules, thinned)
    assert [entry[0] for entry in seen] == [10, 19]
    assert end == 20


def test_more_records_than_are_applied_at_once_all_arrive(replay_modules: ReplayModules) -> None:
    names = [f"n{number}" for number in range(10_000)]
    records = [named(name, 1) for name in names]
    chunk = batch(*records, codec=Codec.GZIP) + batch(named("last", 1), offset=len(names))
    seen, end = replayed(replay_modules, chunk)
    assert [entry[2] for entry in seen] == [*names, "last"]
    assert end == len(names) + 1


def test_keyless_and_unknown_records_are_passed_over_and_named_once(
    replay_modules: ReplayModules, caplog: pytest.LogCaptureFixture
) -> None:
    unknown = Record(timestamp=1, key=b"\x7f\xffx", value=b"x")
    keyless = Record(timestamp=1, key=None, value=b"x")
    short = Record(timestamp=1, key=b"\0", value=b"x")
    cut = Record(timestamp=1, key=named("a").key, value=b"\0\0\1")
    seen, end = replayed(replay_modules, batch(unknown, keyless, *[short] * 5000, cut, named("a", 1)))
    assert seen == [(5003, NO_PRODUCER, "a", 1)]
    assert end == 5004
    (line,) = caplog.messages
    assert line.startswith("log-0: 5003 records cannot be read, offset 5002 (")
    assert "1 of unknown types at offset 0" in line
    assert "1 without a key at offset 1" in line
    assert "5000 with a key that is too short at offsets 2 to 5001" in line


@given(
    records=st.lists(st.tuples(st.text(min_size=1, max_size=3), st.integers(-1, 5)), min_size=1, max_size=20)
)
def test_the_short_way_is_offered_everything_and_the_rest_goes_the_long_one(
    replay_modules: ReplayModules, records: list[tuple[str, int]]
) -> None:
    shard = ShortWay()
    chunk = batch(*(named(name, number) for name, number in records))
    replay_all(replay_modules.log_replay.LogReplay("log-0", SCHEMAS, shard), chunk)
    expected = [named(name, number) for name, number in records]
    assert shard.taken == [
        (offset, NO_PRODUCER, record.key, record.value)
        for offset, record in enumerate(expected)
        if record.key is not None and record.key[-1] % 2 == 0
    ]
    assert len(shard.taken) + len(shard.seen) == len(records)


def changed(whole: bytes, at: int, form: str, value: int) -> bytes:
    """A batch with another field in its header and the checksum that belongs to it."""
    poisoned = bytearray(whole)
    struct.pack_into(form, poisoned, at, value)
    write_crc(poisoned, 0, len(poisoned))
    return bytes(poisoned)


def with_body(whole: bytes, body: bytes, codec: Codec) -> bytes:
    """A batch with other bytes in the place of its records, said to be of ``codec``."""
    poisoned = bytearray(whole[:61] + body)
    struct.pack_into(">i", poisoned, 8, len(poisoned) - 12)
    struct.pack_into(">h", poisoned, ATTRIBUTES_AT, codec)
    write_crc(poisoned, 0, len(poisoned))
    return bytes(poisoned)


WHOLE = batch(named("a", 1), named("b", 2), offset=5)
POISONED = {
    "fails its CRC": WHOLE[:-1] + bytes([WHOLE[-1] ^ 1]),
    "of an unknown format": WHOLE[:16] + b"\3" + WHOLE[17:],
    "fails its CRC in format 1": pack_legacy(5, 1, 0, 1, b"k", b"v" * 60)[:-1] + b"x",
    "no gzip in format 0": pack_legacy(5, 0, Codec.GZIP, 1, None, b"no gzip" * 9),
    "counts its records or offsets wrongly": changed(WHOLE, RECORD_COUNT_AT, ">i", -1),
    "malformed": changed(WHOLE, RECORD_COUNT_AT, ">i", 3),
    "are malformed": changed(WHOLE, RECORD_COUNT_AT, ">i", 1),
    "cut short": with_body(WHOLE, WHOLE[61:-3], Codec.NONE),
    "empty": with_body(WHOLE, b"", Codec.NONE),
    "no codec 6": with_body(WHOLE, WHOLE[61:], 6),  # type: ignore[arg-type]
    **{
        f"no {codec.label}": with_body(WHOLE, b"\xff" * 50, codec)
        for codec in Codec
        if codec is not Codec.NONE
    },
}


@pytest.mark.parametrize("what", POISONED)
def test_a_batch_that_cannot_be_read_is_stepped_over_whole_and_named(
    replay_modules: ReplayModules, what: str, caplog: pytest.LogCaptureFixture
) -> None:
    before, after = batch(named("x", 1), offset=4), batch(named("y", 2), offset=7)
    seen, end = replayed(replay_modules, before + POISONED[what] + after)
    assert seen == [(4, NO_PRODUCER, "x", 1), (7, NO_PRODUCER, "y", 2)]
    assert end == 8
    (line,) = caplog.messages
    assert line.startswith("log-0: 1 batch cannot be read, offset")
    assert "5" in line


@pytest.mark.parametrize("magic", [0, 1])
@pytest.mark.parametrize("codec", OLD_CODECS)
def test_messages_of_formats_0_and_1_are_replayed(
    replay_modules: ReplayModules, magic: int, codec: Codec, caplog: pytest.LogCaptureFixture
) -> None:
    old = [Old(5 + slot, 1, each.key, each.value) for slot, each in enumerate([named("a", 1), named("b", 2)])]
    data = batch(named("x", 1), offset=4) + old_set(old, magic, codec) + batch(named("y", 2), offset=7)
    seen, end = replayed(replay_modules, data)
    assert seen == [
        (4, NO_PRODUCER, "x", 1),
        (5, NO_PRODUCER, "a", 1),
        (6, NO_PRODUCER, "b", 2),
        (7, NO_PRODUCER, "y", 2),
    ]
    assert end == 8
    assert not caplog.messages


@pytest.mark.parametrize("codec", [codec for codec in Codec if codec is not Codec.NONE])
def test_a_batch_beyond_the_limits_is_stepped_over_and_named(
    replay_modules: ReplayModules,
    codec: Codec,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
) -> None:
    walker = replay_modules.log_walker.LogWalker
    monkeypatch.setattr(
        replay_modules.log_replay,
        "LogWalker",
        lambda types, fold: walker(types, fold, max_bytes=1000, max_records=20),
    )
    large = batch(Record(timestamp=1, key=named("a").key, value=bytes(2000)), offset=1, codec=codec)
    many = batch(*[named("b", 1)] * 21, offset=2, codec=codec)
    seen, end = replayed(replay_modules, large + many + batch(named("c", 1), offset=23, codec=codec))
    assert seen == [(23, NO_PRODUCER, "c", 1)]
    assert end == 24
    (line,) = caplog.messages
    assert "2 batches cannot be read, offset 1 (" in line
    assert "offsets 2 to 22 (the batch has more than" in line


def test_of_many_unreadable_things_the_first_are_named(
    replay_modules: ReplayModules, caplog: pytest.LogCaptureFixture
) -> None:
    broken = bytearray(batch(named("a", 1)))
    broken[-1] ^= 1
    chunk = bytearray()
    for offset in range(6000):
        set_base_offset(broken, 0, offset)
        chunk += broken
    seen, end = replayed(replay_modules, bytes(chunk))
    assert (seen, end) == ([], 6000)
    (line,) = caplog.messages
    assert len(line) < 1000
    assert "6000 batches" in line
    assert "others up to offset 5999" in line


def test_a_chunk_without_a_whole_batch_is_told_of(replay_modules: ReplayModules) -> None:
    whole = batch(named("a", 1))
    for chunk in (whole[:-1], whole[:20], b"\0" * 70):
        with pytest.raises(CorruptRecordError):
            replayed(replay_modules, chunk)


def test_others_have_their_turn_between_two_chunks(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(runtime_module, "LOAD_CHUNK_BYTES", 1)
    harness = GroupHarness()
    for n in range(20):
        harness.log_of("g").append(batch(Record(timestamp=1, key=b"\x7f\xff%d" % n, value=b"")))
    turns = 0

    async def count() -> None:
        nonlocal turns
        while True:
            turns += 1
            await asyncio.sleep(0)

    async def load() -> bool:
        counting = asyncio.get_running_loop().create_task(count())
        harness.coordinator.runtime.hold(0, 9, harness.log_of("g"))
        loaded = await harness.coordinator.runtime.load(0)
        counting.cancel()
        return loaded

    assert asyncio.run(load())
    assert turns >= 20


def test_the_loop_has_its_turn_while_one_batch_is_applied(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """Slices are bounded by time, not by what a batch holds: here every look at the clock finds them over."""
    caplog.set_level(logging.INFO)
    monkeypatch.setattr(runtime_module, "LOAD_SLICE_MS", 0)
    harness = GroupHarness()
    bad = Record(timestamp=1, key=b"\0\1\0\1g\0\1t\0\0\0\0", value=b"\0\4")
    harness.log_of("g").append(batch(*[bad] * 500))
    turns: list[int] = []

    async def load() -> bool:
        runtime = harness.coordinator.runtime

        async def count() -> None:
            while True:
                turns.append(1)
                await asyncio.sleep(0)

        counting = asyncio.get_running_loop().create_task(count())
        runtime.hold(0, 9, harness.log_of("g"))
        loaded = await runtime.load(0)
        counting.cancel()
        return loaded

    assert asyncio.run(load())
    assert len(turns) >= 500
    assert "500 records cannot be read" in caplog.text
