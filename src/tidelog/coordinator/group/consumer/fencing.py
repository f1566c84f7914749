"""Members that leave or are fenced: they go from the group, and the rest rebalance.

If only members of the classic protocol are left the group becomes a classic one (``migration``); otherwise
the group epoch is bumped, and the next heartbeat of a member of the consumer protocol, or the next JoinGroup
of a classic one, which its heartbeat asks for, assigns what is free now.
"""

from __future__ import annotations

import logging
from collections import Counter
from collections.abc import Collection
from typing import TypeVar

from tidelog.coordinator.group.consumer.group import ConsumerGroup
from tidelog.coordinator.group.consumer.member import ConsumerMember
from tidelog.coordinator.group.consumer.member_timers import MemberTimers
from tidelog.coordinator.group.consumer.metadata_hash import MetadataHash
from tidelog.coordinator.group.consumer.migration import Migration
from tidelog.coordinator.group.consumer.records import epoch_record, member_tombstones, regex_tombstone
from tidelog.coordinator.runtime import Result
from tidelog.coordinator.stored_record import StoredRecord

logger = logging.getLogger(__name__)

R = TypeVar("R")


class Fencing:
    """Takes members out of the groups of one shard."""

    def __init__(self, hashes: MetadataHash, timers: MemberTimers, migration: Migration) -> None:
        self._hashes = hashes
        self._timers = timers
        self._migration = migration
        timers.fence = lambda group, member: self.fence(group, [member], None)

    def fence(self, group: ConsumerGroup, members: Collection[ConsumerMember], response: R) -> Result[R]:
        """Take out ``members``; nothing happens if there are none."""
        if not members:
            return Result((), response)
        classic = self._migration.classic_without(group, members)
        if classic is not None:
            return self._migration.downgrade_without(group, classic, response)
        group_id = group.group_id
        records: list[StoredRecord] = []
        for member in members:
            records += member_tombstones(group_id, member.member_id)
        leaving = Counter(member.regex for member in members if member.regex)
        for regex, count in leaving.items():
            if group.subscriptions.regexes.get(regex) == count:
                records.append(regex_tombstone(group_id, regex))
        metadata_hash = self._hashes.of(group.subscriptions.without(members).topics)
        records.append(epoch_record(group_id, group.epoch + 1, metadata_hash))
        logger.info("Group %s: %d members go, epoch %d", group_id, len(members), group.epoch + 1)
        member_ids = [member.member_id for member in members]
        # If the records are refused the members stay, and nothing but their timers will take them out.
        return Result(records, response, lambda _: self._timers.cancel_for_absent(group_id, member_ids))
