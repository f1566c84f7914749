"""What the records of the output topics say, put into the view; and detections against the planted truth.

Alerts come again under the same id when more is known; the view counts each once. The truth tells of an
incident when its last event was sent, so an alert may come before it: what is a false alarm is said only when
the run has ended. The scores are those of ``tidelog events score``.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any

import msgspec

from tidelog_rewards import events
from tidelog_rewards.demo.truth import Truth
from tidelog_rewards.demo.view import Alert, Score, View

if TYPE_CHECKING:
    from tidelog.client import ConsumerRecord
    from tidelog_rewards.detection.detection_report import DetectionReport

_KINDS = {"account-switch": "account switch", "invite-fraud": "invite fraud"}
_REASONS = {
    "device": "{count} people on one device",
    "number-block": "{count} numbers of block {value}",
    "address": "{count} people from {value}",
    "burst": "{count} people within {value}",
    "volume": "{count} people within {value}",
    "self": "{count} invitations of oneself",
    "regular": "{count} people like a clock, {value}",
    "cycle": "{count} people invited one another in a circle",
    "mutual": "two people invited each other",
    "chain": "{count} invitations in a row on {value}",
    "tree": "{count} people in one network, {value}",
    "same-device": "all on one device",
    "same-address": "all from one address",
    "quick": "all within an hour",
}
"""The rules of invite-fraud in words; others are shown by their names."""
_PARTICULARS = re.compile(r"(\"[^\"]*\"|'[^']*'|`[^`]*`|-?\b\d[\d.,:TZ+-]*)")


class Results:
    """Takes records as they are read; ``refresh`` brings the scores up to date."""

    def __init__(self, view: View, truth: Truth) -> None:
        self._view = view
        self._truth = truth
        self._alerts: dict[str, Mapping[str, Any]] = {}
        self._scored = (-1, -1)
        self._takers: dict[str, Callable[[ConsumerRecord], None]] = {
            events.ACCOUNT_SWITCH_ALERTS: self._take_alert,
            events.INVITE_FRAUD_ALERTS: self._take_alert,
            events.USER_REGIONS: self._take_region,
            events.USER_EARNINGS: self._take_earnings,
            events.DEAD_LETTERS: self._take_dead_letter,
            # The same once more, by subject; and what people say of them, of whom there are none here.
            events.INCIDENTS: lambda record: None,
            events.ALERT_VERDICTS: lambda record: None,
        }

    def take(self, record: ConsumerRecord) -> None:
        """One record of an output topic."""
        self._takers[record.topic](record)

    def refresh(self, *, final: bool = False) -> None:
        """Read on in the truth and score again; ``final``: nothing more will be planted."""
        self._truth.read_on()
        there = (len(self._truth.cases), self._view.alert_updates)
        if final or there != self._scored:
            # With it comes the client, which takes longer to load than all else that the view needs.
            from tidelog_rewards.detection.detection_report import score

            self._scored = there
            report = score(self._truth.cases, self._alerts.values())
            self._view.scores = [
                each for pipeline in _KINDS if (each := _summed(report, pipeline, final)).planted
            ]

    def paid(self) -> Mapping[str, int]:
        """The cents that were paid to each user; nothing before all of them were worked off."""
        return {} if any(row.lag for row in self._view.pipelines.values()) else self._truth.cents_by_user

    def proofs(self) -> list[str]:
        """What the whole truth proves about the results, once the run has ended."""
        paid = self.paid()
        if not paid:
            return []
        held = self._view.earnings_cents
        wrong = [user for user, cents in paid.items() if held.get(user, 0) != cents]
        if wrong:
            return [f"earnings: {len(wrong):,} of {len(paid):,} users differ from what was paid to them"]
        return [f"earnings: all {len(paid):,} users have exactly the cents that were paid to them"]

    def _take_alert(self, record: ConsumerRecord) -> None:
        if record.value is None:
            self._alerts.pop((record.key or b"").decode(), None)
            return
        told = _object(record)
        alert_id = str(told["alert_id"])
        self._view.alert_count += alert_id not in self._alerts
        self._view.alert_updates += 1
        self._alerts[alert_id] = told
        words = _account_switch(told) if told["pipeline"] == "account-switch" else _invite_fraud(told)
        self._view.add_alert(words)

    def _take_region(self, record: ConsumerRecord) -> None:
        region = _object(record).get("phone_region") or {}
        if not region.get("valid"):
            self._view.regions["(invalid number)"] += 1
            return
        place = str(region.get("place") or "")
        # "Guangzhou, Guangdong": people look at provinces first.
        self._view.regions[place.rpartition(", ")[2] or str(region.get("country") or "(unknown)")] += 1

    def _take_earnings(self, record: ConsumerRecord) -> None:
        user = (record.key or b"").decode("utf-8", "replace")
        if record.value is None:
            self._view.earnings_cents.pop(user, None)
        else:
            self._view.earnings_cents[user] = int(_object(record).get("total_cents", 0))

    def _take_dead_letter(self, record: ConsumerRecord) -> None:
        reasons = [value for key, value in record.headers if key == "reason"]
        text = (reasons[0] or b"").decode("utf-8", "replace") if reasons else "no reason given"
        self._view.reasons[_PARTICULARS.sub("…", text.split("; ")[0])] += 1


def _object(record: ConsumerRecord) -> Mapping[str, Any]:
    """A record's JSON object; results are ours, so anything else is a mistake worth seeing."""
    found: dict[str, Any] = msgspec.json.decode(record.value or b"{}", type=dict)
    return found


def _clock(moment: object) -> str:
    """``2026-01-05T10:20:30.000Z`` as ``10:20:30``."""
    text = str(moment or "")
    return text[11:19] if len(text) >= 19 else "--:--:--"


def _account_switch(told: Mapping[str, Any]) -> Alert:
    where = "one device" if told["subject_kind"] == "device" else f"{len(told['devices'])} devices"
    reason = (
        f"{told['account_count']} accounts on {where}, {told['switches']} switches "
        f"from {_clock(told['first_login'])} to {_clock(told['last_login'])} ({told['severity']})"
    )
    return Alert(_clock(told["last_login"]), "account switch", str(told["subject"]), reason)


def _invite_fraud(told: Mapping[str, Any]) -> Alert:
    reasons = [
        # Spark leaves fields without a value out of its JSON.
        _REASONS.get(reason["rule"], str(reason["rule"])).format_map({"count": "?", "value": "?", **reason})
        for reason in told["reasons"]
    ]
    times = [str(invite["event_time"]) for invite in told["invites"]]
    subject = str(told["subject"])
    text = f"{', '.join(reasons)} (score {told['score']})"
    return Alert(_clock(max(times, default="")), "invite fraud", subject, text)


def _summed(report: DetectionReport, pipeline: str, final: bool) -> Score:
    rules = [rule for rule in report.rules if rule.pipeline == pipeline]
    false = sum(alert["pipeline"] == pipeline for alert in report.false_alarms)
    return Score(
        _KINDS[pipeline],
        planted=sum(rule.planted for rule in rules),
        found=sum(rule.found for rule in rules),
        false_alarms=false if final else None,
    )
