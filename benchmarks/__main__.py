"""`python -m benchmarks`: choose benchmarks, run them in rounds, show and write what came out."""

from __future__ import annotations

import argparse
import os
from pathlib import Path
from types import ModuleType

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn
from tests.compat.toolchain import CACHE, ROOT

from benchmarks import (
    client_consumer,
    client_producer,
    codec,
    contestants,
    failover,
    footprint,
    heartbeats,
    latency,
    log_size,
    replay,
    report,
    request_cost,
    spark_partitions,
    spark_pipelines,
    spark_source,
    throughput,
)
from benchmarks.figures import Figures
from benchmarks.page import Results

BENCHMARKS: dict[str, ModuleType] = {
    "cost": request_cost,
    "throughput": throughput,
    "latency": latency,
    "footprint": footprint,
    "log-size": log_size,
    "replay": replay,
    "groups": heartbeats,
    "failover": failover,
    "codec": codec,
    "client-consumer": client_consumer,
    "client-producer": client_producer,
    "spark-source": spark_source,
    "spark-partitions": spark_partitions,
    "spark-pipelines": spark_pipelines,
}


def parse() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m benchmarks", description=__doc__)
    parser.add_argument(
        "benchmark", nargs="*", help=f"which to run, of {', '.join(BENCHMARKS)} (default: all)"
    )
    parser.add_argument(
        "--quick", action="store_true", help="one round, a quarter of the load: about five minutes"
    )
    parser.add_argument("--rounds", type=int, help="how often each is run (default: 3, with --quick 1)")
    parser.add_argument("--only", choices=["tidelog", "apache"], help="one contestant alone")
    parser.add_argument(
        "--data-root", type=Path, default=Path("/dev/shm"), help="where data goes (default: %(default)s)"
    )
    parser.add_argument("--json", type=Path, default=CACHE / "benchmarks.json", help="default: %(default)s")
    parser.add_argument(
        "--report",
        action="store_true",
        help="write docs/benchmarks.md after a partial or quick run, too, others as they were last",
    )
    arguments = parser.parse_args()
    unknown = set(arguments.benchmark) - set(BENCHMARKS)
    if unknown:
        parser.error(f"no benchmark {', '.join(sorted(unknown))}; there are {', '.join(BENCHMARKS)}")
    if not arguments.data_root.is_dir():
        parser.error(f"--data-root {arguments.data_root} is no directory")
    return arguments


def main() -> None:
    arguments = parse()
    console = Console()
    console.width = max(console.width, 180)  # a table in a file or a pipe need not be narrow
    names = arguments.benchmark or list(BENCHMARKS)
    rounds = arguments.rounds or (1 if arguments.quick else 3)
    brokers, hindrance = contestants.available()
    if arguments.only:
        brokers = [broker for broker in brokers if broker == arguments.only]
    if hindrance:
        console.print(f"[yellow]{hindrance}[/yellow]")
    figures = Figures()
    load, _, _ = os.getloadavg()
    context = report.conditions(arguments.data_root, rounds, load, quick=arguments.quick)
    columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TimeElapsedColumn())
    with Progress(*columns, console=console) as progress:
        task = progress.add_task("", total=len(names) * rounds * len(brokers))
        for name in names:
            for turn in range(rounds):
                # Who goes first changes from round to round.
                for broker in brokers if turn % 2 == 0 else reversed(brokers):
                    progress.update(task, description=f"{name}, round {turn + 1}, {broker}")
                    BENCHMARKS[name].measure(broker, arguments.data_root, figures, quick=arguments.quick)
                    progress.advance(task)
    report.show(figures, context, console)
    results = Results(arguments.json)
    results.add(figures, context)
    console.print(f"JSON: {arguments.json}")
    if arguments.report or not (arguments.benchmark or arguments.quick or arguments.only):
        results.write_page(BENCHMARKS.values(), ROOT / "docs" / "benchmarks.md")
        console.print("Report: docs/benchmarks.md")


if __name__ == "__main__":
    main()
