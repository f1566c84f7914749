"""account-switch, one window at a time: what is a switch, how bad it is, what an alert says."""

from __future__ import annotations

import msgspec
import pytest

from tidelog.pipelines.framework.alert_evidence import Window
from tidelog.pipelines.jobs.account_switch.schema import RULES, SHOWN, Alert
from tidelog.pipelines.jobs.account_switch.scoring import DeliveredLogin, score

MINUTE_US = 60_000_000
START_US = 1_767_614_400_000_000
"""2026-01-05T12:00:00Z."""
WINDOW = Window(START_US, START_US + 10 * MINUTE_US)


def login(at: int, user: str, *, event_id: str | None = None, offset: int | None = None) -> DeliveredLogin:
    time_us = START_US + at * 1_234_567
    return DeliveredLogin(
        time_us, event_id or f"e{at:03d}", 0, at if offset is None else offset, user, "10.0.0.1"
    )


def alternating(logins: int) -> list[DeliveredLogin]:
    return [login(at, f"u{at % 2}") for at in range(logins)]


def alert(logins: list[DeliveredLogin]) -> Alert:
    found = score("d1", WINDOW, logins)
    assert found is not None
    return found


@pytest.mark.parametrize(
    ("switches", "severity"),
    [
        (RULES.switches - 1, None),
        (RULES.switches, "medium"),
        (RULES.high - 1, "medium"),
        (RULES.high, "high"),
        (RULES.critical - 1, "high"),
        (RULES.critical, "critical"),
    ],
)
def test_the_limits_are_reported_and_one_less_is_not(switches: int, severity: str | None) -> None:
    found = score("d1", WINDOW, alternating(switches + 1))
    assert (None if found is None else (found.switches, found.severity)) == (
        None if severity is None else (switches, severity)
    )


def test_logins_count_in_the_order_of_time_however_they_were_delivered() -> None:
    logins = alternating(RULES.switches + 1)
    assert alert(logins[::-1]) == alert(logins)


def test_a_delivery_that_comes_twice_counts_once_and_the_first_is_the_evidence() -> None:
    logins = alternating(RULES.switches + 1)
    again = [each._replace(offset=each.offset + 100) for each in logins]
    assert alert([*again, *logins]) == alert(logins)
    assert score("d1", WINDOW, [*logins[:-1], *again[:-1]]) is None


def test_the_alert_of_a_window_is_written_as_documented() -> None:
    found = alert(alternating(RULES.switches + 1))
    value = msgspec.json.encode(found).decode()
    assert value.startswith(
        '{"alert_id":"4b790301631ea3201837ee640016bf00","pipeline":"account-switch","device_id":"d1",'
        '"window_start":"2026-01-05T12:00:00.000Z","window_end":"2026-01-05T12:10:00.000Z","switches":5,'
        '"account_count":2,"accounts":["u0","u1"],"severity":"medium",'
        '"first_login":"2026-01-05T12:00:00.000Z","last_login":"2026-01-05T12:00:06.172Z",'
        '"logins":[{"user_id":"u0","event_id":"e000","event_time":"2026-01-05T12:00:00.000Z",'
        '"ip":"10.0.0.1","partition":0,"offset":0},'
    )


def test_an_alert_shows_the_first_and_counts_all() -> None:
    found = alert([login(at, f"u{at:03d}") for at in range(80)])
    assert (found.switches, found.account_count) == (79, 80)
    assert found.accounts == [f"u{at:03d}" for at in range(SHOWN)]
    assert [each.event_id for each in found.logins] == [f"e{at:03d}" for at in range(SHOWN)]
    assert found.last_login > found.logins[-1].event_time


def test_ids_differ_by_device_and_window_alone() -> None:
    logins = alternating(RULES.critical)
    later = Window(WINDOW.start_us + MINUTE_US, WINDOW.end_us + MINUTE_US)
    found = [score("d1", WINDOW, logins), score("d2", WINDOW, logins), score("d1", later, logins)]
    assert len({each.alert_id for each in found if each is not None}) == 3
    assert alert(logins[:-1]).alert_id == alert(logins).alert_id
