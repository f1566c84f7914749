"""Invitations as the rules look at them: networks and number blocks."""

from __future__ import annotations

import json
from datetime import UTC, datetime
from typing import Any

import pyarrow as pa
import pytest

from tidelog_rewards.detection.networks import network
from tidelog_rewards.event_parser import EventParser
from tidelog_rewards.events import INVITE
from tidelog_rewards.jobs.invite_fraud.invitations import invitations, number_block

WRITTEN = datetime(2026, 1, 5, 13, tzinfo=UTC)
EVENT = {
    "event_id": "e1",
    "event_time": "2026-01-05T12:00:00.123456Z",
    "user_id": "u1",
    "device_id": "d1",
    "ip": "10.0.0.1",
    "invitee_id": "u2",
    "invitee_phone": "+8613912345678",
    "invitee_device_id": "d2",
    "invitee_ip": "77.1.2.3",
    "channel": "link",
}


def arrays(*values: bytes | None) -> tuple[pa.Array, pa.Array, pa.Array]:
    return (
        pa.array([INVITE.topic] * len(values), pa.string()),
        pa.array(values, pa.binary()),
        pa.array([WRITTEN] * len(values), pa.timestamp("us", "UTC")),
    )


def event(**changes: Any) -> bytes:
    return json.dumps({**EVENT, **changes}).encode()


@pytest.mark.parametrize(
    ("phone", "block"),
    [
        ("+8613912345678", "8613912345"),
        ("139 1234-5678", "8613912345"),
        ("008613912345678", "008613912345"),
        ("+13912345678", "13912345"),
        ("23912345678", "23912345"),
        ("12345678", "12345"),
        ("1234567", None),
        ("", None),
        ("\u0661\u0662345678901", "345678"),
    ],
)
def test_the_block_is_the_number_without_its_last_three_digits(phone: str, block: str | None) -> None:
    assert number_block(phone) == block


@pytest.mark.parametrize(
    ("ip", "expected"),
    [
        ("77.1.2.3", "77.1.2"),
        ("2001:db8:7:9::1", "2001:db8:7"),
        ("::ffff:77.1.2.3", "::ffff"),
        ("nonsense", "nonsense"),
        ("", ""),
    ],
)
def test_the_network_is_the_first_three_parts_of_an_address(ip: str, expected: str) -> None:
    assert network(ip) == expected


def test_an_invitation_is_what_its_event_says_with_network_and_block() -> None:
    columns = arrays(event(), b"no event", event(invitee_phone="110"))
    parsed = EventParser((INVITE,), only=INVITE).columns(*columns)
    found = invitations(parsed, pa.array([3, 3, 4], pa.int32()), pa.array([7, 8, 9], pa.int64()))
    first, second = found.to_pylist()
    assert first == {
        "time_us": 1_767_614_400_123_456,
        "partition": 3,
        "offset": 7,
        "event_id": "e1",
        "inviter": "u1",
        "inviter_device": "d1",
        "invitee": "u2",
        "device": "d2",
        "network": "77.1.2",
        "block": "8613912345",
        "number": 8_613_912_345_678,
    }
    assert second["number"] is None
    assert (second["block"], second["partition"], second["offset"]) == (None, 4, 9)


def test_no_records_are_no_invitations() -> None:
    parsed = EventParser((INVITE,), only=INVITE).columns(*arrays())
    assert invitations(parsed, pa.array([], pa.int32()), pa.array([], pa.int64())).to_pylist() == []
