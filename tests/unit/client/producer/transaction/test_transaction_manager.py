from __future__ import annotations

import pytest

from tidelog.client.errors import RequestTimeoutError
from tidelog.client.producer._producer_batch import ProducerBatch
from tidelog.client.producer._transaction.sequences import PartitionSequences, ProducerIdentity, precedes
from tidelog.client.producer._transaction.transaction_manager import TransactionManager
from tidelog.client.producer._transaction.transaction_states import TransactionState
from tidelog.client.producer.errors import (
    ProducerFencedError,
    TransactionAbortableError,
    TransactionStateError,
)
from tidelog.errors import ErrorCode, KafkaError
from tidelog.ids import TopicPartition
from tidelog.records.batch import MAX_INT32, parse_header
from tidelog.records.record_codec import BatchBuilder

S = TransactionState
PARTITION = TopicPartition("t", 0)
OTHER = TopicPartition("t", 1)
IDENTITY = ProducerIdentity(9, 0)


def batch(records: int = 1, partition: TopicPartition = PARTITION) -> ProducerBatch:
    builder = BatchBuilder(100_000)
    made = ProducerBatch(partition, builder, 0, 0.0)
    for _ in range(records):
        made.append(1, None, b"x", ())
    made.close_for_appends()
    return made


@pytest.fixture
def idempotent() -> TransactionManager:
    manager = TransactionManager()
    manager.to(S.INITIALIZING)
    manager.initialized(IDENTITY)
    return manager


@pytest.fixture
def transactional() -> TransactionManager:
    manager = TransactionManager("id")
    manager.to(S.INITIALIZING)
    manager.initialized(IDENTITY)
    manager.can_bump_epoch = True
    manager.begin()
    manager.partitions_added([PARTITION, OTHER])
    return manager


def send(manager: TransactionManager, *batches: ProducerBatch) -> None:
    for each in batches:
        assert manager.may_drain(each), each
        manager.assign_sequence(each)
        each.encode()


def introduce(manager: TransactionManager) -> None:
    """Let the broker of the partition know the producer, so that several batches may be under way."""
    first = batch()
    send(manager, first)
    manager.batch_completed(first, 0)


# -- sequences


def test_sequence_numbers_follow_one_another_and_start_again_after_the_last() -> None:
    known = PartitionSequences()
    known.next_sequence = MAX_INT32 - 1
    one, two = batch(3), batch(2)
    known.assign(one, False)
    known.assign(two, False)
    assert (one.base_sequence, one.last_sequence) == (MAX_INT32 - 1, 0)
    assert (two.base_sequence, two.last_sequence) == (1, 2)
    assert precedes(one.base_sequence, two.base_sequence)
    known.acked(one, 10)
    assert known.last_acked_sequence == 0
    assert known.is_next(two.base_sequence)
    known.acked(two, 13)
    assert (known.last_acked_sequence, known.last_acked_offset) == (2, 14)


def test_a_batch_carries_its_numbers_and_under_a_new_epoch_the_new_ones(
    idempotent: TransactionManager,
) -> None:
    introduce(idempotent)
    one, two = batch(3), batch(2)
    send(idempotent, one, two)
    header = parse_header(two.encode())
    assert (header.producer_id, header.producer_epoch, header.base_sequence) == (9, 0, 4)
    idempotent.request_epoch_bump(PARTITION)
    idempotent.bump_idempotent_epoch()
    header = parse_header(two.encode())
    assert (header.producer_id, header.producer_epoch, header.base_sequence) == (9, 1, 3)
    assert two.sequence_has_been_reset


def test_the_first_batch_of_a_partition_goes_alone(idempotent: TransactionManager) -> None:
    one, two = batch(), batch()
    send(idempotent, one)
    assert not idempotent.may_drain(two)
    idempotent.batch_completed(one, 0)
    send(idempotent, two, batch())


def test_a_retry_waits_until_it_is_the_oldest(idempotent: TransactionManager) -> None:
    introduce(idempotent)
    one, two = batch(), batch()
    send(idempotent, one, two)
    assert idempotent.may_drain(one)
    assert not idempotent.may_drain(two)
    idempotent.batch_completed(one, 1)
    assert idempotent.may_drain(two)


def test_no_batch_makes_the_broker_forget_one_that_may_have_to_be_sent_again(
    idempotent: TransactionManager,
) -> None:
    introduce(idempotent)
    oldest, *others = [batch() for _ in range(5)]
    send(idempotent, oldest, *others)
    for offset, each in enumerate(others):
        idempotent.batch_completed(each, offset)
    assert not idempotent.may_drain(batch()), "the broker remembers five, and has them from the oldest on"
    assert idempotent.may_drain(oldest)
    idempotent.batch_completed(oldest, 9)
    assert idempotent.may_drain(batch())


def test_nothing_is_sent_before_there_is_a_producer_id() -> None:
    manager = TransactionManager()
    assert not manager.may_drain(batch())


def test_a_new_epoch_waits_for_what_is_under_way_with_the_old_one(idempotent: TransactionManager) -> None:
    introduce(idempotent)
    one = batch()
    send(idempotent, one)
    idempotent.request_epoch_bump(OTHER)
    idempotent.bump_idempotent_epoch()
    assert one.producer_epoch == 0
    assert not idempotent.may_drain(batch())
    idempotent.batch_completed(one, 1)
    fresh = batch()
    send(idempotent, fresh)
    assert (fresh.producer_epoch, fresh.base_sequence) == (1, 0)


def test_when_the_epochs_are_used_up_another_producer_id_is_asked_for(idempotent: TransactionManager) -> None:
    idempotent.identity = ProducerIdentity(9, 2**15 - 1)
    introduce(idempotent)
    waiting = batch(2)
    send(idempotent, waiting)
    idempotent.request_epoch_bump(PARTITION)
    idempotent.bump_idempotent_epoch()
    assert not idempotent.has_producer_id
    idempotent.to(S.INITIALIZING)
    idempotent.initialized(ProducerIdentity(10, 0))
    assert (waiting.producer_id, waiting.producer_epoch, waiting.base_sequence) == (10, 0, 0)


def test_a_batch_out_of_order_is_retried_while_an_older_one_is_missing(
    idempotent: TransactionManager,
) -> None:
    introduce(idempotent)
    one, two = batch(), batch()
    send(idempotent, one, two)
    assert idempotent.can_retry(two, ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER, -1)
    assert not idempotent.epoch_bump_required
    assert idempotent.can_retry(one, ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER, -1)
    assert idempotent.epoch_bump_required


def test_a_lost_producer_state_is_begun_anew(
    idempotent: TransactionManager, transactional: TransactionManager
) -> None:
    for manager in (idempotent, transactional):
        introduce(manager)
    lost = batch()
    send(idempotent, lost)
    assert idempotent.can_retry(lost, ErrorCode.UNKNOWN_PRODUCER_ID, 50)
    assert idempotent.epoch_bump_required
    lost = batch()
    send(transactional, lost)
    assert transactional.can_retry(lost, ErrorCode.UNKNOWN_PRODUCER_ID, 50)
    assert lost.base_sequence == 0
    send(transactional, batch())
    assert not transactional.can_retry(batch(), ErrorCode.UNKNOWN_PRODUCER_ID, 0)


def test_an_expired_batch_holds_up_its_partition_until_its_fate_is_known(
    idempotent: TransactionManager,
) -> None:
    introduce(idempotent)
    one, two = batch(), batch()
    send(idempotent, one, two)
    idempotent.batch_failed(one, RequestTimeoutError("late"), False)
    idempotent.mark_unresolved(one)
    assert not idempotent.may_drain(batch())
    idempotent.resolve_sequences()
    assert not idempotent.may_drain(batch()), "the second one may still tell that the first was written"
    idempotent.batch_completed(two, 2)
    idempotent.resolve_sequences()
    assert idempotent.may_drain(batch())
    assert not idempotent.epoch_bump_required


def test_an_expired_batch_without_followers_costs_an_epoch(idempotent: TransactionManager) -> None:
    introduce(idempotent)
    one = batch()
    send(idempotent, one)
    idempotent.batch_failed(one, RequestTimeoutError("late"), False)
    idempotent.mark_unresolved(one)
    idempotent.resolve_sequences()
    assert idempotent.epoch_bump_required


def test_a_refused_batch_of_a_transaction_frees_its_numbers(transactional: TransactionManager) -> None:
    introduce(transactional)
    one, two = batch(3), batch()
    send(transactional, one, two)
    transactional.batch_failed(one, KafkaError(ErrorCode.INVALID_RECORD, "no"), True)
    assert two.base_sequence == 1
    assert transactional.sequences(PARTITION).next_sequence == 2


def test_parts_of_a_split_batch_take_its_place(idempotent: TransactionManager) -> None:
    introduce(idempotent)
    whole, after = batch(5), batch()
    send(idempotent, whole, after)
    parts = [batch(2), batch(3)]
    idempotent.replace_in_flight(whole, parts)
    assert [part.base_sequence for part in parts] == [1, 3]
    assert idempotent.sequences(PARTITION).in_flight == [*parts, after]


# -- states


@pytest.mark.parametrize(
    ("source", "allowed"),
    [
        (S.UNINITIALIZED, {S.INITIALIZING}),
        (S.INITIALIZING, {S.READY, S.ABORTABLE_ERROR, S.UNINITIALIZED}),
        (S.READY, {S.UNINITIALIZED, S.IN_TRANSACTION}),
        (S.IN_TRANSACTION, {S.COMMITTING_TRANSACTION, S.ABORTING_TRANSACTION, S.ABORTABLE_ERROR}),
        (S.COMMITTING_TRANSACTION, {S.READY, S.INITIALIZING, S.ABORTABLE_ERROR}),
        (S.ABORTING_TRANSACTION, {S.READY, S.INITIALIZING}),
        (S.ABORTABLE_ERROR, {S.ABORTING_TRANSACTION, S.ABORTABLE_ERROR, S.UNINITIALIZED}),
        (S.FATAL_ERROR, set()),
    ],
)
def test_every_state_allows_its_own_next_ones_only(
    source: TransactionState, allowed: set[TransactionState]
) -> None:
    for target in TransactionState:
        manager = TransactionManager("id")
        manager.state = source
        if target in {*allowed, S.FATAL_ERROR}:
            manager.to(target)
            assert manager.state is target
        else:
            with pytest.raises(TransactionStateError):
                manager.to(target)
            assert manager.state is source


def test_an_abortable_error_is_raised_until_the_transaction_is_aborted(
    transactional: TransactionManager,
) -> None:
    transactional.fail_transaction(KafkaError(ErrorCode.TOPIC_AUTHORIZATION_FAILED, "not for you"))
    for call in (
        transactional.check_send,
        transactional.begin,
        lambda: transactional.begin_end(commit=True),
    ):
        with pytest.raises(TransactionAbortableError, match="not for you"):
            call()
    assert transactional.epoch_bump_required
    transactional.begin_end(commit=False)
    transactional.ended(None)
    assert transactional.state is S.INITIALIZING
    transactional.initialized(ProducerIdentity(9, 1))
    transactional.begin()


def test_version_2_needs_no_epoch_bump_by_the_client(transactional: TransactionManager) -> None:
    transactional.is_version_2 = True
    transactional.fail_transaction(KafkaError(ErrorCode.TOPIC_AUTHORIZATION_FAILED, "not for you"))
    assert not transactional.epoch_bump_required
    transactional.begin_end(commit=False)
    transactional.ended(ProducerIdentity(9, 1))
    assert transactional.state is S.READY
    assert transactional.identity == (9, 1)


def test_a_fenced_producer_says_so_for_ever(transactional: TransactionManager) -> None:
    transactional.fail_for_good(ProducerFencedError("id"))
    for call in (
        transactional.check_send,
        transactional.begin,
        lambda: transactional.begin_end(commit=False),
    ):
        with pytest.raises(ProducerFencedError):
            call()
    assert not transactional.may_drain(batch())


def test_a_failed_record_makes_its_transaction_fail(transactional: TransactionManager) -> None:
    introduce(transactional)
    lost = batch()
    send(transactional, lost)
    transactional.batch_failed(lost, RequestTimeoutError("late"), False)
    assert transactional.state is S.ABORTABLE_ERROR
    with pytest.raises(TransactionAbortableError):
        transactional.begin_end(commit=True)


def test_a_record_that_fails_while_aborting_changes_nothing(transactional: TransactionManager) -> None:
    introduce(transactional)
    lost = batch()
    send(transactional, lost)
    transactional.begin_end(commit=False)
    transactional.batch_failed(lost, RequestTimeoutError("late"), False)
    assert transactional.state is S.ABORTING_TRANSACTION


def test_partitions_are_announced_once_in_version_1_and_never_in_version_2(
    transactional: TransactionManager,
) -> None:
    third = TopicPartition("t", 2)
    transactional.add_partition(PARTITION)
    transactional.add_partition(third)
    assert not transactional.may_drain(batch(partition=third))
    assert transactional.take_new_partitions() == {third}
    transactional.partitions_added([third])
    assert transactional.may_drain(batch(partition=third))
    transactional.begin_end(commit=True)
    transactional.ended(None)
    transactional.is_version_2 = True
    transactional.begin()
    transactional.add_partition(third)
    assert transactional.take_new_partitions() == set()
    assert transactional.transaction_started
    assert transactional.may_drain(batch(partition=third))


def test_without_a_transactional_id_there_are_no_transactions(idempotent: TransactionManager) -> None:
    with pytest.raises(TransactionStateError, match="no transactions"):
        idempotent.begin()
