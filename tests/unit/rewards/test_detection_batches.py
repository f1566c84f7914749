"""The same events leave the same incidents, however they are ordered and cut into batches, or backfilled."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime, timedelta
from pathlib import Path
from random import Random
from typing import Any

import pytest
from hypothesis import HealthCheck, Phase, given, settings
from hypothesis import strategies as st
from tests.unit.rewards.detecting import START, Detecting, compared, event

from tidelog_rewards.detection.alert_evidence import Window
from tidelog_rewards.detection.alert_state import newest_event_us
from tidelog_rewards.detection.alert_tasks import Detector
from tidelog_rewards.jobs.account_switch.detector import SwitchDetector
from tidelog_rewards.jobs.invite_fraud.detector import InviteDetector

MINUTE = timedelta(minutes=1)
DAYS = 4
Timed = tuple[float, bytes]
DETECTORS: tuple[Detector, ...] = (SwitchDetector(), InviteDetector())


def made(detector: Detector, draw: Random, count: int) -> list[Timed]:
    """Events of a few days among few people, in bouts, with the minute of each."""
    found: list[Timed] = []
    while len(found) < count:
        minute = draw.random() * DAYS * 1440
        device, address = f"d{draw.randrange(6)}", f"10.0.{draw.randrange(3)}.1"
        pace = draw.choice((0.5, 3.0, 30.0))
        crowd = draw.choice((2, 5, 25))
        inviter = f"u{draw.randrange(crowd)}"
        rotation = draw.choice((0, 0, 1, 3))
        for turn in range(draw.randrange(1, 40)):
            minute += draw.random() * pace
            if rotation and turn % rotation == 0:
                device = f"short-lived {len(found)}"
            number = len(found)
            common = {
                "event_id": f"e{number:05d}",
                "event_time": (START + minute * MINUTE).isoformat(),
                "ip": address,
            }
            if detector.kind.name == "login":
                found.append((minute, login(draw, common, device, crowd)))
            else:
                found.append((minute, invitation(draw, common, device, inviter, number)))
    return found[:count]


def login(draw: Random, common: dict[str, Any], device: str, crowd: int) -> bytes:
    if draw.random() < 0.2:
        device = f"other {draw.randrange(12)}"
        common = {**common, "ip": f"77.{draw.randrange(9)}.0.1"}
    return event(
        **common,
        user_id=f"u{draw.randrange(crowd)}",
        device_id=device,
        phone="+8613800000000",
        method="sms",
        success=draw.random() < 0.9,
    )


def invitation(draw: Random, common: dict[str, Any], device: str, inviter: str, number: int) -> bytes:
    known = draw.random() < 0.3
    return event(
        **common,
        user_id=inviter if draw.random() < 0.7 else f"u{draw.randrange(25)}",
        device_id=device if draw.random() < 0.4 else f"own {number}",
        invitee_id=f"u{draw.randrange(25)}" if known else f"n{number}",
        invitee_phone=f"+861391234{draw.randrange(10_000):04d}",
        invitee_device_id=device if draw.random() < 0.4 else f"own {number}",
        invitee_ip=f"88.{draw.randrange(3)}.0.{draw.randrange(200)}",
        channel="link",
    )


def arrival(draw: Random, events: Sequence[Timed], late_minutes: float) -> list[bytes]:
    """In the order in which they come, some late, some twice."""
    delayed = [(minute + draw.random() ** 3 * late_minutes, value) for minute, value in events]
    again = [(minute + draw.random() * late_minutes / 2, value) for minute, value in events[::17]]
    return [value for _, value in sorted([*delayed, *again])]


def end_of_it(detector: Detector, start: datetime = START + timedelta(days=DAYS + 5)) -> list[bytes]:
    """Two events by strangers; by default so much later that everything is over."""
    common = {"ip": "1.1.1.1", "device_id": "last", "user_id": "last"}
    own = (
        {"phone": "+8613800000000", "method": "sms", "success": True}
        if detector.kind.name == "login"
        else {
            "invitee_id": "the end",
            "invitee_phone": "+8613800000000",
            "invitee_device_id": "end",
            "invitee_ip": "1.1.1.1",
            "channel": "sms",
        }
    )
    times = [start + timedelta(minutes=at) for at in range(2)]
    return [
        event(event_id=f"end {at}", event_time=time.isoformat(), **common, **own)
        for at, time in enumerate(times)
    ]


def incidents(
    directory: Path, detector: Detector, batches: Sequence[Sequence[bytes]]
) -> dict[tuple[str, str], Any]:
    stream = Detecting(directory, detector)
    for batch in batches:
        stream.feed(*batch)
        assert stream.total("late") == 0
    for last in end_of_it(detector):
        stream.feed(last)
    return compared(stream.incidents.values())


def cut(draw: Random, values: Sequence[bytes]) -> list[Sequence[bytes]]:
    found, at = [], 0
    while at < len(values):
        size = draw.choice((3, 20, 150))
        found.append(values[at : at + size])
        at += size
    return found


@pytest.mark.parametrize("detector", DETECTORS, ids=lambda each: str(each.name))
@settings(
    max_examples=4,
    deadline=None,
    phases=[Phase.explicit, Phase.reuse, Phase.generate],
    suppress_health_check=[HealthCheck.too_slow],
)
@given(seed=st.integers(0, 2**32))
def test_any_order_and_batches_leave_the_incidents_of_one_batch(
    tmp_path_factory: pytest.TempPathFactory, detector: Detector, seed: int
) -> None:
    draw = Random(seed)
    events = made(detector, draw, 150)
    late = detector.watermark_delay_us / 60_000_000 * 0.95
    one, many = (tmp_path_factory.mktemp(name) for name in ("one", "many"))
    whole = incidents(one, detector, [[value for _, value in events]])
    assert incidents(many, detector, cut(draw, arrival(draw, events, late))) == whole


@pytest.mark.parametrize("detector", DETECTORS, ids=lambda each: str(each.name))
def test_the_events_of_the_property_raise_incidents_of_all_kinds(tmp_path: Path, detector: Detector) -> None:
    kinds: set[str] = set()
    for seed in range(4):
        events = made(detector, Random(seed), 300)
        found = incidents(tmp_path / str(seed), detector, [[value for _, value in events]])
        kinds |= {kind for kind, _ in found}
    wanted = {"login": {"device", "address"}, "invite": {"inviter", "device", "number-block", "ring"}}
    assert wanted[detector.kind.name] <= kinds


@pytest.mark.parametrize("detector", DETECTORS, ids=lambda each: str(each.name))
def test_a_backfill_finds_the_evidence_that_the_stream_has_found(tmp_path: Path, detector: Detector) -> None:
    draw = Random(7)
    events = made(detector, draw, 200)
    live = Detecting(tmp_path / "live", detector)
    for batch in cut(draw, arrival(draw, events, 30)):
        live.feed(*batch)
    start_us = round(START.timestamp()) * 1_000_000
    within = Window(start_us, start_us + (DAYS + 1) * 86_400_000_000)
    again = Detecting(tmp_path / "again", detector, buckets=8, within=within)
    again.feed(*[value for _, value in events])

    def evidence(stream: Detecting) -> dict[tuple[str, str], Any]:
        found = compared(stream.incidents.values())
        return {name: {**told, "state": None} for name, told in found.items()}

    assert evidence(live)
    assert evidence(again) == evidence(live)


def day_of_two_months(
    tmp_path: Path, detector: Detector, day: int, events: Sequence[bytes]
) -> tuple[dict[str, Any], dict[str, Any]]:
    """What a stream says of events, one after the other, and what a backfill of a day says of all of them."""
    written = START + timedelta(days=90)
    live = Detecting(tmp_path / "live", detector)
    for value in events:
        live.feed(value, written=written)
        assert live.total("late") == 0
    start_us = round((START + timedelta(days=day)).timestamp()) * 1_000_000
    within = Window(start_us, start_us + 86_400_000_000)
    again = Detecting(tmp_path / "again", detector, within=within)
    again.feed(*events, written=written)
    found = ({told["subject"]: told for told in each.incidents.values()} for each in (live, again))
    return next(found), next(found)


def test_a_backfill_of_a_day_knows_of_the_month_before_each_point_of_the_month_before_it(
    tmp_path: Path,
) -> None:
    events = [
        event(
            event_id=f"e{at:03d}",
            event_time=(START + timedelta(hours=12 * at)).isoformat(),
            user_id=f"u{at}",
            device_id="d",
            ip="10.0.0.1",
            phone="+8613800000000",
            method="sms",
            success=True,
        )
        for at in range(124)
    ]
    live, again = day_of_two_months(tmp_path, SwitchDetector(), 61, events)
    assert len(live["d"]["history"]) == 60
    assert again == live


def test_a_backfill_of_a_day_knows_of_all_that_a_device_has_of_invitations(tmp_path: Path) -> None:
    events = [
        crafted_invite(START + timedelta(hours=12 * at), f"i{at % 3}", f"n{at}", device="d")
        for at in range(124)
    ]
    live, again = day_of_two_months(tmp_path, InviteDetector(), 61, events)
    assert len(live["d"]["history"]) == 60
    assert again["d"] == live["d"]


def test_a_backfill_joins_no_ring_to_one_that_was_forgotten_before_it(tmp_path: Path) -> None:
    rings = [
        crafted_invite(START + timedelta(days=day, minutes=at), one, other, device=f"of day {day}")
        for day, pair in ((0, ("a", "m")), (50, ("m", "x")))
        for at, (one, other) in enumerate((pair, pair[::-1]))
    ]
    between = crafted_invite(START + timedelta(days=49), "somebody", "else", device="other")
    live, again = day_of_two_months(tmp_path, InviteDetector(), 50, [*rings[:2], between, *rings[2:]])
    assert (set(live), set(again)) == ({"a", "m"}, {"m"})
    assert again["m"] == live["m"]


def crafted_invite(moment: datetime, inviter: str, invitee: str, *, device: str) -> bytes:
    return event(
        event_id=f"{inviter} {invitee}",
        event_time=moment.isoformat(),
        user_id=inviter,
        device_id=device,
        ip="10.0.0.1",
        invitee_id=invitee,
        invitee_phone="+8613800000000",
        invitee_device_id=device,
        invitee_ip="10.0.0.1",
        channel="link",
    )


@pytest.mark.parametrize("detector", DETECTORS, ids=lambda each: str(each.name))
def test_a_clock_that_runs_ahead_makes_nobody_else_late(tmp_path: Path, detector: Detector) -> None:
    draw = Random(3)
    events = [value for _, value in sorted(made(detector, draw, 200))]
    ahead, _ = end_of_it(detector, START + timedelta(hours=23))
    stream, undisturbed = (Detecting(tmp_path / name, detector) for name in ("ahead", "undisturbed"))
    stream.feed(ahead, written=START)
    for each in (stream, undisturbed):
        each.feed(*events)
        assert each.total("late") == 0
    assert stream.incidents
    assert compared(stream.incidents.values()) == compared(undisturbed.incidents.values())


def test_the_watermark_follows_times_that_are_not_ahead(tmp_path: Path) -> None:
    detector = SwitchDetector()
    stream = Detecting(tmp_path, detector)
    (ahead, behind) = (end_of_it(detector, START + timedelta(minutes=at))[0] for at in (300, -30))
    stream.feed(ahead, behind, written=START)
    assert newest_event_us(tmp_path, stream.buckets, stream.batch_id) == round(START.timestamp() * 1_000_000)
    stream.feed(end_of_it(detector, START - timedelta(minutes=61))[0], written=START)
    assert stream.total("late") == 1
