"""`tidelog transactions` as a person runs it, with transactions of real clients and one that hangs."""

from __future__ import annotations

import os
import time
import uuid
from collections.abc import Callable, Iterator

import pytest
from confluent_kafka import KafkaException, Producer
from tests.integration.command_line import WAIT_S, CommandLine
from tests.rigs.group_members.topics import create
from tests.rigs.raw_client import RawClient

from tidelog.records.record import Record, encode_batch
from tidelog.testing.broker_process import BrokerProcess
from tidelog.wire.messages.produce import (
    PartitionProduceData,
    ProduceRequest,
    ProduceResponse,
    TopicProduceData,
)

NewName = Callable[[], str]
UNKNOWN_PRODUCER = 424_242


@pytest.fixture
def tidelog(bootstrap: str) -> CommandLine:
    return CommandLine(bootstrap)


@pytest.fixture
def topic(bootstrap: str, topic_name: NewName) -> str:
    name = topic_name()
    create(bootstrap, name, 2)
    return name


def open_transaction(bootstrap: str, transactional_id: str, topic: str) -> Producer:
    """A producer with an open transaction that has one record in each of two partitions."""
    producer = Producer(
        {
            "bootstrap.servers": bootstrap,
            "transactional.id": transactional_id,
            "transaction.timeout.ms": 300_000,
        }
    )
    producer.init_transactions(30)
    producer.begin_transaction()
    for partition in (0, 1):
        producer.produce(topic, b"in a transaction", partition=partition)
    assert producer.flush(30) == 0
    return producer


def consumed(tidelog: CommandLine, topic: str) -> str:
    return tidelog.ok("consume", topic, "--from-beginning", "--until-end", "--isolation", "read_committed")


def test_an_open_transaction_is_listed_and_described_until_it_ends(
    tidelog: CommandLine, bootstrap: str, topic: str
) -> None:
    producer = open_transaction(bootstrap, topic, topic)
    [listed] = tidelog.json("transactions", "list", "--pattern", f"{topic[:-2]}.*", "--state", "ongoing")
    assert (listed["transactional_id"], listed["state"]) == (topic, "Ongoing")
    number = str(listed["producer_id"])
    assert f"{topic}\tOngoing\t{number}\t" in tidelog.ok("transactions", "list", "--producer-id", number)
    assert tidelog.json("transactions", "list", "--longer-than", "P1D", "--pattern", topic) == []
    assert len(tidelog.json("transactions", "list", "--longer-than", "0", "--pattern", topic)) == 1

    [found] = tidelog.json("transactions", "describe", topic)
    assert found["partitions"] == [{"topic": topic, "partition": 0}, {"topic": topic, "partition": 1}]
    assert (found["state"], found["timeout_ms"], found["producer_id"]) == ("Ongoing", 300_000, int(number))
    assert abs(found["start_time_ms"] - time.time() * 1000) < 300_000
    [known] = tidelog.json("transactions", "describe-producers", topic, "0")
    assert (known["producer_id"], known["transaction_start_offset"]) == (int(number), 0)
    assert tidelog.json("transactions", "find-hanging", "--topic", topic, "--idle", "0") == []

    producer.commit_transaction(30)
    [found] = tidelog.wait_for(
        lambda found: found[0]["state"] == "CompleteCommit", "transactions", "describe", topic
    )
    assert found["partitions"] == []
    assert tidelog.json("transactions", "list", "--longer-than", "0", "--pattern", topic) == []
    [known] = tidelog.json("transactions", "describe-producers", topic, "0")
    assert known["transaction_start_offset"] is None
    assert "no open transaction" in tidelog.refusal("transactions", "abort", "--transactional-id", topic)


def test_a_transaction_is_aborted_by_its_id_and_its_producer_fenced(
    tidelog: CommandLine, bootstrap: str, topic: str
) -> None:
    producer = open_transaction(bootstrap, topic, topic)
    code, seen = tidelog.on_terminal("transactions", "abort", "--transactional-id", topic, typed=b"n\n")
    assert code == 1
    assert "Abort it and fence its producer?" in seen
    [found] = tidelog.json("transactions", "describe", topic)
    assert found["state"] == "Ongoing"

    done = tidelog.ok("transactions", "abort", "--transactional-id", topic)
    assert done.splitlines()[-1] == f"aborted the transaction of {topic}"
    [found] = tidelog.json("transactions", "describe", topic)
    assert (found["partitions"], found["timeout_ms"]) == ([], 300_000)
    assert consumed(tidelog, topic) == ""
    with pytest.raises(KafkaException) as fenced:
        producer.commit_transaction(30)
    assert fenced.value.args[0].fatal() or "FENCED" in fenced.value.args[0].name()


def test_what_does_not_exist_is_one_sentence(tidelog: CommandLine, topic: str) -> None:
    for command in (("describe", topic), ("abort", "--transactional-id", topic)):
        refused = tidelog.refusal("transactions", *command)
        assert f"transactional id {topic!r} does not exist" in refused
        assert "`tidelog transactions list`" in refused
    assert topic not in [each["transactional_id"] for each in tidelog.json("transactions", "list")]
    assert "no partition 9" in tidelog.refusal("transactions", "describe-producers", topic, "9")
    place = ("--topic", topic, "--partition", "0")
    refused = tidelog.refusal("transactions", "abort", *place, "--start-offset", "7")
    assert "no open transaction starts at offset 7" in refused
    assert "does not exist" in tidelog.refusal("transactions", "find-hanging", "--topic", f"{topic}-none")
    assert "no broker 99" in tidelog.refusal("transactions", "find-hanging", "--broker", "99")


def test_a_transaction_that_its_coordinator_knows_can_be_ended_in_one_partition_with_a_warning(
    tidelog: CommandLine, bootstrap: str, topic: str
) -> None:
    producer = open_transaction(bootstrap, topic, topic)
    done = tidelog("transactions", "abort", "--topic", topic, "--partition", "1", "--start-offset", "0")
    assert done.returncode == 0, done
    assert f"the transaction is not hanging: transactional id {topic!r} has it open" in done.stderr
    [known] = tidelog.json("transactions", "describe-producers", topic, "1")
    assert known["transaction_start_offset"] is None
    producer.abort_transaction(30)


@pytest.fixture
def careless_bootstrap(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """A broker that does not ask the coordinator whether a transaction may write (Kafka before KIP-890)."""
    option = "transaction.partition.verification.enable"
    foreign = os.environ.get("TIDELOG_TEST_BOOTSTRAP")
    if foreign:
        CommandLine(foreign).ok("configs", "alter", "--broker-defaults", "--set", f"{option}=false")
        yield foreign
        CommandLine(foreign).ok("configs", "alter", "--broker-defaults", "--delete", option)
        return
    with BrokerProcess(tmp_path_factory.mktemp("careless") / "data", options={option: "false"}) as broker:
        yield broker.bootstrap


def write_hanging(bootstrap: str, topic: str, *, producer_id: int) -> None:
    """A record of a transaction that no coordinator has heard of, as a late one from before a crash."""
    batch = encode_batch(
        [Record(timestamp=round(time.time() * 1000) - 60_000, value=b"hanging")],
        producer_id=producer_id,
        producer_epoch=3,
        base_sequence=0,
        transactional=True,
    )
    request = ProduceRequest(
        transactional_id="lost",
        acks=-1,
        timeout_ms=30_000,
        topic_data=[
            TopicProduceData(name=topic, partition_data=[PartitionProduceData(index=1, records=batch)])
        ],
    )
    host, _, port = bootstrap.rpartition(":")
    deadline = time.monotonic() + WAIT_S
    with RawClient(host, int(port)) as client:
        # Apache Kafka answers before the option has reached all of it.
        while client.ask(11, request, ProduceResponse).responses[0].partition_responses[0].error_code:
            assert time.monotonic() < deadline


def test_a_hanging_transaction_is_found_and_ended(careless_bootstrap: str) -> None:
    tidelog, topic = CommandLine(careless_bootstrap), f"hanging-{uuid.uuid4().hex[:8]}"
    create(careless_bootstrap, topic, 2)
    # One whose coordinator knows it, beside it, must be left alone.
    producer = open_transaction(careless_bootstrap, topic, topic)
    write_hanging(careless_bootstrap, topic, producer_id=UNKNOWN_PRODUCER)
    search = ("transactions", "find-hanging", "--idle", "PT1S")
    for scope in ((), ("--topic", topic), ("--topic", topic, "--partition", "1")):
        found = [each for each in tidelog.json(*search, *scope) if each["topic"] == topic]
        assert [(each["partition"], each["producer_id"]) for each in found] == [(1, UNKNOWN_PRODUCER)]
    assert tidelog.json(*search, "--topic", topic, "--partition", "0") == []
    assert tidelog.json("transactions", "find-hanging", "--idle", "PT1H", "--topic", topic) == []
    [found] = tidelog.json(*search, "--topic", topic)
    assert (found["start_offset"], found["producer_epoch"], found["coordinator_epoch"]) == (1, 3, None)

    code, seen = tidelog.on_terminal(*search, "--topic", topic)
    assert code == 0
    mend = f"transactions abort --topic {topic} --partition 1 --start-offset 1"
    assert f"abort one with `tidelog {mend}`" in seen.replace("\n", " ")

    code, seen = tidelog.on_terminal(*mend.split(), typed=b"y\n")
    assert code == 0
    assert "bypassing the coordinator?" in seen
    assert f"aborted the transaction in {topic}-1" in seen
    assert tidelog.json(*search, "--topic", topic) == []
    producer.commit_transaction(30)
    assert consumed(tidelog, topic) == "in a transaction\n" * 2


def test_a_hanging_transaction_is_ended_by_its_producer_on_old_brokers(careless_bootstrap: str) -> None:
    tidelog, topic = CommandLine(careless_bootstrap), f"hanging-{uuid.uuid4().hex[:8]}"
    create(careless_bootstrap, topic, 2)
    write_hanging(careless_bootstrap, topic, producer_id=UNKNOWN_PRODUCER + 1)
    place = ("transactions", "abort", "--topic", topic, "--partition", "1")
    producer = ("--producer-id", str(UNKNOWN_PRODUCER + 1), "--coordinator-epoch", "-1")
    refused = tidelog.refusal(*place, *producer, "--producer-epoch", "2")
    assert "INVALID_PRODUCER_EPOCH" in refused or "invalid producer epoch" in refused
    assert tidelog.ok(*place, *producer, "--producer-epoch", "3").endswith(
        f"aborted the transaction in {topic}-1\n"
    )
    assert consumed(tidelog, topic) == ""
