"""invite-fraud: what each rule counts, where points begin, who is left in peace; rings over all buckets."""

from __future__ import annotations

from datetime import timedelta
from itertools import count
from pathlib import Path
from random import Random
from typing import Any

import msgspec
import pytest
from tests.unit.pipelines.detecting import START, Detecting, by_subject, event

from tidelog.pipelines.framework.alert_evidence import Window
from tidelog.pipelines.jobs.invite_fraud.detector import InviteDetector
from tidelog.pipelines.jobs.invite_fraud.graph import Edge, InviteGraph
from tidelog.pipelines.jobs.invite_fraud.invitations import network
from tidelog.pipelines.jobs.invite_fraud.rings import ring_alerts
from tidelog.pipelines.jobs.invite_fraud.schema import RULES, Rules

_numbers = count()
Alerts = dict[tuple[str, str], dict[str, Any]]


def invite(inviter: str, minute: float, **given: Any) -> bytes:
    """An invitation of a stranger, but for what is given."""
    number = next(_numbers)
    known = {
        "event_id": f"e{number}",
        "invitee": f"n{number}",
        "phone": f"+86138{number:05d}000",
        "own": f"device of {inviter}",
        "device": f"d{number}",
        "ip": f"10.{number // 256}.{number % 256}.9",
        **given,
    }
    return event(
        event_id=known["event_id"],
        event_time=(START + timedelta(minutes=minute)).isoformat(),
        user_id=inviter,
        device_id=known["own"],
        ip="10.0.0.1",
        invitee_id=known["invitee"],
        invitee_phone=known["phone"],
        invitee_device_id=known["device"],
        invitee_ip=known["ip"],
        channel="link",
    )


def invites(inviter: str, number: int, *, every: float = 1.5, **given: Any) -> list[bytes]:
    return [invite(inviter, 1 + at * every, **given) for at in range(number)]


def numbers(inviter: str, number: int, pattern: str, *, from_minute: float = 1) -> list[bytes]:
    return [invite(inviter, from_minute + at * 1.5, phone=pattern.format(at)) for at in range(number)]


@pytest.fixture(scope="module")
def found(tmp_path_factory: pytest.TempPathFactory) -> Alerts:
    twice = invites("redelivered", 5, device="shared r")
    values = [
        *invites("5 on a device", 5, device="shared 5"),
        *invites("6 on a device", 6, device="shared 6"),
        *twice,
        *twice,
        *invites("again and again", 12, device="shared a", invitee="the same person"),
        *[value for at in range(4) for value in invites(f"farmer {at}", 3, device="farm")],
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
        *[invite("himself", 1 + at, invitee="himself", device="shared h", own="shared h") for at in range(9)],
        *invites("parent", 3, device="tablet"),
        b"no event",
    ]
    alerts = Detecting(tmp_path_factory.mktemp("found"), InviteDetector()).feed(*values)
    assert all(key.decode() == alert["alert_id"] for key, alert in alerts.items())
    return by_subject(alerts.values(), "subject")


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
        *("office", "many friends", "parent", "tablet", "77.9.9.9", "77.9.9", "himself"),
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


def test_late_invitations_count_in_rings_only(tmp_path: Path) -> None:
    stream = Detecting(tmp_path, InviteDetector())
    assert not stream.feed(*invites("a", 5, device="x"), invite("a", 2, invitee="b"))
    assert not stream.feed(invite("other", 120))
    assert not stream.feed(invite("a", 3, device="x")), "the window from 12:00 is over"
    assert (stream.total("late"), stream.total("events")) == (1, 1)
    circle = stream.feed(invite("b", 4, invitee="c"), invite("c", 5, invitee="a"))
    assert [(alert["subject_kind"], alert["subject"]) for alert in circle.values()] == [("ring", "a,b,c")]
    assert not stream.feed(invite("other", 60 * 26))
    old = {"own": "x", "device": "x"}
    assert not stream.feed(invite("x", 5, invitee="y", **old), invite("y", 6, invitee="x", **old))
    assert (stream.total("late"), stream.total("follow_ups")) == (2, 0), "older than the graph remembers"


def traffic(draw: Random, people: int, minute: float, invitations: int) -> list[dict[str, Any]]:
    """Invitations among a few people on a few devices, so that rings of all shapes come about."""
    made = []
    for _ in range(invitations):
        inviter, invitee = (f"u{draw.randrange(people)}" for _ in range(2))
        own, device = (f"d{draw.randrange(3)}" for _ in range(2))
        made.append(
            {
                "inviter": inviter,
                "minute": minute + draw.random() * 30,
                "event_id": f"e{next(_numbers)}",
                "invitee": invitee,
                "own": own,
                "device": own if draw.random() < 0.6 else device,
                "ip": f"77.1.{draw.randrange(2)}.1",
            }
        )
    # The newest of all is of two strangers: what the graph does not take makes nothing else old.
    stranger = {"inviter": f"s{minute}", "invitee": f"t{minute}", "own": "own", "device": "other"}
    return [*made, {**made[0], **stranger, "minute": minute + 31, "event_id": f"e{next(_numbers)}"}]


def edge_of(given: dict[str, Any], offset: int) -> Edge:
    time_ms = round((START + timedelta(minutes=given["minute"])).timestamp() * 1_000_000) // 1000
    event_id, inviter, invitee, own, device = (
        given[name] for name in ("event_id", "inviter", "invitee", "own", "device")
    )
    return Edge(time_ms, event_id, inviter, invitee, own, device, network(given["ip"]), 0, offset)


@pytest.mark.parametrize(("seed", "people"), [(1, 8), (4, 60)])
def test_rings_are_those_of_one_graph_of_all_invitations(tmp_path: Path, seed: int, people: int) -> None:
    draw = Random(seed)
    rules = Rules(horizon=timedelta(hours=3))
    graph = InviteGraph(rules)
    stream = Detecting(tmp_path, InviteDetector(rules), buckets=2)
    reported = 0
    for batch in range(12):
        given = traffic(draw, people, batch * 25.0, draw.randrange(1, people))
        edges = [edge_of(each, stream.offset + at) for at, each in enumerate(given)]
        expected = dict(ring_alerts(graph.add(edges), rules))
        found = stream.feed(*(invite(**each) for each in given), tasks=draw.randrange(1, 4))
        rings = {key: alert for key, alert in found.items() if alert["subject_kind"] == "ring"}
        assert rings == {key: msgspec.json.decode(value) for key, value in expected.items()}, batch
        reported += len(rings)
    assert reported > 5


def test_a_replayed_batch_reports_the_same_on_another_number_of_tasks(tmp_path: Path) -> None:
    draw = Random(9)
    straight = Detecting(tmp_path / "straight", InviteDetector())
    for batch in range(4):
        values = [invite(**each) for each in traffic(draw, 9, batch * 10.0, 14)]
        records = straight.records(values)
        expected = straight.work_off(records)
        again = Detecting(tmp_path / "restarted", InviteDetector())
        again.batch_id = batch
        draw.shuffle(records)
        again.work_off(records[: draw.randrange(14)], tasks=1)
        assert again.work_off(records, tasks=5) == expected
        straight.batch_id += 1


def test_a_search_that_is_given_up_is_counted(tmp_path: Path) -> None:
    stream = Detecting(tmp_path, InviteDetector(Rules(max_visits=10)))
    stream.feed(*[invite("hub", at / 100, invitee=f"u{at}") for at in range(30)])
    stream.feed(*[invite(f"u{at}", 10, invitee=f"v{at}") for at in range(30)])
    assert stream.feed(invite("v29", 11, invitee="hub")) == {}
    assert stream.total("dropped") == 1


def test_honest_invitations_leave_nothing_to_follow_up(tmp_path: Path) -> None:
    stream = Detecting(tmp_path, InviteDetector())
    stream.feed(*[invite(f"u{at % 7}", at, invitee=f"v{at}") for at in range(20)])
    stream.feed(*[invite(f"v{at}", 20 + at, invitee=f"w{at}") for at in range(20)])
    assert stream.total("follow_ups") == 0
    assert stream.total("events") == 20


def test_a_range_of_time_reports_what_reaches_into_it(tmp_path: Path) -> None:
    minute_us = 60_000_000
    start_us = round(START.timestamp()) * 1_000_000
    within = Window(start_us + 65 * minute_us, start_us + 70 * minute_us)
    stream = Detecting(tmp_path, InviteDetector(within=within))
    values = [
        invite("a", 1, invitee="b"),
        invite("b", 66, invitee="c"),
        invite("c", 67, invitee="a"),
        # Closed before the range, and behind it.
        *(invite(name, 10 + at, invitee="ef"[at]) for at, name in enumerate("fe")),
        invite("a", 100, invitee="g"),
        invite("g", 101, invitee="h"),
        invite("h", 102, invitee="a"),
        *[invite("early", 2 + at, device="x") for at in range(6)],
        *[invite("inside", 40 + at, device="y") for at in range(6)],
    ]
    found = {alert["subject"] for alert in stream.feed(*values).values()}
    assert found == {"a,b,c", "inside"}
    assert stream.total("events") == 2
