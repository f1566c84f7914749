"""What a run prints at its end: faults, acknowledged records, anomalies, and how long writes stood still."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping, Sequence
from itertools import pairwise

from rich.console import Console
from rich.table import Table
from tests.chaos.cluster.faults import Fault
from tests.chaos.cluster.history import OK, SEND, TXN, Event, acknowledged

WIDTH = 110


def standstill_ms(events: Iterable[Event], faults: Sequence[Fault]) -> dict[str, float]:
    """By kind of fault: the longest time in which a partition has acknowledged nothing.

    Where nothing is sent but in transactions it is the longest in which none was committed.
    """
    events = list(events)
    times: dict[tuple[str, int], list[float]] = defaultdict(list)
    for event in events:
        if event.operation == SEND and event.kind == OK:
            topic, partition, _, _ = event.records[0]
            times[topic, partition].append(event.time_ms)
    sends_end_ms = max((each[-1] for each in times.values()), default=0.0)
    if all(fault.started_ms > sends_end_ms for fault in faults):
        times = {("", 0): [each.time_ms for each in events if each.operation == TXN and each.kind == OK]}
    longest = dict.fromkeys((fault.kind for fault in faults), 0.0)
    for each in times.values():
        for before, after in pairwise(each):
            cause = max(faults, key=lambda fault: _overlap_ms(fault, before, after), default=None)
            if cause is not None and _overlap_ms(cause, before, after) >= 0:
                longest[cause.kind] = max(longest[cause.kind], after - before)
    return longest


def _overlap_ms(fault: Fault, before_ms: float, after_ms: float) -> float:
    """How much of a silence fell into a fault and what came of it; of several, the most is to blame."""
    return min(after_ms, fault.over_ms) - max(before_ms, fault.started_ms)


def print_report(
    title: str, events: Sequence[Event], faults: Sequence[Fault], anomalies: Mapping[str, Sequence[str]]
) -> None:
    """A table of faults, then one line each for the rest."""
    console = Console(width=WIDTH)
    table = Table("fault", "times", "longest standstill of a partition", "longest recovery")
    counts = Counter(fault.kind for fault in faults)
    standstills = standstill_ms(events, faults)
    for kind, count in sorted(counts.items()):
        recovery_ms = max(fault.over_ms - fault.undone_ms for fault in faults if fault.kind == kind)
        table.add_row(kind, str(count), f"{standstills[kind] / 1000:.1f} s", f"{recovery_ms / 1000:.1f} s")
    console.print(title)
    console.print(table)
    for fault in faults:
        console.print(_line(fault, faults[0].started_ms), markup=False, highlight=False, soft_wrap=True)
    console.print(f"{len(faults)} faults injected, {acknowledged(events)} records acknowledged")
    found = {name: len(what) for name, what in anomalies.items()}
    console.print(
        "anomalies: " + ", ".join(f"{count}\N{NO-BREAK SPACE}{name}" for name, count in found.items())
    )
    for name, what in anomalies.items():
        for each in what[:5]:
            console.print(f"  {name}: {each}", markup=False, soft_wrap=True)


def _line(fault: Fault, since_ms: float) -> str:
    """When a fault began, how long it lasted and how long the cluster needed afterwards."""
    began_s = (fault.started_ms - since_ms) / 1000
    lasted_s, recovered_s = (
        (fault.undone_ms - fault.started_ms) / 1000,
        (fault.over_ms - fault.undone_ms) / 1000,
    )
    return f"{began_s:7.1f} s  {lasted_s:4.1f} + {recovered_s:4.1f} s  {fault.kind}: {fault.victim}"
