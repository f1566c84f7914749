"""The groups of one shard, by id. What is here is what records say, or what a join has just begun."""

from __future__ import annotations

from collections.abc import Iterator

from tidelog.coordinator.group.group import Group
from tidelog.errors import ErrorCode, KafkaError


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
