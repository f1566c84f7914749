"""account-switch: what counts as a switch, where the limit is, what windows, watermarks and restarts do."""

from __future__ import annotations

from datetime import timedelta
from itertools import count
from pathlib import Path
from random import Random
from typing import Any

import pytest
from tests.unit.pipelines.detecting import START, Detecting, by_subject, event

from tidelog.pipelines.framework.alert_evidence import Window
from tidelog.pipelines.jobs.account_switch.detector import SwitchDetector
from tidelog.pipelines.jobs.account_switch.schema import RULES

_numbers = count()
Alerts = dict[tuple[str, str], dict[str, Any]]


def login(
    device: str, user: str, minute: float, *, event_id: str | None = None, success: bool = True
) -> bytes:
    return event(
        event_id=event_id or f"e{next(_numbers)}",
        event_time=(START + timedelta(minutes=minute)).isoformat(),
        user_id=user,
        device_id=device,
        ip="10.0.0.1",
        phone="+8613800000000",
        method="sms",
        success=success,
    )


def alternating(device: str, logins: int, *, from_minute: float = 1.0, every: float = 0.5) -> list[bytes]:
    return [login(device, f"u{at % 2}", from_minute + every * at) for at in range(logins)]


@pytest.fixture
def stream(tmp_path: Path) -> Detecting:
    return Detecting(tmp_path, SwitchDetector())


def found(stream: Detecting, *values: bytes) -> Alerts:
    alerts = stream.feed(*values)
    assert all(key.decode() == alert["alert_id"] for key, alert in alerts.items())
    return by_subject(alerts.values(), "device_id")


@pytest.fixture(scope="module")
def small(tmp_path_factory: pytest.TempPathFactory) -> Alerts:
    twice = alternating("redelivered", RULES.switches)
    values = [
        *alternating("just below", RULES.switches),
        *alternating("at the limit", RULES.switches + 1),
        *alternating("high", RULES.high + 1, every=0.2),
        *alternating("critical", RULES.critical + 1, every=0.1),
        *[login("one account", "u0", 1 + at / 10) for at in range(30)],
        *[login("failed", f"u{at}", 1 + at / 10, success=False) for at in range(30)],
        *twice,
        *twice,
        # Three switches before 12:10 and three after it, within four minutes: whole in the window from 12:05.
        *alternating("over the edge", RULES.switches + 1, from_minute=8.0, every=0.8),
        # Windows are [start, end): the last login is not in the one from 12:00, the first not in 12:05's.
        login("edge", "a", 4.999),
        *[login("edge", f"b{at}", 5 + at) for at in range(5)],
        login("edge", "c", 10.0),
        *[login("family", f"child {at % 4}", 2.6 * at) for at in range(20)],
        *[
            login("unordered", f"u{at % 3}", minute)
            for at, minute in enumerate((4.0, 2.0, 3.0, 1.0, 5.0, 6.0))
        ],
    ]
    return found(Detecting(tmp_path_factory.mktemp("small"), SwitchDetector()), *values)


def test_the_limit_is_reported_and_one_less_is_not(small: Alerts) -> None:
    devices = {device for device, _ in small}
    assert "just below" not in devices
    assert small["at the limit", "12:00"]["switches"] == RULES.switches
    assert [small[device, "12:00"]["severity"] for device in ("at the limit", "high", "critical")] == [
        "medium",
        "high",
        "critical",
    ]


@pytest.mark.parametrize("device", ["one account", "failed", "redelivered", "family"])
def test_what_is_no_switching_is_not_reported(small: Alerts, device: str) -> None:
    assert device not in {name for name, _ in small}


def test_what_lies_over_the_edge_of_a_window_is_whole_in_the_next(small: Alerts) -> None:
    assert [start for device, start in small if device == "over the edge"] == ["12:05"]
    assert {start: alert["switches"] for (device, start), alert in small.items() if device == "edge"} == {
        "12:00": 5,
        "12:05": 5,
    }
    assert small["edge", "12:05"]["first_login"] == "2026-01-05T12:05:00.000Z"
    assert small["edge", "12:00"]["last_login"] == "2026-01-05T12:09:00.000Z"


def test_an_alert_proves_itself_with_logins_in_the_order_of_time(small: Alerts) -> None:
    alert = small["unordered", "12:00"]
    times = [each["event_time"] for each in alert["logins"]]
    assert times == sorted(times)
    assert (alert["account_count"], alert["accounts"]) == (3, ["u0", "u1", "u2"])
    assert {"user_id", "event_id", "event_time", "ip", "partition", "offset"} == set(alert["logins"][0])
    switches = sum(
        one["user_id"] != other["user_id"]
        for one, other in zip(alert["logins"], alert["logins"][1:], strict=False)
    )
    assert switches == alert["switches"]
    assert (alert["first_login"], alert["last_login"]) == (times[0], times[-1])


def test_alerts_come_with_the_batch_that_proves_them_and_grow_until_the_watermark(stream: Detecting) -> None:
    logins = alternating("d", RULES.switches + 3)
    assert found(stream, *logins[: RULES.switches]) == {}
    first = found(stream, logins[RULES.switches])["d", "12:00"]
    assert first["switches"] == RULES.switches
    again = found(stream, logins[0])["d", "12:00"]
    assert again == first, "a delivery that comes twice changes nothing"
    grown = found(stream, *logins[RULES.switches + 1 :])["d", "12:00"]
    assert (grown["switches"], grown["alert_id"]) == (RULES.switches + 2, first["alert_id"])
    # Another device's login moves the watermark to 12:09, just short of the window's end at 12:10.
    assert found(stream, login("other", "u", 24.0)) == {}
    late = found(stream, login("d", "late", 1.25))["d", "12:00"]
    assert (late["switches"], stream.total("late")) == (RULES.switches + 3, 0)
    assert found(stream, login("other", "u", 26.0)) == {}
    assert found(stream, login("d", "too late", 1.75)) == {}
    assert (stream.total("late"), stream.total("events")) == (1, 1)


def test_what_is_over_is_forgotten_and_its_files_go(stream: Detecting) -> None:
    for hour in range(5):
        stream.feed(*[login(f"{hour}-{at}", "u", 60.0 * hour) for at in range(50)])
    stream.feed(*[login(f"last-{at}", "u", 60.0 * 5) for at in range(50)])
    assert stream.total("rows") == 100, "those of the batch before: the watermark was that before it"
    assert all(len(list(each.iterdir())) <= 3 for each in stream.directory.iterdir() if each.is_dir())


def test_a_replayed_batch_reports_the_same_on_another_number_of_tasks(tmp_path: Path) -> None:
    draw = Random(5)
    straight, restarted = (Detecting(tmp_path / name, SwitchDetector()) for name in ("straight", "restarted"))
    reported = 0
    for batch in range(6):
        values = [
            login(f"d{draw.randrange(12)}", f"u{draw.randrange(9)}", batch * 2 + draw.random() * 6)
            for _ in range(40)
        ]
        records = straight.records(values)
        expected = straight.work_off(records)
        reported += len(expected)
        # The first attempt ended somewhere; the second one has other tasks, the third has all of it again.
        again = Detecting(restarted.directory, SwitchDetector())
        again.batch_id = batch
        draw.shuffle(records)
        again.work_off(records[: draw.randrange(40)], tasks=1)
        assert again.work_off(records, tasks=1) == expected
        assert again.work_off(records, tasks=7) == expected
        straight.batch_id += 1
    assert reported > 5


def test_batches_of_any_size_leave_the_alerts_of_one(tmp_path: Path) -> None:
    draw = Random(6)
    values = sorted(
        (draw.random() * 14, login(f"d{draw.randrange(5)}", f"u{draw.randrange(9)}", draw.random() * 14))
        for _ in range(120)
    )
    whole = Detecting(tmp_path / "whole", SwitchDetector()).feed(*(value for _, value in values))
    cut = Detecting(tmp_path / "cut", SwitchDetector())
    newest: dict[bytes, Any] = {}
    while cut.offset < len(values):
        size = draw.randrange(1, 30)
        newest |= cut.feed(*(value for _, value in values[cut.offset : cut.offset + size]))
    assert whole
    assert newest == whole


def test_what_is_no_event_becomes_a_letter_once(stream: Detecting) -> None:
    stream.feed(login("d", "u", 1), b"no event", None)
    told = [{each["key"]: each["value"] for each in row["headers"]} for row in stream.letters]
    assert sorted(each["offset"] for each in told) == [b"1", b"2"]
    assert {each["pipeline"] for each in told} == {b"account-switch"}
    assert stream.total("letters") == 2


def test_a_range_of_time_reports_the_windows_that_reach_into_it(tmp_path: Path) -> None:
    minute_us = 60_000_000
    start_us = round(START.timestamp()) * 1_000_000
    within = Window(start_us + 12 * minute_us, start_us + 14 * minute_us)
    stream = Detecting(tmp_path, SwitchDetector(within=within))
    values = [value for at in (1.0, 11.0, 21.0) for value in alternating(f"from {at}", 9, from_minute=at)]
    assert set(found(stream, *values)) == {("from 11.0", "12:05"), ("from 11.0", "12:10")}
    assert stream.total("events") == 4, "those of the range"
