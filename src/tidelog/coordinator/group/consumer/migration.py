"""Groups that change their protocol while they have members: from classic to consumer and back.

*Upgrade*: the first ConsumerGroupHeartbeat to a classic group turns it into a consumer group in which its
members go on with the classic protocol (``classic_members``). Their last assignment is their target and
what they own; whoever waited for a rebalance is told to rejoin. *Downgrade*: when the last member of the
consumer protocol leaves, or a static one is replaced by a classic member, the rest become a classic group,
which rebalances. What is allowed ``group.consumer.migration.policy`` tells; empty groups always change. A
group in which a member's embedded bytes cannot be read stays what it is.

An upgrade goes by replay of its records. A downgrade is made in memory first, as the classic group begins to
rebalance at once; if its records cannot be written the consumer group is put back.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Collection
from typing import TypeVar

from tidelog.coordinator.group.classic.group import ClassicGroup, ClassicState, Generation
from tidelog.coordinator.group.classic.member import ClassicMember, MemberProtocol
from tidelog.coordinator.group.classic.protocol import ClassicProtocol
from tidelog.coordinator.group.classic.records import metadata_record
from tidelog.coordinator.group.consumer.embedded import version_of, write_assignment
from tidelog.coordinator.group.consumer.group import PROTOCOL_TYPE, ConsumerGroup
from tidelog.coordinator.group.consumer.member import ConsumerMember
from tidelog.coordinator.group.consumer.member_timers import MemberTimers
from tidelog.coordinator.group.consumer.metadata_hash import MetadataHash
from tidelog.coordinator.group.consumer.records import group_tombstones
from tidelog.coordinator.group.consumer.topics import TopicView
from tidelog.coordinator.group.consumer.upgrade import consumer_group_of, creation_records
from tidelog.coordinator.group.group import Group
from tidelog.coordinator.group.groups import Groups, GroupSupport
from tidelog.coordinator.log import told_error
from tidelog.coordinator.runtime import Result, ShardContext
from tidelog.coordinator.stored_record import StoredRecord
from tidelog.errors import ErrorCode, KafkaError, WireError

logger = logging.getLogger(__name__)

R = TypeVar("R")
Then = Callable[[KafkaError | None], object]

_UPGRADE = ("upgrade", "bidirectional")
_DOWNGRADE = ("downgrade", "bidirectional")


class Migration:
    """Turns groups of one shard from one type into the other."""

    def __init__(
        self,
        context: ShardContext,
        support: GroupSupport,
        groups: Groups,
        classic: ClassicProtocol,
        topics: TopicView,
        hashes: MetadataHash,
        timers: MemberTimers,
    ) -> None:
        self._clock = context.clock
        self._config = support.config
        self._groups = groups
        self._classic = classic
        self._topics = topics
        self._hashes = hashes
        self._timers = timers

    @property
    def is_disabled(self) -> bool:
        """Whether classic members have no place in a consumer group."""
        return self._policy == "disabled"

    @property
    def _policy(self) -> str:
        return self._config.str("group.consumer.migration.policy").lower()

    # Upgrade

    def upgrade(self, group: Group, records: list[StoredRecord]) -> ConsumerGroup:
        """The consumer group that a classic group becomes; raises GROUP_ID_NOT_FOUND if it may not."""
        group_id = group.group_id
        if not isinstance(group, ClassicGroup):
            raise KafkaError(ErrorCode.GROUP_ID_NOT_FOUND, f"Group {group_id} is not a consumer group.")
        if group.is_empty:
            records += group.tombstones()
            return ConsumerGroup(group_id)
        why = self._no_upgrade(group)
        if why is None:
            try:
                converted = consumer_group_of(group, self._topics, self._hashes)
            except WireError:
                why = "the embedded consumer protocol is malformed"
            else:
                records += group.tombstones()
                records += creation_records(converted)
                logger.info("Group %s: from the classic to the consumer protocol", group_id)
                return converted
        raise KafkaError(
            ErrorCode.GROUP_ID_NOT_FOUND,
            f"Cannot upgrade classic group {group_id} to consumer group because {why}.",
        )

    def _no_upgrade(self, group: ClassicGroup) -> str | None:
        if self._policy not in _UPGRADE:
            return "online upgrade is disabled"
        if not group.uses_consumer_protocol:
            return "the group does not use the consumer embedded protocol"
        if len(group.members) > self._config.int("group.consumer.max.size"):
            return "the group size exceeds the consumer group maximum size"
        return None

    def after_upgrade(self, group: ConsumerGroup) -> Then | None:
        """What is to be done once the records of an upgrade are written; None if this is none."""
        former = self._groups.get(group.group_id)
        if not isinstance(former, ClassicGroup):
            return None

        def settle(_: KafkaError | None) -> None:
            if self._groups.get(group.group_id) is former:
                return
            self._classic.rebalances.forget_group(former, ErrorCode.REBALANCE_IN_PROGRESS)
            for member in group.members.values():
                self._timers.expect_heartbeat(group.group_id, member)

        return settle

    # Downgrade

    def classic_without(
        self, group: ConsumerGroup, leaving: Collection[ConsumerMember]
    ) -> ClassicGroup | None:
        """The classic group that those become who stay; None if it goes on as a consumer group."""
        gone = {member.member_id for member in leaving}
        staying = [member for member in group.members.values() if member.member_id not in gone]
        return self._classic_of(group, staying, {})

    def classic_with(
        self, group: ConsumerGroup, replaced: ConsumerMember, joining: ConsumerMember
    ) -> ClassicGroup | None:
        """The same, where ``joining``, a classic member, takes the place of a static one."""
        if replaced.uses_classic_protocol:
            return None
        staying = [joining if member is replaced else member for member in group.members.values()]
        return self._classic_of(group, staying, {joining.member_id: replaced.member_id})

    def _classic_of(
        self, group: ConsumerGroup, staying: Collection[ConsumerMember], heirs: dict[str, str]
    ) -> ClassicGroup | None:
        if not staying or not all(member.uses_classic_protocol for member in staying):
            return None
        why = self._no_downgrade(len(staying))
        if why is None:
            try:
                return self._converted(group, staying, heirs)
            except WireError as error:
                why = f"the embedded consumer protocol is malformed: {error}"
        logger.info("Group %s stays a consumer group: %s", group.group_id, why)
        return None

    def _no_downgrade(self, size: int) -> str | None:
        if self._policy not in _DOWNGRADE:
            return "downgrade is disabled"
        if size > self._config.int("group.max.size"):
            return "it is too large for a classic one"
        return None

    def _converted(
        self, group: ConsumerGroup, staying: Collection[ConsumerMember], heirs: dict[str, str]
    ) -> ClassicGroup:
        """The classic group, in memory only; raises ``WireError`` if a member's bytes cannot be read."""
        classic = ClassicGroup(
            group.group_id,
            self._clock,
            Generation(group.epoch, PROTOCOL_TYPE),
            state=ClassicState.STABLE,
            state_since_ms=self._clock.time_ms(),
        )
        for member in staying:
            classic.add(_classic_member(member))
        classic.protocol_name = classic.members.select_protocol()
        for each in classic.members.values():
            target = group.targets.get(heirs.get(each.member_id, each.member_id), {})
            version = version_of(each.metadata(classic.protocol_name))
            each.assignment = write_assignment(target, self._topics, version)
        classic.subscribed_topics = classic.find_subscribed_topics()
        return classic

    def downgrade_without(self, group: ConsumerGroup, classic: ClassicGroup, response: R) -> Result[R]:
        """Put what ``classic_without`` gave in the group's place."""
        records = group.tombstones()
        self._replace(group, classic, records)
        self._classic.rebalances.prepare(classic, "members of the consumer protocol have left")
        return Result(records, response, self._put_back(group, classic), replay=False)

    def downgrade_with(
        self, group: ConsumerGroup, classic: ClassicGroup, records: list[StoredRecord], *, rebalance: bool
    ) -> Then:
        """Put what ``classic_with`` gave in the group's place.

        ``records`` already replace the static member by the new one, so that it is the new one that is
        forgotten.
        """
        records += group_tombstones(
            group.group_id,
            [member.member_id for member in classic.members.values()],
            group.subscriptions.resolved,
        )
        self._replace(group, classic, records)
        if rebalance:
            self._classic.rebalances.prepare(classic, "the group was downgraded with a stale assignment")
        return self._put_back(group, classic)

    def _replace(self, group: ConsumerGroup, classic: ClassicGroup, records: list[StoredRecord]) -> None:
        records.append(metadata_record(classic))
        for member_id in group.members:
            self._timers.cancel(group.group_id, member_id)
        self._groups.put(classic)
        for each in classic.members.values():
            self._classic.rebalances.expect_heartbeat(classic, each)
        logger.info("Group %s: from the consumer to the classic protocol", group.group_id)

    def _put_back(self, group: ConsumerGroup, classic: ClassicGroup) -> Then:
        def settle(error: KafkaError | None) -> None:
            # A write that takes too long may still come to pass.
            if error is None or error.code is ErrorCode.REQUEST_TIMED_OUT:
                return
            if self._groups.get(group.group_id) is classic:
                self._classic.rebalances.forget_group(classic, told_error(error).code)
                self._groups.put(group)
                self._timers.loaded(group)

        return settle


def _classic_member(member: ConsumerMember) -> ClassicMember:
    assert member.classic is not None
    return ClassicMember(
        member_id=member.member_id,
        group_instance_id=member.instance_id,
        client_id=member.client_id,
        client_host=member.client_host,
        rebalance_timeout_ms=member.rebalance_timeout_ms,
        session_timeout_ms=member.classic.session_timeout_ms,
        protocol_type=PROTOCOL_TYPE,
        protocols=tuple(MemberProtocol(each.name, each.metadata) for each in member.classic_protocols),
    )
