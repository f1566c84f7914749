"""What the controller of one kind has begun, its successor of the other kind brings to an end.

Broker 1 is the controller and leaves in the middle; broker 2, of the other kind, succeeds. Broker 3 is kept
from answering meanwhile, so that nothing can be finished before.
"""

from __future__ import annotations

import signal
from collections.abc import Iterator
from functools import partial
from pathlib import Path

import pytest
from confluent_kafka.admin import AdminClient, NewTopic
from tests.compat import workload
from tests.compat.conftest import available
from tests.compat.mixed_cluster import MixedCluster, without_features

from tidelog import Admin
from tidelog.ids import TopicPartition

MOVING, DOOMED = ("moving", 0), "doomed"


@pytest.fixture(params=["kafka-then-tidelog", "tidelog-then-kafka"])
def cluster(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[MixedCluster]:
    """Three brokers, a topic that is to move and one that is to go."""
    with available(), MixedCluster(tmp_path) as cluster:
        if request.param.startswith("kafka"):
            cluster.kafka(1)
            cluster.tidelog(2)
        else:
            without_features(cluster.tidelog(1).address)
            cluster.kafka(2)
        cluster.tidelog(3)
        assert cluster.controller == 1
        admin = AdminClient({"bootstrap.servers": cluster.bootstrap})
        topics = [
            NewTopic(MOVING[0], 1, replica_assignment=[[1, 2]]),
            NewTopic(DOOMED, 1, replica_assignment=[[2, 3]]),
        ]
        for made in admin.create_topics(topics).values():
            made.result(workload.TIMEOUT_S)
        producer = workload.open_producer(cluster.bootstrap)
        for number in range(500):
            producer.produce(MOVING[0], b"%d" % number)
            producer.produce(DOOMED, b"%d" % number)
        workload.flush_all(producer)
        cluster.wait_all_in_sync()
        yield cluster


def test_a_reassignment_and_a_deletion_outlive_their_controller(cluster: MixedCluster) -> None:
    before = workload.read(cluster.bootstrap, [MOVING])
    with Admin(bootstrap_servers=cluster.brokers[1].address) as admin:
        cluster.brokers[3].process_signal(signal.SIGSTOP)
        (begun,) = admin.alter_partition_reassignments({TopicPartition(*MOVING): [2, 3]})
        assert begun.error is None
    cluster.store.create(f"/admin/delete_topics/{DOOMED}")
    cluster.wait(
        lambda: cluster.json(f"/brokers/topics/{MOVING[0]}")["adding_replicas"] == {"0": [3]},
        "the reassignment is on record",
    )
    cluster.stop(1)
    cluster.wait(lambda: cluster.controller == 2, "broker 2 succeeds")
    assert cluster.store.exists(f"/brokers/topics/{DOOMED}")
    cluster.brokers[3].process_signal(signal.SIGCONT)

    cluster.wait(lambda: cluster.replicas(MOVING[0]) == {0: [2, 3]}, "the partition has moved")
    cluster.wait_all_in_sync([MOVING])
    cluster.wait(lambda: not cluster.store.exists(f"/brokers/topics/{DOOMED}"), "the topic is gone")
    cluster.wait(lambda: not cluster.store.get_children("/admin/delete_topics"), "its mark is gone")
    for broker_id in (2, 3):
        directory = cluster.brokers[broker_id].data_dir / f"{DOOMED}-0"
        cluster.wait(partial(lambda path: not path.exists(), directory), f"{directory} is gone")
    assert workload.read(cluster.bootstrap, [MOVING]) == before
    # Its predecessor comes back as one of three, and hosts nothing any more.
    cluster.brokers[1].start()
    cluster.wait(lambda: cluster.store.exists("/brokers/ids/1"), "broker 1 is back")
    assert workload.read(cluster.brokers[1].address, [MOVING]) == before
