"""`tidelog events` as a person runs it: events reach their topics, runs end cleanly, the score can say no."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import pytest
from tests.integration.command_line import CommandLine

from tidelog.client import Admin, Consumer, Producer, TopicPartition
from tidelog.testing.broker_process import BrokerProcess
from tidelog_rewards import events


@pytest.fixture(scope="module")
def broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """A broker of its own: the topics' names are given."""
    with BrokerProcess(tmp_path_factory.mktemp("events") / "data") as process:
        yield process.bootstrap


@pytest.fixture
def tidelog(broker: str) -> CommandLine:
    return CommandLine(broker)


def ends(bootstrap: str) -> Counter[str]:
    """How many records each topic of events holds."""
    with Consumer(bootstrap_servers=bootstrap) as consumer:
        there = consumer.list_topics()
        partitions = [
            TopicPartition(kind.topic, each.partition)
            for kind in events.KINDS
            for each in there.get(kind.topic, ())
        ]
        counts: Counter[str] = Counter()
        for partition, end in consumer.end_offsets(partitions).items():
            counts[partition.topic] += end
    return counts


def test_events_reach_all_topics_and_the_truth_counts_them(
    tidelog: CommandLine, broker: str, tmp_path: Path
) -> None:
    before = ends(broker)
    truth = tmp_path / "truth.jsonl"
    done = tidelog(
        "events", "generate", "--count", "20000", "--fast", "--rate", "50", "--truth", str(truth),
        "--start", "2020-02-01T00:00:00Z", "--partitions", "3",
    )  # fmt: skip
    assert (done.returncode, done.stdout) == (0, "")
    assert done.stderr.startswith("20,000 events in ")
    told = json.loads(truth.read_bytes().splitlines()[-1])
    assert ends(broker) - before == Counter(told["records"])
    assert sum(told["records"].values()) == 20_000
    with Admin(bootstrap_servers=broker) as admin:
        described = admin.describe_topics([kind.topic for kind in events.KINDS])
    assert {topic.error or len(topic.partitions) for topic in described.values()} == {3}


def test_an_end_is_heard_and_what_was_sent_is_told(broker: str, tmp_path: Path) -> None:
    truth = tmp_path / "truth.jsonl"
    before = ends(broker)
    command = [sys.executable, "-m", "tidelog", "events", "generate", "--rate", "500", "--truth", str(truth)]
    with subprocess.Popen(
        [*command, "--bootstrap-server", broker], stderr=subprocess.PIPE, env={**os.environ, "NO_COLOR": "1"}
    ) as process:
        deadline = time.monotonic() + 60
        while ends(broker) == before and time.monotonic() < deadline:
            pass
        process.send_signal(signal.SIGINT)
        _, said = process.communicate(timeout=60)
    assert process.returncode == 0, said
    told = json.loads(truth.read_bytes().splitlines()[-1])
    assert told["record"] == "totals"
    assert ends(broker) - before == Counter(told["records"])


def test_the_same_seed_writes_the_same_files(tidelog: CommandLine, tmp_path: Path) -> None:
    for name in ("one", "two"):
        done = tidelog(
            "events", "generate", "--count", "3000", "--seed", "4", "--rate", "20",
            "--out", str(tmp_path / name), "--start", "2026-01-05T00:00:00Z",
            "--truth", str(tmp_path / f"{name}.jsonl"),
        )  # fmt: skip
        assert done.returncode == 0, done
    one, two = (
        {path.name: path.read_bytes() for path in (tmp_path / name).iterdir()} for name in ("one", "two")
    )
    assert one == two
    assert (tmp_path / "one.jsonl").read_bytes() == (tmp_path / "two.jsonl").read_bytes()
    assert len(one) == len(events.KINDS)


def test_files_need_an_end(tidelog: CommandLine, tmp_path: Path) -> None:
    done = tidelog("events", "generate", "--out", str(tmp_path))
    assert done.returncode == 2
    assert "--out needs an end: say --count or --seconds" in done.stderr


def test_a_terminal_shows_progress_and_a_summary(tidelog: CommandLine, broker: str) -> None:
    code, seen = tidelog.on_terminal("events", "generate", "--seconds", "2", "--rate", "300")
    assert code == 0
    assert "ml_ad_exposure_log" in seen
    assert " events in " in seen


def test_the_score_names_rules_that_found_nothing_and_praises_those_that_did(
    tidelog: CommandLine, broker: str, tmp_path: Path
) -> None:
    truth = tmp_path / "truth.jsonl"
    records = [
        {"record": "incident", "pipeline": "account-switch", "rule": "account-switch", "complete": True}
        | {"users": ["u1"], "devices": ["d1"]},
        {"record": "honest", "case": "office", "users": ["u9"], "devices": []},
    ]
    truth.write_text("".join(json.dumps(record) + "\n" for record in records))
    refused = tidelog("events", "score", "--truth", str(truth), "--require", "0.9")
    assert refused.returncode == 1
    mistake = "error: precision or recall is below --require 0.9 for account-switch/account-switch"
    assert mistake in refused.stderr.splitlines()
    alert = {"alert_id": "a1", "pipeline": "account-switch", "devices": ["d1"]}
    older = {**alert, "devices": ["d7"]}
    with Producer(bootstrap_servers=broker) as producer:
        for each in (older, alert):
            producer.send(events.ACCOUNT_SWITCH_ALERTS, json.dumps(each).encode(), key=b"a1")
    done = tidelog("events", "score", "--truth", str(truth), "--require", "0.9")
    assert (done.returncode, done.stdout.splitlines()[0]) == (
        0,
        "account-switch\taccount-switch\t1\t1\t1.000\t1\t0\t1.000",
    )
    assert "0 of 1 honest lookalike accused" in done.stderr


def test_a_truth_without_incidents_is_no_proof(tidelog: CommandLine, tmp_path: Path) -> None:
    truth = tmp_path / "truth.jsonl"
    truth.write_text('{"record": "run"}\n')
    done = tidelog("events", "score", "--truth", str(truth), "--require", "0.9")
    assert done.returncode == 1
    assert "error: the truth file has no complete incident" in done.stderr


def test_rules_are_held_against_adversaries_without_a_broker(tidelog: CommandLine, tmp_path: Path) -> None:
    done = tidelog("events", "score", "--adversaries", "1000", "--json")
    told = json.loads(done.stdout)
    assert (done.returncode, told["threshold"]) == (0, 60)
    usual = {each["pattern"]: each for each in told["patterns"] if each["threshold"] == 60}
    assert usual["burst"]["recall"] == 1.0
    assert usual["mules"]["recall"] == 0.0
    assert [each["threshold"] for each in told["curve"]] == sorted(
        {each["threshold"] for each in told["curve"]}
    )
    for arguments, mistake in (
        ((), "give either --truth FILE, to score alerts, or --adversaries SEED[-SEED]"),
        (("--adversaries", "x"), "--adversaries 'x' are no seeds: write 1000 or 1000-1009"),
        (("--adversaries", "9-3"), "--adversaries 9-3: the last seed comes after the first, 1000 at most"),
        (("--adversaries", "1", "--rules", str(tmp_path / "none")), "cannot be read"),
    ):
        refused = tidelog("events", "score", *arguments)
        assert refused.returncode in {1, 2}
        assert mistake in refused.stderr
