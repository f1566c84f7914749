"""invite-fraud: what each rule counts, where points begin, who is left in peace."""

from __future__ import annotations

import json
from datetime import UTC, datetime, timedelta
from itertools import count
from typing import Any

import pytest
from pyspark.sql import SparkSession

from tidelog.pipelines.events import INVITE, INVITE_FRAUD_ALERTS
from tidelog.pipelines.invite_fraud.schema import RULES
from tidelog.pipelines.invite_fraud.transform import alerts, invitations, windows

SCHEMA = "topic string, partition int, offset long, timestamp timestamp, value binary"
pytestmark = pytest.mark.timeout(600)
START = datetime(2026, 1, 5, 12, 0, tzinfo=UTC)
_numbers = count()
Alerts = dict[tuple[str, str], dict[str, Any]]


def invite(inviter: str, minute: float, **given: Any) -> tuple[Any, ...]:
    """An invitation of a stranger, but for what is given."""
    number = next(_numbers)
    known = {
        "event_id": f"e{number}",
        "invitee": f"n{number}",
        "phone": f"+86138{number:05d}000",
        "device": f"d{number}",
        "ip": f"10.{number // 256}.{number % 256}.9",
        **given,
    }
    event = {
        "event_id": known["event_id"],
        "event_time": (START + timedelta(minutes=minute)).isoformat(),
        "user_id": inviter,
        "device_id": f"device of {inviter}",
        "ip": "10.0.0.1",
        "invitee_id": known["invitee"],
        "invitee_phone": known["phone"],
        "invitee_device_id": known["device"],
        "invitee_ip": known["ip"],
        "channel": "link",
    }
    return INVITE.topic, 0, number, START, bytearray(json.dumps(event).encode())


def delivered_again(record: tuple[Any, ...]) -> tuple[Any, ...]:
    topic, partition, _, timestamp, value = record
    return topic, partition, next(_numbers), timestamp, value


def invites(inviter: str, number: int, *, every: float = 1.5, **given: Any) -> list[tuple[Any, ...]]:
    return [invite(inviter, 1 + at * every, **given) for at in range(number)]


def numbers(inviter: str, number: int, pattern: str, *, from_minute: float = 1) -> list[tuple[Any, ...]]:
    return [invite(inviter, from_minute + at * 1.5, phone=pattern.format(at)) for at in range(number)]


@pytest.fixture(scope="module")
def found(spark: SparkSession) -> Alerts:
    twice = invites("redelivered", 5, device="shared r")
    rows = [
        *invites("5 on a device", 5, device="shared 5"),
        *invites("6 on a device", 6, device="shared 6"),
        *twice,
        *map(delivered_again, twice),
        *invites("again and again", 12, device="shared a", invitee="the same person"),
        *[row for at in range(4) for row in invites(f"farmer {at}", 3, device="farm")],
        *numbers("7 numbers", 7, "+8613912345{:03d}"),
        *numbers("8 numbers", 8, "+8613912346{:03d}"),
        *numbers("written differently", 4, "+8613912347{:03d}"),
        *numbers("written differently", 4, "139 1234 71{:02d}", from_minute=20),
        *[invite("14 quick", 1 + at * 0.38) for at in range(14)],
        *[invite("15 quick", 1 + at * 0.35) for at in range(15)],
        *[invite("11 in a network", 1 + at * 2, ip=f"77.1.2.{at}") for at in range(11)],
        *[invite("12 in a network", 1 + at * 2, ip=f"77.1.3.{at}") for at in range(12)],
        *[invite("12 in IPv6", 1 + at * 2, ip=f"2001:db8:7:{at}::1") for at in range(12)],
        *[invite(f"carrier customer {at}", at / 2, ip="77.9.9.9") for at in range(60)],
        *[invite("office", 1 + at * 0.5, ip="77.1.4.1") for at in range(8)],
        *[invite("two signs", 1 + at, device="shared t", phone=f"+861391299{at:04d}") for at in range(4)],
        *[invite("over the hour", 50 + at * 3.3, device="shared o") for at in range(6)],
        *[invite("many friends", at * 5.0) for at in range(24)],
        *invites("parent", 3, device="tablet"),
        *[(INVITE.topic, 0, next(_numbers), START, value) for value in (None, bytearray(b"no event"))],
    ]
    frame = spark.createDataFrame(rows, SCHEMA).repartition(2)
    result = {}
    for row in alerts(windows(invitations(frame))).collect():
        alert = json.loads(row["value"])
        assert (row["topic"], row["key"].decode()) == (INVITE_FRAUD_ALERTS, alert["alert_id"])
        result[alert["subject"], alert["window_start"][11:16]] = alert
    return result


def points(found: Alerts, subject: str, window: str = "12:00") -> dict[str, int]:
    return {reason["rule"]: reason["points"] for reason in found[subject, window]["reasons"]}


@pytest.mark.parametrize(
    ("subject", "expected"),
    [
        ("6 on a device", {"device": 70}),
        ("8 numbers", {"number-block": 70}),
        ("written differently", {"number-block": 70}),
        ("15 quick", {"burst": 65}),
        ("12 in a network", {"address": 65}),
        ("12 in IPv6", {"address": 65}),
        ("two signs", {"device": 40, "number-block": 40}),
    ],
)
def test_a_strong_sign_or_two_weak_ones_are_an_alert(
    found: Alerts, subject: str, expected: dict[str, int]
) -> None:
    assert points(found, subject) == expected
    alert = found[subject, "12:00"]
    assert alert["score"] == sum(expected.values()) >= RULES.alert_score
    assert alert["inviters"] == [subject]


@pytest.mark.parametrize(
    "subject",
    [
        *("5 on a device", "7 numbers", "14 quick", "11 in a network", "redelivered", "again and again"),
        *("office", "many friends", "parent", "tablet", "77.9.9.9", "77.9.9"),
    ],
)
def test_one_less_is_no_alert_and_honest_people_are_left_in_peace(found: Alerts, subject: str) -> None:
    assert subject not in {name for name, _ in found}


def test_a_farm_is_seen_by_its_device_though_no_inviter_stands_out(found: Alerts) -> None:
    alert = found["farm", "12:00"]
    assert (alert["subject_kind"], alert["score"], alert["invitations"]) == ("device", 70, 12)
    assert alert["inviters"] == [f"farmer {at}" for at in range(4)]
    assert not any(name.startswith("farmer") for name, _ in found)


def test_a_device_with_one_inviter_is_told_once(found: Alerts) -> None:
    assert "shared 6" not in {name for name, _ in found}


def test_what_lies_over_the_hour_is_whole_in_the_next_window(found: Alerts) -> None:
    assert [window for name, window in found if name == "over the hour"] == ["12:30"]


def test_an_alert_proves_itself(found: Alerts) -> None:
    alert = found["6 on a device", "12:00"]
    reason = alert["reasons"][0]
    assert (reason["count"], reason["value"]) == (6, "shared 6")
    assert len(alert["invites"]) == alert["invitations"] == 6
    times = [each["event_time"] for each in alert["invites"]]
    assert times == sorted(times)
    assert set(alert["invites"][0]) == {"event_id", "event_time", "inviter", "invitee", "partition", "offset"}
