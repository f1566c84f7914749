"""Parsed events → invitations as the rules look at them; Arrow, without Spark.

Adds what the rules compare: the network of the newcomer's address and the block of their number. Called by
``detector`` in Spark's Python workers.
"""

from __future__ import annotations

import re

import pyarrow as pa
import pyarrow.compute as pc

from tidelog_rewards.detection.networks import network

_NO_DIGIT = re.compile("[^0-9]")
_NATIONAL = re.compile("1[0-9]{10}")
_CHINA = "86"
BLOCK_DIGITS = 3
"""Numbers that differ in so many last digits only are a block."""
_LEAST_DIGITS, _MOST_DIGITS = 8, 18
"""Shorter and longer numbers are in no block."""
_FROM_EVENT = {
    "event_id": "event_id",
    "inviter": "user_id",
    "inviter_device": "device_id",
    "invitee": "invitee_id",
    "device": "invitee_device_id",
}


def number_block(phone: str) -> str | None:
    """A number without its last digits."""
    digits = number_digits(phone)
    return None if digits is None else digits[:-BLOCK_DIGITS]


def number_digits(phone: str) -> str | None:
    """The digits of a number with its country, None where there are too few or too many."""
    digits = _NO_DIGIT.sub("", phone)
    # The app is Chinese: a number without a country is one of China's.
    if not phone.startswith("+") and _NATIONAL.fullmatch(digits):
        digits = _CHINA + digits
    return digits if _LEAST_DIGITS <= len(digits) <= _MOST_DIGITS else None


def invitations(parsed: pa.StructArray, partitions: pa.Array, offsets: pa.Array) -> pa.Table:
    """The invitations among parsed events, which are null where a record was none.

    The columns are ``time_us``, ``partition``, ``offset`` and those that :data:`_FROM_EVENT` names, with the
    newcomer's ``network``, ``block`` and ``number``.
    """
    is_event = pc.is_valid(parsed.field("event_id"))
    taken = {name: parsed.field(field).filter(is_event) for name, field in _FROM_EVENT.items()}
    addresses = parsed.field("invitee_ip").filter(is_event).to_pylist()
    numbers = [number_digits(phone) for phone in parsed.field("invitee_phone").filter(is_event).to_pylist()]
    return pa.table(
        {
            "time_us": parsed.field("event_time").filter(is_event).cast(pa.int64()),
            "partition": partitions.filter(is_event),
            "offset": offsets.filter(is_event),
            **taken,
            "network": pa.array(map(network, addresses), pa.string()),
            "block": pa.array((each and each[:-BLOCK_DIGITS] for each in numbers), pa.string()),
            "number": pa.array((each and int(each) for each in numbers), pa.int64()),
        }
    )
