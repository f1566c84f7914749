"""What clients did and learnt, and what follows from it for what they may see.

Every value is written once, so a value tells who wrote it and as how manieth. A producer sends the next
value when the one before has been acknowledged; what it was told of lies where it was told, for ever
(unless somebody deletes it). The fate of a transaction is known when its end was acknowledged; of one whose
commit was asked for and not answered either may be true, but for all of its records the same.
"""

from __future__ import annotations

import enum
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field

from tidelog.ids import TopicPartition


class BrokenPromise(AssertionError):
    """An invariant of the cluster does not hold."""


class Fate(enum.Enum):
    """What became of a transaction."""

    OPEN = "open"
    COMMITTED = "committed"
    ABORTED = "aborted"
    UNKNOWN = "unknown"
    """Its commit was asked for, and nobody said whether it came to be."""


@dataclass(eq=False)
class Attempt:
    """One transaction."""

    number: int
    fate: Fate = Fate.OPEN
    values: list[tuple[TopicPartition, bytes]] = field(default_factory=list)
    acknowledged: set[bytes] = field(default_factory=set)
    commits_offset: bool = False


class History:
    """Of one run."""

    def __init__(self) -> None:
        self.acknowledged: dict[TopicPartition, dict[int, bytes]] = {}
        self.starts: dict[TopicPartition, int] = {}
        """Before which offset records may have been deleted, because somebody asked for it."""
        self.read: dict[TopicPartition, dict[int, bytes]] = {}
        self.ends: dict[TopicPartition, tuple[int, int]] = {}
        """The end of a log that a client was told last, with the leader epoch it was told in."""
        self.attempts: dict[str, list[Attempt]] = {}
        self.fates: dict[bytes, Attempt] = {}
        self.committed_offsets: dict[str, int] = {}
        self.asked_offsets: dict[str, int] = {}

    # What clients learn

    def acknowledge(self, name: TopicPartition, offset: int, values: Iterable[bytes]) -> None:
        """A producer was told where its values are."""
        known = self.acknowledged.setdefault(name, {})
        for value in values:
            before = known.setdefault(offset, value)
            if before != value:
                raise BrokenPromise(
                    f"no acknowledged record is lost: {before!r} and then {value!r} were acknowledged at "
                    f"offset {offset} of {name}"
                )
            offset += 1

    def consumed(self, name: TopicPartition, offset: int, value: bytes, *, committed: bool) -> None:
        """A consumer has read a value; with ``committed`` one that reads only what is committed."""
        before = self.read.setdefault(name, {}).setdefault(offset, value)
        if before != value:
            raise BrokenPromise(
                f"what was read stays: offset {offset} of {name} was {before!r} and is {value!r}"
            )
        told = self.acknowledged.get(name, {}).get(offset)
        if told is not None and told != value:
            raise BrokenPromise(
                f"no acknowledged record is lost: offset {offset} of {name} is {value!r}, not {told!r}"
            )
        attempt = self.fates.get(value)
        if committed and attempt is not None and attempt.fate in (Fate.ABORTED, Fate.OPEN):
            raise BrokenPromise(
                f"no aborted record is read: {value!r} at offset {offset} of {name} is of a transaction that "
                f"is {attempt.fate.value}"
            )

    def told_end(self, name: TopicPartition, leader_epoch: int, offset: int) -> None:
        """A client asked for the end of a partition; a leader that was deposed may tell an old one."""
        epoch, before = self.ends.get(name, (-1, 0))
        if leader_epoch < epoch:
            return
        if offset < before:
            raise BrokenPromise(
                f"the end that clients are told never goes back: {name} ended at {before} in epoch {epoch}, "
                f"and at {offset} in epoch {leader_epoch}"
            )
        self.ends[name] = leader_epoch, offset

    # What must be there in the end

    def check_log(self, name: TopicPartition, log: Mapping[int, bytes], start: int) -> None:
        """What was acknowledged or read is where it was, and each producer's values come once, in order."""
        for what, known in (
            ("acknowledged", self.acknowledged.get(name, {})),
            ("read", self.read.get(name, {})),
        ):
            for offset, value in known.items():
                if offset >= start and log.get(offset) != value:
                    raise BrokenPromise(
                        f"no {what} record is lost: {value!r} was {what} at offset {offset} of {name}, which "
                        f"starts at {start} and has {log.get(offset)!r} there"
                    )
        self._check_order(name, log, start)

    def _check_order(self, name: TopicPartition, log: Mapping[int, bytes], start: int) -> None:
        latest: dict[bytes, int] = {}
        for offset in sorted(log):
            writer, _, number = log[offset].partition(b":")
            if writer.startswith(b"t"):
                # Transactions that were given up leave gaps.
                if int(number) <= latest.get(writer, -1):
                    raise BrokenPromise(f"records come once, in order: {log[offset]!r} at {offset} of {name}")
            elif writer in latest and int(number) != latest[writer] + 1:
                raise BrokenPromise(
                    f"records come once, in order: {log[offset]!r} at offset {offset} of {name} comes after "
                    f"{latest[writer]}"
                )
            latest[writer] = int(number)

    def check_transactions(self, visible: Mapping[TopicPartition, set[bytes]]) -> None:
        """Of each transaction everything is there or nothing; ``visible`` is what is committed."""
        for name, attempts in self.attempts.items():
            for attempt in attempts:
                there = [value in visible[where] for where, value in attempt.values if where in visible]
                if attempt.fate is Fate.COMMITTED and not all(there):
                    raise BrokenPromise(f"committed transactions are whole: {attempt} of {name} is {there}")
                if attempt.fate is Fate.ABORTED and any(there):
                    raise BrokenPromise(f"no aborted record is read: {attempt} of {name} is {there}")
                if attempt.fate is Fate.UNKNOWN:
                    certain = [
                        value in visible[where]
                        for where, value in attempt.values
                        if where in visible and value in attempt.acknowledged
                    ]
                    if any(certain) and not all(certain):
                        raise BrokenPromise(f"transactions are atomic: {attempt} of {name} is {certain}")

    def check_offset(self, group: str, offset: int) -> None:
        """A group's offset is what was committed last."""
        low, high = self.committed_offsets.get(group, -1), self.asked_offsets.get(group, -1)
        if not low <= offset <= high:
            raise BrokenPromise(
                f"committed offsets are kept: group {group} is at {offset}, {low} was acknowledged, {high} "
                "asked for"
            )

    def check_transactional_offset(self, name: str, offset: int) -> None:
        """The offset that transactions committed is of the last one that was committed."""
        possible = {-1}
        for attempt in self.attempts.get(name, []):
            if attempt.commits_offset and attempt.fate is Fate.COMMITTED:
                possible = {attempt.number}
            elif attempt.commits_offset and attempt.fate is Fate.UNKNOWN:
                possible.add(attempt.number)
        if offset not in possible:
            raise BrokenPromise(
                f"offsets belong to their transactions: group {name} is at {offset}, it could be at "
                f"{sorted(possible)}"
            )
