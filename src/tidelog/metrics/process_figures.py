"""What the system knows of this process: processor time, memory, open files, what it read and wrote."""

from __future__ import annotations

import contextlib
import os
import resource
import time
from collections.abc import Iterator
from pathlib import Path

from tidelog.metrics import catalog
from tidelog.metrics.page import Page

_SELF = Path("/proc/self")
_CLOCK_TICKS = os.sysconf("SC_CLK_TCK")
_PAGE_BYTES = os.sysconf("SC_PAGE_SIZE")
_START_AT, _THREADS_AT = 19, 17


class ProcessFigures:
    """Reads anew at each scrape; what a system does not tell is left out."""

    def __init__(self) -> None:
        self._started_s = time.time()
        with contextlib.suppress(OSError, ValueError, IndexError):
            boot_s = time.time() - float(Path("/proc/uptime").read_text().split()[0])
            self._started_s = boot_s + int(_stat()[_START_AT]) / _CLOCK_TICKS

    def render(self, page: Page) -> Iterator[str]:
        """The families of the process."""
        usage = resource.getrusage(resource.RUSAGE_SELF)
        yield from page.family(catalog.PROCESS_CPU, [("", usage.ru_utime + usage.ru_stime)])
        yield from page.family(catalog.PROCESS_START, [("", self._started_s)])
        with contextlib.suppress(OSError, ValueError, IndexError):
            size, resident, *_ = map(int, (_SELF / "statm").read_text().split())
            yield from page.family(catalog.PROCESS_RESIDENT, [("", resident * _PAGE_BYTES)])
            yield from page.family(catalog.PROCESS_VIRTUAL, [("", size * _PAGE_BYTES)])
            yield from page.family(catalog.PROCESS_THREADS, [("", int(_stat()[_THREADS_AT]))])
            # Counted, not listed: there may be as many as connections and segments.
            with os.scandir(_SELF / "fd") as files:
                yield from page.family(catalog.PROCESS_FDS, [("", sum(1 for _ in files) - 1)])
        soft, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
        limit = float("inf") if soft == resource.RLIM_INFINITY else soft
        yield from page.family(catalog.PROCESS_MAX_FDS, [("", limit)])
        with contextlib.suppress(OSError, ValueError):
            lines = (_SELF / "io").read_text().splitlines()
            io = dict(line.split(": ", 1) for line in lines)
            yield from page.family(catalog.DISK_READ, [("", int(io["read_bytes"]))])
            yield from page.family(catalog.DISK_WRITTEN, [("", int(io["write_bytes"]))])


def _stat() -> list[str]:
    """The fields of /proc/self/stat behind the name, which may hold anything."""
    return (_SELF / "stat").read_text().rpartition(") ")[2].split()
