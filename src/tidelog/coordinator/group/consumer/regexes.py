"""Regular-expression subscriptions: when the topics that they match are looked up, and what follows from
that.

All expressions of a group are looked up together, so that new topics cost one rebalance: when a member
brings a new one, when a topic has come that one of them matches, and every
``group.consumer.regex.refresh.interval.ms``; but never twice within ten seconds. The look-up runs after the
heartbeat that asked for it has been answered, in slices, the last of which is a command of its own; what it
finds is in records (type 16), and bumps the group epoch if it is news.

Differences from Kafka. It keeps the offset of its metadata log with what it found, and looks again when any
topic has come since; there is no such offset here (0 is written, which makes Kafka look again should it take
over) and only topics that match count.

As in Kafka, what is found is filtered by what the member whose request asked for the look-up may describe: so
a member learns of no topic by guessing at its name. An access rule that comes later counts when topics are
looked up again.
"""

from __future__ import annotations

import enum
import logging
from collections.abc import Callable, Collection, Iterable, Iterator

from tidelog.coordinator.group.consumer.group import ConsumerGroup
from tidelog.coordinator.group.consumer.member import ConsumerMember
from tidelog.coordinator.group.consumer.metadata_hash import MetadataHash
from tidelog.coordinator.group.consumer.records import epoch_record, regex_record, regex_tombstone
from tidelog.coordinator.group.consumer.subscriptions import ResolvedRegex
from tidelog.coordinator.group.consumer.topics import TopicView
from tidelog.coordinator.group.groups import Groups
from tidelog.coordinator.group.support import GroupSupport
from tidelog.coordinator.regex.topic_regex import compile_regex
from tidelog.coordinator.runtime import Result, ShardContext
from tidelog.coordinator.stored_record import StoredRecord
from tidelog.coordinator.sweep import SLICE_MS
from tidelog.errors import KafkaError

logger = logging.getLogger(__name__)

MIN_REFRESH_INTERVAL_MS = 10_000
METADATA_REFRESH_INTERVAL_MS = (1 << 31) - 1
"""How long a metadata hash is good while no topic changes."""
MATCHED_AT_ONCE = 256
"""After so many names others may have their turn."""
_NO_VERSION = 0


class RegexChange(enum.Enum):
    """What a member did to its expression."""

    NONE = 0
    CHANGED = 1
    """To one that has not been looked up: the group epoch is bumped when that is done."""
    RESOLVED = 2
    """To one whose topics are known, or to none."""


class Regexes:
    """The expressions of the groups of one shard."""

    def __init__(
        self,
        context: ShardContext,
        support: GroupSupport,
        groups: Groups,
        topics: TopicView,
        hashes: MetadataHash,
    ) -> None:
        self._clock = context.clock
        self._timers = context.timers
        self._config = support.config
        self._groups = groups
        self._topics = topics
        self._hashes = hashes

    def update(
        self,
        group: ConsumerGroup,
        member: ConsumerMember,
        updated: ConsumerMember,
        records: list[StoredRecord],
        may_describe: Callable[[str], bool],
    ) -> RegexChange:
        """A member calls: see what it subscribes to now, and have topics looked up if that is due.

        Topics that it may not describe are not found. Raises INVALID_REGULAR_EXPRESSION.
        """
        subscribed, resolved = group.subscriptions.regexes, group.subscriptions.resolved
        old, new = member.regex or "", updated.regex or ""
        change = RegexChange.NONE
        if old != new:
            change = RegexChange.CHANGED
            if old and subscribed.get(old) == 1:
                records.append(regex_tombstone(group.group_id, old))
            if new and new not in subscribed:
                compile_regex(new)
            elif not new or new in resolved:
                change = RegexChange.RESOLVED
        wanted = subscribed if old == new else group.subscriptions.after(member, updated).regexes
        if wanted and self._is_due(group, set(wanted)):
            group_id = group.group_id
            self._timers.schedule(
                _key(group_id), 0, lambda: self._begin(group_id, sorted(wanted), may_describe), retry=True
            )
        return change

    def topics_changed(self, names: Collection[str]) -> None:
        """Topics have come or changed: groups whose expressions match one unknown to them look again."""
        for group in self._groups:
            if not isinstance(group, ConsumerGroup) or group.regexes_are_stale:
                continue
            group.regexes_are_stale = any(
                _matching(regex, (name for name in names if self._topics.get(name))) - found.topics
                for regex, found in group.subscriptions.resolved.items()
            )

    def _is_due(self, group: ConsumerGroup, wanted: set[str]) -> bool:
        if _key(group.group_id) in self._timers:
            return False
        resolved = group.subscriptions.resolved
        if not resolved:
            return True
        since_ms = self._clock.time_ms() - next(iter(resolved.values())).timestamp_ms
        if since_ms <= MIN_REFRESH_INTERVAL_MS:
            return False
        return (
            bool(wanted - resolved.keys())
            or group.regexes_are_stale
            or since_ms > self._config.int("group.consumer.regex.refresh.interval.ms")
        )

    def _begin(
        self, group_id: str, regexes: list[str], may_describe: Callable[[str], bool]
    ) -> Result[None] | None:
        if not isinstance(self._groups.get(group_id), ConsumerGroup):
            return None
        looking = _LookUp(regexes, self._topics.names(), may_describe)
        return self._go_on(group_id, looking, looking.steps())

    def _go_on(self, group_id: str, looking: _LookUp, steps: Iterator[None]) -> Result[None] | None:
        until_ms = self._clock.monotonic_ms() + SLICE_MS
        for _ in steps:
            if self._clock.monotonic_ms() >= until_ms:
                self._timers.schedule(
                    _key(group_id), 0, lambda: self._go_on(group_id, looking, steps), retry=True
                )
                return None
        return self._finish(group_id, looking)

    def _finish(self, group_id: str, looking: _LookUp) -> Result[None] | None:
        group = self._groups.get(group_id)
        if not isinstance(group, ConsumerGroup):
            return None
        looking.catch_up(self._topics.names())
        group.regexes_are_stale = False
        now_ms = self._clock.time_ms()
        after = group.subscriptions.copy()
        records: list[StoredRecord] = []
        changed = False
        for regex, matched in looking.found.items():
            if regex not in group.subscriptions.regexes:
                continue
            topics = frozenset(matched)
            before = group.subscriptions.resolved.get(regex)
            changed = changed or topics != (before.topics if before is not None else frozenset())
            found = ResolvedRegex(topics, _NO_VERSION, now_ms)
            after.resolve(regex, found)
            records.append(regex_record(group_id, regex, found))
        metadata_hash = self._hashes.of(after.topics)
        if changed or metadata_hash != group.metadata_hash:
            epoch = group.epoch + 1
            records.append(epoch_record(group_id, epoch, metadata_hash))
            group.refresh_at(now_ms + METADATA_REFRESH_INTERVAL_MS, epoch)
            logger.info("Group %s: its regular expressions match other topics, epoch %d", group_id, epoch)
        return Result(records, None)


class _LookUp:
    """Which of all topics the expressions of a group match, as far as somebody may describe them."""

    def __init__(
        self, regexes: Iterable[str], names: Iterable[str], may_describe: Callable[[str], bool]
    ) -> None:
        self.found: dict[str, set[str]] = {regex: set() for regex in regexes}
        self._names = frozenset(names)
        self._may_describe = may_describe

    def steps(self) -> Iterator[None]:
        """Look, a number of names in each step."""
        names = list(self._names)
        for regex, found in self.found.items():
            for at in range(0, len(names), MATCHED_AT_ONCE):
                found |= self._seen(regex, names[at : at + MATCHED_AT_ONCE])
                yield

    def catch_up(self, names: Iterable[str]) -> None:
        """All has been looked at: bring in the topics that have come meanwhile, and drop those that went."""
        present = frozenset(names)
        come, gone = present - self._names, self._names - present
        if come or gone:
            for regex, found in self.found.items():
                found -= gone
                found |= self._seen(regex, come)

    def _seen(self, regex: str, names: Iterable[str]) -> frozenset[str]:
        return frozenset(filter(self._may_describe, _matching(regex, names)))


def _key(group_id: str) -> tuple[str, str]:
    return "consumer-regex", group_id


def _matching(regex: str, names: Iterable[str]) -> frozenset[str]:
    """The names that an expression matches; none if it is in the log and this release cannot read it."""
    try:
        compiled = compile_regex(regex)
    except KafkaError as error:
        logger.warning("A group subscribes to an expression that is passed over: %s", error)
        return frozenset()
    return frozenset(filter(compiled.matches, names))
