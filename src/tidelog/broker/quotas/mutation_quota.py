"""Quotas of changes that the controller makes: partitions created and removed, by tokens (KIP-599).

Requests of versions that know of it are refused, topic by topic, while a client has less than no tokens
(THROTTLING_QUOTA_EXCEEDED); older ones are carried out, and their client pauses afterwards.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping

from tidelog.broker.quotas.client_levels import ClientLevels, Share
from tidelog.broker.quotas.token_bucket import TokenBucket
from tidelog.clock import Clock
from tidelog.config.client_quotas import QuotaEntity
from tidelog.errors import ErrorCode, KafkaError
from tidelog.metrics.sampled_rate import MAX_PAUSE_MS


class MutationQuota:
    """The tokens of all clients that have a quota."""

    def __init__(self, windows: int, window_ms: float, clock: Clock) -> None:
        self.levels = ClientLevels(lambda: TokenBucket(windows, window_ms))
        self._now_ms = clock.monotonic_ms

    def set_limits(self, limits: Mapping[QuotaEntity, float]) -> None:
        """Other quotas are in force."""
        self.levels.set_limits(limits)

    def begin(self, user: str, client_id: str, *, strict: bool) -> Mutations | None:
        """A request that changes partitions; None if its client has no quota."""
        share = self.levels.share_of(user, client_id, self._now_ms())
        return None if share is None else Mutations(share, self._now_ms, strict=strict)


class Mutations:
    """What one request takes of its client's quota."""

    def __init__(self, share: Share[TokenBucket], now_ms: Callable[[], float], *, strict: bool) -> None:
        self._share = share
        self._now_ms = now_ms
        self._strict = strict
        self._until_ms = 0.0

    def record(self, partitions: int) -> None:
        """Take tokens for the partitions of a topic; refuses with THROTTLING_QUOTA_EXCEEDED."""
        now_ms = self._now_ms()
        share = self._share
        if not self._strict:
            share.meter.take(partitions, share.limit, now_ms)
        pause_ms = share.meter.pause_ms(share.limit, now_ms)
        if pause_ms > 0:
            self._until_ms = now_ms + pause_ms
            share.throttled += 1
        if self._strict:
            if pause_ms > 0:
                raise KafkaError(ErrorCode.THROTTLING_QUOTA_EXCEEDED)
            share.meter.take(partitions, share.limit, now_ms)

    @property
    def pause_ms(self) -> int:
        """How long the client has to pause from now on."""
        return int(min(max(self._until_ms - self._now_ms(), 0.0), MAX_PAUSE_MS))
