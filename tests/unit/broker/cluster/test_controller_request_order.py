"""What a broker is told of topics that are new to it waits for their configs, and nothing overtakes it."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import cast

from tests.rigs.clock import ManualClock
from tests.rigs.memory_zookeeper import MemoryZooKeeper

from tidelog.broker.cluster.controller_requests import ControllerRequests
from tidelog.ids import Uuid, random_uuid
from tidelog.metadata.cluster_feed import ClusterFeed
from tidelog.metadata.store import SharedStore, ensure_path, put
from tidelog.metadata.znodes import znodes
from tidelog.replication.fetch_loop import FetchLoops
from tidelog.replication.partitions import Partitions
from tidelog.storage.directories.log_dirs import LogDirs

COMPACT = {"cleanup.policy": "compact"}


class Scene:
    """A control of which only the order of requests is looked at."""

    def __init__(self, store: SharedStore, feed: ClusterFeed) -> None:
        self.store = store
        self.feed = feed
        self.controller_requests = ControllerRequests(
            1,
            lambda: 0,
            feed,
            cast(Partitions, None),
            cast(LogDirs, None),
            cast(FetchLoops, None),
            lambda _: None,
        )
        self.seen: list[tuple[str, dict[str, str]]] = []

    async def create(self, topic: str, configs: dict[str, str]) -> dict[str, Uuid]:
        await put(self.store, znodes.topic_config_path(topic), znodes.encode_config(configs))
        return {topic: random_uuid()}

    def tell(self, topics: dict[str, Uuid]) -> str | Awaitable[str]:
        """A request, whose carrying out notes which configs are known then."""
        (topic,) = topics

        def apply() -> str:
            self.seen.append((topic, self.feed.image.topic_config(topic)))
            return topic

        return self.controller_requests.in_order(topics, apply)


def run(test: Callable[[Scene], Awaitable[None]]) -> None:
    async def main() -> None:
        store = MemoryZooKeeper().session()
        for path in znodes.PERSISTENT_PATHS:
            await ensure_path(store, path)
        await put(store, znodes.topic_config_path("early"), znodes.encode_config(COMPACT))
        feed = await ClusterFeed.start(store, ManualClock())
        await test(Scene(store, feed))
        await feed.close()

    asyncio.run(main())


def test_a_new_topic_waits_for_the_configs_that_it_was_created_with() -> None:
    async def test(scene: Scene) -> None:
        topics = await scene.create("late", COMPACT)
        answer = scene.tell(topics)
        assert not isinstance(answer, str)
        assert await answer == "late"
        assert scene.seen == [("late", COMPACT)]
        # From then on it is known.
        assert scene.tell(topics) == "late"

    run(test)


def test_a_topic_from_before_the_start_is_not_waited_for() -> None:
    async def test(scene: Scene) -> None:
        assert scene.tell({"early": random_uuid()}) == "early"
        assert scene.seen == [("early", COMPACT)]

    run(test)


def test_nothing_overtakes_a_request_that_waits() -> None:
    async def test(scene: Scene) -> None:
        waiting = scene.tell(await scene.create("late", COMPACT))
        behind = scene.tell({"early": random_uuid()})
        assert not isinstance(waiting, str)
        assert not isinstance(behind, str)
        assert list(await asyncio.gather(waiting, behind)) == ["late", "early"]
        assert [topic for topic, _ in scene.seen] == ["late", "early"]

    run(test)


def test_a_topic_made_anew_does_not_keep_the_configs_of_the_old_one() -> None:
    async def test(scene: Scene) -> None:
        first = scene.tell(await scene.create("again", COMPACT))
        assert not isinstance(first, str)
        await first
        second = scene.tell(await scene.create("again", {}))
        assert not isinstance(second, str)
        await second
        assert scene.seen == [("again", COMPACT), ("again", {})]

    run(test)
