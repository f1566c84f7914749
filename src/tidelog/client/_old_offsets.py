"""Offsets that consumers before Kafka 0.9 left in ZooKeeper, under ``/consumers/[group]/offsets``.

Each is a number as text in ``…/[topic]/[partition]``; consumers that are running have a node each under
``/consumers/[group]/ids``. This module only reads. Called by ``tidelog groups import-zookeeper``.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from kazoo.client import KazooClient
from kazoo.exceptions import NoNodeError

from tidelog.client._network.zookeeper_session import ZooKeeperUnreachableError, zookeeper_session
from tidelog.errors import TidelogError
from tidelog.ids import TopicPartition

CONNECT_TIMEOUT_S = 15.0
_CONSUMERS = "/consumers"


class OldOffsetsError(TidelogError):
    """The offsets cannot be read; the text says why and names the remedy."""


@dataclass(frozen=True)
class OldGroup:
    """What a group has left; ``unreadable`` are the paths of nodes that hold no offset."""

    group_id: str
    offsets: Mapping[TopicPartition, int]
    consumers: Sequence[str] = ()
    unreadable: Sequence[str] = ()


def read_old_group(connect: str, group_id: str, *, timeout_s: float = CONNECT_TIMEOUT_S) -> OldGroup:
    """Read all that ``group_id`` has left; ``connect`` is ``host:port,host:port/chroot``. Blocks."""
    try:
        with zookeeper_session(connect, timeout_s) as client:
            return _read(client, group_id)
    except ZooKeeperUnreachableError as error:
        raise OldOffsetsError(str(error)) from error


def _read(client: KazooClient, group_id: str) -> OldGroup:
    root = f"{_CONSUMERS}/{group_id}"
    if client.exists(root) is None:
        raise OldOffsetsError(_no_group(group_id, _children(client, _CONSUMERS)))
    offsets: dict[TopicPartition, int] = {}
    unreadable: list[str] = []
    for topic in _children(client, f"{root}/offsets"):
        for partition in _children(client, f"{root}/offsets/{topic}"):
            path = f"{root}/offsets/{topic}/{partition}"
            text = _text(client, path)
            if partition.isdecimal() and text.isdecimal():
                offsets[TopicPartition(topic, int(partition))] = int(text)
            else:
                unreadable.append(path)
    return OldGroup(group_id, offsets, _children(client, f"{root}/ids"), unreadable)


def _children(client: KazooClient, path: str) -> list[str]:
    try:
        return sorted(client.get_children(path))
    except NoNodeError:
        return []


def _text(client: KazooClient, path: str) -> str:
    try:
        data, _ = client.get(path)
    except NoNodeError:
        return ""
    return bytes(data).decode("ascii", "replace").strip()


def _no_group(group_id: str, groups: list[str]) -> str:
    known = f"the groups there are {', '.join(groups[:10])}" if groups else "no group has left any there"
    return f"ZooKeeper has no offsets of group {group_id!r} under {_CONSUMERS}: {known}"
