"""Groups under a seeded storm: members come, stall, vanish and leave, links break, the broker crashes."""

from __future__ import annotations

import os
from collections.abc import Callable
from typing import Any

import pytest
from tests.simulation.classic_member import ClassicConsumer
from tests.simulation.consumer_member import NewConsumer, Ownership
from tests.simulation.coordination import Coordination
from tests.simulation.group_history import BrokenPromise, GroupHistory
from tests.simulation.world import Actor, Link, World

from tidelog.coordinator.group.classic.group import ClassicGroup
from tidelog.coordinator.runtime import Runtime
from tidelog.scheduling.promise import Promise

TOPIC, PARTITIONS, GROUP = "events", 7, "workers"
STORM_MS, CALM_MS = 120_000, 60_000
SEEDS = range(int(os.environ.get("TIDELOG_SEEDS", "12")))

Member = ClassicConsumer | NewConsumer


class Storm:
    """A group in a world that does not mean well by it."""

    def __init__(self, seed: int, kinds: tuple[str, ...]) -> None:
        self.world = World(seed)
        self.broker = Coordination(self.world, {TOPIC: PARTITIONS})
        self.history = GroupHistory()
        self.ownership = Ownership(self.broker, self.broker.config.int("group.consumer.session.timeout.ms"))
        self.kinds = kinds
        self.actors: list[tuple[Actor, Member]] = []
        self.links: list[Link] = []
        self.loss = 0.02
        self.broker.on_crash.append(self._break_links)
        for _ in range(3):
            self.add_member()

    def add_member(self) -> None:
        kind = self.world.random.choice(self.kinds)
        name = f"{kind}-{len(self.actors)}"
        member: Member
        if kind == "classic":
            member = ClassicConsumer(self.broker, self.history, GROUP, TOPIC, name)
        else:
            member = NewConsumer(self.broker, self.history, self.ownership, GROUP, TOPIC, name)
        link = Link(self.world, lambda: self.broker.up, self.loss)
        actor = Actor(self.world, name, link, member.life())
        if isinstance(member, NewConsumer):
            member.is_alive = lambda: actor.alive
        self.links.append(link)
        self.actors.append((actor, member))
        self.world.note(f"{name}: comes")

    def blow(self) -> None:
        """One misfortune, and the next one later."""
        dice = self.world.random
        alive = [each for each in self.actors if each[0].alive]
        misfortune = dice.choice(["come", "kill", "stall", "leave", "crash", "none", "none"])
        if len(alive) < 2 or (misfortune == "come" and len(alive) < 6):
            self.add_member()
        elif misfortune == "crash":
            self.broker.crash(dice.randint(50, 3_000))
        elif alive and misfortune in ("kill", "stall", "leave"):
            actor, member = dice.choice(alive)
            self.world.note(f"{actor.name}: {misfortune}")
            if misfortune == "kill":
                actor.kill()
            elif misfortune == "stall":
                actor.stall(dice.randint(500, 30_000))
            else:
                member.leaving = True
        self.world.after(dice.randint(200, 6_000), self._blow_on)

    def _blow_on(self) -> None:
        if self.storming:
            self.blow()

    def run(self) -> None:
        self.storming = True
        self.blow()
        self.world.run(STORM_MS)
        self.storming = False
        for link in self.links:
            link.loss = 0.0
        self.loss = 0.0
        while sum(actor.alive and not member.leaving for actor, member in self.actors) < 2:
            self.add_member()
        self.world.run(CALM_MS)

    def settled(self) -> list[Member]:
        """The members that are left when the storm is over."""
        return [member for actor, member in self.actors if actor.alive and not member.leaving]

    def _break_links(self) -> None:
        for link in self.links:
            link.break_off()


def run(seed: int, kinds: tuple[str, ...], check: Callable[[Storm], None]) -> None:
    storm = Storm(seed, kinds)
    storm.run()
    try:
        check(storm)
    except AssertionError as error:
        error.add_note(f"seed {seed}; the last events:\n" + "\n".join(storm.world.history))
        raise


def everything_is_owned_once_and_moves(storm: Storm) -> None:
    """When the storm is over, every partition has one owner, and commits go on."""
    owned = [partition for member in storm.settled() for partition in member.positions]
    assert sorted(index for _, index in owned) == list(range(PARTITIONS))
    before = storm.history.commits
    storm.world.run(20_000)
    assert storm.history.commits > before
    assert storm.history.rebalances > 3


@pytest.mark.parametrize("seed", SEEDS)
def test_a_classic_group_keeps_its_promises_and_recovers(seed: int) -> None:
    run(seed, ("classic",), everything_is_owned_once_and_moves)


@pytest.mark.parametrize("seed", SEEDS)
def test_a_group_of_the_new_protocol_keeps_its_promises_and_recovers(seed: int) -> None:
    run(seed, ("new",), everything_is_owned_once_and_moves)


@pytest.mark.parametrize("seed", SEEDS)
def test_a_group_of_both_protocols_keeps_its_promises_and_recovers(seed: int) -> None:
    run(seed, ("classic", "new"), everything_is_owned_once_and_moves)


def broken_promises(seeds: range) -> int:
    """How many of the seeds show something that must not be."""
    found = 0
    for seed in seeds:
        try:
            run(seed, ("classic",), lambda storm: None)
        except BrokenPromise:
            found += 1
    return found


def test_a_coordinator_that_fences_nobody_is_found_out(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(ClassicGroup, "check_offset_commit", lambda *given, **named: None)
    assert broken_promises(range(10))


def test_a_coordinator_that_answers_before_the_commit_is_found_out(monkeypatch: pytest.MonkeyPatch) -> None:
    def at_once(
        self: object, held: object, end: int, response: Any, then: Callable[[None], object] | None
    ) -> Promise[Any]:
        if then is not None:
            then(None)
        return response if isinstance(response, Promise) else Promise.of(response)

    monkeypatch.setattr(Runtime, "_when_committed", at_once)
    assert broken_promises(range(25))
