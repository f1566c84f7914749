"""Faults that are sown into the cluster's code to prove that its invariants can fail.

Each replaces one decision by the wrong one. ``breaks`` is part of the name of a promise that it breaks, and
``seeds`` are those among which one finds it.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any
from unittest.mock import patch

from tidelog.controller.cluster.elections import elect_offline
from tidelog.errors import ErrorCode
from tidelog.metadata.store import SharedStore


@dataclass(frozen=True)
class Planted:
    """A wrong decision."""

    where: str
    """What is replaced."""
    wrong: Any
    breaks: str
    seeds: Sequence[int]

    @contextlib.contextmanager
    def sown(self) -> Iterator[None]:
        """While it is there."""
        with patch(self.where, self.wrong):
            yield


async def _unfenced_write(store: SharedStore, context: Any, ops: Any) -> Any:
    return await store.multi(list(ops))


def _obeying(self: Any, controller_epoch: int, broker_epoch: int) -> ErrorCode:
    self.controller_epoch = controller_epoch
    return ErrorCode.NONE


def _unclean(replicas: Any, isr: Any, live: Any, *, allow_unclean: bool) -> Any:
    return elect_offline(replicas, replicas, live, allow_unclean=True)


PLANTED: dict[str, Planted] = {
    "leaders commit what followers do not have": Planted(
        "tidelog.replication.followers.Followers.committed_offset",
        lambda self, end_offset, *rest: end_offset,
        "",
        range(10),
    ),
    "histories that part are not noticed": Planted(
        "tidelog.replication.partition.Partition._diverging_epoch", lambda self, *rest: None, "", range(10)
    ),
    "followers are in sync before they have caught up": Planted(
        "tidelog.replication.partition.Partition._may_join",
        lambda self, *rest: self._in_sync.proposed is None,
        "",
        range(10),
    ),
    "leaders are elected that were not in sync": Planted(
        "tidelog.controller.cluster.state_changes.elect_offline", _unclean, "", range(10)
    ),
    "a deposed controller writes": Planted(
        "tidelog.controller.cluster.leadership_nodes.controller_write", _unfenced_write, "", range(20)
    ),
    "brokers obey a deposed controller": Planted(
        "tidelog.broker.cluster.control.Control._check", _obeying, "", range(20)
    ),
    "fewer replicas than asked for suffice": Planted(
        "tidelog.replication.partition.Partition._required_in_sync", 1, "", range(10)
    ),
    "followers tell of what they have not synced": Planted(
        "tidelog.replication.partition.Partition.needs_sync", False, "", range(20)
    ),
    "open transactions are read": Planted(
        "tidelog.storage.log.Log.last_stable_offset",
        property(lambda self: self.high_watermark),
        "",
        range(20),
    ),
    "repeated batches are appended again": Planted(
        "tidelog.storage.log_append.LogAppend._already_there",
        None,
        "",
        range(20),
    ),
}
