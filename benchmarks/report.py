"""What a run shows on the terminal: a table for each benchmark, and under what conditions it came about."""

from __future__ import annotations

import datetime
import importlib.metadata
import os
import platform
from collections.abc import Iterable
from itertools import groupby
from pathlib import Path

import confluent_kafka
from rich.console import Console
from rich.table import Table

from benchmarks.figures import OURS, PEER, Figure

PEER_VERSION = "4.3.1"


def conditions(data_root: Path, rounds: int, load: float, *, quick: bool) -> dict[str, str]:
    """Under what the figures came about."""
    model = next(
        (line.split(":", 1)[1].strip() for line in _lines("/proc/cpuinfo") if line.startswith("model name")),
        "unknown",
    )
    memory_kb = next(
        (int(line.split()[1]) for line in _lines("/proc/meminfo") if line.startswith("MemTotal")), 0
    )
    return {
        "date": datetime.datetime.now(datetime.UTC).strftime("%Y-%m-%d %H:%M UTC"),
        "machine": f"{os.cpu_count()} cores ({model}), {memory_kb / 1e6:.0f} GB, Linux {platform.release()}",
        "versions": f"Tidelog {importlib.metadata.version('tidelog')} on Python {platform.python_version()}, "
        f"Apache Kafka {PEER_VERSION} (KRaft, heap 1 GB), librdkafka {confluent_kafka.libversion()[0]}",
        "other load": f"load average {load:.1f} before the first round",
        "data": f"{data_root} ({_filesystem(data_root)})",
        "rounds": f"{rounds}, contestants interleaved, medians shown" + (", quick mode" if quick else ""),
    }


def _lines(path: str) -> list[str]:
    file = Path(path)
    return file.read_text().splitlines() if file.exists() else []


def _filesystem(path: Path) -> str:
    mounts = [line.split() for line in _lines("/proc/mounts")]
    inside = [mount for mount in mounts if path.resolve().is_relative_to(mount[1])]
    return max(inside, key=lambda mount: len(mount[1]))[2] if inside else "unknown file system"


def number(value: float | None) -> str:
    if value is None:
        return "–"
    if value >= 1000:
        return f"{value:,.0f}"
    return f"{value:.3g}" if value < 100 else f"{value:.0f}"


def _row(figure: Figure) -> list[str]:
    times = figure.times_better
    of_mark = figure.of_mark
    return [
        figure.name,
        number(figure.median(OURS)),
        number(figure.median(PEER)),
        figure.unit,
        "–" if times is None else f"{times:.2f}×",
        "" if of_mark is None else f"{of_mark:.2f}× of {figure.mark:g}",
    ]


COLUMNS = ["measure", "Tidelog", "Apache Kafka", "unit", "better by", "prototype"]


def table(group: list[Figure]) -> tuple[list[str], list[list[str]]]:
    """Column titles and rows: ours beside Kafka's, or where libraries are compared a column for each."""
    contestants = list(dict.fromkeys(label for figure in group for label in figure.values))
    if set(contestants) <= {OURS, PEER}:
        return COLUMNS, [_row(figure) for figure in group]
    rows = [
        [figure.name, *(number(figure.median(label)) for label in contestants), figure.unit]
        for figure in group
    ]
    return ["measure", *contestants, "unit"], rows


def by_benchmark(figures: Iterable[Figure]) -> list[tuple[str, list[Figure]]]:
    ordered = sorted(figures, key=lambda figure: figure.benchmark)
    return [(name, list(group)) for name, group in groupby(ordered, key=lambda figure: figure.benchmark)]


def show(figures: Iterable[Figure], context: dict[str, str], console: Console) -> None:
    for name, group in by_benchmark(figures):
        shown = Table(title=name, title_justify="left")
        titles, rows = table(group)
        for title in titles:
            shown.add_column(title, justify="left" if title in ("measure", "unit") else "right")
        for row in rows:
            shown.add_row(*row)
        console.print(shown)
    for key, value in context.items():
        console.print(f"[dim]{key}: {value}[/dim]")
