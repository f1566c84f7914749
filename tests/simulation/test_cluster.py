"""A whole cluster under a seeded storm: nothing that was acknowledged is lost, and replicas agree.

A failing seed is printed and replays: ``TIDELOG_SEED=n pytest tests/simulation/test_cluster.py``.
"""

from __future__ import annotations

import asyncio
import os
from collections.abc import Callable
from pathlib import Path

import pytest
from tests.simulation.cluster_world import ClusterWorld, SimBroker
from tests.simulation.virtual_loop import run_virtually

from tidelog.controller.topics import NewTopic
from tidelog.errors import KafkaError
from tidelog.ids import TopicPartition
from tidelog.records.batch import iter_batches
from tidelog.records.record import Record, decode_batch, encode_batch
from tidelog.replication.followers import Followers
from tidelog.replication.partition import ACKS_ALL, Partition
from tidelog.storage.log import Isolation

TOPIC = "t"
NAMES = [TopicPartition(TOPIC, index) for index in range(2)]
BROKERS = (1, 2, 3)
STORM_S = 40.0
_ONE = os.environ.get("TIDELOG_SEED")
SEEDS = [int(_ONE)] if _ONE else list(range(int(os.environ.get("TIDELOG_SEEDS", "4"))))


class BrokenPromise(AssertionError):
    """An invariant of the cluster does not hold."""


class ClusterStorm:
    """Clients that write, faults that happen, and what must hold all the time."""

    def __init__(self, directory: Path, seed: int) -> None:
        self.world = ClusterWorld(directory, seed)
        self.rng = self.world.rng
        self.acknowledged: dict[TopicPartition, dict[int, bytes]] = {name: {} for name in NAMES}
        self.leaders: dict[tuple[TopicPartition, int], int] = {}
        self.watermarks: dict[tuple[TopicPartition, int, SimBroker], int] = {}
        self.sent = 0
        self.faults: list[str] = []

    async def run(self) -> None:
        world = self.world
        for broker in BROKERS:
            await world.start(broker)
        await self.until(lambda: any(each.controller.is_active for each in world.brokers.values()), 10)
        placed = [(0, (1, 2, 3)), (1, (2, 3, 1))]
        (active,) = [each for each in world.brokers.values() if each.controller.is_active]
        await active.controller.create_topics([NewTopic(TOPIC, -1, -1, assignments=placed)])
        writing = [asyncio.ensure_future(self.write(name)) for name in NAMES for _ in range(2)]
        watching = asyncio.ensure_future(self.watch())
        loop = asyncio.get_running_loop()
        until = loop.time() + STORM_S
        while loop.time() < until:
            await asyncio.sleep(self.rng.uniform(0.2, 3))
            if watching.done():
                break
            await self.fault()
        await self.heal()
        await self.until(self.is_whole, 60)
        for task in writing:
            task.cancel()
        await self.until(self.is_level, 30)
        watching.cancel()
        await asyncio.gather(*writing, watching, return_exceptions=True)
        if not watching.cancelled():
            await watching
        self.check_contents()

    # Clients

    async def write(self, name: TopicPartition) -> None:
        """A producer with acks=all that notes what was acknowledged."""
        while True:
            await asyncio.sleep(self.rng.uniform(0.01, 0.2))
            value = f"{self.sent}".encode()
            self.sent += 1
            leaders = [
                image.leader
                for each in self.world.brokers.values()
                if (image := each.feed.image.partition(*name)) is not None
            ]
            if leaders and (leader := self.rng.choice(leaders)) in self.world.brokers:
                await self.produce(self.world.brokers[leader], name, value)

    async def produce(self, broker: SimBroker, name: TopicPartition, value: bytes) -> None:
        try:
            partition = broker.partitions.get(*name)
            batch = encode_batch([Record(timestamp=1, value=value)])
            info = partition.append(memoryview(bytearray(batch)), ACKS_ALL)
        except KafkaError:
            return
        epoch = partition.leader_epoch
        for _ in range(200):
            await asyncio.sleep(0.01)
            if partition.closed or not partition.is_leader or partition.leader_epoch != epoch:
                return
            if partition.log.high_watermark > info.last_offset:
                self.acknowledged[name][info.last_offset] = value
                return

    # Faults

    async def fault(self) -> None:
        kind = self.rng.choice(
            ["crash", "crash", "restart", "restart", "expire", "cut", "cut", "mend", "leave"]
        )
        alive = sorted(self.world.brokers)
        dead = sorted(set(BROKERS) - self.world.brokers.keys())
        match kind:
            case "crash" if len(alive) > 1:
                self.world.crash(victim := self.rng.choice(alive))
            case "restart" if dead:
                await self.world.start(victim := self.rng.choice(dead))
            case "leave" if len(alive) > 1:
                await self.leave(victim := self.rng.choice(alive))
            case "expire":
                self.world.expire(victim := self.rng.choice(alive))
            case "cut":
                victim = self.rng.randint(1, 3)
                self.world.network.cut.add(frozenset((victim, self.rng.randint(1, 3))))
            case _:
                victim = 0
                self.world.network.cut.clear()
        self.faults.append(f"{asyncio.get_running_loop().time() - 1000:.1f}:{kind}{victim}")

    async def leave(self, broker_id: int) -> None:
        """A controlled shutdown, if the controller can be reached; then the broker is gone."""
        broker = self.world.brokers[broker_id]
        asked = self.world.network.call(
            broker_id,
            broker.controller.active_id,
            lambda other: asyncio.ensure_future(other.controller.shut_down_broker(broker_id, broker.epoch)),
        )
        try:
            await asyncio.wait_for(await asked, 3)
        except (OSError, TimeoutError, KafkaError):
            self.faults.append("(alone)")
        self.world.crash(broker_id)

    async def heal(self) -> None:
        self.faults.append("heal")
        self.world.network.cut.clear()
        for broker in BROKERS:
            if broker not in self.world.brokers:
                await self.world.start(broker)

    # What must hold

    async def watch(self) -> None:
        """At every moment: one leader in an epoch, whose high watermark does not go back nor run ahead."""
        while True:
            await asyncio.sleep(0.005)
            for broker in self.world.brokers.values():
                for partition in broker.partitions:
                    if partition.is_leader:
                        self.check_leader(broker, partition)

    def check_leader(self, broker: SimBroker, partition: Partition) -> None:
        name, epoch = partition.topic_partition, partition.leader_epoch
        leader = self.leaders.setdefault((name, epoch), broker.broker_id)
        if leader != broker.broker_id:
            raise BrokenPromise(f"{leader} and {broker.broker_id} lead {name} in epoch {epoch}")
        before = self.watermarks.get((name, epoch, broker), 0)
        if partition.log.high_watermark < before:
            raise BrokenPromise(f"the high watermark of {name} went back in epoch {epoch}")
        self.watermarks[name, epoch, broker] = partition.log.high_watermark
        for follower in self.held(name):
            in_sync = follower.leader_epoch == epoch and follower.broker_id in partition.isr
            if in_sync and follower.log.log_end_offset < partition.log.high_watermark:
                raise BrokenPromise(f"{follower} is in sync and does not have what {partition} has committed")

    def held(self, name: TopicPartition) -> list[Partition]:
        found = [each.partitions.by_name.get(name) for each in self.world.brokers.values()]
        return [each for each in found if each is not None]

    def is_whole(self) -> bool:
        """Every partition has a leader, and all its replicas are in sync."""
        for name in NAMES:
            leading = [each for each in self.held(name) if each.is_leader]
            newest = max((each.leader_epoch for each in self.held(name)), default=-1)
            if not any(each.leader_epoch == newest and len(each.isr) == 3 for each in leading):
                return False
        return True

    def is_level(self) -> bool:
        """All replicas have everything."""
        for name in NAMES:
            held = self.held(name)
            ends = {offset for each in held for offset in (each.log.log_end_offset, each.log.high_watermark)}
            if len(held) < 3 or len(ends) > 1 or len({each.leader_epoch for each in held}) > 1:
                return False
        return True

    def check_contents(self) -> None:
        for name in NAMES:
            contents = [records(each) for each in self.held(name)]
            if not contents[0] == contents[1] == contents[2]:
                raise BrokenPromise(f"the replicas of {name} differ")
            for offset, value in self.acknowledged[name].items():
                found = contents[0].get(offset)
                if found != value:
                    raise BrokenPromise(f"{value!r} was acknowledged at {offset} of {name}, it has {found!r}")

    async def until(self, holds: object, timeout_s: float) -> None:
        """Wait for a condition, or say what is in its way."""
        assert callable(holds)
        for _ in range(int(timeout_s / 0.02)):
            if holds():
                return
            await asyncio.sleep(0.02)
        states = [
            (each.broker_id, each.controller.active_id, list(each.partitions))
            for each in self.world.brokers.values()
        ]
        raise BrokenPromise(f"{getattr(holds, '__name__', holds)} does not come true: {states}")


def records(partition: Partition) -> dict[int, bytes]:
    """All records of a replica by their offset."""
    found: dict[int, bytes] = {}
    offset = partition.log.log_start_offset
    while offset < partition.log.log_end_offset:
        raw = partition.log.read_bytes(offset, 1 << 20, isolation=Isolation.LOG_END)
        for position, header in iter_batches(raw):
            found.update({each.offset: each.value or b"" for each in decode_batch(raw, position)})
            offset = header.next_offset
    return found


def storm(directory: Path, seed: int) -> ClusterStorm:
    async def main() -> ClusterStorm:
        scene = ClusterStorm(directory, seed)
        try:
            await scene.run()
        except AssertionError as error:
            raise BrokenPromise(f"seed {seed}: {error}; faults: {' '.join(scene.faults)}") from error
        finally:
            for broker in list(scene.world.brokers):
                scene.world.crash(broker)
            await asyncio.gather(*scene.world.leftovers, return_exceptions=True)
        return scene

    return run_virtually(main())


@pytest.mark.parametrize("seed", SEEDS)
def test_a_cluster_keeps_what_it_acknowledged(tmp_path: Path, seed: int) -> None:
    scene = storm(tmp_path, seed)
    assert sum(map(len, scene.acknowledged.values())) > 0


PLANTED: dict[str, tuple[type, str, Callable[..., object]]] = {
    "leaders commit what followers do not have": (
        Followers,
        "committed_offset",
        lambda self, end_offset, *rest: end_offset,
    ),
    "histories that part are not noticed": (Partition, "_diverging_epoch", lambda self, *rest: None),
    "followers are in sync before they have caught up": (
        Partition,
        "_may_join",
        lambda self, *rest: self._in_sync.proposed is None,
    ),
}


@pytest.mark.parametrize("fault", PLANTED)
def test_a_planted_fault_is_found(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, fault: str) -> None:
    monkeypatch.setattr(*PLANTED[fault])

    def storms() -> None:
        for seed in range(5, 25):
            storm(tmp_path / str(seed), seed)

    with pytest.raises(BrokenPromise):
        storms()
