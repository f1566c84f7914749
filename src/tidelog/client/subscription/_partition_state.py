"""One assigned partition as its consumer sees it: where it stands and whether it may be fetched.

    INITIALIZING ──► FETCHING ◄──► AWAIT_VALIDATION
         │              ▲ │              │
         └──► AWAIT_RESET ◄──────────────┘

AWAIT_VALIDATION: the leader's epoch has changed, so the position must be compared with the new leader's log
before anything more is read (KIP-320).

Invariant: a partition has a position in FETCHING and AWAIT_VALIDATION and in no other state. ``generation``
changes whenever the position is set by anything but handing out records; what was fetched under another
generation is thrown away. Owned by ``SubscriptionState``; changed by its callers on the loop only.
"""

from __future__ import annotations

import enum
from typing import NamedTuple

from tidelog.client._network.retry import doubled_ms
from tidelog.client.errors import IllegalStateError
from tidelog.client.metrics import LowStat, Stat
from tidelog.client.subscription._reset_strategy import ResetStrategy
from tidelog.ids import NO_LEADER_EPOCH


class FetchState(enum.Enum):
    """What keeps a partition from being fetched, if anything."""

    INITIALIZING = "initializing"
    FETCHING = "fetching"
    AWAIT_RESET = "await reset"
    AWAIT_VALIDATION = "await validation"


class LeaderAndEpoch(NamedTuple):
    """Who leads a partition, by the metadata that a position was last compared with."""

    leader: int | None = None
    epoch: int = NO_LEADER_EPOCH


NO_LEADER = LeaderAndEpoch()


class FetchPosition(NamedTuple):
    """The offset of the next record, and the leader epoch of the record before it, -1 where unknown."""

    offset: int
    offset_epoch: int = NO_LEADER_EPOCH
    leader: LeaderAndEpoch = NO_LEADER

    @property
    def can_be_validated(self) -> bool:
        return self.offset_epoch != NO_LEADER_EPOCH and self.leader.epoch != NO_LEADER_EPOCH


class PartitionState:
    """The state of one assigned partition."""

    __slots__ = (
        "failures",
        "fetch_state",
        "generation",
        "high_watermark",
        "lag",
        "last_stable_offset",
        "lead",
        "log_start_offset",
        "paused",
        "pending_revocation",
        "position",
        "preferred_read_replica",
        "preferred_until",
        "reset_strategy",
        "retry_at",
    )

    def __init__(self) -> None:
        self.fetch_state = FetchState.INITIALIZING
        self.position: FetchPosition | None = None
        self.paused = False
        self.pending_revocation = False
        self.reset_strategy: ResetStrategy | None = None
        self.high_watermark: int | None = None
        self.log_start_offset: int | None = None
        self.last_stable_offset: int | None = None
        self.preferred_read_replica: int | None = None
        self.preferred_until = 0.0
        self.retry_at = 0.0
        self.failures = 0
        self.generation = 0
        self.lag = Stat()
        self.lead = LowStat()

    @property
    def is_fetchable(self) -> bool:
        return self.fetch_state is FetchState.FETCHING and not self.paused and not self.pending_revocation

    @property
    def has_valid_position(self) -> bool:
        return self.fetch_state is FetchState.FETCHING

    def require_position(self) -> FetchPosition:
        """The position; raises where there is none yet."""
        if self.position is None:
            raise IllegalStateError(f"the partition has no position yet: {self.fetch_state.value}")
        return self.position

    def seek(self, position: FetchPosition) -> None:
        """Go on from ``position``, which needs no check."""
        self._move(FetchState.FETCHING, position)
        self.reset_strategy = None
        self.retry_at = 0.0

    def seek_unvalidated(self, position: FetchPosition) -> None:
        """Go on from ``position`` once the leader's log is seen to hold the record before it."""
        self.seek(position)
        if position.can_be_validated:
            self.fetch_state = FetchState.AWAIT_VALIDATION

    def advance(self, offset: int, offset_epoch: int) -> None:
        """Records up to ``offset`` were handed out."""
        position = self.require_position()
        self.position = FetchPosition(offset, offset_epoch, position.leader)

    def reset(self, strategy: ResetStrategy) -> None:
        """Forget the position; ``strategy`` says how to find the next one."""
        self._move(FetchState.AWAIT_RESET, None)
        self.reset_strategy = strategy
        self.retry_at = 0.0

    def leader_seen(self, leader: LeaderAndEpoch, *, can_validate: bool = True) -> bool:
        """Metadata names this leader; whether the position has to be validated now."""
        position = self.position
        if position is None or position.leader == leader:
            return False
        self.preferred_read_replica = None
        moved = FetchPosition(position.offset, position.offset_epoch, leader)
        if can_validate and moved.can_be_validated and leader.epoch != position.leader.epoch:
            self._move(FetchState.AWAIT_VALIDATION, moved)
            self.retry_at = 0.0
            return True
        self.position = moved
        return False

    def validated(self) -> None:
        """The leader's log holds the record before the position."""
        if self.fetch_state is FetchState.AWAIT_VALIDATION:
            self.fetch_state = FetchState.FETCHING
            self.retry_at = 0.0

    def prefer_replica(self, node_id: int, until: float) -> None:
        """Fetch from this follower (KIP-392) until a monotonic time in ms."""
        self.preferred_read_replica = node_id
        self.preferred_until = until

    def replica_to_read(self, now: float) -> int | None:
        """The follower to fetch from; None means the leader."""
        if self.preferred_read_replica is not None and now >= self.preferred_until:
            self.preferred_read_replica = None
        return self.preferred_read_replica

    def failed(self, now: float, backoff_ms: float, backoff_max_ms: float) -> float:
        """A request about this partition failed: leave it alone for a while, longer each time; until when."""
        wait_ms = doubled_ms(backoff_ms, backoff_max_ms, self.failures)
        self.failures += 1
        self.retry_at = now + wait_ms
        return self.retry_at

    def succeeded(self) -> None:
        """A request about this partition was answered."""
        self.failures = 0
        self.retry_at = 0.0

    def retire(self) -> None:
        """The partition is no longer assigned: what was fetched for it is not wanted any more."""
        self.generation += 1

    def _move(self, state: FetchState, position: FetchPosition | None) -> None:
        self.fetch_state = state
        self.position = position
        self.generation += 1
