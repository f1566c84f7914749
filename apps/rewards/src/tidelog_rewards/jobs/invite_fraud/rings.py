"""What circles, chains and trees come to, hour by hour; pure functions of their invitations.

A circle is named by its smallest member, a chain by its devices and a tree by its network, with who was the
first to invite. Two that grow together are one from then on, as if they had always been: all points are made
anew, and the other name is given up.

All points, that is, of invitations that are still remembered. What lives for longer than these are loses its
first ones, and its name with them: it becomes another incident, at a batch that nobody can foretell. To mend
that, points and names must follow from what was known in their hour alone, and the book must keep them.
"""

from __future__ import annotations

from typing import Any

from tidelog_rewards.detection.detection_rules import points_of
from tidelog_rewards.detection.incidents import HOUR_US, Judged, Point, Reason, point_of
from tidelog_rewards.jobs.invite_fraud.graph import cyclic, longest_path, members_of
from tidelog_rewards.jobs.invite_fraud.schema import Rules
from tidelog_rewards.jobs.invite_fraud.scoring import (
    Invites,
    details_of,
    horizons_of,
)


def judge_ring(edges: Invites, rules: Rules) -> Judged:
    """What the invitations of circles that hang together come to."""
    points: list[Point] = []
    details: dict[str, Any] = {}
    for found in horizons_of(sorted(edges), 0):
        ring = cyclic(found.month)
        point = point_of(found.time_us, _of_ring(ring, rules), rules.alert_score) if ring else None
        if point is not None:
            points.append(point)
            details = details_of(ring)
    members = sorted(members_of(edges))
    return Judged("ring", members[0], tuple(points), details, tuple(members[1:]), is_whole=True)


def judge_chain(devices: frozenset[str], edges: Invites, rules: Rules) -> Judged:
    """What invitations in a row on one device or two come to."""
    points: list[Point] = []
    last: Invites = ()
    for found in horizons_of(sorted(edges), 0):
        row = longest_path(found.month, rules.max_visits)
        used = {name for edge in row for name in (edge.device, edge.inviter_device)}
        steps = rules.chain if len(devices) == 1 else rules.chain_of_two
        gained = points_of(len(row), steps) if used == devices else 0
        if not gained:
            continue
        reason = Reason("chain", gained, len(row), ",".join(sorted(devices)))
        point = point_of(found.time_us, [reason], rules.alert_score)
        if point is not None:
            points.append(point)
            last = sorted(row)
    details = details_of(last) if last else {}
    return _named("chain", ",".join(sorted(devices)), edges, points, details)


def judge_tree(network: str, edges: Invites, rules: Rules) -> Judged:
    """What invitations into one network come to, by people who were invited there themselves."""
    points: list[Point] = []
    details: dict[str, Any] = {}
    known = sorted(edges)
    for found in horizons_of(known, 0):
        inviters = {edge.inviter for edge in found.month}
        people = {edge.invitee for edge in found.month}
        gained = points_of(len(people), rules.tree)
        if not gained or len(inviters) < rules.tree_inviters:
            continue
        reason = Reason("tree", gained, len(people), f"{len(inviters)} inviters in {network}")
        point = point_of(found.time_us, [reason], rules.alert_score)
        if point is not None:
            points.append(point)
            details = details_of(found.month)
    return _named("tree", network, known, points, details)


def _named(kind: str, place: str, edges: Invites, points: list[Point], details: dict[str, Any]) -> Judged:
    """Named by its place and by who was the first to invite; as others it may have been known before."""
    first = min(edges).inviter
    others = sorted({edge.inviter for edge in edges} - {first})
    replaces = tuple(f"{place} {name}" for name in others)
    return Judged(kind, f"{place} {first}", tuple(points), details, replaces, is_whole=True)


def _of_ring(edges: Invites, rules: Rules) -> list[Reason]:
    members = sorted(members_of(edges))
    devices = {device for edge in edges for device in (edge.inviter_device, edge.device)}
    networks = {edge.network for edge in edges}
    took_us = edges[-1].time_us - edges[0].time_us
    is_pair = len(members) == 2
    reasons = [
        Reason(
            "mutual" if is_pair else "cycle",
            rules.mutual_points if is_pair else rules.cycle_points,
            len(members),
            ",".join(members),
        )
    ]
    if len(devices) == 1:
        reasons.append(Reason("same-device", rules.same_device_points, len(edges), next(iter(devices))))
    if len(networks) == 1:
        reasons.append(Reason("same-address", rules.same_address_points, len(edges), next(iter(networks))))
    if took_us < HOUR_US:
        reasons.append(Reason("quick", rules.quick_points, len(edges), f"{took_us // 1_000_000} s"))
    return reasons
