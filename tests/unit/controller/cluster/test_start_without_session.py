"""A session that expires while a broker starts does not end the start: the broker registers in the next."""

from __future__ import annotations

import asyncio
from typing import cast

from tests.rigs.clock import ManualClock
from tests.rigs.memory_zookeeper import MemoryZooKeeper

from tidelog.broker.cluster.registration import prepare
from tidelog.controller.cluster.control_batch import BrokerChannels
from tidelog.controller.cluster.controller import ClusterController
from tidelog.controller.cluster.controller_term import ControllerSettings
from tidelog.controller.topics import TopicDefaults
from tidelog.metadata.store import SessionExpired


def test_a_broker_registers_in_the_session_after_the_one_that_expired() -> None:
    async def test() -> None:
        store = MemoryZooKeeper().session()
        await prepare(store)
        tries = 0

        async def register() -> None:
            nonlocal tries
            tries += 1
            if tries < 3:
                raise SessionExpired("/brokers/ids/1")

        settings = ControllerSettings(
            broker_id=1,
            inter_broker_listener="PLAINTEXT",
            topic_defaults=lambda: TopicDefaults(1, 1),
            check_topic_configs=lambda configs: None,
            unclean_topics=lambda topics: set(),
        )
        controller = ClusterController(
            store, lambda: cast(BrokerChannels, None), settings, ManualClock(), register
        )
        await controller.start()
        assert tries == 3
        await controller.close()

    asyncio.run(test())
