"""A broker's life as a process: ready, restarts, signals, and what it says when it cannot start."""

from __future__ import annotations

import json
import os
import re
import shutil
import signal
import socket
import subprocess
import sys
from pathlib import Path

import pytest
from tests.rigs.raw_client import RawClient
from tests.rigs.raw_topic import RawTopic, batch, values
from tests.rigs.waiting import wait_until

from tidelog.errors import ErrorCode
from tidelog.testing.broker_process import BrokerProcess
from tidelog.wire.api import ApiKey
from tidelog.wire.messages.fetch import FetchPartition, FetchRequest
from tidelog.wire.messages.metadata import MetadataRequest, MetadataResponse

TIMEOUT_S = 60


def start(*arguments: str | Path) -> subprocess.CompletedProcess[str]:
    """Run ``tidelog start`` that is not expected to stay."""
    return subprocess.run(
        [sys.executable, "-m", "tidelog.cli.main", "start", *map(str, arguments)],
        capture_output=True,
        text=True,
        timeout=TIMEOUT_S,
        check=False,
    )


def cluster_id(broker: BrokerProcess) -> str | None:
    with RawClient(broker.host, broker.port) as client:
        return client.ask(12, MetadataRequest(topics=[]), MetadataResponse).cluster_id


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_a_signal_shuts_down_cleanly(tmp_path: Path, number: signal.Signals) -> None:
    with BrokerProcess(tmp_path / "data") as broker:
        os.kill(broker.pid, number)
        assert broker._running().wait(TIMEOUT_S) == 0
        assert "Traceback" not in broker.log
        assert (tmp_path / "data" / ".kafka_cleanshutdown").exists()


def test_identity_topics_and_records_outlive_restarts_and_kills(tmp_path: Path) -> None:
    broker = BrokerProcess(tmp_path / "data").start()
    try:
        first = cluster_id(broker)
        with RawClient(broker.host, broker.port) as client:
            topic = RawTopic(client, "kept", partitions=2)
            topic.produce(batch(b"one"))
            topic.produce(batch(b"two"), partition=1)
        for end in (broker.stop, broker.kill):
            end()
            broker.start()
            assert cluster_id(broker) == first
            with RawClient(broker.host, broker.port) as client:
                topic.client = client
                assert values(topic.fetch(offset=0)) == [b"one"]
                assert values(topic.fetch(offset=0, partition=1)) == [b"two"]
    finally:
        broker.close()


def test_a_broker_that_is_stopped_during_a_long_poll_does_not_wait_for_it(tmp_path: Path) -> None:
    with BrokerProcess(tmp_path / "data") as broker, RawClient(broker.host, broker.port) as client:
        topic = RawTopic(client, "polled")
        wanted = topic.fetch_topic(13, FetchPartition(partition_max_bytes=1000))
        request = FetchRequest(topics=[wanted], min_bytes=1, max_wait_ms=600_000, max_bytes=1000)
        client.send_request(ApiKey.FETCH, 13, request)
        assert broker.stop() == 0
        assert client.is_closed()


def test_a_second_broker_on_the_same_directory_is_refused_in_one_sentence(tmp_path: Path) -> None:
    with BrokerProcess(tmp_path / "data") as broker:
        second = start("--listen", "127.0.0.1:0", "--data-dir", tmp_path / "data")
        assert second.returncode == 1
        assert str(tmp_path / "data") in second.stderr
        assert "Traceback" not in second.stderr
        assert cluster_id(broker)


def test_a_port_in_use_is_refused_in_one_sentence_and_leaves_the_data_clean(tmp_path: Path) -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        port = taken.getsockname()[1]
        refused = start("--listen", f"127.0.0.1:{port}", "--data-dir", tmp_path / "data")
    assert refused.returncode == 1
    last = refused.stderr.splitlines()[-1]
    assert f"port {port}" in last
    assert "--listen" in last
    assert "Traceback" not in refused.stderr
    with BrokerProcess(tmp_path / "data") as broker:
        assert "recover" not in broker.log


@pytest.mark.parametrize(
    ("arguments", "code", "words"),
    [
        (["--set", "log.segment.bytes=many"], 1, ["log.segment.bytes", "many"]),
        (["--set", "nonsense"], 2, ["--set", "name=value"]),
        (["--listen", "nowhere"], 2, ["--listen", "HOST:PORT"]),
        (["--metrics", "nowhere"], 2, ["--metrics", "HOST:PORT"]),
        (["--advertise", "here:70000"], 2, ["--advertise", "HOST:PORT"]),
        (["--listen", "no-such-host.invalid:0"], 1, ["no-such-host.invalid", "resolved"]),
        (["no-such-file.properties"], 1, ["no-such-file.properties"]),
    ],
)
def test_what_cannot_be_started_is_told_in_one_sentence(
    tmp_path: Path, arguments: list[str], code: int, words: list[str]
) -> None:
    refused = start(*arguments, "--data-dir", tmp_path / "data")
    assert refused.returncode == code
    assert "Traceback" not in refused.stderr
    for word in words:
        assert word in refused.stderr.splitlines()[-1]


def test_a_directory_that_cannot_be_written_is_told_in_one_sentence(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("in the way")
    refused = start("--listen", "127.0.0.1:0", "--data-dir", tmp_path / "file")
    assert refused.returncode == 1
    assert "Traceback" not in refused.stderr
    assert str(tmp_path / "file") in refused.stderr.splitlines()[-1]


def test_another_brokers_directory_is_refused(tmp_path: Path) -> None:
    with BrokerProcess(tmp_path / "data", options={"broker.id": "5"}):
        pass
    refused = start("--listen", "127.0.0.1:0", "--data-dir", tmp_path / "data", "--set", "broker.id=6")
    assert refused.returncode == 1
    assert "5" in refused.stderr.splitlines()[-1]
    with BrokerProcess(tmp_path / "data") as broker, RawClient(broker.host, broker.port) as client:
        (found,) = client.ask(12, MetadataRequest(topics=[]), MetadataResponse).brokers
        assert found.node_id == 5


def test_an_advertised_address_that_cannot_be_reached_is_warned_about(tmp_path: Path) -> None:
    options = {"advertised.listeners": "PLAINTEXT://no-such-host.invalid:9092"}
    broker = BrokerProcess(tmp_path / "data", options=options)
    broker.start()
    try:
        wait_until(lambda: "no-such-host.invalid" in broker.log and "WARNING" in broker.log)
        assert "--advertise" in broker.log
    finally:
        broker.close()


def test_logs_can_be_json_lines(tmp_path: Path) -> None:
    process = subprocess.Popen(
        [
            sys.executable, "-m", "tidelog.cli.main", "start", "--listen", "127.0.0.1:0",
            "--data-dir", str(tmp_path / "data"), "--log-format", "json",
        ],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )  # fmt: skip
    assert process.stdout is not None
    ready = json.loads(process.stdout.readline())
    process.send_signal(signal.SIGTERM)
    _, errors = process.communicate(timeout=TIMEOUT_S)
    assert process.returncode == 0
    assert ready["event"] == "ready"
    assert ready["address"].startswith("127.0.0.1:")
    lines = [json.loads(line) for line in errors.splitlines()]
    assert {"time", "level", "logger", "message"} <= lines[0].keys()


def test_the_welcome_names_the_address_and_three_commands(tmp_path: Path) -> None:
    process = subprocess.Popen(
        [
            sys.executable, "-m", "tidelog.cli.main", "start", "--listen", "127.0.0.1:0",
            "--data-dir", str(tmp_path / "data"), "--welcome",
        ],
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        text=True,
    )  # fmt: skip
    assert process.stdout is not None
    address = process.stdout.readline().split()[-1]
    process.send_signal(signal.SIGTERM)
    output = process.stdout.read()
    assert process.wait(TIMEOUT_S) == 0
    for command in ("topics create", "produce", "consume"):
        assert re.search(rf"\btidelog {command} ", output)
    assert output.count(address) >= 3
    assert len(output.splitlines()) < 24


def test_a_servers_properties_of_kafka_starts_unchanged(tmp_path: Path) -> None:
    properties = tmp_path / "server.properties"
    properties.write_text(
        "process.roles=broker,controller\n"
        "node.id=1\n"
        "controller.quorum.bootstrap.servers=localhost:9093\n"
        "listeners=PLAINTEXT://127.0.0.1:0,CONTROLLER://127.0.0.1:0\n"
        "inter.broker.listener.name=PLAINTEXT\n"
        "advertised.listeners=PLAINTEXT://127.0.0.1:0\n"
        "controller.listener.names=CONTROLLER\n"
        "listener.security.protocol.map=CONTROLLER:PLAINTEXT,PLAINTEXT:PLAINTEXT,SSL:SSL\n"
        "num.network.threads=3\n"
        "num.io.threads=8\n"
        "socket.send.buffer.bytes=102400\n"
        "socket.receive.buffer.bytes=102400\n"
        "socket.request.max.bytes=104857600\n"
        f"log.dirs={tmp_path / 'logs'}\n"
        "num.partitions=3\n"
        "offsets.topic.replication.factor=1\n"
        "log.retention.hours=168\n"
        "log.segment.bytes=1073741824\n"
        "log.retention.check.interval.ms=300000\n"
    )
    process = subprocess.Popen(
        [sys.executable, "-m", "tidelog.cli.main", "start", str(properties)],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    assert process.stdout is not None
    line = process.stdout.readline()
    process.send_signal(signal.SIGTERM)
    _, errors = process.communicate(timeout=TIMEOUT_S)
    assert "ready" in line, errors
    assert process.returncode == 0
    assert sum("have no effect" in each for each in errors.splitlines()) == 1


def test_a_failed_directory_goes_offline_alone(tmp_path: Path) -> None:
    dirs = [tmp_path / "one", tmp_path / "two"]
    broker = BrokerProcess(tmp_path / "data", options={"log.dirs": ",".join(map(str, dirs))})
    with broker, RawClient(broker.host, broker.port) as client:
        topic = RawTopic(client, "spread", partitions=2, segment_bytes="1048576")
        # The first directory has the metadata as well; it is the second that breaks.
        lost = 0 if (dirs[1] / "spread-0").exists() else 1
        half_a_segment = batch(bytes(600_000))
        for partition in range(2):
            assert topic.produce(half_a_segment, partition=partition).error_code == 0
        shutil.rmtree(dirs[1])
        assert topic.produce(half_a_segment, partition=lost).error_code == ErrorCode.KAFKA_STORAGE_ERROR
        assert topic.produce(half_a_segment, partition=lost).error_code == ErrorCode.KAFKA_STORAGE_ERROR
        assert topic.fetch(partition=lost).error_code == ErrorCode.KAFKA_STORAGE_ERROR
        assert topic.produce(half_a_segment, partition=1 - lost).base_offset == 1
        assert len(values(topic.fetch(partition=1 - lost, offset=1))) == 1
        assert broker.log.count("is offline") == 1
        assert broker.stop() == 0


def test_a_broker_without_any_directory_left_stops_with_one_sentence(tmp_path: Path) -> None:
    with BrokerProcess(tmp_path / "data") as broker:
        with RawClient(broker.host, broker.port) as client:
            topic = RawTopic(client, "doomed", segment_bytes="1048576")
            topic.produce(batch(bytes(600_000)))
            shutil.rmtree(tmp_path / "data")
            assert topic.produce(batch(bytes(600_000))).error_code == ErrorCode.KAFKA_STORAGE_ERROR
        assert broker._running().wait(TIMEOUT_S) == 1
        assert "Traceback" not in broker.log
        assert "no log directory is left" in broker.log.splitlines()[-1]
