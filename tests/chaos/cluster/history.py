"""What clients did and saw, written down while it happens: one line of JSON for each event, one file for each
process.

An operation begins with ``invoke`` and ends with ``ok``, ``fail`` (it has certainly not happened) or ``info``
(nobody knows). What was never ended, because its process was killed, counts as ``info``. Invocations reach
the file before the operation does the network. All times are of the machine's one monotonic clock, so the
events of several processes can be compared.

Operations: ``send`` of one record; ``poll`` of many; ``assign`` when a consumer gets partitions, and begins
where its group has committed; ``txn`` for a transaction, whose ``invoke`` comes with what was sent in it,
``commit`` when the commit is asked for; ``create``, ``delete`` and ``change`` of a topic.
"""

from __future__ import annotations

import json
import time
from collections import deque
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import NamedTuple

INVOKE, OK, FAIL, INFO = "invoke", "ok", "fail", "info"
SEND, POLL, ASSIGN, TXN, COMMIT = "send", "poll", "assign", "txn", "commit"
CREATE, DELETE, CHANGE = "create", "delete", "change"


class Event(NamedTuple):
    """One line. ``records`` are ``(topic, partition, offset, value)``; offsets that are not known are -1."""

    time_ms: float
    process: str
    kind: str
    operation: str
    name: str
    """Which operation of its process: the value that is sent, or the transaction."""
    records: Sequence[tuple[str, int, int, str]]
    remark: str = ""


class HistoryFile:
    """Written by one process, from any of its threads; ``flush`` is for one of them."""

    def __init__(self, path: Path, process: str) -> None:
        self._process = process
        self._file = path.open("a", encoding="utf-8")
        self._waiting: deque[tuple[object, ...]] = deque()

    def add(
        self,
        kind: str,
        operation: str,
        name: str = "",
        records: Sequence[tuple[str, int, int, str]] = (),
        remark: str = "",
    ) -> None:
        self._waiting.append((time.monotonic() * 1000, self._process, kind, operation, name, records, remark))

    def flush(self) -> None:
        """Let what was added survive this process."""
        while self._waiting:
            self._file.write(json.dumps(self._waiting.popleft(), separators=(",", ":")) + "\n")
        self._file.flush()

    def close(self) -> None:
        if not self._file.closed:
            self.flush()
            self._file.close()


def read_history(directory: Path) -> list[Event]:
    """All events of all processes, in the order in which they happened."""
    events = [event for path in sorted(directory.glob("*.jsonl")) for event in _events(path)]
    return sorted(events, key=lambda event: event.time_ms)


def _events(path: Path) -> Iterator[Event]:
    with path.open(encoding="utf-8") as file:
        for line in file:
            if not line.endswith("\n"):
                return  # its writer was killed within this line
            time_ms, process, kind, operation, name, records, remark = json.loads(line)
            yield Event(time_ms, process, kind, operation, name, [_record(each) for each in records], remark)


def _record(fields: Sequence[object]) -> tuple[str, int, int, str]:
    topic, partition, offset, value = fields
    return str(topic), int(str(partition)), int(str(offset)), str(value)


def acknowledged(events: Iterable[Event]) -> int:
    """How many sends, and records of committed transactions, were acknowledged."""
    return sum(
        1 if event.operation == SEND else len(event.records)
        for event in events
        if event.kind == OK and event.operation in (SEND, TXN)
    )
