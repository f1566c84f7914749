"""One partition of ``__transaction_state``: its transactional ids, and the commands on them.

Invariant: one step at a time for each id. While a step is written but not committed, and from Prepare until
Complete is committed, other requests get CONCURRENT_TRANSACTIONS and clients ask again, as in Kafka. A step
that fails to be written has not happened; one that is written but not committed in time has, and requests go
on from there (Kafka goes on from the state before, against its own log).

Called by ``service``; ending is decided in ``ending``, markers are sent by ``completion``, and ``upkeep``
looks for what has timed out.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable, Iterator
from typing import NamedTuple, TypeVar

from tidelog.coordinator.runtime import Producer, Result, ShardContext
from tidelog.coordinator.stored_record import StoredRecord
from tidelog.coordinator.transaction import ending, records
from tidelog.coordinator.transaction.completion import Completion
from tidelog.coordinator.transaction.ending import EndRequest
from tidelog.coordinator.transaction.state import TransactionState
from tidelog.coordinator.transaction.support import TransactionSupport
from tidelog.coordinator.transaction.transaction import EPOCH_BUMP_VERSION, Transaction, is_exhausted
from tidelog.coordinator.transaction.upkeep import Upkeep
from tidelog.errors import ErrorCode, KafkaError
from tidelog.ids import NO_PRODUCER_EPOCH, NO_PRODUCER_ID, TopicPartition
from tidelog.metadata.feed import ImageDelta
from tidelog.scheduling.promise import Promise

logger = logging.getLogger(__name__)

R = TypeVar("R")

NO_PRODUCER = Producer(NO_PRODUCER_ID, NO_PRODUCER_EPOCH)


class _Step(NamedTuple):
    """A step that is written and not committed yet."""

    before: Transaction | None
    after: Transaction | None


class TransactionShard:
    """The transactional ids of one partition."""

    def __init__(
        self,
        context: ShardContext,
        support: TransactionSupport,
        run: Callable[[Callable[[], Result[None]]], Promise[None]],
    ) -> None:
        self.context = context
        self.transactions: dict[str, Transaction] = {}
        self._support = support
        self._steps: dict[str, _Step] = {}
        self._completion = Completion(context, support, self.transactions.get, self._complete, run)
        self._upkeep = Upkeep(self, support, run)

    # The log

    def replay(self, offset: int, producer: Producer, record: StoredRecord) -> None:
        """Take in one record."""
        transactional_id, transaction = records.decode(record)
        if transaction is None:
            self.transactions.pop(transactional_id, None)
            return
        step = self._steps.get(transactional_id)
        if step is not None and step.after is not None:
            # The same, with what no record tells: the last epoch, and what value version 0 has no room for.
            transaction = step.after
        self.transactions[transactional_id] = transaction

    def replay_marker(self, producer: Producer, committed: bool) -> None:
        """No transaction writes here."""

    def loaded(self) -> Iterator[None]:
        """Go on with what was prepared, and begin to look for what times out."""
        prepared = [name for name, found in self.transactions.items() if found.state.is_prepared]
        self._completion.begin_when_committed(prepared)
        self._upkeep.start()
        yield

    def unloaded(self) -> Iterator[None]:
        """Led elsewhere."""
        self._completion.close()
        while self.transactions:
            self.transactions.popitem()
            yield

    def metadata_changed(self, delta: ImageDelta) -> None:
        """Partitions that are gone are found out when their markers are due."""

    # Requests

    def init_producer_id(
        self, transactional_id: str, timeout_ms: int, expected: Producer | None
    ) -> Result[Producer]:
        """A producer begins, or goes on after an error (``expected``, KIP-360): fence all before it."""
        if self.is_in_transition(transactional_id):
            raise concurrent(transactional_id)
        found = self.transactions.get(transactional_id)
        if found is None:
            found = Transaction(
                transactional_id=transactional_id,
                producer_id=self._support.producer_ids.take(),
                timeout_ms=timeout_ms,
            )
        elif expected is not None and not _may_go_on(found, expected):
            raise KafkaError(
                ErrorCode.PRODUCER_FENCED,
                f"{transactional_id!r} belongs to another producer than {expected.producer_id}.",
            )
        if found.state is TransactionState.ONGOING:
            # The client asks again and then gets an epoch above the one that fences.
            return self.fence(found, Promise.failed(concurrent(transactional_id)))
        after = self._initialized(found, timeout_ms, expected)
        return self._write(after, Producer(after.producer_id, after.producer_epoch))

    def add_partitions(
        self,
        transactional_id: str,
        producer: Producer,
        partitions: frozenset[TopicPartition],
        client_version: int,
    ) -> Result[None]:
        """The producer's transaction is to write to ``partitions``."""
        if self.is_in_transition(transactional_id):
            raise concurrent(transactional_id)
        found = self._of_producer(transactional_id, producer)
        if found.state is TransactionState.ONGOING and partitions <= found.partitions:
            return Result((), None)
        return self._write(found.with_partitions(partitions, client_version, self._now_ms), None)

    def verify_partitions(
        self, transactional_id: str, producer: Producer, partitions: Iterable[TopicPartition]
    ) -> dict[TopicPartition, ErrorCode]:
        """Whether partitions are part of the producer's transaction (KIP-890)."""
        found = self._of_producer(transactional_id, producer)
        if found.state.is_prepared:
            raise concurrent(transactional_id)
        return {
            name: ErrorCode.NONE if name in found.partitions else ErrorCode.TRANSACTION_ABORTABLE
            for name in partitions
        }

    def end(self, transactional_id: str, request: EndRequest, client_version: int) -> Result[Producer]:
        """Commit or abort; the answer names the producer of the next transaction, from version 2 on."""
        in_transition = self.is_in_transition(transactional_id)
        if client_version < EPOCH_BUMP_VERSION:
            visible = self._before_step(transactional_id)
            if visible is None:
                raise ending.unknown_producer(transactional_id)
            ending.check_producer(visible, request.producer_id, request.producer_epoch)
        if in_transition:
            raise concurrent(transactional_id)
        found = self.transactions.get(transactional_id)
        if found is None:
            raise ending.unknown_producer(transactional_id)
        if client_version < EPOCH_BUMP_VERSION:
            if ending.is_done(found, request):
                return Result((), NO_PRODUCER)
            return self._write(found.prepared(request.prepared_state, 0, self._now_ms), NO_PRODUCER)
        if ending.is_done_with_new_epoch(found, request):
            return Result((), Producer(found.producer_id, found.producer_epoch))
        prepared = self._prepared_with_new_epoch(found, request.prepared_state, client_version)
        complete = prepared.completed(self._now_ms)
        return self._write(prepared, Producer(complete.producer_id, complete.producer_epoch))

    def fence(self, transaction: Transaction, response: R | Promise[R]) -> Result[R]:
        """Abort an open transaction and leave its producer behind with an old epoch."""
        version = self._support.transaction_version
        if version < EPOCH_BUMP_VERSION:
            prepared = transaction.fenced().prepared(TransactionState.PREPARE_ABORT, 0, self._now_ms)
        else:
            prepared = self._prepared_with_new_epoch(transaction, TransactionState.PREPARE_ABORT, version)
        return self._write(prepared, response)

    def forget(self, transactional_ids: Iterable[str]) -> Result[None]:
        """Write tombstones."""
        names = tuple(transactional_ids)
        for name in names:
            self._steps[name] = _Step(self.transactions.get(name), None)

        def then(error: KafkaError | None) -> None:
            for name in names:
                self._steps.pop(name, None)

        return Result([records.tombstone(name) for name in names], None, then, atomic=False)

    def is_in_transition(self, transactional_id: str) -> bool:
        """Whether a step is under way, so that others have to wait."""
        if transactional_id in self._steps:
            return True
        found = self.transactions.get(transactional_id)
        return found is not None and found.state.is_prepared

    # Steps

    @property
    def _now_ms(self) -> int:
        return self.context.clock.time_ms()

    def _of_producer(self, transactional_id: str, producer: Producer) -> Transaction:
        found = self.transactions.get(transactional_id)
        if found is None:
            raise ending.unknown_producer(transactional_id)
        ending.check_producer(found, producer.producer_id, producer.epoch)
        return found

    def _before_step(self, transactional_id: str) -> Transaction | None:
        step = self._steps.get(transactional_id)
        return step.before if step is not None else self.transactions.get(transactional_id)

    def _initialized(self, found: Transaction, timeout_ms: int, expected: Producer | None) -> Transaction:
        if found.is_exhausted and (expected is None or expected.epoch == found.producer_epoch):
            return found.with_new_producer_id(
                self._support.producer_ids.take(),
                timeout_ms,
                self._now_ms,
                keep_last_epoch=expected is not None,
            )
        return found.with_new_epoch(timeout_ms, expected.epoch if expected else None, self._now_ms)

    def _prepared_with_new_epoch(
        self, found: Transaction, state: TransactionState, client_version: int
    ) -> Transaction:
        next_producer_id = self._support.producer_ids.take() if found.is_exhausted else NO_PRODUCER_ID
        return found.prepared(state, client_version, self._now_ms, next_producer_id)

    def _complete(self, transaction: Transaction) -> Result[None]:
        return self._write(transaction.completed(self._now_ms), None)

    def _write(self, after: Transaction, response: R | Promise[R]) -> Result[R]:
        """Make ``after`` the state of its id, and send markers once that is committed and calls for them."""
        name = after.transactional_id
        self._steps[name] = _Step(self.transactions.get(name), after)

        def then(error: KafkaError | None) -> None:
            self._steps.pop(name, None)
            current = self.transactions.get(name)
            if current is None or not current.state.is_prepared:
                return
            if error is None:
                self._completion.begin(name)
            elif error.code is ErrorCode.REQUEST_TIMED_OUT and after.state.is_prepared:
                # It is in the log and will be committed or lost with the leader.
                self._completion.begin_when_committed([name])

        return Result([records.encode(after, self._support.transaction_version)], response, then)


def concurrent(transactional_id: str) -> KafkaError:
    """Another step of the same id is under way."""
    return KafkaError(
        ErrorCode.CONCURRENT_TRANSACTIONS,
        f"Another request on {transactional_id!r} is under way; try again in a moment.",
    )


def _may_go_on(found: Transaction, expected: Producer) -> bool:
    """Whether a producer that names itself is the present one, or asks again after it was given a new id."""
    return (
        found.producer_epoch == NO_PRODUCER_EPOCH
        or expected.producer_id == found.producer_id
        or (expected.producer_id == found.previous_producer_id and is_exhausted(expected.epoch))
    )
