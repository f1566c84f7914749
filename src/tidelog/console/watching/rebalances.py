"""Why groups rebalance: two views of a group, and what happened between them.

Brokers do not tell it; members and what they read do. A classic group has rebalanced when its members or
their partitions are others than they were while it was last stable; a consumer group (KIP-848) when its epoch
is another. What is compared is the view after the last rebalance: a topic may get partitions long before
consumers notice. A member that goes and comes back within two looks under another id is seen as having come
back.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace

from tidelog.client.admin.async_admin import AsyncAdmin
from tidelog.client.admin.group_resources import (
    GroupDescription,
    GroupState,
    GroupType,
    MemberDescription,
)
from tidelog.client.resources import TopicDescription
from tidelog.console.watching.changes import Event
from tidelog.console.watching.snapshot import Snapshot, is_internal_group
from tidelog.ids import TopicPartition

KIND = "group-rebalanced"
_GROUPS = 300
"""Of so many groups, at most, a look asks for members."""
_NAMED = 5
_NAMING_TOPICS = ("grown", "appeared", "vanished")
"""Reasons whose names are those of topics."""
_QUIET = frozenset({GroupState.EMPTY, GroupState.DEAD})


@dataclass(frozen=True)
class MemberView:
    """A member as far as rebalances depend on it."""

    name: str
    host: str
    instance_id: str | None
    topics: tuple[str, ...]
    topic_regex: str | None
    assignment: frozenset[TopicPartition]

    def __str__(self) -> str:
        return f"{self.instance_id or self.name} ({self.host})"

    @property
    def seat(self) -> tuple[str, str, str | None]:
        """What stays the same when a process joins again."""
        return self.name, self.host, self.instance_id


@dataclass(frozen=True)
class GroupView:
    """A group at one moment; without members it is empty."""

    epoch: int | None = None
    members: Mapping[str, MemberView] = field(default_factory=dict)
    partitions: Mapping[str, int] = field(default_factory=dict)
    """Of topics that members read."""

    @property
    def topics(self) -> set[str]:
        """All that members name, also where there is no such topic."""
        named = {topic for each in self.members.values() for topic in each.topics}
        return named | {place.topic for each in self.members.values() for place in each.assignment}


def view_of(group: GroupDescription, topics: Mapping[str, TopicDescription]) -> GroupView:
    """A described group beside the topics that there are."""
    view = GroupView(group.epoch, {each.member_id: _member(each) for each in group.members})
    partitions = {each: len(topics[each].partitions) for each in view.topics if each in topics}
    return replace(view, partitions=partitions)


def _member(member: MemberDescription) -> MemberView:
    return MemberView(
        member.client_id,
        member.host,
        member.instance_id,
        member.topics or (),
        member.topic_regex,
        frozenset(member.assignment or ()),
    )


def rebalance_between(old: GroupView, new: GroupView) -> dict[str, str | int | float] | None:
    """Why a group has rebalanced, as the arguments of an event; None if it has not."""
    came = [each for name, each in new.members.items() if name not in old.members]
    went = [each for name, each in old.members.items() if name not in new.members]
    stayed = [(old.members[name], each) for name, each in new.members.items() if name in old.members]
    back, came, went = _paired(came, went)
    moved = any(was.assignment != now.assignment for was, now in (*stayed, *back))
    if old.epoch is not None and new.epoch is not None:
        has_rebalanced = old.epoch != new.epoch
    else:
        is_static = all(now.instance_id is not None for _, now in back)
        has_rebalanced = bool(came or went or moved or (back and not is_static))
    if not has_rebalanced:
        return None
    others = [now for was, now in stayed if (was.topics, was.topic_regex) != (now.topics, now.topic_regex)]
    grown = [
        f"{topic} ({old.partitions[topic]} → {count})"
        for topic, count in sorted(new.partitions.items())
        if topic in old.partitions and old.partitions[topic] != count
    ]
    # Of those who stayed: what somebody new reads is not why they rebalance.
    read_before = {topic for was, _ in stayed for topic in _read(was)}
    read_now = {topic for _, now in stayed for topic in _read(now)}
    args: dict[str, str | int | float] = {}
    _tell(args, "joined", [str(each) for each in came])
    _tell(args, "left", [str(each) for each in went])
    _tell(args, "returned", [str(now) for _, now in back])
    _tell(args, "resubscribed", [str(each) for each in others])
    _tell(args, "grown", grown)
    _tell(args, "appeared", sorted(read_now - read_before))
    _tell(args, "vanished", sorted(read_before - read_now))
    return args


def _read(member: MemberView) -> set[str]:
    return {*member.topics, *(each.topic for each in member.assignment)} if member.topics else set()


def _paired(
    came: list[MemberView], went: list[MemberView]
) -> tuple[list[tuple[MemberView, MemberView]], list[MemberView], list[MemberView]]:
    """Those who went and came back under another id; who came else; who went else."""
    left = list(went)
    back, new = [], []
    for each in came:
        same = next((was for was in left if was.seat == each.seat), None)
        if same is None:
            new.append(each)
        else:
            left.remove(same)
            back.append((same, each))
    return back, new, left


def _tell(args: dict[str, str | int | float], reason: str, names: list[str]) -> None:
    if names:
        args[reason] = len(names)
        args[f"{reason}_names"] = ", ".join(names[:_NAMED]) + (", …" if len(names) > _NAMED else "")


class RebalanceWatch:
    """The groups of one cluster."""

    def __init__(self) -> None:
        self._views: dict[str, GroupView] = {}
        """As of the last rebalance."""
        self._next = ""

    async def look(self, admin: AsyncAdmin, now: Snapshot) -> list[Event]:
        """Ask for the members of groups that have some, and tell which have rebalanced, and why."""
        for gone in self._views.keys() - now.groups.keys():
            del self._views[gone]
        names = sorted(
            name
            for name, each in now.groups.items()
            if not is_internal_group(name) and not each.is_simple and each.state not in _QUIET
        )
        active = frozenset(names)
        for name in now.groups:
            if name in self._views and name not in active:
                self._views[name] = GroupView()  # whoever comes next has joined
        wanted = self._part(names)
        if not wanted:
            return []
        described = await admin.describe_groups(wanted)
        return [
            event
            for each in described.values()
            if each.error is None and (event := self.compare(now.at_ms, each, now.topics)) is not None
        ]

    def compare(
        self, at_ms: int, group: GroupDescription, topics: Mapping[str, TopicDescription]
    ) -> Event | None:
        """The event of a group that has rebalanced; the first time of none."""
        if group.type is not GroupType.CONSUMER and group.state is not GroupState.STABLE:
            return None  # who takes part is known when it is over
        new = view_of(group, topics)
        old = self._views.get(group.group_id)
        if old is None:
            self._views[group.group_id] = new
            return None
        args = rebalance_between(old, new)
        if args is None:
            # Who has come back by his instance id is known by another id from now on.
            if new.members.keys() != old.members.keys():
                self._views[group.group_id] = GroupView(new.epoch, new.members, old.partitions)
            return None
        self._views[group.group_id] = new
        if new.epoch is not None:
            args["epoch"] = new.epoch
        # Who may not see one of them is not told: reasons name what was read before, too.
        args["topics"] = ",".join(sorted(old.topics | new.topics))
        return Event(at_ms, KIND, "info", {"group": group.group_id, **args})

    def _part(self, names: list[str]) -> list[str]:
        later = [each for each in names if each >= self._next]
        part = later[:_GROUPS]
        self._next = later[_GROUPS] if len(later) > _GROUPS else ""
        return part


def topics_of(event: Event) -> Iterable[str]:
    """The topics that an event names.

    Those of its reasons are among its ``topics``, but not in events that an earlier release has kept.
    """
    if "topic" in event.args:
        yield str(event.args["topic"])
    yield from filter(None, str(event.args.get("topics", "")).split(","))
    for reason in _NAMING_TOPICS:
        for named in filter(None, str(event.args.get(f"{reason}_names", "")).split(", ")):
            yield named.partition(" (")[0]
