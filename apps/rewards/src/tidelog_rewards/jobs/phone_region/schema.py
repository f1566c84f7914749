"""What phone-region writes: an enriched event for each event with a phone number, and a table of users.

A record of :data:`TOPIC` is the event as it came, typed, with ``kind``, ``subject_id`` (whose number it is:
the user's own, or the invitee's) and ``phone_region``, an object with the fields of ``numbers.PhoneRegion``;
fields without a value are left out. Its key is ``subject_id``. In ``phone``, ``invitee_phone`` and ``e164``
is the number's token, unless numbers were asked for (``framework.phone_tokens``).

``user_regions`` has for each user the number that was last shown to be theirs, by event time.
"""

from __future__ import annotations

from tidelog.spark.sinks.table import ColumnSpec, TableSpec
from tidelog_rewards import events

TOPIC = events.USER_REGIONS
KINDS = (events.LOGIN, events.MESSAGE_VERIFICATION, events.INVITE)

TABLE = TableSpec(
    "user_regions",
    (
        ColumnSpec("user_id", "string"),
        ColumnSpec("e164", "string"),
        ColumnSpec("region", "string"),
        ColumnSpec("country", "string"),
        ColumnSpec("place", "string"),
        ColumnSpec("carrier", "string"),
        ColumnSpec("number_type", "string"),
        ColumnSpec("event_time", "time"),
        ColumnSpec("event_id", "string"),
        ColumnSpec("country_zh", "string"),
        ColumnSpec("place_zh", "string"),
        ColumnSpec("carrier_zh", "string"),
    ),
    primary_key=("user_id",),
    newest_by="event_time",
    then_by="event_id",
)
