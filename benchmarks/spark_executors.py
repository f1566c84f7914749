"""Each pipeline alone on 1, 2 and 4 executors with one core each (`local-cluster`): the curve of a cluster.

The same work as in `spark-alone`, with executors as processes of their own, each with a JVM, its Python
workers and 1 GB, as on machines of a cluster. They share this machine's cores with each other, the driver
and the broker, so the curve shows what distributing costs, and ends where the cores do.
"""

from __future__ import annotations

from pathlib import Path

from benchmarks.figures import Figures
from benchmarks.spark_alone import work_off

NAME = "spark-executors"
EXECUTORS = (1, 2, 4)
MEMORY_MB = 1024


def measure(contestant: str, root: Path, figures: Figures, *, quick: bool) -> None:
    count = 200_000 if quick else 500_000
    for executors in EXECUTORS:
        for each in work_off(contestant, root, f"local-cluster[{executors},1,{MEMORY_MB}]", count):
            name = f"{each['name']}: {executors} executor{'s' if executors > 1 else ''}"
            figures.add(NAME, contestant, name, each["events"] / each["seconds"], "events/s", "higher")
