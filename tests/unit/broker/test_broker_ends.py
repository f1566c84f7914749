"""When a broker cannot go on, or is told to stop before it serves: it says so and closes everything."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest
from tests.rigs.memory_zookeeper import MemoryZooKeeper

from tidelog.broker.app import Broker
from tidelog.broker.cluster import registration
from tidelog.broker.composition import standalone, with_zookeeper
from tidelog.broker.state import BrokerState, StartGivenUp
from tidelog.config.broker_config import BrokerConfig
from tidelog.controller.topics import NewTopic
from tidelog.ids import TopicPartition
from tidelog.metadata.store import SharedStore
from tidelog.metadata.znodes import znodes
from tidelog.metadata.znodes.znodes import BrokerRegistration, PartitionState

CLEAN_MARK = ".kafka_cleanshutdown"


def broker_in(*paths: Path) -> Broker:
    config = {"listeners": "PLAINTEXT://127.0.0.1:0", "log.dirs": ",".join(map(str, paths))}
    return standalone(BrokerConfig(config))


def test_losing_the_last_directory_to_work_in_the_background_is_told(tmp_path: Path) -> None:
    async def scenario() -> None:
        first, second = tmp_path / "first", tmp_path / "second"
        broker = broker_in(first, second)
        reasons: list[str] = []
        broker.on_fatal = reasons.append
        await broker.start()
        broker.log_dirs.mark_offline(first, OSError("a checkpoint cannot be written"))
        assert not reasons
        broker.log_dirs.mark_offline(second, OSError("nor here"))
        (reason,) = reasons
        assert f"{first}: a checkpoint cannot be written" in reason
        assert f"{second}: nor here" in reason
        await broker.shut_down()

    asyncio.run(scenario())


def test_a_start_that_is_given_up_while_loading_closes_what_it_opened(tmp_path: Path) -> None:
    async def fill() -> None:
        broker = broker_in(tmp_path / "data")
        await broker.start()
        await broker.controller.create_topics([NewTopic("t", 3)])
        await broker.shut_down()

    async def give_up() -> None:
        broker = broker_in(tmp_path / "data")
        broker.give_up_start()
        with pytest.raises(StartGivenUp):
            await broker.start()
        assert broker.state is BrokerState.NOT_RUNNING

    async def serve() -> None:
        broker = broker_in(tmp_path / "data")
        await broker.start()
        assert len(broker.partitions) == 3
        await broker.shut_down()

    asyncio.run(fill())
    asyncio.run(give_up())
    assert not (tmp_path / "data" / CLEAN_MARK).exists(), (
        "not every log was loaded, so nobody can vouch for them"
    )
    asyncio.run(serve())
    assert (tmp_path / "data" / CLEAN_MARK).exists()


def test_a_start_that_is_given_up_after_a_crash_leaves_the_crash_for_the_next_one(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Otherwise that one would come back while others still count on what may be lost."""
    monkeypatch.setattr(registration, "_LOOK_S", 0.001)
    zookeeper = MemoryZooKeeper()
    partition = TopicPartition("t", 0)
    mark = tmp_path / CLEAN_MARK

    async def ensemble() -> SharedStore:
        return zookeeper.session()

    def broker() -> Broker:
        options = {
            "listeners": "PLAINTEXT://127.0.0.1:0",
            "log.dirs": str(tmp_path),
            "zookeeper.connect": "in-memory:2181",
            "broker.id": "1",
        }
        return with_zookeeper(BrokerConfig(options), ensemble=ensemble)

    async def in_sync(*isr: int) -> None:
        state = PartitionState(leader=1, leader_epoch=0, isr=isr, controller_epoch=1)
        await zookeeper.session().set(znodes.partition_state_path(partition), state.encode())

    async def scenario() -> None:
        first = broker()
        await first.start()
        await first.controller.create_topics([NewTopic("t", 1)])
        async with asyncio.timeout(30):
            while partition not in first.log_dirs.logs:  # noqa: ASYNC110 (a controller that tells nobody else)
                await asyncio.sleep(0.001)
        await first.shut_down()
        mark.unlink()
        other = BrokerRegistration(broker_id=2, endpoints=first.advertised)
        await zookeeper.session().create(znodes.broker_path(2), other.encode(), ephemeral=True)
        await in_sync(1, 2)

        second = broker()
        start = asyncio.ensure_future(second.start())
        async with asyncio.timeout(30):
            while not hasattr(second, "log_dirs") or not second.log_dirs.logs:  # noqa: ASYNC110 (as above)
                await asyncio.sleep(0.001)
        second.give_up_start()
        with pytest.raises(StartGivenUp):
            await start
        assert not mark.exists()
        assert zookeeper.stat(znodes.broker_path(2)) is not None
        assert not await zookeeper.session().exists(znodes.broker_path(1))

        await in_sync(1)
        third = broker()
        await third.start()
        assert not mark.exists()
        await third.shut_down()
        assert mark.exists()

    asyncio.run(scenario())
