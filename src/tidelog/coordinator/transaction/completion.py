"""From PrepareCommit or PrepareAbort to Complete: markers to every partition, until all have one.

Sending begins when the Prepare record is committed, never before: a new leader of ``__transaction_state``
that has not got the record would otherwise come to another outcome than partitions have seen. At loading it
begins again for every transaction found in a Prepare state, so writers see repetitions.

What becomes of a partition, as in Kafka: a marker that is written, or a partition that does not exist any
more or cannot hold markers, is done; TRANSACTION_COORDINATOR_FENCED and INVALID_PRODUCER_EPOCH mean that
somebody else has taken over, and sending ends; all else is tried again, after 50 ms and then after twice the
time, up to a second. Kafka tries again without waiting, and gives up on errors
that must not happen.

Used by ``shard``; all its state is soft and ends with the shard.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable

from tidelog.coordinator.runtime import Result, ShardContext
from tidelog.coordinator.transaction.markers import MarkerRequest
from tidelog.coordinator.transaction.state import TransactionState
from tidelog.coordinator.transaction.support import TransactionSupport
from tidelog.coordinator.transaction.transaction import Transaction
from tidelog.errors import ErrorCode, KafkaError
from tidelog.ids import TopicPartition
from tidelog.scheduling.promise import Promise

logger = logging.getLogger(__name__)

FIRST_BACKOFF_MS = 50
MAX_BACKOFF_MS = 1000

_DONE = frozenset({ErrorCode.NONE, ErrorCode.UNSUPPORTED_FOR_MESSAGE_FORMAT, ErrorCode.UNSUPPORTED_VERSION})
_TAKEN_OVER = frozenset({ErrorCode.INVALID_PRODUCER_EPOCH, ErrorCode.TRANSACTION_COORDINATOR_FENCED})

Run = Callable[[Callable[[], Result[None]]], Promise[None]]


class _Sending:
    """One transaction whose markers are under way."""

    __slots__ = ("attempts", "left", "transaction")

    def __init__(self, transaction: Transaction) -> None:
        self.transaction = transaction
        self.left = set(transaction.partitions)
        self.attempts = 0

    @property
    def backoff_ms(self) -> int:
        return min(FIRST_BACKOFF_MS << min(self.attempts - 1, 10), MAX_BACKOFF_MS)


class Completion:
    """The prepared transactions of one shard."""

    def __init__(
        self,
        context: ShardContext,
        support: TransactionSupport,
        current: Callable[[str], Transaction | None],
        complete: Callable[[Transaction], Result[None]],
        run: Run,
    ) -> None:
        self._context = context
        self._support = support
        self._current = current
        self._complete = complete
        self._run = run
        self._sending: dict[str, _Sending] = {}
        self._closed = False

    def close(self) -> None:
        """The shard is gone; whoever leads now goes on."""
        self._closed = True
        self._sending.clear()

    def begin_when_committed(self, transactional_ids: Iterable[str]) -> None:
        """Send the markers of prepared transactions as soon as the log is committed up to here."""
        waiting = tuple(transactional_ids)
        if not waiting:
            return

        def committed(error: KafkaError | None) -> None:
            if error is None:
                for transactional_id in waiting:
                    self.begin(transactional_id)
            elif not self._closed and error.code is not ErrorCode.NOT_COORDINATOR:
                self._context.timers.schedule(("prepared", waiting), FIRST_BACKOFF_MS, again)

        def again() -> None:
            self.begin_when_committed(waiting)

        self._run(lambda: Result((), None, committed))

    def begin(self, transactional_id: str) -> None:
        """The outcome of a transaction is committed: bring it to its partitions."""
        transaction = self._current(transactional_id)
        if self._closed or transaction is None or not transaction.state.is_prepared:
            return
        sending = self._sending[transactional_id] = _Sending(transaction)
        self._send(sending)

    def _send(self, sending: _Sending) -> None:
        if not self._is_current(sending):
            return
        sending.attempts += 1
        unknown = frozenset(name for name in sending.left if not self._is_known(name))
        if unknown:
            self._support.markers.gone(unknown).when_done(lambda asked: self._sorted_out(sending, asked))
        else:
            self._send_to_known(sending)

    def _is_known(self, name: TopicPartition) -> bool:
        return self._support.image.partition(*name) is not None

    def _sorted_out(self, sending: _Sending, asked: Promise[frozenset[TopicPartition]]) -> None:
        """It is known which partitions do not exist any more."""
        if not self._is_current(sending):
            return
        transactional_id = sending.transaction.transactional_id
        if asked.error is not None:
            logger.warning("Nobody knows where the markers of %r go: %s", transactional_id, asked.error)
        elif gone := sending.left & asked.result():
            logger.info(
                "%s of %r do not exist any more and get no marker",
                ", ".join(map(str, sorted(gone))),
                transactional_id,
            )
            sending.left -= gone
        self._send_to_known(sending)

    def _send_to_known(self, sending: _Sending) -> None:
        if not sending.left:
            self._finish(sending)
            return
        transaction = sending.transaction
        known = tuple(sorted(filter(self._is_known, sending.left)))
        if not known:
            self._later(sending, lambda: self._send(sending))
            return
        request = MarkerRequest(
            transaction.producer_id,
            transaction.producer_epoch,
            self._context.epoch,
            transaction.state is TransactionState.PREPARE_COMMIT,
            known,
            transaction.client_version,
        )
        self._write(request).when_done(lambda sent: self._written(sending, sent))

    def _write(self, request: MarkerRequest) -> Promise[dict[TopicPartition, ErrorCode]]:
        try:
            return self._support.markers.write(request)
        except Exception as error:
            return Promise.failed(error)

    def _written(self, sending: _Sending, sent: Promise[dict[TopicPartition, ErrorCode]]) -> None:
        if not self._is_current(sending):
            return
        transactional_id = sending.transaction.transactional_id
        if sent.error is not None:
            logger.error("Markers of %r could not be sent: %s", transactional_id, sent.error)
        else:
            answers = sent.result()
            for name, code in answers.items():
                if code in _TAKEN_OVER:
                    # Nothing more can be done here: the transaction stays as it is, as in Kafka.
                    logger.warning(
                        "%s refuses the marker of %r with %s: no more are sent",
                        name,
                        transactional_id,
                        code.name,
                    )
                    del self._sending[transactional_id]
                    return
            sending.left -= {name for name, code in answers.items() if code in _DONE}
            self._complain(sending, answers)
        if sending.left:
            self._later(sending, lambda: self._send(sending))
        else:
            self._finish(sending)

    def _complain(self, sending: _Sending, answers: dict[TopicPartition, ErrorCode]) -> None:
        """Say which partitions refuse, ever less often."""
        if sending.left and sending.attempts.bit_count() == 1:
            logger.info(
                "%d partitions have no marker of %r after %d attempts: %s",
                len(sending.left),
                sending.transaction.transactional_id,
                sending.attempts,
                ", ".join(f"{name} ({answers[name].name})" for name in sorted(sending.left & answers.keys())),
            )

    def _finish(self, sending: _Sending) -> None:
        """Every partition has its marker: say so in the log."""

        def done(written: Promise[None]) -> None:
            if not self._is_current(sending):
                return
            current = self._current(sending.transaction.transactional_id)
            if written.error is None or current is None or not current.state.is_prepared:
                del self._sending[sending.transaction.transactional_id]
                return
            logger.warning(
                "The end of %r could not be written: %s", sending.transaction.transactional_id, written.error
            )
            sending.attempts += 1
            self._later(sending, lambda: self._finish(sending))

        if self._is_current(sending):
            self._run(lambda: self._complete(sending.transaction)).when_done(done)

    def _later(self, sending: _Sending, step: Callable[[], None]) -> None:
        key = "markers", sending.transaction.transactional_id
        self._context.timers.schedule(key, sending.backoff_ms, step)

    def _is_current(self, sending: _Sending) -> bool:
        return self._sending.get(sending.transaction.transactional_id) is sending
