"""Alerts: the incidents of the detecting pipelines, by state, as ``tidelog alerts`` lists them."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from typing import Any

import msgspec

from tidelog.console.api.endpoint import Call, reads
from tidelog.console.records.masking import Mask
from tidelog.console.records.raw import RawRecord
from tidelog.console.refusal import Refusal, not_found
from tidelog.decode_errors import DECODE_ERRORS
from tidelog_rewards.console.incidents import incidents_of
from tidelog_rewards.events import INCIDENTS

STATES = ("open", "updated", "closed", "dismissed")
LIVE = ("open", "updated")
_LIMIT = 500


class AlertQuery(msgspec.Struct, forbid_unknown_fields=True):
    """Which ones: ``live`` are those that last, ``all`` every one."""

    state: str = "live"
    search: str = ""
    start: int = 0
    limit: int = 50


class AlertRow(msgspec.Struct, frozen=True):
    """One incident, as it is now; times are as the pipeline writes them."""

    alert_id: str
    state: str
    pipeline: str = ""
    severity: str = ""
    score: int = 0
    peak: int = 0
    subject_kind: str = ""
    subject: str = ""
    opened: str = ""
    updated: str = ""
    reasons: list[dict[str, Any]] = []
    partition: int = -1
    offset: int = -1
    """Where its record is."""


class AlertPage(msgspec.Struct, frozen=True):
    """Some of them, the highest peak first."""

    topic: str
    counts: dict[str, int]
    """By state, of all."""
    matched: int
    alerts: list[AlertRow]


@reads("/clusters/{cluster}/alerts", "Incidents that the pipelines have found, by state.", AlertQuery)
async def alerts(call: Call, asked: AlertQuery) -> AlertPage:
    """The newest record of each; what is masked in that topic is masked here, and not searched."""
    wanted = {"live": LIVE, "all": STATES}.get(asked.state, (asked.state,))
    if not set(wanted) <= set(STATES):
        raise Refusal(
            f"invalid state {asked.state!r}: choose live, all, {', '.join(STATES)}", 400, "BAD_STATE"
        )
    if not call.sees(INCIDENTS):
        raise not_found(f"topic {INCIDENTS} does not exist, or you have no access to it")
    mask = call.console.mask(call.person, call.cluster.name, INCIDENTS, unmasked=False)
    rows = await asyncio.to_thread(_rows, await incidents_of(call.cluster).read(), mask)
    counts = {state: sum(each.state == state for each in rows) for state in STATES}
    text = asked.search.lower()
    found = [
        each
        for each in rows
        if each.state in wanted
        and text in f"{each.alert_id} {each.pipeline} {each.subject_kind} {each.subject}".lower()
    ]
    found.sort(key=lambda each: (-each.peak, each.opened, each.alert_id))
    start = max(asked.start, 0)
    limit = max(1, min(asked.limit, _LIMIT))
    return AlertPage(INCIDENTS, counts, len(found), found[start : start + limit])


def _rows(records: Sequence[RawRecord], mask: Mask) -> list[AlertRow]:
    rows = []
    for record in records:
        shown = mask.apply(record) if mask else record
        try:
            row = msgspec.json.decode(shown.value or b"", type=AlertRow)
        except DECODE_ERRORS:
            continue  # whoever may write there may write anything
        rows.append(msgspec.structs.replace(row, partition=record.partition, offset=record.offset))
    return rows


ENDPOINTS = (alerts,)
