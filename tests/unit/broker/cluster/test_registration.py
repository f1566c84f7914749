"""Who a broker is: the cluster's id, its own, and its registration."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable

import pytest
from tests.rigs.memory_zookeeper import MemoryZooKeeper

from tidelog.broker.cluster import registration
from tidelog.broker.cluster.registration import prepare, register, settle_broker_id, settle_cluster_id
from tidelog.broker.state import StartGivenUp
from tidelog.config.broker_config import BrokerConfig
from tidelog.config.listeners import Listener
from tidelog.errors import ConfigError
from tidelog.metadata.znodes import znodes
from tidelog.metadata.znodes.znodes import BrokerRegistration

ME = BrokerRegistration(broker_id=4, endpoints=(Listener("PLAINTEXT", "127.0.0.1", 9092, "PLAINTEXT"),))


def run(test: Callable[[MemoryZooKeeper], Awaitable[None]]) -> None:
    async def main() -> None:
        zookeeper = MemoryZooKeeper()
        await prepare(zookeeper.session())
        await test(zookeeper)

    asyncio.run(main())


def config(**options: str) -> BrokerConfig:
    named = {name.replace("_", "."): value for name, value in options.items()}
    return BrokerConfig({"zookeeper.connect": "localhost:2181", **named})


def test_the_first_broker_gives_the_cluster_its_id_and_the_others_take_it() -> None:
    async def test(zookeeper: MemoryZooKeeper) -> None:
        ids = await asyncio.gather(*(settle_cluster_id(zookeeper.session(), None) for _ in range(3)))
        assert len(set(ids)) == 1
        assert await settle_cluster_id(zookeeper.session(), ids[0]) == ids[0]

    run(test)


def test_log_directories_of_another_cluster_are_refused() -> None:
    async def test(zookeeper: MemoryZooKeeper) -> None:
        known = await settle_cluster_id(zookeeper.session(), None)
        with pytest.raises(ConfigError, match=f"belong to cluster other.*{known}"):
            await settle_cluster_id(zookeeper.session(), "other")

    run(test)


def test_a_broker_without_an_id_gets_the_next_one_above_the_reserved() -> None:
    async def test(zookeeper: MemoryZooKeeper) -> None:
        store = zookeeper.session()
        found = [await settle_broker_id(store, config(broker_id="-1"), None) for _ in range(3)]
        assert found == [1001, 1002, 1003]
        assert await settle_broker_id(store, config(broker_id="-1"), 1002) == 1002
        odd = {"reserved.broker.max.id": "50", "broker.id": "-1"}
        assert await settle_broker_id(store, BrokerConfig(odd), None) == 54

    run(test)


def test_an_id_is_taken_from_the_configuration_and_must_be_that_of_the_log_directories() -> None:
    async def test(zookeeper: MemoryZooKeeper) -> None:
        store = zookeeper.session()
        assert await settle_broker_id(store, config(broker_id="7"), None) == 7
        assert await settle_broker_id(store, config(broker_id="7"), 7) == 7
        with pytest.raises(ConfigError, match=r"broker\.id is 7, but the log directories belong to broker 8"):
            await settle_broker_id(store, config(broker_id="7"), 8)

    run(test)


def test_where_ids_are_not_generated_one_must_be_set() -> None:
    async def test(zookeeper: MemoryZooKeeper) -> None:
        given = config(broker_id="-1", broker_id_generation_enable="false")
        with pytest.raises(ConfigError, match=r"set broker\.id"):
            await settle_broker_id(zookeeper.session(), given, None)

    run(test)


def test_a_registration_is_the_sessions_and_its_creation_is_the_epoch() -> None:
    async def test(zookeeper: MemoryZooKeeper) -> None:
        store = zookeeper.session()
        epoch = await register(store, ME, 0, lambda: False)
        stat = zookeeper.stat(znodes.broker_path(4))
        assert (stat.created_zxid, stat.owner) == (epoch, store.session_id)
        # Asked again in the same session, it is the same.
        assert await register(store, ME, 0, lambda: False) == epoch
        zookeeper.expire(store)
        zookeeper.resume(store)
        assert await register(store, ME, 0, lambda: False) > epoch

    run(test)


def test_an_earlier_sessions_registration_is_waited_for(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(registration, "_LOOK_S", 0)

    async def test(zookeeper: MemoryZooKeeper) -> None:
        before, now = zookeeper.session(), zookeeper.session()
        first = await register(before, ME, 0, lambda: False)
        waiting = asyncio.ensure_future(register(now, ME, 60_000, lambda: False))
        for _ in range(20):
            await asyncio.sleep(0)
        assert not waiting.done()
        zookeeper.expire(before)
        assert await waiting > first

    run(test)


def test_a_registration_of_an_earlier_session_of_the_same_broker_is_replaced() -> None:
    """It may have left that session, which ZooKeeper has not missed yet."""

    async def test(zookeeper: MemoryZooKeeper) -> None:
        before, now = zookeeper.session(), zookeeper.session()
        first = await register(before, ME, 0, lambda: False)
        second = await register(now, ME, -1, lambda: False, earlier_session=before.session_id)
        assert second > first
        stat = zookeeper.stat(znodes.broker_path(4))
        assert (stat.created_zxid, stat.owner) == (second, now.session_id)

    run(test)


def test_another_broker_with_the_same_id_is_an_error() -> None:
    async def test(zookeeper: MemoryZooKeeper) -> None:
        await register(zookeeper.session(), ME, 0, lambda: False)
        with pytest.raises(ConfigError, match="id 4 is in the cluster already"):
            await register(zookeeper.session(), ME, -1, lambda: False)
        earlier = zookeeper.session().session_id
        with pytest.raises(ConfigError, match="id 4 is in the cluster already"):
            await register(zookeeper.session(), ME, -1, lambda: False, earlier_session=earlier)

    run(test)


def test_a_broker_that_is_told_to_stop_waits_no_longer_for_an_earlier_session() -> None:
    async def test(zookeeper: MemoryZooKeeper) -> None:
        await register(zookeeper.session(), ME, 0, lambda: False)
        with pytest.raises(StartGivenUp, match="told to stop"):
            await register(zookeeper.session(), ME, 60_000, lambda: True)

    run(test)
