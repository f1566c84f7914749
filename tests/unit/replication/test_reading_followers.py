"""Consumers at followers (KIP-392): what a follower gives them, and which one a leader would send them to."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from pathlib import Path

import pytest
from tests.rigs.clock import ManualClock
from tests.rigs.replica_set import ReplicaSet

from tidelog.broker.fetch.nearest_replica import NearestReplica
from tidelog.config.listeners import Listener
from tidelog.errors import ErrorCode, KafkaError
from tidelog.metadata.image import MetadataImage
from tidelog.metadata.znodes.znodes import BrokerRegistration
from tidelog.records.record import Record, encode_batch
from tidelog.replication.partition import ACKS_ALL
from tidelog.storage.log.log import Isolation

RACKS = {1: "a", 2: "b", 3: "b"}


def batch(value: bytes) -> memoryview:
    return memoryview(bytearray(encode_batch([Record(timestamp=1, value=value)])))


def run(tmp_path: Path, test: Callable[[ReplicaSet], Awaitable[None]]) -> None:
    async def body() -> None:
        replicas = ReplicaSet(tmp_path, 3, ManualClock())
        replicas.elect(1, isr=(1, 2, 3))
        try:
            await test(replicas)
        finally:
            replicas.close()

    asyncio.run(body())


def image(racks: dict[int, str | None]) -> MetadataImage:
    found = MetadataImage()
    for broker, rack in racks.items():
        endpoint = Listener("PLAINTEXT", "localhost", 9092 + broker, "PLAINTEXT")
        found.put_broker(BrokerRegistration(broker_id=broker, endpoints=(endpoint,), rack=rack))
    return found


def read(replicas: ReplicaSet, broker: int, offset: int, epoch: int = -1) -> int:
    """How many bytes a consumer gets."""
    found = replicas[broker].read(offset, 1 << 20, Isolation.HIGH_WATERMARK, True, epoch, -1, False).slice
    return found.length if found is not None else 0


def test_a_follower_gives_what_it_knows_to_be_committed(tmp_path: Path) -> None:
    async def test(replicas: ReplicaSet) -> None:
        replicas[1].append(batch(b"x"), ACKS_ALL)
        await replicas.rounds(1)
        assert replicas[2].log.log_end_offset == 1
        assert read(replicas, 2, 0) == 0
        await replicas.rounds(2)
        assert read(replicas, 2, 0) == read(replicas, 1, 0) > 0
        with pytest.raises(KafkaError) as refused:
            read(replicas, 2, 2)
        assert refused.value.code is ErrorCode.OFFSET_OUT_OF_RANGE

    run(tmp_path, test)


def test_a_follower_refuses_other_epochs_and_those_who_want_the_leader(tmp_path: Path) -> None:
    async def test(replicas: ReplicaSet) -> None:
        replicas.elect(1)
        for epoch, code in ((0, ErrorCode.FENCED_LEADER_EPOCH), (9, ErrorCode.UNKNOWN_LEADER_EPOCH)):
            with pytest.raises(KafkaError) as refused:
                read(replicas, 2, 0, epoch)
            assert refused.value.code is code
        with pytest.raises(KafkaError) as refused:
            replicas[2].read(0, 100, Isolation.HIGH_WATERMARK, True)
        assert refused.value.code is ErrorCode.NOT_LEADER_OR_FOLLOWER

    run(tmp_path, test)


def test_the_follower_in_the_rack_that_reaches_furthest_is_chosen(tmp_path: Path) -> None:
    async def test(replicas: ReplicaSet) -> None:
        nearest = NearestReplica(image(dict(RACKS)))
        leader = replicas[1]

        def chosen(rack: str, offset: int = 0, listener: str = "PLAINTEXT") -> int | None:
            return nearest.find(leader, rack, listener, offset)

        assert chosen("b") is None, "nothing is known of the followers yet"
        await replicas.rounds(1)
        assert chosen("b") == 3
        replicas.cut_off.add(3)
        leader.append(batch(b"x"))
        await replicas.rounds(2)
        assert chosen("b") == 2
        assert chosen("b", offset=1) == 2
        assert chosen("b", offset=2) is None
        assert chosen("a") is None
        assert chosen("elsewhere") is None
        assert chosen("") is None
        assert chosen("b", listener="INTERNAL") is None
        assert nearest.find(replicas[2], "b", "PLAINTEXT", 0) is None, "only leaders send consumers away"

    run(tmp_path, test)


def test_followers_that_are_not_in_sync_or_have_deleted_the_offset_are_not_chosen(tmp_path: Path) -> None:
    async def test(replicas: ReplicaSet) -> None:
        nearest = NearestReplica(image({1: "a", 2: "b", 3: None}))
        replicas[1].append(batch(b"x"), ACKS_ALL)
        await replicas.rounds(3)
        assert nearest.find(replicas[1], "b", "PLAINTEXT", 0) == 2
        replicas[2].log.increment_log_start_offset(1, "test")
        await replicas.rounds(1)
        assert nearest.find(replicas[1], "b", "PLAINTEXT", 0) is None
        assert nearest.find(replicas[1], "b", "PLAINTEXT", 1) == 2
        replicas.elect(1, isr=(1, 3))
        assert nearest.find(replicas[1], "b", "PLAINTEXT", 1) is None

    run(tmp_path, test)


def test_a_new_leader_is_behind_its_epoch_until_followers_have_what_it_began_with(tmp_path: Path) -> None:
    async def test(replicas: ReplicaSet) -> None:
        replicas[1].append(batch(b"x"), ACKS_ALL)
        await replicas.rounds(1)
        assert not replicas[1].is_behind_epoch
        replicas.elect(2)
        assert replicas[2].is_behind_epoch
        assert not replicas[1].is_behind_epoch
        await replicas.rounds(2)
        assert not replicas[2].is_behind_epoch

    run(tmp_path, test)
