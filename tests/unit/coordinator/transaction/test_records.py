"""Records of ``__transaction_state``: what survives a reload, in both value versions, byte for byte."""

from __future__ import annotations

from collections.abc import Callable

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.unit.coordinator.transaction.scene import ORDERS, TX, Scene

from tidelog.coordinator.stored_record import StoredRecord, encode_key, encode_value
from tidelog.coordinator.transaction import records
from tidelog.coordinator.transaction.state import LEGAL_PREDECESSORS, TransactionState
from tidelog.coordinator.transaction.transaction import Transaction
from tidelog.errors import CorruptRecordError, KafkaError
from tidelog.ids import TopicPartition
from tidelog.records.batch import iter_batches
from tidelog.records.record import decode_batch
from tidelog.wire.internal_topics.transaction_state import TransactionLogKey, TransactionLogValue

S = TransactionState

WRITTEN = [state for state in S if state not in (S.DEAD, S.PREPARE_EPOCH_FENCE)]

partitions = st.frozensets(
    st.builds(TopicPartition, st.text("abc", min_size=1, max_size=3), st.integers(0, 9)), max_size=5
)
int64 = st.integers(0, 2**63 - 1)

transactions = st.builds(
    Transaction,
    transactional_id=st.text(min_size=1, max_size=20),
    producer_id=int64,
    producer_epoch=st.integers(0, 32767),
    previous_producer_id=st.integers(-1, 2**63 - 1),
    next_producer_id=st.integers(-1, 2**63 - 1),
    timeout_ms=st.integers(1, 2**31 - 1),
    state=st.sampled_from([state for state in WRITTEN if state is not S.EMPTY]),
    partitions=partitions,
    start_ms=st.integers(-1, 2**62),
    last_update_ms=int64,
    client_version=st.integers(0, 2),
)


def through_bytes(record: StoredRecord) -> StoredRecord:
    key = records.SCHEMAS.decode_key(encode_key(record.key))
    value = None if record.value is None else encode_value(record.value, record.value_version)
    return StoredRecord(key, records.SCHEMAS.decode_value(key, value))


@given(transactions)
def test_version_1_keeps_everything(transaction: Transaction) -> None:
    for version in (1, 2):
        record = through_bytes(records.encode(transaction, version))
        assert records.decode(record) == (transaction.transactional_id, transaction)


@given(transactions)
def test_version_0_keeps_what_it_has_room_for(transaction: Transaction) -> None:
    expected = msgspec.structs.replace(
        transaction, previous_producer_id=-1, next_producer_id=-1, client_version=0
    )
    record = through_bytes(records.encode(transaction, 0))
    assert records.decode(record) == (transaction.transactional_id, expected)


def test_a_tombstone_is_a_key_without_a_value() -> None:
    assert records.decode(through_bytes(records.tombstone("a"))) == ("a", None)


def test_the_bytes_are_kafkas() -> None:
    transaction = Transaction(
        transactional_id="tx",
        producer_id=0x0102,
        producer_epoch=3,
        previous_producer_id=0x0102,
        timeout_ms=60_000,
        state=S.ONGOING,
        partitions=frozenset({TopicPartition("t", 1), TopicPartition("t", 0)}),
        start_ms=5,
        last_update_ms=6,
        client_version=2,
    )
    key, value, version = records.encode(transaction, 0)
    assert encode_key(key).hex(" ") == "00 00 00 02 74 78"
    assert value is not None
    times = "00 00 00 00 00 00 00 06  00 00 00 00 00 00 00 05"
    fields = "00 00 00 00 00 00 01 02  00 03  00 00 ea 60  01  {}" + times
    listed = "00 00 00 01  00 01 74  00 00 00 02  00 00 00 00  00 00 00 01"
    assert encode_value(value, version) == bytes.fromhex("00 00 " + fields.format(listed))
    _, value, version = records.encode(transaction, 2)
    assert value is not None
    listed = "02  02 74  03  00 00 00 00  00 00 00 01  00"
    tags = "02  00 08 00 00 00 00 00 00 01 02  02 02 00 02"
    assert encode_value(value, version) == bytes.fromhex("00 01 " + fields.format(listed) + tags)


def test_an_empty_transaction_has_no_list_of_partitions() -> None:
    value = records.encode(Transaction(transactional_id="a", producer_id=1, timeout_ms=1), 2).value
    assert isinstance(value, TransactionLogValue)
    assert value.transaction_partitions is None


def test_a_state_that_there_is_not_is_a_corrupt_record() -> None:
    key, value = TransactionLogKey(transactional_id="a"), TransactionLogValue(transaction_status=9)
    with pytest.raises(CorruptRecordError, match="unknown state 9"):
        records.decode(StoredRecord(key, value))


@pytest.mark.parametrize(("version", "expected"), [(0, 0), (1, 1), (2, 1)])
def test_the_clusters_version_decides_how_values_are_written(version: int, expected: int) -> None:
    scene = Scene(version)
    scene.in_state(S.COMPLETE_COMMIT, version=0)
    values = [
        record.value
        for batch in scene.log.batches
        for pos, header in iter_batches(batch)
        for record in decode_batch(batch[pos : pos + header.size_bytes])
    ]
    assert len(values) == 4
    assert {value[:2] for value in values if value is not None} == {expected.to_bytes(2, "big")}


def test_an_older_clusters_version_does_not_hurt_a_client_of_a_newer_one() -> None:
    scene = Scene(0)
    producer = scene.in_state(S.ONGOING)
    assert scene.end(producer, commit=True, version=2).result().epoch == producer.epoch + 1
    scene.crash()
    assert scene.state() is S.COMPLETE_COMMIT
    assert scene.end(producer, commit=True, version=2).result().epoch == producer.epoch + 1


@pytest.mark.parametrize("state", WRITTEN)
@pytest.mark.parametrize("version", [1, 2])
def test_a_reload_finds_every_state_as_it_was(state: TransactionState, version: int) -> None:
    scene = Scene(version)
    scene.in_state(state)
    before = scene.get()
    scene.crash()
    assert scene.get() == msgspec.structs.replace(before, last_producer_epoch=-1)


def test_labels_are_those_of_kafkas_tools() -> None:
    assert [state.label for state in S] == [
        "Empty",
        "Ongoing",
        "PrepareCommit",
        "PrepareAbort",
        "CompleteCommit",
        "CompleteAbort",
        "Dead",
        "PrepareEpochFence",
    ]


@pytest.mark.parametrize("before", list(S))
def test_no_step_leads_where_it_must_not(before: TransactionState) -> None:
    transaction = Transaction(
        transactional_id=TX, producer_id=1, producer_epoch=1, timeout_ms=1, state=before, start_ms=0
    )
    steps: dict[TransactionState, Callable[[], Transaction]] = {
        S.EMPTY: lambda: transaction.with_new_epoch(1, None, 1),
        S.ONGOING: lambda: transaction.with_partitions(frozenset(ORDERS), 2, 1),
        S.PREPARE_COMMIT: lambda: transaction.prepared(S.PREPARE_COMMIT, 2, 1),
        S.PREPARE_ABORT: lambda: transaction.prepared(S.PREPARE_ABORT, 2, 1),
    }
    for after, step in steps.items():
        if before in LEGAL_PREDECESSORS[after]:
            assert step().state is after
        else:
            with pytest.raises(KafkaError):
                step()
