"""kcat: produce, consume, list and query from the shell."""

from __future__ import annotations

import json
import subprocess
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from foreign import toolchain
from foreign.broker_process import BrokerProcess
from tests.compat.conftest import available

Kcat = Callable[..., str]


@pytest.fixture
def kcat(broker: BrokerProcess) -> Kcat:
    with available():
        program = toolchain.kcat()

    def run(*arguments: str | Path, stdin: str = "") -> str:
        done = subprocess.run(
            [program, "-b", broker.address, *map(str, arguments)],
            input=stdin,
            capture_output=True,
            text=True,
            timeout=60,
        )
        assert done.returncode == 0, done.stderr
        return done.stdout

    return run


def consume(kcat: Kcat, topic: str, offset: str = "beginning", *more: str) -> list[dict[str, Any]]:
    printed = kcat("-C", "-t", topic, "-p", "0", "-o", offset, "-e", "-q", "-J", *more)
    return [json.loads(line) for line in printed.splitlines()]


@pytest.mark.parametrize("codec", ["none", "gzip", "snappy", "lz4", "zstd"])
@pytest.mark.parametrize("acks", ["0", "1", "all"])
def test_kcat_reads_what_it_wrote(kcat: Kcat, topic: str, codec: str, acks: str) -> None:
    lines = "".join(f"key{i}:value {i}\n" for i in range(20))
    kcat(
        "-P",
        "-t",
        topic,
        "-p",
        "0",
        "-K:",
        "-z",
        codec,
        "-X",
        f"acks={acks}",
        "-H",
        "origin=kcat",
        stdin=lines,
    )
    records = consume(kcat, topic)
    assert [(each["offset"], each["key"], each["payload"]) for each in records] == [
        (i, f"key{i}", f"value {i}") for i in range(20)
    ]
    assert all(each["headers"] == ["origin", "kcat"] for each in records)


def test_kcat_writes_idempotently_and_keeps_nulls(kcat: Kcat, topic: str) -> None:
    kcat("-P", "-t", topic, "-p", "0", "-K:", "-Z", "-X", "enable.idempotence=true", stdin="k:\n:v\n")
    assert [(each["key"], each["payload"]) for each in consume(kcat, topic)] == [("k", None), (None, "v")]


def test_kcat_sends_a_file_of_almost_a_megabyte(kcat: Kcat, topic: str, tmp_path: Path) -> None:
    big = tmp_path / "big"
    big.write_text("0123456789abcdef" * 62_000)
    kcat("-P", "-t", topic, "-p", "0", big)
    (record,) = consume(kcat, topic)
    assert record["payload"] == big.read_text()


def test_kcat_starts_at_offsets_and_times(kcat: Kcat, topic: str) -> None:
    kcat("-P", "-t", topic, "-p", "0", stdin="".join(f"{i}\n" for i in range(10)))
    middle = int(time.time() * 1000) + 1
    while int(time.time() * 1000) <= middle:
        time.sleep(0.001)
    kcat("-P", "-t", topic, "-p", "0", stdin="".join(f"{i}\n" for i in range(10, 15)))
    assert [each["offset"] for each in consume(kcat, topic, "7")] == list(range(7, 15))
    assert [each["offset"] for each in consume(kcat, topic, "-3")] == [12, 13, 14]
    assert [each["offset"] for each in consume(kcat, topic, f"s@{middle}")] == list(range(10, 15))
    assert "offset 10" in kcat("-Q", "-t", f"{topic}:0:{middle}")
    assert "offset 15" in kcat("-Q", "-t", f"{topic}:0:-1")


def test_kcat_lists_brokers_and_topics(kcat: Kcat, broker: BrokerProcess, topic: str) -> None:
    kcat("-P", "-t", topic, "-p", "0", stdin="x\n")
    listed = json.loads(kcat("-L", "-J"))
    assert listed["brokers"] == [{"id": broker.node_id, "name": broker.address}]
    (found,) = (each for each in listed["topics"] if each["topic"] == topic)
    assert found["partitions"][0]["leader"] == broker.node_id
