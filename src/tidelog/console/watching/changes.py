"""What changed between two snapshots, as events for the feed. Pure.

An event is a kind and its arguments; the pages have the words. Changes of many partitions at once, as when a
broker goes, are one event for each pair of brokers or each topic.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from typing import Literal

import msgspec

from tidelog.client.resources import TopicDescription
from tidelog.console.watching.snapshot import Disk, Snapshot, is_internal_group

LEADERS_MOVED = "leaders-moved"
Level = Literal["good", "info", "warning", "bad"]
_NEARLY_FULL = 0.1
_SHOWN_TOPICS = 200


class Event(msgspec.Struct, frozen=True):
    """Something that happened to a cluster."""

    at_ms: int
    kind: str
    level: Level
    args: dict[str, str | int | float]


def changes_between(before: Snapshot | None, now: Snapshot) -> list[Event]:
    """The events, those about brokers first."""
    if before is None:
        return []
    found = [*_brokers(before, now), *_topics(before, now), *_groups(before, now), *_disks(before, now)]
    return [Event(now.at_ms, kind, level, args) for kind, level, args in found]


_Found = tuple[str, Level, dict[str, str | int | float]]


def _brokers(before: Snapshot, now: Snapshot) -> Iterator[_Found]:
    old = {each.id: each for each in before.cluster.nodes}
    new = {each.id: each for each in now.cluster.nodes}
    for broker in sorted(old.keys() - new.keys()):
        yield "broker-gone", "bad", {"broker": broker}
    for broker in sorted(new.keys() - old.keys()):
        yield "broker-came", "good", {"broker": broker, "address": str(new[broker])}
    was, controller = before.cluster.controller, now.cluster.controller
    if controller is not None and (was is None or was.id != controller.id):
        yield "controller-moved", "info", {"broker": controller.id}


def _topics(before: Snapshot, now: Snapshot) -> Iterator[_Found]:
    created = sorted(now.topics.keys() - before.topics.keys())
    deleted = sorted(before.topics.keys() - now.topics.keys())
    for name in created[:_SHOWN_TOPICS]:
        yield "topic-created", "info", {"topic": name}
    for name in deleted[:_SHOWN_TOPICS]:
        yield "topic-deleted", "warning", {"topic": name}
    moves: Counter[tuple[int, int]] = Counter()
    for name, topic in now.topics.items():
        old = before.topics.get(name)
        if old is None or old is topic:
            continue
        if old.topic_id != topic.topic_id:
            yield "topic-made-anew", "warning", {"topic": name}
            continue
        if len(topic.partitions) > len(old.partitions):
            yield (
                "partitions-added",
                "info",
                {"topic": name, "before": len(old.partitions), "now": len(topic.partitions)},
            )
        yield from _partitions(old, topic, moves)
    for (source, target), count in sorted(moves.items()):
        yield LEADERS_MOVED, "info", {"from": source, "to": target, "count": count}


def _partitions(
    old: TopicDescription, new: TopicDescription, moves: Counter[tuple[int, int]]
) -> Iterator[_Found]:
    shrunk = grown = lost = found = moved = 0
    for was, each in zip(old.partitions, new.partitions, strict=False):
        if was == each:
            continue
        if was.leader is not None and each.leader is None:
            lost += 1
        elif was.leader is None and each.leader is not None:
            found += 1
        elif was.leader is not None and each.leader is not None and was.leader != each.leader:
            moves[was.leader, each.leader] += 1
        moved += set(each.replicas) != set(was.replicas)
        shrunk += len(each.isr) < len(was.isr)
        grown += len(each.isr) > len(was.isr)
    if lost:
        yield "partitions-offline", "bad", {"topic": new.name, "count": lost}
    if found:
        yield "partitions-online", "good", {"topic": new.name, "count": found}
    if moved:
        yield "replicas-changed", "info", {"topic": new.name, "count": moved}
    if shrunk:
        yield "isr-shrunk", "warning", {"topic": new.name, "count": shrunk}
    if grown:
        yield "isr-grown", "good", {"topic": new.name, "count": grown}


def _groups(before: Snapshot, now: Snapshot) -> Iterator[_Found]:
    old = {name for name in before.groups if not is_internal_group(name)}
    new = {name for name in now.groups if not is_internal_group(name)}
    for name in sorted(new - old):
        yield "group-created", "info", {"group": name}
    for name in sorted(old - new):
        yield "group-deleted", "info", {"group": name}
    for name in sorted(new & old):
        was, state = before.groups[name].state, now.groups[name].state
        if was is state:
            continue
        if state.is_rebalancing and not was.is_rebalancing:
            yield "group-rebalances", "info", {"group": name, "state": state.value}
        elif not state.is_rebalancing:
            yield "group-state", "info", {"group": name, "before": was.value, "state": state.value}


def _disks(before: Snapshot, now: Snapshot) -> Iterator[_Found]:
    was_full = {(each.broker, each.path) for each in before.disks if _is_nearly_full(each)}
    failed = {(each.broker, each.path) for each in before.disks if each.problem}
    for disk in now.disks:
        place = disk.broker, disk.path
        if disk.problem and place not in failed:
            yield "disk-failed", "bad", {"broker": disk.broker, "path": disk.path}
        elif _is_nearly_full(disk) and place not in was_full:
            yield "disk-nearly-full", "bad", {"broker": disk.broker, "path": disk.path}


def _is_nearly_full(disk: Disk) -> bool:
    if not disk.total_bytes or disk.usable_bytes is None:
        return False
    return disk.usable_bytes / disk.total_bytes < _NEARLY_FULL
