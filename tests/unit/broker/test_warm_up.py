"""What a broker imports when it is ready comes in small steps, so that nobody waits for it."""

from __future__ import annotations

import subprocess
import sys

# A step imports one module and what that one brings along; the whole is some eighty.
MOST_IN_A_STEP = 30

STEPS = """
import asyncio, sys
import tidelog.broker.process
from tidelog.broker.warm_up import import_in_steps, modules_of

def loaded():
    return sum(name.startswith("tidelog.") for name in sys.modules)

async def main():
    names = [*modules_of("tidelog.coordinator"), "tidelog.broker.coordination.coordinators"]
    warming = asyncio.create_task(import_in_steps(names))
    counts = [loaded()]
    while not warming.done():
        await asyncio.sleep(0)
        counts.append(loaded())
    print(max(after - before for before, after in zip(counts, counts[1:])), counts[-1] - counts[0])

asyncio.run(main())
"""


def test_the_coordinators_are_imported_a_few_modules_in_a_turn_of_the_loop() -> None:
    done = subprocess.run([sys.executable, "-c", STEPS], capture_output=True, check=True, text=True)
    largest_step, in_all = map(int, done.stdout.split())
    assert in_all > 2 * MOST_IN_A_STEP
    assert largest_step <= MOST_IN_A_STEP
