"""What being a member of a group can raise, besides the codes that coordinators answer with.

ClientError
└── CommitFailedError   the group has gone on without this member: its offsets were not committed

A commit during a rebalance raises ``KafkaError`` with REBALANCE_IN_PROGRESS: poll, then commit again. One
that was refused for other reasons raises ``KafkaError`` with the coordinator's code. ``FENCED_INSTANCE_ID``
means that another consumer has taken this one's ``group.instance.id``; it does not pass.
"""

from __future__ import annotations

from tidelog.client.errors import ClientError
from tidelog.errors import ErrorCode, KafkaError


class CommitFailedError(ClientError):
    """Offsets of partitions that may belong to another member by now; they will be read again."""


def kicked_out(group_id: str) -> CommitFailedError:
    """The commit of a member that is none any more."""
    return CommitFailedError(
        f"offsets were not committed: this consumer is no longer a member of group {group_id!r} and its "
        "partitions may have gone to others; poll more often than max.poll.interval.ms, with a smaller "
        "max.poll.records if need be"
    )


def not_a_member(group_id: str) -> CommitFailedError:
    """The commit of a consumer that has assigned its partitions by hand."""
    return CommitFailedError(
        f"offsets were not committed: group {group_id!r} has members, and this consumer, which assigns "
        "partitions by hand, is none of them; use another group.id"
    )


def commit_during_rebalance(group_id: str) -> KafkaError:
    """The commit of a member whose group is about to settle."""
    return KafkaError(
        ErrorCode.REBALANCE_IN_PROGRESS,
        f"offsets were not committed: group {group_id!r} is rebalancing; poll, then commit again",
    )


def fenced(group_id: str, instance_id: str | None) -> KafkaError:
    """Another consumer runs under the same name."""
    return KafkaError(
        ErrorCode.FENCED_INSTANCE_ID,
        f"another consumer has joined group {group_id!r} as {instance_id!r}: give each its own "
        "group.instance.id",
    )
