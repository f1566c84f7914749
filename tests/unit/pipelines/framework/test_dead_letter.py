"""What a dead letter carries."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from tidelog.pipelines.framework import events
from tidelog.pipelines.framework.dead_letter import dead_letters

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = pytest.mark.slow


def test_a_letter_is_the_record_with_headers_that_say_where_and_why(spark: SparkSession) -> None:
    malformed = spark.createDataFrame(
        [("ml_task_log", 2, 7, b"k", b"\xff", "not UTF-8"), ("ml_task_log", 0, 1, None, None, "no")],
        "topic string, partition int, offset long, key binary, value binary, reason string",
    )
    full, empty = dead_letters(malformed, "earnings").collect()
    assert (full.topic, bytes(full.key), bytes(full.value)) == (events.DEAD_LETTERS, b"k", b"\xff")
    assert [(header.key, bytes(header.value)) for header in full.headers] == [
        ("pipeline", b"earnings"),
        ("topic", b"ml_task_log"),
        ("partition", b"2"),
        ("offset", b"7"),
        ("reason", b"not UTF-8"),
    ]
    assert (empty.key, empty.value) == (None, None)
