"""What a partition remembers of producers that are being verified, and which markers it takes (KIP-890)."""

from __future__ import annotations

from pathlib import Path

import pytest
from tests.rigs.faulty_disk import FaultyDisk

from tidelog.errors import ErrorCode, KafkaError
from tidelog.ids import TopicPartition
from tidelog.records.control import ControlType, EndTxnMarker
from tidelog.storage.producers.producer_snapshots import ProducerSnapshots, sequenced
from tidelog.storage.producers.producer_state import AppendOrigin, ProducerState
from tidelog.storage.producers.producer_verification import Verification

NOW = 1_700_000_000_000
ID = 7
COMMIT = EndTxnMarker(ControlType.COMMIT, 0)


class Partition:
    """One producer's view of a partition."""

    def __init__(self, directory: Path) -> None:
        self.state = ProducerState(TopicPartition("orders", 0), ProducerSnapshots(directory, FaultyDisk()))
        self.offset = 0

    def begin(self, epoch: int = 0, sequence: int = 0, *, adds: bool = True) -> Verification | None:
        return self.state.begin_verification(ID, epoch, sequence, adds_partitions=adds, now_ms=NOW)

    def write(self, sequence: int, epoch: int = 0) -> None:
        batch = sequenced(sequence, 0, self.offset, NOW)
        self.state.stage_batch(ID, epoch, batch, True, AppendOrigin.CLIENT)
        self.offset += 1
        self.state.commit(self.offset)

    def end(self, epoch: int, origin: AppendOrigin = AppendOrigin.COORDINATOR) -> None:
        self.state.stage_marker(ID, epoch, COMMIT, self.offset, NOW, origin)
        self.offset += 1
        self.state.commit(self.offset)

    def holds(self, verification: Verification | None, epoch: int = 0) -> bool:
        assert verification is not None
        return self.state.is_verified(ID, epoch, verification)


@pytest.fixture
def partition(tmp_path: Path) -> Partition:
    return Partition(tmp_path)


def refused(action: object, *arguments: object) -> ErrorCode:
    with pytest.raises(KafkaError) as error:
        action(*arguments)  # type: ignore[operator]
    return error.value.code


# -- beginning and ending -----------------------------------------------------------------------------


def test_an_open_transaction_needs_no_verification_and_its_next_one_does(partition: Partition) -> None:
    verification = partition.begin()
    assert partition.holds(verification)
    partition.write(0)
    assert partition.begin() is None
    assert partition.begin(epoch=1) is not None, "a newer epoch is another transaction"


def test_a_repeated_question_is_the_same_verification(partition: Partition) -> None:
    assert partition.begin() is partition.begin()


def test_an_older_epoch_than_the_last_seen_is_refused_at_once(partition: Partition) -> None:
    partition.write(0, epoch=3)
    assert refused(partition.begin, 2) is ErrorCode.INVALID_PRODUCER_EPOCH


def test_the_first_batch_ends_the_verification_and_the_log_vouches_from_then_on(partition: Partition) -> None:
    verification = partition.begin()
    partition.write(0)
    assert partition.state.verifications.get(ID) is None
    assert partition.holds(verification), "the transaction is open"
    partition.end(0)
    assert not partition.holds(verification)


def test_a_marker_voids_a_verification(partition: Partition) -> None:
    verification = partition.begin(adds=False)
    partition.end(0)
    assert not partition.holds(verification)
    renewed = partition.begin(adds=False)
    assert renewed is not verification
    assert partition.holds(renewed)
    assert not partition.holds(verification), "what was said about the old transaction is not said of the new"


def test_the_marker_of_the_transaction_before_does_not_void_the_next_one(partition: Partition) -> None:
    partition.write(0, epoch=0)
    verification = partition.begin(epoch=1)
    partition.end(1)
    assert partition.holds(verification, epoch=1)
    partition.end(2)
    assert not partition.holds(verification, epoch=1)


def test_a_replicated_marker_voids_it_too(partition: Partition) -> None:
    verification = partition.begin(adds=False)
    partition.end(0, AppendOrigin.REPLICATION)
    assert not partition.holds(verification)


def test_verifications_that_nobody_ends_are_forgotten_with_silent_producers(partition: Partition) -> None:
    verification = partition.begin()
    partition.state.remove_expired(NOW + partition.state.expiration_ms - 1)
    assert partition.holds(verification)
    partition.state.remove_expired(NOW + partition.state.expiration_ms)
    assert not partition.holds(verification)


# -- sequence numbers ---------------------------------------------------------------------------------


def test_no_batch_overtakes_one_that_is_still_to_be_verified(partition: Partition) -> None:
    partition.begin(sequence=3, adds=False)
    partition.begin(sequence=5, adds=False)
    assert refused(partition.write, 5) is ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER
    partition.write(3)
    partition.write(4)


def test_a_new_epoch_counts_the_lowest_sequence_anew(partition: Partition) -> None:
    partition.begin(epoch=0, sequence=3, adds=False)
    partition.begin(epoch=1, sequence=9, adds=False)
    partition.begin(epoch=0, sequence=1, adds=False)
    assert refused(partition.write, 10, 1) is ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER
    partition.write(9, epoch=1)


def test_a_producer_of_version_2_that_is_unknown_begins_with_sequence_0(partition: Partition) -> None:
    partition.begin(sequence=4, adds=True)
    assert refused(partition.write, 4) is ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER
    partition.begin(sequence=0, adds=True)
    partition.write(0)


def test_an_older_producer_that_is_unknown_may_begin_anywhere(partition: Partition) -> None:
    partition.begin(sequence=4, adds=False)
    partition.write(4)


def test_an_epoch_that_a_marker_has_begun_starts_with_sequence_0(partition: Partition) -> None:
    partition.write(0, epoch=0)
    partition.end(1)
    assert refused(partition.write, 1, 1) is ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER
    assert refused(partition.write, 1, 0) is ErrorCode.INVALID_PRODUCER_EPOCH
    partition.write(0, epoch=1)


def test_a_marker_of_the_same_epoch_lets_the_sequence_go_on(partition: Partition) -> None:
    partition.write(0)
    partition.end(0)
    partition.write(1)


# -- markers ------------------------------------------------------------------------------------------


def test_a_marker_of_version_2_has_a_greater_epoch_than_the_records(partition: Partition) -> None:
    partition.write(0, epoch=4)
    check = partition.state.check_marker
    assert refused(check, ID, 3, 2) is ErrorCode.INVALID_PRODUCER_EPOCH
    assert refused(check, ID, 4, 2) is ErrorCode.INVALID_PRODUCER_EPOCH
    check(ID, 5, 2)
    check(ID, 4, 1)
    check(ID, 4, 0)


def test_a_marker_of_version_2_may_be_repeated_until_the_next_transaction_begins(
    partition: Partition,
) -> None:
    partition.write(0, epoch=4)
    partition.end(5)
    partition.state.check_marker(ID, 5, 2)
    partition.write(0, epoch=5)
    assert refused(partition.state.check_marker, ID, 5, 2) is ErrorCode.INVALID_PRODUCER_EPOCH


def test_the_last_epoch_of_all_can_be_ended(partition: Partition) -> None:
    partition.write(0, epoch=0x7FFF)
    partition.state.check_marker(ID, 0x7FFF, 2)


def test_a_producer_that_wrote_nothing_here_takes_any_marker(partition: Partition) -> None:
    partition.state.check_marker(ID, 0, 2)
