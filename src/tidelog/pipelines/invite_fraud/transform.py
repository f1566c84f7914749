"""Invitations to scored alerts: windows per inviter, device and number block; pure DataFrame to DataFrame.

Each invitation counts for its inviter, for the device on which the newcomer came in, and for the block of
the newcomer's number, so that a farm whose inviters are inconspicuous one by one is seen as well. A device
or block with a single inviter is that inviter's matter, and is told there only. Addresses and bursts count
per inviter alone: a mobile carrier puts a whole town behind one address.

The state of the streaming query is the list of invitations per subject and window, until the watermark
passes the window. A delivery that comes twice counts once, and so does a person who is invited twice.
"""

from __future__ import annotations

from functools import reduce

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F

from tidelog.pipelines.alert_columns import alert_id, computed_once, interval, time_text, with_distinct_events
from tidelog.pipelines.invite_fraud.schema import NAME, RULES, SHOWN, Rules, Steps

_INVITE = (
    "event_time",
    "event_id",
    "partition",
    "offset",
    "inviter",
    "invitee",
    "device",
    "network",
    "block",
)


def invitations(events: DataFrame) -> DataFrame:
    """Events of kind invite, as the rules look at them: with the newcomer's network and number block."""
    digits = F.regexp_replace("invitee_phone", "[^0-9]", "")
    # The app is Chinese: a number without a country is one of China's.
    national = digits.rlike("^1[0-9]{10}$") & ~F.col("invitee_phone").startswith("+")
    number = F.when(national, F.concat(F.lit("86"), digits)).otherwise(digits)
    block = F.when(F.length("_number") >= 8, F.expr("substring(_number, 1, length(_number) - 3)"))
    return (
        events.withColumn("_number", number)
        .withColumn("block", block)
        .withColumn("network", _network(F.col("invitee_ip")))
        .withColumn("inviter", F.col("user_id"))
        .withColumn("invitee", F.col("invitee_id"))
        .withColumn("device", F.col("invitee_device_id"))
        .select(*_INVITE)
    )


def edges(events: DataFrame) -> DataFrame:
    """Adds ``edge``, the invitation as ``graph.Edge`` has it."""
    fields = {
        "time_ms": F.unix_millis("event_time"),
        "event_id": F.col("event_id"),
        "inviter": F.col("user_id"),
        "invitee": F.col("invitee_id"),
        "inviter_device": F.col("device_id"),
        "invitee_device": F.col("invitee_device_id"),
        "network": _network(F.col("invitee_ip")),
        "partition": F.col("partition"),
        "offset": F.col("offset"),
    }
    return events.withColumn("edge", F.struct(*(column.alias(name) for name, column in fields.items())))


def _network(ip: Column) -> Column:
    """The /24 of an IPv4 address, the /48 of an IPv6 one."""
    return F.when(ip.contains(":"), F.substring_index(ip, ":", 3)).otherwise(F.substring_index(ip, ".", 3))


def alerts(events: DataFrame, rules: Rules = RULES) -> DataFrame:
    """Inviters, devices and number blocks that score too high, one row per subject and window."""
    subjects = F.array(
        _subject("inviter", F.col("inviter")),
        _subject("device", F.col("device")),
        _subject("number-block", F.col("block")),
    )
    windows = (
        invitations(events)
        .withWatermark("event_time", interval(rules.watermark))
        .select("*", F.explode(subjects).alias("_subject"))
        .where(F.col("_subject.name").isNotNull())
        .groupBy("_subject", F.window("event_time", interval(rules.window), interval(rules.slide)))
        .agg(F.collect_list(F.struct(*_INVITE)).alias("delivered"))
        .where(F.size("delivered") >= rules.least)
    )
    distinct = with_distinct_events(windows, "delivered", "invites")
    scored = _with_reasons(_with_people(distinct), rules)
    return scored.where(F.col("score") >= rules.alert_score).select(*_columns())


def _subject(kind: str, name: Column) -> Column:
    return F.struct(F.lit(kind).alias("kind"), name.alias("name"))


def _with_people(frame: DataFrame) -> DataFrame:
    """Adds ``_people``: the first invitation of each, as far as the rules need it."""
    named = F.transform(
        "invites",
        lambda invite: F.struct(
            *(invite[name] for name in ("invitee", "event_time", "device", "network", "block"))
        ),
    )
    ordered = frame.select("*", computed_once(F.array_sort(named)).alias("_named"))
    each = F.col("_named")
    first = F.filter(each, lambda one, at: (at == 0) | (one["invitee"] != F.get(each, at - 1)["invitee"]))
    return ordered.select("*", computed_once(first).alias("_people")).drop("_named")


def _with_reasons(frame: DataFrame, rules: Rules) -> DataFrame:
    """Adds ``reasons`` and ``score``."""
    is_inviter = F.col("_subject.kind") == "inviter"
    several_inviters = F.size(F.array_distinct("invites.inviter")) > 1
    times = F.transform("_people", lambda one: F.unix_millis(one["event_time"]))
    counted = frame.select(
        "*",
        computed_once(F.array_sort(times)).alias("_times"),
        *(
            computed_once(_most(F.col(f"_people.{name}"))).alias(f"_{name}")
            for name in ("device", "block", "network")
        ),
    )
    within = F.lit(f"{round(rules.burst_window.total_seconds())} s")
    burst = reduce(
        lambda smaller, step: F.when(_burst(F.col("_times"), step[0], rules), step[0]).otherwise(smaller),
        reversed(rules.burst),
        F.lit(0),
    )
    reasons = F.array(
        _reason("device", F.col("_device"), rules.device),
        _reason("number-block", F.col("_block"), rules.number_block),
        F.when(is_inviter, _reason("address", F.col("_network"), rules.address)),
        F.when(
            is_inviter,
            _reason("burst", F.struct(within.alias("value"), burst.alias("count")), rules.burst),
        ),
    )
    found = computed_once(F.filter(reasons, lambda reason: reason.isNotNull()))
    explained = counted.where(is_inviter | several_inviters).select("*", found.alias("reasons"))
    total = F.aggregate("reasons", F.lit(0), lambda points, reason: points + reason["points"])
    return explained.select("*", computed_once(F.least(total, F.lit(100))).alias("score"))


def _most(values: Column) -> Column:
    """The value that occurs most often, and how often, in one pass over the sorted values."""
    ordered = F.array_sort(F.filter(values, lambda value: value.isNotNull()))
    nothing = F.lit(None).cast("string")
    start = F.struct(
        nothing.alias("value"), F.lit(0).alias("run"), nothing.alias("best"), F.lit(0).alias("count")
    )

    def merge(seen: Column, value: Column) -> Column:
        run = F.when(seen["value"] == value, seen["run"] + 1).otherwise(1)
        return F.struct(
            value.alias("value"),
            run.alias("run"),
            F.when(run > seen["count"], value).otherwise(seen["best"]).alias("best"),
            F.greatest(run, seen["count"]).alias("count"),
        )

    return F.aggregate(
        ordered,
        start,
        merge,
        lambda seen: F.struct(seen["best"].alias("value"), seen["count"].alias("count")),
    )


def _burst(times_ms: Column, people: int, rules: Rules) -> Column:
    """Whether so many of the sorted times lie within the burst window."""
    window_ms = round(rules.burst_window.total_seconds() * 1000)
    starts = F.sequence(F.lit(0), F.size(times_ms) - people)
    quick = F.exists(starts, lambda at: F.get(times_ms, at + (people - 1)) - F.get(times_ms, at) <= window_ms)
    return F.when(F.size(times_ms) >= people, quick).otherwise(False)


def _reason(rule: str, most: Column, steps: Steps) -> Column:
    """The reason that a count gives, null when it gives none."""
    points = reduce(
        lambda fewer, step: F.when(most["count"] >= step[0], step[1]).otherwise(fewer),
        reversed(steps),
        F.lit(None).cast("int"),
    )
    return F.when(
        points.isNotNull(),
        F.struct(
            F.lit(rule).alias("rule"),
            points.alias("points"),
            most["count"].alias("count"),
            most["value"].alias("value"),
        ),
    )


def _columns() -> list[Column]:
    window, subject, invites = F.col("window"), F.col("_subject"), F.col("invites")
    shown = F.transform(
        F.slice(invites, 1, SHOWN),
        lambda invite: F.struct(
            invite["event_id"].alias("event_id"),
            time_text(invite["event_time"]).alias("event_time"),
            invite["inviter"].alias("inviter"),
            invite["invitee"].alias("invitee"),
            invite["partition"].alias("partition"),
            invite["offset"].alias("offset"),
        ),
    )
    return [
        alert_id(NAME, subject["kind"], subject["name"], window["start"]).alias("alert_id"),
        F.lit(NAME).alias("pipeline"),
        subject["kind"].alias("subject_kind"),
        subject["name"].alias("subject"),
        time_text(window["start"]).alias("window_start"),
        time_text(window["end"]).alias("window_end"),
        F.col("score").cast("long").alias("score"),
        F.col("reasons"),
        _some(F.col("invites.inviter")).alias("inviters"),
        _some(F.col("invites.invitee")).alias("invitees"),
        _some(F.col("invites.device")).alias("devices"),
        F.size("_people").cast("long").alias("invitations"),
        shown.alias("invites"),
    ]


def _some(names: Column) -> Column:
    return F.slice(F.array_sort(F.array_distinct(names)), 1, SHOWN)
