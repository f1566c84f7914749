"""Faults that are sown into the cluster's code to prove that its invariants can fail.

Each replaces one decision by the wrong one. ``breaks`` are parts of the names of promises that it may break;
``first`` is a seed that found it when this was written.
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
from tidelog.storage.producers.producer_state import AppendOrigin, ProducerState

_ENOUGH = 40
_RECORDS = "lost|stays|agree|equal|goes back|understood|in order|committed|kept|copies|everything|whole"


@dataclass(frozen=True)
class Planted:
    """A wrong decision."""

    where: str
    """What is replaced."""
    wrong: Any
    breaks: str
    first: int = 0

    @property
    def seeds(self) -> Sequence[int]:
        """Where to look; one of the first few finds it."""
        return range(self.first, self.first + _ENOUGH)

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


_stage = ProducerState._stage_unusual


def _always_new(
    self: Any, entry: Any, producer_id: int, epoch: int, batch: Any, transactional: bool, origin: AppendOrigin
) -> Any:
    """As if the leader had replicated it: a repetition is not known for one."""
    return _stage(self, entry, producer_id, epoch, batch, transactional, AppendOrigin.REPLICATION)


PLANTED: dict[str, Planted] = {
    "leaders commit what followers do not have": Planted(
        "tidelog.replication.followers.Followers.committed_offset",
        lambda self, end_offset, *rest: end_offset,
        _RECORDS,
    ),
    "histories that part are not noticed": Planted(
        "tidelog.replication.partition.Partition._diverging_epoch",
        lambda self, *rest: None,
        _RECORDS,
    ),
    "followers are in sync before they have caught up": Planted(
        "tidelog.replication.partition.Partition._may_join",
        lambda self, *rest: self._in_sync.proposed is None,
        _RECORDS,
        first=4,
    ),
    "leaders are elected that were not in sync": Planted(
        "tidelog.controller.cluster.state_changes.elect_offline",
        _unclean,
        _RECORDS,
    ),
    "a deposed controller writes": Planted(
        "tidelog.controller.cluster.leadership_nodes.controller_write",
        _unfenced_write,
        "only the controller writes",
        first=9,
    ),
    "brokers obey a deposed controller": Planted(
        "tidelog.broker.cluster.controller_requests.ControllerRequests._check",
        _obeying,
        "controller epochs only grow",
        first=5,
    ),
    "fewer replicas than asked for suffice": Planted(
        "tidelog.replication.partition.Partition._required_in_sync", 1, "copies"
    ),
    "followers tell of what they have not synced": Planted(
        "tidelog.replication.partition.Partition.needs_sync",
        False,
        _RECORDS,
    ),
    "open transactions are read": Planted(
        "tidelog.storage.log.log.Log.last_stable_offset",
        property(lambda self: self.high_watermark),
        "no aborted record is read",
    ),
    "sequences of producers are not looked at": Planted(
        "tidelog.storage.producers.producer_state.ProducerState._stage_unusual",
        _always_new,
        "in order",
    ),
}
