"""The groups of one shard, by id, and what all shards share.

What is in :class:`Groups` is what records say, or what a join has just begun.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import NamedTuple

from tidelog.config.broker_config import BrokerConfig
from tidelog.coordinator.group.group import Group
from tidelog.errors import ErrorCode, KafkaError
from tidelog.ids import Uuid
from tidelog.metadata.group_configs import GroupConfigs
from tidelog.metadata.image import MetadataImage


class Groups:
    """Groups by id."""

    def __init__(self) -> None:
        self.by_id: dict[str, Group] = {}

    def __len__(self) -> int:
        return len(self.by_id)

    def __iter__(self) -> Iterator[Group]:
        return iter(list(self.by_id.values()))

    def __contains__(self, group_id: str) -> bool:
        return group_id in self.by_id

    def get(self, group_id: str) -> Group | None:
        """A group of whatever type, or None."""
        return self.by_id.get(group_id)

    def require(self, group_id: str) -> Group:
        """A group of whatever type; raises GROUP_ID_NOT_FOUND."""
        group = self.by_id.get(group_id)
        if group is None:
            raise not_found(group_id)
        return group

    def put(self, group: Group) -> None:
        """Keep ``group``, in the place of one of the same id if there is one."""
        self.by_id[group.group_id] = group

    def remove(self, group_id: str) -> None:
        """Forget a group."""
        self.by_id.pop(group_id, None)


def not_found(group_id: str) -> KafkaError:
    """The refusal for a group that is not there."""
    return KafkaError(ErrorCode.GROUP_ID_NOT_FOUND, f"Group {group_id} not found.")


class GroupSupport(NamedTuple):
    """Handed to every shard, so that tests can hand in their own."""

    config: BrokerConfig
    """Options are read when they are needed, because some change while the broker runs."""
    group_configs: GroupConfigs
    image: MetadataImage
    new_member_uuid: Callable[[], Uuid]
    """A fresh UUID for a member id."""
