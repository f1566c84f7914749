"""Records of the topic of invitations → invitations as the rules look at them; Arrow, without Spark.

Adds what the rules compare, the network of the newcomer's address and the block of their number, and whose
windows an invitation counts in. Called by ``transform`` in Spark's Python workers.
"""

from __future__ import annotations

import re
from collections.abc import Iterator

import msgspec
import pyarrow as pa

from tidelog.pipelines.event_parser import parser_of
from tidelog.pipelines.events import INVITE
from tidelog.pipelines.invite_fraud.graph import Edge

_NO_DIGIT = re.compile("[^0-9]")
_NATIONAL = re.compile("1[0-9]{10}")
_CHINA = "86"
_BLOCK_DIGITS = 3
"""Numbers that differ in so many last digits only are a block."""
_LEAST_DIGITS = 8
"""Shorter numbers are in no block."""
_FROM_EVENT = {
    "event_time": "event_time",
    "event_id": "event_id",
    "inviter": "user_id",
    "inviter_device": "device_id",
    "invitee": "invitee_id",
    "device": "invitee_device_id",
}


def number_block(phone: str) -> str | None:
    """A number without its last digits."""
    digits = _NO_DIGIT.sub("", phone)
    # The app is Chinese: a number without a country is one of China's.
    if not phone.startswith("+") and _NATIONAL.fullmatch(digits):
        digits = _CHINA + digits
    return digits[:-_BLOCK_DIGITS] if len(digits) >= _LEAST_DIGITS else None


def network(ip: str) -> str:
    """The /24 of an IPv4 address, the /48 of an IPv6 one."""
    border = ":" if ":" in ip else "."
    return border.join(ip.split(border)[:3])


def columns(topics: pa.Array, values: pa.Array, timestamps: pa.Array) -> pa.StructArray:
    """The invitation that each record is, all null where it is none, with its ``subjects``."""
    parsed = parser_of((INVITE,), INVITE).columns(topics, values, timestamps)
    taken = {name: parsed.field(field) for name, field in _FROM_EVENT.items()}
    taken["network"] = pa.array(_networks(parsed), pa.string())
    phones = parsed.field("invitee_phone").to_pylist()
    blocks = pa.array((None if phone is None else number_block(phone) for phone in phones), pa.string())
    taken["block"] = blocks
    taken["subjects"] = _subjects(
        {"inviter": taken["inviter"], "device": taken["device"], "number-block": blocks}
    )
    return pa.StructArray.from_arrays(list(taken.values()), names=list(taken))


def edge_values(parsed: pa.StructArray, partitions: pa.Array, offsets: pa.Array) -> list[bytes | None]:
    """Parsed events as edges of the graph in JSON, None where there is no event."""
    fields = ("event_id", "user_id", "invitee_id", "device_id", "invitee_device_id")
    times_us = parsed.field("event_time").cast(pa.int64()).to_pylist()
    rows = zip(
        times_us,
        *(parsed.field(name).to_pylist() for name in fields),
        _networks(parsed),
        partitions.to_pylist(),
        offsets.to_pylist(),
        strict=True,
    )
    return [
        None if time_us is None else msgspec.json.encode(Edge(time_us // 1000, *others))
        for time_us, *others in rows
    ]


def _networks(parsed: pa.StructArray) -> Iterator[str | None]:
    return (None if ip is None else network(ip) for ip in parsed.field("invitee_ip").to_pylist())


def _subjects(names: dict[str, pa.Array]) -> pa.ListArray:
    """For each row the subjects that it has a name for."""
    kinds, flat, ends = [], [], [0]
    for row in zip(*(column.to_pylist() for column in names.values()), strict=True):
        for kind, name in zip(names, row, strict=True):
            if name is not None:
                kinds.append(kind)
                flat.append(name)
        ends.append(len(flat))
    structs = pa.StructArray.from_arrays(
        [pa.array(kinds, pa.string()), pa.array(flat, pa.string())], names=["kind", "name"]
    )
    return pa.ListArray.from_arrays(pa.array(ends, pa.int32()), structs)
