"""Replicas under a seeded storm: appends, lost links, clean elections, restarts, retention.

After every step: the high watermark of a leader does not go back within its epoch, and is no further than
every in-sync replica has; what was committed once is in the log of every later leader, and below the high
watermark all replicas have the same.
"""

from __future__ import annotations

import asyncio
import os
import random
from pathlib import Path

import pytest
from tests.rigs.clock import ManualClock
from tests.rigs.replica_set import ReplicaSet

from tidelog.records.batch import iter_batches
from tidelog.records.record import Record, decode_batch, encode_batch
from tidelog.replication.followers import Followers
from tidelog.replication.partition import Partition
from tidelog.storage.log.log import Isolation
from tidelog.storage.log_config import LogConfig

LAG_MS = 10_000
STEPS = 120
SEEDS = range(int(os.environ.get("TIDELOG_SEEDS", "6")))


class Broken(AssertionError):
    """An invariant does not hold."""


class Storm:
    """Three replicas, what has been committed so far, and what may happen to them."""

    def __init__(self, directory: Path, seed: int) -> None:
        self.rng = random.Random(seed)
        self.clock = ManualClock()
        self.replicas = ReplicaSet(directory, 3, self.clock, LogConfig(), LAG_MS)
        self.committed: dict[int, bytes] = {}
        self.watermarks: dict[int, int] = {}
        self.appended = 0
        self.trace: list[str] = []
        self.replicas.elect(1, isr=(1, 2, 3))

    async def step(self) -> None:
        act = self.rng.choices(
            [self.append, self.fetch, self.cut, self.mend, self.elect, self.restart, self.lag, self.retain],
            [6, 10, 2, 3, 2, 2, 2, 1],
        )[0]
        self.trace.append(act.__name__)
        await act()
        self.check()

    @property
    def leader(self) -> Partition:
        return self.replicas[self.replicas.state.leader]

    async def append(self) -> None:
        for broker in self.replicas.state.replicas:
            # Whoever still believes to lead takes records too.
            replica = self.replicas[broker]
            if replica.is_leader and (broker == self.replicas.state.leader or self.rng.random() < 0.5):
                values = [f"{self.appended + each}".encode() for each in range(self.rng.randint(1, 3))]
                self.appended += len(values)
                batch = encode_batch([Record(timestamp=1, value=value) for value in values])
                replica.append(memoryview(bytearray(batch)))

    async def fetch(self) -> None:
        await self.replicas.rounds(self.rng.randint(1, 3))

    async def cut(self) -> None:
        self.replicas.cut_off.add(self.rng.choice(self.replicas.state.replicas))

    async def mend(self) -> None:
        for broker in list(self.replicas.cut_off):
            self.replicas.cut_off.discard(broker)
            self.replicas.tell(broker)

    async def elect(self) -> None:
        """As a controller does: the new leader is in sync, and those that cannot be reached leave."""
        state = self.replicas.state
        reachable = tuple(each for each in state.isr if each not in self.replicas.cut_off)
        if reachable:
            self.replicas.elect(self.rng.choice(reachable), isr=reachable)

    async def restart(self) -> None:
        """A replica restarts; a controller notices, and lets another in-sync one lead if there is one."""
        broker = self.rng.choice(self.replicas.state.replicas)
        self.replicas.restart(broker, clean=self.rng.random() < 0.5)
        isr = self.replicas.state.isr
        others = tuple(each for each in isr if each != broker)
        if broker in isr:
            self.replicas.elect(
                self.rng.choice(others)
                if broker == self.replicas.state.leader and others
                else self.replicas.state.leader,
                isr=others or isr,
            )
        if broker not in self.replicas.cut_off:
            self.replicas.tell(broker)

    async def lag(self) -> None:
        self.clock.advance(LAG_MS + 1)
        await self.replicas.rounds(1)
        for broker in self.replicas.state.replicas:
            self.replicas[broker].shrink_isr()

    async def retain(self) -> None:
        log = self.leader.log
        if self.leader.is_leader and log.high_watermark > log.log_start_offset:
            log.increment_log_start_offset(self.rng.randint(log.log_start_offset, log.high_watermark))

    # Invariants

    def check(self) -> None:
        state = self.replicas.state
        if not set(state.isr) <= set(state.replicas) or not state.isr:
            raise Broken(f"in sync are {state.isr}")
        leader = self.leader
        if not leader.is_leader or leader.leader_epoch != state.leader_epoch:
            return
        log = leader.log
        before = self.watermarks.get(state.leader_epoch, 0)
        if log.high_watermark < before:
            raise Broken(f"the high watermark went back from {before} to {log.high_watermark}")
        self.watermarks[state.leader_epoch] = log.high_watermark
        for broker in state.isr:
            end_offset = self.replicas[broker].log.log_end_offset
            if end_offset < log.high_watermark:
                raise Broken(f"{broker} is in sync at {end_offset}, committed is {log.high_watermark}")
        self.check_contents()

    def check_contents(self) -> None:
        found = records(self.leader)
        start = self.leader.log.log_start_offset
        for offset, value in self.committed.items():
            if offset >= start and found.get(offset) != value:
                raise Broken(f"offset {offset} was {value!r} and is {found.get(offset)!r}")
        high_watermark = self.leader.log.high_watermark
        self.committed.update({each: value for each, value in found.items() if each < high_watermark})
        for broker in self.replicas.state.isr:
            other = records(self.replicas[broker])
            for offset in range(self.replicas[broker].log.log_start_offset, high_watermark):
                if offset >= start and other.get(offset) != found.get(offset):
                    raise Broken(f"{broker} has {other.get(offset)!r} at {offset}, not {found.get(offset)!r}")

    async def calm_down(self) -> None:
        """All links hold: everything comes into sync, and all replicas are equal."""
        await self.mend()
        await self.elect()
        for _ in range(3):
            await self.replicas.rounds(8)
            self.check()
        assert set(self.replicas.state.isr) == {1, 2, 3}
        ends = {self.replicas[broker].log.log_end_offset for broker in (1, 2, 3)}
        assert ends == {self.leader.log.high_watermark}
        start = max(self.replicas[broker].log.log_start_offset for broker in (1, 2, 3))
        contents = [records(self.replicas[broker]) for broker in (1, 2, 3)]
        tails = [{at: value for at, value in each.items() if at >= start} for each in contents]
        assert tails[0] == tails[1] == tails[2]


def records(partition: Partition) -> dict[int, bytes]:
    """All records of a replica by their offset."""
    log = partition.log
    found: dict[int, bytes] = {}
    offset = log.log_start_offset
    while offset < log.log_end_offset:
        raw = log.read_bytes(offset, 1 << 20, isolation=Isolation.LOG_END)
        if not raw:
            break
        for position, header in iter_batches(raw):
            for record in decode_batch(raw, position):
                found[record.offset] = record.value or b""
            offset = header.next_offset
    return found


async def storm(directory: Path, seed: int) -> None:
    world = Storm(directory, seed)
    try:
        for _ in range(STEPS):
            await world.step()
        await world.calm_down()
    except AssertionError as error:
        raise Broken(f"seed {seed}: {error}; {' '.join(world.trace)}") from error
    finally:
        world.replicas.close()


@pytest.mark.parametrize("seed", SEEDS)
def test_nothing_committed_is_lost_and_replicas_agree(tmp_path: Path, seed: int) -> None:
    asyncio.run(storm(tmp_path, seed))


def test_a_planted_fault_is_found(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A leader that commits without waiting for its followers."""
    monkeypatch.setattr(Followers, "committed_offset", lambda self, end_offset, *rest: end_offset)

    def storms() -> None:
        for seed in range(20):
            asyncio.run(storm(tmp_path / str(seed), seed))

    with pytest.raises(Broken):
        storms()
