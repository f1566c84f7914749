"""Stored results: JSON of each benchmark's last run, and the page that is written from it
(docs/contributing/benchmarks.md).

A benchmark keeps its figures and conditions until it runs again, so the page can combine several runs, and
further rounds of the same commit can be added. Sections without stored results are kept from the existing
page, with their date. A section reaches the page only with enough full rounds on a quiet machine.
"""

from __future__ import annotations

import inspect
import json
import re
from collections.abc import Iterable, Mapping
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from benchmarks import report
from benchmarks.figures import Figure
from benchmarks.registry import Benchmark

MIN_ROUNDS = 3
MAX_STOLEN = 0.1
"""Of more, figures tell of the host's other guests."""

PREFACE = """\
# Benchmarks

`make bench` (`python -m benchmarks`) writes this page; do not edit it by hand. In each round Tidelog and its
peers run one after the other on the same machine, within minutes, each on an empty directory. Figures are
medians of full rounds on a quiet machine, with the minimum and the maximum in parentheses. "better by" is the
ratio of the medians, above 1 where Tidelog is better. Compare ratios: absolute figures depend on the machine.

Apache Kafka runs with its own start scripts (1 GB heap, G1) and its default options. In request cost,
throughput, latency and log size each broker first receives about 60,000 requests, so that the JVM has
compiled its hot paths. Startup is measured cold, apart from the file cache. Data is on tmpfs, except in the
section *Disk*.
"""


@dataclass
class Run:
    """One benchmark's rounds."""

    conditions: dict[str, str]
    rounds: int
    quick: bool
    loaded: bool
    """Whether others were allowed to use the machine meanwhile."""
    others: float
    """The greatest share of the machine that others used before a round."""
    seconds: float
    """How long the rounds took."""
    figures: list[Figure] = field(default_factory=list)
    stolen: float = 0.0
    """The greatest share of the machine that its host gave to others during a contestant's round."""

    @property
    def hindrance(self) -> str:
        """What keeps it off the page."""
        if self.quick:
            return "a quick run"
        if self.loaded:
            return "run on a machine that was not quiet"
        if self.stolen > MAX_STOLEN:
            return f"the host gave {self.stolen:.0%} of the machine to others meanwhile"
        if self.rounds < MIN_ROUNDS:
            return f"{self.rounds} of {MIN_ROUNDS} rounds"
        return ""

    def extend(self, later: Run) -> None:
        """Take in further rounds."""
        known = {figure.name: figure for figure in self.figures}
        for figure in later.figures:
            mine = known.get(figure.name)
            if mine is None:
                self.figures.append(figure)
                continue
            for contestant, values in figure.values.items():
                mine.values.setdefault(contestant, []).extend(values)
        self.conditions = later.conditions
        self.rounds += later.rounds
        self.quick |= later.quick
        self.loaded |= later.loaded
        self.others = max(self.others, later.others)
        self.stolen = max(self.stolen, later.stolen)
        self.seconds += later.seconds

    def described(self) -> dict[str, str]:
        """The conditions that are printed below a table."""
        rounds = f"{self.rounds} of {self.seconds / self.rounds / 60:.1f} minutes"
        return {
            **self.conditions,
            "rounds": rounds + (", quick" if self.quick else ""),
            "other load": f"up to {self.others:.0%}"
            + (", allowed" if self.loaded else "")
            + f", host up to {self.stolen:.0%}",
        }


class Results:
    """The last run of every benchmark, in a file."""

    def __init__(self, path: Path) -> None:
        self._path = path
        stored: dict[str, Any] = json.loads(path.read_text()) if path.exists() else {}
        self._runs = {name: _restored(entry) for name, entry in stored.items() if "rounds" in entry}

    def __getitem__(self, name: str) -> Run:
        return self._runs[name]

    def add(self, name: str, run: Run, *, extend: bool = False) -> None:
        """Take over a run, in the place of the last or as further rounds of the same commit."""
        last = self._runs.get(name)
        if extend and last is not None and last.conditions["commit"] == run.conditions["commit"]:
            last.extend(run)
        else:
            self._runs[name] = run
        self._path.parent.mkdir(parents=True, exist_ok=True)
        stored = {name: asdict(each) for name, each in self._runs.items()}
        self._path.write_text(json.dumps(stored, indent=1, ensure_ascii=False) + "\n")

    def write_page(self, benchmarks: Mapping[str, Benchmark], path: Path) -> list[str]:
        """Write the page, in the order of the benchmarks; returns what is not on it, and why."""
        parts, missing = [PREFACE], []
        standing = _sections(path.read_text()) if path.exists() else {}
        for name, benchmark in benchmarks.items():
            if benchmark.on_request:
                continue
            title = benchmark.module.NAME.capitalize()
            run = self._runs.get(name)
            hindrance = "not run yet" if run is None else run.hindrance
            if run is not None and not hindrance:
                parts.append(_section(title, benchmark, run))
            elif title in standing and _deserves_to_stand(standing[title]):
                parts.append(standing[title])
            else:
                missing.append(f"{name}: {hindrance}")
        path.write_text("\n".join(parts))
        return missing


def _restored(entry: dict[str, Any]) -> Run:
    return Run(**{**entry, "figures": [Figure(**figure) for figure in entry["figures"]]})


def _section(title: str, benchmark: Benchmark, run: Run) -> str:
    titles, rows = benchmark.show(run.figures, benchmark.labels)
    rules = ["---" if column in report.TEXT_COLUMNS else "---:" for column in titles]
    table = "".join("| " + " | ".join(row) + " |\n" for row in [titles, rules, *rows])
    conditions = "; ".join(f"{key}: {value}" for key, value in run.described().items())
    explanation = inspect.cleandoc(benchmark.module.__doc__ or "").replace("``", "`")
    return f"## {title}\n\n{explanation}\n\n{table}\n<sub>{conditions}</sub>\n"


def _sections(page: str) -> dict[str, str]:
    """What stands below each title of a page."""
    parts: Iterable[str] = re.split(r"^(?=## )", page, flags=re.MULTILINE)[1:]
    return {part.splitlines()[0].removeprefix("## "): part.rstrip("\n") + "\n" for part in parts}


def _deserves_to_stand(section: str) -> bool:
    rounds = re.search(r"rounds: (\d+)", section)
    return (
        rounds is not None and int(rounds[1]) >= MIN_ROUNDS and "quick" not in section.rpartition("<sub>")[2]
    )
