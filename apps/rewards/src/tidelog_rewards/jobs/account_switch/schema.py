"""The numbers of the rules, and what an alert says.

An alert is a JSON object; its record's key is ``alert_id``, which is the same for the same subject for ever,
so that a later alert replaces the earlier one. Consumers keep the newest per key. Beside the fields that all
incidents have (``framework.incidents``: subject, state, score, peak, severity, opened, updated, reasons,
history, evidence, rules):

    device_id       string   the device; of an address the first of its devices
    devices         array    all of them, the first 50
    addresses       array    from which they logged in, the first 50
    switches        long     logins of another account than the one before, in the day up to `updated`
    account_count   long     different accounts in that day
    accounts        array    their user_ids, sorted, the first 50
    failed          long     failed logins in that day
    first_login     time     of that day
    last_login      time
    logins          array    the last 50: user_id, event_id, event_time, device_id, ip, partition, offset
"""

from __future__ import annotations

import msgspec

from tidelog_rewards.detection.detection_rules import (
    NEVER,
    Count,
    Points,
    Repeats,
    Ruled,
    Seconds,
    SectionRules,
    Steps,
    least_of,
    load_rules,
)

NAME = "account-switch"

SHOWN = 50
"""How many logins and accounts an alert names; its numbers count all of them."""


class Rules(SectionRules, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """When a device or an address is reported; ``rules.toml`` has the numbers."""

    burst_s: Seconds
    burst_accounts: Count
    """Switches count where so many accounts take part, at least."""
    burst: Steps
    """Switches within ``burst_s``."""
    day_switches: Steps
    day_accounts: Steps
    """Accounts on one device that are at home nowhere else."""
    month_accounts: Steps
    failed_hour: Steps
    failed_day: Steps
    regular_logins: Repeats
    """So many logins one after the other, at least, and at least three accounts, come like a clock."""
    regular_points: Points
    rotation_accounts: Steps
    """Accounts that go through short-lived devices behind one address."""
    rotation_life_s: Seconds
    """A device that is longer in use is not short-lived."""
    rotation_devices: Count
    """So many accounts share such a device, or an account goes through so many; and as many in all."""
    crowded: Count
    """A device with so many accounts is nobody's home."""

    @property
    def least_accounts(self) -> int:
        """With fewer accounts a device is looked at for its failures only."""
        return min(self.burst_accounts, least_of(self.day_accounts, self.month_accounts))

    @property
    def least_failed(self) -> int:
        """With fewer failures a device is looked at for its accounts only."""
        return least_of(self.failed_hour, self.failed_day)

    @property
    def least_shared(self) -> int:
        """With fewer accounts nobody looks whether a device is one of an address that changes its name."""
        return self.rotation_devices if self.rotation_accounts else NEVER


USUAL: Ruled[Rules] = load_rules(NAME, Rules)


class Login(msgspec.Struct, frozen=True):
    """A login that proves an alert."""

    user_id: str
    event_id: str
    event_time: str
    device_id: str
    ip: str
    partition: int
    offset: int
