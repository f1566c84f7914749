"""Who may come into sync, and which answers of the controller a leader takes: each condition by itself."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from pathlib import Path
from unittest.mock import patch

from tests.rigs.clock import ManualClock
from tests.rigs.replica_set import ReplicaSet

from tidelog.records.record import Record, encode_batch
from tidelog.replication.in_sync import LedPartition
from tidelog.replication.partition import ACKS_ALL, Partition
from tidelog.storage.log_config import LogConfig

LAG_MS = 10_000


class Asked:
    """Takes a leader's requests and answers none."""

    def __init__(self) -> None:
        self.isrs: list[tuple[int, ...]] = []

    def submit(self, partition: LedPartition, isr: tuple[int, ...]) -> None:
        self.isrs.append(isr)


def run(tmp_path: Path, test: Callable[[ReplicaSet, Partition, Asked], None]) -> None:
    """Broker 1 leads, 2 is in sync, 3 is not."""

    async def body() -> None:
        replicas, asked = ReplicaSet(tmp_path, 3, ManualClock(), None, LAG_MS), Asked()
        replicas.elect(1, isr=(1, 2))
        try:
            with patch.object(replicas[1]._context, "isr_requests", asked):
                test(replicas, replicas[1], asked)
        finally:
            replicas.close()

    asyncio.run(body())


def append(leader: Partition, count: int) -> None:
    for _ in range(count):
        leader.append(memoryview(bytearray(encode_batch([Record(timestamp=1, value=b"v")]))))


def test_who_lacks_what_is_committed_does_not_join(tmp_path: Path) -> None:
    def test(replicas: ReplicaSet, leader: Partition, asked: Asked) -> None:
        append(leader, 3)
        leader.fetched_by(2, 3, 0)
        assert leader.log.high_watermark == 3
        leader.fetched_by(3, 2, 0)
        assert asked.isrs == []
        leader.fetched_by(3, 3, 0)
        assert asked.isrs == [(1, 2, 3)]

    run(tmp_path, test)


def test_who_lacks_records_of_epochs_before_this_one_does_not_join(tmp_path: Path) -> None:
    def test(replicas: ReplicaSet, leader: Partition, asked: Asked) -> None:
        append(leader, 3)
        leader.fetched_by(2, 2, 0)
        replicas.elect(1, isr=(1, 2))
        assert leader.log.high_watermark == 2
        leader.fetched_by(3, 2, 0)
        assert asked.isrs == []
        leader.fetched_by(3, 3, 0)
        assert asked.isrs == [(1, 2, 3)]

    run(tmp_path, test)


def test_who_is_not_alive_does_not_join(tmp_path: Path) -> None:
    def test(replicas: ReplicaSet, leader: Partition, asked: Asked) -> None:
        replicas.gone.add(3)
        leader.fetched_by(3, 0, 0)
        assert asked.isrs == []
        replicas.gone.clear()
        leader.fetched_by(3, 0, 0)
        assert asked.isrs == [(1, 2, 3)]

    run(tmp_path, test)


def test_one_change_is_under_way_at_a_time(tmp_path: Path) -> None:
    def test(replicas: ReplicaSet, leader: Partition, asked: Asked) -> None:
        leader.fetched_by(3, 0, 0)
        leader.fetched_by(3, 0, 0)
        assert asked.isrs == [(1, 2, 3)]
        assert leader.isr == (1, 2)
        leader.isr_refused(leader.leader_epoch - 1)
        leader.fetched_by(3, 0, 0)
        assert len(asked.isrs) == 1, "that was another epoch's request"
        leader.isr_refused(leader.leader_epoch)
        leader.fetched_by(3, 0, 0)
        assert len(asked.isrs) == 2
        assert leader.counts.failed_isr_updates == 1

    run(tmp_path, test)


def test_who_is_in_sync_is_not_asked_for(tmp_path: Path) -> None:
    def test(replicas: ReplicaSet, leader: Partition, asked: Asked) -> None:
        leader.fetched_by(2, 0, 0)
        assert asked.isrs == []

    run(tmp_path, test)


def test_the_last_answer_by_partition_epoch_holds(tmp_path: Path) -> None:
    def test(replicas: ReplicaSet, leader: Partition, asked: Asked) -> None:
        epoch, version = leader.leader_epoch, leader.partition_epoch
        leader.isr_changed(epoch, (1, 2, 3), version + 2)
        assert (leader.isr, leader.partition_epoch) == ((1, 2, 3), version + 2)
        leader.isr_changed(epoch, (1,), version + 1)
        assert (leader.isr, leader.partition_epoch) == ((1, 2, 3), version + 2), "an answer that came late"
        leader.isr_changed(epoch - 1, (1,), version + 3)
        leader.isr_changed(epoch + 1, (1,), version + 3)
        assert (leader.isr, leader.partition_epoch) == ((1, 2, 3), version + 2), "of another leader epoch"
        leader.isr_changed(epoch, (1, 2), version + 2)
        assert leader.isr == (1, 2), "a repeated request is confirmed with the version that it has"
        assert (leader.counts.isr_expands, leader.counts.isr_shrinks) == (1, 1)
        leader.isr_changed(epoch, (1, 2), version + 3)
        assert (leader.counts.isr_expands, leader.counts.isr_shrinks) == (1, 1)

    run(tmp_path, test)


def test_who_does_not_lead_takes_no_answer(tmp_path: Path) -> None:
    def test(replicas: ReplicaSet, leader: Partition, asked: Asked) -> None:
        follower = replicas[2]
        before = follower.isr, follower.partition_epoch
        follower.isr_changed(follower.leader_epoch, (2,), follower.partition_epoch + 1)
        assert (follower.isr, follower.partition_epoch) == before

    run(tmp_path, test)


def test_a_smaller_set_commits_what_its_replicas_have(tmp_path: Path) -> None:
    def test(replicas: ReplicaSet, leader: Partition, asked: Asked) -> None:
        append(leader, 3)
        replicas.gone.add(2)
        leader.brokers_changed()
        assert leader.log.high_watermark == 0, "it is in sync as long as the controller has not put it out"
        leader.isr_changed(leader.leader_epoch, (1,), leader.partition_epoch + 1)
        assert leader.log.high_watermark == 3

    run(tmp_path, test)


def test_writes_with_acks_all_need_enough_replicas_in_sync(tmp_path: Path) -> None:
    def test(replicas: ReplicaSet, leader: Partition, asked: Asked) -> None:
        for least, takes in ((1, True), (2, True), (3, False)):
            leader.log.update_config(LogConfig(min_insync_replicas=least))
            assert leader.takes_writes(ACKS_ALL) is takes
            assert leader.takes_writes(1)
        leader.isr_changed(leader.leader_epoch, (1, 2, 3), leader.partition_epoch + 1)
        assert leader.takes_writes(ACKS_ALL)
        assert not replicas[2].takes_writes(1)

    run(tmp_path, test)


def test_who_had_caught_up_and_is_gone_holds_the_high_watermark_back_no_more(tmp_path: Path) -> None:
    def test(replicas: ReplicaSet, leader: Partition, asked: Asked) -> None:
        leader.fetched_by(3, 0, 0)
        append(leader, 3)
        leader.fetched_by(2, 3, 0)
        assert leader.log.high_watermark == 0
        leader.isr_refused(leader.leader_epoch)
        assert leader.log.high_watermark == 0, "it may be in sync at any moment"
        replicas.gone.add(3)
        leader.brokers_changed()
        assert leader.log.high_watermark == 3

    run(tmp_path, test)


def test_replicas_are_named_with_the_lives_in_which_they_caught_up(tmp_path: Path) -> None:
    def test(replicas: ReplicaSet, leader: Partition, asked: Asked) -> None:
        leader.fetched_by(2, 0, 0, broker_epoch=72)
        assert leader.broker_epochs((1, 2, 3), 71) == {1: 71, 2: 72, 3: -1}

    run(tmp_path, test)
