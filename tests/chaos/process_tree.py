"""The processes below one that a test has started, found in /proc, and signals to them.

A process is known by its id and the moment it started, so that nobody else is hit where an id was given to
another process in the meantime.
"""

from __future__ import annotations

import os
import signal
from dataclasses import dataclass
from pathlib import Path


@dataclass(frozen=True, slots=True)
class Member:
    """One process."""

    pid: int
    parent: int
    started: int
    command: str

    def signal(self, number: signal.Signals) -> bool:
        """Send it a signal; whether it was still there."""
        now = _read(self.pid)
        if now is None or now.started != self.started:
            return False
        try:
            os.kill(self.pid, number)
        except ProcessLookupError:
            return False
        return True


def descendants(root: int) -> list[Member]:
    """All processes below ``root`` and itself, parents first."""
    everybody = [
        member
        for entry in Path("/proc").iterdir()
        if entry.name.isdigit() and (member := _read(int(entry.name)))
    ]
    found = [member for member in everybody if member.pid == root]
    for parent in found:
        found.extend(member for member in everybody if member.parent == parent.pid)
    return found


def _read(pid: int) -> Member | None:
    try:
        fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
        command = Path(f"/proc/{pid}/cmdline").read_bytes().replace(b"\0", b" ").decode("utf-8", "replace")
    except (FileNotFoundError, ProcessLookupError):
        return None
    if fields[0] == "Z":
        return None
    return Member(pid, int(fields[1]), int(fields[19]), command)
