"""Records of ``__transaction_state``: a transactional id and its transaction, in Kafka's schemas.

Value version 0 lacks previous and next producer id and the client's transaction version; version 1 has them
as tagged fields and is written once the cluster's ``transaction.version`` is 1 or more (KIP-890). Older
brokers could not read it.
"""

from __future__ import annotations

from collections.abc import Iterable

from tidelog.coordinator.stored_record import RecordSchemas, StoredRecord
from tidelog.coordinator.transaction.state import TransactionState
from tidelog.coordinator.transaction.transaction import Transaction
from tidelog.errors import CorruptRecordError
from tidelog.ids import TopicPartition
from tidelog.wire.internal_topics.transaction_state import (
    PartitionsSchema,
    TransactionLogKey,
    TransactionLogValue,
)

SCHEMAS = RecordSchemas([(TransactionLogKey, TransactionLogValue)])

_FLEXIBLE_VERSION = 1


def encode(transaction: Transaction, transaction_version: int) -> StoredRecord:
    """The record that makes ``transaction`` last."""
    empty = transaction.state is TransactionState.EMPTY
    value = TransactionLogValue(
        producer_id=transaction.producer_id,
        producer_epoch=transaction.producer_epoch,
        transaction_timeout_ms=transaction.timeout_ms,
        transaction_status=transaction.state,
        transaction_partitions=None if empty else _by_topic(transaction.partitions),
        transaction_last_update_timestamp_ms=transaction.last_update_ms,
        transaction_start_timestamp_ms=transaction.start_ms,
    )
    version = 0
    if transaction_version >= _FLEXIBLE_VERSION:
        version = _FLEXIBLE_VERSION
        value.previous_producer_id = transaction.previous_producer_id
        value.next_producer_id = transaction.next_producer_id
        value.client_transaction_version = transaction.client_version
    return StoredRecord(_key(transaction.transactional_id), value, version)


def tombstone(transactional_id: str) -> StoredRecord:
    """The record that makes ``transactional_id`` forgotten."""
    return StoredRecord(_key(transactional_id), None)


def decode(record: StoredRecord) -> tuple[str, Transaction | None]:
    """A transactional id and its transaction, None if it is forgotten."""
    key, value = record.key, record.value
    if not isinstance(key, TransactionLogKey):
        raise CorruptRecordError(f"{type(key).__name__} has no place in __transaction_state")
    transactional_id = key.transactional_id
    if not isinstance(value, TransactionLogValue):
        return transactional_id, None
    try:
        state = TransactionState(value.transaction_status)
    except ValueError:
        raise CorruptRecordError(
            f"{transactional_id!r} has the unknown state {value.transaction_status}"
        ) from None
    return transactional_id, Transaction(
        transactional_id=transactional_id,
        producer_id=value.producer_id,
        producer_epoch=value.producer_epoch,
        previous_producer_id=value.previous_producer_id,
        next_producer_id=value.next_producer_id,
        timeout_ms=value.transaction_timeout_ms,
        state=state,
        partitions=frozenset(
            TopicPartition(topic.topic, index)
            for topic in value.transaction_partitions or ()
            for index in topic.partition_ids
        ),
        start_ms=value.transaction_start_timestamp_ms,
        last_update_ms=value.transaction_last_update_timestamp_ms,
        client_version=value.client_transaction_version,
    )


def _key(transactional_id: str) -> TransactionLogKey:
    return TransactionLogKey(transactional_id=transactional_id)


def _by_topic(partitions: Iterable[TopicPartition]) -> list[PartitionsSchema]:
    topics: dict[str, list[int]] = {}
    for topic, index in sorted(partitions):
        topics.setdefault(topic, []).append(index)
    return [PartitionsSchema(topic=topic, partition_ids=indexes) for topic, indexes in topics.items()]
