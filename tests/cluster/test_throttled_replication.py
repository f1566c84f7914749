"""Throttled replication in a cluster: leaders and followers hold back replicas that are not in sync, and the
command line sets, shows and removes throttles."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path

import pytest
from tests.integration.command_line import CommandLine
from tests.rigs.cluster_thread import ClusterThread

from tidelog import Admin, NewTopic, Producer
from tidelog.client.resources import AlterConfigOp, AlterConfigOpType, ConfigResource, ResourceType
from tidelog.ids import TopicPartition
from tidelog.replication.throttle import UNLIMITED, ReplicationThrottle

WAIT_S = 60
RECORDS = 60
RECORD = b"x" * 10_000


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ClusterThread]:
    # Small fetches: what has begun is not cut, so one large fetch would copy everything.
    options = {"replica.fetch.max.bytes": "20000"}
    with ClusterThread(tmp_path_factory.mktemp("throttled"), 3, options=options) as running:
        yield running


@pytest.fixture
def admin(cluster: ClusterThread) -> Iterator[Admin]:
    with Admin(bootstrap_servers=cluster.bootstrap) as found:
        yield found


@pytest.fixture
def topic(cluster: ClusterThread, admin: Admin, topic_name: Callable[[], str]) -> str:
    """A topic on brokers 1 and 2 with records that take many fetches to copy."""
    name = topic_name()
    admin.create_topics([NewTopic(name, assignments={0: [1, 2]})])
    with Producer(bootstrap_servers=cluster.bootstrap, acks="all", linger_ms=0, batch_size=1) as producer:
        for sent in [producer.send(name, RECORD, partition=0) for _ in range(RECORDS)]:
            sent.result(timeout=WAIT_S)
    return name


def throttle_of(cluster: ClusterThread, side: str, broker: int) -> ReplicationThrottle:
    throttles = cluster.brokers[broker].cluster.throttles
    return throttles.leader if side == "leader" else throttles.follower


def change(admin: Admin, resource: ConfigResource, name: str, value: str | None) -> None:
    kind = AlterConfigOpType.SET if value is not None else AlterConfigOpType.DELETE
    (result,) = admin.alter_configs({resource: [AlterConfigOp(name, value, kind)]})
    assert result.error is None


@pytest.mark.parametrize(("side", "replica"), [("leader", 1), ("follower", 3)])
def test_a_replica_that_is_not_in_sync_waits_until_the_throttle_is_gone(
    cluster: ClusterThread, admin: Admin, topic: str, side: str, replica: int
) -> None:
    partition = TopicPartition(topic, 0)
    broker = ConfigResource(ResourceType.BROKER, str(replica))
    change(admin, broker, f"{side}.replication.throttled.rate", "1")
    change(
        admin,
        ConfigResource(ResourceType.TOPIC, topic),
        f"{side}.replication.throttled.replicas",
        f"0:{replica}",
    )
    throttle = throttle_of(cluster, side, replica)
    cluster.wait_for(lambda: throttle.applies_to(partition) and throttle.bytes_per_second == 1)
    admin.alter_partition_reassignments({partition: [1, 2, 3]})
    cluster.wait_for(lambda: throttle.is_exceeded, what="the throttle to take hold")

    # Those in sync go on: acknowledgements come though the third replica waits.
    with Producer(bootstrap_servers=cluster.bootstrap, acks="all") as producer:
        for _ in range(3):
            producer.send(topic, RECORD, partition=0).result(timeout=WAIT_S)
    assert cluster.call(lambda: cluster.partition(3, topic).log.log_end_offset) < RECORDS
    assert partition in admin.list_partition_reassignments()
    assert cluster.call(lambda: cluster.partition(cluster_leader(cluster, topic), topic).is_reassigned)

    change(admin, broker, f"{side}.replication.throttled.rate", None)
    cluster.wait_for(lambda: throttle.bytes_per_second == UNLIMITED)
    cluster.wait_for(
        lambda: cluster.partition(3, topic).log.log_end_offset, lambda end: end == RECORDS + 3, "the copy"
    )
    cluster.wait_for(lambda: 3 in cluster.partition(cluster_leader(cluster, topic), topic).isr)
    leader = cluster_leader(cluster, topic)
    cluster.wait_for(lambda: not cluster.partition(leader, topic).is_reassigned)
    # What was copied for it is counted, at both ends; what goes to the replica afterwards is not.
    out, into = (
        cluster.call(partial(lambda each: cluster.partition(each, topic).counts, each))
        for each in (leader, 3)
    )
    assert RECORDS * len(RECORD) <= into.reassignment_bytes_in <= into.replication_bytes_in
    assert RECORDS * len(RECORD) <= out.reassignment_bytes_out < out.replication_bytes_out


def cluster_leader(cluster: ClusterThread, topic: str) -> int:
    return next(
        each
        for each, broker in cluster.brokers.items()
        if (topic, 0) in broker.partitions.by_name and broker.partitions.get(topic, 0).is_leader
    )


def settings_of(tidelog: CommandLine, *what: str) -> dict[str, str]:
    (described,) = tidelog.json("configs", "describe", *what, "--all")
    entries = described["configs"]
    return {each["name"]: each["value"] for each in entries if "throttled" in each["name"]}


def test_the_command_line_throttles_a_move_gives_it_up_and_removes_the_throttle(
    cluster: ClusterThread, topic: str, tmp_path: Path
) -> None:
    tidelog = CommandLine(cluster.bootstrap)
    plan = tmp_path / "plan.json"
    plan.write_text(json.dumps({"partitions": [{"topic": topic, "partition": 0, "replicas": [1, 3]}]}))
    command = ("partitions", "reassign", str(plan))
    assert "--throttle requires --execute" in tidelog(*command, "--throttle", "1").stderr
    assert "bytes per second" in tidelog(*command, "--execute", "--throttle", "fast").stderr

    begun = tidelog(*command, "--execute", "--throttle", "1", "--no-wait")
    assert begun.returncode == 0, begun
    assert "each broker copies at most 1 bytes per second" in begun.stderr
    for broker in (1, 2, 3):
        limit = partial(lambda broker: throttle_of(cluster, "leader", broker).bytes_per_second, broker)
        cluster.wait_for(limit, lambda bytes_per_second: bytes_per_second == 1)
    cluster.wait_for(lambda: throttle_of(cluster, "follower", 3).is_exceeded)
    assert settings_of(tidelog, "--topic", topic) == {
        "leader.replication.throttled.replicas": "0:1,0:2",
        "follower.replication.throttled.replicas": "0:3",
    }
    assert settings_of(tidelog, "--broker", "3") == {
        "leader.replication.throttled.rate": "1",
        "follower.replication.throttled.rate": "1",
    }
    looked = tidelog(*command, "--verify")
    assert "1 partition still moving" in looked.stderr, looked

    given_up = tidelog("partitions", "reassign", "--cancel")
    assert given_up.stderr == "cancelled the reassignment of 1 partition\nremoved the throttle\n", given_up
    assert settings_of(tidelog, "--topic", topic)["follower.replication.throttled.replicas"] == ""
    cluster.wait_for(lambda: throttle_of(cluster, "follower", 3).bytes_per_second == UNLIMITED)
    cluster.wait_for(lambda: (topic, 0) not in cluster.brokers[3].partitions.by_name)
    assert cluster.call(lambda: cluster.partition(1, topic).replicas) == (1, 2)

    moved = tidelog(*command, "--execute", "--throttle", "100MB")
    assert moved.returncode == 0, moved
    assert moved.stderr.endswith("moved 1 partition\nremoved the throttle\n")
    checked = tidelog(*command, "--verify")
    assert (checked.returncode, checked.stderr) == (0, "every partition is already in place\n")
    assert cluster.call(lambda: cluster.partition(1, topic).replicas) == (1, 3)
