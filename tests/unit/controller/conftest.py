"""A controller on a real store, without a broker around it."""

from __future__ import annotations

import contextlib
import os
import random
from collections.abc import AsyncIterator, Callable
from contextlib import AbstractAsyncContextManager
from dataclasses import dataclass
from pathlib import Path

import pytest
from tests.rigs.clock import ManualClock

from tidelog.config.broker_config import BrokerConfig
from tidelog.controller.controller import Controller
from tidelog.controller.takeover import take_over
from tidelog.metadata.dynamic_config import DynamicConfigs
from tidelog.metadata.embedded.embedded_store import EmbeddedStore
from tidelog.metadata.feed import MetadataFeed
from tidelog.metadata.image import MetadataImage
from tidelog.metadata.znodes.znodes import BrokerRegistration, broker_path

BROKER_ID = 1


@dataclass
class Seat:
    """A controller and what it stands on."""

    controller: Controller
    store: EmbeddedStore
    feed: MetadataFeed
    config: BrokerConfig
    configs: DynamicConfigs

    @property
    def image(self) -> MetadataImage:
        return self.feed.image


OpenSeat = Callable[..., AbstractAsyncContextManager[Seat]]


@pytest.fixture
def open_seat(tmp_path: Path) -> OpenSeat:
    """``async with open_seat(name="value", …)``: start on ``tmp_path``, as often as a test likes."""

    @contextlib.asynccontextmanager
    async def open_(
        options: dict[str, str] | None = None,
        brokers: int = 1,
        sync: Callable[[int], None] = os.fdatasync,
    ) -> AsyncIterator[Seat]:
        config = BrokerConfig({"node.id": str(BROKER_ID), "log.dirs": str(tmp_path), **(options or {})})
        store = EmbeddedStore(tmp_path, sync=sync)
        try:
            await take_over(store, config, ManualClock())
            for broker_id in range(BROKER_ID, BROKER_ID + brokers):
                registration = BrokerRegistration(
                    broker_id=broker_id, endpoints=tuple(config.advertised_listeners)
                )
                await store.create(broker_path(broker_id), registration.encode(), ephemeral=True)
            feed = await MetadataFeed.start(store)
            configs = DynamicConfigs(store, feed, config)
            controller = Controller(store, feed, config, configs, rng=random.Random(0))
            yield Seat(controller, store, feed, config, configs)
            await feed.close()
        finally:
            await store.close()

    return open_
