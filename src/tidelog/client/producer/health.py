"""Whether a producer works, for readiness probes: ``Producer.health()``.

Everything is read from memory and copied at once, so a probe may ask from any thread, also while ``send``
waits or no broker answers. Not healthy is a producer that is closed or has failed, that no broker has
answered yet, or that an error keeps from sending for longer than the caller's patience.
"""

from __future__ import annotations

import time
from collections.abc import Collection
from dataclasses import dataclass
from typing import NamedTuple

from tidelog.client._network.ongoing_errors import OngoingError
from tidelog.client.producer._producer_batch import ProducerBatch


@dataclass(frozen=True, slots=True, kw_only=True)
class ProducerHealth:
    """The state of a producer at one moment; times are in seconds, None where there was no such event.

    Example:
        print(producer.health().ok)
    """

    ok: bool
    """Whether the producer works; for a readiness probe."""
    reason: str | None = None
    """Why not, in one sentence; None where ``ok``."""
    connected: bool = False
    """Whether a connection to a broker is open; an idle one is closed after ``connections.max.idle.ms``."""
    buffered_records: int = 0
    """Records that no broker has acknowledged, those in flight included."""
    buffered_bytes: int = 0
    """How much of ``buffer.memory`` is in use."""
    oldest_unsent_seconds: float | None = None
    """For how long the oldest record waits that is in no request now."""
    in_flight_requests: int = 0
    seconds_since_acknowledgement: float | None = None
    """Since a broker last acknowledged a batch."""
    transactional_id: str | None = None
    transaction_state: str | None = None
    """Kafka's name of the state, such as ``in transaction``; None without ``transactional.id``."""
    ongoing_error: OngoingError | None = None
    """What keeps the producer from sending now, and since when; errors that pass are retried."""

    def as_dict(self) -> dict[str, object]:
        """The same for JSON; the time of the error in ISO 8601."""
        return {
            "ok": self.ok,
            "reason": self.reason,
            "connected": self.connected,
            "buffered_records": self.buffered_records,
            "buffered_bytes": self.buffered_bytes,
            "oldest_unsent_seconds": _rounded(self.oldest_unsent_seconds),
            "in_flight_requests": self.in_flight_requests,
            "seconds_since_acknowledgement": _rounded(self.seconds_since_acknowledgement),
            "transactional_id": self.transactional_id,
            "transaction_state": self.transaction_state,
            "ongoing_error": None if self.ongoing_error is None else self.ongoing_error.as_dict(),
        }


class ProducerActivity(NamedTuple):
    """What a producer is made of, as far as its health goes."""

    unusable: str | None
    """Why the producer cannot be used at all: closed, failed, or another process's."""
    has_metadata: bool
    is_connected: bool
    batches: Collection[ProducerBatch]
    """Those that have not ended."""
    in_flight: Collection[ProducerBatch]
    waiting_records: int
    """Records that wait for metadata or memory before they go into a batch."""
    buffered_bytes: int
    requests: int
    acknowledged_at: float | None
    """By the monotonic clock."""
    transactional_id: str | None
    transaction_state: str | None
    error: OngoingError | None


def producer_health(activity: ProducerActivity, patience_s: float) -> ProducerHealth:
    """The state of one producer now."""
    in_flight = set(activity.in_flight)
    unsent = [each.created_s for each in activity.batches if each not in in_flight]
    reason = activity.unusable or _problem(activity, patience_s)
    return ProducerHealth(
        ok=reason is None,
        reason=reason,
        connected=activity.is_connected,
        buffered_records=activity.waiting_records + sum(map(_record_count, activity.batches)),
        buffered_bytes=activity.buffered_bytes,
        oldest_unsent_seconds=_ago(min(unsent, default=None)),
        in_flight_requests=activity.requests,
        seconds_since_acknowledgement=_ago(activity.acknowledged_at),
        transactional_id=activity.transactional_id,
        transaction_state=activity.transaction_state,
        ongoing_error=activity.error,
    )


def _problem(activity: ProducerActivity, patience_s: float) -> str | None:
    """Why the producer does not work; None where it does."""
    error = activity.error
    if error is not None and error.seconds > patience_s:
        return f"the producer cannot send for {error.seconds:.0f} s now: {error.error}"
    if not activity.has_metadata:
        return "no broker has answered yet" if error is None else f"no broker has answered yet: {error.error}"
    return None


def _record_count(batch: ProducerBatch) -> int:
    builder = batch.builder
    return batch.record_count if builder is None else builder.record_count


def _ago(moment: float | None) -> float | None:
    return None if moment is None else max(time.monotonic() - moment, 0.0)


def _rounded(seconds: float | None) -> float | None:
    return None if seconds is None else round(seconds, 3)
