"""Judges each partition of a commit that comes with an older epoch than the member has (KIP-1251).

A commit that was sent before the member learned of its new epoch is good for the partitions that it has
owned all the time since. Used by ``group.ConsumerGroup.check_offset_commit``.
"""

from __future__ import annotations

from tidelog.coordinator.group.consumer.member import ConsumerMember
from tidelog.coordinator.group.group import CommitCheck
from tidelog.errors import ErrorCode, KafkaError


class AssignmentEpochCheck(CommitCheck):
    """The partitions of one commit of one member."""

    def __init__(self, member: ConsumerMember, epoch: int) -> None:
        self._member = member
        self._epoch = epoch

    def check(self, topic: str, topic_id: bytes, partition: int) -> None:
        owned_since = self._member.owned_since(topic_id, partition)
        if owned_since is None:
            raise stale(self._member, f"{topic}-{partition} is neither assigned to it nor being revoked.")
        if self._epoch < owned_since:
            raise stale(
                self._member,
                f"epoch {self._epoch} is older than its {topic}-{partition}, got at {owned_since}.",
            )


def stale(member: ConsumerMember, why: str) -> KafkaError:
    """The refusal in the words of the protocol that the member uses."""
    code = ErrorCode.ILLEGAL_GENERATION if member.uses_classic_protocol else ErrorCode.STALE_MEMBER_EPOCH
    return KafkaError(code, f"Member {member.member_id}: {why}")
