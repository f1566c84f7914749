"""The events of the app: one topic for each kind, and the fields that its JSON objects must and may have.

This is the one place that names topics and fields. The generator writes by it, the pipelines parse by it
(``pipelines.parsing`` makes Spark schemas of it) and the documentation is held against it. It imports
neither Spark nor the client, so that every program may read it.

Every event is a JSON object with the fields of :data:`ENVELOPE` and those of its kind. Money is whole cents.
``event_id`` is unique: two events with the same one are one event that was sent twice. ``event_time`` is UTC
in ISO 8601 with milliseconds. The record's key is ``user_id`` in UTF-8.
"""

from __future__ import annotations

from dataclasses import dataclass
from datetime import timedelta
from typing import Literal

from tidelog.spark.dead_letters import letter

MAX_AHEAD = timedelta(days=1)
"""An event's time may be so far ahead of its record's, for clocks that are wrong; beyond, it is malformed."""

FieldType = Literal["string", "long", "boolean", "time"]


@dataclass(frozen=True, slots=True)
class Field:
    """One field of an event; ``choices`` and ``minimum`` bound its values where they are known."""

    name: str
    type: FieldType
    required: bool = True
    choices: tuple[str, ...] = ()
    minimum: int | None = None


@dataclass(frozen=True, slots=True)
class EventKind:
    """A kind of event: its name, its topic, and its own fields beside the envelope's."""

    name: str
    topic: str
    own_fields: tuple[Field, ...]

    @property
    def fields(self) -> tuple[Field, ...]:
        """The envelope's fields and its own."""
        return (*ENVELOPE, *self.own_fields)


ENVELOPE = (
    Field("event_id", "string"),
    Field("event_time", "time"),
    Field("user_id", "string"),
    Field("device_id", "string"),
    Field("ip", "string"),
    Field("app_version", "string", required=False),
)

_AD = (Field("ad_id", "string"), Field("campaign_id", "string"))

CREDIT = EventKind(
    "credit",
    "ml_obtain_credit_log",
    (
        Field(
            "source", "string", choices=("right_slide", "left_slide", "install", "invite", "task", "signup")
        ),
        Field("amount_cents", "long", minimum=0),
        Field("task_id", "string", required=False),
    ),
)
LEFT_SLIDE = EventKind("left_slide", "ml_ad_left_slide_log", (*_AD, Field("dwell_ms", "long", minimum=0)))
RIGHT_SLIDE = EventKind("right_slide", "ml_ad_right_slide_log", (*_AD, Field("dwell_ms", "long", minimum=0)))
EXPOSURE = EventKind("exposure", "ml_ad_exposure_log", (*_AD, Field("duration_ms", "long", minimum=0)))
INSTALL = EventKind(
    "install",
    "ml_app_install_log",
    (Field("package", "string"), Field("campaign_id", "string"), Field("channel", "string", required=False)),
)
LOGIN = EventKind(
    "login",
    "ml_user_login_log",
    (
        Field("phone", "string"),
        Field("method", "string", choices=("password", "sms", "token")),
        Field("success", "boolean"),
    ),
)
MESSAGE_VERIFICATION = EventKind(
    "message_verification",
    "ml_message_verification_log",
    (
        Field("phone", "string"),
        Field("purpose", "string", choices=("signup", "login", "withdraw", "bind")),
        Field("result", "string", choices=("sent", "verified", "failed", "expired")),
    ),
)
INVITE = EventKind(
    "invite",
    "ml_invite_log",
    (
        Field("invitee_id", "string"),
        Field("invitee_phone", "string"),
        Field("invitee_device_id", "string"),
        Field("invitee_ip", "string"),
        Field("channel", "string", choices=("sms", "link", "qr", "chat")),
    ),
)
TASK = EventKind(
    "task",
    "ml_task_log",
    (
        Field("task_id", "string"),
        Field("step", "long", minimum=1),
        Field("steps", "long", minimum=1),
    ),
)

LOGS = (CREDIT, LEFT_SLIDE, RIGHT_SLIDE, EXPOSURE, INSTALL, LOGIN, MESSAGE_VERIFICATION)
"""The seven event logs that ``collect`` gathers."""

KINDS = (*LOGS, INVITE, TASK)
"""Every kind of event that the app sends."""

BY_NAME = {kind.name: kind for kind in KINDS}
BY_TOPIC = {kind.topic: kind for kind in KINDS}

ACCOUNT_SWITCH_ALERTS = "ml_account_switch_alerts"
INVITE_FRAUD_ALERTS = "ml_invite_fraud_alerts"
INCIDENTS = "ml_incidents"
ALERT_VERDICTS = "ml_alert_verdicts"
USER_REGIONS = "ml_user_region"
USER_EARNINGS = "ml_user_earnings"
DEAD_LETTERS = letter.DEAD_LETTERS

COMPACTED = (USER_EARNINGS, INCIDENTS, ALERT_VERDICTS)
KEPT = (ACCOUNT_SWITCH_ALERTS, INVITE_FRAUD_ALERTS, DEAD_LETTERS)
"""Topics that lose nothing with time: a backfill finds its alerts in them, a person what is to be mended."""
OUTPUTS = (
    ACCOUNT_SWITCH_ALERTS,
    INVITE_FRAUD_ALERTS,
    INCIDENTS,
    ALERT_VERDICTS,
    USER_REGIONS,
    USER_EARNINGS,
    DEAD_LETTERS,
)
