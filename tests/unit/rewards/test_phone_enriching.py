"""Records to enriched events and the newest numbers of users, as the tasks of phone-region make them."""

from __future__ import annotations

import json
from datetime import UTC, datetime, timedelta
from typing import Any

import pyarrow as pa
from hypothesis import given
from hypothesis import strategies as st

from tidelog_rewards import events
from tidelog_rewards.jobs.phone_region.enriching import Reading, UserRegions, enrich, parse, show
from tidelog_rewards.jobs.phone_region.numbers import PhoneRegion, describe
from tidelog_rewards.jobs.phone_region.schema import TABLE, TOPIC
from tidelog_rewards.phones.phone_keys import PhoneKey, PhoneKeys
from tidelog_rewards.phones.phone_tokens import CLEAR, PhoneTokens
from tidelog_rewards.task_quality import TaskQuality

JIANGSU, BRAZIL, SHORT = "+8613812345678", "+5511987654321", "+86138123456"
DAY = datetime(2026, 3, 2, tzinfo=UTC)
CLEARLY = Reading(CLEAR, "CN", "en")
SCHEMA = pa.schema(
    [
        ("topic", pa.string()),
        ("partition", pa.int32()),
        ("offset", pa.int64()),
        ("timestamp", pa.timestamp("us", "UTC")),
        ("key", pa.binary()),
        ("value", pa.binary()),
    ]
)


def record(topic: str, value: bytes) -> dict[str, Any]:
    place = {"topic": topic, "partition": 1, "offset": 7, "timestamp": DAY + timedelta(hours=23)}
    return {**place, "key": b"k", "value": value}


def event(kind: events.EventKind, number: int, user: str, hour: int, **fields: Any) -> dict[str, Any]:
    told = {
        "event_id": f"e{number}",
        "event_time": (DAY + timedelta(hours=hour)).isoformat(),
        "user_id": user,
        "device_id": "d",
        "ip": "10.0.0.1",
        **fields,
    }
    return record(kind.topic, json.dumps(told).encode())


def login(number: int, user: str, hour: int, phone: str, *, success: bool = True) -> dict[str, Any]:
    return event(events.LOGIN, number, user, hour, phone=phone, method="sms", success=success)


def code(number: int, user: str, hour: int, phone: str, result: str) -> dict[str, Any]:
    return event(events.MESSAGE_VERIFICATION, number, user, hour, phone=phone, purpose="bind", result=result)


def batch(*records: dict[str, Any]) -> pa.RecordBatch:
    return pa.RecordBatch.from_pylist(list(records), schema=SCHEMA)


def rows(users: UserRegions) -> list[dict[str, Any]]:
    return sorted((dict(zip(TABLE.names, row, strict=True)) for row in users.rows), key=repr)


def test_events_carry_what_their_number_says_and_others_are_letters() -> None:
    guest = {"invitee_id": "guest", "invitee_device_id": "g", "invitee_ip": "10.0.0.2", "channel": "link"}
    invite = event(events.INVITE, 2, "ann", 6, invitee_phone=SHORT, **guest)
    records = batch(login(1, "ann", 5, JIANGSU), invite, record(events.LOGIN.topic, b"{"))
    made, letters = enrich([records], UserRegions(CLEARLY), "phone-region", TaskQuality())
    assert made.column("topic").to_pylist() == [TOPIC] * 2
    assert made.column("key").to_pylist() == [b"ann", b"guest"]
    first, second = map(json.loads, made.column("value").to_pylist())
    assert first == {
        "kind": "login",
        "event_time": "2026-03-02T05:00:00.000Z",
        "event_id": "e1",
        "user_id": "ann",
        "device_id": "d",
        "ip": "10.0.0.1",
        "phone": JIANGSU,
        "method": "sms",
        "success": True,
        "subject_id": "ann",
        "phone_region": {
            key: value for key, value in describe(JIANGSU)._asdict().items() if value is not None
        },
    }
    assert (second["subject_id"], second["phone_region"]["valid"]) == ("guest", False)
    assert second["phone_region"]["reason"] == "too short for a mobile number of China: 9 digits"
    [letter] = letters.to_pylist()
    assert (letter["topic"], letter["value"]) == (events.DEAD_LETTERS, b"{")
    assert letter["headers"][-3:] == [
        {"key": "reason", "value": b"not a JSON object"},
        {"key": "record", "value": b"whole"},
        {"key": "key", "value": b"k"},
    ]


def test_numbers_are_tokens_everywhere_unless_they_were_asked_for() -> None:
    guest = {"invitee_id": "guest", "invitee_device_id": "g", "invitee_ip": "10.0.0.2", "channel": "link"}
    noon = DAY + timedelta(hours=12)
    keys = PhoneKeys([PhoneKey("k1", DAY, b"1" * 32), PhoneKey("k2", noon, b"2" * 32)])
    tokens = PhoneTokens(keys, "CN")
    users = UserRegions(Reading(tokens, "CN", "zh"))
    records = batch(
        login(1, "ann", 5, "138 1234 5678"),
        login(2, "bob", 13, JIANGSU),
        event(events.INVITE, 3, "ann", 6, invitee_phone=SHORT, **guest),
        login(4, "eve", 7, "no number"),
    )
    [made] = enrich([records], users, "phone-region", TaskQuality())
    values = made.column("value").to_pylist()
    assert not any(b"1381234" in value or b"138 1234" in value or b"no number" in value for value in values)
    ann, bob, guest_, eve = map(json.loads, values)
    assert ann["phone"] == ann["phone_region"]["e164"] == tokens.all_of(JIANGSU)[0]
    assert bob["phone"] == bob["phone_region"]["e164"] == tokens.all_of(JIANGSU)[1]
    assert guest_["invitee_phone"] == guest_["phone_region"]["e164"] == tokens.all_of(SHORT)[0]
    assert eve["phone"].startswith("tel_k1_")
    assert "e164" not in eve["phone_region"]
    assert (ann["phone_region"]["place"], ann["phone_region"]["country"]) == ("江苏省连云港市", "中国")
    assert [(row["user_id"], row["e164"], row["carrier_zh"]) for row in rows(users)] == [
        ("ann", ann["phone"], "中国移动"),
        ("bob", bob["phone"], "中国移动"),
    ]


def test_a_number_counts_when_it_was_shown_to_be_theirs_and_may_be_a_mobile_phone() -> None:
    users = UserRegions(CLEARLY)
    records = [
        login(1, "ann", 5, JIANGSU),
        login(2, "ann", 7, BRAZIL, success=False),
        login(3, "ann", 8, SHORT),
        code(4, "bob", 3, BRAZIL, "verified"),
        code(5, "bob", 4, JIANGSU, "sent"),
    ]
    assert show(parse(batch(*records)), users) == 5
    assert [(row["user_id"], row["e164"], row["event_id"]) for row in rows(users)] == [
        ("ann", JIANGSU, "e1"),
        ("bob", BRAZIL, "e4"),
    ]
    assert rows(users)[0]["event_time"] == (DAY + timedelta(hours=5)).timestamp() * 1000
    assert set(TABLE.names) - {"user_id", "event_time", "event_id"} <= set(PhoneRegion._fields)


def test_a_range_of_time_leaves_others_out() -> None:
    users = UserRegions(CLEARLY)
    first, end = (round((DAY + timedelta(hours=hour)).timestamp() * 1e6) for hour in (5, 6))
    found = parse(batch(*(login(hour, "ann", hour, JIANGSU) for hour in (4, 5, 6))))
    assert show(found, users, first, end) == 1
    assert [row["event_id"] for row in rows(users)] == ["e5"]


@given(
    st.lists(st.tuples(st.sampled_from("ab"), st.integers(0, 3000), st.sampled_from("xyz")), max_size=8),
    st.randoms(use_true_random=False),
)
def test_any_order_of_events_leaves_the_same_rows(told: list[tuple[str, int, str]], draw: Any) -> None:
    number = CLEARLY.reader()(JIANGSU, 0)
    one, other = UserRegions(CLEARLY), UserRegions(CLEARLY)
    for users, order in ((one, told), (other, draw.sample(told, len(told)))):
        for user, time_us, event_id in order:
            users.add(user, time_us, event_id, number)
    assert rows(one) == rows(other)
