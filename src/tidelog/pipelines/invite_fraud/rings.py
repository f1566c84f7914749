"""Rings found in the graph, as scored alerts with the columns of ``schema``."""

from __future__ import annotations

import hashlib
from collections.abc import Iterable
from datetime import UTC, datetime

import msgspec

from tidelog.pipelines.invite_fraud.graph import Edge, Ring
from tidelog.pipelines.invite_fraud.schema import NAME, RULES, SHOWN, Rules

_HOUR_MS = 3_600_000


def ring_alerts(rings: Iterable[Ring], rules: Rules = RULES) -> list[tuple[bytes, bytes]]:
    """Keys and values of the alerts, sorted; rings that score too low are left out."""
    alerts: dict[bytes, bytes] = {}
    for ring in rings:
        reasons = _reasons(ring, rules)
        score = min(100, sum(points for _, points, _, _ in reasons))
        if score >= rules.alert_score:
            key, value = _alert(ring, reasons, score)
            alerts[key] = value
    return sorted(alerts.items())


_Reason = tuple[str, int, int, str | None]


def _reasons(ring: Ring, rules: Rules) -> list[_Reason]:
    edges = ring.edges
    devices = {device for edge in edges for device in (edge.inviter_device, edge.invitee_device)}
    networks = {edge.network for edge in edges}
    took_ms = max(edge.time_ms for edge in edges) - min(edge.time_ms for edge in edges)
    if ring.shape == "chain":
        points = next(points for count, points in rules.chain if len(edges) >= count)
        return [("chain", points, len(edges), edges[0].inviter_device)]
    reasons: list[_Reason] = [
        (
            ring.shape,
            rules.mutual_points if ring.shape == "mutual" else rules.cycle_points,
            len(edges),
            " → ".join((*ring.members, ring.members[0])),
        )
    ]
    if len(devices) == 1:
        reasons.append(("same-device", rules.same_device_points, len(edges), next(iter(devices))))
    if len(networks) == 1:
        reasons.append(("same-address", rules.same_address_points, len(edges), next(iter(networks))))
    if took_ms < _HOUR_MS:
        reasons.append(("quick", rules.quick_points, len(edges), f"{took_ms // 1000} s"))
    return reasons


def _alert(ring: Ring, reasons: list[_Reason], score: int) -> tuple[bytes, bytes]:
    members = ring.members
    # A chain grows at its end: its first account and its device name it. A circle is its members.
    name = (members[0], ring.edges[0].inviter_device) if ring.shape == "chain" else members
    identity = "\n".join((NAME, "ring", ring.shape, *name))
    alert_id = hashlib.sha256(identity.encode()).hexdigest()[:32]
    times_ms = sorted(edge.time_ms for edge in ring.edges)
    alert = {
        "alert_id": alert_id,
        "pipeline": NAME,
        "subject_kind": "ring",
        "subject": ",".join(members[:SHOWN]),
        "window_start": _time_text(times_ms[0]),
        "window_end": _time_text(times_ms[-1]),
        "score": score,
        "reasons": [
            {"rule": rule, "points": points, "count": count, "value": value}
            for rule, points, count, value in reasons
        ],
        "inviters": sorted({edge.inviter for edge in ring.edges})[:SHOWN],
        "invitees": sorted({edge.invitee for edge in ring.edges})[:SHOWN],
        "devices": sorted({edge.invitee_device for edge in ring.edges})[:SHOWN],
        "invitations": len(ring.edges),
        "invites": [_invite(edge) for edge in sorted(ring.edges)[:SHOWN]],
    }
    return alert_id.encode(), msgspec.json.encode(alert)


def _invite(edge: Edge) -> dict[str, object]:
    return {
        "event_id": edge.event_id,
        "event_time": _time_text(edge.time_ms),
        "inviter": edge.inviter,
        "invitee": edge.invitee,
        "partition": edge.partition,
        "offset": edge.offset,
    }


def _time_text(time_ms: int) -> str:
    second, millisecond = divmod(time_ms, 1000)
    return f"{datetime.fromtimestamp(second, UTC):%Y-%m-%dT%H:%M:%S}.{millisecond:03d}Z"
