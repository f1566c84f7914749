"""The members of one group together: who owns what, what was delivered, and whether that was right.

    with Team(bootstrap, "readers", ["numbers"]) as team:
        one = team.join("confluent")
        two = team.join("kafka-python", assignor="roundrobin")
        team.wait_for_owners({("numbers", 0), ("numbers", 1)})
        team.check_ownership()

`check_ownership` puts what all members told in the order of time: nobody may get a partition that another
live member still has, nobody may deliver records of a partition that is not theirs, and while a partition
stays with one member its offsets follow one another. What a member does after it was stopped by a signal,
killed, or told by its library that its partitions are lost is a zombie's: it may lag, and is left out.
"""

from __future__ import annotations

import itertools
import select
import time
from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from types import TracebackType
from typing import Any

from tests.rigs.group_members.member import Event, Member, Place, command_member, python_member
from tests.rigs.group_members.topics import committed

WAIT_S = 30.0

_names = itertools.count(1)

# At one millisecond: what ends an ownership goes before what begins one.
_RANK = {"revoked": 0, "lost": 0, "ended": 0, "assigned": 1, "records": 2}


class Team:
    """The members of a group that a test has started."""

    def __init__(self, bootstrap: str, group: str, topics: Sequence[str] = (), **settings: Any) -> None:
        """`settings` are those of every member, see python_member."""
        self.bootstrap = bootstrap
        self.group = group
        self.members: list[Member] = []
        self._settings = {
            "bootstrap": bootstrap,
            "group": group,
            "topics": list(topics),
            "protocol": "classic",
            "session_ms": 6000,
            "heartbeat_ms": 100,
            "max_poll_ms": 10_000,
            "commit": "each",
            **settings,
        }

    def __enter__(self) -> Team:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        if error is not None:
            self.pump()
            print("\n".join(map(str, self.history()[-80:])))
        for member in self.members:
            member.close_line()

    def join(self, client: str | Sequence[str], **settings: Any) -> Member:
        """Start a member: the name of a Python client, or the command of another."""
        named = client if isinstance(client, str) else settings.pop("label")
        name = f"{named}-{next(_names)}"
        chosen = {**self._settings, "client": named, "name": name, **settings}
        if chosen["protocol"] == "classic":
            # Kafka and librdkafka want the session to be no longer than a poll may take.
            chosen["session_ms"] = min(chosen["session_ms"], chosen["max_poll_ms"])
        member = python_member(chosen) if isinstance(client, str) else command_member(client, chosen)
        self.members.append(member)
        return member

    @property
    def live(self) -> list[Member]:
        return [member for member in self.members if not member.gone]

    def pump(self) -> None:
        for member in self.members:
            member.pump()

    def wait(self, what: str, condition: Callable[[], Any], seconds: float = WAIT_S) -> None:
        """Until the condition holds; the last events are shown when it does not."""
        deadline = time.monotonic() + seconds
        while True:
            self.pump()
            if condition():
                return
            if time.monotonic() > deadline:
                owned = {member.name: sorted(member.assignment) for member in self.live}
                raise AssertionError(f"not within {seconds} s: {what}; now {owned}")
            select.select([member.reading for member in self.live], [], [], 0.02)

    def owners(self) -> dict[Place, list[Member]]:
        owners: dict[Place, list[Member]] = {}
        for member in self.live:
            for place in member.assignment:
                owners.setdefault(place, []).append(member)
        return owners

    def settled(self, places: Iterable[Place], members: Iterable[Member] | None = None) -> bool:
        """Whether each partition has one owner, and each member something."""
        owners = self.owners()
        workers = self.live if members is None else list(members)
        return (
            owners.keys() == set(places)
            and all(len(each) == 1 for each in owners.values())
            and {each[0].name for each in owners.values()} == {member.name for member in workers}
        )

    def wait_for_owners(
        self, places: Iterable[Place], members: Iterable[Member] | None = None, seconds: float = WAIT_S
    ) -> None:
        """Until the partitions are shared among all members (or those given), one owner each."""
        wanted, workers = set(places), None if members is None else list(members)
        self.wait("one owner for every partition", lambda: self.settled(wanted, workers), seconds)

    def wait_for_commits(self, places: Iterable[Place]) -> None:
        """Until there is a commit for every partition.

        Where there is none, librdkafka asks for the first offset after a pause. Who loses the partition
        within this pause and gets it back later is thrown back to the beginning when it is over, whatever was
        committed and whatever the broker has answered since (seen in a trace of librdkafka 2.16).
        """
        wanted = list(places)
        self.wait(
            "a commit for every partition",
            lambda: all(offset > 0 for offset in committed(self.bootstrap, self.group, wanted).values()),
        )

    def leave(self, member: Member) -> None:
        """Let a member with partitions and records to read leave, once it is done with the last rebalance.

        In the middle of one nobody can commit: what it has read meanwhile would go to somebody else again,
        with Java's consumers as with ours. Who commits after all partitions have found their owners has
        come to the new generation.
        """
        before = committed(self.bootstrap, self.group, member.assignment)
        self.wait(
            f"a commit of {member.name}",
            lambda: committed(self.bootstrap, self.group, before) != before,
        )
        member.leave()

    def delivered(self) -> Counter[tuple[Place, int]]:
        return Counter(record for member in self.members for record in member.delivered)

    def wait_for_records(self, ends: dict[Place, int], seconds: float = WAIT_S) -> None:
        """Until every record below these offsets was delivered to somebody."""
        wanted = {(place, offset) for place, end in ends.items() for offset in range(end)}
        try:
            self.wait(f"all of {len(wanted)} records", lambda: wanted <= self.delivered().keys(), seconds)
        finally:
            self.check_nothing_lost(ends)

    def history(self) -> list[Event]:
        """What all members told, in the order of time."""
        events = [event for member in self.members for event in member.events]
        return sorted(events, key=lambda event: (round(event.at, 1), _RANK.get(event.kind, 3)))

    def check_exactly_once(self, ends: dict[Place, int]) -> None:
        """Each record once, in all: for histories in which nobody crashed."""
        self.check_ownership()
        doubled = {record: times for record, times in self.delivered().items() if times > 1}
        assert not doubled, f"delivered more than once: {doubled}"
        self.check_nothing_lost(ends)

    def check_nothing_lost(self, ends: dict[Place, int]) -> None:
        wanted = {(place, offset) for place, end in ends.items() for offset in range(end)}
        missing = wanted - self.delivered().keys()
        assert not missing, f"never delivered: {sorted(missing)[:20]}"

    def check_ownership(self) -> None:
        """No partition with two live owners, and no records but from the owner, in order and without gaps.

        Ours gives each record of an assignment once. Others may begin its partitions a second time:
        librdkafka 2.16 did so once in some thousand runs, without a rebalance.
        """
        self.pump()
        owner: dict[Place, Member] = {}
        last: dict[Place, int] = {}
        zombies: dict[str, set[Place]] = {}
        history = self.history()
        for number, event in enumerate(history):
            mine = zombies.setdefault(event.member.name, set())
            match event.kind:
                case "assigned":
                    for place in event.places:
                        before = owner.get(place)
                        if before not in (None, event.member):
                            assert before is not None
                            assert loses(history[number:], before, place), (
                                f"{place} went to {event.member.name} while {before.name} had it"
                            )
                            zombies[before.name].add(place)
                            last.pop(place, None)
                        owner[place] = event.member
                    mine -= set(event.places)
                case "revoked" | "lost":
                    for place in event.places:
                        if owner.get(place) is event.member:
                            del owner[place]
                            last.pop(place, None)
                    if event.kind == "revoked":
                        # One that was frozen learns late of its loss, and has records from before it: these
                        # may still come, until it is assigned something.
                        mine -= set(event.places)
                case "ended":
                    for place in [place for place, who in owner.items() if who is event.member]:
                        del owner[place]
                        last.pop(place, None)
                        mine.add(place)
                case "records":
                    self._check_records(event, owner, last, mine)

    def _check_records(
        self, event: Event, owner: dict[Place, Member], last: dict[Place, int], zombie: set[Place]
    ) -> None:
        for topic, partition, offset in event.fields["records"]:
            place = (topic, partition)
            if place in zombie:
                continue
            assert owner.get(place) is event.member, (
                f"{event.member.name} delivered {place} at {offset}, which is not its"
            )
            before = last.get(place)
            again = before is not None and offset <= before and not event.member.ours
            assert before is None or offset == before + 1 or again, f"{place}: {offset} came after {before}"
            last[place] = offset


def loses(later: Iterable[Event], member: Member, place: Place) -> bool:
    """Whether the next that the member tells of the partition is that it has lost it, or nothing at all."""
    for event in later:
        if event.member is not member:
            continue
        if event.kind in ("ended", "lost") and (event.kind == "ended" or place in event.places):
            return True
        if event.kind in ("assigned", "revoked") and place in event.places:
            return False
    return False
