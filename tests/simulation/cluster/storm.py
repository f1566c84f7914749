"""One run: a cluster, its clients, what goes wrong; then everything is mended, and it must be whole again.

The seed draws all of it: how many brokers, which clients, whether everything is synced before it is
acknowledged, and every fault and delay. ``run(directory, seed)`` gives the run's record or raises
:class:`BrokenPromise` with the end of the story in it.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import traceback
from collections.abc import Coroutine, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any
from unittest.mock import patch

from tests.simulation.cluster.clients import CarelessProducer, Committer, Consumer, Producer
from tests.simulation.cluster.faults import Faults
from tests.simulation.cluster.history import BrokenPromise, History
from tests.simulation.cluster.invariants import Invariants, checksums, committed_values, contents
from tests.simulation.cluster.machine import substitutes
from tests.simulation.cluster.transactions import Transactor
from tests.simulation.cluster.world import ClusterWorld, Held
from tests.simulation.virtual_loop import VirtualLoop, run_virtually

from tidelog.controller.topics import NewTopic
from tidelog.errors import KafkaError
from tidelog.ids import CONSUMER_OFFSETS_TOPIC, TRANSACTION_STATE_TOPIC, TopicPartition
from tidelog.metadata.znodes import znodes

STORM_S = 18.0
_START_S = 15.0
_HEAL_S = 60.0
_STRICT = ("data", "short")
REPLAY = "replay it with: python -m tests.simulation.search --first {} --seeds 1 --log"


@dataclass
class Record:
    """What a run came to."""

    seed: int
    digest: str = ""
    virtual_s: float = 0.0
    events: int = 0
    acknowledged: int = 0
    transactions: dict[str, int] = field(default_factory=dict)
    faults: dict[str, int] = field(default_factory=dict)


class Bugs(logging.Handler):
    """Errors that are logged with a traceback: code that met what nobody had thought of."""

    def __init__(self) -> None:
        super().__init__(logging.ERROR)
        self.found: list[str] = []

    def emit(self, record: logging.LogRecord) -> None:
        if record.exc_info and record.exc_info[1] is not None and record.name.startswith("tidelog."):
            lines = traceback.format_exception(record.exc_info[1])
            self.found.append(record.getMessage() + "\n" + "".join(lines))


class Storm:
    """A run while it lasts."""

    def __init__(self, directory: Path, seed: int) -> None:
        loop = asyncio.get_running_loop()
        self._began_s = loop.time()
        self.bugs = Bugs()
        # The shape of the world is drawn before anything happens in it.
        self.world = ClusterWorld(directory, seed, 3 + (seed % 5 == 0), {})
        rng = self.world.rng
        self.synced = rng.random() < 0.25
        if self.synced:
            self.world.trace.tell("everything is synced before it is acknowledged")
        self.history = History()
        self.invariants = Invariants(self.world, loose=("loose",))
        self.topics = self._topics()
        brief = NewTopic("brief", 1, 3, configs={"flush.messages": "1"} if self.synced else {})
        self.faults = Faults(self.world, self.history, _STRICT, synced=self.synced, brief=brief)
        self.writers: list[Producer | CarelessProducer | Transactor] = []
        self.committer = Committer(self.world, self.history, "group")
        self._tasks: list[asyncio.Task[None]] = []
        self._writing: list[asyncio.Task[None]] = []

    def _topics(self) -> list[NewTopic]:
        rng = self.world.rng
        brokers = sorted(self.world.machines)
        synced = {"flush.messages": "1"} if self.synced else {}
        small = {"segment.ms": str(rng.choice((400, 2000, 600_000)))}

        def placed(count: int) -> list[tuple[int, list[int]]]:
            return [(index, rng.sample(brokers, 3)) for index in range(count)]

        return [
            NewTopic("data", -1, -1, placed(2), {**synced, **small}),
            NewTopic("short", -1, -1, placed(1), {**synced, **small, "retention.bytes": "3000"}),
            NewTopic(
                "loose",
                -1,
                -1,
                placed(1),
                {**synced, "unclean.leader.election.enable": "true", "min.insync.replicas": "1"},
            ),
            NewTopic("brief", -1, -1, placed(1), synced),
            NewTopic(CONSUMER_OFFSETS_TOPIC, -1, -1, placed(1), {**synced, "cleanup.policy": "compact"}),
            NewTopic(TRANSACTION_STATE_TOPIC, -1, -1, placed(1), {**synced, "cleanup.policy": "compact"}),
        ]

    # The story

    async def run(self) -> None:
        """From the first start to the last check."""
        for broker_id in self.world.machines:
            self.world.start(broker_id)
        await self._must("the brokers start", self._all_ready, _START_S)
        await self._make_topics()
        self._begin_clients()
        loop = asyncio.get_running_loop()
        until = loop.time() + STORM_S
        while loop.time() < until:
            await asyncio.sleep(self.world.rng.uniform(0.05, 1.2))
            self._look_for_trouble()
            await self.faults.next()
        await self._heal()
        self._check_in_the_end()
        await self._check_offsets()

    async def _make_topics(self) -> None:
        for _ in range(100):
            found = self.world.controller()
            if found is not None:
                life, controller = found
                with contextlib.suppress(KafkaError):
                    await life.begin(controller.create_topics(self.topics))
                    break
            await asyncio.sleep(0.1)
        await self._must("topics are made", lambda: self._whole("data"), _START_S)

    def _begin_clients(self) -> None:
        world, history = self.world, self.history
        data = [TopicPartition("data", index) for index in range(2)]
        short = TopicPartition("short", 0)
        self.writers = [
            Producer(world, history, "p0", data[0]),
            Producer(world, history, "p1", data[1]),
            Producer(world, history, "s0", short),
            CarelessProducer(world, history, "l0", TopicPartition("loose", 0)),
            CarelessProducer(world, history, "b0", TopicPartition("brief", 0)),
            Transactor(world, history, "t0", data),
        ]
        readers = [
            Consumer(world, history, "c0", data[0], committed=False),
            Consumer(world, history, "c1", data[1], committed=True),
            Consumer(world, history, "c2", data[0], committed=True),
            Consumer(world, history, "c3", short, committed=False),
            Consumer(world, history, "c4", data[0], committed=True, anywhere=True),
        ]
        self._writing = [asyncio.ensure_future(each.run()) for each in self.writers]
        others: list[Coroutine[Any, Any, None]] = [each.run() for each in readers]
        others += [self.committer.run(), self.invariants.watch()]
        self._tasks = [*self._writing, *map(asyncio.ensure_future, others)]

    def _look_for_trouble(self) -> None:
        if self.bugs.found:
            raise BrokenPromise(f"no broker meets a bug: {self.bugs.found[0]}")
        loop = asyncio.get_running_loop()
        assert isinstance(loop, VirtualLoop)
        if loop.trouble:
            raise BrokenPromise(f"no broker meets a bug: {loop.trouble[0]}")
        for task in self._tasks:
            if task.done() and (error := task.exception()) is not None:
                raise error

    async def _heal(self) -> None:
        """Everything works again: soon nobody must notice that it did not."""
        self.world.trace.tell("heal")
        self.world.mend()
        await self.faults.settle()
        for broker_id in self.world.down:
            if broker_id != self.faults.weak:
                self.world.start(broker_id)
        await self._must("a lost machine is missed", lambda: self.faults.weak is None, _HEAL_S)
        for broker_id in self.world.down:
            self.world.start(broker_id)
        await self._must("the brokers are back", self._all_ready, _HEAL_S)
        await self._must("every partition is whole", self._all_whole, _HEAL_S)
        for writer in self.writers:
            writer.stopping = True
        await self._must("clients get their answers", self._all_written, _HEAL_S)
        await self._must("all replicas have everything", self._all_level, _HEAL_S)

    async def _must(self, what: str, holds: Any, timeout_s: float) -> None:
        loop = asyncio.get_running_loop()
        end = loop.time() + timeout_s
        while not holds():
            self._look_for_trouble()
            if loop.time() > end:
                raise BrokenPromise(f"{what}, after so long a time: not so; {self._state()}")
            await asyncio.sleep(0.05)

    # When all is well

    def _all_ready(self) -> bool:
        lives = [each.life for each in self.world.machines.values()]
        return all(life is not None and life.is_ready and not life.store.is_cut for life in lives)

    def _all_whole(self) -> bool:
        marked = self.world.ensemble.tree.find(znodes.DELETE_TOPICS)
        if marked is not None and marked.children:
            return False
        return all(self._whole(topic.name) for topic in self.topics)

    def _whole(self, topic: str) -> bool:
        assigned = self.world.assignment(topic)
        if assigned is None:
            return topic == "brief"
        if assigned.adding_replicas or assigned.removing_replicas:
            return False
        for index, replicas in assigned.partitions.items():
            name = TopicPartition(topic, index)
            state = self.world.state(name)
            if state is None or set(state.isr) != set(replicas) or state.leader not in state.isr:
                return False
            held = {each.partition.broker_id: each.partition for each in self.world.replicas(name)}
            # A replica that was moved away while its broker could not be told may have been left behind.
            if any(each not in held or held[each].leader_epoch != state.leader_epoch for each in replicas):
                return False
        return True

    def _all_written(self) -> bool:
        return all(task.done() for task in self._writing)

    def _all_level(self) -> bool:
        for name in self._all_partitions():
            logs = [each.partition.log for each in self._assigned(name)]
            if len({each.log_end_offset for each in logs} | {each.high_watermark for each in logs}) > 1:
                return False
            # Transactions that were left open end when their time is over.
            if any(each.last_stable_offset < each.high_watermark for each in logs):
                return False
        return True

    def _assigned(self, name: TopicPartition) -> list[Held]:
        """The replicas of a partition, without those that were left behind."""
        assigned = self.world.assignment(name.topic)
        replicas = () if assigned is None else assigned.partitions.get(name.partition, ())
        return [each for each in self.world.replicas(name) if each.partition.broker_id in replicas]

    def _all_partitions(self) -> Iterator[TopicPartition]:
        for topic in self.topics:
            yield from self.world.partitions(topic.name)

    # What must be there

    def _check_in_the_end(self) -> None:
        self.invariants.look()
        self.invariants.compare()
        if self.invariants.broken is not None:
            raise self.invariants.broken
        visible: dict[TopicPartition, set[bytes]] = {}
        for name in self._all_partitions():
            held = self._assigned(name)
            start = max(each.partition.log.log_start_offset for each in held)
            logs = [
                {offset: crc for offset, crc in checksums(each.partition).items() if offset >= start}
                for each in held
            ]
            if any(each != logs[0] for each in logs):
                raise BrokenPromise(f"replicas are equal in the end: those of {name} differ")
            any_replica = held[0].partition
            if name.topic in _STRICT:
                self.history.check_log(name, contents(any_replica), start)
            if name.topic == "data":
                visible[name] = committed_values(any_replica)
        self.history.check_transactions(visible)

    async def _check_offsets(self) -> None:
        checks = ((self.committer, self.history.check_offset),)
        transactor = next(each for each in self.writers if isinstance(each, Transactor))
        for client, check in (*checks, (transactor, self.history.check_transactional_offset)):
            for _ in range(100):
                found = await client.committed()
                if found is not None:
                    check(client.name, found)
                    break
                await asyncio.sleep(0.1)
            else:
                raise BrokenPromise(f"groups can be asked: nobody answers for {client.name}")

    def record(self) -> Record:
        """What it came to."""
        fates: dict[str, int] = {}
        for attempts in self.history.attempts.values():
            for attempt in attempts:
                fates[attempt.fate.value] = fates.get(attempt.fate.value, 0) + 1
        return Record(
            self.world.seed,
            self.world.trace.digest,
            asyncio.get_running_loop().time() - self._began_s,
            self.world.trace.events,
            sum(map(len, self.history.acknowledged.values())),
            fates,
            self.faults.counts,
        )

    def _state(self) -> str:
        lines = []
        for name in self._all_partitions():
            state = self.world.state(name)
            lines.append(f"{name}: {state}")
            for life, partition in self.world.replicas(name):
                log = partition.log
                lines.append(
                    f"    {life.name} {partition} isr {partition.isr} {log.log_start_offset} "
                    f"{log.high_watermark} {log.log_end_offset}"
                )
        for topic in self.topics:
            lines.append(f"{self.world.assignment(topic.name)}")
        writing = [
            each.name for each, task in zip(self.writers, self._writing, strict=False) if not task.done()
        ]
        controllers = [
            (life.name, broker.cluster.controller.active_id, broker.cluster.controller.is_active)
            for life, broker in self.world.brokers()
            if life.is_ready
        ]
        return "\n".join([*lines, f"writing: {writing}", f"controllers: {controllers}"])


@contextlib.contextmanager
def _substituted(world: ClusterWorld) -> Iterator[None]:
    with contextlib.ExitStack() as stack:
        for name, value in substitutes(world.rng, asyncio.get_running_loop()).items():
            stack.enter_context(patch(name, value))
        yield


@contextlib.contextmanager
def _listening(bugs: Bugs) -> Iterator[None]:
    logger = logging.getLogger("tidelog")
    propagates, logger.propagate = logger.propagate, logging.root.manager.disable < logging.WARNING
    logger.addHandler(bugs)
    try:
        yield
    finally:
        logger.removeHandler(bugs)
        logger.propagate = propagates


def run(directory: Path, seed: int) -> Record:
    """Let the run of ``seed`` happen in ``directory``, which should be empty and in memory."""

    async def main() -> Record:
        storm = Storm(directory, seed)
        with _substituted(storm.world), _listening(storm.bugs):
            try:
                await storm.run()
            except BrokenPromise as error:
                story = "\n".join(storm.world.trace.story)
                raise BrokenPromise(f"seed {seed}: {error}\n{story}\n{REPLAY.format(seed)}") from error
            finally:
                for broker_id in storm.world.up:
                    storm.world.machines[broker_id].kill()
            return storm.record()

    return run_virtually(main())
