"""The results that stay: JSON of every benchmark's last run, and the page docs/benchmarks.md made of it.

A benchmark keeps its figures, with the conditions of its run, until it is run again; so the page can be made
of several short runs on a machine that is quiet for a while.
"""

from __future__ import annotations

import inspect
import json
from collections.abc import Iterable, Mapping
from pathlib import Path
from types import ModuleType
from typing import Any

from benchmarks import report
from benchmarks.figures import Figure

PREFACE = """\
# Benchmarks

Printed by `make bench` (`python -m benchmarks`); do not edit by hand. Tidelog and its peer run on the
same machine in the same minutes, one after the other in each round, each on a fresh directory. "better by" is
the ratio of the medians, above 1 where Tidelog is better, and is what to look at: absolute figures belong to
the machine. "prototype" compares with the figures of the bare prototype that decided the I/O model.

Before request cost, throughput, latency and log size each broker gets some 60,000 requests, which a JVM needs
before it has compiled its hot paths. A start is a start: nothing is warm but the file cache. Data on tmpfs
takes the disk out of the picture; it says nothing about fsync, which neither broker does per request by
default.
"""


class Results:
    """The last figures of every benchmark, in a file."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._benchmarks: dict[str, Any] = json.loads(path.read_text()) if path.exists() else {}

    def add(self, figures: Iterable[Figure], context: Mapping[str, str]) -> None:
        """Take over a run; benchmarks that it had not keep what they have."""
        for name, group in report.by_benchmark(figures):
            rows = [
                {
                    "name": figure.name,
                    "unit": figure.unit,
                    "better": figure.better,
                    "values": figure.values,
                    "times_better": figure.times_better,
                    "prototype": figure.mark,
                }
                for figure in group
            ]
            self._benchmarks[name] = {"conditions": dict(context), "figures": rows}
        self._path.parent.mkdir(parents=True, exist_ok=True)
        self._path.write_text(json.dumps(self._benchmarks, indent=2, ensure_ascii=False) + "\n")

    def write_page(self, modules: Iterable[ModuleType], path: Path) -> None:
        """The page, in the order of the modules."""
        parts = [PREFACE]
        for module in modules:
            stored = self._benchmarks.get(module.NAME)
            if stored is not None:
                parts.append(_section(module, stored))
        path.write_text("\n".join(parts))


def _section(module: ModuleType, stored: Mapping[str, Any]) -> str:
    group = [
        Figure(module.NAME, row["name"], row["unit"], row["better"], row["values"], row["prototype"])
        for row in stored["figures"]
    ]
    titles, rows = report.table(group)
    rules = ["---" if title in ("measure", "unit") else "---:" for title in titles]
    table = "".join("| " + " | ".join(row) + " |\n" for row in [titles, rules, *rows])
    conditions = "; ".join(f"{key}: {value}" for key, value in stored["conditions"].items())
    explanation = inspect.cleandoc(module.__doc__ or "").replace("``", "`")
    return f"## {module.NAME.capitalize()}\n\n{explanation}\n\n{table}\n<sub>{conditions}</sub>\n"
