"""The clock of the generator: lets people act so that events arrive at the wanted rate, and hands them out.

The rate is held by counting: each slice of time buys as many records as it should bring; what the sessions
under way do is paid first, the rest buys new ones, and planted fraud and honest lookalikes with them.
Sessions begin a little before the run, so that it starts at its full rate.
"""

from __future__ import annotations

import zlib
from dataclasses import dataclass
from datetime import datetime
from random import Random

from tidelog_rewards.generator.chains import Chains
from tidelog_rewards.generator.outbox import DELAY_MS, Event, Outbox
from tidelog_rewards.generator.planted import Planting
from tidelog_rewards.generator.population import Population
from tidelog_rewards.generator.truth import Truth

_SLICE_MS = (100, 1000)
_RECORDS_PER_SLICE = 20
_WARM_UP_MS = 90_000
_PLANTED_SPREAD_MS = 150_000
_RECORDS_PER_SWITCHING_DEVICE = 6_000
_RECORDS_PER_RING = 3_000
_RECORDS_PER_HONEST_CASE = 4_000


@dataclass(frozen=True, slots=True)
class TrafficSettings:
    """What decides the bytes of a run."""

    start: datetime
    """The time of the first events; aware."""
    seed: int = 7
    rate: float = 5000.0
    """Records per second of real time; together with ``speed`` it decides how dense the events are."""
    speed: float = 1.0
    """Seconds of event time per second of real time."""
    users: int | None = None
    """How many users there are at the start; None chooses by the density."""
    fraud: float = 1.0
    """How much fraud is planted, 1.0 being the usual."""
    daily_curve: bool = False
    """Have the volume follow the day; the rate is then its mean. Who is active follows local time always."""

    @property
    def density(self) -> float:
        """Records per second of event time."""
        return self.rate / self.speed

    @property
    def population(self) -> int:
        """The number of users at the start."""
        return self.users or int(min(100_000, max(2_000, self.density * 40)))

    @property
    def start_ms(self) -> int:
        return round(self.start.timestamp() * 1000)

    def described(self) -> dict[str, object]:
        """The settings as the truth's first line has them."""
        return {
            "seed": self.seed,
            "start": self.start.isoformat(),
            "rate": self.rate,
            "speed": self.speed,
            "users": self.population,
            "fraud": self.fraud,
            "daily_curve": self.daily_curve,
        }


class Traffic:
    """All events of a run, in the order in which they arrive."""

    def __init__(self, settings: TrafficSettings, truth: Truth | None = None) -> None:
        self.settings = settings
        self.truth = truth or Truth()
        self.truth.run(settings.described())
        random = Random(settings.seed)
        start_ms = settings.start_ms
        run = f"{zlib.crc32(f'{settings.seed}/{start_ms}'.encode()):08x}"
        self._random = random
        self._population = Population(settings.population, random, run, self.truth)
        self._outbox = Outbox(random, run, start_ms, self.truth)
        self._chains = Chains(random, self._population, self._outbox)
        self._planting = Planting(random, self._population, self._outbox, self._chains, self.truth)
        shortest_ms, longest_ms = _SLICE_MS
        slice_ms = round(1000 * _RECORDS_PER_SLICE / settings.density)
        self._slice_ms = min(longest_ms, max(shortest_ms, slice_ms))
        self._simulated_ms = start_ms - _WARM_UP_MS
        self._handed_out_ms = self.begin_ms = start_ms + DELAY_MS
        """When the first events arrive at the full rate."""
        self._volume = 1.0
        self._next_minute_ms = 0
        self._wanted = 0.0
        self._planted = 0.0
        self._owed = {"switching": 0.5, "ring": 0.5, "honest": 0.5}
        while self._simulated_ms < start_ms:
            self._simulate_slice()

    @property
    def time_ms(self) -> int:
        """Until when events have been handed out."""
        return self._handed_out_ms

    def until(self, time_ms: int, limit: int = 1 << 60) -> list[Event]:
        """The next events that arrive until ``time_ms`` (event time), at most ``limit``."""
        while self._simulated_ms <= time_ms:
            self._simulate_slice()
        events = self._outbox.arrived(time_ms, limit)
        self._handed_out_ms = events[-1].timestamp_ms if len(events) == limit else time_ms
        return events

    def _simulate_slice(self) -> None:
        at_ms = self._simulated_ms
        slice_ms = self._slice_ms
        self._simulated_ms = at_ms + slice_ms
        if at_ms >= self._next_minute_ms:
            self._next_minute_ms = at_ms + 60_000
            activity = self._population.follow_clock(at_ms)
            self._volume = activity if self.settings.daily_curve else 1.0
        records = self.settings.density * self._volume * slice_ms / 1000
        outbox = self._outbox
        before = outbox.added + outbox.skipped
        if at_ms >= outbox.start_ms:
            self._plant(at_ms, records)
            self._planted += outbox.added + outbox.skipped - before
            before = outbox.added + outbox.skipped
            self._chains.go_on(self._simulated_ms)
        else:
            # Sessions that begin before the start are counted as a whole when they begin.
            self._chains.go_on(self._simulated_ms)
            before = outbox.added + outbox.skipped
        # Planted records are paid for as they arrive, which takes minutes, lest the rate drop at first.
        paid = self._planted * slice_ms / _PLANTED_SPREAD_MS
        self._planted -= paid
        self._wanted += records - paid
        draw = self._random.random
        while self._wanted > outbox.added + outbox.skipped - before:
            self._chains.session(at_ms + int(draw() * slice_ms))
        self._wanted -= outbox.added + outbox.skipped - before

    def _plant(self, at_ms: int, records: float) -> None:
        owed, fraud = self._owed, self.settings.fraud
        owed["switching"] += records * fraud / _RECORDS_PER_SWITCHING_DEVICE
        owed["ring"] += records * fraud / _RECORDS_PER_RING
        owed["honest"] += records / _RECORDS_PER_HONEST_CASE
        for name, plant in (
            ("switching", self._planting.switching),
            ("ring", self._planting.ring),
            ("honest", self._planting.honest),
        ):
            while owed[name] >= 1:
                owed[name] -= 1
                plant(at_ms)
