"""What transactional producers asked for and were told, and what readers of committed records may see.

* **Atomic**: of a transaction, readers see all records or none, in every partition.
* **Decided once**: acknowledged commits are seen, acknowledged aborts never are, and what nobody asked to
  commit never is.
* **Exactly once**: no value is seen twice, and a producer's values come in the order of its transactions.
* **Offsets move with records**: the committed offset of a producer's group is that of its last transaction
  which readers see.
"""

from __future__ import annotations

from dataclasses import dataclass, field

from tidelog.errors import ErrorCode
from tidelog.ids import TopicPartition
from tidelog.records.batch import iter_batches
from tidelog.records.record import decode_batch
from tidelog.storage.log.log import Isolation, Log

READ_BYTES = 1 << 24


class BrokenPromise(AssertionError):
    """The history shows something that must not be."""


@dataclass
class Attempt:
    """One transaction of one producer."""

    transactional_id: str
    number: int
    values: dict[bytes, TopicPartition] = field(default_factory=dict)
    """What was sent, also where nobody knows whether it arrived."""
    written: set[bytes] = field(default_factory=set)
    commits_offset: bool = False
    commit_requested: bool = False
    outcome: str | None = None
    """``committed`` or ``aborted`` once the coordinator has said so."""


class TransactionHistory:
    """All transactions of a run."""

    def __init__(self) -> None:
        self.attempts: list[Attempt] = []
        self._by_value: dict[bytes, Attempt] = {}
        self.refusals: dict[ErrorCode, int] = {}

    def begin(self, transactional_id: str) -> Attempt:
        attempt = Attempt(transactional_id, len(self.attempts))
        self.attempts.append(attempt)
        return attempt

    def send(self, attempt: Attempt, partition: TopicPartition) -> bytes:
        value = f"{attempt.transactional_id}/{attempt.number}/{len(attempt.values)}".encode()
        attempt.values[value] = partition
        self._by_value[value] = attempt
        return value

    def refused(self, code: ErrorCode) -> None:
        self.refusals[code] = self.refusals.get(code, 0) + 1

    def check_visible(self, logs: dict[TopicPartition, Log]) -> dict[Attempt | int, set[bytes]]:
        """What readers see now must be of transactions that were to be committed; by their number."""
        seen: dict[Attempt | int, set[bytes]] = {}
        for partition, log in logs.items():
            last: dict[str, int] = {}
            for value in committed_values(log):
                attempt = self._by_value[value]
                if not attempt.commit_requested or attempt.outcome == "aborted":
                    raise BrokenPromise(f"{partition} shows {value!r}, which was never committed")
                if attempt.values[value] != partition:
                    raise BrokenPromise(f"{value!r} is in {partition}, not where it was sent")
                if value in seen.setdefault(attempt.number, set()):
                    raise BrokenPromise(f"{partition} shows {value!r} twice")
                if attempt.number < last.get(attempt.transactional_id, -1):
                    raise BrokenPromise(f"{partition} shows {value!r} after a later transaction")
                last[attempt.transactional_id] = attempt.number
                seen[attempt.number].add(value)
        return seen

    def check_end(self, logs: dict[TopicPartition, Log], offsets: dict[str, int]) -> None:
        """When everything has come to rest: whole transactions, and offsets that go with them."""
        seen = self.check_visible(logs)
        expected: dict[str, int] = {}
        for attempt in self.attempts:
            found = seen.get(attempt.number, set())
            if attempt.outcome == "committed" and found != attempt.written:
                raise BrokenPromise(f"transaction {attempt} was committed, readers see {found}")
            if found and not attempt.written <= found:
                raise BrokenPromise(f"of transaction {attempt} readers see only {found}")
            if found and attempt.commits_offset:
                expected[attempt.transactional_id] = attempt.number
        for transactional_id, number in expected.items():
            if offsets.get(transactional_id) != number:
                raise BrokenPromise(
                    f"the group of {transactional_id} is at {offsets.get(transactional_id)}, not at {number}"
                )


def committed_values(log: Log) -> list[bytes]:
    """The values that a consumer with read_committed gets from the start of a log."""
    found = log.read(log.log_start_offset, READ_BYTES, isolation=Isolation.TXN_COMMITTED)
    if found.file is None:
        return []
    data = log.files.disk.pread(found.fd, found.length, found.position)
    aborted = sorted(found.aborted or [], key=lambda each: each.first_offset)
    open_aborts: set[int] = set()
    values: list[bytes] = []
    for pos, header in iter_batches(data):
        while aborted and aborted[0].first_offset <= header.last_offset:
            open_aborts.add(aborted.pop(0).producer_id)
        if header.is_control:
            open_aborts.discard(header.producer_id)
        elif header.producer_id not in open_aborts:
            records = decode_batch(data[pos : pos + header.size_bytes])
            values += [record.value for record in records if record.value is not None]
    return values
