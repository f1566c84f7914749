"""States to the compacted topic, key ``user_id``: the newest record of a key is that user's state.

The stream writes states through its exactly-once sink (``part_work``). What is written here are states by
themselves: those of a backfill, and those that others have changed meanwhile. A batch of states is one
transaction. The transactional id is that of a part, so that a process that was thought dead cannot put an old
state behind a new one. States are absolute: writing one again changes nothing.

:class:`SoleCopy` is how the driver notices that a second copy of the job was started by mistake.
"""

from __future__ import annotations

import contextlib
import logging
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Self

from tidelog.errors import TidelogError
from tidelog.spark.report.content_digest import ContentDigest
from tidelog.spark.report.epoch_record import EpochRecord, task_name
from tidelog.spark.runtime.silence import NoBrokerError
from tidelog.spark.settings import connector_options
from tidelog.spark.write.epoch_producer import EpochProducer
from tidelog.spark.write.write_options import write_options
from tidelog_rewards.jobs.earnings.schema import TOPIC, UserEarnings, state_json

if TYPE_CHECKING:
    from tidelog.client.producer.producer import Producer
    from tidelog.spark.settings import PipelineSettings
    from tidelog_rewards.jobs.earnings.ledger import Ledger

logger = logging.getLogger(__name__)

ATTEMPTS = 3
"""A transaction that a restarting broker has given up is written again, so often."""


_ANOTHER_COPY = (
    "another copy of this pipeline writes to the same cluster and has taken over; stop one of the two"
)


@contextlib.contextmanager
def _waiting_for_commit(producer: Producer) -> Iterator[None]:
    """Wait once more for a commit that has taken too long: until it has ended no other attempt can begin."""
    from tidelog.client import RequestTimeoutError, TransactionStateError

    try:
        yield
    except RequestTimeoutError as error:
        try:
            producer.commit_transaction()
        except TransactionStateError:  # something else took too long, and the transaction was aborted
            raise error from None


class StatePublisher:
    """Writes states; connects with the first batch that has any, and stays connected."""

    def __init__(self, settings: PipelineSettings, transactional_id: str) -> None:
        self._options: dict[str, object] = {
            **settings.client_options,
            "bootstrap.servers": settings.bootstrap_servers,
            "client.id": transactional_id,
            "transactional.id": transactional_id,
            "linger.ms": 5,
        }
        self._producer: Producer | None = None

    def publish(self, states: Sequence[UserEarnings]) -> None:
        """Write the states and wait until they are committed."""
        from tidelog.client import ProducerFencedError

        for attempt in range(1, ATTEMPTS + 1):
            try:
                self._publish(states)
                return
            except ProducerFencedError as error:
                self.close()
                raise TidelogError(_ANOTHER_COPY) from error
            except TidelogError as error:
                # The same producer again: a new one would fence a newer copy of the job, instead of learning
                # that it is itself fenced.
                if attempt == ATTEMPTS:
                    self.close()
                    raise
                logger.warning("writing %d states to %s again: %s", len(states), TOPIC, error)

    def publish_newest(self, states: Sequence[UserEarnings], ledger: Ledger) -> None:
        """Publish states, and what has become of them meanwhile, until nothing has."""
        while states:
            self.publish(states)
            states = ledger.newer_than(states)

    def _publish(self, states: Sequence[UserEarnings]) -> None:
        producer = self._connected()
        with _waiting_for_commit(producer), producer.transaction():
            for state in states:
                producer.send(TOPIC, state_json(state), key=state.user_id.encode())

    def close(self) -> None:
        """Disconnect; an open transaction is aborted."""
        if self._producer is not None:
            producer, self._producer = self._producer, None
            producer.close(timeout=0)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *exc_info: object) -> None:
        self.close()

    def _connected(self) -> Producer:
        from tidelog.client import Producer

        if self._producer is None:
            self._producer = Producer(self._options)
            self._producer.init_transactions()
        return self._producer


class SoleCopy:
    """Of several copies of the job on one cluster, whatever their directories, the last one goes on.

    The others are told at the start of their next micro-batch. What they have under way by then comes out of
    their own ledgers.
    """

    def __init__(self, settings: PipelineSettings, name: str) -> None:
        given = {**connector_options(settings), "txnAppId": name, "txnVersion": "0"}
        self._options = write_options(given, streaming=False)
        self._name = task_name(name, 0)
        self._producer: EpochProducer | None = None

    def check(self) -> None:
        """Take over from other copies, the first time; raise where another has since."""
        from tidelog.client import ProducerFencedError

        for attempt in range(1, ATTEMPTS + 1):
            try:
                producer = self._connected()
                with _waiting_for_commit(producer), producer.transaction():
                    producer.record(EpochRecord(0, producer.name, ContentDigest()))
                return
            except ProducerFencedError as error:
                self.close()
                raise TidelogError(_ANOTHER_COPY) from error
            except NoBrokerError:
                self.close()
                raise
            except TidelogError as error:
                # As above: the same producer again.
                if attempt == ATTEMPTS:
                    self.close()
                    raise
                logger.warning("asking once more whether this is the only copy: %s", error)

    def _connected(self) -> EpochProducer:
        if self._producer is None:
            producer = EpochProducer(self._options.producer_options(self._name))
            try:
                producer.reach(self._options.broker_timeout_ms)
                producer.take_over()
            except BaseException:
                producer.give_up()
                raise
            self._producer = producer
        return self._producer

    def close(self) -> None:
        """Disconnect."""
        if self._producer is not None:
            producer, self._producer = self._producer, None
            producer.give_up()
