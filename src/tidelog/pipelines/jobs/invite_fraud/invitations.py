"""Parsed events → invitations as the rules look at them; Arrow, without Spark.

Adds what the rules compare: the network of the newcomer's address and the block of their number. Called by
``detector`` in Spark's Python workers.
"""

from __future__ import annotations

import re

import pyarrow as pa
import pyarrow.compute as pc

_NO_DIGIT = re.compile("[^0-9]")
_NATIONAL = re.compile("1[0-9]{10}")
_CHINA = "86"
_BLOCK_DIGITS = 3
"""Numbers that differ in so many last digits only are a block."""
_LEAST_DIGITS = 8
"""Shorter numbers are in no block."""
_FROM_EVENT = {
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


def invitations(parsed: pa.StructArray, partitions: pa.Array, offsets: pa.Array) -> pa.Table:
    """The invitations among parsed events, which are null where a record was none.

    The columns are ``time_us``, ``partition``, ``offset`` and those that :data:`_FROM_EVENT` names, with the
    newcomer's ``network`` and ``block``.
    """
    is_event = pc.is_valid(parsed.field("event_id"))
    taken = {name: parsed.field(field).filter(is_event) for name, field in _FROM_EVENT.items()}
    addresses = parsed.field("invitee_ip").filter(is_event).to_pylist()
    phones = parsed.field("invitee_phone").filter(is_event).to_pylist()
    return pa.table(
        {
            "time_us": parsed.field("event_time").filter(is_event).cast(pa.int64()),
            "partition": partitions.filter(is_event),
            "offset": offsets.filter(is_event),
            **taken,
            "network": pa.array(map(network, addresses), pa.string()),
            "block": pa.array(map(number_block, phones), pa.string()),
        }
    )
