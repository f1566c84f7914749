"""Who a broker is in its cluster: the cluster's id, the broker's own, and its registration in ZooKeeper.

The registration is an ephemeral node, so it lives as long as the session; its creation is a transaction
whose number is the broker's *epoch*. A registration that an earlier process of this broker left (it was
killed, and ZooKeeper has not missed it yet) is waited for; one that this process left in an earlier session
is replaced; one of another broker with the same id is an error.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
from collections.abc import Callable, Collection

from tidelog.broker.state import StartGivenUp
from tidelog.config.broker_config import BrokerConfig
from tidelog.controller.cluster.leadership_nodes import read_leaderships
from tidelog.errors import ConfigError
from tidelog.ids import TopicPartition, random_uuid, uuid_to_text
from tidelog.metadata.store import ANY_VERSION, NodeExists, NoNode, SharedStore, ensure_path
from tidelog.metadata.znodes import znodes
from tidelog.metadata.znodes.znodes import BrokerRegistration

logger = logging.getLogger(__name__)

_LOOK_S = 0.2


async def prepare(store: SharedStore) -> None:
    """Make the nodes that every cluster has."""
    for path in znodes.PERSISTENT_PATHS:
        await ensure_path(store, path)


async def settle_cluster_id(store: SharedStore, stored: str | None) -> str:
    """The cluster's id, made by its first broker; raises if the log directories are another cluster's."""
    while True:
        try:
            raw, _ = await store.get(znodes.CLUSTER_ID)
            cluster_id = znodes.decode_cluster_id(raw)
            break
        except NoNode:
            cluster_id = stored or uuid_to_text(random_uuid())
            try:
                await ensure_path(store, "/cluster")
                await store.create(znodes.CLUSTER_ID, znodes.encode_cluster_id(cluster_id))
                break
            except NodeExists:
                continue
    if stored is not None and stored != cluster_id:
        raise ConfigError(
            f"the log directories belong to cluster {stored}, but zookeeper.connect leads to cluster "
            f"{cluster_id}: change zookeeper.connect, or use other log directories"
        )
    return cluster_id


async def settle_broker_id(store: SharedStore, config: BrokerConfig, stored: int | None) -> int:
    """The broker's id: as configured, as its log directories say, or a new one from ``/brokers/seqid``."""
    configured = config.node_id if {"node.id", "broker.id"} & config.raw.keys() else None
    if config.raw.get("broker.id", "").strip() == "-1" and "node.id" not in config.raw:
        configured = None
    if configured is not None:
        if stored is not None and stored != configured:
            raise ConfigError(
                f"broker.id is {configured}, but the log directories belong to broker {stored}: change "
                "broker.id, or use other log directories"
            )
        return configured
    if stored is not None:
        return stored
    if not config.bool("broker.id.generation.enable"):
        raise ConfigError("this broker has no id: set broker.id, or broker.id.generation.enable=true")
    # Each write raises the node's version by one: that is the sequence.
    await ensure_path(store, znodes.BROKER_SEQUENCE)
    version = await store.set(znodes.BROKER_SEQUENCE, b"", ANY_VERSION)
    return config.int("reserved.broker.max.id") + version


async def wait_until_missed(
    store: SharedStore,
    broker_id: int,
    held: Collection[TopicPartition],
    patience_ms: float,
    given_up: Callable[[], bool],
) -> None:
    """After a crash: wait until no other broker counts on what this one had.

    A crash may have taken the end of its logs. As long as it is written down as in sync it may be made, or
    stay, a leader, and the others would cut back what they have and it has lost. So it comes back only when a
    controller has noticed that it was away and has taken it out, as KIP-966 has it. Where nobody else is
    there, nobody else has more. Raises ``StartGivenUp``.
    """
    loop = asyncio.get_running_loop()
    until = loop.time() + patience_ms / 1000
    while True:
        if given_up():
            raise StartGivenUp("the broker was told to stop while it waited for its crash to be noticed")
        others = {int(each) for each in await store.children(znodes.BROKER_IDS)} - {broker_id}
        counted_on = await _counted_on(store, broker_id, held) if others else []
        if not counted_on:
            return
        if loop.time() > until:
            logger.warning(
                "Broker %d is still written down as in sync for %d partitions after its crash, %s among them",
                broker_id,
                len(counted_on),
                counted_on[0],
            )
            return
        await asyncio.sleep(_LOOK_S)


async def _counted_on(
    store: SharedStore, broker_id: int, held: Collection[TopicPartition]
) -> list[TopicPartition]:
    """The partitions for which a broker is in sync, and others are too."""
    going = set(await store.children(znodes.DELETE_TOPICS))
    known = await read_leaderships(store, [each for each in held if each.topic not in going])
    return [
        partition
        for partition, leadership in known.items()
        if broker_id in leadership.state.isr and len(leadership.state.isr) > 1
    ]


async def register(
    store: SharedStore,
    registration: BrokerRegistration,
    patience_ms: float,
    given_up: Callable[[], bool],
    *,
    earlier_session: int | None = None,
) -> int:
    """Put a broker into the cluster; gives its epoch. Raises ``StartGivenUp``.

    ``earlier_session`` is the one in which this process was registered last.
    """
    path = znodes.broker_path(registration.broker_id)
    loop = asyncio.get_running_loop()
    until = loop.time() + patience_ms / 1000
    waited = False
    while True:
        try:
            await store.create(path, registration.encode(), ephemeral=True)
        except NodeExists:
            stat = await store.stat(path)
            if stat is not None and stat.owner == store.session_id:
                return stat.created_zxid
            if stat is not None and stat.owner == earlier_session:
                # This broker has left that session, and ZooKeeper has not missed it yet.
                logger.info("Replacing what an earlier session of broker %d left", registration.broker_id)
                with contextlib.suppress(NoNode):
                    await store.delete(path)
                continue
            if given_up():
                raise StartGivenUp(
                    "the broker was told to stop while it waited for its earlier session to end"
                ) from None
            if loop.time() > until:
                raise ConfigError(
                    f"a broker with the id {registration.broker_id} is in the cluster already: give this one "
                    "another broker.id, or stop the other"
                ) from None
            if not waited:
                waited = True
                logger.info("Waiting for an earlier session of broker %d to end", registration.broker_id)
            await asyncio.sleep(_LOOK_S)
            continue
        stat = await store.stat(path)
        if stat is not None and stat.owner == store.session_id:
            return stat.created_zxid
