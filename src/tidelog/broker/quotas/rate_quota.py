"""One kind of quota that bounds a rate: bytes that are produced or fetched, or time of the loop."""

from __future__ import annotations

from collections.abc import Mapping

from tidelog.broker.quotas.client_levels import ClientLevels
from tidelog.broker.sampled_rate import MAX_PAUSE_MS, SampledRate, throttle_time_ms
from tidelog.clock import Clock
from tidelog.metadata.client_quotas import QuotaEntity


class RateQuota:
    """Records what clients use, and says how long those pause who use too much."""

    def __init__(
        self, windows: int, window_ms: float, clock: Clock, *, max_pause_ms: float = MAX_PAUSE_MS
    ) -> None:
        self.levels = ClientLevels(lambda: SampledRate(windows, window_ms))
        self._now_ms = clock.monotonic_ms
        self._max_pause_ms = max_pause_ms
        self._at_once_s = (windows - 1) * window_ms / 1000.0

    def set_limits(self, limits: Mapping[QuotaEntity, float]) -> None:
        """Other quotas are in force."""
        self.levels.set_limits(limits)

    def record(self, user: str, client_id: str, value: float) -> int:
        """Note what a client has used; how long it has to pause, in milliseconds."""
        now_ms = self._now_ms()
        share = self.levels.share_of(user, client_id, now_ms)
        if share is None:
            return 0
        share.meter.record(value, now_ms)
        rate = share.meter.measure(now_ms)
        pause_ms = throttle_time_ms(rate, share.limit, share.meter.span_ms(now_ms))
        share.throttled += pause_ms > 0
        return int(min(pause_ms, self._max_pause_ms))

    def note(self, user: str, client_id: str, value: float) -> None:
        """Note what a client has used, or with a negative value has not; whoever records next pauses."""
        now_ms = self._now_ms()
        share = self.levels.share_of(user, client_id, now_ms)
        if share is not None:
            share.meter.record(value, now_ms)

    def rate_of(self, user: str, client_id: str) -> float:
        """What a client with a quota has used of late, a second; with those who share it."""
        now_ms = self._now_ms()
        share = self.levels.share_of(user, client_id, now_ms)
        return 0.0 if share is None else share.meter.measure(now_ms)

    def most_at_once(self, user: str, client_id: str) -> float | None:
        """What a client that has used nothing can use without a pause; None if there is no limit."""
        share = self.levels.share_of(user, client_id, self._now_ms())
        return None if share is None else share.limit * self._at_once_s
