"""The figures of a run: plain values that ``observer`` and ``run`` write and the dashboard reads.

Everything happens on one event loop, so that nothing here needs a lock.
"""

from __future__ import annotations

import time
from collections import Counter, deque
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Literal, NamedTuple

StepState = Literal["waiting", "doing", "done", "failed"]
PipelineState = Literal["waiting", "starting", "running", "stopped", "failed"]

RATE_WINDOW_S = 5.0
HISTORY = 60
ALERTS_KEPT = 50


class Step:
    """Something that must be done before events flow, and how long it took."""

    def __init__(self, label: str, clock: Callable[[], float] = time.monotonic) -> None:
        self.label = label
        self.state: StepState = "waiting"
        self.note = ""
        self._clock = clock
        self._began = 0.0
        self._took: float | None = None

    @property
    def seconds(self) -> float:
        """How long it has been done for, or how long it took."""
        if self.state == "waiting":
            return 0.0
        return self._took if self._took is not None else self._clock() - self._began

    def begin(self, note: str = "") -> None:
        """It is being done now."""
        if self.state == "waiting":
            self.state, self._began = "doing", self._clock()
        self.note = note or self.note

    def end(self, note: str = "", *, failed: bool = False) -> None:
        """It is done, or cannot be done."""
        self.begin(note)
        self._took = self.seconds
        self.state = "failed" if failed else "done"


class Flow:
    """A count that grows: its total, its rate over the last seconds, and the rates before."""

    def __init__(self) -> None:
        self.total = 0
        self.rate = 0.0
        self.rates: deque[float] = deque(maxlen=HISTORY)
        self._samples: deque[tuple[float, int]] = deque()

    def sample(self, total: int, now: float) -> None:
        """The count at a moment; called about once a second."""
        self._samples.append((now, total))
        while len(self._samples) > 2 and self._samples[0][0] < now - RATE_WINDOW_S:
            self._samples.popleft()
        began, before = self._samples[0]
        self.total = total
        self.rate = (total - before) / (now - began) if now > began else 0.0
        self.rates.append(self.rate)


@dataclass
class PipelineFigures:
    """One pipeline: what Spark says of its query, and the lag of its group."""

    name: str
    state: PipelineState = "waiting"
    lag: int | None = None
    rows: int = 0
    batches: int = 0
    batch_ms: int = 0
    rows_per_second: float = 0.0
    problem: str = ""
    lags: deque[float] = field(default_factory=lambda: deque(maxlen=HISTORY))


class Watched(NamedTuple):
    """A pipeline as the broker sees it: its consumer group and the topics that it reads."""

    group: str
    inputs: frozenset[str]


@dataclass(frozen=True, slots=True)
class Alert:
    """One alert in words."""

    time: str
    kind: str
    subject: str
    reason: str


@dataclass(frozen=True, slots=True)
class Score:
    """How one detection does against what the generator planted."""

    kind: str
    planted: int
    found: int
    false_alarms: int | None = None
    """None while the run goes on: what an alert is about may not be told yet."""


@dataclass
class View:
    """Everything that is shown."""

    steps: list[Step]
    inputs: dict[str, Flow]
    outputs: dict[str, Flow]
    pipelines: dict[str, PipelineFigures]
    rate_wanted: int = 0
    seconds: float | None = None
    address: str = ""
    console: str = ""
    """Where a browser sees all this; empty until it can."""
    directory: str = ""
    notes: list[str] = field(default_factory=list)
    alerts: dict[tuple[str, str], Alert] = field(default_factory=dict)
    """By kind and subject, the newest last; one that is told again moves to the end."""
    alert_count: int = 0
    alert_updates: int = 0
    """Alerts and newer versions of them."""
    regions: Counter[str] = field(default_factory=Counter)
    earnings_cents: dict[str, int] = field(default_factory=dict)
    reasons: Counter[str] = field(default_factory=Counter)
    """Why events went to the dead letters."""
    scores: list[Score] = field(default_factory=list)
    events_in: Flow = field(default_factory=Flow)
    records_out: Flow = field(default_factory=Flow)
    live_after_s: float | None = None
    """When every pipeline had worked off a batch, counted from the start of the command."""
    stopping: str = ""
    began: float = field(default_factory=time.monotonic)
    ended: float | None = None

    @property
    def elapsed_s(self) -> float:
        """Since the command was given."""
        return (self.ended or time.monotonic()) - self.began

    @property
    def is_live(self) -> bool:
        """Whether at least one pipeline has worked off a batch."""
        return self.live_after_s is not None or any(each.rows for each in self.pipelines.values())

    @property
    def total_lag(self) -> int | None:
        """Records that the pipelines have not read yet, of those whose lag is known."""
        known = [each.lag for each in self.pipelines.values() if each.lag is not None]
        return sum(known) if known else None

    def add_alert(self, alert: Alert) -> None:
        """Show an alert in the place of what was told about its subject before."""
        key = (alert.kind, alert.subject)
        self.alerts.pop(key, None)
        self.alerts[key] = alert
        while len(self.alerts) > ALERTS_KEPT:
            del self.alerts[next(iter(self.alerts))]

    def latest_alerts(self, count: int) -> list[Alert]:
        """The newest first."""
        return list(self.alerts.values())[::-1][:count]

    def top_earners(self, count: int) -> list[tuple[str, int]]:
        """Users with the largest balance first."""
        ordered = sorted(self.earnings_cents.items(), key=lambda each: (-each[1], each[0]))
        return ordered[:count]

    def failed(self) -> list[PipelineFigures]:
        """Pipelines that stopped with an error."""
        return [each for each in self.pipelines.values() if each.state == "failed"]
