"""The live view of ``tidelog events generate``: how much, how fast, until when, per topic."""

from __future__ import annotations

import sys
import time
from collections import Counter, deque
from collections.abc import Sequence
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any, Self

if TYPE_CHECKING:
    from tidelog_rewards.generator.outbox import Event
    from tidelog_rewards.generator.traffic import Traffic, TrafficSettings

_REFRESH_S = 0.25
_RECENT_S = 3.0


class Progress:
    """Counts what is sent, and shows it on stderr if that is a terminal."""

    def __init__(self, settings: TrafficSettings, *, shown: bool) -> None:
        self._settings = settings
        self._shown = shown and sys.stderr.isatty()
        self._began_s = time.monotonic()
        self._drawn_s = 0.0
        self._by_topic: Counter[str] = Counter()
        self._recent: deque[tuple[float, int]] = deque()
        self._total = 0
        self._traffic: Traffic | None = None
        self._live: Any = None

    def __enter__(self) -> Self:
        if self._shown:
            from rich.console import Console
            from rich.live import Live

            self._live = Live(console=Console(stderr=True), auto_refresh=False, transient=True)
            self._live.start()
        return self

    def __exit__(self, *exc_info: object) -> None:
        if self._live is not None:
            self._live.stop()

    def follow(self, traffic: Traffic) -> None:
        """The run begins now."""
        self._traffic = traffic
        self._began_s = time.monotonic()

    def sent(self, batch: Sequence[Event]) -> None:
        """A batch has been handed over."""
        self._total += len(batch)
        now_s = time.monotonic()
        if self._live is None:
            return
        self._by_topic.update(Counter([event.topic for event in batch]))
        if now_s - self._drawn_s >= _REFRESH_S:
            self._drawn_s = now_s
            self._recent.append((now_s, self._total))
            while len(self._recent) > 2 and now_s - self._recent[1][0] > _RECENT_S:
                self._recent.popleft()
            self._live.update(self._view(now_s), refresh=True)

    def _view(self, now_s: float) -> Any:
        from rich import box
        from rich.table import Table

        (then_s, then), (at_s, total) = self._recent[0], self._recent[-1]
        rate = (total - then) / (at_s - then_s) if at_s > then_s else 0.0
        table = Table(box=box.SIMPLE_HEAD, title=self._heading(rate), title_justify="left", pad_edge=False)
        table.add_column("topic")
        table.add_column("events", justify="right")
        table.add_column("share", justify="right")
        for topic, number in self._by_topic.most_common():
            table.add_row(topic, f"{number:,}", f"{number / max(1, self._total):.1%}")
        table.caption = f"{now_s - self._began_s:.0f} s; Ctrl-C ends it"
        return table

    def _heading(self, rate: float) -> str:
        told = f"{self._total:,} events, {rate:,.0f}/s"
        if self._traffic is not None:
            told += f", event time {_time_text(self._traffic.time_ms)}"
        return told

    def figures(self) -> dict[str, object]:
        """The same as :meth:`summary`, for programs."""
        return {
            "events": self._total,
            "seconds": round(time.monotonic() - self._began_s, 3),
            "start_time_ms": self._settings.start_ms,
            "end_time_ms": None if self._traffic is None else self._traffic.time_ms,
            "seed": self._settings.seed,
        }

    def summary(self) -> str:
        """The last word."""
        took_s = max(time.monotonic() - self._began_s, 1e-6)
        told = f"{self._total:,} events in {took_s:.1f} s ({self._total / took_s:,.0f}/s)"
        if self._traffic is not None:
            told += f", from {_time_text(self._settings.start_ms)} to {_time_text(self._traffic.time_ms)}"
        return f"{told}; seed {self._settings.seed}"


def _time_text(time_ms: int) -> str:
    return datetime.fromtimestamp(time_ms // 1000, UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
