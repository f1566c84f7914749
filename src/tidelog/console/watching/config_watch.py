"""Configs of topics and brokers that somebody has set, from look to look: what changed, and who it was.

Only values that are set for the thing itself are kept. Now and then a look asks for the brokers and for a
part of the topics, so that many topics cost a little all the time and not much at once; of what was changed
through the console itself the next look tells, with the name of who has done it. Secret values are never
told: that there is one, and that there is none any more, is all that can be seen.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from typing import NamedTuple

from tidelog.client.admin._replication_throttle import FOLLOWERS, LEADERS, RATES
from tidelog.client.admin.async_admin import AsyncAdmin
from tidelog.client.resources import ConfigResource, ConfigResult, ConfigSource, ResourceType
from tidelog.console.watching.changes import Event
from tidelog.console.watching.snapshot import Snapshot

_OWN = frozenset(
    {
        ConfigSource.DYNAMIC_TOPIC_CONFIG,
        ConfigSource.DYNAMIC_BROKER_CONFIG,
        ConfigSource.DYNAMIC_DEFAULT_BROKER_CONFIG,
    }
)
_TOPICS = 100
"""So many topics are asked for at once."""
_LONGEST = 200
_AUTHORS = 1000
_SECRET = "••••••"
_THROTTLE = frozenset({*RATES, LEADERS, FOLLOWERS})
_ALL_BROKERS = ConfigResource(ResourceType.BROKER, "")

Values = Mapping[str, str]


class _Author(NamedTuple):
    user: str
    value: str | None


class ConfigWatch:
    """Of one cluster."""

    def __init__(self, every_s: float) -> None:
        self._every_s = every_s
        self._known: dict[ConfigResource, Values] = {}
        self._authors: dict[tuple[ConfigResource, str], _Author] = {}
        self._hurried: dict[ConfigResource, None] = {}
        self._due_s = 0.0
        self._next = ""
        """The topic where the next part begins."""

    def note(self, user: str, resource: ConfigResource, configs: Mapping[str, str | None]) -> None:
        """Somebody changes configs through the console; the next look sees it."""
        self._hurried[resource] = None
        for name, value in configs.items():
            self._authors[resource, name] = _Author(user, value)
        while len(self._authors) > _AUTHORS:
            del self._authors[next(iter(self._authors))]

    async def look(self, admin: AsyncAdmin, now: Snapshot) -> list[Event]:
        """Ask for what is due, and tell what has changed; raises what brokers refuse."""
        wanted = self.due(now)
        if not wanted:
            return []
        return self.compare_all(now.at_ms, await admin.describe_configs(wanted))

    def compare_all(self, at_ms: int, results: Iterable[ConfigResult]) -> list[Event]:
        """What one look has found; a throttle of replication is one event."""
        return _throttles_folded(
            [event for each in results if each.error is None for event in self.compare(at_ms, each)]
        )

    def compare(self, at_ms: int, result: ConfigResult) -> Iterator[Event]:
        """What is other than it was; the first time nothing is."""
        resource = result.resource
        values = {
            each.name: _SECRET if each.is_sensitive else each.value or ""
            for each in result.entries
            if each.source in _OWN and not _is_inherited(resource, each.source)
        }
        known = self._known.get(resource)
        self._known[resource] = values
        if known is None or known == values:
            return
        for name in sorted(known.keys() | values.keys()):
            old, new = known.get(name), values.get(name)
            if old != new:
                yield self._event(at_ms, resource, name, old, new)

    def _event(
        self, at_ms: int, resource: ConfigResource, name: str, old: str | None, new: str | None
    ) -> Event:
        args: dict[str, str | int | float] = {"config": name}
        kind = "topic"
        if resource.type is ResourceType.TOPIC:
            args["topic"] = resource.name
        elif resource == _ALL_BROKERS:
            kind = "brokers"
        else:
            kind = "broker"
            args["broker"] = int(resource.name)
        author = self._authors.pop((resource, name), None)
        if author is not None and (author.value == new or new == _SECRET):
            args["user"] = author.user
        if new is None:
            return Event(at_ms, f"{kind}-config-removed", "info", {**args, "before": (old or "")[:_LONGEST]})
        if old is not None:
            args["before"] = old[:_LONGEST]
        return Event(at_ms, f"{kind}-config-set", "info", {**args, "now": new[:_LONGEST]})

    def due(self, now: Snapshot) -> list[ConfigResource]:
        """What to ask for now."""
        hurried, self._hurried = list(self._hurried), {}
        if now.at_s < self._due_s:
            return hurried
        self._due_s = now.at_s + self._every_s
        names = sorted(now.topics)
        self._known = {
            each: values
            for each, values in self._known.items()
            if each.type is not ResourceType.TOPIC or each.name in now.topics
        }
        later = [each for each in names if each >= self._next]
        part = later[:_TOPICS]
        self._next = later[_TOPICS] if len(later) > _TOPICS else ""
        brokers = [ConfigResource(ResourceType.BROKER, str(each.id)) for each in now.cluster.nodes]
        return list(dict.fromkeys([_ALL_BROKERS, *brokers, *hurried, *_topics(part)]))


def _is_inherited(resource: ConfigResource, source: ConfigSource) -> bool:
    """What all brokers have is told once, of all of them."""
    return resource != _ALL_BROKERS and source is ConfigSource.DYNAMIC_DEFAULT_BROKER_CONFIG


def _throttles_folded(events: list[Event]) -> list[Event]:
    """A throttle is options of each broker and of topics."""
    kept = [each for each in events if each.args["config"] not in _THROTTLE]
    rates = [each for each in events if each.args["config"] == RATES[0]]
    if rates:
        first = rates[0]
        args: dict[str, str | int | float] = {"count": len(rates)}
        is_set = "now" in first.args
        if is_set:
            args["rate"] = first.args["now"]
        kept.append(Event(first.at_ms, "throttle-set" if is_set else "throttle-removed", "info", args))
    return kept


def _topics(names: Iterable[str]) -> list[ConfigResource]:
    return [ConfigResource(ResourceType.TOPIC, each) for each in names]
