"""How figures are shown: a table for each benchmark, and under what conditions it came about."""

from __future__ import annotations

import datetime
import importlib.metadata
import os
import platform
import subprocess
from collections.abc import Mapping, Sequence
from pathlib import Path

import confluent_kafka
from foreign.toolchain import ROOT
from rich.console import Console
from rich.table import Table

from benchmarks.contestants import VERSIONS
from benchmarks.figures import OLD_PEER, OURS, PEER, Figure

Cells = tuple[list[str], list[list[str]]]
"""Column titles and rows."""
LABELS = {OURS: "Tidelog", PEER: "Apache Kafka 4.3", OLD_PEER: "Apache Kafka 3.9"}


MEASURED = ("src", "benchmarks", "hatch_build.py")
TEXT_COLUMNS = ("measure", "unit", "situation", "contestant")


def conditions(data_root: Path, contestants: Sequence[str]) -> dict[str, str]:
    """Under what the figures came about, as far as it is known before the first round."""
    model = next(
        (line.split(":", 1)[1].strip() for line in _lines("/proc/cpuinfo") if line.startswith("model name")),
        "unknown",
    ).replace("(R)", "")
    memory_kb = next(
        (int(line.split()[1]) for line in _lines("/proc/meminfo") if line.startswith("MemTotal")), 0
    )
    kernel = ".".join(platform.release().split(".")[:2])
    peers = "".join(f", {VERSIONS[name]}" for name in contestants if name in VERSIONS)
    return {
        "date": now(),
        "commit": commit(),
        "machine": f"{os.cpu_count()} cores ({model}), {memory_kb / 1e6:.0f} GB, Linux {kernel}",
        "versions": f"Tidelog {importlib.metadata.version('tidelog')} on Python {platform.python_version()}"
        f"{peers}, librdkafka {confluent_kafka.libversion()[0]}",
        "data": _filesystem(data_root),
    }


def now() -> str:
    return datetime.datetime.now(datetime.UTC).strftime("%Y-%m-%d %H:%M UTC")


def commit() -> str:
    """The last commit that changed what is measured, as pages do not; with a + if it was changed since."""
    try:
        last = _git("log", "-1", "--format=%h", "--", *MEASURED)
        changed = _git("status", "--porcelain", "--", *MEASURED)
    except (OSError, subprocess.CalledProcessError):
        return "unknown"
    return last + ("+" if changed else "")


def _git(*arguments: str) -> str:
    done = subprocess.run(["git", "-C", str(ROOT), *arguments], capture_output=True, text=True, check=True)
    return done.stdout.strip()


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
    if abs(value) >= 1000:
        return f"{value:,.0f}"
    return f"{value:.3g}" if abs(value) < 100 else f"{value:.0f}"


def cell(figure: Figure, contestant: str) -> str:
    """The median and, of several rounds, the least and the greatest value."""
    spread = figure.spread(contestant)
    median = number(figure.median(contestant))
    return median if spread is None else f"{median} ({number(spread[0])}…{number(spread[1])})"


def table(group: Sequence[Figure], labels: Mapping[str, str] = LABELS) -> Cells:
    """Column titles and rows: ours beside each peer's, or where libraries are compared a column for each."""
    contestants = list(dict.fromkeys(label for figure in group for label in figure.values))
    # Whichever went first.
    contestants.sort(key=lambda name: list(LABELS).index(name) if name in LABELS else len(LABELS))
    peers = [name for name in contestants if name != OURS] if set(contestants) <= set(LABELS) else []
    marked = any(figure.mark for figure in group)
    titles = ["measure", *(labels.get(name, name) for name in contestants), "unit"]
    if len(peers) == 1:
        titles.append("better by")
    else:
        titles += [f"better than {labels[peer].removeprefix('Apache Kafka ')} by" for peer in peers]
    if marked:
        titles.append("prototype")
    rows = []
    for figure in group:
        row = [figure.name, *(cell(figure, name) for name in contestants), figure.unit]
        for peer in peers:
            times = figure.times_better(peer)
            row.append("–" if times is None else f"{times:.2f}×")
        if marked:
            row.append("" if figure.of_mark is None else f"{figure.of_mark:.2f}× of {figure.mark:g}")
        rows.append(row)
    return titles, rows


def matrix(group: Sequence[Figure], labels: Mapping[str, str] = LABELS) -> Cells:
    """A row for what precedes the colon in names and each contestant, a column for what follows it."""
    columns = list(dict.fromkeys((figure.name.split(": ")[1], figure.unit) for figure in group))
    rows: dict[tuple[str, str], dict[str, str]] = {}
    for figure in group:
        situation, measure = figure.name.split(": ")
        for contestant in figure.values:
            rows.setdefault((situation, contestant), {})[measure] = cell(figure, contestant)
    titles = ["situation", "contestant", *(f"{measure} ({unit})" for measure, unit in columns)]
    return titles, [
        [situation, labels.get(contestant, contestant), *(cells.get(measure, "–") for measure, _ in columns)]
        for (situation, contestant), cells in rows.items()
    ]


def show(title: str, cells: Cells, context: Mapping[str, str], console: Console) -> None:
    shown = Table(title=title, title_justify="left")
    titles, rows = cells
    for column in titles:
        shown.add_column(column, justify="left" if column in TEXT_COLUMNS else "right")
    for row in rows:
        shown.add_row(*row)
    console.print(shown)
    for key, value in context.items():
        console.print(f"[dim]{key}: {value}[/dim]")
