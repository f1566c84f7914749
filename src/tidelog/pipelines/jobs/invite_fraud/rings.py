"""Rings found in the graph, as scored alerts with the columns of ``schema``."""

from __future__ import annotations

from collections.abc import Iterable

import msgspec

from tidelog.pipelines.framework.alert_evidence import alert_id, time_text
from tidelog.pipelines.jobs.invite_fraud.graph import Edge, Ring
from tidelog.pipelines.jobs.invite_fraud.schema import NAME, RULES, SHOWN, Alert, Invite, Reason, Rules

_HOUR_MS = 3_600_000


def ring_alerts(rings: Iterable[Ring], rules: Rules = RULES) -> list[tuple[bytes, bytes]]:
    """Keys and values of the alerts, sorted; rings that score too low are left out."""
    alerts: dict[bytes, bytes] = {}
    for ring in rings:
        reasons = _reasons(ring, rules)
        score = min(100, sum(reason.points for reason in reasons))
        if score >= rules.alert_score:
            alert = _alert(ring, reasons, score)
            alerts[alert.alert_id.encode()] = msgspec.json.encode(alert)
    return sorted(alerts.items())


def _reasons(ring: Ring, rules: Rules) -> list[Reason]:
    edges = ring.edges
    devices = {device for edge in edges for device in (edge.inviter_device, edge.invitee_device)}
    networks = {edge.network for edge in edges}
    took_ms = max(edge.time_ms for edge in edges) - min(edge.time_ms for edge in edges)
    if ring.shape == "chain":
        points = next(points for count, points in rules.chain if len(edges) >= count)
        return [Reason("chain", points, len(edges), edges[0].inviter_device)]
    reasons = [
        Reason(
            ring.shape,
            rules.mutual_points if ring.shape == "mutual" else rules.cycle_points,
            len(edges),
            " → ".join((*ring.members, ring.members[0])),
        )
    ]
    if len(devices) == 1:
        reasons.append(Reason("same-device", rules.same_device_points, len(edges), next(iter(devices))))
    if len(networks) == 1:
        reasons.append(Reason("same-address", rules.same_address_points, len(edges), next(iter(networks))))
    if took_ms < _HOUR_MS:
        reasons.append(Reason("quick", rules.quick_points, len(edges), f"{took_ms // 1000} s"))
    return reasons


def _alert(ring: Ring, reasons: list[Reason], score: int) -> Alert:
    members = ring.members
    # A chain grows at its end: its first account and its device name it. A circle is its members.
    name = (members[0], ring.edges[0].inviter_device) if ring.shape == "chain" else members
    times_ms = sorted(edge.time_ms for edge in ring.edges)
    return Alert(
        alert_id=alert_id(NAME, "ring", ring.shape, *name),
        pipeline=NAME,
        subject_kind="ring",
        subject=",".join(members[:SHOWN]),
        window_start=_time_text(times_ms[0]),
        window_end=_time_text(times_ms[-1]),
        score=score,
        reasons=reasons,
        inviters=sorted({edge.inviter for edge in ring.edges})[:SHOWN],
        invitees=sorted({edge.invitee for edge in ring.edges})[:SHOWN],
        devices=sorted({edge.invitee_device for edge in ring.edges})[:SHOWN],
        invitations=len(ring.edges),
        invites=[_invite(edge) for edge in sorted(ring.edges)[:SHOWN]],
    )


def _invite(edge: Edge) -> Invite:
    time = _time_text(edge.time_ms)
    return Invite(edge.event_id, time, edge.inviter, edge.invitee, edge.partition, edge.offset)


def _time_text(time_ms: int) -> str:
    return time_text(time_ms * 1000)
