"""`tidelog produce` and `tidelog consume` as a person runs them, against a running broker."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from tidelog.testing.broker_process import BrokerProcess

NewName = Callable[[], str]
PIPE_BYTES = 65_536


class CommandLine:
    """Runs ``tidelog`` as a process of its own."""

    def __init__(self, bootstrap: str) -> None:
        self._environment = {**os.environ, "TIDELOG_BOOTSTRAP": bootstrap, "PYTHONUNBUFFERED": "1"}

    def start(self, *arguments: str) -> subprocess.Popen[bytes]:
        return subprocess.Popen(
            [sys.executable, "-m", "tidelog", *arguments],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            env=self._environment,
        )

    def __call__(self, *arguments: str, stdin: bytes = b"") -> tuple[int, bytes, str]:
        with self.start(*arguments) as process:
            out, err = process.communicate(stdin, timeout=60)
        return process.returncode, out, err.decode()

    def produce(self, topic: str, stdin: bytes, *arguments: str) -> None:
        code, _, err = self("produce", topic, *arguments, stdin=stdin)
        assert code == 0, err

    def consume(self, topic: str, *arguments: str) -> bytes:
        code, out, err = self("consume", topic, "--until-end", *arguments)
        assert (code, err) == (0, "")
        return out

    def consume_json(self, topic: str, *arguments: str) -> list[dict[str, Any]]:
        return [json.loads(line) for line in self.consume(topic, "--json", *arguments).splitlines()]


@pytest.fixture
def tidelog(bootstrap: str) -> CommandLine:
    return CommandLine(bootstrap)


@pytest.fixture
def topic(tidelog: CommandLine, topic_name: NewName) -> str:
    return new_topic(tidelog, topic_name())


def new_topic(tidelog: CommandLine, name: str) -> str:
    """A topic whose records may be as old as they like."""
    assert tidelog("topics", "create", name, "--partitions", "2", "--config", "retention.ms=-1")[0] == 0
    return name


def test_lines_come_back_as_they_went_in(tidelog: CommandLine, topic: str) -> None:
    lines = b"one\n\xff\x00\xfe binary\n\nlast"
    tidelog.produce(topic, lines, "--partition", "1")
    assert tidelog.consume(topic, "--from-beginning") == lines + b"\n"


def test_every_codec_and_acks_round_trip(tidelog: CommandLine, topic: str) -> None:
    lines = b"".join(b"line %d of many\n" % number for number in range(300))
    for codec, acks in (("none", "all"), ("gzip", "1"), ("snappy", "all"), ("lz4", "1"), ("zstd", "all")):
        tidelog.produce(topic, lines, "--codec", codec, "--acks", acks, "-p", "0")
    assert tidelog.consume(topic, "--from-beginning") == lines * 5


def test_producing_ends_in_peace_when_the_reader_of_its_report_has_gone(
    tidelog: CommandLine, topic: str, tmp_path: Path
) -> None:
    lines = tmp_path / "lines.txt"
    lines.write_bytes(b"x\n" * 20_000)
    with tidelog.start("produce", topic, "-v", "-p", "0", "--file", str(lines)) as producer:
        assert producer.stdout is not None
        assert producer.stderr is not None
        assert producer.stdout.readline().decode() == f"{topic}\t0\t0\n"
        producer.stdout.close()
        assert producer.stderr.read() == b""
        assert producer.wait(30) == 0


def test_keys_headers_nulls_and_timestamps(tidelog: CommandLine, topic: str) -> None:
    options = (
        "--key-separator",
        r"\t",
        "--null",
        "NULL",
        "-H",
        "h=1",
        "-H",
        "h=2",
        "--timestamp",
        "1970-01-01T00:00:09Z",
    )
    tidelog.produce(topic, b"a\tone\nb\tNULL\nNULL\tthree\n", "-p", "0", *options)
    text = tidelog.consume(topic, "--from-beginning", "--key", "--headers", "--meta", "--separator", "|")
    assert text.decode().splitlines() == [
        "0|0|1970-01-01T00:00:09.000Z|h=1,h=2|a|one",
        "0|1|1970-01-01T00:00:09.000Z|h=1,h=2|b|null",
        "0|2|1970-01-01T00:00:09.000Z|h=1,h=2|null|three",
    ]


def test_a_topic_is_copied_through_json_byte_for_byte(
    tidelog: CommandLine, topic: str, topic_name: NewName, tmp_path: Path
) -> None:
    records = [
        {"key": "k", "value": "v", "partition": 1, "timestamp": 5, "headers": [{"key": "a", "value": "b"}]},
        {"key_base64": "/w==", "value_base64": "/v8=", "partition": 0, "timestamp": 6},
        {"key": None, "value": None, "partition": 1, "timestamp": 7, "headers": {"x": None}},
    ]
    source = tmp_path / "records.jsonl"
    source.write_text("\n".join(json.dumps(record) for record in records) + "\n\n")
    tidelog.produce(topic, b"", "--json", "--file", str(source))
    copy = new_topic(tidelog, topic_name())
    tidelog.produce(copy, tidelog.consume(topic, "--json", "--from-beginning"), "--json")

    def content(name: str) -> list[dict[str, Any]]:
        found = [{**each, "topic": ""} for each in tidelog.consume_json(name, "--from-beginning")]
        return sorted(found, key=lambda each: (each["partition"], each["offset"]))

    assert content(copy) == content(topic)
    assert (
        content(topic)[0] | {"key_base64": "/w==", "value_base64": "/v8=", "timestamp": 6}
        == content(topic)[0]
    )


def test_reading_starts_where_it_was_told_to(tidelog: CommandLine, topic: str) -> None:
    lines = b"".join(b'{"value": "%d", "timestamp": %d}\n' % (n, 1000 + n) for n in range(5))
    tidelog.produce(topic, lines, "--json", "-p", "0")

    def read(*where: str) -> bytes:
        return tidelog.consume(topic, *where).replace(b"\n", b"")

    assert read("--offset", "earliest") == b"01234"
    assert read("--offset", "3", "-p", "0") == b"34"
    assert read("--offset", "-2") == b"34"
    assert read("--offset", "-99") == b"01234"
    assert read("--offset", "@1002") == b"234"
    assert read("--offset", "@9000") == b""
    assert read("--offset", "latest") == b""
    assert read("--from-beginning", "--max-messages", "2") == b"01"
    assert read("--from-beginning", "-p", "1") == b""


def test_the_timeout_ends_a_quiet_topic(tidelog: CommandLine, topic: str) -> None:
    tidelog.produce(topic, b"x\n", "-p", "0")
    assert tidelog("consume", topic, "--from-beginning", "--timeout", "0.2") == (0, b"x\n", "")


def test_following_prints_records_as_they_come_and_ctrl_c_counts_them(
    tidelog: CommandLine, topic: str
) -> None:
    with tidelog.start("consume", topic, "--from-beginning") as consumer:
        assert consumer.stdout is not None
        assert consumer.stderr is not None
        for number in (1, 2):
            tidelog.produce(topic, b"%d\n" % number, "-p", "0")
            assert consumer.stdout.readline() == b"%d\n" % number
        consumer.send_signal(signal.SIGINT)
        assert consumer.stdout.read() == b""
        assert consumer.stderr.read().decode() == f"2 records read from {topic}\n"
        assert consumer.wait(30) == 0


def test_a_reader_that_goes_away_ends_a_following_consumer_quietly(tidelog: CommandLine, topic: str) -> None:
    tidelog.produce(topic, b"1\n2\n", "-p", "0")
    with tidelog.start("consume", topic, "--from-beginning") as consumer:
        assert consumer.stdout is not None
        assert consumer.stderr is not None
        assert consumer.stdout.readline() == b"1\n"
        consumer.stdout.close()
        assert consumer.stderr.read() == b""
        assert consumer.wait(30) == 0


def test_verbose_tells_where_each_record_went(tidelog: CommandLine, topic: str) -> None:
    code, out, err = tidelog("produce", topic, "-v", "--round-robin", stdin=b"a\nb\nc\n")
    assert (code, err) == (0, f"3 records written to {topic}\n")
    assert sorted(out.decode().splitlines()) == [f"{topic}\t0\t0", f"{topic}\t0\t1", f"{topic}\t1\t0"]


def test_equal_keys_go_to_the_partition_that_other_clients_choose(
    tidelog: CommandLine, topic: str, bootstrap: str
) -> None:
    from confluent_kafka import Producer

    keys = [b"key-%d" % number for number in range(20)]
    tidelog.produce(topic, b"".join(key + b":cli\n" for key in keys), "--key-separator", ":")
    producer = Producer({"bootstrap.servers": bootstrap, "partitioner": "murmur2_random"})
    for key in keys:
        producer.produce(topic, b"foreign", key=key)
    assert producer.flush(30) == 0
    records = tidelog.consume_json(topic, "--from-beginning")
    placed = {
        value: {each["key"]: each["partition"] for each in records if each["value"] == value}
        for value in ("cli", "foreign")
    }
    assert len(placed["cli"]) == 20
    assert placed["cli"] == placed["foreign"]


def test_writing_creates_the_topic_where_the_broker_does_so(
    tidelog: CommandLine, topic_name: NewName
) -> None:
    name = topic_name()
    tidelog.produce(name, b"first\n")
    assert tidelog.consume(name, "--from-beginning") == b"first\n"


def test_refusals_name_the_mend(tidelog: CommandLine, topic: str, topic_name: NewName) -> None:
    def refusal(*arguments: str, stdin: bytes = b"") -> str:
        code, out, err = tidelog(*arguments, stdin=stdin)
        assert (code, out) == (1, b"")
        assert err.startswith("error: ")
        assert len(err.splitlines()) == 1
        return err

    assert "does not exist" in refusal("consume", topic_name())
    assert "no partition 7, only 0 to 1" in refusal("consume", topic, "-p", "7")
    assert "has offsets 0 to 0, not 99" in refusal("consume", topic, "-o", "99", "-p", "0")
    assert "no partition 7, only 0 to 1" in refusal("produce", topic, "-p", "7", stdin=b"x\n")
    assert "line 2: no key separator ':' in the line" in refusal(
        "produce", topic, "--key-separator", ":", stdin=b"a:b\nc\n"
    )
    assert "(1 record written before it)" in refusal(
        "produce", topic, "--key-separator", ":", stdin=b"a:b\nc\n"
    )
    assert "line 1: invalid JSON" in refusal("produce", topic, "--json", stdin=b"{")
    assert 'no "value"' in refusal("produce", topic, "--json", stdin=b'{"key": "k"}')
    assert "max.message.bytes" in refusal("produce", topic, stdin=b"x" * 3_000_000)
    assert "no such file" in refusal("produce", topic, "--file", "/nonexistent/records")
    assert "does not exist" in refusal("consume", topic_name(), "--group", topic)


def test_groups_have_their_own_idea_of_partitions_and_offsets(tidelog: CommandLine, topic: str) -> None:
    for arguments in (("--partition", "0"), ("--offset", "5"), ("--offset", "@0")):
        code, _, err = tidelog("consume", topic, "--group", topic, *arguments)
        assert (code, err.startswith("error: a group ")) == (2, True), err


def test_a_group_goes_on_where_it_has_got_to(group_bootstrap: str, topic_name: NewName) -> None:
    tidelog = CommandLine(group_bootstrap)
    topic = new_topic(tidelog, topic_name())

    def read(*arguments: str) -> list[bytes]:
        code, out, err = tidelog("consume", topic, "--group", topic, "--from-beginning", *arguments)
        assert (code, err) == (0, "")
        return sorted(out.split())

    tidelog.produce(topic, b"1\n2\n3\n", "-p", "0")
    tidelog.produce(topic, b"4\n", "-p", "1")
    assert read("--until-end") == [b"1", b"2", b"3", b"4"]
    tidelog.produce(topic, b"5\n6\n7\n", "-p", "0")
    assert read("--max-messages", "2") == [b"5", b"6"]
    assert read("--until-end") == [b"7"]
    assert read("--timeout", "0.2") == []


def test_a_group_commits_nothing_that_could_not_be_printed(group_bootstrap: str, topic_name: NewName) -> None:
    tidelog, topic = CommandLine(group_bootstrap), topic_name()
    tidelog.produce(topic, b"".join(b"%d\n" % number for number in range(40_000)), "-p", "0")
    options = ("--group", topic, "--from-beginning", "--consumer-property", "max.poll.records=5")
    with tidelog.start("consume", topic, *options) as consumer:
        assert consumer.stdout is not None
        assert consumer.stderr is not None
        printed = consumer.stdout.readline()
        consumer.stdout.close()
        assert consumer.stderr.read() == b""
        assert consumer.wait(30) == 0
    assert printed == b"0\n"
    # Of what is in the pipe nobody knows who has read it; nothing behind that may be missing.
    rest = [int(each) for each in tidelog.consume(topic, *options[:3]).split()]
    assert rest == list(range(rest[0], 40_000))
    assert sum(len(b"%d\n" % number) for number in range(rest[0])) <= 2 * PIPE_BYTES


def test_reading_without_a_group_leaves_no_trace(tidelog: CommandLine, topic: str, tmp_path: Path) -> None:
    config = tmp_path / "consumer.properties"
    config.write_text(f"group.id={topic}\nenable.auto.commit=true\nfetch.max.wait.ms=10\n")
    tidelog.produce(topic, b"1\n", "-p", "0")
    read = tidelog.consume(topic, "--from-beginning", "--command-config", str(config))
    assert read == b"1\n"
    assert topic not in tidelog("groups", "list")[1].decode()


def test_aborted_records_are_left_out_if_told_to(tidelog: CommandLine, topic: str, bootstrap: str) -> None:
    from tidelog import Producer

    with Producer(bootstrap_servers=bootstrap, transactional_id=topic) as producer:
        producer.init_transactions()
        for value, commit in ((b"kept", True), (b"aborted", False)):
            producer.begin_transaction()
            producer.send(topic, value, partition=0).result(30)
            (producer.commit_transaction if commit else producer.abort_transaction)()
    assert tidelog.consume(topic, "--from-beginning") == b"kept\naborted\n"
    for option in ("--isolation", "--isolation-level"):
        assert tidelog.consume(topic, "--from-beginning", option, "read_committed") == b"kept\n"
    as_property = ("--consumer-property", "isolation.level=read_committed")
    assert tidelog.consume(topic, "--from-beginning", *as_property) == b"kept\n"


def test_records_are_written_idempotently_unless_acks_say_otherwise(
    tidelog: CommandLine, topic: str, bootstrap: str
) -> None:
    from tidelog import Admin, TopicPartition

    at = {"all": TopicPartition(topic, 0), "1": TopicPartition(topic, 1)}
    for acks, place in at.items():
        tidelog.produce(topic, b"x\n", "-p", str(place.partition), "--acks", acks)
    with Admin(bootstrap_servers=bootstrap) as admin:
        found = admin.describe_producers(list(at.values()))
    assert len(found[at["all"]].producers) == 1
    assert not found[at["1"]].producers


def test_options_of_the_client_come_from_the_command_line_before_the_file(
    tidelog: CommandLine, topic: str, tmp_path: Path
) -> None:
    config = tmp_path / "producer.properties"
    config.write_text("max.request.size=1000\nacks=1\n")
    line = b"x" * 2000 + b"\n"
    from_file = ("--command-config", str(config))
    code, _, err = tidelog("produce", topic, *from_file, stdin=line)
    assert code == 1
    assert "larger than max.request.size=1000" in err
    tidelog.produce(topic, line, *from_file, "--producer-property", "max.request.size=5000")
    code, _, err = tidelog("produce", topic, "--producer-property", "linger=5", stdin=line)
    assert (code, err) == (1, "error: a producer has no option linger; did you mean linger.ms?\n")


def test_a_cluster_or_topic_that_is_not_there_is_said_at_once(topic_name: NewName) -> None:
    nowhere = CommandLine("127.0.0.1:1")
    for arguments in (("produce", "x"), ("consume", "x"), ("consume", "x", "--group", "g")):
        code, out, err = nowhere(*arguments, stdin=b"x\n")
        assert (code, out) == (1, b"")
        assert "127.0.0.1:1" in err
        assert len(err.splitlines()) == 1


def test_a_topic_that_nobody_may_create_is_said_soon(tmp_path: Path) -> None:
    with BrokerProcess(tmp_path / "data", options={"auto.create.topics.enable": "false"}) as broker:
        tidelog = CommandLine(broker.bootstrap)
        for arguments in (("produce", "x"), ("consume", "x"), ("consume", "x", "--group", "g")):
            code, _, err = tidelog(*arguments, stdin=b"x\n")
            assert (code, err.startswith("error: topic 'x' does not exist")) == (1, True), err


def test_following_goes_on_after_the_broker_was_killed_and_came_back(tmp_path: Path) -> None:
    with BrokerProcess(tmp_path / "data") as broker:
        tidelog = CommandLine(broker.bootstrap)
        tidelog.produce("orders", b"before\n")
        with tidelog.start("consume", "orders", "--from-beginning") as consumer:
            assert consumer.stdout is not None
            assert consumer.stderr is not None
            assert consumer.stdout.readline() == b"before\n"
            broker.kill()
            broker.start()
            tidelog.produce("orders", b"after\n")
            assert consumer.stdout.readline() == b"after\n"
            consumer.send_signal(signal.SIGINT)
            *warnings, count = consumer.stderr.read().splitlines()
            assert count == b"2 records read from orders"
            # How many depends on when the attempts to connect were made.
            gone = f"cannot connect to {broker.bootstrap}: ".encode()
            assert all(line.startswith(gone) for line in warnings)
            assert consumer.wait(30) == 0
