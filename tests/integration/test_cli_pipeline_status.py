"""`tidelog pipeline status` as a person runs it: a cluster and a directory with traces of pipelines."""

from __future__ import annotations

import time
from collections.abc import Iterator
from pathlib import Path

import msgspec
import pytest
from tests.integration.command_line import CommandLine

from tidelog import Producer
from tidelog.client import Admin, NewTopic
from tidelog.client.subscription.offsets import OffsetAndMetadata
from tidelog.ids import TopicPartition
from tidelog.spark.pipelines.status_file import RunStatus, StatusFile
from tidelog.testing.broker_process import BrokerProcess
from tidelog_rewards import events

GROUP = "tidelog-pipeline-earnings"


@pytest.fixture(scope="module")
def own_bootstrap(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """A broker of our own: the names of the pipelines' topics are fixed."""
    with BrokerProcess(tmp_path_factory.mktemp("status") / "data") as broker:
        yield broker.bootstrap


@pytest.fixture
def tidelog(own_bootstrap: str) -> CommandLine:
    return CommandLine(own_bootstrap)


def test_of_a_pipeline_that_never_ran_nothing_is_known(tidelog: CommandLine, tmp_path: Path) -> None:
    [found] = tidelog.json("pipeline", "status", "collect", "--directory", str(tmp_path))
    assert found == {
        "pipeline": "collect",
        "running": False,
        "pid": None,
        "lag": None,
        "last_batch": None,
        "last_batch_age_s": None,
        "rows_per_second": None,
        "rows_in": None,
        "state_rows": None,
        "late": None,
        "dropped": None,
        "checkpoint": str(tmp_path / "checkpoints" / "collect"),
        "dead_letters": None,
        "input_rows_per_second": None,
        "processed_rows_per_second": None,
        "batch_ms": None,
        "phases_ms": None,
        "watermark_ms": None,
        "state_bytes": None,
        "offsets_behind": None,
        "quality": None,
        "last_batch_quality": None,
    }


def test_lag_batches_letters_and_the_running_process_are_told(
    tidelog: CommandLine, own_bootstrap: str, tmp_path: Path
) -> None:
    _write_traces(own_bootstrap, tmp_path)
    book = StatusFile(tmp_path, "earnings")
    now_ms = time.time_ns() // 1_000_000
    figures = {
        "batch_id": 12,
        "rows_in": 900,
        "rows_per_second": 45.5,
        "state_rows": 3,
        "late": 5,
        "processed_rate": 1234.5,
        "phases_ms": {"addBatch": 1200},
        "watermark_ms": 1_700_000_000_000,
        "behind": 40,
        "quality": {
            "records": 900,
            "malformed": 3,
            "duplicated": 2,
            "reasons": {"not-json": 2, "missing:ip": 1},
            "nulls": {"ip": 1},
            "seen": {"ip": 400, "source": 400},
        },
    }
    book.write(
        msgspec.convert({"pid": 4711, "started_at_ms": now_ms, "updated_at_ms": now_ms, **figures}, RunStatus)
    )
    found = {each["pipeline"]: each for each in tidelog.json("pipeline", "status", "-d", str(tmp_path))}
    assert list(found) == ["collect", "account-switch", "invite-fraud", "phone-region", "earnings"]
    earnings = found["earnings"]
    assert earnings["last_batch_age_s"] < 600
    assert (earnings["running"], earnings["pid"], earnings["lag"], earnings["last_batch"]) == (
        True,
        4711,
        7,
        12,
    )
    assert (earnings["rows_in"], earnings["rows_per_second"], earnings["state_rows"]) == (900, 45.5, 3)
    assert (earnings["late"], earnings["dropped"]) == (5, 0)
    assert (earnings["dead_letters"], found["collect"]["dead_letters"]) == (3, 1)
    assert (earnings["processed_rows_per_second"], earnings["phases_ms"]) == (1234.5, {"addBatch": 1200})
    assert (earnings["watermark_ms"], earnings["offsets_behind"]) == (1_700_000_000_000, 40)
    assert earnings["quality"] == {
        "records": 900,
        "malformed": 3,
        "duplicated": 2,
        "reasons": {"not-json": 2, "missing:ip": 1},
        "null_rates": {"ip": 0.0025, "source": 0},
    }
    lines = tidelog.ok("pipeline", "status", "-d", str(tmp_path), "--figures", "--headings").splitlines()
    told = dict(line.strip().split("\t") for line in lines[lines.index("figure\tearnings") :])
    assert told["worked off/s"] == "1,234"
    assert (told["addBatch"], told["malformed"], told["missing:ip"]) == ("1,200 ms", "3", "1")
    assert (told["null ip"], told["null source"], told["came twice"]) == ("0.25 %", "0 %", "2")
    book.close()
    table = tidelog.ok("pipeline", "status", "earnings", "-d", str(tmp_path), "--headings").splitlines()
    assert table[0].split("\t")[:4] == ["pipeline", "running", "lag", "last batch"]
    assert table[1].split("\t")[:4] == ["earnings", "no", "7", "12"]


def _write_traces(bootstrap: str, directory: Path) -> None:
    """What a run of earnings leaves behind: records, letters, committed offsets, a checkpoint."""
    topic = TopicPartition(events.CREDIT.topic, 0)
    with Admin(bootstrap_servers=bootstrap) as admin:
        admin.create_topics([NewTopic(topic.topic, 1), NewTopic(events.DEAD_LETTERS, 2)])
        with Producer(bootstrap_servers=bootstrap) as producer:
            for number in range(10):
                producer.send(topic.topic, b"%d" % number)
            for pipeline in (b"earnings", b"earnings", b"collect", b"\xff no text", b"earnings"):
                producer.send(events.DEAD_LETTERS, b"{", headers={"pipeline": pipeline})
        admin.alter_group_offsets(GROUP, {topic: OffsetAndMetadata(3)})
    commits = directory / "checkpoints" / "earnings" / "commits"
    commits.mkdir(parents=True)
    for name in ("9", "12", ".12.crc", "11"):
        (commits / name).write_text("v1")


def test_an_unreachable_broker_is_one_sentence(tmp_path: Path) -> None:
    patience = tmp_path / "client.properties"
    patience.write_text("request.timeout.ms=1000\ndefault.api.timeout.ms=1000\n")
    tidelog = CommandLine("127.0.0.1:1")
    refusal = tidelog.refusal("pipeline", "status", "earnings", "--command-config", str(patience))
    assert "cannot connect to 127.0.0.1:1" in refusal


@pytest.mark.parametrize("command", ["run", "status", "backfill"])
def test_an_object_store_is_refused_as_a_directory(tidelog: CommandLine, command: str) -> None:
    extra = ("--from", "2026-11-01", "--to", "2026-11-02") if command == "backfill" else ()
    done = tidelog("pipeline", command, "collect", "--directory", "s3://bucket/state", *extra)
    assert done.returncode == 2
    assert "a directory that the driver and all executors see under the same path" in done.stderr
