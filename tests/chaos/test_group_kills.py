"""Groups under kill -9: of members, of the broker, at any moment, while records flow.

Whatever happens: each record reaches somebody, committed offsets never go back, no partition has two live
owners, and when the dust has settled each partition has exactly one.
"""

from __future__ import annotations

import random
import threading
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path
from types import TracebackType

import pytest
from foreign.broker_process import BrokerProcess
from tests.chaos.amount import WHOLE, times
from tests.rigs.group_members.brokers import group_broker
from tests.rigs.group_members.member import Place
from tests.rigs.group_members.team import Team
from tests.rigs.group_members.topics import Stream, create
from tests.rigs.raw_client import RawClient

from tidelog.wire.messages.offset_fetch import (
    OffsetFetchRequest,
    OffsetFetchRequestGroup,
    OffsetFetchResponse,
)

PARTITIONS = 6
STEPS = times(4, 8)
MOST_MEMBERS = 4

# Client and protocol of those who may come: one kind of group has both protocols in it, for good.
CASTS = {
    "classic": [("confluent", "classic"), ("kafka-python", "classic"), ("aiokafka", "classic")],
    "consumer": [("confluent", "consumer")],
    "both": [("confluent", "consumer"), ("kafka-python", "classic"), ("confluent", "classic")],
    "ours": [("tidelog", "classic"), ("tidelog-async", "classic")],
    "ours, cooperative": [("tidelog", "classic"), ("tidelog-async", "classic"), ("confluent", "classic")],
    "ours of both protocols": [("tidelog", "consumer"), ("tidelog-async", "classic"), ("tidelog", "classic")],
    "ours and librdkafka": [
        ("tidelog", "consumer"),
        ("tidelog-async", "consumer"),
        ("confluent", "consumer"),
    ],
}
SAMPLE = ["both", "ours, cooperative", "ours and librdkafka"]


class CommitWatch:
    """Asks for the group's offsets all the time, and remembers whenever one was lower than before."""

    def __init__(self, bootstrap: str, group: str) -> None:
        self.seen: dict[Place, int] = {}
        self.went_back: list[tuple[Place, int, int]] = []
        self.answers = 0
        host, _, port = bootstrap.rpartition(":")
        self._address = (host, int(port))
        self._request = OffsetFetchRequest(groups=[OffsetFetchRequestGroup(group_id=group, topics=None)])
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._run)

    def __enter__(self) -> CommitWatch:
        self._thread.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self._stop.set()
        self._thread.join(60)
        assert not self._thread.is_alive()

    def _run(self) -> None:
        while not self._stop.wait(0.05):
            try:
                with RawClient(*self._address, timeout_s=10) as client:
                    self._ask(client)
            except OSError:  # the broker is down
                continue

    def _ask(self, client: RawClient) -> None:
        while not self._stop.wait(0.05):
            (group,) = client.ask(9, self._request, OffsetFetchResponse).groups
            if group.error_code:  # the group is being loaded
                continue
            offsets = {
                (topic.name, each.partition_index): each.committed_offset
                for topic in group.topics
                for each in topic.partitions
            }
            for place, before in self.seen.items():
                if offsets.get(place, -1) < before:
                    self.went_back.append((place, before, offsets.get(place, -1)))
            self.seen |= offsets
            self.answers += 1


class Havoc:
    """The blows that may fall on a group and its broker."""

    def __init__(
        self, broker: BrokerProcess, team: Team, cast: list[tuple[str, str]], chance: random.Random
    ) -> None:
        self.broker = broker
        self.team = team
        self._cast = cast
        self._chance = chance

    def newcomer(self) -> None:
        client, protocol = self._chance.choice(self._cast)
        self.team.join(client, protocol=protocol)

    def kill_member(self) -> None:
        self._chance.choice(self.team.live).kill()

    def dismiss_member(self) -> None:
        self._chance.choice(self.team.live).leave()

    def kill_broker(self) -> None:
        self.broker.kill()
        self.broker.start()

    def step(self) -> str:
        """One blow; there is always somebody left, and never a crowd."""
        blows: list[Callable[[], None]] = [self.kill_broker]
        if len(self.team.live) < MOST_MEMBERS:
            blows += [self.newcomer, self.newcomer]
        if len(self.team.live) > 1:
            blows += [self.kill_member, self.kill_member, self.dismiss_member]
        blow = self._chance.choice(blows)
        blow()
        return blow.__name__


@pytest.mark.slow
@pytest.mark.timeout(300)
@pytest.mark.parametrize("cast", CASTS if WHOLE else SAMPLE)
def test_no_record_is_lost_and_no_offset_goes_back(tmp_path: Path, chance: random.Random, cast: str) -> None:
    broker = group_broker(tmp_path)
    broker.start()
    assignor = "cooperative-sticky" if "cooperative" in cast else None
    try:
        places = create(broker.address, "numbers", PARTITIONS)
        with (
            Team(broker.address, "survivors", ["numbers"], session_ms=2000, assignor=assignor) as team,
            CommitWatch(broker.address, "survivors") as watch,
        ):
            havoc = Havoc(broker, team, CASTS[cast], chance)
            with Stream(broker.address, places) as stream:
                havoc.newcomer()
                havoc.newcomer()
                for _ in range(STEPS):
                    goal = sum(team.delivered().values()) + chance.randrange(20, 200)
                    enough = partial(lambda goal: sum(team.delivered().values()) >= goal, goal)
                    team.wait(f"{goal} records", enough, 60)
                    print(time.strftime("%X"), havoc.step())
            team.wait_for_records(stream.ends, 60)
            team.wait_for_owners(places, seconds=60)
            team.wait("the last commits", lambda: watch.seen == stream.ends, 60)
        assert watch.answers > 0
        assert watch.went_back == []
        team.check_ownership()
    finally:
        broker.kill()
