"""Invitations as the rules look at them: networks, number blocks, subjects, edges."""

from __future__ import annotations

import json
from datetime import UTC, datetime
from typing import Any

import msgspec
import pyarrow as pa
import pytest

from tidelog.pipelines.event_parser import EventParser
from tidelog.pipelines.events import INVITE
from tidelog.pipelines.invite_fraud.graph import Edge
from tidelog.pipelines.invite_fraud.invitations import columns, edge_values, network, number_block

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


def test_an_invitation_counts_for_its_inviter_the_device_and_the_block() -> None:
    full, short, nothing = columns(*arrays(event(), event(invitee_phone="110"), b"no event")).to_pylist()
    assert full == {
        "event_time": datetime(2026, 1, 5, 12, 0, 0, 123_456, UTC),
        "event_id": "e1",
        "inviter": "u1",
        "inviter_device": "d1",
        "invitee": "u2",
        "device": "d2",
        "network": "77.1.2",
        "block": "8613912345",
        "subjects": [
            {"kind": "inviter", "name": "u1"},
            {"kind": "device", "name": "d2"},
            {"kind": "number-block", "name": "8613912345"},
        ],
    }
    assert (short["block"], [each["kind"] for each in short["subjects"]]) == (None, ["inviter", "device"])
    assert nothing == {**dict.fromkeys(full), "subjects": []}


def test_no_records_are_no_invitations() -> None:
    assert columns(*arrays()).to_pylist() == []


def test_an_edge_is_the_invitation_between_two_people() -> None:
    parsed = EventParser((INVITE,), only=INVITE).columns(*arrays(event(), b"no event"))
    edge, nothing = edge_values(parsed, pa.array([3, 3], pa.int32()), pa.array([7, 8], pa.int64()))
    assert edge is not None
    assert nothing is None
    assert msgspec.json.decode(edge, type=Edge) == Edge(
        1_767_614_400_123, "e1", "u1", "u2", "d1", "d2", "77.1.2", 3, 7
    )
