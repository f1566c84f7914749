"""Transaction logs change hands: Kafka's tools read ours, Tidelog goes on with Kafka's, Kafka with ours.

All brokers are told the same history, by clients of both transaction versions: transactions that ended
either way, empty ones, one that is open in two partitions and a group, fenced lives of one id.
"""

from __future__ import annotations

import re
import shutil
import subprocess
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from foreign.apache_kafka import ApacheKafka
from foreign.broker_process import BrokerProcess, Tidelog
from tests.compat.conftest import available
from tests.compat.side_by_side.side import Side
from tests.compat.side_by_side.transaction_requests import Producer, log_of, transactions
from tests.rigs.exactly_once.producers import Confluent, read, wait_until

from tidelog.records.batch import iter_batches
from tidelog.records.record import decode_batch
from tidelog.wire.codec import decode
from tidelog.wire.internal_topics.transaction_state import TransactionLogKey, TransactionLogValue
from tidelog.wire.messages.list_transactions import ListTransactionsRequest

Tool = Callable[..., subprocess.CompletedProcess[str]]

OPTIONS = {
    "offsets.topic.num.partitions": "1",
    "offsets.topic.replication.factor": "1",
    "transaction.state.log.num.partitions": "1",
    "transaction.state.log.replication.factor": "1",
    "transaction.state.log.min.isr": "1",
    "transaction.abort.timed.out.transaction.cleanup.interval.ms": "200",
}
LOG = "__transaction_state-0"
STATUS = {"Empty": 0, "Ongoing": 1, "CompleteCommit": 4, "CompleteAbort": 5}
STATES = {
    "committed-tv1": "CompleteCommit",
    "aborted-tv1": "CompleteAbort",
    "committed-tv2": "CompleteCommit",
    "aborted-tv2": "CompleteAbort",
    "fresh": "Empty",
    "lives": "Empty",
    "open": "Ongoing",
}


def sided(broker: BrokerProcess) -> Side:
    return Side(broker.label, "127.0.0.1", broker.port).prepare(coordinators=True).begin("h")


def write(side: Side) -> None:
    """The history; topics and ids begin with ``h-``."""
    topic = side.topic("t", 2)
    for tv in ("tv1", "tv2"):
        for end in ("committed", "aborted"):
            producer = Producer(side, f"{end}-{tv}", tv).begun()
            for _ in range(2):
                producer.write(topic)
                producer.end(end == "committed")
                producer.settled()
    Producer(side, "fresh").begun()
    for _ in range(3):
        Producer(side, "lives").begun()
    holder = Producer(side, "open", "tv1").begun(transaction_timeout_ms=600_000)
    for partition in range(2):
        holder.sequence = 0
        holder.write(topic, partition=partition)
    holder.add_offsets("h-group")
    holder.commit_offsets("h-group", topic)


def states(side: Side) -> dict[str, str]:
    answer = side.expect(2, ListTransactionsRequest())
    return {
        each.transactional_id.removeprefix("h-"): each.transaction_state
        for each in answer.transaction_states  # type: ignore[attr-defined]
        if each.transactional_id.startswith("h-")
    }


@pytest.fixture(scope="module")
def ours(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Tidelog]:
    tidelog = Tidelog(tmp_path_factory.mktemp("tidelog"), OPTIONS)
    tidelog.start()
    write(sided(tidelog))
    yield tidelog
    tidelog.kill()


@pytest.fixture(scope="module")
def kafkas(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ApacheKafka]:
    with available():
        kafka = ApacheKafka(tmp_path_factory.mktemp("kafka"), OPTIONS)
        kafka.start()
    write(sided(kafka))
    yield kafka
    kafka.kill()


def transaction_log(directory: Path) -> list[tuple[object, ...]]:
    """Key and value of every record, field by field; times are told only as there or not."""
    found: list[tuple[object, ...]] = []
    for path in sorted((directory / LOG).glob("*.log")):
        raw = path.read_bytes()
        for pos, header in iter_batches(raw):
            assert header.producer_id == -1
            for record in decode_batch(raw[pos : pos + header.size_bytes]):
                assert record.key is not None
                key, _ = decode(TransactionLogKey, 0, record.key, 2)
                name = key.transactional_id
                if not name.startswith("h-"):
                    continue
                assert record.value is not None
                version = int.from_bytes(record.value[:2], "big")
                value, end = decode(TransactionLogValue, version, record.value, 2)
                assert end == len(record.value)
                fields = {each.name: getattr(value, each.name) for each in value.FIELDS}
                partitions = fields.pop("transaction_partitions")
                named = partitions and sorted((each.topic, tuple(each.partition_ids)) for each in partitions)
                shown = {n: v > 0 if n.endswith("timestamp_ms") else v for n, v in fields.items()}
                found.append((name, record.key[:2], version, tuple(shown.items()), named))
    return found


def without_producer_ids(log: list[tuple[object, ...]]) -> list[tuple[object, ...]]:
    """Ids in the order in which they appear: another broker counts from elsewhere."""
    numbers: dict[object, int] = {-1: -1}
    found: list[tuple[object, ...]] = []
    for name, key, version, fields, partitions in log:
        assert isinstance(fields, tuple)
        named = {
            n: numbers.setdefault(v, len(numbers)) if n.endswith("producer_id") else v for n, v in fields
        }
        found.append((name, key, version, named, partitions))
    return found


def test_the_same_history_is_the_same_transaction_log(ours: Tidelog, kafkas: ApacheKafka) -> None:
    mine = without_producer_ids(transaction_log(ours.data_dir))
    theirs = without_producer_ids(transaction_log(kafkas.data_dir))
    for at, (one, other) in enumerate(zip(mine, theirs, strict=False)):
        assert one == other, f"record {at}"
    assert len(mine) == len(theirs)


def test_dump_log_segments_decodes_our_transaction_log(ours: Tidelog, kafka_tool: Tool) -> None:
    files = ",".join(str(path) for path in sorted((ours.data_dir / LOG).glob("*.log")))
    done = kafka_tool("org.apache.kafka.tools.DumpLogSegments", "--transaction-log-decoder", "--files", files)
    assert done.returncode == 0, done.stdout + done.stderr
    assert "rror" not in done.stdout + done.stderr
    for stem, state in STATES.items():
        ours_of = [line for line in done.stdout.splitlines() if re.search(rf'Id(=|":")h-{stem}[" ]', line)]
        assert re.search(rf'state={state}\b|"transactionStatus":{STATUS[state]}\b', ours_of[-1]), ours_of[-1]


def test_kafka_transactions_lists_describes_and_finds(ours: Tidelog, kafka_tool: Tool) -> None:
    def run(*arguments: str) -> str:
        done = kafka_tool(
            "org.apache.kafka.tools.TransactionsCommand", "--bootstrap-server", ours.address, *arguments
        )
        assert done.returncode == 0, done.stdout + done.stderr
        return done.stdout

    listed = dict(re.findall(r"^h-(\S+)\s+\d+\s+\d+\s+(\w+)", run("list"), re.MULTILINE))
    assert listed == STATES
    described = run("describe", "--transactional-id", "h-open")
    assert re.search(r"Ongoing", described)
    assert "h-t-0" in described
    assert "h-t-1" in described
    producers = run("describe-producers", "--topic", "h-t", "--partition", "1")
    assert len(re.findall(r"^\d+", producers, re.MULTILINE)) == 1, producers
    hanging = run("find-hanging", "--broker-id", "1", "--max-transaction-timeout", "0")
    assert "h-t" not in hanging, hanging


def test_kafka_transactions_aborts_a_hanging_transaction(kafka_tool: Tool, tmp_path: Path) -> None:
    """One that its coordinator has forgotten: the markers are written by the tool itself."""
    tidelog = Tidelog(tmp_path, OPTIONS)
    tidelog.start()
    try:
        side = sided(tidelog)
        topic = side.topic("t")
        Producer(side, "hanging", "tv1").begun().write(topic)
        done = kafka_tool(
            *("org.apache.kafka.tools.TransactionsCommand", "--bootstrap-server", tidelog.address),
            *("abort", "--topic", topic, "--partition", "0", "--start-offset", "0"),
        )
        assert done.returncode == 0, done.stdout + done.stderr
        shown = log_of(side, topic)["stable end"]
        assert isinstance(shown, dict)
        assert shown["topics"][0]["partitions"][0]["offset"] == 2
        assert read(tidelog.address, topic) == []
    finally:
        tidelog.kill()


def test_tidelog_goes_on_with_kafkas_transactions(kafkas: ApacheKafka, tmp_path: Path) -> None:
    before = {stem: transactions(sided(kafkas), f"h-{stem}") for stem in STATES}
    committed = [read(kafkas.address, "h-t", each) for each in range(2)]
    tidelog = Tidelog(tmp_path, OPTIONS)
    shutil.copytree(kafkas.data_dir, tidelog.data_dir)
    (tidelog.data_dir / ".lock").unlink(missing_ok=True)
    tidelog.start()
    try:
        side = sided(tidelog)
        assert states(side) == STATES
        assert {stem: transactions(side, f"h-{stem}") for stem in STATES} == before
        assert [read(tidelog.address, "h-t", each) for each in range(2)] == committed
        check_goes_on(tidelog)
    finally:
        tidelog.kill()


def test_kafka_goes_on_with_our_transactions(ours: Tidelog, tmp_path: Path) -> None:
    before = {stem: transactions(sided(ours), f"h-{stem}") for stem in STATES}
    copy = tmp_path / "ours"
    shutil.copytree(ours.data_dir, copy)
    with available():
        kafka = ApacheKafka(tmp_path / "kafka", OPTIONS)
        kafka.start()
    try:
        side = sided(kafka)
        side.topic("t", 2)
        kafka.stop()
        for name in (LOG, "h-t-0", "h-t-1", "__consumer_offsets-0"):
            transplant(copy / name, kafka.data_dir / name)
        (kafka.data_dir / "replication-offset-checkpoint").unlink()
        (kafka.data_dir / ".kafka_cleanshutdown").unlink(missing_ok=True)
        kafka.start()
        side = sided(kafka)
        assert states(side) == STATES
        assert {stem: transactions(side, f"h-{stem}") for stem in STATES} == before
        check_goes_on(kafka)
    finally:
        kafka.kill()


def check_goes_on(broker: BrokerProcess) -> None:
    """The open transaction is ended by its next life, and every id can be used again."""
    count = len(read(broker.address, "h-t", 0))
    for stem in STATES:
        producer = Confluent(broker.address, f"h-{stem}")
        producer.begin()
        producer.send("h-t", stem.encode())
        producer.commit()
    expected = [stem.encode() for stem in STATES]
    wait_until("all are committed", lambda: read(broker.address, "h-t", 0)[-len(expected) :] == expected)
    # What the open transaction had written is skipped; what was committed behind it appears.
    assert len(read(broker.address, "h-t", 0)) == count + len(expected)
    assert read(broker.address, "h-t", 1) == []
    assert set(states(sided(broker)).values()) == {"CompleteCommit"}


def transplant(source: Path, target: Path) -> None:
    """Put the files of a partition in the place of another's, which keeps its topic id."""
    identity = (target / "partition.metadata").read_bytes()
    shutil.rmtree(target)
    shutil.copytree(source, target)
    (target / "partition.metadata").write_bytes(identity)
