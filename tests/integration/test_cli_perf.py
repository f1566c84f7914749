"""`tidelog perf` as a person runs it: figures that add up, in the form of Kafka's tools."""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest
from confluent_kafka import Consumer, TopicPartition
from tests.integration.command_line import CommandLine

NewName = Callable[[], str]
RECORDS, SIZE = 2000, 50
MB = 1024 * 1024


@pytest.fixture
def bootstrap(group_bootstrap: str) -> str:
    """A broker whose groups assign at once."""
    return group_bootstrap


@pytest.fixture
def tidelog(bootstrap: str) -> CommandLine:
    return CommandLine(bootstrap)


@pytest.fixture
def topic(tidelog: CommandLine, topic_name: NewName) -> str:
    name = topic_name()
    tidelog.ok("topics", "create", name, "--partitions", "2")
    return name


def test_what_is_written_is_counted_and_is_there(tidelog: CommandLine, bootstrap: str, topic: str) -> None:
    options = ("-n", str(RECORDS), "--record-size", str(SIZE))
    line = tidelog.ok("perf", "produce", topic, *options)
    assert re.fullmatch(
        rf"{RECORDS} records sent, [\d.]+ records/sec \([\d.]+ MB/sec\), [\d.]+ ms avg latency, "
        r"[\d.]+ ms max latency, \d+ ms 50th, \d+ ms 95th, \d+ ms 99th, \d+ ms 99.9th.\n",
        line,
    )
    told = tidelog.json("perf", "produce", topic, *options, "--warmup-records", "500", "--print-metrics")
    assert (told["records"], told["steady_state"]["records"]) == (RECORDS, RECORDS - 500)
    assert told["latency_p50_ms"] <= told["latency_p99_ms"] <= told["latency_max_ms"]
    assert told["mb_per_second"] == pytest.approx(RECORDS * SIZE / MB / told["seconds"])
    assert told["metrics"]["record-send-total"] == RECORDS

    consumer = Consumer({"bootstrap.servers": bootstrap, "group.id": topic})
    ends = [consumer.get_watermark_offsets(TopicPartition(topic, each), timeout=30)[1] for each in (0, 1)]
    consumer.close()
    assert sum(ends) == 2 * RECORDS

    header, row = tidelog.ok("perf", "consume", topic, "-n", str(2 * RECORDS), "--headings").splitlines()
    figures = dict(zip(header.split(", "), row.split(", "), strict=True))
    assert figures["data.consumed.in.nMsg"] == str(2 * RECORDS)
    assert float(figures["data.consumed.in.MB"]) == pytest.approx(2 * RECORDS * SIZE / MB, abs=0.0001)
    short = tidelog("perf", "consume", topic, "-n", str(3 * RECORDS), "--timeout", "300")
    assert len(short.stdout.splitlines()) == 1
    assert re.match(rf"read only \d+ of {3 * RECORDS} records", short.stderr)


def test_records_in_transactions_are_committed(tidelog: CommandLine, topic: str) -> None:
    tidelog.ok(
        "perf", "produce", topic, "-n", "100", "--transaction-duration-ms", "5", "--throughput", "5000"
    )
    read = tidelog.json(
        "perf", "consume", topic, "-n", "100", "--consumer-property", "isolation.level=read_committed"
    )
    assert read["records"] == 100


def test_the_latency_of_single_records_is_told(tidelog: CommandLine, topic_name: NewName) -> None:
    topic = topic_name()
    done = tidelog("perf", "latency", topic, "-n", "30")
    assert done.stderr == f"created topic {topic} with 1 partition\n"
    first, average, parts = done.stdout.splitlines()
    assert re.fullmatch(r"0\t[\d.]+", first)
    assert re.fullmatch(r"Avg latency: [\d.]+ ms", average)
    assert re.fullmatch(r"Percentiles: 50th = \d+, 99th = \d+, 99.9th = \d+", parts)
    assert tidelog.json("perf", "latency", topic, "-n", "3", "--acks", "all")["records"] == 3


def test_ctrl_c_ends_a_run_with_its_summary(bootstrap: str, topic: str) -> None:
    with subprocess.Popen(
        [sys.executable, "-m", "tidelog", "perf", "produce", topic, "-n", "100000000", "--throughput", "1000",
         "--reporting-interval", "100"],
        stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
        env={**os.environ, "TIDELOG_BOOTSTRAP": bootstrap},
    ) as process:  # fmt: skip
        assert process.stdout is not None
        process.stdout.readline()
        process.send_signal(signal.SIGINT)
        out, err = process.communicate(timeout=60)
    assert process.returncode == 130
    assert "99.9th." in out.splitlines()[-1]
    assert err == ""


def test_brokers_out_of_reach_are_reported_once() -> None:
    done = CommandLine("127.0.0.1:1")("perf", "latency", "orders", "-n", "1")
    assert done.returncode == 1
    assert done.stderr.count("cannot connect to 127.0.0.1:1") == 1, done


def test_refusals_name_the_mend(tidelog: CommandLine, topic: str, tmp_path: Path) -> None:
    too_large = tidelog.refusal("perf", "produce", topic, "-n", "1", "--record-size", "2000000")
    assert "larger than max.request.size" in too_large
    assert "does not exist" in tidelog.refusal("perf", "consume", f"{topic}-not")
    (tmp_path / "old.properties").write_text("metadata.broker.list=a:9092\nserializer.class=x\n")
    old = tidelog.refusal(
        "perf", "produce", topic, "-n", "1", "--command-config", str(tmp_path / "old.properties")
    )
    assert "serializer.class=x cannot be honored" in old
    assert "set value.serializer" in old
    assert tidelog("perf", "produce", topic, "-n", "5", "--warmup-records", "5").returncode == 2
    assert tidelog("perf", "latency", topic, "--acks", "0").returncode == 2
