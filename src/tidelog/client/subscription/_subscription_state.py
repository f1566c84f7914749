"""What a consumer reads: its subscription, and the state of every partition assigned to it.

A consumer subscribes to topics, to a pattern (the client matches it, or the broker: KIP-848), or takes
partitions by hand; the three exclude one another until ``unsubscribe``. Partitions that are kept over a
change of assignment keep their state: positions are lost only with the partition.

Who changes what: the application's calls (subscribe, assign, seek, pause) come through ``AsyncConsumer``; a
group membership calls ``assign_from_group`` and ``mark_pending_revocation``, inside ``poll`` only; the
fetcher advances positions. All of it on the loop, so nothing here is locked.
"""

from __future__ import annotations

import enum
import logging
import re
import time
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass

from tidelog.client.errors import IllegalStateError, LogTruncationError, NoOffsetForPartitionError
from tidelog.client.resources import IsolationLevel
from tidelog.client.subscription._partition_state import FetchPosition, FetchState, PartitionState
from tidelog.client.subscription._reset_strategy import LATEST, NONE, ResetStrategy
from tidelog.client.subscription.listener import RebalanceListener
from tidelog.client.subscription.offsets import OffsetAndMetadata
from tidelog.ids import NO_LEADER_EPOCH, NO_OFFSET, TopicPartition

logger = logging.getLogger("tidelog.client.consumer")


class SubscriptionType(enum.Enum):
    """How partitions come to the consumer."""

    NONE = "none"
    TOPICS = "topics"
    PATTERN = "pattern"
    BROKER_PATTERN = "broker pattern"
    ASSIGNED = "assigned by hand"


@dataclass(frozen=True, slots=True)
class SubscriptionPattern:
    """A pattern in RE2 syntax that the group coordinator matches (group.protocol=consumer only)."""

    pattern: str


_AUTO = frozenset({SubscriptionType.TOPICS, SubscriptionType.PATTERN, SubscriptionType.BROKER_PATTERN})


class SubscriptionState:
    """The subscription and the assigned partitions of one consumer."""

    def __init__(self, default_reset: ResetStrategy = LATEST) -> None:
        self.default_reset = default_reset
        self.type = SubscriptionType.NONE
        self.listener: RebalanceListener | None = None
        self.pattern: re.Pattern[str] | None = None
        self.broker_pattern: SubscriptionPattern | None = None
        self.assignment_id = 0
        """Grows with every change of assignment."""
        self.subscription_id = 0
        """Grows with every change of subscription: a membership compares it to know that it must rejoin."""
        self.assigned_at: float | None = None
        """When the first assignment of this subscription came, by the monotonic clock; None before it."""
        self.held_back: dict[TopicPartition, FetchPosition] = {}
        """Positions of partitions with records that iteration has taken but not yet handed out."""
        self.on_position_change: Callable[[], None] = lambda: None
        """Called when a partition may have become fetchable; the fetcher listens."""
        self._topics: frozenset[str] = frozenset()
        self._group_topics: frozenset[str] = frozenset()
        self._assignment: dict[TopicPartition, PartitionState] = {}

    # Subscribing

    def subscribe(self, topics: Iterable[str], listener: RebalanceListener | None = None) -> bool:
        """Read these topics as a member of a group; whether that is a change."""
        self._require_type(SubscriptionType.TOPICS)
        self.listener = listener
        changed = self._set_topics(frozenset(topics))
        if changed:
            self.assigned_at = None
        return changed

    def subscribe_pattern(self, pattern: re.Pattern[str], listener: RebalanceListener | None = None) -> None:
        """Read all topics whose whole name matches, also those that are created later."""
        self._require_type(SubscriptionType.PATTERN)
        self.listener = listener
        if pattern != self.pattern:
            self.pattern = pattern
            self.subscription_id += 1
            self.assigned_at = None

    def subscribe_broker_pattern(
        self, pattern: SubscriptionPattern, listener: RebalanceListener | None = None
    ) -> None:
        """Read the topics that the coordinator finds to match."""
        self._require_type(SubscriptionType.BROKER_PATTERN)
        self.listener = listener
        if pattern != self.broker_pattern:
            self.broker_pattern = pattern
            self.subscription_id += 1
            self.assigned_at = None

    def match_topics(self, known: Iterable[str]) -> bool:
        """Metadata names these topics: take those that match the pattern; whether that is a change."""
        if self.pattern is None:
            return False
        return self._set_topics(frozenset(name for name in known if self.pattern.fullmatch(name)))

    def assign(self, partitions: Collection[TopicPartition]) -> bool:
        """Read exactly these partitions, without a group's help; whether that is a change."""
        self._require_type(SubscriptionType.ASSIGNED)
        self.note_assigned()
        if self._assignment.keys() == set(partitions):
            return False
        self._set_assignment(partitions)
        self._set_topics(frozenset(partition.topic for partition in partitions))
        return True

    def unsubscribe(self) -> None:
        """Read nothing."""
        self.type = SubscriptionType.NONE
        self.listener = None
        self.pattern = None
        self.broker_pattern = None
        self.assigned_at = None
        self._group_topics = frozenset()
        self._set_topics(frozenset())
        self._set_assignment(())

    @property
    def topics(self) -> frozenset[str]:
        """The topics subscribed to; empty with partitions assigned by hand."""
        return self._topics if self.is_auto_assigned else frozenset()

    @property
    def metadata_topics(self) -> frozenset[str]:
        """The topics whose metadata this consumer needs; a group's leader needs those of all members."""
        assigned = {partition.topic for partition in self._assignment}
        return self._topics | self._group_topics | assigned

    @property
    def is_auto_assigned(self) -> bool:
        """Whether a group assigns the partitions."""
        return self.type in _AUTO

    def set_group_topics(self, topics: Iterable[str]) -> bool:
        """The leader's part: what all members read; whether this one does not read all of it."""
        self._group_topics = frozenset(topics)
        return not self._group_topics <= self._topics

    def describe(self) -> str:
        """The subscription in a few words, for errors."""
        match self.type:
            case SubscriptionType.TOPICS:
                return f"subscribed to {', '.join(sorted(self._topics)) or 'no topic'}"
            case SubscriptionType.PATTERN:
                return f"subscribed to the pattern {self.pattern.pattern if self.pattern else ''!r}"
            case SubscriptionType.BROKER_PATTERN:
                pattern = self.broker_pattern.pattern if self.broker_pattern else ""
                return f"subscribed to the broker's pattern {pattern!r}"
            case SubscriptionType.ASSIGNED:
                return f"assigned {', '.join(str(each) for each in self._assignment) or 'no partition'}"
        return "not subscribed"

    # Assignment

    def assign_from_group(self, partitions: Collection[TopicPartition]) -> None:
        """A rebalance has given exactly these partitions; those kept keep their state."""
        if not self.is_auto_assigned:
            raise IllegalStateError(f"a group cannot assign partitions: the consumer is {self.describe()}")
        self._set_assignment(partitions)

    def note_assigned(self) -> None:
        """An assignment is complete, which may be of no partition at all."""
        if self.assigned_at is None:
            self.assigned_at = time.monotonic()

    def accepts(self, partitions: Iterable[TopicPartition]) -> bool:
        """Whether all of an assignment is subscribed to; if not, the subscription has changed since."""
        if self.type is SubscriptionType.BROKER_PATTERN:
            return True
        if self.pattern is not None:
            return all(self.pattern.fullmatch(partition.topic) for partition in partitions)
        return all(partition.topic in self._topics for partition in partitions)

    def mark_pending_revocation(self, partitions: Iterable[TopicPartition]) -> None:
        """These are about to be revoked: neither fetch them nor hand out what was fetched."""
        for partition in partitions:
            if (state := self._assignment.get(partition)) is not None:
                state.pending_revocation = True

    @property
    def assignment(self) -> frozenset[TopicPartition]:
        return frozenset(self._assignment)

    def is_assigned(self, partition: TopicPartition) -> bool:
        return partition in self._assignment

    def states(self) -> Iterator[tuple[TopicPartition, PartitionState]]:
        """Every assigned partition with its state."""
        return iter(self._assignment.items())

    def find(self, partition: TopicPartition) -> PartitionState | None:
        """The state of a partition, None unless it is assigned."""
        return self._assignment.get(partition)

    def state(self, partition: TopicPartition) -> PartitionState:
        """The state of an assigned partition; raises ``IllegalStateError`` for any other."""
        found = self._assignment.get(partition)
        if found is None:
            raise IllegalStateError(f"{partition} is not assigned to this consumer: it is {self.describe()}")
        return found

    # Positions

    def seek(self, partition: TopicPartition, position: FetchPosition) -> None:
        """Go on from ``position``; if it names a leader epoch, the leader is asked whether it still holds."""
        self.state(partition).seek_unvalidated(position)
        self.held_back.pop(partition, None)
        self.on_position_change()

    def request_reset(self, partition: TopicPartition, strategy: ResetStrategy | None = None) -> None:
        """Look for a new position by ``strategy``, by default that of auto.offset.reset."""
        self.state(partition).reset(strategy or self.default_reset)
        self.held_back.pop(partition, None)
        self.on_position_change()

    def pause(self, partitions: Iterable[TopicPartition]) -> None:
        for state in [self.state(partition) for partition in partitions]:
            state.paused = True

    def resume(self, partitions: Iterable[TopicPartition]) -> None:
        for state in [self.state(partition) for partition in partitions]:
            state.paused = False
        self.on_position_change()

    @property
    def paused(self) -> frozenset[TopicPartition]:
        return frozenset(partition for partition, state in self._assignment.items() if state.paused)

    @property
    def has_all_positions(self) -> bool:
        return all(state.has_valid_position for state in self._assignment.values())

    def initializing(self) -> list[TopicPartition]:
        """Partitions that were assigned and have got no position since."""
        return self._in_state(FetchState.INITIALIZING)

    def needing_reset(self, now: float) -> dict[TopicPartition, ResetStrategy]:
        """Partitions whose position is to be looked for now, and how."""
        return {
            partition: state.reset_strategy or self.default_reset
            for partition, state in self._assignment.items()
            if state.fetch_state is FetchState.AWAIT_RESET and state.retry_at <= now
        }

    def needing_validation(self, now: float) -> dict[TopicPartition, FetchPosition]:
        """Partitions whose position is to be compared with the leader's log now."""
        return {
            partition: state.position
            for partition, state in self._assignment.items()
            if state.fetch_state is FetchState.AWAIT_VALIDATION
            and state.position is not None
            and state.retry_at <= now
        }

    def reset_initializing(self, partitions: Iterable[TopicPartition]) -> None:
        """Nothing is committed for these: apply auto.offset.reset, or raise where that is ``none``."""
        wanting = [
            each for each in partitions if (state := self.find(each)) is not None and state.position is None
        ]
        if self.default_reset is NONE and wanting:
            raise NoOffsetForPartitionError(wanting)
        for partition in wanting:
            self.request_reset(partition)

    def diverged(self, partition: TopicPartition, epoch: int, end_offset: int) -> LogTruncationError | None:
        """The leader's log holds records of the position's epoch (or ``epoch``) up to ``end_offset`` only.

        A position behind that end has lost its log: go back to the end, or give the error to raise where
        auto.offset.reset is none.
        """
        state = self.state(partition)
        position = state.position
        if position is None:
            return None
        unknown = epoch == NO_LEADER_EPOCH or end_offset == NO_OFFSET
        if not unknown and end_offset >= position.offset:
            state.validated()
            self.on_position_change()
            return None
        if self.default_reset is NONE:
            return LogTruncationError({partition: None if unknown else end_offset})
        logger.warning(
            "%s was cut back before offset %s: going on from %s",
            partition,
            position.offset,
            self.default_reset if unknown else end_offset,
        )
        if unknown:
            self.request_reset(partition)
        else:
            state.seek(FetchPosition(end_offset, epoch, position.leader))
            self.on_position_change()
        return None

    def all_consumed(self) -> dict[TopicPartition, OffsetAndMetadata]:
        """What may be committed: for every partition, the position behind the last record handed out."""
        consumed = {
            partition: OffsetAndMetadata(state.position.offset, state.position.offset_epoch)
            for partition, state in self._assignment.items()
            if state.position is not None and state.has_valid_position
        }
        for partition, position in self.held_back.items():
            if partition in consumed:
                consumed[partition] = OffsetAndMetadata(position.offset, position.offset_epoch)
        return consumed

    def consumed_position(self, partition: TopicPartition) -> FetchPosition | None:
        """The position as the application sees it."""
        held = self.held_back.get(partition)
        return self.state(partition).position if held is None else held

    def lag(self, partition: TopicPartition, isolation: IsolationLevel) -> int | None:
        """How many offsets lie before the end that the last fetch saw; None before the first."""
        return _lag(self.state(partition), self.held_back.get(partition), isolation)

    def lags(
        self, isolation: IsolationLevel, held_back: Mapping[TopicPartition, FetchPosition]
    ) -> dict[TopicPartition, int]:
        """The lag of every assigned partition of which it is known; from any thread.

        ``held_back`` has the positions of partitions with records that iteration has not handed out yet.
        """
        found = {
            partition: _lag(state, held_back.get(partition), isolation) for partition, state in self.states()
        }
        return {partition: lag for partition, lag in found.items() if lag is not None}

    def _in_state(self, wanted: FetchState) -> list[TopicPartition]:
        return [partition for partition, state in self._assignment.items() if state.fetch_state is wanted]

    def _set_topics(self, topics: frozenset[str]) -> bool:
        if topics == self._topics:
            return False
        self._topics = topics
        self.subscription_id += 1
        return True

    def _set_assignment(self, partitions: Iterable[TopicPartition]) -> None:
        before = self._assignment
        self._assignment = {partition: before.get(partition) or PartitionState() for partition in partitions}
        for partition, state in before.items():
            if partition not in self._assignment:
                state.retire()
        for state in self._assignment.values():
            state.pending_revocation = False
        self.held_back = {each: at for each, at in self.held_back.items() if each in self._assignment}
        self.assignment_id += 1
        self.on_position_change()

    def _require_type(self, wanted: SubscriptionType) -> None:
        if self.type not in (SubscriptionType.NONE, wanted):
            raise IllegalStateError(
                f"the consumer is {self.describe()}: topics, a pattern and partitions assigned by hand "
                "exclude one another; call unsubscribe first"
            )
        self.type = wanted


def _lag(state: PartitionState, held: FetchPosition | None, isolation: IsolationLevel) -> int | None:
    position = state.position if held is None else held
    committed = isolation is IsolationLevel.READ_COMMITTED
    end = state.last_stable_offset if committed else state.high_watermark
    return None if end is None or position is None else max(end - position.offset, 0)
