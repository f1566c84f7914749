"""Whether a consumer works, for readiness probes: ``Consumer.health()`` and ``StreamConsumer.health()``.

Everything is read from memory and copied at once, so a probe may ask from any thread, also while the thread
that polls is busy or no broker answers. Nothing here is locked: figures of the same answer may be a moment
apart.

Not healthy is a consumer that reads nothing and will not by itself: closed, not subscribed, never polled,
without a first assignment, evicted or fenced, polled too seldom, or kept from reading by an error for longer
than the caller's patience. A member without partitions, one that rebalances, and paused partitions are
healthy.
"""

from __future__ import annotations

import time
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import NamedTuple

from tidelog.client._network.ongoing_errors import OngoingError
from tidelog.client.group.membership import MembershipState, MembershipStatus
from tidelog.client.resources import IsolationLevel
from tidelog.client.subscription._partition_state import FetchPosition
from tidelog.client.subscription._subscription_state import SubscriptionState, SubscriptionType
from tidelog.ids import TopicPartition


@dataclass(frozen=True, slots=True, kw_only=True)
class ConsumerHealth:
    """The state of a consumer at one moment; times are in seconds, None where there was no such event.

    Example:
        print(consumer.health().ok)
    """

    ok: bool
    """Whether the consumer works; for a readiness probe."""
    reason: str | None = None
    """Why not, in one sentence; None where ``ok``."""
    group_id: str | None = None
    group_state: MembershipState = MembershipState.NO_GROUP
    member_id: str | None = None
    generation: int | None = None
    """The generation of the group, or the member's epoch with ``group.protocol=consumer``."""
    assigned: tuple[TopicPartition, ...] = ()
    paused: tuple[TopicPartition, ...] = ()
    seconds_since_poll: float | None = None
    seconds_since_fetch: float | None = None
    """Since a broker last answered a fetch, with or without records."""
    seconds_since_commit: float | None = None
    lag: int | None = None
    """Records behind the end of all assigned partitions together, as of the last fetches; None: unknown."""
    lag_by_partition: Mapping[TopicPartition, int] = field(default_factory=dict)
    """The same by partition, where it is known."""
    ongoing_error: OngoingError | None = None
    """What keeps the consumer from reading now, and since when; errors that pass are retried."""

    def as_dict(self) -> dict[str, object]:
        """The same for JSON: partitions as ``"orders-0"``, the time of the error in ISO 8601."""
        return {
            "ok": self.ok,
            "reason": self.reason,
            "group_id": self.group_id,
            "group_state": self.group_state.value,
            "member_id": self.member_id,
            "generation": self.generation,
            "assigned": [str(each) for each in self.assigned],
            "paused": [str(each) for each in self.paused],
            "seconds_since_poll": _rounded(self.seconds_since_poll),
            "seconds_since_fetch": _rounded(self.seconds_since_fetch),
            "seconds_since_commit": _rounded(self.seconds_since_commit),
            "lag": self.lag,
            "lag_by_partition": {str(each): lag for each, lag in self.lag_by_partition.items()},
            "ongoing_error": None if self.ongoing_error is None else self.ongoing_error.as_dict(),
        }


@dataclass(frozen=True, slots=True, kw_only=True)
class StreamsHealth:
    """The state of all streams of a ``StreamConsumer`` at one moment."""

    ok: bool
    """Whether all streams work."""
    reason: str | None = None
    """Why not, in one sentence that names the stream; None where ``ok``."""
    streams: Mapping[str, ConsumerHealth] = field(default_factory=dict)
    """Each stream's consumer, by the stream's name."""

    def as_dict(self) -> dict[str, object]:
        """The same for JSON."""
        streams = {name: health.as_dict() for name, health in self.streams.items()}
        return {"ok": self.ok, "reason": self.reason, "streams": streams}


class ConsumerActivity(NamedTuple):
    """What health is judged by, besides the subscription; moments are of the monotonic clock."""

    unusable: str | None
    """Why the consumer cannot be used at all: closed, or another process's."""
    has_metadata: bool
    is_polling: bool
    polled_at: float | None
    fetched_at: float | None
    max_poll_interval_s: float
    isolation: IsolationLevel
    held_back: Mapping[TopicPartition, FetchPosition]
    """Positions of partitions with records that iteration has not handed out yet."""
    error: OngoingError | None


def consumer_health(
    subscription: SubscriptionState,
    member: MembershipStatus,
    activity: ConsumerActivity,
    patience_s: float,
) -> ConsumerHealth:
    """The state of one consumer now."""
    since_poll = _ago(activity.polled_at)
    if activity.is_polling and not subscription.is_auto_assigned:
        since_poll = 0.0  # a member is woken by its heartbeats, others may wait in one poll for hours
    reason = activity.unusable or _problem(subscription, member, activity, since_poll, patience_s)
    lags = subscription.lags(activity.isolation, activity.held_back)
    return ConsumerHealth(
        ok=reason is None,
        reason=reason,
        group_id=member.group_id,
        group_state=member.state,
        member_id=member.member_id,
        generation=member.generation,
        assigned=tuple(sorted(subscription.assignment)),
        paused=tuple(sorted(subscription.paused)),
        seconds_since_poll=since_poll,
        seconds_since_fetch=_ago(activity.fetched_at),
        seconds_since_commit=_ago(member.committed_at),
        lag=sum(lags.values()) if lags else None,
        lag_by_partition=lags,
        ongoing_error=activity.error,
    )


def _problem(
    subscription: SubscriptionState,
    member: MembershipStatus,
    activity: ConsumerActivity,
    since_poll: float | None,
    patience_s: float,
) -> str | None:
    """Why the consumer does not work; None where it does."""
    error, is_member = activity.error, subscription.is_auto_assigned
    if subscription.type is SubscriptionType.NONE:
        return "the consumer reads nothing: subscribe to topics or assign partitions"
    if since_poll is None:
        return "the consumer was not polled yet: call poll"
    if is_member and member.state is MembershipState.FENCED:
        return (
            "another consumer has joined with this group.instance.id: give each its own, and close this one"
        )
    if error is not None and error.seconds > patience_s:
        return f"the consumer cannot read for {error.seconds:.0f} s now: {error.error}"
    is_waiting = activity.is_polling and member.state is not MembershipState.STABLE
    if is_member and since_poll > activity.max_poll_interval_s and not is_waiting:
        return (
            f"poll was not called for {since_poll:.0f} s, longer than max.poll.interval.ms allows: process "
            "records faster, lower max.poll.records or raise max.poll.interval.ms"
        )
    if not activity.has_metadata:
        return "no broker has answered yet" if error is None else f"no broker has answered yet: {error.error}"
    if is_member and subscription.assigned_at is None:
        return "the group has assigned no partitions yet"
    if is_member and member.state is MembershipState.UNJOINED:
        return "the group has evicted the consumer, which joins again with the next poll"
    return None


def _ago(moment: float | None) -> float | None:
    return None if moment is None else max(time.monotonic() - moment, 0.0)


def _rounded(seconds: float | None) -> float | None:
    return None if seconds is None else round(seconds, 3)
