"""One kind of quota that bounds a rate: bytes that are produced or fetched, or time of the loop."""

from __future__ import annotations

from collections.abc import Mapping
from math import inf
from typing import Final

from tidelog.broker.quotas.client_levels import ClientLevels, Share
from tidelog.broker.quotas.payer import Payer
from tidelog.clock import Clock
from tidelog.config.client_quotas import QuotaEntity
from tidelog.metrics.sampled_rate import MAX_PAUSE_MS, SampledRate, throttle_time_ms

# Somewhat less than one, by more than what rounding makes of a rate.
_SURELY: Final = 1 - 1e-9


class RateQuota:
    """Records what clients use, and says how long those pause who use too much."""

    def __init__(
        self, windows: int, window_ms: float, clock: Clock, *, max_pause_ms: float = MAX_PAUSE_MS
    ) -> None:
        self.levels = ClientLevels(lambda: SampledRate(windows, window_ms))
        self._found = self.levels.found
        self._now_ms = clock.monotonic_ms
        self._max_pause_ms = max_pause_ms
        self._at_once_s = (windows - 1) * window_ms / 1000.0
        # No rate is taken over less time: who has not used more than a quota gives in it need not pause.
        self._surely_s = self._at_once_s * _SURELY

    def set_limits(self, limits: Mapping[QuotaEntity, float]) -> None:
        """Other quotas are in force."""
        self.levels.set_limits(limits)

    def charge(self, payer: Payer, value: float) -> int:
        """Note what a client has used; how long it has to pause, in milliseconds."""
        now_ms = self._now_ms()
        share = self.levels.share_of_payer(payer, now_ms)
        if share is None:
            return 0
        share.meter.record(value + share.owed, now_ms)
        share.owed, share.due_s = 0.0, -inf
        rate = share.meter.measure(now_ms)
        pause_ms = throttle_time_ms(rate, share.limit, share.meter.span_ms(now_ms))
        share.throttled += pause_ms > 0
        return int(min(pause_ms, self._max_pause_ms))

    def charge_within(self, payer: Payer, value: float) -> bool:
        """Note what a client has used if it surely need not pause for it; else nothing, and False.

        What ``charge`` does for nearly every request, and as little as that takes.
        """
        try:
            share = self._found[payer]
        except KeyError:
            return False
        if share is None:
            return True
        most = share.limit * self._surely_s
        now_ms = self._now_ms()
        if value > most or not share.meter.record_within(value, most, now_ms):
            return False
        share.last_used_ms = now_ms
        return True

    def room(self, share: Share[SampledRate]) -> float:
        """How much those who have a share can surely use before they may have to pause."""
        return share.limit * self._surely_s - share.meter.total

    def record(self, user: str, client_id: str, value: float) -> int:
        """The same, of a client by its names."""
        return self.charge(Payer(user, client_id), value)

    def note(self, payer: Payer, value: float) -> None:
        """Note what a client has used, or with a negative value has not; whoever records next pauses."""
        now_ms = self._now_ms()
        try:
            share = self._found[payer]
        except KeyError:
            share = self.levels.share_of_payer(payer, now_ms)
        if share is not None:
            share.last_used_ms = now_ms
            share.meter.record(value + share.owed, now_ms)
            share.owed, share.due_s = 0.0, -inf

    def rate_of(self, user: str, client_id: str) -> float:
        """What a client with a quota has used of late, a second; with those who share it."""
        now_ms = self._now_ms()
        share = self.levels.share_of(user, client_id, now_ms)
        return 0.0 if share is None else rate_of_share(share, now_ms)

    def most_at_once(self, payer: Payer) -> float:
        """What a client that has used nothing can use without a pause; infinite if there is no limit."""
        share = self.levels.share_of_payer(payer, self._now_ms())
        return inf if share is None else share.limit * self._at_once_s


def rate_of_share(share: Share[SampledRate], now_ms: float) -> float:
    """What those who have a share have used of late, a second, with what is not recorded yet."""
    if share.owed:
        share.meter.record(share.owed, now_ms)
        share.owed, share.due_s = 0.0, -inf
    return share.meter.measure(now_ms)
