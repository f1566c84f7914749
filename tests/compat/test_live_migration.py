"""A live Apache Kafka 3.9 cluster becomes a Tidelog cluster, broker by broker, while clients go on.

The two ways of docs/how-to/migrating.md: new brokers take over the partitions of old ones (reassignment),
or a broker is stopped and Tidelog started in its place, on its directory (nothing is copied).
"""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from tests.compat import workload
from tests.compat.conftest import available
from tests.compat.mixed_cluster import TOOLS, MixedCluster
from tests.compat.mixed_load import GROUP, NUMBERS, Load

from tidelog import Admin
from tidelog.client.admin.cluster_resources import FeatureUpdate

OPTIONS = {
    "offsets.topic.replication.factor": "2",
    "transaction.state.log.replication.factor": "2",
}
FEATURES = {"group.version": FeatureUpdate(1), "transaction.version": FeatureUpdate(2)}


@pytest.fixture
def cluster(tmp_path: Path) -> Iterator[MixedCluster]:
    """Two Apache Kafka brokers with history."""
    with available(), MixedCluster(tmp_path, OPTIONS) as cluster:
        cluster.kafka(1)
        cluster.kafka(2)
        workload.write(cluster.bootstrap)
        yield cluster


def finalize(cluster: MixedCluster) -> list[str]:
    """Switch on what only Tidelog can do; the refusals."""
    with Admin(bootstrap_servers=cluster.bootstrap) as admin:
        return [str(each.error) for each in admin.update_features(FEATURES) if each.error is not None]


def test_new_brokers_take_over_partition_by_partition(cluster: MixedCluster) -> None:
    before = workload.read(cluster.bootstrap)
    load = Load(cluster.bootstrap, 2)
    load.wait_for_progress()

    cluster.tidelog(3)
    move_with_our_command(cluster, [2, 3])
    load.wait_for_progress()
    cluster.stop(1)
    cluster.wait(lambda: cluster.controller in (2, 3), "somebody is elected")
    load.wait_for_progress()

    cluster.tidelog(4)
    move_with_kafkas_tool(cluster, [3, 4])
    load.wait_for_progress()
    cluster.stop(2)
    cluster.wait(lambda: cluster.controller in (3, 4), "somebody is elected")
    load.wait_for_progress()
    cluster.wait_all_in_sync()

    assert load.finish(cluster.bootstrap) > 0
    check_only_tidelog_is_left(cluster, before)


def move_with_our_command(cluster: MixedCluster, brokers: list[int]) -> None:
    """Everything that is there, to ``brokers``."""
    topics = ",".join(sorted(cluster.store.get_children("/brokers/topics")))
    done = subprocess.run(
        [
            *(sys.executable, "-m", "tidelog", "partitions", "reassign", "--execute"),
            *("--topics", topics, "--to", ",".join(map(str, brokers))),
            *("--bootstrap-server", cluster.bootstrap),
        ],
        capture_output=True,
        text=True,
        timeout=120,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    assert {each for place in cluster.places() for each in replicas(cluster, place)} == set(brokers)


def move_with_kafkas_tool(cluster: MixedCluster, brokers: list[int]) -> None:
    topics = [{"topic": topic} for topic in cluster.store.get_children("/brokers/topics")]
    wanted = cluster.directory / "topics.json"
    wanted.write_text(json.dumps({"version": 1, "topics": topics}))
    printed = cluster.tool(
        TOOLS + "reassign.ReassignPartitionsCommand",
        *("--generate", "--topics-to-move-json-file", wanted, "--broker-list", ",".join(map(str, brokers))),
    )
    plan = json.loads(printed.splitlines()[-1])
    cluster.reassign({(each["topic"], each["partition"]): each["replicas"] for each in plan["partitions"]})


def replicas(cluster: MixedCluster, place: tuple[str, int]) -> list[int]:
    return cluster.replicas(place[0])[place[1]]


def test_tidelog_takes_the_place_of_each_broker_on_its_directory(cluster: MixedCluster) -> None:
    topics = sorted(cluster.store.get_children("/brokers/topics"))
    cluster.reassign({place: [1, 2] for place in cluster.places(topics)})
    before = workload.read(cluster.bootstrap)
    load = Load(cluster.bootstrap, 2)
    for broker_id in (1, 2):
        load.wait_for_progress()
        cluster.wait_all_in_sync()
        if broker_id == 2:
            assert finalize(cluster) != []
        cluster.replace(broker_id)
        cluster.wait_all_in_sync()
    load.wait_for_progress()
    assert load.finish(cluster.bootstrap) > 0
    check_only_tidelog_is_left(cluster, before)


def check_only_tidelog_is_left(cluster: MixedCluster, before: workload.Contents) -> None:
    running = [each for each in cluster.brokers.values() if each.process is not None]
    assert {each.label for each in running} == {"tidelog"}
    after = workload.read(cluster.bootstrap, list(before))
    for place, records in before.items():
        if place[0] == workload.COMPACTED:
            assert workload.latest_by_key(after[place]) == workload.latest_by_key(records)
        else:
            assert after[place] == records
    assert finalize(cluster) == []
    with Admin(bootstrap_servers=cluster.bootstrap) as admin:
        offsets = admin.list_group_offsets([GROUP])[GROUP].offsets
        assert {each.topic for each in offsets} == {NUMBERS}
        assert set(admin.describe_features().finalized) == set(FEATURES)
