"""Logins to alerts: windows per device, switches counted in event-time order; pure DataFrame to DataFrame.

The state of the streaming query is the list of logins of each device and window, kept until the watermark
passes the window. Everything is an expression of Spark's JVM: per-group Python functions would need pandas,
and a process beside the JVM. In output mode ``update`` an alert comes with the micro-batch that has its
evidence, and again, with the same id, whenever more logins come.

A login that was delivered twice (same ``event_id``) counts once; the first delivery is the evidence.
"""

from __future__ import annotations

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F

from tidelog.pipelines.account_switch.schema import NAME, RULES, SHOWN, Rules
from tidelog.pipelines.alert_columns import alert_id, computed_once, interval, time_text, with_distinct_events


def alerts(logins: DataFrame, rules: Rules = RULES) -> DataFrame:
    """Devices that switch too often, one row per device and window with the columns of ``schema``.

    ``logins`` are events of kind login with their ``partition`` and ``offset``.
    """
    evidence = F.struct("event_time", "event_id", "partition", "offset", "user_id", "ip")
    windows = (
        logins.where("success")
        .withWatermark("event_time", interval(rules.watermark))
        .groupBy("device_id", F.window("event_time", interval(rules.window), interval(rules.slide)))
        .agg(F.collect_list(evidence).alias("delivered"))
        # Nearly every device has one login: the rest is for those that could be over the limit.
        .where(F.size("delivered") > rules.switches)
    )
    ordered = with_distinct_events(windows, "delivered", "logins")
    users = ordered.select("*", computed_once(F.col("logins.user_id")).alias("_users"))
    counted = users.select(
        "*",
        computed_once(_switches(F.col("_users"))).alias("switches"),
        F.array_distinct("_users").alias("_accounts"),
    )
    return counted.where(F.col("switches") >= rules.switches).select(*_columns(rules))


def _switches(users: Column) -> Column:
    """How often the account is another one than that before."""
    return F.size(F.filter(users, lambda user, at: (at > 0) & (user != F.get(users, at - 1))))


def _columns(rules: Rules) -> list[Column]:
    window_start, switches, logins = F.col("window.start"), F.col("switches"), F.col("logins")
    severity = (
        F.when(switches >= rules.critical, "critical")
        .when(switches >= rules.high, "high")
        .otherwise("medium")
    )
    shown = F.transform(
        F.slice(logins, 1, SHOWN),
        lambda login: F.struct(
            login["user_id"].alias("user_id"),
            login["event_id"].alias("event_id"),
            time_text(login["event_time"]).alias("event_time"),
            login["ip"].alias("ip"),
            login["partition"].alias("partition"),
            login["offset"].alias("offset"),
        ),
    )
    return [
        alert_id(NAME, F.col("device_id"), window_start).alias("alert_id"),
        F.lit(NAME).alias("pipeline"),
        F.col("device_id"),
        time_text(window_start).alias("window_start"),
        time_text(F.col("window.end")).alias("window_end"),
        switches.cast("long").alias("switches"),
        F.size("_accounts").cast("long").alias("account_count"),
        F.slice(F.array_sort("_accounts"), 1, SHOWN).alias("accounts"),
        severity.alias("severity"),
        time_text(F.element_at(logins, 1)["event_time"]).alias("first_login"),
        time_text(F.element_at(logins, -1)["event_time"]).alias("last_login"),
        shown.alias("logins"),
    ]
