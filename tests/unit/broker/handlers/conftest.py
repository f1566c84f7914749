"""Handlers on a real store and real logs, without sockets around them."""

from __future__ import annotations

import asyncio
import contextlib
import importlib
import random
from collections.abc import AsyncIterator, Callable, Generator
from contextlib import AbstractAsyncContextManager
from functools import partial
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from tests.rigs.clock import ManualClock

from tidelog.broker.access.authorization import OPEN
from tidelog.broker.context import RequestContext
from tidelog.broker.exchange.services import bind
from tidelog.broker.quotas.client_quotas import ClientQuotas
from tidelog.broker.responses import refuse_each
from tidelog.broker.served import SERVED
from tidelog.config.broker_config import BrokerConfig
from tidelog.controller.controller import Controller
from tidelog.controller.takeover import take_over
from tidelog.errors import KafkaError
from tidelog.ids import random_uuid, uuid_to_text
from tidelog.metadata.dynamic_config import DynamicConfigs
from tidelog.metadata.embedded.embedded_store import EmbeddedStore
from tidelog.metadata.feed import MetadataFeed
from tidelog.metadata.image import MetadataImage
from tidelog.metadata.store import put
from tidelog.metadata.znodes.znodes import CLUSTER_ID, BrokerRegistration, broker_path, encode_cluster_id
from tidelog.records.record import Record, encode_batch
from tidelog.replication.partition import Partition
from tidelog.replication.partitions import Partitions
from tidelog.scheduling.slow_lane import SlowLane
from tidelog.security.session import Session
from tidelog.storage.directories.log_dirs import LogDirs
from tidelog.storage.log_config import LogConfig
from tidelog.wire.api import API_TABLE
from tidelog.wire.codec import decode, encode

BROKER_ID = 1


class _SlowClock(ManualClock):
    """Each look at it takes so long that every slice of work has a turn of the loop of its own."""

    def monotonic_ms(self) -> float:
        self.advance(1)
        return super().monotonic_ms()


class SmallBroker:
    """The services that handlers ask for, made of the real parts."""

    def __init__(
        self, config: BrokerConfig, store: EmbeddedStore, feed: MetadataFeed, log_dirs: LogDirs
    ) -> None:
        self.config = config
        self.served = SERVED
        self.store = store
        self.image: MetadataImage = feed.image
        self.clock = ManualClock()
        self.log_dirs = log_dirs
        self.dynamic_configs = DynamicConfigs(store, feed, config)
        self.controller = Controller(store, feed, config, self.dynamic_configs, rng=random.Random(0))
        self.partitions = Partitions(
            config.node_id,
            feed.image,
            log_dirs,
            lambda topic: LogConfig.from_options(self.dynamic_configs.topic(topic)),
            asyncio.get_running_loop(),
            self.on_offline,
        )
        self.failed: list[Exception] = []
        self.authorization = OPEN
        self.quotas = ClientQuotas(clock=self.clock)
        self.lane = SlowLane(_SlowClock())

    @property
    def admin(self) -> Controller:
        return self.controller

    def on_offline(self, error: Exception) -> None:
        self.failed.append(error)

    async def call(self, name: str, request: Any, version: int) -> Any:
        """Send a request through the codec, its handler, and the codec again, as a client would see it."""
        module = importlib.import_module(f"tidelog.broker.handlers.{name}")
        api = API_TABLE[module.API]
        assert module.VERSIONS[0] <= version <= module.VERSIONS[1]
        received, _ = decode(api.request, version, encode(request, version))
        connection: Any = SimpleNamespace(
            listener="PLAINTEXT", peer=("127.0.0.1", 1), session=Session("127.0.0.1")
        )
        context = RequestContext(connection, version, 7, "tests")
        try:
            response: Any = bind(module.handle, self)(context, received)
            while not hasattr(response, "__struct_fields__"):
                response = await (self.lane.run(response) if isinstance(response, Generator) else response)
        except KafkaError as error:
            refuse = getattr(module, "refuse", partial(refuse_each, api.response))
            response = refuse(received, error)
        answered, _ = decode(api.response, version, encode(response, version))
        return answered

    async def produce(self, topic: str, index: int, count: int, **batch: Any) -> Partition:
        """Append ``count`` records to a partition."""
        partition = self.partitions.get(topic, index)
        records = [Record(timestamp=self.clock.time_ms(), value=b"value") for _ in range(count)]
        partition.append(memoryview(bytearray(encode_batch(records, **batch))))
        return partition


OpenBroker = Callable[..., AbstractAsyncContextManager[SmallBroker]]


@pytest.fixture
def open_broker(tmp_path: Path) -> OpenBroker:
    """``async with open_broker(options) as broker``; opening again is a restart."""

    @contextlib.asynccontextmanager
    async def open_(options: dict[str, str] | None = None) -> AsyncIterator[SmallBroker]:
        given = {"node.id": str(BROKER_ID), "log.dirs": str(tmp_path / "data"), **(options or {})}
        config = BrokerConfig({name: value.replace("TMP", str(tmp_path)) for name, value in given.items()})
        log_dirs = LogDirs(config.log_dirs, clock=ManualClock())
        log_dirs.open()
        store = EmbeddedStore(config.log_dirs[0])
        await take_over(store, config, ManualClock())
        if not await store.exists(CLUSTER_ID):
            await put(store, CLUSTER_ID, encode_cluster_id(uuid_to_text(random_uuid())))
        registration = BrokerRegistration(broker_id=BROKER_ID, endpoints=config.advertised_listeners)
        await store.create(broker_path(BROKER_ID), registration.encode(), ephemeral=True)
        feed = await MetadataFeed.start(store)
        broker = SmallBroker(config, store, feed, log_dirs)
        feed.subscribe(lambda delta: broker.partitions.apply(delta.topics))
        broker.dynamic_configs.on_topic_change(
            lambda topic, now: broker.partitions.configure(topic, LogConfig.from_options(now))
        )
        log_dirs.load(
            lambda topic: LogConfig.from_options(broker.dynamic_configs.topic(topic)),
            is_stray=broker.partitions.is_stray,
        )
        broker.partitions.apply(list(feed.image.topics))
        try:
            yield broker
        finally:
            broker.partitions.close()
            await log_dirs.close()
            await feed.close()
            await store.close()

    return open_


@pytest.fixture
def run(open_broker: OpenBroker) -> Callable[..., None]:
    """``run(body, **options)``: ``await body(broker)`` on a fresh loop."""

    def run_(body: Callable[[SmallBroker], Any], options: dict[str, str] | None = None) -> None:
        async def main() -> None:
            async with open_broker(options) as broker:
                await body(broker)

        asyncio.run(main())

    return run_
