"""States to the compacted topic, key ``user_id``: the newest record of a key is that user's state.

A batch of states is one transaction. The transactional id is the pipeline's, so of two copies of the job that
were started by mistake the older one is fenced and stops with a sentence, and a process that was thought dead
cannot put an old state behind a new one. States are absolute: a replayed batch may write a record again.
"""

from __future__ import annotations

import logging
from collections.abc import Sequence
from typing import TYPE_CHECKING, Self

from tidelog.errors import TidelogError
from tidelog.pipelines.earnings.schema import TOPIC, UserEarnings, state_json

if TYPE_CHECKING:
    from tidelog.client.producer.producer import Producer
    from tidelog.pipelines.pipeline import PipelineSettings

logger = logging.getLogger(__name__)

ATTEMPTS = 3
"""A transaction that a restarting broker has given up is written again, so often."""


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
                raise TidelogError(
                    "another copy of this pipeline writes to the same cluster and has taken over; "
                    "stop one of the two"
                ) from error
            except TidelogError as error:
                # The same producer again: a new one would fence a newer copy of the job, instead of learning
                # that it is itself fenced.
                if attempt == ATTEMPTS:
                    self.close()
                    raise
                logger.warning("writing %d states to %s again: %s", len(states), TOPIC, error)

    def _publish(self, states: Sequence[UserEarnings]) -> None:
        producer = self._connected()
        with producer.transaction():
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
