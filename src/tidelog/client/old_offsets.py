"""Offsets that consumers before Kafka 0.9 left in ZooKeeper, under ``/consumers/[group]/offsets``.

Each is a number as text in ``…/[topic]/[partition]``; consumers that are running have a node each under
``/consumers/[group]/ids``. This module only reads. Called by ``tidelog groups import-zookeeper``.
"""

from __future__ import annotations

import contextlib
import logging
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

from kazoo.client import KazooClient
from kazoo.exceptions import KazooException, NoNodeError
from kazoo.handlers.threading import KazooTimeoutError

from tidelog.errors import TidelogError
from tidelog.ids import TopicPartition
from tidelog.zookeeper_sockets import ZooKeeperSockets

CONNECT_TIMEOUT_S = 15.0
_CONSUMERS = "/consumers"

# What kazoo says while it looks for a server is no business of a program that has not asked for it.
_kazoo_log = logging.getLogger(f"{__name__}.kazoo")
_kazoo_log.addHandler(logging.NullHandler())


class OldOffsetsError(TidelogError):
    """The offsets cannot be read; the text says why and the mend."""


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
        with _session(connect, timeout_s) as client:
            return _read(client, group_id)
    except KazooException as error:
        raise OldOffsetsError(
            f"ZooKeeper at {connect} broke off ({type(error).__name__}): try again"
        ) from error


@contextlib.contextmanager
def _session(connect: str, timeout_s: float) -> Iterator[KazooClient]:
    try:
        client = KazooClient(connect, timeout=timeout_s, handler=ZooKeeperSockets(connect), logger=_kazoo_log)
    except ValueError:
        raise OldOffsetsError(
            f"{connect!r} is no ZooKeeper address: write host:2181,host:2181/chroot"
        ) from None
    try:
        client.start(timeout_s)
        yield client
    except KazooTimeoutError:
        raise OldOffsetsError(
            f"no ZooKeeper server answers at {connect}: start it, or mend --zookeeper"
        ) from None
    finally:
        client.stop()
        client.close()


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
