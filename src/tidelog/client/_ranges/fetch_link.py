"""The connections of a reader of ranges to one cluster; those of a Spark worker are kept from task to task.

Spark reuses Python workers, and a worker runs one task at a time: opening connections and learning who leads
what costs more than a small task does. What is kept survives restarts of brokers: metadata is asked for again
and connections are opened again when they fail. Used by ``range_fetcher``.
"""

from __future__ import annotations

import os
from collections.abc import Collection, Coroutine, Mapping
from concurrent.futures import Future
from dataclasses import replace
from typing import Any, TypeVar

from tidelog.client._loop_thread import LoopThread
from tidelog.client._network.cluster import Cluster
from tidelog.client._network.from_options import network_settings
from tidelog.client._network.retry import Deadline
from tidelog.client.consumer._fetch.fetch_config import FetchConfig, fetch_config
from tidelog.client.options import CONSUMER, ClientConfig

T = TypeVar("T")

# Unless the job says otherwise: ranges are read from end to end, so more at a time is cheaper.
_MAX_BYTES = 8 << 20
_MAX_PARTITION_BYTES = 4 << 20
_UNKNOWN_RECORD_BYTES = 1024


class FetchLink:
    """A cluster on a loop thread of its own, and what was learned about its topics."""

    def __init__(self, client: Mapping[str, object] | ClientConfig) -> None:
        config = client if isinstance(client, ClientConfig) else ClientConfig.parse(CONSUMER, client)
        self.config = _bulk(config)
        self._record_bytes: dict[str, float] = {}
        self._known_topics: set[str] = set()
        self._thread = LoopThread(f"tidelog {config.str('client.id')}", at_exit=self._close)
        self.cluster = self._thread.call(_open(config))

    def submit(self, coroutine: Coroutine[Any, Any, T]) -> Future[T]:
        """Run ``coroutine`` on the link's loop; does not wait."""
        return self._thread.submit(coroutine)

    def record_bytes(self, topic: str) -> float:
        """How many bytes an offset of this topic took so far, on the wire."""
        return self._record_bytes.get(topic, _UNKNOWN_RECORD_BYTES)

    def learn_record_bytes(self, topic: str, size_bytes: int, offsets: int) -> None:
        self._record_bytes[topic] = size_bytes / max(offsets, 1)

    async def know(self, topics: Collection[str], deadline: Deadline) -> None:
        """Learn who leads the partitions of ``topics``, if that is not known."""
        if unknown := set(topics) - self._known_topics:
            await self.cluster.refresh(unknown, deadline=deadline)
            self._known_topics |= unknown

    def forget(self, topics: Collection[str]) -> None:
        """What is known of ``topics`` is no longer true."""
        self._known_topics -= set(topics)

    def close(self) -> None:
        self._thread.call(self._close(), 5.0, "closing connections")
        self._thread.close()

    async def _close(self) -> None:
        await self.cluster.close()


async def _open(config: ClientConfig) -> Cluster:
    return Cluster(config.list("bootstrap.servers"), network_settings(config))


_links: dict[tuple[int, tuple[tuple[str, str], ...]], FetchLink] = {}
_MAX_LINKS = 8
"""A worker that serves streams for weeks sees one token after the other."""


def link_for(client: Mapping[str, str]) -> FetchLink:
    """This process's link for a client's options; a forked child has links of its own."""
    key = (os.getpid(), tuple(sorted(client.items())))
    link = _links.pop(key, None) or FetchLink(client)
    _links[key] = link
    while len(_links) > _MAX_LINKS:
        oldest = next(iter(_links))
        unused = _links.pop(oldest)
        if oldest[0] == os.getpid():
            unused.close()
    return link


def _bulk(config: ClientConfig) -> FetchConfig:
    """The client's fetch options with sizes for bulk reading; leaders are read from, whatever the rack."""
    bulk = replace(fetch_config(config), client_rack="")
    if "fetch.max.bytes" not in config.given:
        bulk = replace(bulk, max_bytes=_MAX_BYTES)
    if "max.partition.fetch.bytes" not in config.given:
        bulk = replace(bulk, max_partition_bytes=_MAX_PARTITION_BYTES)
    return bulk
