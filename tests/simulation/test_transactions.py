"""Transactions under a seeded storm: producers stall, die and are replaced, brokers crash, markers lag."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from tests.simulation.transaction_history import BrokenPromise, TransactionHistory
from tests.simulation.transaction_world import TransactionWorld
from tests.simulation.transactional_producer import TIMEOUT_MS, TransactionalProducer
from tests.simulation.world import Actor, Link, World

from tidelog.broker.coordination.transaction_verification import UNVERIFIED_OK, TransactionVerification
from tidelog.coordinator.group.offsets import requests
from tidelog.coordinator.runtime import Runtime
from tidelog.scheduling.promise import Promise
from tidelog.scheduling.slices import run_to_end
from tidelog.storage.log.log import Log
from tidelog.wire.messages.offset_fetch import OffsetFetchRequestGroup, OffsetFetchRequestTopics

TOPIC, PARTITIONS = "output", 3
IDS = ("alpha", "beta")
STORM_MS, CALM_MS, LOOK_MS = 90_000, 4 * TIMEOUT_MS, 500
SEEDS = range(int(os.environ.get("TIDELOG_SEEDS", "8")))


class Storm:
    """Producers in a world that does not mean well by them."""

    def __init__(self, seed: int, version: int, directory: Path) -> None:
        self.world = World(seed)
        self.version = version
        self.broker = TransactionWorld(self.world, directory, TOPIC, PARTITIONS, version)
        self.history = TransactionHistory()
        self.actors: list[Actor] = []
        self.producers: list[TransactionalProducer] = []
        self.links: list[Link] = []
        self.broker.on_crash.append(self._break_links)
        self.logs: dict[object, Log] = {
            name: partition.log
            for name, partition in self.broker.partitions.by_name.items()
            if name.topic == TOPIC
        }
        self.storming = True

    def add(self, transactional_id: str) -> None:
        """Another incarnation; the one before may still be there, and not know."""
        producer = TransactionalProducer(self.broker, self.history, transactional_id, TOPIC, self.version)
        link = Link(self.world, lambda: self.broker.up, 0.02)
        name = f"{transactional_id}.{len(self.actors)}"
        self.actors.append(Actor(self.world, name, link, producer.life()))
        self.producers.append(producer)
        self.links.append(link)

    def blow(self) -> None:
        if not self.storming:
            return
        dice = self.world.random
        misfortune = dice.choice(["replace", "kill", "stall", "crash", "none"])
        alive = [actor for actor in self.actors if actor.alive]
        if misfortune == "replace" or not alive:
            self.add(dice.choice(IDS))
        elif misfortune == "crash":
            self.broker.crash(dice.randint(20, 2_000))
        elif alive and misfortune == "kill":
            dice.choice(alive).kill()
        elif alive and misfortune == "stall":
            dice.choice(alive).stall(dice.randint(100, 2 * TIMEOUT_MS))
        self.world.after(dice.randint(100, 4_000), self.blow)

    def look(self) -> None:
        """What readers see must be right at any moment."""
        self.history.check_visible(self.logs)  # type: ignore[arg-type]
        self.world.after(LOOK_MS, self.look)

    def run(self) -> None:
        for transactional_id in IDS:
            self.add(transactional_id)
        self.world.after(LOOK_MS, self.look)
        self.blow()
        self.world.run(STORM_MS)
        self.storming = False
        for link, producer in zip(self.links, self.producers, strict=True):
            link.loss = 0.0
            producer.leaving = True
        self.world.run(CALM_MS)

    def finish(self) -> None:
        """Everything has come to rest: nothing open, nothing held back, all promises kept."""
        offsets = {transactional_id: self._committed(transactional_id) for transactional_id in IDS}
        self.history.check_end(self.logs, offsets)  # type: ignore[arg-type]
        for name, log in self.logs.items():
            if log.last_stable_offset != log.log_end_offset:
                raise BrokenPromise(f"{name} is held back at {log.last_stable_offset}")

    def _committed(self, group_id: str) -> int:
        topics = [OffsetFetchRequestTopics(name=TOPIC, partition_indexes=[0])]
        request = OffsetFetchRequestGroup(group_id=group_id, topics=topics)
        reply = run_to_end(
            self.broker.groups.read_in_slices(
                group_id, lambda shard: requests.fetch(shard.offsets, request, require_stable=True)
            )
        )
        partition = reply.result().topics[0].partitions[0]
        if partition.error_code:
            raise BrokenPromise(f"the offsets of {group_id} are those of a transaction that nobody ends")
        return partition.committed_offset

    def _break_links(self) -> None:
        for link in self.links:
            link.break_off()


def run(seed: int, version: int, directory: Path) -> Storm:
    storm = Storm(seed, version, directory)
    try:
        storm.run()
        storm.finish()
    except BrokenPromise as error:
        error.add_note(f"seed {seed}; the last events:\n" + "\n".join(storm.world.history))
        raise
    finally:
        for partition in storm.broker.partitions.by_name.values():
            partition.log.close(clean=False)
    return storm


@pytest.mark.parametrize("version", [1, 2])
@pytest.mark.parametrize("seed", SEEDS)
def test_transactions_are_atomic_fenced_and_seen_once(seed: int, version: int, tmp_path: Path) -> None:
    storm = run(seed, version, tmp_path)
    outcomes = [attempt.outcome for attempt in storm.history.attempts]
    assert outcomes.count("committed") > 5
    assert outcomes.count("aborted") > 0


def broken_promises(seeds: range, version: int, directory: Path) -> int:
    """How many of the seeds show something that must not be."""
    found = 0
    for seed in seeds:
        try:
            run(seed, version, directory / str(seed))
        except BrokenPromise:
            found += 1
    return found


def test_a_coordinator_that_answers_before_the_commit_is_found_out(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def at_once(
        self: object, held: object, end: int, response: Any, then: Callable[[None], object] | None
    ) -> Promise[Any]:
        if then is not None:
            then(None)
        return response if isinstance(response, Promise) else Promise.of(response)

    monkeypatch.setattr(Runtime, "_when_committed", at_once)
    assert broken_promises(range(12), 1, tmp_path)


def test_partitions_that_believe_everybody_are_found_out(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(TransactionVerification, "verify", lambda *given: Promise.of(UNVERIFIED_OK))
    assert broken_promises(range(3), 2, tmp_path)
