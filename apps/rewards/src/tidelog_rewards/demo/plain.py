"""The view where there is no terminal: a line for each step, then one every few seconds."""

from __future__ import annotations

from collections.abc import Callable

from tidelog_rewards.demo.panels import money, number
from tidelog_rewards.demo.view import Step, View

INTERVAL_S = 5.0


class PlainLines:
    """Prints what has changed since it was last called."""

    def __init__(self, view: View, write: Callable[[str], None]) -> None:
        self._view = view
        self._write = write
        self._told: set[tuple[str, str]] = set()
        self._alerts_told = 0
        self._next_s = INTERVAL_S

    def update(self) -> None:
        """Called some times a second."""
        for step in self._view.steps:
            self._tell_step(step)
        for note in self._view.notes:
            self._tell("note", note, note)
        for pipeline in self._view.failed():
            self._tell("failed", pipeline.name, f"{pipeline.name} has failed: {pipeline.problem}")
        if self._view.stopping:
            self._tell("stopping", self._view.stopping, self._view.stopping)
        if self._view.elapsed_s >= self._next_s:
            self._next_s = self._view.elapsed_s + INTERVAL_S
            self._line(_figures(self._view))
            self._tell_alert()

    def _tell_step(self, step: Step) -> None:
        if step.state == "doing":
            self._tell("doing", step.label, f"{step.label} …")
        elif step.state != "waiting":
            state = "failed" if step.state == "failed" else "ready"
            note = f" ({step.note})" if step.note else ""
            self._tell(step.state, step.label, f"{step.label}: {state} after {step.seconds:.1f} s{note}")

    def _tell_alert(self) -> None:
        if self._view.alert_count > self._alerts_told and self._view.alerts:
            self._alerts_told = self._view.alert_count
            alert = self._view.latest_alerts(1)[0]
            self._line(f"  latest alert: {alert.kind}, {alert.subject}: {alert.reason}")

    def _tell(self, kind: str, key: str, text: str) -> None:
        if (kind, key) not in self._told:
            self._told.add((kind, key))
            self._line(text)

    def _line(self, text: str) -> None:
        seconds = int(self._view.elapsed_s)
        self._write(f"{seconds // 60:02d}:{seconds % 60:02d}  {text}")


def _figures(view: View) -> str:
    parts = [f"in {number(view.events_in.total)} ({number(view.events_in.rate)}/s)"]
    if view.is_live:
        parts.append(f"out {number(view.records_out.total)} ({number(view.records_out.rate)}/s)")
    lags = ", ".join(f"{each.name} {number(each.lag)}" for each in view.pipelines.values())
    parts.append(f"lag {lags}")
    if view.alert_count:
        parts.append(f"alerts {number(view.alert_count)}")
    if view.regions:
        region, count = view.regions.most_common(1)[0]
        parts.append(f"most from {region} ({count / view.regions.total():.0%})")
    if view.earnings_cents:
        user, cents = view.top_earners(1)[0]
        parts.append(f"top earner {user} {money(cents)}")
    if view.reasons:
        parts.append(f"dead letters {number(view.reasons.total())}")
    return " · ".join(parts)
