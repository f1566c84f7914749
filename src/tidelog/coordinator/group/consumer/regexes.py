"""Regular-expression subscriptions: when the topics that they match are looked up, and what follows from
that.

All expressions of a group are looked up together, so that new topics cost one rebalance: when a member
brings a new one, when a topic has come that one of them matches, and every
``group.consumer.regex.refresh.interval.ms``; but never twice within ten seconds. The look-up runs after the
heartbeat that asked for it has been answered, in slices, the last of which is a command of its own; what it
finds is in records (type 16), and bumps the group epoch if it is news. Which groups a new topic concerns is
found out in slices, too: an expression may take milliseconds for every character of a name.

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
from collections.abc import Callable, Collection, Iterable, Iterator, Sequence

from tidelog.coordinator.group.consumer.group import ConsumerGroup
from tidelog.coordinator.group.consumer.member import ConsumerMember
from tidelog.coordinator.group.consumer.metadata_hash import MetadataHash
from tidelog.coordinator.group.consumer.records import epoch_record, regex_record, regex_tombstone
from tidelog.coordinator.group.consumer.subscriptions import ResolvedRegex
from tidelog.coordinator.group.consumer.topics import TopicView
from tidelog.coordinator.group.groups import Groups, GroupSupport
from tidelog.coordinator.runtime import Result, ShardContext
from tidelog.coordinator.stored_record import StoredRecord
from tidelog.coordinator.sweep import SLICE_MS
from tidelog.errors import KafkaError
from tidelog.regex.topic_regex import compile_regex
from tidelog.scheduling.slices import Slices

logger = logging.getLogger(__name__)

MIN_REFRESH_INTERVAL_MS = 10_000
METADATA_REFRESH_INTERVAL_MS = (1 << 31) - 1
"""How long a metadata hash is good while no topic changes."""
MATCHED_AT_ONCE = 256
"""After so many names others may have their turn, if not before."""
_NO_VERSION = 0
_CHANGES = "consumer-regex-changes"


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
        self._changed: set[str] = set()
        """Topics that groups have not been asked about yet."""

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
        """Topics have come or changed: groups whose expressions match one unknown to them look again.

        Which groups these are is found out after this, in slices.
        """
        self._changed.update(names)
        if self._changed and _CHANGES not in self._timers:
            self._timers.schedule(_CHANGES, 0, lambda: self._ask_groups(self._groups_asked()))

    def _ask_groups(self, steps: Iterator[None]) -> None:
        if not self._taken(steps):
            self._timers.schedule(_CHANGES, 0, lambda: self._ask_groups(steps))

    def _groups_asked(self) -> Iterator[None]:
        """Ask every group whether it has to look again because of the topics that have changed."""
        while self._changed:
            changed, self._changed = self._changed, set()
            names = [name for name in changed if self._topics.get(name)]
            for group in self._groups:
                if isinstance(group, ConsumerGroup) and not group.regexes_are_stale:
                    matched = yield from _matches_unknown(group, names)
                    # A look-up may have ended meanwhile; then another is one too many, and finds the same.
                    group.regexes_are_stale = group.regexes_are_stale or matched
                yield

    def _taken(self, steps: Iterator[None]) -> bool:
        """Whether all steps are taken after as many as fit into a slice."""
        until_ms = self._clock.monotonic_ms() + SLICE_MS
        return all(self._clock.monotonic_ms() < until_ms for _ in steps)

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
        return self._go_on(group_id, _LookUp(regexes, self._topics, may_describe))

    def _go_on(self, group_id: str, looking: _LookUp) -> Result[None] | None:
        if not self._taken(looking.steps()):
            self._timers.schedule(_key(group_id), 0, lambda: self._go_on(group_id, looking), retry=True)
            return None
        return self._finish(group_id, looking)

    def _finish(self, group_id: str, looking: _LookUp) -> Result[None] | None:
        group = self._groups.get(group_id)
        if not isinstance(group, ConsumerGroup):
            return None
        group.regexes_are_stale = False
        now_ms = self._clock.time_ms()
        after = group.subscriptions.copy()
        records: list[StoredRecord] = []
        changed = False
        for regex, matched in looking.found.items():
            if regex not in group.subscriptions.regexes:
                continue
            topics = frozenset(filter(self._topics.get, matched))
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
        self, regexes: Iterable[str], topics: TopicView, may_describe: Callable[[str], bool]
    ) -> None:
        self.found: dict[str, set[str]] = {regex: set() for regex in regexes}
        """By expression; topics that have gone since they were looked at are still there."""
        self._topics = topics
        self._may_describe = may_describe
        self._looked_at: frozenset[str] = frozenset()
        self._left: Iterator[None] | None = None

    def steps(self) -> Iterator[None]:
        """Go on from where it was left; at the end all topics that there are have been looked at.

        After that, begin again with those that have come since.
        """
        if self._left is None:
            self._left = self._look()
        # Not `yield from`: what is left must outlive this iterator.
        for _ in self._left:
            yield
        self._left = None

    def _look(self) -> Iterator[None]:
        while come := frozenset(self._topics.names()) - self._looked_at:
            for regex, found in self.found.items():
                for names in _batches(list(come)):
                    matched = yield from _matching(regex, names)
                    found.update(filter(self._may_describe, matched))
                    yield
            self._looked_at |= come


def _key(group_id: str) -> tuple[str, str]:
    return "consumer-regex", group_id


def _matches_unknown(group: ConsumerGroup, names: Sequence[str]) -> Slices[bool]:
    """Whether an expression of a group matches one of these names that it did not match before."""
    for regex, found in list(group.subscriptions.resolved.items()):
        for batch in _batches(names):
            if (yield from _matching(regex, [name for name in batch if name not in found.topics])):
                return True
            yield
    return False


def _batches(names: Sequence[str]) -> Iterator[Sequence[str]]:
    return (names[at : at + MATCHED_AT_ONCE] for at in range(0, len(names), MATCHED_AT_ONCE))


def _matching(regex: str, names: Iterable[str]) -> Slices[frozenset[str]]:
    """The names that an expression matches; none if it is in the log and this release cannot read it."""
    try:
        compiled = compile_regex(regex)
    except KafkaError as error:
        logger.warning("A group subscribes to an expression that is passed over: %s", error)
        return frozenset()
    matched = set()
    for name in names:
        if (yield from compiled.matching(name)):
            matched.add(name)
    return frozenset(matched)
