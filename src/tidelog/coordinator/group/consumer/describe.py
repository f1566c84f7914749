"""Consumer groups as ConsumerGroupDescribe shows them."""

from __future__ import annotations

from tidelog.coordinator.group.consumer.group import ConsumerGroup
from tidelog.coordinator.group.consumer.member import ConsumerMember, TopicIdPartitions, without_epochs
from tidelog.coordinator.group.consumer.topics import TopicView
from tidelog.wire.messages.consumer_group_describe import Assignment, DescribedGroup, Member, TopicPartitions

_CLASSIC, _CONSUMER = 0, 1
"""The types of members (KIP-1099)."""


def described_group(group: ConsumerGroup, default_assignor: str, topics: TopicView) -> DescribedGroup:
    """A group with its members."""
    return DescribedGroup(
        group_id=group.group_id,
        group_state=group.state_name,
        group_epoch=group.epoch,
        assignment_epoch=group.assignment_epoch,
        assignor_name=group.preferred_assignor(None, None) or default_assignor,
        members=[_described(group, member, topics) for member in group.members.values()],
    )


def _described(group: ConsumerGroup, member: ConsumerMember, topics: TopicView) -> Member:
    """A member; what it is giving up is still its own."""
    owned = without_epochs(member.assigned)
    for topic_id, partitions in member.revoking.items():
        owned[topic_id] = owned.get(topic_id, frozenset()).union(partitions)
    return Member(
        member_id=member.member_id,
        instance_id=member.instance_id,
        rack_id=member.rack_id,
        member_epoch=member.epoch,
        client_id=member.client_id,
        client_host=member.client_host,
        subscribed_topic_names=sorted(member.topics),
        subscribed_topic_regex=member.regex,
        assignment=_assignment(owned, topics),
        target_assignment=_assignment(group.targets.get(member.member_id, {}), topics),
        member_type=_CLASSIC if member.uses_classic_protocol else _CONSUMER,
    )


def _assignment(partitions: TopicIdPartitions, topics: TopicView) -> Assignment:
    """Partitions with the names of their topics, without those that are gone."""
    return Assignment(
        topic_partitions=[
            TopicPartitions(topic_id=topic_id, topic_name=topic.name, partitions=sorted(partitions[topic_id]))
            for topic_id in sorted(partitions)
            if (topic := topics.by_id(topic_id)) is not None
        ]
    )
