"""Where a member of a classic group stands: its state and its generation.

    UNJOINED ──► PREPARING_REBALANCE ──► COMPLETING_REBALANCE ──► STABLE
        ▲          (JoinGroup sent)        (SyncGroup sent)          │
        └──────────────────────────── thrown out, left ◄─────────────┘

A stable member that rejoins goes back to PREPARING_REBALANCE. Heartbeats are sent in the last two states.
"""

from __future__ import annotations

import enum
from dataclasses import dataclass

NO_GENERATION_ID = -1


class MemberState(enum.Enum):
    """How far a member has got."""

    UNJOINED = "unjoined"
    PREPARING_REBALANCE = "preparing rebalance"
    COMPLETING_REBALANCE = "completing rebalance"
    STABLE = "stable"

    @property
    def is_rebalancing(self) -> bool:
        return self in (MemberState.PREPARING_REBALANCE, MemberState.COMPLETING_REBALANCE)


@dataclass(frozen=True, slots=True)
class Generation:
    """One round of a group's life as a member of it knows it."""

    generation_id: int = NO_GENERATION_ID
    member_id: str = ""
    protocol: str | None = None
    """The name of the assignor that the coordinator has chosen."""

    @property
    def is_lost(self) -> bool:
        """Whether partitions assigned earlier may be somebody else's by now."""
        return self.generation_id == NO_GENERATION_ID or not self.member_id


NO_GENERATION = Generation()
