"""Interceptors: what an application hangs around every record, without the program that sends knowing.

``ProducerInterceptors`` calls them in order; the record that one returns goes to the next. An interceptor
that fails is logged and passed over, never the sender's problem: the next one gets what the last good one
returned. ``on_send`` runs in the thread that sends, ``on_acknowledgement`` in the producer's own, or in the
one that sends where ``send`` raises.
"""

from __future__ import annotations

import logging
from collections.abc import Sequence

from tidelog.client.producer.record import ProducerRecord, RecordMetadata

logger = logging.getLogger(__name__)


class ProducerInterceptor:
    """Sees records before they are serialized, and their results; override the methods that you need.

    Example:
        class Stamp(ProducerInterceptor):
            def on_send(self, record):
                return dataclasses.replace(record, headers=[*record.headers, ("trace", b"42")])

        Producer(bootstrap_servers="127.0.0.1:9092", interceptor_classes=[Stamp])
    """

    def on_send(self, record: ProducerRecord) -> ProducerRecord:
        """The record to send: the same one, or another in its place."""
        return record

    def on_acknowledgement(self, metadata: RecordMetadata, error: Exception | None) -> None:
        """A broker has written the record, or it failed and ``error`` says why."""

    def close(self) -> None:
        """The producer has been closed."""


class ProducerInterceptors:
    """A chain of interceptors as one."""

    def __init__(self, chain: Sequence[ProducerInterceptor] = ()) -> None:
        self._chain = tuple(chain)

    def __bool__(self) -> bool:
        return bool(self._chain)

    def on_send(self, record: ProducerRecord) -> ProducerRecord:
        """What the chain makes of ``record``."""
        for interceptor in self._chain:
            try:
                record = interceptor.on_send(record)
            except Exception:
                logger.warning(
                    "%r failed on a record of topic %s; it goes on as it was",
                    interceptor,
                    record.topic,
                    exc_info=True,
                )
        return record

    def on_acknowledgement(self, metadata: RecordMetadata, error: Exception | None) -> None:
        """Tell all of them how a record ended."""
        for interceptor in self._chain:
            try:
                interceptor.on_acknowledgement(metadata, error)
            except Exception:
                logger.warning(
                    "%r failed on an acknowledgement from %s-%d",
                    interceptor,
                    metadata.topic,
                    metadata.partition,
                    exc_info=True,
                )

    def close(self) -> None:
        """Close all of them."""
        for interceptor in self._chain:
            try:
                interceptor.close()
            except Exception:
                logger.warning("%r failed to close", interceptor, exc_info=True)
