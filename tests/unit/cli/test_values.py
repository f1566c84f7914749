from __future__ import annotations

import enum

import pytest

from tidelog.cli.failure import WrongUsage
from tidelog.cli.groups.topics import assignment_text
from tidelog.cli.values import (
    duration_text,
    parse_choices,
    parse_duration_ms,
    parse_time_ms,
    parse_topic_partitions,
)
from tidelog.ids import TopicPartition


@pytest.mark.parametrize("text", ["1960-01-01T00:00:00Z", "9" * 23, "9999-06-01T00:00:00Z", "yesterday"])
def test_times_that_no_record_has_are_refused(text: str) -> None:
    with pytest.raises(WrongUsage, match="--timestamp"):
        parse_time_ms(text, "--timestamp")
    assert parse_time_ms("2024-05-01T12:00:00Z", "--timestamp") == 1_714_564_800_000


@pytest.mark.parametrize("text", ["9" * 23, "P99999999999D", "-P99999999999D"])
def test_durations_beyond_all_times_are_refused(text: str) -> None:
    with pytest.raises(WrongUsage, match="--by-duration"):
        parse_duration_ms(text, "--by-duration")


class Colour(enum.StrEnum):
    RED = "Red"
    DARK_BLUE = "DarkBlue"


@pytest.mark.parametrize(
    ("text", "expected_ms"),
    [
        ("P1DT2H", 93_600_000),
        ("PT30M", 1_800_000),
        ("PT0.5S", 500),
        ("PT1,25S", 1250),
        ("P1D", 86_400_000),
        ("pt1h1m1s", 3_661_000),
        ("-PT1M", -60_000),
        ("PT-1M", -60_000),
        ("-PT-1M", 60_000),
        ("1500", 1500),
    ],
)
def test_durations_are_those_of_iso_8601_up_to_days(text: str, expected_ms: int) -> None:
    assert parse_duration_ms(text, "--by-duration") == expected_ms


@pytest.mark.parametrize(
    "text", ["", "P", "PT", "P1DT", "1D", "P1Y", "P1M", "P1W", "PT1", "T1H", "PT1S1M", "-5"]
)
def test_other_durations_are_refused_with_examples(text: str) -> None:
    with pytest.raises(WrongUsage, match=r"invalid --by-duration .*: write a duration such as P1DT2H"):
        parse_duration_ms(text, "--by-duration")


@pytest.mark.parametrize(
    ("duration_ms", "expected"),
    [
        (0, "0.0 s"),
        (840, "0.8 s"),
        (9999, "10.0 s"),
        (59_999, "59 s"),
        (60_000, "1 min"),
        (245_000, "4 min 5 s"),
        (3_600_000, "1 h"),
        (183_600_000, "2 d 3 h"),
    ],
)
def test_durations_are_shown_in_their_two_largest_units(duration_ms: int, expected: str) -> None:
    assert duration_text(duration_ms) == expected


def test_choices_may_be_repeated_joined_and_of_any_case() -> None:
    assert parse_choices(["red,darkblue", " RED "], Colour, "--colour") == [
        Colour.RED,
        Colour.DARK_BLUE,
        Colour.RED,
    ]
    assert parse_choices(None, Colour, "--colour") == []
    with pytest.raises(WrongUsage, match=r"invalid .*'green': choose from Red, DarkBlue"):
        parse_choices(["green"], Colour, "--colour")


@pytest.mark.parametrize(
    ("text", "expected"),
    [("orders", ("orders", None)), ("orders:0", ("orders", [0])), ("o:3,1", ("o", [3, 1]))],
)
def test_a_topic_may_name_its_partitions(text: str, expected: tuple[str, list[int] | None]) -> None:
    assert parse_topic_partitions(text, "--topic") == expected


@pytest.mark.parametrize("text", ["", ":1", "orders:", "orders:a", "orders:1,", "orders:-1", "orders:1:2"])
def test_other_partitions_are_refused_with_an_example(text: str) -> None:
    with pytest.raises(WrongUsage, match="write a topic such as orders, or partitions such as orders:0,3"):
        parse_topic_partitions(text, "--topic")


def test_assignments_are_grouped_by_topic() -> None:
    assigned = (TopicPartition("a", 0), TopicPartition("a", 2), TopicPartition("b", 1))
    assert assignment_text(assigned) == "a:0,2 b:1"
    assert assignment_text(()) is None
    assert assignment_text(None) is None
