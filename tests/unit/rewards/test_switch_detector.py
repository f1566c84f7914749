"""account-switch: where the limits are, what an alert says, what lateness, restarts and ranges of time do."""

from __future__ import annotations

import json
from datetime import timedelta
from itertools import count
from pathlib import Path
from random import Random
from typing import Any
from zlib import crc32

import msgspec
import pytest
from tests.unit.rewards.detecting import START, Detecting, event

from tidelog.spark.dead_letters.letter import CARRIED_BYTES
from tidelog_rewards.detection.alert_evidence import Window
from tidelog_rewards.detection.incidents import incident_id
from tidelog_rewards.detection.verdicts import NEVER_US, Verdicts
from tidelog_rewards.event_parser import MAX_STRING_CHARS
from tidelog_rewards.jobs.account_switch.detector import SwitchDetector
from tidelog_rewards.jobs.account_switch.schema import SHOWN, USUAL

RULES = USUAL.rules
_numbers = count()


def login(
    device: str,
    user: str,
    minute: float,
    *,
    event_id: str | None = None,
    success: bool = True,
    ip: str = "10.0.0.1",
) -> bytes:
    return event(
        event_id=event_id or f"e{next(_numbers):06d}",
        event_time=(START + timedelta(minutes=minute)).isoformat(),
        user_id=user,
        device_id=device,
        ip=ip,
        phone="+8613800000000",
        method="sms",
        success=success,
    )


def turns(device: str, logins: int, *, from_minute: float = 1.0, every: float = 0.5) -> list[bytes]:
    """Three accounts in turn, not like a clock."""
    draw = Random(logins)
    return [
        login(device, f"u{at % 3}", from_minute + every * (at + draw.random() * 0.9)) for at in range(logins)
    ]


def reasons(told: dict[str, Any]) -> dict[str, tuple[int, int, str]]:
    return {each["rule"]: (each["points"], each["count"], each["value"]) for each in told["reasons"]}


@pytest.fixture
def stream(tmp_path: Path) -> Detecting:
    return Detecting(tmp_path, SwitchDetector())


@pytest.fixture(scope="module")
def small(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    twice = turns("redelivered", 5)
    values = [
        *turns("just below", 5),
        *turns("at the limit", 6),
        *turns("high", 11, every=0.3),
        *turns("critical", 21, every=0.2),
        *[login("one account", "u0", 1 + at / 10) for at in range(30)],
        *[login("two accounts", f"u{at % 2}", 1 + at / 10) for at in range(30)],
        *twice,
        *twice,
        *[login("in time", f"u{at % 3}", 8 + at * 2.0) for at in range(6)],
        *[login("too slow", f"u{at % 3}", 8 + at * 2.01) for at in range(6)],
        *[login("failing", f"u{at % 9}", 1 + at / 10, success=False) for at in range(30)],
        *[login("failing less", f"u{at % 9}", 1 + at / 10, success=False) for at in range(29)],
    ]
    stream = Detecting(tmp_path_factory.mktemp("small"), SwitchDetector())
    return stream.feed(*values)


def test_the_limits_are_reported_and_one_less_is_not(small: dict[str, Any]) -> None:
    assert set(small) == {"at the limit", "high", "critical", "in time", "failing"}
    assert reasons(small["at the limit"]) == {"switching": (65, 5, "600 s")}
    assert reasons(small["failing"]) == {"failed-logins": (65, 30, "1 h")}
    assert [small[name]["severity"] for name in ("at the limit", "high", "critical")] == [
        "medium",
        "high",
        "critical",
    ]


def test_an_alert_says_who_and_what_and_proves_itself(small: dict[str, Any]) -> None:
    told = small["at the limit"]
    assert told["alert_id"] == incident_id("account-switch", "device", "at the limit")
    assert [told[name] for name in ("pipeline", "subject_kind", "subject", "state", "device_id")] == [
        "account-switch",
        "device",
        "at the limit",
        "open",
        "at the limit",
    ]
    assert (told["score"], told["peak"], told["history"]) == (65, 65, [[told["updated"], 65]])
    assert (told["account_count"], told["accounts"], told["failed"]) == (3, ["u0", "u1", "u2"], 0)
    assert told["rules"] == {"version": "test", "digest": "0"}
    times = [each["event_time"] for each in told["logins"]]
    assert times == sorted(times)
    assert (told["first_login"], told["last_login"], told["updated"]) == (times[0], times[-1], times[-1])
    assert set(told["logins"][0]) == {
        "user_id",
        "event_id",
        "event_time",
        "device_id",
        "ip",
        "partition",
        "offset",
    }


def test_an_alert_shows_the_last_logins_and_counts_all(stream: Detecting) -> None:
    told = stream.feed(*turns("d", 80, every=0.1))["d"]
    assert (told["switches"], len(told["logins"])) == (79, SHOWN)


def test_an_incident_grows_under_one_id_and_is_closed_when_it_is_over(stream: Detecting) -> None:
    logins = turns("d", 9)
    assert stream.feed(*logins[:5]) == {}
    first = stream.feed(logins[5])["d"]
    assert stream.feed(logins[0]) == {}, "a delivery that comes twice changes nothing"
    grown = stream.feed(*logins[6:])["d"]
    assert (grown["switches"], grown["alert_id"], grown["state"]) == (8, first["alert_id"], "open")
    later = stream.feed(*turns("d", 9, from_minute=130))["d"]
    assert (later["state"], later["opened"], len(later["history"])) == ("updated", grown["updated"], 2)
    assert stream.feed(login("other", "u", 3 * 1440)) == {}
    closed = stream.feed(login("other", "u", 3 * 1440 + 1))["d"]
    assert {**closed, "state": "updated"} == later
    assert closed["state"] == "closed"
    assert stream.feed(login("other", "u", 3 * 1440 + 2)) == {}
    again = stream.feed(*turns("d", 9, from_minute=4 * 1440))["d"]
    assert (again["state"], len(again["history"]), again["alert_id"]) == ("open", 1, first["alert_id"])


def test_late_logins_count_as_long_as_the_rules_say(stream: Detecting) -> None:
    logins = turns("d", 6)
    stream.feed(*logins[:5])
    stream.feed(login("other", "u", 60.0))
    assert set(stream.feed(logins[5])) == {"d"}
    stream.feed(login("other", "u", 75.0))
    assert stream.feed(login("d", "too late", 1.75)) == {}
    assert (stream.total("late"), stream.total("events")) == (1, 1)


def test_rules_that_allow_more_lateness_take_nothing_back_that_was_judged_by_what_is_forgotten(
    tmp_path: Path,
) -> None:
    stream = Detecting(tmp_path, SwitchDetector(), buckets=1)
    told = stream.feed(*(login("d", f"u{at}", 115 * at + 40 * (at % 2)) for at in range(12)))["d"]
    stream.feed(login("other", "u", 44 * 60))
    stream.feed(login("other", "u", 44 * 60 + 1))
    stream.detector = SwitchDetector(msgspec.structs.replace(RULES, lateness_s=86_400))
    assert stream.feed(login("d", "u0", 44 * 60 + 2), login("other", "late", 42 * 60)) == {}
    assert stream.incidents == {told["alert_id"]: told}
    assert stream.total("late") == 1, "nobody can say what came of it"
    stream.feed(login("other", "u", 70 * 60))
    stream.feed(login("other", "in time", 47 * 60))
    assert stream.total("late") == 0


def test_a_dismissed_incident_stays_dismissed_and_an_allowed_subject_is_never_heard_of(
    tmp_path: Path,
) -> None:
    name = incident_id("account-switch", "device", "d")
    stream = Detecting(tmp_path, SwitchDetector())
    assert stream.feed(*turns("d", 9))["d"]["state"] == "open"
    stream.verdicts = Verdicts({name: 2**62}, frozenset({("account-switch", "device", "shop")}))
    told = stream.feed(*turns("d", 9, from_minute=20), *turns("shop", 9, from_minute=20))
    assert {subject: each["state"] for subject, each in told.items()} == {"d": "dismissed"}
    stream.verdicts = Verdicts()
    told = stream.feed(*turns("d", 9, from_minute=40), *turns("shop", 9, from_minute=40))
    assert set(told) == {"d", "shop"}, "verdicts can be taken back"


def states(told: dict[str, Any]) -> dict[str, str]:
    return {subject: each["state"] for subject, each in told.items()}


def test_a_verdict_is_told_at_the_next_batch_and_an_incident_that_is_heard_again_is_closed(
    stream: Detecting,
) -> None:
    name = incident_id("account-switch", "device", "d")
    stream.feed(*turns("d", 9))
    stream.verdicts = Verdicts({name: 2**62})
    assert states(stream.feed(login("other", "u", 10))) == {"d": "dismissed"}
    assert stream.feed(login("other", "u", 11)) == {}
    assert states(stream.feed(*turns("d", 9, from_minute=20))) == {"d": "dismissed"}
    stream.verdicts = Verdicts()
    assert states(stream.feed(login("other", "u", 50))) == {"d": "open"}
    assert stream.feed(login("other", "u", 50 * 60)) == {}
    assert states(stream.feed(login("other", "u", 50 * 60 + 1))) == {"d": "closed"}
    assert stream.feed(login("other", "u", 300 * 60)) == {}


def test_an_incident_that_was_over_while_it_was_dismissed_is_closed_when_that_is_taken_back(
    stream: Detecting,
) -> None:
    allowed = Verdicts(allowed=frozenset({("account-switch", "device", "d")}))
    stream.feed(*turns("d", 9))
    stream.verdicts = allowed
    stream.feed(login("other", "u", 10))
    for minute in (3 * 1440, 3 * 1440 + 1, 3 * 1440 + 2):
        assert stream.feed(login("other", "u", minute)) == {}
    assert all(answer.closes_us in (0, NEVER_US) for answer in stream.answers), "nothing is due any more"
    stream.verdicts = Verdicts()
    assert states(stream.feed(login("other", "u", 3 * 1440 + 3))) == {"d": "closed"}


def test_an_incident_is_told_again_when_one_of_two_verdicts_is_taken_back(stream: Detecting) -> None:
    """Whoever takes one back writes the incident, too, and may have missed the other."""
    name = incident_id("account-switch", "device", "d")
    allowed = frozenset({("account-switch", "device", "d")})
    stream.feed(*turns("d", 9))
    for minute, verdicts, expected in (
        (10, Verdicts({name: 2**62}, allowed), "dismissed"),
        (11, Verdicts({name: 2**62}), "dismissed"),
        (12, Verdicts({name: 1}), "open"),
        (13, Verdicts(), "open"),
    ):
        stream.verdicts = verdicts
        assert states(stream.feed(login("other", "u", minute))) == {"d": expected}
        assert stream.feed(login("other", "u", minute + 0.5)) == {}


def test_the_allow_list_of_the_rules_is_taken_at_the_next_batch(stream: Detecting) -> None:
    stream.feed(*turns("d", 9))
    stream.detector = SwitchDetector(msgspec.structs.replace(RULES, allow={"device": ("d",)}))
    assert states(stream.feed(login("other", "u", 10))) == {"d": "dismissed"}
    stream.detector = SwitchDetector()
    assert states(stream.feed(login("other", "u", 11))) == {"d": "open"}


def test_the_allow_list_of_the_rules_silences(tmp_path: Path) -> None:
    rules = msgspec.structs.replace(RULES, allow={"device": ("shop",)})
    stream = Detecting(tmp_path, SwitchDetector(rules))
    assert set(stream.feed(*turns("d", 9), *turns("shop", 9))) == {"d"}


STEPS = [name for name in RULES.__struct_fields__ if isinstance(getattr(RULES, name), tuple)]


@pytest.mark.parametrize("off", [*([name] for name in STEPS), ["failed_hour", "failed_day"], STEPS], ids=str)
def test_a_rule_without_steps_is_switched_off(tmp_path: Path, off: list[str]) -> None:
    stream = Detecting(tmp_path, SwitchDetector(msgspec.structs.replace(RULES, **dict.fromkeys(off, ()))))
    failures = [login("f", "u", at, success=False) for at in range(90)]
    rotated = [login(f"r{at}", f"v{at % 9}", at, ip="10.0.0.9") for at in range(40)]
    told = stream.feed(*turns("d", 9), *failures, *rotated)
    expected = {"d": {"burst"}, "f": {"failed_hour", "failed_day"}, "10.0.0.9": {"rotation_accounts"}}
    assert set(told) == {subject for subject, rules in expected.items() if not rules <= set(off)}


@pytest.mark.parametrize(
    ("rule", "found"),
    [
        ({"day_accounts": ((2, 65),)}, ["two"]),
        ({"month_accounts": ((2, 65),)}, ["two"]),
        ({"day_accounts": ((1, 65),)}, ["one", "two"]),
        ({"failed_hour": ((1, 65),)}, ["failed"]),
        ({"failed_day": ((1, 65),)}, ["failed"]),
        ({"rotation_devices": 2, "rotation_accounts": ((2, 65),), "burst_accounts": 9}, ["10.0.0.1"]),
    ],
    ids=str,
)
def test_low_steps_count(tmp_path: Path, rule: dict[str, Any], found: list[str]) -> None:
    stream = Detecting(tmp_path, SwitchDetector(msgspec.structs.replace(RULES, **rule)))
    two = [login("two", "u1", 1), login("two", "u2", 2)]
    if "rotation_devices" in rule:
        two += [login("three", "u3", 3), login("three", "u4", 4)]
    told = stream.feed(*two, login("one", "u5", 5, ip="10.0.0.2"), login("failed", "u6", 6, success=False))
    assert sorted(told) == found


def names_of_one_crc(bits: int) -> list[str]:
    """All texts of so many zeros and ones that have the CRC-32 of the zeros: a CRC is linear."""
    zeros = bytearray(b"0" * bits)
    pivots: dict[int, tuple[int, int]] = {}
    kernel: list[int] = []
    for at in range(bits):
        flipped = zeros.copy()
        flipped[at] ^= 1
        value, mask = crc32(flipped) ^ crc32(zeros), 1 << at
        while value and value.bit_length() in pivots:
            by, by_mask = pivots[value.bit_length()]
            value, mask = value ^ by, mask ^ by_mask
        if value:
            pivots[value.bit_length()] = value, mask
        else:
            kernel.append(mask)
    masks = [0]
    for each in kernel:
        masks += [mask ^ each for mask in masks]
    return [f"{mask:0{bits}b}"[::-1] for mask in masks]


def test_device_ids_of_one_checksum_are_as_many_devices(tmp_path: Path) -> None:
    names = names_of_one_crc(40)
    assert (len(names), len({crc32(name.encode()) for name in names})) == (256, 1)
    stream = Detecting(tmp_path, SwitchDetector())
    for turn in range(6):
        stream.feed(*(login(names[turn * 30 + at], f"u{at}", turn * 30 + at) for at in range(30)))
    found = {told["subject"]: told["account_count"] for told in stream.incidents.values()}
    assert found == {"10.0.0.1": 30}


def test_people_with_a_home_do_not_count_and_a_crowded_home_is_none(tmp_path: Path) -> None:
    for name, homes, expected in (
        ("own", [f"phone {at}" for at in range(9)], set()),
        ("crowded", ["hostel"] * 9, {"d"}),
    ):
        stream = Detecting(tmp_path / name, SwitchDetector())
        before = [login(home, f"u{at}", at - 2880, ip=f"77.{at}.0.1") for at, home in enumerate(homes)]
        stream.feed(*before)
        assert set(stream.feed(*turns("d", 9))) == expected


def test_what_is_over_is_forgotten_and_its_files_go(stream: Detecting) -> None:
    for day in range(40):
        stream.feed(*[login(f"{day}-{at}", "u", 1440.0 * day) for at in range(10)])
    assert stream.total("rows") <= 33 * 30, "each with a login, and what it was seen with"
    buckets = [each for each in stream.directory.iterdir() if each.name.isdecimal()]
    assert all(len(list(each.iterdir())) <= 40 for each in buckets)


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


def test_what_is_no_event_becomes_a_letter_once(stream: Detecting) -> None:
    stream.feed(login("d", "u", 1), b"no event", None)
    told = [{each["key"]: each["value"] for each in row["headers"]} for row in stream.letters]
    assert sorted(each["offset"] for each in told) == [b"1", b"2"]
    assert {each["pipeline"] for each in told} == {b"account-switch"}
    assert stream.total("letters") == 2


def test_a_range_of_time_reports_what_has_evidence_in_it(tmp_path: Path) -> None:
    minute_us = 60_000_000
    start_us = round(START.timestamp()) * 1_000_000
    within = Window(start_us + 60 * minute_us, start_us + 120 * minute_us)
    stream = Detecting(tmp_path, SwitchDetector(), within=within)
    values = [value for at in (1.0, 70.0, 130.0) for value in turns(f"from {at}", 9, from_minute=at)]
    assert set(stream.feed(*values)) == {"from 70.0"}
    assert stream.total("events") == 9, "those of the range"


def test_an_alert_of_long_names_is_no_larger_than_a_broker_takes(stream: Detecting) -> None:
    def long(name: str) -> str:
        return name.ljust(MAX_STRING_CHARS, "\x01")

    logins = [
        login(long("d"), long(f"u{at}"), at, event_id=long(f"e{at}"), ip=long(f"i{at}")) for at in range(60)
    ]
    (told,) = stream.feed(*logins).values()
    assert told["subject"] == long("d")
    assert len(json.dumps(told, ensure_ascii=False)) < CARRIED_BYTES
    assert told["account_count"] == 60
    assert len(set(told["accounts"])) == SHOWN
