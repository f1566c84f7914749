"""The suite without pytest: ``python -m tests.compat.side_by_side OURS APACHE [PATTERN]`` prints what differs.

Both are ``host:port`` of running brokers, so that one case can be tried again in a second.
"""

from __future__ import annotations

import fnmatch
import sys
import time
import traceback

from tests.compat.side_by_side.cases import Case
from tests.compat.side_by_side.compare import differences
from tests.compat.side_by_side.side import Side
from tests.compat.side_by_side.table import CASES


def main(ours: str, apache: str, pattern: str = "*") -> int:
    """Compare and count."""
    sides = [Side(name, *_address(text)) for name, text in (("tidelog", ours), ("apache", apache))]
    chosen = [each for each in CASES if fnmatch.fnmatch(each.name, pattern.replace("[", "[[]"))]
    stem = f"sbs{int(time.time()) % 1_000_000}"
    wrong = 0
    for number, each in enumerate(chosen):
        answers = [_run(each, side.begin(f"{stem}-{number}")) for side in sides]
        found = differences(*answers)
        expected = dict(each.deviation.ours) if each.deviation else {}
        if {path: mine for path, (mine, _) in found.items()} == expected:
            continue
        wrong += 1
        print(f"== {each.name}" + (" (another deviation than the known one)" if expected else ""))
        for path, (mine, theirs) in found.items():
            print(f"   {path}\n      ours   {mine!r:.900}\n      apache {theirs!r:.900}")
    print(f"{wrong} of {len(chosen)} cases differ")
    return 1 if wrong else 0


def _run(each: Case, side: Side) -> object:
    try:
        return each.run(side)
    except Exception:
        return traceback.format_exc(limit=-2)


def _address(text: str) -> tuple[str, int]:
    host, _, port = text.rpartition(":")
    return host, int(port)


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
