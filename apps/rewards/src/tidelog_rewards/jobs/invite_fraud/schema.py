"""The numbers of the rules, and what an alert says.

An alert is a JSON object; its record's key is ``alert_id``, which is the same for the same subject for ever,
so that a later one replaces the earlier. Consumers keep the newest per key. Beside the fields that all
incidents have (``framework.incidents``: subject, state, score, peak, severity, opened, updated, reasons,
history, evidence, rules):

    subject_kind    string   inviter, device, number-block, ring, chain or tree
    subject         string   the user_id, device_id or block; the first member of a ring; the devices of a
                             chain or the network of a tree, and the first inviter
    inviters        array    user_ids, the first 50
    invitees        array    user_ids, the first 50
    devices         array    of the invitees, the first 50
    networks        array    of the invitees, the first 50
    invitations     long     different people invited, in what the alert is about
    invites         array    the last 50: event_id, event_time, inviter, invitee, partition, offset
"""

from __future__ import annotations

from typing import Annotated

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

NAME = "invite-fraud"

SHOWN = 50
"""How many people and invitations an alert names; its numbers count all of them."""


class Rules(SectionRules, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """When invitations are reported; ``rules.toml`` has the numbers."""

    device_hour: Steps
    """People who came in on one device."""
    device_day: Steps
    device_month: Steps
    number_block: Steps
    """People of a day whose numbers lie within a thousand."""
    wide_block: Steps
    """People whom one inviter brought in a day whose numbers lie within ten thousand."""
    address_s: Seconds
    address: Steps
    """People whom one inviter brought from one /24 (IPv6: /48) within ``address_s``."""
    burst_s: Seconds
    burst: Steps
    """People whom one inviter brought within ``burst_s``."""
    volume_day: Steps
    """People whom one inviter brought in a day."""
    self: Steps
    """Invitations of oneself in a day."""
    regular_invitations: Repeats
    """So many invitations one after the other, at least, come like a clock."""
    regular_points: Points
    chain: Steps
    """Invitations in a row on one device, each by the one who was invited before."""
    chain_of_two: Steps
    """The same on two devices."""
    cycle_points: Points
    """Three or more who invited one another in a circle."""
    mutual_points: Points
    """Two who invited each other."""
    same_device_points: Points
    same_address_points: Points
    quick_points: Points
    """All of a ring within an hour."""
    tree: Steps
    """People who were brought in one network by people who were brought there themselves, and so on."""
    tree_inviters: Count
    """So many of them invite, at least."""
    max_cycle: Annotated[int, msgspec.Meta(ge=2, le=12)]
    """The longest circle that is looked for."""
    max_visits: Count
    """So many invitations are followed at most in one search."""
    max_edges: Count
    """When the searches of a batch have loaded more invitations than this, they load no further ones."""

    @property
    def least_of_inviter(self) -> int:
        """With fewer invitations nobody is looked at."""
        by_steps = least_of(
            *(self.device_hour, self.device_day, self.device_month, self.number_block, self.wide_block),
            *(self.address, self.burst, self.volume_day, self.self),
        )
        return min(by_steps, self.regular_invitations)

    @property
    def least_of_device(self) -> int:
        """With fewer newcomers no device is looked at."""
        return least_of(self.device_hour, self.device_day, self.device_month)

    @property
    def least_of_block(self) -> int:
        """With fewer newcomers no block of numbers is looked at."""
        return least_of(self.number_block)

    @property
    def told_of_device(self) -> int:
        """With fewer newcomers of a month no device is reported."""
        return self._told(self.device_hour, self.device_day, self.device_month)

    @property
    def told_of_block(self) -> int:
        """With fewer newcomers of a day no block of numbers is reported."""
        return self._told(self.number_block)

    def _told(self, *rules: Steps) -> int:
        """The least count that is a report, of rules none of which comes together with another one."""
        reports = (count for steps in rules for count, points in steps if points >= self.alert_score)
        return min(reports, default=NEVER)


USUAL: Ruled[Rules] = load_rules(NAME, Rules)
