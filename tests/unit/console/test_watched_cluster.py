"""One watched cluster: what it does when its history or its producer fails."""

from __future__ import annotations

import asyncio
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pytest
from tests.unit.client.conftest import ScriptedBroker
from tests.unit.client.producer.idempotent_broker import IdempotentBroker

from tidelog.client.errors import ClientClosedError
from tidelog.client.resources import ClusterDescription
from tidelog.console.settings import ClusterSettings
from tidelog.console.watching import watched_cluster
from tidelog.console.watching.history import History
from tidelog.console.watching.snapshot import Snapshot
from tidelog.console.watching.watched_cluster import WatchedCluster
from tidelog.errors import ErrorCode, KafkaError
from tidelog.ids import random_uuid
from tidelog.wire.api import ApiKey
from tidelog.wire.messages.init_producer_id import InitProducerIdResponse


class EmptyCluster:
    """An admin client of a cluster without brokers, which answers nevertheless."""

    def __init__(self) -> None:
        self.cluster = SimpleNamespace(
            refresh=self._refresh, deadline=lambda ms: None, settings=SimpleNamespace(security=None)
        )

    async def _refresh(self, topics: list[str], deadline: None) -> None:
        pass

    async def describe_configs(self, resources: object) -> list[object]:
        return []


def test_a_history_that_fails_hides_no_cluster_and_loses_no_event(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    looks = 0

    async def take_snapshot(admin: object) -> Snapshot:
        nonlocal looks
        looks += 1
        nobody = ClusterDescription("id", None, ())
        return Snapshot(100.0 * looks, 100_000 * looks, nobody, {}, {}, {}, (), {}, {})

    monkeypatch.setattr(watched_cluster, "take_snapshot", take_snapshot)

    async def run() -> None:
        history = History(tmp_path / "history.sqlite", 7)
        settings = ClusterSettings("main", {"bootstrap.servers": "127.0.0.1:1"})
        cluster = WatchedCluster(settings, history, refresh_s=60.0)
        cluster.admin = cast(Any, EmptyCluster())
        cluster._note_problem("away")
        history._db.close()  # stands for all that SQLite may raise
        await cluster._look_once()
        assert cluster.snapshot is not None
        assert cluster.problem is None
        assert await cluster.rebalances("g") == []
        assert ["cannot be read" in each for each in history.problems] == [True, False]
        assert all(str(tmp_path / "history.sqlite") in each for each in history.problems)
        history._is_open = False
        await cluster._look_once()
        assert history.problems == []
        kinds = {each.kind for each in await history.events("main", 10)}
        assert kinds == {"cluster-silent", "cluster-answers"}
        await cluster._look_once()
        assert len(await history.events("main", 10)) == 2
        await history.close()

    asyncio.run(run())


def test_a_producer_that_has_failed_for_good_is_replaced(tmp_path: Path) -> None:
    async def run() -> None:
        async with ScriptedBroker() as broker, asyncio.timeout(20):
            broker.add_topic("t", 1, topic_id=random_uuid())
            written = IdempotentBroker(broker)
            granted = broker.handlers[ApiKey.INIT_PRODUCER_ID]
            refused = InitProducerIdResponse(error_code=ErrorCode.CLUSTER_AUTHORIZATION_FAILED)
            broker.handlers[ApiKey.INIT_PRODUCER_ID] = lambda request, version: refused
            history = History(tmp_path / "history.sqlite", 7)
            settings = ClusterSettings("main", {"bootstrap.servers": broker.address})
            cluster = WatchedCluster(settings, history, refresh_s=60.0)
            failed = cluster.producer
            with pytest.raises(KafkaError) as refusal:
                await failed.send("t", b"refused")
            assert refusal.value.code is ErrorCode.CLUSTER_AUTHORIZATION_FAILED
            broker.handlers[ApiKey.INIT_PRODUCER_ID] = granted
            await cluster.producer.send("t", b"granted")
            assert written.log().values == [b"granted"]
            await cluster.close()
            with pytest.raises(ClientClosedError):
                failed.send("t", b"late")
            await history.close()

    asyncio.run(run())
