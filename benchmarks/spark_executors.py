"""Each pipeline alone on 1, 2 and 4 executors of one core each (`local-cluster`).

The work is that of `spark-alone`. Each executor is a process with its own JVM, Python workers and 1 GB. All
share this machine's cores with the driver and the broker, so the figures show the cost of distribution and
stop improving when the cores are used up.
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
