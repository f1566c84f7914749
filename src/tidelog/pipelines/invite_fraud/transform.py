"""Invitations to scored alerts: windows per inviter, device and number block; pure DataFrame to DataFrame.

Each invitation counts for its inviter, for the device on which the newcomer came in, and for the block of
the newcomer's number, so that a farm whose inviters are inconspicuous one by one is seen as well. What a
window's invitations are is said by ``scoring``.

The state of the streaming query is the list of invitations per subject and window, until the watermark
passes the window.
"""

from __future__ import annotations

from collections.abc import Iterable

import pyarrow as pa
from pyspark.sql import DataFrame
from pyspark.sql import functions as F
from pyspark.sql import types as T
from pyspark.sql.pandas.functions import arrow_udf

from tidelog.pipelines.alert_evidence import Window
from tidelog.pipelines.alert_windows import alert_records, interval
from tidelog.pipelines.events import INVITE_FRAUD_ALERTS
from tidelog.pipelines.invite_fraud.invitations import columns
from tidelog.pipelines.invite_fraud.schema import RULES, Alert, Rules
from tidelog.pipelines.invite_fraud.scoring import Invitation, Subject, score

_KEPT = ("event_time", "event_id", "partition", "offset", "inviter", "invitee", "device", "network", "block")
"""What the state holds of an invitation: the fields of ``scoring.Invitation``."""
_TEXT = ("event_id", "inviter", "inviter_device", "invitee", "device", "network", "block")
# That a subject has a kind is part of the state's schema, which old checkpoints are compared with.
_SUBJECT = T.StructType(
    [T.StructField("kind", T.StringType(), nullable=False), T.StructField("name", T.StringType())]
)
_INVITATION = T.StructType(
    [
        T.StructField("event_time", T.TimestampType()),
        *(T.StructField(name, T.StringType()) for name in _TEXT),
        T.StructField("subjects", T.ArrayType(_SUBJECT, containsNull=False)),
    ]
)


def invitations(raw: DataFrame) -> DataFrame:
    """The invitations among records, as the rules look at them, with ``partition`` and ``offset``."""

    def parsed(topics: pa.Array, values: pa.Array, timestamps: pa.Array) -> pa.Array:
        return columns(topics, values, timestamps)

    parse = arrow_udf(parsed, _INVITATION).asNondeterministic()  # type: ignore[call-overload]
    rows = raw.select("partition", "offset", parse("topic", "value", "timestamp").alias("_invitation"))
    return rows.where(F.col("_invitation.event_id").isNotNull()).select(
        "partition", "offset", "_invitation.*"
    )


def windows(invitations: DataFrame, rules: Rules = RULES) -> DataFrame:
    """Enough invitations of one subject to score: ``_subject``, ``window``, ``delivered``."""
    return (
        invitations.withWatermark("event_time", interval(rules.watermark))
        .select(*_KEPT, F.explode("subjects").alias("_subject"))
        .groupBy("_subject", F.window("event_time", interval(rules.window), interval(rules.slide)))
        .agg(F.collect_list(F.struct(*_KEPT)).alias("delivered"))
        .where(F.size("delivered") >= rules.least)
    )


def alerts(windows: DataFrame, rules: Rules = RULES) -> DataFrame:
    """Alerts on inviters, devices and number blocks that score too high, as records."""

    def alert(subject: dict[str, str], window: Window, delivered: Iterable[Invitation]) -> Alert | None:
        return score(Subject(**subject), window, delivered, rules)

    return alert_records(windows, "_subject", Invitation, alert, INVITE_FRAUD_ALERTS)
