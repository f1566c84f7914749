"""One partition of ``__transaction_state``: its transactional ids."""

from __future__ import annotations

from tidelog.coordinator.runtime import Producer, ShardContext
from tidelog.coordinator.stored_record import RecordSchemas, StoredRecord
from tidelog.metadata.feed import ImageDelta
from tidelog.wire.internal_topics import transaction_state as stored

SCHEMAS = RecordSchemas([(stored.TransactionLogKey, stored.TransactionLogValue)])


class TransactionShard:
    """The transactional ids of one partition."""

    def __init__(self, context: ShardContext) -> None:
        self.context = context

    def replay(self, offset: int, producer: Producer, record: StoredRecord) -> None:
        """Take in one record."""

    def replay_marker(self, producer: Producer, committed: bool) -> None:
        """No transaction writes here."""

    def loaded(self) -> None:
        """Everything is known."""

    def unloaded(self) -> None:
        """Led elsewhere."""

    def metadata_changed(self, delta: ImageDelta) -> None:
        """Topics have changed."""
