"""What a run prints at its end: faults, acknowledged records, anomalies, and how long writes stood still."""

from __future__ import annotations

from bisect import bisect_left
from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping, Sequence

from rich.console import Console
from rich.table import Table
from tests.chaos.cluster.faults import Fault
from tests.chaos.cluster.history import OK, SEND, Event, acknowledged

WIDTH = 110


def standstill_ms(events: Iterable[Event], faults: Sequence[Fault]) -> dict[str, float]:
    """By kind of fault: the longest time in which a partition has acknowledged nothing."""
    times: dict[tuple[str, int], list[float]] = defaultdict(list)
    for event in events:
        if event.operation == SEND and event.kind == OK:
            topic, partition, _, _ = event.records[0]
            times[topic, partition].append(event.time_ms)
    longest: dict[str, float] = {}
    for fault in faults:
        gaps = [_longest_gap(each, fault.started_ms, fault.over_ms) for each in times.values()]
        longest[fault.kind] = max([longest.get(fault.kind, 0.0), *gaps])
    return longest


def _longest_gap(times: Sequence[float], start_ms: float, end_ms: float) -> float:
    """Between neighbours of which one is within the window, or which surround it."""
    first = max(bisect_left(times, start_ms) - 1, 0)
    longest = 0.0
    for before, after in zip(times[first:], times[first + 1 :], strict=False):
        if before > end_ms:
            break
        longest = max(longest, after - before)
    return longest


def print_report(
    title: str, events: Sequence[Event], faults: Sequence[Fault], anomalies: Mapping[str, Sequence[str]]
) -> None:
    """A table of faults, then one line each for the rest."""
    console = Console(width=WIDTH)
    table = Table("fault", "times", "longest standstill of a partition", "longest recovery", title=title)
    counts = Counter(fault.kind for fault in faults)
    standstills = standstill_ms(events, faults)
    for kind, count in sorted(counts.items()):
        recovery_ms = max(fault.over_ms - fault.undone_ms for fault in faults if fault.kind == kind)
        table.add_row(kind, str(count), f"{standstills[kind] / 1000:.1f} s", f"{recovery_ms / 1000:.1f} s")
    console.print(table)
    console.print(f"{len(faults)} faults injected, {acknowledged(events)} records acknowledged")
    found = {name: len(what) for name, what in anomalies.items()}
    console.print("anomalies: " + ", ".join(f"{count} {name}" for name, count in found.items()))
    for name, what in anomalies.items():
        for each in what[:5]:
            console.print(f"  {name}: {each}", markup=False, soft_wrap=True)
