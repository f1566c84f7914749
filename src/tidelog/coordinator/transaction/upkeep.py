"""What a shard does by itself: abort transactions past their timeout, forget ids that nobody uses.

Both look at all ids of the shard every so often, as Kafka does. An abort fences the producer: its epoch is
raised, so what it still sends is refused. Both take turns with requests: a round is gone over in slices
(``coordinator/sweep``), and tombstones are written a thousand at a time.
"""

from __future__ import annotations

import itertools
import logging
from collections.abc import Callable, Iterable
from typing import Protocol

from tidelog.coordinator.runtime import Result, ShardContext
from tidelog.coordinator.sweep import Sweep
from tidelog.coordinator.transaction.support import TransactionSupport
from tidelog.coordinator.transaction.transaction import Transaction
from tidelog.errors import ErrorCode, KafkaError
from tidelog.scheduling.promise import Promise

logger = logging.getLogger(__name__)

TOMBSTONES_AT_ONCE = 1000

_ABORT_INTERVAL = "transaction.abort.timed.out.transaction.cleanup.interval.ms"
_REMOVE_INTERVAL = "transaction.remove.expired.transaction.cleanup.interval.ms"
_EXPIRATION = "transactional.id.expiration.ms"
_QUIET = frozenset(
    {ErrorCode.INVALID_PRODUCER_ID_MAPPING, ErrorCode.PRODUCER_FENCED, ErrorCode.CONCURRENT_TRANSACTIONS}
)


class KeptShard(Protocol):
    """What upkeep asks of its shard."""

    context: ShardContext
    transactions: dict[str, Transaction]

    def is_in_transition(self, transactional_id: str) -> bool:
        """Whether a step is under way, so that others have to wait."""

    def fence(self, transaction: Transaction, response: None) -> Result[None]:
        """Abort an open transaction and leave its producer behind with an old epoch."""

    def forget(self, transactional_ids: Iterable[str]) -> Result[None]:
        """Write tombstones."""


class Upkeep:
    """The timers of one shard that no request sets."""

    def __init__(
        self,
        shard: KeptShard,
        support: TransactionSupport,
        run: Callable[[Callable[[], Result[None]]], Promise[None]],
    ) -> None:
        self._shard = shard
        self._support = support
        self._run = run
        self._timeouts = Sweep(shard.context.clock, lambda: list(shard.transactions.values()))
        self._expiry = Sweep(shard.context.clock, lambda: list(shard.transactions))

    def start(self) -> None:
        """Look for the first time when the first interval has passed."""
        self._schedule(_ABORT_INTERVAL, self._abort_timed_out)
        self._schedule(_REMOVE_INTERVAL, self._remove_expired)

    def _schedule(self, interval: str, action: Callable[[], Result[None] | None]) -> None:
        self._shard.context.timers.schedule(interval, self._support.config.int(interval), action)

    def _abort_timed_out(self) -> None:
        self._schedule(_ABORT_INTERVAL, self._abort_timed_out)
        now_ms = self._shard.context.clock.time_ms()
        for transaction in self._timeouts.slice():
            if transaction.is_timed_out(now_ms):
                self._abort(transaction)
        if not self._timeouts.is_done:
            self._shard.context.timers.schedule(_ABORT_INTERVAL, 0, self._abort_timed_out)

    def _abort(self, transaction: Transaction) -> None:
        name = transaction.transactional_id

        def fence() -> Result[None]:
            if self._shard.is_in_transition(name) or self._shard.transactions.get(name) != transaction:
                raise KafkaError(ErrorCode.CONCURRENT_TRANSACTIONS, "it has moved on")
            return self._shard.fence(transaction, None)

        def done(written: Promise[None]) -> None:
            error = written.error
            if error is None:
                logger.info("The transaction of %r was aborted: it was open for too long", name)
            elif not isinstance(error, KafkaError) or error.code not in _QUIET:
                logger.warning(
                    "The transaction of %r is open for too long and cannot be aborted: %s", name, error
                )

        self._run(fence).when_done(done)

    def _remove_expired(self) -> Result[None] | None:
        self._schedule(_REMOVE_INTERVAL, self._remove_expired)
        shard = self._shard
        unused_since_ms = shard.context.clock.time_ms() - self._support.config.int(_EXPIRATION)
        expired = (
            name
            for name in self._expiry.slice()
            if (found := shard.transactions.get(name)) is not None
            and found.state.is_idle
            and found.last_update_ms <= unused_since_ms
            and not shard.is_in_transition(name)
        )
        batch = list(itertools.islice(expired, TOMBSTONES_AT_ONCE))
        if not batch:
            self._go_on_removing()
            return None
        result = shard.forget(batch)

        def then(error: KafkaError | None) -> None:
            if result.then is not None:
                result.then(error)
            if error is None:
                self._go_on_removing()
            else:
                self._expiry.abandon()
                logger.warning("%d unused transactional ids cannot be forgotten yet: %s", len(batch), error)

        return result._replace(then=then)

    def _go_on_removing(self) -> None:
        if not self._expiry.is_done:
            self._shard.context.timers.schedule(_REMOVE_INTERVAL, 0, self._remove_expired)
