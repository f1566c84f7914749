"""Several replicas of one partition in one process, with real logs and no network: for tests of replication.

    replicas = ReplicaSet(tmp_path, 3, clock)
    replicas.elect(1)
    replicas[1].append(batch)
    await replicas.rounds(3)

A round lets every follower that is not cut off fetch once. ``elect`` is what a controller would say; the
in-sync replicas that leaders ask for are granted, unless ``grant`` says otherwise, with the partition epoch
that a controller would give.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping
from pathlib import Path

from tidelog.clock import Clock
from tidelog.errors import ErrorCode, KafkaError, LogDirOfflineError
from tidelog.ids import TopicPartition, random_uuid
from tidelog.metadata.image import PartitionImage
from tidelog.replication.fetch_loop import FetchLoop
from tidelog.replication.in_sync import LedPartition
from tidelog.replication.leader_endpoint import (
    Answers,
    FetchedPartition,
    FollowerPosition,
    OnAnswers,
    Positions,
)
from tidelog.replication.partition import Partition
from tidelog.replication.replication_context import ReplicationContext
from tidelog.storage.disk import REAL_DISK, Disk
from tidelog.storage.log.log import Isolation, Log
from tidelog.storage.log.log_context import LogContext
from tidelog.storage.log_config import LogConfig

NAME = TopicPartition("topic", 0)
MAX_FETCH_BYTES = 1 << 20


class DirectEndpoint:
    """The leader's partition, called as a broker would call it for a follower's fetch."""

    def __init__(self, replicas: ReplicaSet, leader_id: int, follower_id: int) -> None:
        self._replicas = replicas
        self._leader_id = leader_id
        self._follower_id = follower_id

    async def fetch(self, positions: Positions) -> Answers:
        self._replicas.check_link(self._leader_id, self._follower_id)
        leader = self._replicas[self._leader_id]
        return {name: self._fetch(leader, position) for name, position in positions.items()}

    def _fetch(self, leader: Partition, position: FollowerPosition) -> FetchedPartition:
        try:
            found = leader.read(
                position.offset,
                MAX_FETCH_BYTES,
                Isolation.LOG_END,
                True,
                position.leader_epoch,
                position.last_fetched_epoch,
            )
            if found.diverging_epoch is None:
                leader.fetched_by(self._follower_id, position.offset, position.log_start_offset)
        except KafkaError as error:
            return FetchedPartition(error.code)
        records = b""
        if found.diverging_epoch is None and found.slice is not None and found.slice.length:
            records = leader.log.read_bytes(position.offset, MAX_FETCH_BYTES, isolation=Isolation.LOG_END)
        return FetchedPartition(
            ErrorCode.NONE,
            leader.log.high_watermark,
            leader.log.log_start_offset,
            found.diverging_epoch,
            memoryview(records),
        )

    def begin_fetch(self, positions: Positions, on_answers: OnAnswers) -> bool:
        """What is read and what is appended have turns of their own here."""
        return False

    async def log_bounds(self, partition: TopicPartition, leader_epoch: int) -> tuple[int, int]:
        self._replicas.check_link(self._leader_id, self._follower_id)
        leader = self._replicas[self._leader_id]
        leader.check_leader(leader_epoch)
        return leader.log.log_start_offset, leader.log.log_end_offset

    async def close(self) -> None:
        """There is no connection."""


class ReplicaSet:
    """The replicas by broker id, numbered from 1, and the controller's word."""

    def __init__(
        self,
        directory: Path,
        count: int,
        clock: Clock,
        config: LogConfig | None = None,
        max_lag_ms: float = 30_000,
        disks: Mapping[int, Disk] | None = None,
    ) -> None:
        self.grant: Callable[[Partition, tuple[int, ...]], bool] = lambda partition, isr: True
        self.cut_off: set[int] = set()
        self.gone: set[int] = set()
        """Who is not alive any more, as all others have been told."""
        self.state = PartitionImage(replicas=tuple(range(1, count + 1)))
        self._directory = directory
        self._clock = clock
        self._config = config or LogConfig()
        self._disks = disks or {}
        self._topic_id = random_uuid()
        self._context = ReplicationContext(
            clock, self, lambda: set(self.state.replicas) - self.gone, max_lag_ms
        )
        self._replicas = {broker: self._open(broker, clean=True) for broker in self.state.replicas}
        self._loops: dict[int, FetchLoop] = {}
        self.lost: list[LogDirOfflineError] = []

    def __getitem__(self, broker: int) -> Partition:
        return self._replicas[broker]

    def _open(self, broker: int, *, clean: bool) -> Partition:
        directory = self._directory / str(broker) / "topic-0"
        disk = self._disks.get(broker, REAL_DISK)
        log = Log.open(LogContext(directory, self._config, self._clock, disk), clean_shutdown=clean)
        loop = asyncio.get_running_loop()
        return Partition(
            NAME, self._topic_id, log, broker, loop, lambda e: self.lost.append(e), self._context
        )

    def elect(self, leader: int, isr: tuple[int, ...] | None = None) -> None:
        """Make a broker lead in a new epoch, and tell all that are not cut off."""
        self.state = PartitionImage(
            replicas=self.state.replicas,
            leader=leader,
            leader_epoch=self.state.leader_epoch + 1,
            isr=isr if isr is not None else (self.state.isr or self.state.replicas),
            state_version=self.state.state_version + 1,
        )
        for broker in self.state.replicas:
            if broker not in self.cut_off:
                self.tell(broker)

    def tell(self, broker: int) -> None:
        """Tell a broker what the controller has decided last."""
        replica = self._replicas[broker]
        if not replica.apply(self.state):
            return
        if replica.is_leader:
            self._loops.pop(broker, None)
        else:
            loop = FetchLoop(
                self.state.leader,
                DirectEndpoint(self, self.state.leader, broker),
                self._clock,
                lambda: 0,
                lambda error: self.lost.append(error),
            )
            loop.add(replica)
            self._loops[broker] = loop

    def submit(self, partition: LedPartition, isr: tuple[int, ...]) -> None:
        """A leader asks for other in-sync replicas."""
        assert isinstance(partition, Partition)
        current = partition.leader_epoch == self.state.leader_epoch
        if current and partition.broker_id not in self.cut_off and self.grant(partition, isr):
            self.state = PartitionImage(
                replicas=self.state.replicas,
                leader=self.state.leader,
                leader_epoch=self.state.leader_epoch,
                isr=isr,
                state_version=self.state.state_version + 1,
            )
            partition.isr_changed(partition.leader_epoch, isr, self.state.state_version)
        else:
            partition.isr_refused(partition.leader_epoch)

    def check_link(self, leader: int, follower: int) -> None:
        """Raise if one of both is cut off."""
        if {leader, follower} & self.cut_off:
            raise ConnectionResetError("the link is cut")

    async def rounds(self, count: int) -> None:
        """Let every follower fetch ``count`` times."""
        for _ in range(count):
            for broker, loop in list(self._loops.items()):
                if broker not in self.cut_off and len(loop):
                    try:
                        await loop._round()
                    except ConnectionResetError:
                        continue

    def restart(self, broker: int, *, clean: bool = True) -> None:
        """Stop a replica and open its log again, as after a crash unless ``clean``."""
        self._loops.pop(broker, None)
        self._replicas[broker].close()
        self._replicas[broker].log.close(clean=clean)
        self._replicas[broker] = self._open(broker, clean=clean)

    def contents(self, broker: int, up_to: int | None = None) -> bytes:
        """The bytes of a replica's log, up to an offset."""
        log = self._replicas[broker].log
        end = log.log_end_offset if up_to is None else up_to
        found = bytearray()
        offset = log.log_start_offset
        while offset < end:
            raw = log.read_bytes(offset, MAX_FETCH_BYTES, isolation=Isolation.LOG_END)
            if not raw:
                break
            found += raw
            offset = log.log_end_offset
        return bytes(found)

    def close(self) -> None:
        """Close all logs."""
        for replica in self._replicas.values():
            replica.log.close(clean=False)
