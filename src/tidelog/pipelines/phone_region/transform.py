"""Events with phone numbers → enriched events → records of the topic, and rows of ``user_regions``.

Pure DataFrame → DataFrame. A number is looked up in an Arrow UDF, whose worker processes keep a cache of
numbers from batch to batch; everything else runs inside Spark's JVM.
"""

from __future__ import annotations

import pyarrow
from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F
from pyspark.sql.pandas.functions import arrow_udf

from tidelog.pipelines import events
from tidelog.pipelines.parsing import parse_all
from tidelog.pipelines.phone_region.schema import KINDS, PHONE_REGION_DDL, TABLE, TOPIC

_TIME_FORMAT = "yyyy-MM-dd'T'HH:mm:ss.SSS'Z'"


def enrich(raw: DataFrame) -> DataFrame:
    """The parsed rows with ``subject_id`` and ``phone_region``; rows with a ``reason`` have neither."""
    rows = parse_all(raw, KINDS).rows
    is_event = F.col("reason").isNull()
    is_invite = F.col("kind") == events.INVITE.name
    phone = F.when(is_event, F.when(is_invite, F.col("invitee_phone")).otherwise(F.col("phone")))
    subject = F.when(is_event, F.when(is_invite, F.col("invitee_id")).otherwise(F.col("user_id")))
    return rows.withColumns({"phone_region": _look_up(phone), "subject_id": subject})


@arrow_udf(PHONE_REGION_DDL)  # type: ignore[call-overload, untyped-decorator]
def _look_up(phones: pyarrow.Array) -> pyarrow.Array:
    # The numbering plans are for the workers; a driver need not load them.
    from tidelog.pipelines.phone_region.numbers import describe_all

    return describe_all(phones)


def records(enriched: DataFrame) -> DataFrame:
    """The topic's records: ``topic``, ``key``, ``value``, ``headers``."""
    names = dict.fromkeys(field.name for kind in KINDS for field in kind.fields if field.name != "event_time")
    value = F.to_json(
        F.struct("kind", _time_text().alias("event_time"), *names, "subject_id", "phone_region")
    )
    return enriched.where(F.col("reason").isNull()).select(
        F.lit(TOPIC).alias("topic"),
        F.col("subject_id").cast("binary").alias("key"),
        value.cast("binary").alias("value"),
        F.lit(None).cast("array<struct<key:string,value:binary>>").alias("headers"),
    )


def user_regions(enriched: DataFrame) -> DataFrame:
    """For each user of the batch the latest number that is valid and was shown to be theirs.

    A successful login and a code that came back show it. Of two events at the same moment the one with the
    greater ``event_id`` counts, so that every order of the same events gives the same row.
    """
    shown = F.col("success") | (F.col("result") == "verified")
    proved = enriched.where(F.col("reason").isNull() & shown & F.col("phone_region.valid"))
    ours = ("user_id", "event_time", "event_id")
    theirs = (f"phone_region.{name}" for name in TABLE.names if name not in ours)
    row = F.struct("event_time", "event_id", *theirs)
    latest = proved.groupBy("user_id").agg(F.max_by(row, F.struct("event_time", "event_id")).alias("row"))
    return latest.select("user_id", "row.*").select(*TABLE.names)


def _time_text() -> Column:
    return F.date_format("event_time", _TIME_FORMAT)
