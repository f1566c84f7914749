"""What the shards of the group coordinator share: configuration, topics, randomness."""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

from tidelog.config.broker_config import BrokerConfig
from tidelog.ids import Uuid
from tidelog.metadata.group_configs import GroupConfigs
from tidelog.metadata.image import MetadataImage


class GroupSupport(NamedTuple):
    """Handed to every shard, so that tests can hand in their own."""

    config: BrokerConfig
    """Options are read when they are needed, because some change while the broker runs."""
    group_configs: GroupConfigs
    image: MetadataImage
    new_member_uuid: Callable[[], Uuid]
    """A fresh UUID for a member id."""
