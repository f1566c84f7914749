"""After a restart, a client that repeats any of its last five batches is recognised."""

from __future__ import annotations

from collections.abc import Callable

import pytest
from tests.rigs.clock import ManualClock

from tidelog.errors import ErrorCode, KafkaError
from tidelog.records.record import Record, encode_batch
from tidelog.storage.log.log import Log
from tidelog.storage.producers.producer_tail import RECENT_MS

OpenLog = Callable[..., Log]


def batch(
    clock: ManualClock, sequence: int, *, count: int = 2, producer_id: int = 7, epoch: int = 0
) -> bytes:
    records = [Record(timestamp=clock.time_ms(), value=b"v") for _ in range(count)]
    return encode_batch(records, producer_id=producer_id, producer_epoch=epoch, base_sequence=sequence)


def written(log: Log, clock: ManualClock, batches: int) -> dict[int, int]:
    """Write batches of two producers in turn; the first offset of each of the first one's."""
    offsets = {}
    for number in range(batches):
        offsets[2 * number] = log.append_as_leader(batch(clock, 2 * number), 0).first_offset
        log.append_as_leader(batch(clock, number, count=1, producer_id=8), 0)
    return offsets


@pytest.mark.parametrize("clean", [True, False], ids=["clean stop", "crash"])
@pytest.mark.parametrize("segment_bytes", [1 << 20, 400], ids=["one segment", "several"])
def test_the_last_five_batches_are_known_after_a_restart(
    open_log: OpenLog, clock: ManualClock, clean: bool, segment_bytes: int
) -> None:
    log = open_log(segment_bytes=segment_bytes)
    offsets = written(log, clock, 8)
    log.close(clean=clean)
    log = open_log(segment_bytes=segment_bytes, clean=clean)
    for sequence in (6, 8, 10, 12, 14):
        again = log.append_as_leader(batch(clock, sequence), 0)
        assert (again.duplicate, again.first_offset) == (True, offsets[sequence])
    with pytest.raises(KafkaError) as refused:
        log.append_as_leader(batch(clock, 4), 0)
    assert refused.value.code is ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER
    assert not log.append_as_leader(batch(clock, 16), 0).duplicate


def test_they_are_known_after_the_log_was_cut_back(open_log: OpenLog, clock: ManualClock) -> None:
    log = open_log()
    offsets = written(log, clock, 8)
    log.truncate_to(offsets[14])
    for sequence in (8, 10, 12):
        assert log.append_as_leader(batch(clock, sequence), 0).duplicate
    assert not log.append_as_leader(batch(clock, 14), 0).duplicate


def test_a_batch_of_an_earlier_epoch_is_not_of_the_chain(open_log: OpenLog, clock: ManualClock) -> None:
    log = open_log()
    written(log, clock, 3)
    log.append_as_leader(batch(clock, 0, epoch=1), 0)
    log.append_as_leader(batch(clock, 2, epoch=1), 0)
    log.close()
    entry = open_log().producers.entries[7]
    assert [(each.first_sequence, each.last_sequence) for each in entry.batches] == [(0, 1), (2, 3)]


def test_sequences_chain_over_their_end(open_log: OpenLog, clock: ManualClock) -> None:
    log = open_log()
    first = 0x7FFFFFFE
    log.append_as_leader(batch(clock, first), 0)
    log.append_as_leader(batch(clock, 0), 0)
    log.close()
    log = open_log()
    assert log.append_as_leader(batch(clock, first), 0).duplicate


def test_of_producers_that_were_idle_for_long_the_last_batch_is_enough(
    open_log: OpenLog, clock: ManualClock
) -> None:
    log = open_log()
    written(log, clock, 3)
    log.close()
    clock.advance(RECENT_MS + 1)
    assert [len(entry.batches) for entry in open_log().producers.entries.values()] == [1, 1]
