"""What the members of a group subscribe to, counted: topics by name and by regular expression.

Kept by ``group.ConsumerGroup`` as members come and go; commands work on a copy to see what a change would
lead to. Invariant: every count is positive; what nobody subscribes to is not there.
"""

from __future__ import annotations

from collections.abc import Iterable
from collections.abc import Set as AbstractSet
from typing import NamedTuple

from tidelog.coordinator.group.consumer.member import ConsumerMember


class ResolvedRegex(NamedTuple):
    """The topics that a regular expression matched when it was last looked up."""

    topics: frozenset[str]
    version: int
    """Kafka's offset of the metadata then; 0 here, see ``regexes``."""
    timestamp_ms: int


class Subscriptions:
    """The subscriptions of one group."""

    def __init__(self) -> None:
        self.by_name: dict[str, int] = {}
        """How many members name a topic."""
        self.by_regex: dict[str, int] = {}
        """How many of the resolved expressions match a topic."""
        self.regexes: dict[str, int] = {}
        """How many members subscribe to an expression."""
        self.resolved: dict[str, ResolvedRegex] = {}

    def __contains__(self, topic: str) -> bool:
        return topic in self.by_name or topic in self.by_regex

    def touch(self, topics: AbstractSet[str]) -> bool:
        """Whether any of these topics, which may be many, is subscribed to."""
        return not (topics.isdisjoint(self.by_name) and topics.isdisjoint(self.by_regex))

    @property
    def topics(self) -> set[str]:
        """Everything subscribed to, there or not."""
        return self.by_name.keys() | self.by_regex.keys()

    def copy(self) -> Subscriptions:
        """Another one, to be changed freely."""
        other = Subscriptions()
        other.by_name = dict(self.by_name)
        other.by_regex = dict(self.by_regex)
        other.regexes = dict(self.regexes)
        other.resolved = dict(self.resolved)
        return other

    def add(self, member: ConsumerMember) -> None:
        """A member subscribes."""
        _count(self.by_name, member.topics, 1)
        if member.regex:
            _count(self.regexes, (member.regex,), 1)

    def drop(self, member: ConsumerMember) -> None:
        """A member does not subscribe any longer; what its expression matched stays until ``unresolve``."""
        _count(self.by_name, member.topics, -1)
        if member.regex:
            _count(self.regexes, (member.regex,), -1)

    def resolve(self, regex: str, resolved: ResolvedRegex) -> None:
        """An expression matches these topics now."""
        self.unresolve(regex)
        self.resolved[regex] = resolved
        _count(self.by_regex, resolved.topics, 1)

    def unresolve(self, regex: str) -> None:
        """Forget what an expression matched."""
        resolved = self.resolved.pop(regex, None)
        if resolved is not None:
            _count(self.by_regex, resolved.topics, -1)

    def after(self, member: ConsumerMember, updated: ConsumerMember) -> Subscriptions:
        """What is subscribed to once ``updated`` stands for ``member``."""
        return self._changed([member], [updated])

    def without(self, members: Iterable[ConsumerMember]) -> Subscriptions:
        """What is subscribed to once these members are gone."""
        return self._changed(members, ())

    def topics_of(self, member: ConsumerMember) -> frozenset[str]:
        """What one member subscribes to; an expression that nobody has looked up yet matches nothing."""
        resolved = self.resolved.get(member.regex) if member.regex else None
        return member.topics | resolved.topics if resolved is not None else member.topics

    def are_homogeneous(self, member_count: int) -> bool:
        """Whether all members read the same topics, as Kafka judges it: without looking at what expressions
        match, unless there is but one and everybody uses it and nothing else."""
        if not self.regexes:
            return all(count == member_count for count in self.by_name.values()) and not self.by_regex
        if len(self.regexes) > 1 or next(iter(self.regexes.values())) != member_count:
            return False
        return not self.by_name

    def _changed(self, gone: Iterable[ConsumerMember], come: Iterable[ConsumerMember]) -> Subscriptions:
        changed = self.copy()
        for member in gone:
            changed.drop(member)
        for member in come:
            changed.add(member)
        for regex in self.resolved.keys() - changed.regexes.keys():
            changed.unresolve(regex)
        return changed


def _count(counts: dict[str, int], names: Iterable[str], by: int) -> None:
    for name in names:
        count = counts.get(name, 0) + by
        if count > 0:
            counts[name] = count
        else:
            counts.pop(name, None)
