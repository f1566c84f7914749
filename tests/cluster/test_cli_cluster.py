"""Commands against a cluster of three brokers that `tidelog cluster start` has started."""

from __future__ import annotations

import json
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from kazoo.client import KazooClient
from tests.cluster.cluster_process import ForegroundCommand
from tests.integration.command_line import CommandLine
from tests.rigs.raw_client import RawClient

from tidelog import Consumer, Producer
from tidelog.properties import read_properties
from tidelog.records.record_codec import ConsumerRecord
from tidelog.wire.messages.metadata import MetadataRequest, MetadataRequestTopic, MetadataResponse

Names = Callable[[], str]


@contextmanager
def zookeeper_session(cluster: ForegroundCommand) -> Iterator[KazooClient]:
    client = KazooClient(cluster.value("zookeeper.connect"))
    client.start(60)
    try:
        yield client
    finally:
        client.stop()
        client.close()


def create(tidelog: CommandLine, topic: str, partitions: int) -> None:
    """Create a topic, and wait until all brokers know it: a command may ask any of them."""
    tidelog.ok("topics", "create", topic, "--partitions", str(partitions))
    for broker in tidelog.json("cluster", "describe")["brokers"]:
        deadline = time.monotonic() + 60
        host, _, port = broker["address"].rpartition(":")
        with RawClient(host, int(port)) as client:
            while not _knows(client, topic):
                assert time.monotonic() < deadline, f"broker {broker['id']} does not learn of {topic}"
                time.sleep(0.05)


def _knows(client: RawClient, topic: str) -> bool:
    request = MetadataRequest(topics=[MetadataRequestTopic(name=topic)], allow_auto_topic_creation=False)
    (found,) = client.ask(12, request, MetadataResponse).topics
    return found.error_code == 0


def replicas_of(tidelog: CommandLine, topic: str) -> list[list[int]]:
    (described,) = tidelog.json("topics", "describe", topic)
    return [each["replicas"] for each in described["partitions"]]


def produce(bootstrap: str, topic: str, count: int) -> None:
    with Producer(bootstrap_servers=bootstrap, acks="all") as producer:
        for sent in [producer.send(topic, b"%d" % number, partition=0) for number in range(count)]:
            sent.result(timeout=60)


def test_describe_shows_three_brokers_a_controller_and_who_leads_what(
    tidelog: CommandLine, topic_name: Names
) -> None:
    topic = topic_name()
    create(tidelog, topic, 6)
    state = tidelog.wait_for(
        lambda state: state["partitions"] >= 6 and not state["troubled"], "cluster", "describe"
    )
    assert [broker["id"] for broker in state["brokers"]] == [1, 2, 3]
    assert state["controller"] in (1, 2, 3)
    assert all(broker["alive"] and broker["partitions_hosted"] >= 6 for broker in state["brokers"])
    assert "all in sync" in tidelog.ok("cluster", "describe")


def test_a_plan_is_shown_carried_out_and_taken_back_with_its_backup(
    tidelog: CommandLine, topic_name: Names, tmp_path: Path
) -> None:
    topic = topic_name()
    create(tidelog, topic, 3)
    before = replicas_of(tidelog, topic)
    plan = ("partitions", "reassign", "--topics", topic, "--to", "1,2", "--replication-factor", "2")
    shown = tidelog(*plan, "--json")
    planned = [each["replicas"] for each in json.loads(shown.stdout)["planned"]["partitions"]]
    assert "nothing was changed" in shown.stderr
    assert replicas_of(tidelog, topic) == before

    done = tidelog(*plan, "--backup", str(tmp_path / "before.json"), "--execute")
    assert (done.returncode, done.stderr) == (0, "moved 3 partitions\n"), done
    assert replicas_of(tidelog, topic) == planned
    assert all(set(replicas) == {1, 2} for replicas in planned)

    back = tidelog("partitions", "reassign", str(tmp_path / "before.json"), "--execute")
    assert back.returncode == 0, back
    assert "to roll back" in back.stderr
    assert replicas_of(tidelog, topic) == before
    assert tidelog.json("partitions", "list-reassignments") == []
    again = tidelog("partitions", "reassign", str(tmp_path / "before.json"), "--execute")
    assert again.stderr == "every partition is already in place\n"
    assert tidelog("partitions", "reassign", "--cancel").stderr == "no reassignments are in progress\n"


def test_brokers_and_partitions_that_do_not_exist_are_named(
    tidelog: CommandLine, topic_name: Names, tmp_path: Path
) -> None:
    topic = topic_name()
    create(tidelog, topic, 1)
    assert "the brokers are 1, 2, 3" in tidelog.refusal(
        "partitions", "reassign", "--topics", topic, "--to", "1,9"
    )
    plan = tmp_path / "plan.json"
    plan.write_text(json.dumps({"partitions": [{"topic": topic, "partition": 7, "replicas": [1]}]}))
    assert f"{topic}-7 does not exist" in tidelog.refusal("partitions", "reassign", str(plan))


def test_the_preferred_replica_is_elected_after_the_order_was_changed(
    tidelog: CommandLine, topic_name: Names, tmp_path: Path
) -> None:
    topic = topic_name()
    create(tidelog, topic, 1)
    (first, *others) = replicas_of(tidelog, topic)[0]
    plan = tmp_path / "plan.json"
    plan.write_text(
        json.dumps({"partitions": [{"topic": topic, "partition": 0, "replicas": [*others, first]}]})
    )
    assert tidelog("partitions", "reassign", str(plan), "--execute").returncode == 0
    (elected,) = tidelog.json("partitions", "elect", "--topic", topic)
    assert (elected["elected"], elected["leader"]) == (True, others[0])
    again = tidelog("partitions", "elect", "--topic", topic, "--partition", "0")
    assert (again.returncode, again.stdout) == (0, "")
    assert again.stderr == "elected leaders for 0 partitions; 1 partition needed none\n"


def test_offsets_of_old_consumers_are_carried_over_once(
    tidelog: CommandLine, cluster: ForegroundCommand, topic_name: Names
) -> None:
    topic, group = topic_name(), topic_name()
    bootstrap = cluster.value("bootstrap.servers")
    create(tidelog, topic, 2)
    produce(bootstrap, topic, 10)
    root = f"/consumers/{group}/offsets/{topic}"
    with zookeeper_session(cluster) as zookeeper:
        for partition, offset in ((0, 7), (1, 0), (5, 3)):
            zookeeper.create(f"{root}/{partition}", b"%d" % offset, makepath=True)
    command = (
        "groups",
        "import-zookeeper",
        "--zookeeper",
        cluster.value("zookeeper.connect"),
        "--group",
        group,
    )
    dry = tidelog(*command, "--dry-run")
    assert f"{topic}\t5\t3\t-\tskipped: no such partition" in dry.stdout, dry
    assert "2 offsets would be imported" in dry.stderr

    done = tidelog(*command)
    assert (done.returncode, done.stderr) == (0, f"imported 2 offsets into group {group}\n"), done
    with Consumer(bootstrap_servers=bootstrap, group_id=group, auto_offset_reset="none") as consumer:
        consumer.subscribe(topic)
        records: list[ConsumerRecord] = []
        while len(records) < 3:
            records += consumer.poll(timeout=60)
        assert [record.value for record in records] == [b"7", b"8", b"9"]
        assert "stop its consumers" in tidelog.refusal(*command)
    assert "every offset was skipped" in tidelog(*command).stderr


@pytest.mark.parametrize("group", ["nobody", "reading"])
def test_groups_that_cannot_be_carried_over_are_refused(
    tidelog: CommandLine, cluster: ForegroundCommand, group: str
) -> None:
    command = ("groups", "import-zookeeper", "--zookeeper", cluster.value("zookeeper.connect"))
    with zookeeper_session(cluster) as zookeeper:
        zookeeper.create("/consumers/reading/ids/consumer-1", b"{}", ephemeral=True, makepath=True)
        said = tidelog.refusal(*command, "--group", group)
    assert ("no offsets of group 'nobody'" if group == "nobody" else "1 old consumer still running") in said


OLD_PRODUCER = """
metadata.broker.list={brokers}
serializer.class=kafka.serializer.StringEncoder
request.required.acks=1
producer.type=async
batch.num.messages=50
"""
OLD_CONSUMER = """
zookeeper.connect={zookeeper}
group.id={group}
request.required.acks=1
zookeeper.session.timeout.ms=40000
zookeeper.sync.time.ms=2000
auto.commit.enable = true
auto.commit.interval.ms=1000
partition.assignment.strategy=range
auto.offset.reset=smallest
"""


def test_property_files_of_old_clients_reach_the_cluster(
    tidelog: CommandLine, cluster: ForegroundCommand, topic_name: Names, tmp_path: Path
) -> None:
    topic, group = topic_name(), topic_name()
    create(tidelog, topic, 2)
    producer, consumer = tmp_path / "producer.properties", tmp_path / "consumer.properties"
    producer.write_text(OLD_PRODUCER.format(brokers=cluster.value("bootstrap.servers")))
    consumer.write_text(OLD_CONSUMER.format(zookeeper=cluster.value("zookeeper.connect"), group=group))

    with Producer(read_properties(producer)) as sender:
        # The file names the serializers.
        sender.send(topic, "first", key="k").result(60)  # type: ignore[arg-type]
    lines = tmp_path / "lines.txt"
    lines.write_text("second\n")
    written = run_tidelog("produce", topic, "--file", str(lines), "--command-config", str(producer))
    assert written.returncode == 0, written
    assert written.stderr.splitlines()[-1] == f"1 record written to {topic}"
    assert "metadata.broker.list is now bootstrap.servers" in written.stderr

    with Consumer(read_properties(consumer)) as reader:
        reader.subscribe(topic)
        records: list[ConsumerRecord] = []
        while len(records) < 2:
            records += reader.poll(timeout=60)
        assert {record.value for record in records} == {b"first", b"second"}
    # The group has committed: by hand, everything is read again.
    read = run_tidelog("consume", topic, "--from-beginning", "--until-end", "--command-config", str(consumer))
    assert read.returncode == 0, read
    assert sorted(read.stdout.split()) == ["first", "second"]
    assert "zookeeper.connect is now bootstrap.servers=zookeeper://" in read.stderr
    assert "Traceback" not in read.stderr


def run_tidelog(*arguments: str) -> subprocess.CompletedProcess[str]:
    """A command that finds its brokers by its own options."""
    return subprocess.run(
        [sys.executable, "-m", "tidelog", *arguments],
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )


def test_without_brokers_in_zookeeper_the_remedy_is_named(cluster: ForegroundCommand, tmp_path: Path) -> None:
    file = tmp_path / "consumer.properties"
    file.write_text(f"zookeeper.connect={cluster.value('zookeeper.connect')}/elsewhere\n")
    failed = run_tidelog("consume", "orders", "--from-beginning", "--command-config", str(file))
    assert failed.returncode == 1
    assert failed.stderr.splitlines()[-1].startswith("error: no broker is registered in ZooKeeper at ")
    assert "correct the address or its chroot" in failed.stderr
    assert "Traceback" not in failed.stderr
