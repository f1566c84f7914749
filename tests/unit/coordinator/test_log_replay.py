"""From bytes to a shard: every record once, in order, by the short way where the shard has one."""

from __future__ import annotations

import asyncio

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tidelog.coordinator import runtime as runtime_module
from tidelog.coordinator.log_replay import NO_PRODUCER, LogReplay, Producer
from tidelog.coordinator.stored_record import RecordSchemas, StoredRecord, encode_key, encode_value
from tidelog.errors import CorruptRecordError
from tidelog.records.batch import set_base_offset
from tidelog.records.compression import Codec
from tidelog.records.control import ControlType, EndTxnMarker, encode_end_txn_marker
from tidelog.records.record import Record, encode_batch
from tidelog.testing.coordinator import GroupHarness
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
        self.seen.append((offset, producer, record.key.transactional_id, number))

    def replay_marker(self, producer: Producer, committed: bool) -> None:
        self.seen.append((producer, committed))


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


def replayed(chunk: bytes) -> tuple[list[object], int]:
    notes = Notes()
    end = LogReplay("log", SCHEMAS, notes).replay(chunk)
    return notes.seen, end


@pytest.mark.parametrize("codec", list(Codec))
def test_records_come_in_order_with_offset_and_producer(codec: Codec) -> None:
    somebody = Producer(7, 2)
    chunk = (
        batch(named("a", 1), named("b", 2), named("a", -1), offset=10, codec=codec)
        + batch(named("c", 3), offset=13, producer=somebody, codec=codec)
        + marker(ControlType.COMMIT, somebody, 14)
        + marker(ControlType.ABORT, Producer(8, 0), 15)
        + batch(named("d", 4), offset=20)
    )
    seen, end = replayed(chunk)
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


def test_a_batch_that_compaction_has_thinned_out_ends_where_it_did() -> None:
    thinned = batch(
        Record(offset=10, timestamp=1, key=named("a").key, value=named("a").value),
        Record(offset=19, timestamp=1, key=named("b").key, value=named("b").value),
        offset=10,
    )
    seen, end = replayed(thinned)
    assert [entry[0] for entry in seen] == [10, 19]  # type: ignore[index]
    assert end == 20


def test_keyless_and_unknown_records_are_passed_over(caplog: pytest.LogCaptureFixture) -> None:
    unknown = Record(timestamp=1, key=b"\x7f\xffx", value=b"x")
    keyless = Record(timestamp=1, key=None, value=b"x")
    seen, end = replayed(batch(unknown, keyless, named("a", 1)))
    assert seen == [(2, NO_PRODUCER, "a", 1)]
    assert end == 3
    assert "without a key at offset 1" in caplog.text
    assert "offset 0" in caplog.text


@given(st.lists(st.tuples(st.text(min_size=1, max_size=3), st.integers(-1, 5)), min_size=1, max_size=20))
def test_the_short_way_is_offered_everything_and_the_rest_goes_the_long_one(
    records: list[tuple[str, int]],
) -> None:
    shard = ShortWay()
    chunk = batch(*(named(name, number) for name, number in records))
    LogReplay("log", SCHEMAS, shard).replay(chunk)
    expected = [named(name, number) for name, number in records]
    assert shard.taken == [
        (offset, NO_PRODUCER, record.key, record.value)
        for offset, record in enumerate(expected)
        if record.key is not None and record.key[-1] % 2 == 0
    ]
    assert len(shard.taken) + len(shard.seen) == len(records)


def test_damage_is_told_of() -> None:
    whole = batch(named("a", 1))
    broken = bytearray(whole)
    broken[-1] ^= 1
    old = bytearray(whole)
    old[16] = 1
    for chunk in (bytes(broken), bytes(old), whole[:-1], batch(Record(timestamp=1, key=b"\0"))):
        with pytest.raises(CorruptRecordError):
            replayed(chunk)


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
