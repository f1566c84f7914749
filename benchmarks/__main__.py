"""`python -m benchmarks`: choose benchmarks, run them in rounds, show and write what came out.

Five are no races: `python -m benchmarks attacks` lets crowds attack one broker and watches its other clients
(`benchmarks/crowds.py`), `soak` watches one broker for a while (`benchmarks/soak.py`), `day` holds a day that
was streamed against that day backfilled (`benchmarks/day.py`), `state` looks at the memory of pipelines while
their state grows (`benchmarks/state.py`), and `console` at what the console costs beside a large cluster
(`benchmarks/console_cost.py`).
"""

from __future__ import annotations

import argparse
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

from foreign.toolchain import CACHE, ROOT
from rich.console import Console

from benchmarks import console_cost, contestants, crowds, day, quiet, report, soak, state
from benchmarks.figures import Figures
from benchmarks.page import MIN_ROUNDS, Results, Run
from benchmarks.registry import BENCHMARKS, Benchmark

PAGE = ROOT / "docs" / "contributing" / "benchmarks.md"
NO_RACES: Mapping[str, Callable[[Sequence[str]], int]] = {
    "attacks": crowds.main,
    "soak": soak.main,
    "day": day.main,
    "state": state.main,
    "console": console_cost.main,
}


def parse(given: Sequence[str] | None = None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m benchmarks", description=__doc__)
    asked = ", ".join(name for name, each in BENCHMARKS.items() if each.on_request)
    parser.add_argument(
        "benchmark", nargs="*", help=f"which to run, of {', '.join(BENCHMARKS)} (default: all but {asked})"
    )
    parser.add_argument(
        "--quick",
        action="store_true",
        help="one round, a quarter of the load, on a machine however busy; never reaches the page",
    )
    parser.add_argument(
        "--rounds", type=int, help=f"how often each is run (default: {MIN_ROUNDS}, with --quick 1)"
    )
    parser.add_argument(
        "--more", action="store_true", help="add these rounds to those that there are of the same commit"
    )
    parser.add_argument(
        "--loaded", action="store_true", help="run on a machine that is not quiet; never reaches the page"
    )
    parser.add_argument("--only", choices=list(report.LABELS), help="one contestant alone")
    parser.add_argument(
        "--data-root", type=Path, default=Path("/dev/shm"), help="where data goes (default: %(default)s)"
    )
    parser.add_argument(
        "--disk-root",
        type=Path,
        default=CACHE / "disk",
        help="where the data of what measures a disk goes (default: %(default)s)",
    )
    parser.add_argument("--json", type=Path, help="where figures are kept (default: in .compat)")
    parser.add_argument(
        "--report",
        action="store_true",
        help="write docs/contributing/benchmarks.md after a partial run, too, the others as they were last",
    )
    parser.add_argument(
        "--report-only",
        action="store_true",
        help="run nothing, write docs/contributing/benchmarks.md of what was run",
    )
    arguments = parser.parse_args(given)
    unknown = set(arguments.benchmark) - set(BENCHMARKS)
    if unknown:
        parser.error(f"no benchmark {', '.join(sorted(unknown))}; there are {', '.join(BENCHMARKS)}")
    if not arguments.data_root.is_dir():
        parser.error(f"--data-root {arguments.data_root} is no directory")
    arguments.reports = arguments.report or arguments.report_only
    if arguments.reports and (arguments.quick or arguments.loaded or arguments.only):
        parser.error(
            "the page is made of full rounds: --report goes with neither --quick nor --loaded nor --only"
        )
    if not (arguments.benchmark or arguments.quick or arguments.loaded or arguments.only):
        arguments.reports = True
    if arguments.report_only:
        arguments.benchmark = []
    elif not arguments.benchmark:
        arguments.benchmark = [name for name, each in BENCHMARKS.items() if not each.on_request]
    if arguments.json is None:
        # What is kept for the page is kept from runs that it must not show.
        aside = arguments.quick or arguments.loaded or arguments.only
        arguments.json = CACHE / ("benchmarks-aside.json" if aside else "benchmarks.json")
    arguments.rounds = arguments.rounds or (1 if arguments.quick else MIN_ROUNDS)
    return arguments


class Session:
    """What is run, one benchmark after the other; results are kept after each."""

    def __init__(self, arguments: argparse.Namespace, console: Console) -> None:
        self._arguments = arguments
        self._console = console
        self._results = Results(arguments.json)
        self._available, hindrance = contestants.available()
        if hindrance:
            console.print(f"[yellow]{hindrance}[/yellow]")

    def run(self, name: str) -> None:
        benchmark = BENCHMARKS[name]
        run = self._measure(name, benchmark)
        self._results.add(name, run, extend=self._arguments.more)
        whole = self._results[name]
        cells = benchmark.show(whole.figures, benchmark.labels)
        report.show(name, cells, whole.described(), self._console)

    def _measure(self, name: str, benchmark: Benchmark) -> Run:
        arguments = self._arguments
        root = arguments.disk_root if benchmark.on_disk else arguments.data_root
        root.mkdir(parents=True, exist_ok=True)
        racing = [
            each
            for each in benchmark.contestants
            if each in self._available and arguments.only in (None, each)
        ]
        figures = Figures()
        others = stolen = seconds = 0.0
        tolerant = arguments.loaded or arguments.quick
        context = report.conditions(root, racing)
        for turn in range(arguments.rounds):
            others = max(others, quiet.busy_share() if tolerant else quiet.wait_until_quiet())
            # Who goes first changes from round to round.
            for contestant in racing if turn % 2 == 0 else reversed(racing):
                began, stolen_time = time.perf_counter(), quiet.StolenTime()
                benchmark.module.measure(contestant, root, figures, quick=arguments.quick)
                took = time.perf_counter() - began
                seconds += took
                stolen = max(stolen, stolen_time.share)
                self._console.print(f"{name}, round {turn + 1}, {contestant}: {took:.0f} s")
        return Run(
            context,
            arguments.rounds,
            arguments.quick,
            arguments.loaded,
            others,
            seconds,
            list(figures),
            stolen,
        )

    def write_page(self) -> None:
        missing = self._results.write_page(BENCHMARKS, PAGE)
        self._console.print("Report: docs/contributing/benchmarks.md")
        for each in missing:
            self._console.print(f"[yellow]not on it: {each}[/yellow]")


def main() -> int:
    if sys.argv[1:] and sys.argv[1] in NO_RACES:
        return NO_RACES[sys.argv[1]](sys.argv[2:])
    arguments = parse()
    console = Console()
    console.width = max(console.width, 180)  # a table in a file or a pipe need not be narrow
    session = Session(arguments, console)
    failed = []
    began = time.perf_counter()
    for name in arguments.benchmark:
        try:
            session.run(name)
        except quiet.NotQuietError as refusal:
            console.print(f"[red]{name}: {refusal}[/red]")
            failed.append(name)
            break
        except Exception:
            # An hour's other benchmarks do not go for one that fails.
            console.print_exception()
            failed.append(name)
    console.print(f"{(time.perf_counter() - began) / 60:.1f} minutes for {arguments.rounds} rounds")
    console.print(f"JSON: {arguments.json}")
    if arguments.reports:
        session.write_page()
    if failed:
        console.print(f"[red]failed: {', '.join(failed)}[/red]")
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
