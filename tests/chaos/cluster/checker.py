"""What is wrong with a history: the anomalies that Jepsen's Kafka workload names, as far as they can be told.

Pure: events in, findings out. ``FINAL`` is the process that reads everything once the cluster is whole
again; what it has not seen is not there. All readers of a history read committed records only.

lost write            acknowledged (or of a committed transaction), and not there, though later ones are
unseen write          acknowledged, and not there at the end of its partition
inconsistent offset   two values were seen at, or acknowledged for, one offset
duplicate             one value is at two offsets, or was copied twice
phantom               a value that nobody has sent
aborted read          of a transaction that was aborted, or never asked to commit (G1a)
precommitted read     of a transaction whose commit was asked for only later
torn transaction      some of it is there and some is not
poll skip             a reader passed over a record that others have seen
nonmonotonic poll     a reader went back by itself
out-of-order write    two records of one producer are in a partition in the other order
not copied            input of the transactional loops that never became output
"""

from __future__ import annotations

from bisect import bisect_left
from collections import defaultdict
from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass, field

from tests.chaos.cluster.history import ASSIGN, COMMIT, FAIL, INFO, INVOKE, OK, POLL, SEND, TXN, Event

FINAL = "final"
ANOMALIES = (
    "lost write",
    "unseen write",
    "inconsistent offset",
    "duplicate",
    "phantom",
    "aborted read",
    "precommitted read",
    "torn transaction",
    "poll skip",
    "nonmonotonic poll",
    "out-of-order write",
    "not copied",
)

Place = tuple[str, int]
Findings = dict[str, list[str]]


@dataclass(slots=True)
class Transaction:
    """One transaction, as far as its history tells."""

    name: str
    values: list[str] = field(default_factory=list)
    commit_asked_ms: float | None = None
    outcome: str = INFO


class Checker:
    """Looks through one history."""

    def __init__(self, events: Iterable[Event], groups: Mapping[str, Collection[str]] | None = None) -> None:
        """``groups`` names the processes of each group that must have read everything together."""
        self.findings: Findings = {name: [] for name in ANOMALIES}
        self._groups = groups or {}
        self._sent: dict[str, Place] = {}
        self._acknowledged: dict[str, tuple[Place, int]] = {}
        self._transactions: dict[str, Transaction] = {}
        self._transaction_of: dict[str, Transaction] = {}
        self._polls: list[Event] = []
        self._values_at: dict[tuple[Place, int], set[str]] = defaultdict(set)
        self._places_of: dict[str, set[tuple[Place, int]]] = defaultdict(set)
        self._final: dict[str, tuple[Place, int]] = {}
        self.repeated: dict[str, set[tuple[Place, int]]] = {}
        """Values that are at several offsets; each is a finding."""
        for event in events:
            self._take(event)
        self._visible = self._visible_offsets()

    def check(self) -> Findings:
        """All findings, by anomaly; none of each is what is wanted."""
        self._check_writes()
        self._check_offsets()
        self._check_transactions()
        self._check_readers()
        self._check_groups()
        self._check_order()
        return self.findings

    def check_copies(self, source: str, copy: str) -> None:
        """What is in one topic must have been copied into the other, once (``copiers``)."""
        copies: dict[str, list[str]] = defaultdict(list)
        for value, ((topic, _), _) in self._final.items():
            if topic == copy:
                copies[value.partition("|")[0]].append(value)
        for value, ((topic, _), _) in self._final.items():
            if topic == source and value not in copies:
                self._find("not copied", value)
        for value, found in copies.items():
            if len(found) > 1:
                self._find("duplicate", f"{value} was copied {len(found)} times: {found}")

    def forgive_repeats(self, values: Collection[str]) -> None:
        """Strike values at several offsets from the findings; ``own_repeats`` says which."""
        gone = {_repeat(value, self.repeated[value]) for value in values}
        self.findings["duplicate"] = [each for each in self.findings["duplicate"] if each not in gone]

    # Taking in

    def _take(self, event: Event) -> None:
        if event.operation == SEND:
            if event.kind == INVOKE:
                topic, partition, _, value = event.records[0]
                self._sent[value] = topic, partition
            elif event.kind == OK:
                topic, partition, offset, value = event.records[0]
                self._acknowledged[value] = (topic, partition), offset
                self._note((topic, partition), offset, value)
        elif event.operation == TXN:
            transaction = self._transactions.setdefault(event.name, Transaction(event.name))
            if event.kind == INVOKE:
                transaction.values = [record[3] for record in event.records]
                for topic, partition, _, value in event.records:
                    self._sent[value] = topic, partition
                    self._transaction_of[value] = transaction
            else:
                transaction.outcome = event.kind
        elif event.operation == COMMIT:
            self._transactions[event.name].commit_asked_ms = event.time_ms
        elif event.kind == OK and event.operation in (POLL, ASSIGN):
            self._polls.append(event)
            if event.operation == POLL:
                for topic, partition, offset, value in event.records:
                    self._note((topic, partition), offset, value)
                    if event.process == FINAL:
                        self._final[value] = (topic, partition), offset

    def _note(self, place: Place, offset: int, value: str) -> None:
        if offset >= 0:
            self._values_at[place, offset].add(value)
            self._places_of[value].add((place, offset))

    def _visible_offsets(self) -> dict[Place, list[int]]:
        """The offsets of every partition that somebody has read."""
        seen: dict[Place, set[int]] = defaultdict(set)
        for event in self._polls:
            for topic, partition, offset, _ in event.records:
                if event.operation == POLL:
                    seen[topic, partition].add(offset)
        return {place: sorted(offsets) for place, offsets in seen.items()}

    def _find(self, anomaly: str, what: str) -> None:
        self.findings[anomaly].append(what)

    # Looking

    def _check_writes(self) -> None:
        last: dict[Place, int] = defaultdict(lambda: -1)
        for place, offset in self._final.values():
            last[place] = max(last[place], offset)
        for value, (place, offset) in self._acknowledged.items():
            if value not in self._final:
                anomaly = "lost write" if offset < last[place] else "unseen write"
                self._find(anomaly, f"{value}, acknowledged at {place} {offset}, which ends at {last[place]}")
        for transaction in self._transactions.values():
            if transaction.outcome == OK:
                for value in transaction.values:
                    if value not in self._final:
                        self._find("lost write", f"{value} of committed transaction {transaction.name}")

    def _check_offsets(self) -> None:
        for (place, offset), values in self._values_at.items():
            if len(values) > 1:
                self._find("inconsistent offset", f"{place} {offset}: {sorted(values)}")
        for value, places in self._places_of.items():
            if len(places) > 1:
                self.repeated[value] = places
                self._find("duplicate", _repeat(value, places))
            if value not in self._sent:
                self._find("phantom", f"{value} at {sorted(places)}")

    def _check_transactions(self) -> None:
        told: set[str] = set()
        for event in self._polls:
            for _, _, _, value in event.records:
                transaction = self._transaction_of.get(value)
                if transaction is None or value in told:
                    continue
                asked_ms = transaction.commit_asked_ms
                if transaction.outcome == FAIL or asked_ms is None:
                    told.add(value)
                    self._find("aborted read", f"{value} of {transaction.name}, by {event.process}")
                elif event.time_ms < asked_ms:
                    told.add(value)
                    self._find("precommitted read", f"{value} of {transaction.name}, by {event.process}")
        for transaction in self._transactions.values():
            there = sum(value in self._final for value in transaction.values)
            if transaction.outcome == INFO and 0 < there < len(transaction.values):
                count = len(transaction.values)
                self._find("torn transaction", f"{transaction.name}: {there} of {count} are there")

    def _check_readers(self) -> None:
        # By reader and partition: how many of the visible records it has passed. Those that never were given
        # partitions by a group began at the start.
        members = {event.process for event in self._polls if event.operation == ASSIGN}
        passed: dict[tuple[str, Place], int | None] = {}
        for event in self._polls:
            for topic, partition, offset, value in event.records:
                reader = event.process, (topic, partition)
                if event.operation == ASSIGN:
                    passed[reader] = None
                    continue
                index = bisect_left(self._visible[topic, partition], offset)
                expected = passed.get(reader, None if event.process in members else 0)
                if expected is not None and index != expected:
                    anomaly = "poll skip" if index > expected else "nonmonotonic poll"
                    visible = self._visible[topic, partition]
                    self._find(anomaly, f"{event.process} at {topic}-{partition}: {visible[expected - 1]} → "
                               f"{offset} ({value}), {abs(index - expected)} records")  # fmt: skip
                passed[reader] = index + 1

    def _check_groups(self) -> None:
        for group, processes in self._groups.items():
            read: set[tuple[Place, int]] = set()
            topics: set[str] = set()
            for event in self._polls:
                if event.process in processes:
                    topics.update(record[0] for record in event.records)
                    if event.operation == POLL:
                        read.update(((each[0], each[1]), each[2]) for each in event.records)
            for place, offsets in self._visible.items():
                missed = [offset for offset in offsets if (place, offset) not in read]
                if place[0] in topics and missed:
                    self._find(
                        "poll skip", f"group {group} at {place}: {len(missed)} never read, {missed[:5]}"
                    )

    def _check_order(self) -> None:
        by_place: dict[Place, list[tuple[int, str]]] = defaultdict(list)
        for value, (place, offset) in self._final.items():
            if value not in self._transaction_of:
                by_place[place].append((offset, value))
        for place, records in by_place.items():
            last: dict[str, int] = {}
            for offset, value in sorted(records):
                producer, _, number = value.rpartition(":")
                if number.isdecimal() and int(number) < last.get(producer, -1):
                    self._find(
                        "out-of-order write", f"{value} at {place} {offset} is behind {last[producer]}"
                    )
                if number.isdecimal():
                    last[producer] = max(int(number), last.get(producer, -1))


def total(findings: Findings) -> int:
    """How many anomalies there are."""
    return sum(map(len, findings.values()))


def _repeat(value: str, places: Collection[tuple[Place, int]]) -> str:
    return f"{value} is at {sorted(places)}"
