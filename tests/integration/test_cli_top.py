"""`tidelog top` as a person runs it: once, as JSON, and live until Ctrl-C."""

from __future__ import annotations

import json
import os
import pty
import signal
import subprocess
import sys
import time
from collections.abc import Callable

import pytest
from tests.integration.command_line import CommandLine
from tests.rigs.group_members.topics import create, fill

NewName = Callable[[], str]
RECORDS = 20


@pytest.fixture
def tidelog(bootstrap: str) -> CommandLine:
    return CommandLine(bootstrap)


@pytest.fixture
def topic(bootstrap: str, topic_name: NewName) -> str:
    """A topic with 20 records in each of two partitions."""
    name = topic_name()
    fill(bootstrap, create(bootstrap, name, 2), RECORDS)
    return name


def test_one_look_tells_of_brokers_topics_and_groups(tidelog: CommandLine, topic: str) -> None:
    tidelog("groups", "reset-offsets", topic, "--topic", topic, "--to-offset", "5", "--execute")
    load = tidelog.json("top", "--once", "--interval", "0.2")
    assert [each["alive"] for each in load["brokers"]] == [True]
    own = next(each for each in load["topics"] if each["name"] == topic)
    assert own["partitions"] == 2
    assert own["size_bytes"] > 0
    assert not any(each["internal"] for each in load["topics"])
    group = next(each for each in load["groups"] if each["group"] == topic)
    assert group["lag"] == 2 * (RECORDS - 5)

    lines = tidelog.ok("top", "--interval", "0.2", "--internal").splitlines()
    assert [line.split("\t")[0] for line in lines if "\t" in line].count(topic) == 2
    assert any(line.startswith("__consumer_offsets\t") for line in lines)


def test_what_is_written_between_two_looks_is_a_rate(bootstrap: str, topic: str) -> None:
    with subprocess.Popen(
        [sys.executable, "-m", "tidelog", "top", "--json", "--interval", "0.2"],
        stdout=subprocess.PIPE,
        env={**os.environ, "TIDELOG_BOOTSTRAP": bootstrap},
    ) as process:
        assert process.stdout is not None
        rates: list[float] = []
        deadline = time.monotonic() + 60
        while not any(rates) and time.monotonic() < deadline:
            load = json.loads(process.stdout.readline())
            rates.append(next(e["records_per_second"] for e in load["topics"] if e["name"] == topic))
            fill(bootstrap, [(topic, 0)], 5)
        process.send_signal(signal.SIGINT)
        process.stdout.read()
        assert process.wait(60) == 0
    assert any(rates)


def test_the_live_view_ends_cleanly_with_ctrl_c(bootstrap: str, topic: str) -> None:
    ours, theirs = pty.openpty()
    environment = {
        **os.environ,
        "TIDELOG_BOOTSTRAP": bootstrap,
        "TERM": "xterm",
        "COLUMNS": "80",
        "LINES": "24",
    }
    with subprocess.Popen(
        [sys.executable, "-m", "tidelog", "top"], stdin=theirs, stdout=theirs, stderr=theirs, env=environment
    ) as process:
        os.close(theirs)
        seen = b""
        while b"Ctrl-C ends it" not in seen:
            seen += os.read(ours, 65536)
        process.send_signal(signal.SIGINT)
        assert process.wait(60) == 0
    while chunk := _rest(ours):
        seen += chunk
    os.close(ours)
    assert b"TIDELOG" in seen
    assert b"\x1b[?1049l" in seen, "the screen of its own was not left"
    assert b"Traceback" not in seen


def _rest(descriptor: int) -> bytes:
    try:
        return os.read(descriptor, 65536)
    except OSError:
        return b""


def test_a_cluster_out_of_reach_is_said_in_a_sentence() -> None:
    assert "cannot connect to" in CommandLine("127.0.0.1:1").refusal("top", "--once")
