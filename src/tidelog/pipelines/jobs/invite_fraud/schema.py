"""The rules, their points, and what an alert says.

An alert is a JSON object; its record's key is ``alert_id``, so that a later one on the same subject replaces
the earlier. Consumers keep the newest per key.

    alert_id        string   hash of the subject and the window's start (a ring: of its members)
    pipeline        string   invite-fraud
    subject_kind    string   inviter, device, number-block or ring
    subject         string   the user_id, device_id or block; of a ring its members in order
    window_start    time     of a ring: its first invitation
    window_end      time     of a ring: its last one
    score           long     the sum of the points, at most 100; from 60 on it is an alert
    reasons         array    rule, points, count (how many), value (of what)
    inviters        array    user_ids, the first 50
    invitees        array    user_ids, the first 50
    devices         array    of the invitees, the first 50
    invitations     long     different people invited
    invites         array    the first 50: event_id, event_time, inviter, invitee, partition, offset

Points are given so that one strong sign, or two weak ones, make an alert. What honest people do gives no
points or too few: a family on one tablet (3 people), an office behind one address (8 colleagues), somebody
with twenty friends in a day, two friends who entered each other's codes.
"""

from __future__ import annotations

from dataclasses import dataclass
from datetime import timedelta

import msgspec

NAME = "invite-fraud"

SHOWN = 50
"""How many people and invitations an alert names; its numbers count all of them."""

Steps = tuple[tuple[int, int], ...]
"""Pairs of a count and the points from that count on, the highest first."""


@dataclass(frozen=True, slots=True)
class Rules:
    """When invitations are reported."""

    window: timedelta = timedelta(hours=1)
    slide: timedelta = timedelta(minutes=30)
    watermark: timedelta = timedelta(minutes=15)
    """Invitations that come later than this after the newest one are not counted."""
    alert_score: int = 60
    device: Steps = ((6, 70), (4, 40))
    """People who came in on one device."""
    number_block: Steps = ((8, 70), (4, 40))
    """People whose numbers differ in the last three digits only."""
    address: Steps = ((12, 65), (10, 40), (6, 20))
    """People whom one inviter brought from one /24 (IPv6: /48)."""
    burst: Steps = ((15, 65), (8, 30))
    """People whom one inviter brought within ``burst_window``."""
    burst_window: timedelta = timedelta(minutes=5)

    horizon: timedelta = timedelta(hours=24)
    """So long an invitation stays in the graph."""
    max_edges: int = 500_000
    """When the searches of a batch have loaded more invitations than this, they load no further ones."""
    max_cycle: int = 6
    """The longest circle that is looked for."""
    max_visits: int = 5_000
    """So many invitations are followed at most in search of one circle."""
    cycle_points: int = 70
    """Three or more who invited one another in a circle."""
    mutual_points: int = 40
    """Two who invited each other."""
    chain: Steps = ((5, 80), (4, 70), (3, 60))
    """Invitations in a row on one device, each by the one who was invited before."""
    same_device_points: int = 30
    same_address_points: int = 5
    quick_points: int = 10
    """All of a ring within an hour."""

    @property
    def least(self) -> int:
        """No group of fewer people can score."""
        return min(steps[-1][0] for steps in (self.device, self.number_block, self.address, self.burst))


RULES = Rules()


class Reason(msgspec.Struct, frozen=True):
    """A rule that gave points."""

    rule: str
    points: int
    count: int
    value: str


class Invite(msgspec.Struct, frozen=True):
    """An invitation that proves an alert."""

    event_id: str
    event_time: str
    inviter: str
    invitee: str
    partition: int
    offset: int


class Alert(msgspec.Struct, frozen=True):
    """What an alert says, in the order of its JSON."""

    alert_id: str
    pipeline: str
    subject_kind: str
    subject: str
    window_start: str
    window_end: str
    score: int
    reasons: list[Reason]
    inviters: list[str]
    invitees: list[str]
    devices: list[str]
    invitations: int
    invites: list[Invite]
