"""A broker that does not know its epoch yet cannot tell what was meant for an earlier life: it waits."""

from __future__ import annotations

import asyncio
from typing import cast

from tests.rigs.clock import ManualClock
from tests.rigs.memory_zookeeper import MemoryZooKeeper

from tidelog.broker.cluster.controller_requests import ControllerRequests
from tidelog.errors import ErrorCode
from tidelog.metadata.cluster_feed import ClusterFeed
from tidelog.replication.fetch_loop import FetchLoops
from tidelog.replication.partitions import Partitions
from tidelog.storage.directories.log_dirs import LogDirs
from tidelog.wire.messages.leader_and_isr import LeaderAndIsrRequest


def test_a_request_for_an_earlier_life_is_refused_though_it_comes_before_the_registration() -> None:
    async def test() -> None:
        epoch = -1
        control = ControllerRequests(
            1,
            lambda: epoch,
            ClusterFeed(MemoryZooKeeper().session(), ManualClock()),
            cast(Partitions, None),
            cast(LogDirs, None),
            cast(FetchLoops, None),
            lambda _: None,
        )
        old = LeaderAndIsrRequest(controller_id=2, controller_epoch=3, broker_epoch=7)
        answer = asyncio.ensure_future(
            cast(asyncio.Future[object], control.in_order({}, lambda: control.leader_and_isr(old, 7)))
        )
        for _ in range(10):
            await asyncio.sleep(0)
        assert not answer.done()
        epoch = 9
        control.registered()
        response = await asyncio.wait_for(answer, 10)
        assert getattr(response, "error_code") == ErrorCode.STALE_BROKER_EPOCH  # noqa: B009
        assert control.controller_epoch == 0

    asyncio.run(test())
