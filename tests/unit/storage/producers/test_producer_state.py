from __future__ import annotations

import tracemalloc
from pathlib import Path

import pytest
from tests.rigs.faulty_disk import FaultyDisk

from tidelog.errors import ErrorCode, KafkaError
from tidelog.ids import TopicPartition
from tidelog.records.control import ControlType, EndTxnMarker
from tidelog.storage.producers.producer_snapshots import ProducerSnapshots, SequencedBatch, sequenced
from tidelog.storage.producers.producer_state import AppendOrigin, ProducerState

CLIENT = AppendOrigin.CLIENT
NOW = 1_700_000_000_000
COMMIT = EndTxnMarker(ControlType.COMMIT, 5)
ABORT = EndTxnMarker(ControlType.ABORT, 5)


@pytest.fixture
def state(tmp_path: Path) -> ProducerState:
    return ProducerState(TopicPartition("orders", 0), ProducerSnapshots(tmp_path, FaultyDisk()))


class Writer:
    """Appends batches of one record each, at ascending offsets."""

    def __init__(self, state: ProducerState) -> None:
        self.state = state
        self.offset = 0

    def write(
        self,
        sequence: int,
        *,
        producer_id: int = 1,
        epoch: int = 0,
        count: int = 1,
        transactional: bool = False,
        origin: AppendOrigin = CLIENT,
    ) -> SequencedBatch | None:
        batch = sequenced(sequence, count - 1, self.offset, NOW)
        known = self.state.stage_batch(producer_id, epoch, batch, transactional, origin)
        if known is None:
            self.offset += count
            self.state.commit(self.offset)
        return known

    def end(self, marker: EndTxnMarker, *, producer_id: int = 1, epoch: int = 0) -> object:
        ended = self.state.stage_marker(
            producer_id, epoch, marker, self.offset, NOW, AppendOrigin.COORDINATOR
        )
        self.offset += 1
        self.state.commit(self.offset)
        return ended


@pytest.fixture
def writer(state: ProducerState) -> Writer:
    return Writer(state)


def refusal(writer: Writer, sequence: int, **how: object) -> ErrorCode:
    with pytest.raises(KafkaError) as refused:
        writer.write(sequence, **how)  # type: ignore[arg-type]
    return refused.value.code


def test_sequences_follow_one_another(writer: Writer, state: ProducerState) -> None:
    for sequence in (0, 1, 2):
        assert writer.write(sequence) is None
    assert state.entries[1].last_sequence == 2
    assert refusal(writer, 4) is ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER
    assert state.entries[1].last_sequence == 2


def test_an_unknown_producer_may_begin_anywhere(writer: Writer, state: ProducerState) -> None:
    assert writer.write(17) is None
    assert state.entries[1].last_sequence == 17


def test_a_sequence_wraps_from_the_highest_to_zero(writer: Writer, state: ProducerState) -> None:
    writer.write(0x7FFFFFFD, count=3)
    assert state.entries[1].last_sequence == 0x7FFFFFFF
    assert writer.write(0) is None
    assert writer.write(1) is None
    assert refusal(writer, 0x7FFFFFFF) is ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER


def test_a_batch_across_the_wrap_is_recognised_when_repeated(writer: Writer, state: ProducerState) -> None:
    writer.write(0x7FFFFFFE, count=4)
    assert state.entries[1].last_sequence == 1
    assert writer.write(0x7FFFFFFE, count=4) == SequencedBatch(0x7FFFFFFE, 1, 0, 3, NOW)


def test_the_last_five_batches_are_recognised(writer: Writer) -> None:
    for sequence in range(0, 14, 2):
        writer.write(sequence, count=2)
    for sequence in range(4, 14, 2):
        assert writer.write(sequence, count=2) == SequencedBatch(
            sequence, sequence + 1, sequence, sequence + 1, NOW
        )
    assert refusal(writer, 2, count=2) is ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER
    assert refusal(writer, 12, count=1) is ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER


def test_an_older_epoch_is_fenced(writer: Writer) -> None:
    writer.write(0, epoch=3)
    assert refusal(writer, 1, epoch=2) is ErrorCode.INVALID_PRODUCER_EPOCH


def test_a_newer_epoch_begins_at_zero_and_forgets_the_old_batches(
    writer: Writer, state: ProducerState
) -> None:
    writer.write(0)
    writer.write(1)
    assert refusal(writer, 2, epoch=1) is ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER
    assert writer.write(0, epoch=1) is None
    assert state.entries[1].batches == (SequencedBatch(0, 0, 2, 2, NOW),)


def test_coordinators_are_checked_for_the_epoch_but_have_no_sequence(writer: Writer) -> None:
    writer.write(-1, epoch=2, origin=AppendOrigin.COORDINATOR)
    assert writer.write(-1, epoch=2, origin=AppendOrigin.COORDINATOR) is None
    assert refusal(writer, -1, epoch=1, origin=AppendOrigin.COORDINATOR) is ErrorCode.INVALID_PRODUCER_EPOCH


def test_replication_takes_what_it_gets(writer: Writer, state: ProducerState) -> None:
    writer.write(0, epoch=2)
    assert writer.write(40, epoch=1, origin=AppendOrigin.REPLICATION) is None
    assert (state.entries[1].epoch, state.entries[1].last_sequence) == (1, 40)


def test_an_open_transaction_makes_its_first_offset_unstable(writer: Writer, state: ProducerState) -> None:
    writer.write(0)
    assert state.first_unstable_offset is None
    writer.write(0, producer_id=2, transactional=True)
    writer.write(0, producer_id=3, transactional=True)
    writer.write(1, producer_id=2, transactional=True)
    assert state.first_unstable_offset == state.first_undecided_offset == 1
    assert state.has_ongoing_transaction(2, 0)
    assert not state.has_ongoing_transaction(2, 1), "another epoch, another transaction"
    assert not state.has_ongoing_transaction(1, 0)


def test_a_decided_transaction_stays_unstable_until_the_marker_is_replicated(
    writer: Writer, state: ProducerState
) -> None:
    writer.write(0, producer_id=2, transactional=True)
    writer.end(COMMIT, producer_id=2)
    assert state.first_undecided_offset is None
    assert state.first_unstable_offset == 0
    state.on_high_watermark(1)
    assert state.first_unstable_offset == 0
    state.on_high_watermark(2)
    assert state.first_unstable_offset is None
    assert not state.has_transactions


def test_the_oldest_decided_transaction_is_unstable_though_a_later_one_was_decided_first(
    writer: Writer, state: ProducerState
) -> None:
    writer.write(0, producer_id=2, transactional=True)
    writer.write(0, producer_id=3, transactional=True)
    writer.end(COMMIT, producer_id=3)
    writer.end(COMMIT, producer_id=2)
    for high_watermark in (2, 3):
        state.on_high_watermark(high_watermark)
        assert state.first_unstable_offset == 0
    state.on_high_watermark(4)
    assert state.first_unstable_offset is None


def test_a_transaction_costs_the_same_however_many_are_not_replicated(
    writer: Writer, state: ProducerState
) -> None:
    transactions = 5000
    for sequence in range(transactions):
        writer.write(sequence, transactional=True)
        writer.end(COMMIT)
    batch = sequenced(transactions, 0, writer.offset, NOW)
    tracemalloc.start()
    try:
        state.stage_batch(1, 0, batch, True, CLIENT)
        state.stage_marker(1, 0, COMMIT, writer.offset + 1, NOW, AppendOrigin.COORDINATOR)
        peak = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    assert peak < 16 * transactions, "the list of them may have grown, but they were not copied"


def test_the_end_of_a_transaction_tells_its_bounds_and_the_last_stable_offset(writer: Writer) -> None:
    writer.write(0, producer_id=2, transactional=True)
    writer.write(0, producer_id=3, transactional=True)
    ended = writer.end(ABORT, producer_id=3)
    assert ended == (3, 1, 2, True, 0)
    assert writer.end(COMMIT, producer_id=2) == (2, 0, 3, False, 4)


def test_a_marker_without_records_completes_nothing(writer: Writer, state: ProducerState) -> None:
    assert writer.end(COMMIT, producer_id=9, epoch=4) is None
    assert state.entries[9].epoch == 4
    assert state.entries[9].last_sequence == -1
    assert writer.write(0, producer_id=9, epoch=4) is None


def test_plain_records_inside_a_transaction_are_refused(writer: Writer) -> None:
    writer.write(0, transactional=True)
    assert refusal(writer, 1) is ErrorCode.INVALID_TXN_STATE


def test_a_marker_of_a_fenced_coordinator_or_producer_is_refused(
    writer: Writer, state: ProducerState
) -> None:
    writer.write(0, transactional=True, epoch=1)
    writer.end(COMMIT, epoch=1)
    zombie = EndTxnMarker(ControlType.ABORT, 4)
    with pytest.raises(KafkaError) as refused:
        writer.end(zombie, epoch=1)
    assert refused.value.code is ErrorCode.TRANSACTION_COORDINATOR_FENCED
    with pytest.raises(KafkaError) as refused:
        writer.end(COMMIT, epoch=0)
    assert refused.value.code is ErrorCode.INVALID_PRODUCER_EPOCH


def test_a_rollback_restores_entries_and_transactions(writer: Writer, state: ProducerState) -> None:
    writer.write(0)
    writer.write(0, producer_id=2, transactional=True)
    before = dict(state.entries), state.first_unstable_offset, state.first_undecided_offset
    for sequence in (1, 2, 3):
        state.stage_batch(1, 0, sequenced(sequence, 0, 10 + sequence, NOW), False, CLIENT)
    state.stage_batch(5, 0, sequenced(0, 0, 20, NOW), True, CLIENT)
    state.stage_marker(2, 0, ABORT, 21, NOW, AppendOrigin.COORDINATOR)
    assert state.first_undecided_offset == 20
    state.rollback()
    assert (dict(state.entries), state.first_unstable_offset, state.first_undecided_offset) == before
    assert writer.write(1) is None


def test_a_rollback_leaves_transactions_in_the_order_of_the_log(writer: Writer, state: ProducerState) -> None:
    writer.write(0, producer_id=2, transactional=True)
    writer.write(0, producer_id=3, transactional=True)
    state.stage_marker(2, 0, COMMIT, 2, NOW, AppendOrigin.COORDINATOR)
    state.stage_batch(2, 0, sequenced(1, 0, 3, NOW), True, CLIENT)
    state.stage_marker(2, 0, COMMIT, 4, NOW, AppendOrigin.COORDINATOR)
    state.rollback()
    assert state.first_unstable_offset == state.first_undecided_offset == 0
    writer.end(COMMIT, producer_id=2)
    state.on_high_watermark(3)
    assert state.first_unstable_offset == state.first_undecided_offset == 1
    writer.end(COMMIT, producer_id=3)
    state.on_high_watermark(4)
    assert not state.has_transactions


def test_silent_producers_expire_but_not_inside_a_transaction(writer: Writer, state: ProducerState) -> None:
    writer.write(0)
    writer.write(0, producer_id=2, transactional=True)
    assert state.remove_expired(NOW + state.expiration_ms - 1) == 0
    assert state.remove_expired(NOW + state.expiration_ms) == 1
    assert set(state.entries) == {2}


def test_a_snapshot_brings_producers_and_open_transactions_back(
    writer: Writer, state: ProducerState, tmp_path: Path
) -> None:
    writer.write(0)
    writer.write(0, producer_id=3, transactional=True)
    writer.write(0, producer_id=2, transactional=True)
    assert state.take_snapshot() == 3
    assert state.take_snapshot() is None
    names = [entry.name for entry in tmp_path.iterdir()]
    loaded = ProducerState(state.partition, ProducerSnapshots(tmp_path, FaultyDisk(), names))
    loaded.reload(0, 10, NOW)
    assert loaded.entries == state.entries
    assert loaded.first_unstable_offset == 1
    assert loaded.end_offset == 3


def test_expired_producers_of_a_snapshot_are_left_out(
    writer: Writer, state: ProducerState, tmp_path: Path
) -> None:
    writer.write(0)
    state.take_snapshot()
    state.end_offset = 99
    state.reload(0, 50, NOW + state.expiration_ms)
    assert state.entries == {}


def test_a_torn_snapshot_is_passed_over_for_an_older_one(
    writer: Writer, state: ProducerState, tmp_path: Path
) -> None:
    writer.write(0)
    state.take_snapshot()
    writer.write(1)
    state.take_snapshot()
    torn = tmp_path / "00000000000000000002.snapshot"
    torn.write_bytes(torn.read_bytes()[:20])
    state.reload(0, 5, NOW)
    assert state.end_offset == 1
    assert state.entries[1].last_sequence == 0
    assert not torn.exists()


def test_starting_anew_forgets_everything(writer: Writer, state: ProducerState, tmp_path: Path) -> None:
    writer.write(0, transactional=True)
    state.take_snapshot()
    state.restart_at(500)
    assert state.is_empty
    assert state.first_unstable_offset is None
    assert list(tmp_path.iterdir()) == []
    assert state.take_snapshot() == 500
