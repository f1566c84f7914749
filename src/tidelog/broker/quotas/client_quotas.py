"""The quotas of clients that are in force on this broker; handlers ask whether there are any, and how long a
client has to pause.

Kinds of which nobody has a quota are ``None``, and what they need is not loaded: all that a request pays then
is to look. Produce and fetch requests of clients that surely are within their quotas are charged by
``produced_within`` and ``fetched_within``, which is all that they pay; of all others it is judged how long
they have to pause. Made by ``broker/app``, which has it follow the metadata.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Coroutine, Mapping
from typing import TYPE_CHECKING, Any, NamedTuple

from tidelog.broker.quotas.payer import Payer
from tidelog.clock import Clock, SystemClock
from tidelog.config.broker_config import BrokerConfig
from tidelog.config.client_quotas import (
    CLIENT_LIMITS,
    CONSUMER_BYTE_RATE,
    CONTROLLER_MUTATION_RATE,
    PRODUCER_BYTE_RATE,
    REQUEST_PERCENTAGE,
    QuotaEntity,
)

if TYPE_CHECKING:
    # What a broker without quotas does without.
    from tidelog.broker.quotas.mutation_quota import MutationQuota, Mutations
    from tidelog.broker.quotas.rate_quota import RateQuota
    from tidelog.broker.quotas.request_time import RequestTime

Quotas = Mapping[QuotaEntity, Mapping[str, float]]


class QuotaWindows(NamedTuple):
    """Over what time usage is measured: ``quota.window.*`` and ``controller.quota.window.*``."""

    windows: int = 11
    window_ms: float = 1000.0
    controller_windows: int = 11
    controller_window_ms: float = 1000.0

    @classmethod
    def from_options(cls, config: BrokerConfig) -> QuotaWindows:
        """As the broker's options have them."""
        return cls(
            config.int("quota.window.num"),
            config.int("quota.window.size.seconds") * 1000.0,
            config.int("controller.quota.window.num"),
            config.int("controller.quota.window.size.seconds") * 1000.0,
        )


class ClientQuotas:
    """Everything that clients may use no more than so much of, but connections."""

    def __init__(self, windows: QuotaWindows | None = None, clock: Clock | None = None) -> None:
        self.produce: RateQuota | None = None
        self.fetch: RateQuota | None = None
        self.request: RequestTime | None = None
        self.mutations: MutationQuota | None = None
        self.on_produce = False
        """Whether producers may have to pause: for their bytes, or for the time of their requests."""
        self.on_fetch = False
        self.on_change: Callable[[], None] = lambda: None
        """Told when quotas have come or gone."""
        self._options = windows or QuotaWindows()
        self._clock = clock or SystemClock()
        self._limits: dict[str, dict[QuotaEntity, float]] = {kind: {} for kind in CLIENT_LIMITS}

    def apply(self, quotas: Quotas, changed: Collection[QuotaEntity] | None = None) -> None:
        """These quotas are in force from now on; ``changed`` names those that are new or gone, None all."""
        for entity in quotas if changed is None else changed:
            values = quotas.get(entity, {})
            for kind, limits in self._limits.items():
                if kind in values:
                    limits[entity] = values[kind]
                else:
                    limits.pop(entity, None)
        produce, fetch = self._limits[PRODUCER_BYTE_RATE], self._limits[CONSUMER_BYTE_RATE]
        request, mutation = self._limits[REQUEST_PERCENTAGE], self._limits[CONTROLLER_MUTATION_RATE]
        self.produce = self._rate(self.produce, produce)
        self.fetch = self._rate(self.fetch, fetch)
        if request:
            from tidelog.broker.quotas.request_time import RequestTime

            windows, window_ms, _, _ = self._options
            self.request = self.request or RequestTime(windows, window_ms, self._clock)
            self.request.quota.set_limits(request)
        else:
            self.request = None
        if mutation:
            from tidelog.broker.quotas.mutation_quota import MutationQuota

            _, _, windows, window_ms = self._options
            self.mutations = self.mutations or MutationQuota(windows, window_ms, self._clock)
            self.mutations.set_limits(mutation)
        else:
            self.mutations = None
        self.on_produce = self.produce is not None or self.request is not None
        self.on_fetch = self.fetch is not None or self.request is not None
        self.on_change()

    def _rate(self, quota: RateQuota | None, limits: Mapping[QuotaEntity, float]) -> RateQuota | None:
        if not limits:
            return None
        from tidelog.broker.quotas.rate_quota import RateQuota

        quota = quota or RateQuota(self._options.windows, self._options.window_ms, self._clock)
        quota.set_limits(limits)
        return quota

    def produced(self, payer: Payer, size: int, acks: int) -> int:
        """A produce request of ``size`` bytes is answered: how long its client has to pause."""
        pause_ms = 0 if self.produce is None else self.produce.charge(payer, size)
        if self.request is not None and acks != 0:
            pause_ms = max(pause_ms, self.request.pause_ms(payer))
        return pause_ms

    def produced_within(self, payer: Payer, size: int) -> bool:
        """The same of a client that surely need not pause, which nearly all are, and that wants an answer.

        False of all others, whom ``produced`` is to charge.
        """
        return (self.request is None or self.request.is_within()) and (
            self.produce is None or self.produce.charge_within(payer, size)
        )

    def fetched_within(self, payer: Payer, size: int) -> bool:
        """A consumer gets ``size`` bytes, which is no more than it may, and surely need not pause.

        False of all others, whom ``fetched`` is to charge.
        """
        return (self.request is None or self.request.is_within()) and (
            self.fetch is None or self.fetch.charge_within(payer, size)
        )

    def most_fetched(self, payer: Payer, wanted: int = 2**31 - 1) -> int:
        """How much of ``wanted`` a consumer may get in one answer; more would always be too much."""
        if self.fetch is None:
            return wanted
        most = self.fetch.most_at_once(payer)
        return wanted if wanted <= most else max(int(most), 1)

    def fetched(self, payer: Payer, size: int, *, indivisible: bool = False) -> int:
        """A consumer would get ``size`` bytes: how long it has to pause instead, with nothing.

        ``indivisible`` says that it is a single batch, and more than the quota gives in all its windows.
        """
        request_ms = 0 if self.request is None else self.request.pause_ms(payer)
        if self.fetch is None:
            return request_ms
        # Else nobody could ever have it.
        is_let_through = indivisible and self.fetch.rate_of(*payer) <= 0
        fetch_ms = self.fetch.charge(payer, size)
        if is_let_through and not request_ms:
            return 0
        pause_ms = max(fetch_ms, request_ms)
        if pause_ms:
            self.fetch.note(payer, -size)
        return pause_ms

    def timed(self, work: Coroutine[Any, Any, None], payer: Payer | None) -> Coroutine[Any, Any, None]:
        """Work of several turns, whose time ``payer`` is charged for, if there is a quota of that."""
        if self.request is None or payer is None:
            return work
        from tidelog.broker.quotas.request_time import timed

        return timed(work, self.request, payer)

    def changes_partitions(self, payer: Payer, *, strict: bool) -> Mutations | None:
        """A request that makes or removes partitions begins; None if it may make as many as it likes."""
        return None if self.mutations is None else self.mutations.begin(*payer, strict=strict)


UNLIMITED = ClientQuotas()
"""Of brokers, and in tests, that know no quotas."""
