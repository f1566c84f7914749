"""What every kind of group has in common, whatever protocol its members speak.

Classic groups (``classic``) and consumer groups (``consumer``, KIP-848) both are one. Offsets, ListGroups,
DeleteGroups and the expiry of offsets work on this alone.
"""

from __future__ import annotations

import enum
from abc import ABC, abstractmethod
from collections.abc import Callable
from typing import NamedTuple

from tidelog.coordinator.stored_record import StoredRecord
from tidelog.wire.messages.list_groups import ListedGroup


class GroupType(enum.Enum):
    """How a group's members are coordinated; the values are Kafka's names."""

    CLASSIC = "classic"
    CONSUMER = "consumer"


def _any_topic(_: str) -> bool:
    return True


class Caller(NamedTuple):
    """Who sent a request: what members are known by, how old its protocol is, and what it may see."""

    client_id: str
    client_host: str
    """As Kafka shows it, with a slash in front: ``/127.0.0.1``."""
    api_version: int
    may_describe: Callable[[str], bool] = _any_topic
    """Whether it may know of a topic; asked when the topics of a regular expression are looked up."""


class CommitCheck(ABC):
    """Judges the partitions of one commit, for groups that know who owns what."""

    @abstractmethod
    def check(self, topic: str, topic_id: bytes, partition: int) -> None:
        """Raise what forbids this commit."""


class Group(ABC):
    """A group by its id."""

    type: GroupType

    def __init__(self, group_id: str) -> None:
        self.group_id = group_id

    @property
    @abstractmethod
    def state_name(self) -> str:
        """Kafka's name of the state the group is in, as tools show it."""

    @property
    @abstractmethod
    def is_empty(self) -> bool:
        """Whether the group has no members."""

    @property
    @abstractmethod
    def protocol_type(self) -> str:
        """What the members use the group for: ``consumer``, or a name of their own; may be empty."""

    @abstractmethod
    def has_member(self, member_id: str) -> bool:
        """Whether a member of this id is in the group."""

    @abstractmethod
    def check_offset_commit(
        self,
        member_id: str,
        group_instance_id: str | None,
        generation_or_epoch: int,
        *,
        transactional: bool,
        api_version: int,
    ) -> CommitCheck | None:
        """Raise unless this member may commit; what is to be asked for each partition, if anything."""

    @abstractmethod
    def check_offset_fetch(self, member_id: str | None, member_epoch: int) -> None:
        """Raise unless this member (None: anybody) may read offsets."""

    @abstractmethod
    def check_offset_delete(self) -> None:
        """Raise unless single offsets may be deleted."""

    @abstractmethod
    def check_delete(self) -> None:
        """Raise unless the group may be deleted: NON_EMPTY_GROUP, GROUP_ID_NOT_FOUND."""

    @abstractmethod
    def is_subscribed_to(self, topic: str) -> bool:
        """Whether a member reads the topic, so that its offsets may be neither deleted nor expire."""

    @abstractmethod
    def tombstones(self) -> list[StoredRecord]:
        """The records that make the log forget the group, offsets aside."""

    @abstractmethod
    def offsets_expire_from(self, committed_at_ms: int) -> int | None:
        """The time from which an offset's age counts (KIP-211); None if it does not age now."""

    def listed(self) -> ListedGroup:
        """The group as ListGroups shows it."""
        return ListedGroup(
            group_id=self.group_id,
            protocol_type=self.protocol_type,
            group_state=self.state_name,
            group_type=self.type.value,
        )
