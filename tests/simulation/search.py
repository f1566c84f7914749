"""Runs many seeds of the simulated cluster and says which of them break a promise.

    python -m tests.simulation.search --seeds 5000                   # seeds 0 to 4999
    python -m tests.simulation.search --first 1234 --seeds 1 --log   # one again, with the brokers' logs

The same seed does the same in every process. A seed takes about half a second; directories are made in
memory where there is a ``/dev/shm``.
"""

from __future__ import annotations

import argparse
import asyncio
import gc
import logging
import sys
import tempfile
import time
import traceback
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from tests.simulation.cluster.history import BrokenPromise
from tests.simulation.cluster.storm import Record, run
from tests.simulation.virtual_loop import OWNER

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


def main() -> int:
    """Search; the exit code is 1 if a seed failed."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("--first", type=int, default=0)
    parser.add_argument("--seeds", type=int, default=1000)
    parser.add_argument("--seconds", type=float, default=float("inf"), help="begin no seed after so long")
    parser.add_argument("--log", action="store_true", help="show what brokers log")
    options = parser.parse_args()
    gc.freeze()
    began = time.monotonic()
    failed: dict[int, str] = {}
    totals: Counter[str] = Counter()
    for seed in range(options.first, options.first + options.seeds):
        if time.monotonic() - began > options.seconds:
            break
        totals["seeds"] += 1
        try:
            record = one(seed, log=options.log)
        except BrokenPromise as error:
            failed[seed] = str(error)
            print(error, flush=True)
        except Exception as error:
            failed[seed] = repr(error)
            traceback.print_exc()
        else:
            totals["records acknowledged"] += record.acknowledged
            totals["messages"] += record.events
            totals["virtual seconds"] += round(record.virtual_s)
            totals.update({f"{fate} transactions": count for fate, count in record.transactions.items()})
            totals.update({f"fault: {name}": count for name, count in record.faults.items()})
            if options.log or options.seeds == 1:
                print(record)
    for what, count in totals.items():
        print(f"{count:>10} {what}")
    for seed, reason in failed.items():
        print(f"seed {seed} failed: {reason.splitlines()[0][:200]}")
    print(f"{len(failed)} of {totals['seeds']} seeds failed, in {time.monotonic() - began:.0f} s")
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
