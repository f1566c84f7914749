"""The rule's numbers, and what an alert says.

An alert is a JSON object; its record's key is ``alert_id``, which is the same for the same device and window,
so that a later alert (more logins have come) replaces the earlier one. Consumers keep the newest per key.

    alert_id        string   hash of the device and the window's start
    pipeline        string   account-switch
    device_id       string
    window_start    time     the window is [window_start, window_end)
    window_end      time
    switches        long     successful logins of another account than the one before, within the window
    account_count   long     different accounts
    accounts        array    their user_ids, sorted, the first 50
    severity        string   medium, high or critical
    first_login     time
    last_login      time
    logins          array    the proof: user_id, event_id, event_time, ip, partition, offset; the first 50
"""

from __future__ import annotations

from dataclasses import dataclass
from datetime import timedelta

import msgspec

NAME = "account-switch"

SHOWN = 50
"""How many logins and accounts an alert names; its numbers count all of them."""


@dataclass(frozen=True, slots=True)
class Rules:
    """When a device is reported.

    Windows overlap by half, so whatever happens within half a window is whole in one of them. A family that
    hands a telephone around every three minutes makes three switches in ten.
    """

    window: timedelta = timedelta(minutes=10)
    slide: timedelta = timedelta(minutes=5)
    watermark: timedelta = timedelta(minutes=15)
    """Logins that come later than this after the newest one are not counted."""
    switches: int = 5
    """So many are reported."""
    high: int = 10
    critical: int = 20


RULES = Rules()


class Login(msgspec.Struct, frozen=True):
    """A login that proves an alert."""

    user_id: str
    event_id: str
    event_time: str
    ip: str
    partition: int
    offset: int


class Alert(msgspec.Struct, frozen=True):
    """What an alert says, in the order of its JSON."""

    alert_id: str
    pipeline: str
    device_id: str
    window_start: str
    window_end: str
    switches: int
    account_count: int
    accounts: list[str]
    severity: str
    first_login: str
    last_login: str
    logins: list[Login]
