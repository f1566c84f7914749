"""account-switch: what counts as a switch, where the limit is, what windows and watermarks do."""

from __future__ import annotations

import json
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from itertools import count
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import DataFrame, SparkSession

from tidelog.pipelines.account_switch.schema import RULES
from tidelog.pipelines.account_switch.transform import alerts, windows

SCHEMA = (
    "event_id string, event_time timestamp, user_id string, device_id string, ip string, success boolean, "
    "partition int, offset long"
)
pytestmark = pytest.mark.timeout(600)
START = datetime(2026, 1, 5, 12, 0, tzinfo=UTC)
_numbers = count()
Alerts = dict[tuple[str, str], dict[str, Any]]


def login(
    device: str, user: str, minute: float, *, event_id: str | None = None, success: bool = True
) -> tuple[Any, ...]:
    number = next(_numbers)
    at = START + timedelta(minutes=minute)
    return (event_id or f"e{number}", at, user, device, "10.0.0.1", success, 0, number)


def alternating(
    device: str, logins: int, *, from_minute: float = 1.0, every: float = 0.5
) -> list[tuple[Any, ...]]:
    return [login(device, f"u{at % 2}", from_minute + every * at) for at in range(logins)]


def found(frame: DataFrame) -> Alerts:
    """Alerts by device and the minutes from 12:00 at which their window starts."""
    result = {}
    for row in alerts(windows(frame)).collect():
        alert = json.loads(row["value"])
        assert row["key"].decode() == alert["alert_id"]
        result[alert["device_id"], alert["window_start"][11:16]] = alert
    return result


@pytest.fixture(scope="module")
def small(spark: SparkSession) -> Alerts:
    twice = alternating("redelivered", RULES.switches)
    rows = [
        *alternating("just below", RULES.switches),
        *alternating("at the limit", RULES.switches + 1),
        *alternating("high", RULES.high + 1, every=0.2),
        *alternating("critical", RULES.critical + 1, every=0.1),
        *[login("one account", "u0", 1 + at / 10) for at in range(30)],
        *[login("failed", f"u{at}", 1 + at / 10, success=False) for at in range(30)],
        *twice,
        *[(*row[:-1], next(_numbers)) for row in twice],
        # Three switches before 12:10 and three after it, within four minutes: whole in the window from 12:05.
        *alternating("over the edge", RULES.switches + 1, from_minute=8.0, every=0.8),
        # Windows are [start, end): the last login is not in the one from 12:00, the first not in 12:05's.
        login("edge", "a", 4.999),
        *[login("edge", f"b{at}", 5 + at) for at in range(5)],
        login("edge", "c", 10.0),
        *[login("family", f"child {at % 4}", 2.6 * at) for at in range(20)],
        *[
            login("unordered", f"u{at % 3}", minute)
            for at, minute in enumerate((4.0, 2.0, 3.0, 1.0, 5.0, 6.0))
        ],
    ]
    return found(spark.createDataFrame(rows, SCHEMA).repartition(2))


def test_the_limit_is_reported_and_one_less_is_not(small: Alerts) -> None:
    devices = {device for device, _ in small}
    assert "just below" not in devices
    assert small["at the limit", "12:00"]["switches"] == RULES.switches
    assert [small[device, "12:00"]["severity"] for device in ("at the limit", "high", "critical")] == [
        "medium",
        "high",
        "critical",
    ]


@pytest.mark.parametrize("device", ["one account", "failed", "redelivered", "family"])
def test_what_is_no_switching_is_not_reported(small: Alerts, device: str) -> None:
    assert device not in {name for name, _ in small}


def test_what_lies_over_the_edge_of_a_window_is_whole_in_the_next(
    small: Alerts,
) -> None:
    assert [start for device, start in small if device == "over the edge"] == ["12:05"]
    assert {start: alert["switches"] for (device, start), alert in small.items() if device == "edge"} == {
        "12:00": 5,
        "12:05": 5,
    }
    assert small["edge", "12:05"]["first_login"] == "2026-01-05T12:05:00.000Z"
    assert small["edge", "12:00"]["last_login"] == "2026-01-05T12:09:00.000Z"


def test_an_alert_proves_itself_with_logins_in_the_order_of_time(
    small: Alerts,
) -> None:
    alert = small["unordered", "12:00"]
    times = [each["event_time"] for each in alert["logins"]]
    assert times == sorted(times)
    assert (alert["account_count"], alert["accounts"]) == (3, ["u0", "u1", "u2"])
    assert {"user_id", "event_id", "event_time", "ip", "partition", "offset"} == set(alert["logins"][0])
    switches = sum(
        one["user_id"] != other["user_id"]
        for one, other in zip(alert["logins"], alert["logins"][1:], strict=False)
    )
    assert switches == alert["switches"]
    assert (alert["first_login"], alert["last_login"]) == (times[0], times[-1])


@pytest.fixture
def stream(spark: SparkSession, tmp_path: Path) -> Iterator[Any]:
    """Feeds batches of logins to the transformation as a stream, and tells what each batch brought."""
    source = tmp_path / "logins"
    source.mkdir()
    batches: list[Alerts] = []

    def collect(batch: DataFrame, _: int) -> None:
        found = [json.loads(row["value"]) for row in batch.collect()]
        batches.append({(each["device_id"], each["window_start"][11:16]): each for each in found})

    query = (
        alerts(windows(spark.readStream.schema(SCHEMA).parquet(str(source))))
        .writeStream.outputMode("update")
        .option("checkpointLocation", str(tmp_path / "checkpoint"))
        .foreachBatch(collect)
        .start()
    )

    def feed(*rows: tuple[Any, ...]) -> Alerts:
        before = len(batches)
        unfinished = tmp_path / f"batch-{before}"
        spark.createDataFrame(list(rows), SCHEMA).coalesce(1).write.parquet(str(unfinished))
        for number, path in enumerate(unfinished.glob("*.parquet")):
            path.rename(source / f"{before}-{number}.parquet")
        query.processAllAvailable()
        return {key: alert for batch in batches[before:] for key, alert in batch.items()}

    yield feed
    query.stop()


def test_alerts_come_with_the_batch_that_proves_them_and_grow_until_the_watermark(stream: Any) -> None:
    logins = alternating("d", RULES.switches + 3)
    assert stream(*logins[: RULES.switches]) == {}
    first = stream(logins[RULES.switches])["d", "12:00"]
    assert first["switches"] == RULES.switches
    again = stream(login("d", logins[0][2], 1.0, event_id=logins[0][0]))["d", "12:00"]
    assert again == first, "a delivery that comes twice changes nothing"
    grown = stream(*logins[RULES.switches + 1 :])["d", "12:00"]
    assert (grown["switches"], grown["alert_id"]) == (RULES.switches + 2, first["alert_id"])
    # Another device's login moves the watermark to 12:09, just short of the window's end at 12:10.
    assert stream(login("other", "u", 24.0)) == {}
    late = stream(login("d", "late", 1.25))["d", "12:00"]
    assert late["switches"] == RULES.switches + 3
    assert stream(login("other", "u", 26.0)) == {}
    assert stream(login("d", "too late", 1.75)) == {}
