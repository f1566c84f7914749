"""The ways to run a broker: each puts the same ``Broker`` together out of parts with the same interfaces.

``broker_for`` asks the options which way it is; nobody else does.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from tidelog.broker.app import Broker
from tidelog.broker.membership import MetadataParts
from tidelog.broker.standalone import open_standalone
from tidelog.clock import Clock, SystemClock
from tidelog.config.broker_config import BrokerConfig
from tidelog.storage.directories.log_dirs import LogDirs

if TYPE_CHECKING:
    from tidelog.broker.cluster.joining import Ensemble


def standalone(config: BrokerConfig, clock: Clock | None = None) -> Broker:
    """A broker alone, whose metadata are in its log directories."""
    return Broker(config, clock or SystemClock(), open_standalone)


def with_zookeeper(
    config: BrokerConfig, clock: Clock | None = None, ensemble: Ensemble | None = None
) -> Broker:
    """A broker of a cluster that ZooKeeper coordinates; ``ensemble`` stands in for ``zookeeper.connect``."""

    async def join(config: BrokerConfig, clock: Clock, log_dirs: LogDirs) -> MetadataParts:
        # Not loaded by a broker alone, which is to be ready in a moment.
        from tidelog.broker.cluster.joining import join_ensemble

        return await join_ensemble(config, clock, log_dirs, ensemble)

    return Broker(config, clock or SystemClock(), join)


def broker_for(config: BrokerConfig) -> Broker:
    """The broker that the options ask for."""
    if config.optional_str("zookeeper.connect") is not None:
        return with_zookeeper(config)
    return standalone(config)
