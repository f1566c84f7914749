"""What a consumer asks of its group: :class:`GroupMembership`, and :class:`NoGroup` for those that have none.

``AsyncConsumer`` makes it when it starts, and calls it on its loop, in this order: in every turn of a
``poll`` first ``ensure_active`` (if partitions come from a group), then ``poll``; ``commit`` and
``fetch_committed`` at any time, also from a listener that runs inside ``ensure_active``; ``leave`` on
unsubscribe and close, after which ``ensure_active`` may join again; ``close`` last.

The assignment in ``SubscriptionState`` changes, and listeners are called, inside ``ensure_active`` and
``leave`` only. Background tasks (heartbeats) set flags that the next ``ensure_active`` acts on.
``_membership_choice`` makes the one that a consumer's options ask for; before its start, a consumer with a
group has a :class:`NotStarted`.
"""

from __future__ import annotations

import enum
from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, NamedTuple, Protocol

from tidelog.client._network.retry import Deadline
from tidelog.errors import ErrorCode, KafkaError
from tidelog.ids import TopicPartition

if TYPE_CHECKING:
    from tidelog.client.group._group_offsets import Offsets
    from tidelog.client.subscription.offsets import OffsetAndMetadata


@dataclass(frozen=True, slots=True)
class ConsumerGroupMetadata:
    """Who a consumer is in its group, for ``send_offsets_to_transaction``."""

    group_id: str
    generation_id: int = -1
    member_id: str = ""
    group_instance_id: str | None = None


class MembershipState(enum.Enum):
    """How a consumer stands to its group, in either protocol."""

    NO_GROUP = "no group"
    """The consumer has no ``group.id``."""
    UNJOINED = "unjoined"
    """It has not joined yet, has left, or was evicted."""
    REBALANCING = "rebalancing"
    """It joins, or takes over another assignment."""
    STABLE = "stable"
    """It is a member with an assignment, which may be empty."""
    FENCED = "fenced"
    """Another consumer has joined with its ``group.instance.id``."""


class MembershipStatus(NamedTuple):
    """A consumer's place in its group at one moment; to be read by any thread."""

    state: MembershipState = MembershipState.NO_GROUP
    group_id: str | None = None
    member_id: str | None = None
    generation: int | None = None
    committed_at: float | None = None
    """When offsets were last committed, by the monotonic clock."""


class GroupMembership(Protocol):
    """A consumer's place in its group."""

    async def ensure_active(self, deadline: Deadline) -> bool:
        """Be a member with an assignment, rejoining and calling listeners as needed.

        False while that takes time, of which tasks and later calls take care: the network is not waited for
        here, so that records of partitions that stay flow on; ``wake`` says when to call again. Errors that
        no waiting mends (authorization, fenced instance) are raised.
        """

    def poll(self, now: float) -> None:
        """The application is alive (max.poll.interval.ms); start an automatic commit if one is due."""

    @property
    def needs_poll(self) -> bool:
        """Whether a rebalance waits for ``ensure_active``: a ``poll`` that waits for records ends early."""

    def subscribe_wakeups(self, wake: Callable[[], None]) -> None:
        """``wake()`` is to be called when ``ensure_active`` has something to do."""

    def subscribe_commits(self, told: Callable[[Offsets], None]) -> None:
        """``told(offsets)`` is to be called after commits that the membership makes by itself."""

    async def commit(self, offsets: Mapping[TopicPartition, OffsetAndMetadata], deadline: Deadline) -> None:
        """Commit; raises what the coordinator refused."""

    async def fetch_committed(
        self, partitions: Collection[TopicPartition], deadline: Deadline
    ) -> dict[TopicPartition, OffsetAndMetadata | None]:
        """The committed offsets, None where there is none; waits for those of open transactions."""

    async def leave(self, deadline: Deadline) -> None:
        """Commit consumed positions (enable.auto.commit), tell the listener, leave the group."""

    async def close(self) -> None:
        """End background tasks; ``leave`` was called before if there was time."""

    def group_metadata(self) -> ConsumerGroupMetadata:
        """Who this member is now."""

    def status(self) -> MembershipStatus:
        """How far this member has got; from any thread."""


class NoGroup:
    """For consumers without ``group.id``: partitions are assigned by hand and nothing can be committed."""

    needs_poll = False

    async def ensure_active(self, deadline: Deadline) -> bool:
        raise self._refusal("subscribe to topics")

    def poll(self, now: float) -> None:
        pass

    def subscribe_wakeups(self, wake: Callable[[], None]) -> None:
        pass

    def subscribe_commits(self, told: Callable[[Offsets], None]) -> None:
        pass

    async def commit(self, offsets: Mapping[TopicPartition, OffsetAndMetadata], deadline: Deadline) -> None:
        raise self._refusal("commit offsets")

    async def fetch_committed(
        self, partitions: Collection[TopicPartition], deadline: Deadline
    ) -> dict[TopicPartition, OffsetAndMetadata | None]:
        raise self._refusal("ask for committed offsets")

    async def leave(self, deadline: Deadline) -> None:
        pass

    async def close(self) -> None:
        pass

    def group_metadata(self) -> ConsumerGroupMetadata:
        raise self._refusal("name its group")

    def status(self) -> MembershipStatus:
        return MembershipStatus()

    @staticmethod
    def _refusal(what: str) -> KafkaError:
        return KafkaError(
            ErrorCode.INVALID_GROUP_ID, f"a consumer without group.id cannot {what}: set group.id"
        )


class NotStarted(NoGroup):
    """For consumers with a ``group.id`` until they start: they have a group and no connection to it."""

    def __init__(self, identity: ConsumerGroupMetadata) -> None:
        self._identity = identity

    def group_metadata(self) -> ConsumerGroupMetadata:
        return self._identity

    def status(self) -> MembershipStatus:
        return MembershipStatus(MembershipState.UNJOINED, self._identity.group_id)
