"""Which records of a backfill are written: those that the topics lack, and no episode over a later one."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import pytest
from pyspark.sql import functions as F

from tidelog_rewards.detection.alert_job import lacking
from tidelog_rewards.events import ACCOUNT_SWITCH_ALERTS, DEAD_LETTERS, INCIDENTS

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

pytestmark = pytest.mark.slow

RECORD = (
    "topic string, key binary, value binary, headers array<struct<key: string, value: binary>>, offset long"
)
FEBRUARY, KNOWN_UNTIL, MARCH = (f"2026-{day}T12:00:00.000Z" for day in ("02-10", "02-20", "03-10"))
Row = tuple[str, bytes, bytes | None, None, int]


def incident(key: str, updated: str, evidence: str, state: str = "closed") -> tuple[str, bytes]:
    return key, json.dumps({"state": state, "updated": updated, "evidence": evidence}).encode()


def rows(*told: tuple[str, bytes | None]) -> list[Row]:
    """Records as alerts are written, to both topics."""
    return [
        (topic, key.encode(), value, None, offset)
        for offset, (key, value) in enumerate(told)
        for topic in (ACCOUNT_SWITCH_ALERTS, INCIDENTS)
    ]


def frame(spark: SparkSession, made: list[Row]) -> DataFrame:
    return spark.createDataFrame(made, RECORD)


def written(spark: SparkSession, made: list[Row], held: list[Row], known: int = 100) -> list[tuple[Any, ...]]:
    """Of what is held, offsets before ``known`` were there before the backfill began to read."""
    there = frame(spark, held).withColumn("knows_more", F.col("offset") >= known)
    found = lacking(frame(spark, made), there, KNOWN_UNTIL).collect()
    return sorted((row["topic"], bytes(row["key"]).decode()) for row in found)


def test_a_backfill_writes_what_the_topics_lack_and_no_episode_over_a_later_one(spark: SparkSession) -> None:
    held = rows(
        incident("replaced", FEBRUARY, "1"),
        incident("replaced", MARCH, "2"),
        incident("changed", FEBRUARY, "3"),
        incident("shortened", "2026-02-12T12:00:00.000Z", "9"),
        incident("same", FEBRUARY, "4", state="dismissed"),
        incident("older", FEBRUARY, "5"),
        incident("taken back", MARCH, "6"),
        ("taken back", None),
        ("nonsense", b"\xff{"),
    )
    made = rows(
        incident("replaced", FEBRUARY, "1"),
        incident("changed", FEBRUARY, "33"),
        incident("shortened", FEBRUARY, "99"),
        incident("same", FEBRUARY, "4"),
        incident("older", MARCH, "55"),
        incident("taken back", FEBRUARY, "66"),
        incident("nonsense", FEBRUARY, "7"),
        incident("new", FEBRUARY, "8"),
    )
    wanted = ("changed", "new", "nonsense", "older", "shortened", "taken back")
    topics = sorted([ACCOUNT_SWITCH_ALERTS, INCIDENTS])
    assert written(spark, made, held) == [(topic, key) for topic in topics for key in wanted]


def test_a_backfill_closes_what_is_held_as_open_and_over_by_now(spark: SparkSession) -> None:
    held = rows(
        *(incident(state, FEBRUARY, "1", state) for state in ("open", "updated", "closed", "dismissed")),
        incident("still", FEBRUARY, "1", "open"),
        incident("later", MARCH, "2", "updated"),
    )
    made = rows(
        *(incident(state, FEBRUARY, "1") for state in ("open", "updated", "closed", "dismissed")),
        incident("still", FEBRUARY, "1", "open"),
        incident("later", FEBRUARY, "2"),
    )
    topics = sorted([ACCOUNT_SWITCH_ALERTS, INCIDENTS])
    assert written(spark, made, held) == [(topic, key) for topic in topics for key in ("open", "updated")]
    assert written(spark, made, [*held, *((*row[:4], row[4] + 9) for row in made)]) == []


def test_what_came_since_a_backfill_began_is_not_replaced(spark: SparkSession) -> None:
    held = rows(
        incident("touched", FEBRUARY, "1"),
        incident("as it was", FEBRUARY, "2"),
        incident("touched", FEBRUARY, "3"),
        ("taken back", None),
    )
    made = rows(*(incident(name, FEBRUARY, "9") for name in ("touched", "as it was", "taken back", "new")))
    topics = sorted([ACCOUNT_SWITCH_ALERTS, INCIDENTS])
    assert written(spark, made, held, known=2) == [
        (topic, key) for topic in topics for key in ("as it was", "new")
    ]
    # With a log that is cut, nothing that is held is known for certain.
    assert written(spark, made, held, known=0) == [(topic, "new") for topic in topics]


def test_all_dead_letters_that_are_held_are_known(spark: SparkSession) -> None:
    held: list[Row] = [(DEAD_LETTERS, b"k", value, None, at) for at, value in enumerate((b"1", b"2"))]
    made: list[Row] = [*held[:1], (DEAD_LETTERS, b"other", b"3", None, 0)]
    assert written(spark, made, held) == [(DEAD_LETTERS, "other")]
