"""The results for people and for machines: a table on the terminal, JSON, and the page docs/benchmarks.md."""

from __future__ import annotations

import datetime
import importlib.metadata
import json
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


def _table(group: list[Figure]) -> tuple[list[str], list[list[str]]]:
    """Column titles and rows: ours beside Kafka's, or where libraries are compared a column for each."""
    contestants = list(dict.fromkeys(label for figure in group for label in figure.values))
    if set(contestants) <= {OURS, PEER}:
        return COLUMNS, [_row(figure) for figure in group]
    rows = [
        [figure.name, *(number(figure.median(label)) for label in contestants), figure.unit]
        for figure in group
    ]
    return ["measure", *contestants, "unit"], rows


def _by_benchmark(figures: Iterable[Figure]) -> list[tuple[str, list[Figure]]]:
    ordered = sorted(figures, key=lambda figure: figure.benchmark)
    return [(name, list(group)) for name, group in groupby(ordered, key=lambda figure: figure.benchmark)]


def show(figures: Iterable[Figure], context: dict[str, str], console: Console) -> None:
    for name, group in _by_benchmark(figures):
        table = Table(title=name, title_justify="left")
        titles, rows = _table(group)
        for title in titles:
            table.add_column(title, justify="left" if title in ("measure", "unit") else "right")
        for row in rows:
            table.add_row(*row)
        console.print(table)
    for key, value in context.items():
        console.print(f"[dim]{key}: {value}[/dim]")


def write_json(figures: Iterable[Figure], context: dict[str, str], path: Path) -> None:
    rows = [
        {
            "benchmark": figure.benchmark,
            "name": figure.name,
            "unit": figure.unit,
            "better": figure.better,
            "values": figure.values,
            "times_better": figure.times_better,
            "prototype": figure.mark,
        }
        for figure in figures
    ]
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(json.dumps({"conditions": context, "figures": rows}, indent=2, ensure_ascii=False) + "\n")


PREFACE = """\
# Benchmarks

Printed by `make bench` (`python -m benchmarks`); do not edit by hand. Tidelog and Apache Kafka run on the
same machine in the same minutes, one after the other in each round, each on a fresh directory. "better by" is
the ratio of the medians, above 1 where Tidelog is better, and is what to look at: absolute figures belong to
the machine. "prototype" compares with the figures of the bare prototype that decided the I/O model.
"""

NOTES = """\
## How to read them

- Before request cost, throughput, latency and log size each broker gets some 60,000 requests, which a JVM
  needs before it has compiled its hot paths. A start is a start: nothing is warm but the file cache.
- **request cost**: a generator in Python sends prebuilt requests over four connections and only counts
  answers; CPU is the broker's own, from its process clock. Producers are idempotent, requests are of
  the newest versions (Produce 13, Fetch 18), fetches go to random batches of the log. With 16 in flight
  Tidelog can take several requests at one wake-up; Kafka takes one at a time from a connection. How many the
  prototype's client had in flight is not on record, so that its column is a rough mark.
- **throughput**: librdkafka through confluent-kafka, idempotence off, acks=all. On two cores the client is
  the narrow place, and a broker that needs less CPU leaves more to it; the broker's CPU per GB is its own.
- **latency**: "bare socket" has a long poll waiting on one connection while another produces; "librdkafka"
  adds the client's threads.
- **footprint**: a start counts from the launch of the process until a Metadata request is answered; Kafka's
  directory is formatted beforehand.
- **log size**: logs are made of valid batches whose records are holes in the file; fetches go to random
  offsets, appends to the end.
- **groups**: members of the classic protocol in a process of their own, a heartbeat each every three seconds;
  one connection times produce requests at a steady pace, first on a broker without groups, then among them.
- **replay**: both brokers start on the same `__consumer_offsets` partition, a batch for every commit; seconds
  count from the broker's first answer to the first offset it tells.
- Data on tmpfs takes the disk out of the picture. It says nothing about fsync, which neither broker does per
  request by default.
"""


def write_markdown(figures: Iterable[Figure], context: dict[str, str], path: Path) -> None:
    parts = [PREFACE, "".join(f"- {key}: {value}\n" for key, value in context.items())]
    for name, group in _by_benchmark(figures):
        titles, rows = _table(group)
        rules = ["---" if title in ("measure", "unit") else "---:" for title in titles]
        rows = [titles, rules, *rows]
        table = "".join("| " + " | ".join(row) + " |\n" for row in rows)
        parts.append(f"## {name.capitalize()}\n\n{table}")
    parts.append(NOTES)
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text("\n".join(parts))
