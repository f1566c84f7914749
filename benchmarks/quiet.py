"""Whether the machine does anything else: CPU used by others while a benchmark waits to begin.

The load average does not tell, for it remembers the round before. So the processors' own counters are read
twice, some seconds apart, while nothing of ours runs. What other machines on the same host take from this one
shows only while it works, and is counted then.
"""

from __future__ import annotations

import time
from pathlib import Path

BOUND = 0.05
"""The share of all processors that others may use."""
SAMPLE_S = 2.0
PATIENCE_S = 60.0
_IDLE = (3, 4)  # idle and waiting for a disk, among the counters of /proc/stat
_STOLEN = 7


class NotQuietError(Exception):
    """Others use too much of this machine."""


def busy_share(seconds: float = SAMPLE_S) -> float:
    """The share of all processors that was in use during some seconds, stolen time included."""
    before = _counters()
    time.sleep(seconds)
    passed = [after - earlier for earlier, after in zip(before, _counters(), strict=True)]
    total = sum(passed)
    return 1 - sum(passed[index] for index in _IDLE) / total if total else 0.0


class StolenTime:
    """Counts, from when it is made, what the host has given to others while this machine had work."""

    def __init__(self) -> None:
        self._before = _counters()

    @property
    def share(self) -> float:
        """The share of all processors' time."""
        passed = [after - earlier for earlier, after in zip(self._before, _counters(), strict=True)]
        total = sum(passed)
        return passed[_STOLEN] / total if total else 0.0


def wait_until_quiet(patience_s: float = PATIENCE_S) -> float:
    """Wait for the machine to come to rest, as after a round; returns the share that others still use."""
    deadline = time.monotonic() + patience_s
    while (share := busy_share()) > BOUND:
        if time.monotonic() > deadline:
            raise NotQuietError(
                f"others use {share:.0%} of this machine (at most {BOUND:.0%} are allowed), and have done so "
                f"for {patience_s:.0f} s; wait until it is quiet, or say --loaded, which keeps the figures "
                "off the page"
            )
    return share


def _counters() -> list[int]:
    """Ticks of all processors together by what they did; guests' are in the others already."""
    return [int(field) for field in Path("/proc/stat").read_text().splitlines()[0].split()[1:9]]
