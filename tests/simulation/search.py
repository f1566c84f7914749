"""Runs many seeds of the simulated cluster and says which of them break a promise.

    python -m tests.simulation.search --seeds 5000                   # seeds 0 to 4999, on every core
    python -m tests.simulation.search --first 1234 --seeds 1 --log   # one again, with the brokers' logs

The same seed does the same in every process. A seed takes about a second of one core; directories are made
in memory where there is a ``/dev/shm``, and a process ends after a hundred seeds with all that it kept.
"""

from __future__ import annotations

import argparse
import asyncio
import gc
import logging
import multiprocessing
import os
import sys
import tempfile
import time
import traceback
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from tests.simulation.cluster.history import BrokenPromise
from tests.simulation.cluster.storm import Record, run
from tests.simulation.virtual_loop import OWNER

SEEDS_OF_A_PROCESS = 100
_MEMORY = Path("/dev/shm")


class _Story(logging.Formatter):
    """Says when, on virtual time, and whose line it is."""

    def format(self, record: logging.LogRecord) -> str:
        try:
            now_s = asyncio.get_running_loop().time() - 1000
        except RuntimeError:
            now_s = 0.0
        owner = OWNER.get()
        return f"{now_s:8.3f} {'-' if owner is None else owner.name:8} {super().format(record)}"


@contextmanager
def in_memory() -> Iterator[Path]:
    """A directory that no disk knows of."""
    where = _MEMORY if _MEMORY.is_dir() else None
    with tempfile.TemporaryDirectory(prefix="tidelog-simulation-", dir=where) as directory:
        yield Path(directory)


@contextmanager
def silenced(*, log: bool = False) -> Iterator[None]:
    """Brokers that are killed by the dozen have much to say; with ``log`` all of it is shown."""
    if log:
        handler = logging.StreamHandler(sys.stdout)
        handler.setFormatter(_Story())
        logging.basicConfig(level=logging.INFO, handlers=[handler])
        yield
        return
    before = logging.root.manager.disable
    # What is logged as an error with a traceback is a bug: the run looks for that.
    logging.disable(logging.WARNING)
    try:
        yield
    finally:
        logging.disable(before)


def one(seed: int, *, log: bool = False) -> Record:
    """Run one seed."""
    with in_memory() as directory, silenced(log=log):
        return run(directory, seed)


@dataclass(frozen=True)
class Outcome:
    """What a seed came to: a record, or what went wrong."""

    seed: int
    record: Record | None = None
    failure: str = ""


def outcome(seed: int, *, log: bool = False) -> Outcome:
    """Run one seed; a failure is told and not raised."""
    try:
        return Outcome(seed, one(seed, log=log))
    except BrokenPromise as error:
        return Outcome(seed, failure=str(error))
    except Exception as error:
        return Outcome(seed, failure=f"seed {seed}: {error!r}\n{traceback.format_exc()}")


def outcomes(seeds: range, jobs: int, *, log: bool) -> Iterator[Outcome]:
    """All of them, as they end."""
    if jobs == 1 or len(seeds) == 1 or log:
        gc.freeze()
        yield from (outcome(seed, log=log) for seed in seeds)
        return
    context = multiprocessing.get_context("spawn")
    with context.Pool(jobs, initializer=gc.freeze, maxtasksperchild=SEEDS_OF_A_PROCESS) as pool:
        yield from pool.imap_unordered(outcome, seeds)


def main() -> int:
    """Search; the exit code is 1 if a seed failed."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("--first", type=int, default=0)
    parser.add_argument("--seeds", type=int, default=1000)
    parser.add_argument("--seconds", type=float, default=float("inf"), help="stop after so long")
    parser.add_argument("--jobs", type=int, default=os.cpu_count() or 1, help="processes")
    parser.add_argument("--log", action="store_true", help="show what brokers log; one process")
    options = parser.parse_args()
    began = time.monotonic()
    failed: dict[int, str] = {}
    totals: Counter[str] = Counter()
    seeds = range(options.first, options.first + options.seeds)
    for each in outcomes(seeds, options.jobs, log=options.log):
        totals["seeds"] += 1
        if each.record is None:
            failed[each.seed] = each.failure
            print(each.failure, flush=True)
        else:
            count(totals, each.record)
            if options.log or options.seeds == 1:
                print(each.record)
        if totals["seeds"] % 100 == 0:
            print(f"{totals['seeds']} seeds, {time.monotonic() - began:.0f} s", flush=True)
        if time.monotonic() - began > options.seconds:
            break
    for what, how_many in totals.items():
        print(f"{how_many:>10} {what}")
    for seed, reason in failed.items():
        print(f"seed {seed} failed: {reason.splitlines()[0][:200]}")
    print(f"{len(failed)} of {totals['seeds']} seeds failed, in {time.monotonic() - began:.0f} s")
    return 1 if failed else 0


def count(totals: Counter[str], record: Record) -> None:
    """Add what a seed did."""
    totals["records acknowledged"] += record.acknowledged
    totals["messages"] += record.events
    totals["virtual seconds"] += round(record.virtual_s)
    totals.update({f"{fate} transactions": number for fate, number in record.transactions.items()})
    totals.update({f"fault: {name}": number for name, number in record.faults.items()})


if __name__ == "__main__":
    sys.exit(main())
