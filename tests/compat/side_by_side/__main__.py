"""The suite without pytest: ``python -m tests.compat.side_by_side OURS APACHE [PATTERN]``.

Prints what differs. Both are ``host:port`` of running brokers: one case is tried again in a second. Brokers
for all cases need the options of test_side_by_side.py.
"""

from __future__ import annotations

import fnmatch
import re
import sys
import time
import traceback

from tests.compat.side_by_side.cases import Case
from tests.compat.side_by_side.side import Side
from tests.compat.side_by_side.table import CASES


def main(ours: str, apache: str, pattern: str = "*") -> int:
    """Compare and count."""
    sides = [
        Side("tidelog", *_address(ours)).prepare(coordinators=True),
        Side("apache", *_address(apache)).prepare(coordinators=True),
    ]
    chosen = [each for each in CASES if fnmatch.fnmatch(each.name, pattern.replace("[", "[[]"))]
    stem = f"sbs{int(time.time()) % 1_000_000}"
    wrong = 0
    before: dict[str, str] = {}
    for number, each in enumerate(chosen):
        answers = [_run(each, side.begin(f"{stem}-{number}")) for side in sides]
        found = each.judge(*answers)
        if any(isinstance(answer, Failure) for answer in answers):
            found = {"": (answers[0], answers[1])}
        if not found:
            continue
        wrong += 1
        seen = {path: re.sub(rf"{stem}-\d+", "", str(both)) for path, both in found.items()}
        if seen == before:
            print(f"== {each.name}: the same")
            continue
        before = seen
        print(f"== {each.name}")
        for path, (mine, theirs) in found.items():
            print(f"   {path}\n      ours   {mine!r:.260}\n      apache {theirs!r:.260}")
    print(f"{wrong} of {len(chosen)} cases differ")
    return 1 if wrong else 0


class Failure(str):
    """A case that could not be run to its end."""


def _run(each: Case, side: Side) -> object:
    try:
        return each.run(side)
    except Exception:
        return Failure(traceback.format_exc(limit=-1))


def _address(text: str) -> tuple[str, int]:
    host, _, port = text.rpartition(":")
    return host, int(port)


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
