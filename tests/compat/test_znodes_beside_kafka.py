"""The same operations leave the same znodes, whether Apache Kafka or Tidelog controls the cluster.

Two brokers of one kind are told to create topics, add partitions, change configs, reassign, elect, delete,
bounce; afterwards every path and every JSON in ZooKeeper is compared. Left out is only what must differ:
times, ports, ids that are drawn at random, and features, which Kafka 3.9 does not have with ZooKeeper.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka.admin import AdminClient, NewPartitions, NewTopic
from tests.compat import workload
from tests.compat.conftest import available
from tests.compat.mixed_cluster import MixedCluster

from tidelog import Admin
from tidelog.client.admin.quotas import QuotaAlteration
from tidelog.client.resources import AlterConfigOp, AlterConfigOpType, ConfigResource, ResourceType

Tree = dict[str, Any]

# Whichever broker a client asks takes the block of producer ids.
RANDOM = ("topic_id", "timestamp", "id", "port", "endpoints", "features", "broker")


@pytest.fixture(scope="module")
def trees(tmp_path_factory: pytest.TempPathFactory) -> dict[str, list[Tree]]:
    """What ZooKeeper holds after each step, by the kind of the brokers."""
    found: dict[str, list[Tree]] = {}
    for kind in ("kafka", "tidelog"):
        directory: Path = tmp_path_factory.mktemp(kind)
        with available(), MixedCluster(directory) as cluster:
            for broker_id in (1, 2):
                getattr(cluster, kind)(broker_id)
            found[kind] = list(steps(cluster))
    return found


def steps(cluster: MixedCluster) -> Iterator[Tree]:
    admin = AdminClient({"bootstrap.servers": cluster.bootstrap})
    yield tree(cluster)

    config = {"cleanup.policy": "compact", "retention.ms": "1000000"}
    topics = [
        NewTopic("plain", 2, replica_assignment=[[1, 2], [2, 1]]),
        NewTopic("configured", 1, replica_assignment=[[2]], config=config),
        NewTopic("going", 1, replica_assignment=[[1, 2]], config=config),
    ]
    wait_for(admin.create_topics(topics))
    cluster.wait_all_in_sync()
    yield tree(cluster)

    wait_for(admin.create_partitions([NewPartitions("plain", 3, replica_assignment=[[2, 1]])]))
    cluster.wait_all_in_sync()
    alter(cluster, ResourceType.TOPIC, "plain", "max.message.bytes", "2000000")
    alter(cluster, ResourceType.TOPIC, "configured", "retention.ms", None)
    alter(cluster, ResourceType.BROKER, "1", "message.max.bytes", "2000000")
    alter(cluster, ResourceType.BROKER, "", "message.max.bytes", "3000000")
    quotas(cluster)
    yield tree(cluster)

    cluster.reassign({("configured", 0): [1, 2], ("plain", 0): [2, 1]})
    cluster.wait_all_in_sync()
    cluster.elect([("configured", 0)])
    cluster.wait_led_by(1, [("configured", 0)])
    yield tree(cluster)

    wait_for(admin.delete_topics(["going"]))
    cluster.wait(
        lambda: (
            not cluster.store.exists("/brokers/topics/going")
            and not cluster.store.get_children("/admin/delete_topics")
        ),
        "the topic is gone",
    )
    yield tree(cluster)

    produce(cluster)
    cluster.stop(2)
    yield tree(cluster)
    cluster.brokers[2].start()
    cluster.wait_all_in_sync()
    yield tree(cluster)


def produce(cluster: MixedCluster) -> None:
    """One idempotent record: somebody takes a block of producer ids."""
    producer = workload.open_producer(cluster.brokers[1].address, **{"enable.idempotence": True})
    producer.produce("configured", b"value", key=b"key", partition=0)
    workload.flush_all(producer)


def wait_for(futures: dict[Any, Any]) -> None:
    for future in futures.values():
        future.result(workload.TIMEOUT_S)


def alter(cluster: MixedCluster, kind: ResourceType, name: str, option: str, value: str | None) -> None:
    operation = AlterConfigOpType.SET if value is not None else AlterConfigOpType.DELETE
    change = {ConfigResource(kind, name): [AlterConfigOp(option, value, operation)]}
    with Admin(bootstrap_servers=cluster.bootstrap) as admin:
        assert [each.error for each in admin.alter_configs(change)] == [None]


def quotas(cluster: MixedCluster) -> None:
    """Quotas of everybody whom there can be quotas for; one is removed again."""
    rates = {"producer_byte_rate": 1e7, "request_percentage": 12.5}
    alterations = [
        QuotaAlteration({"user": "alice"}, rates),
        QuotaAlteration({"user": None}, {"consumer_byte_rate": 2e6, "request_percentage": 1e7}),
        QuotaAlteration({"user": "a b/*%ü", "client-id": "c.d-e_f~"}, rates),
        QuotaAlteration({"user": None, "client-id": None}, {"controller_mutation_rate": 0.0005}),
        QuotaAlteration({"client-id": "<default>"}, rates),
        QuotaAlteration({"client-id": None}, rates),
        QuotaAlteration({"ip": "192.0.2.1"}, {"connection_creation_rate": 5.0}),
        QuotaAlteration({"ip": None}, {"connection_creation_rate": 50.0}),
    ]
    gone = [QuotaAlteration({"user": "alice"}, dict.fromkeys(rates))]
    with Admin(bootstrap_servers=cluster.bootstrap) as admin:
        for change in (alterations, gone):
            assert [each.error for each in admin.alter_client_quotas(change)] == [None] * len(change)


def tree(cluster: MixedCluster) -> Tree:
    """Every node's path, and its content as far as it must be the same."""
    found: Tree = {}

    def visit(path: str) -> None:
        for name in cluster.store.get_children(path or "/"):
            child = f"{path}/{name}"
            if child != "/zookeeper":
                raw, stat = cluster.store.get(child)
                owned = "ephemeral" if stat.ephemeralOwner else "persistent"
                found[child] = (owned, content(raw))
                visit(child)

    visit("")
    return _with_changes_in_order(found)


def _with_changes_in_order(found: Tree) -> Tree:
    """Kafka's tools name the topics of one request in any order, so the changes of one step have none."""
    paths = sorted(path for path in found if path.startswith("/config/changes/"))
    contents = sorted((found[path] for path in paths), key=json.dumps)
    return {**found, **dict(zip(paths, contents, strict=True))}


def content(raw: bytes | None) -> Any:
    if not raw:
        return None
    try:
        decoded = json.loads(raw)
    except ValueError:
        return raw.decode()
    if not isinstance(decoded, dict):
        return decoded
    return {key: type(value).__name__ if key in RANDOM else value for key, value in decoded.items()}


STEPS = ["start", "create", "partitions and configs", "reassign and elect", "delete", "leave", "return"]


@pytest.mark.parametrize("step", range(len(STEPS)), ids=[re.sub(r"\W+", "-", each) for each in STEPS])
def test_the_same_operations_leave_the_same_znodes(trees: dict[str, list[Tree]], step: int) -> None:
    kafka, tidelog = trees["kafka"][step], trees["tidelog"][step]
    different = {
        path: {"kafka": kafka.get(path), "tidelog": tidelog.get(path)}
        for path in sorted(kafka.keys() | tidelog.keys())
        if kafka.get(path) != tidelog.get(path)
    }
    assert different == {}, json.dumps(different, indent=2)
