"""Topics, configs and features of a cluster of one Apache Kafka and one Tidelog broker, through either.

Kafka is broker 1 and Tidelog is broker 2; each test runs under the controller of either.
"""

from __future__ import annotations

import signal
from collections.abc import Iterator
from functools import partial
from pathlib import Path

import pytest
from confluent_kafka.admin import AdminClient, NewPartitions, NewTopic
from tests.compat import workload
from tests.compat.conftest import available
from tests.compat.mixed_cluster import KAFKA, TIDELOG, MixedCluster, Place, pair
from tests.compat.replica_files import batches, differences

from tidelog import Admin
from tidelog.client.admin.cluster_resources import FeatureUpdate
from tidelog.client.resources import AlterConfigOp, ConfigResource, ResourceType
from tidelog.ids import TopicPartition

BOTH = pytest.mark.parametrize("through", [KAFKA, TIDELOG], ids=["kafka", "tidelog"])


@pytest.fixture(scope="module", params=["kafka", "tidelog"])
def cluster(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[MixedCluster]:
    """Both brokers; the parameter says which of them came first and is the controller."""
    directory: Path = tmp_path_factory.mktemp("mixed")
    options = {"auto.create.topics.enable": "true"}
    with available(), pair(directory, request.param, options) as cluster:
        yield cluster


def test_features_that_kafka_does_not_have_are_refused(cluster: MixedCluster) -> None:
    """Its brokers would end at once."""
    wanted = {"group.version": FeatureUpdate(1), "transaction.version": FeatureUpdate(2)}
    with Admin(bootstrap_servers=cluster.bootstrap) as admin:
        refusals = [str(each.error) for each in admin.update_features(wanted)]
    if cluster.controller == TIDELOG:
        assert all("Broker 1 does not support this feature." in each for each in refusals)
    else:
        assert all("the provided feature is not supported" in each for each in refusals)
    assert cluster.json("/feature")["features"] == {}


@BOTH
def test_a_topic_is_made_on_demand_through_either_broker(
    cluster: MixedCluster, topic: str, through: int
) -> None:
    address = cluster.brokers[through].address
    producer = workload.open_producer(address)
    producer.produce(topic, b"first")
    workload.flush_all(producer)
    assert [each.value for each in workload.read(cluster.bootstrap, [(topic, 0)])[topic, 0]] == [b"first"]


def create(cluster: MixedCluster, topic: str, assignment: list[list[int]]) -> None:
    admin = AdminClient({"bootstrap.servers": cluster.bootstrap})
    made = admin.create_topics([NewTopic(topic, len(assignment), replica_assignment=assignment)])
    made[topic].result(workload.TIMEOUT_S)


def produce(address: str, place: Place, count: int, value: bytes, **settings: object) -> None:
    producer = workload.open_producer(address, **settings)
    for _ in range(count):
        producer.produce(place[0], value, partition=place[1])
    workload.flush_all(producer)


def directories(cluster: MixedCluster, topic: str) -> dict[int, set[str]]:
    """The partitions of a topic that are on each broker's disk."""
    return {
        broker_id: {
            each.name for each in broker.data_dir.glob(f"{topic}-*") if not each.name.endswith("-delete")
        }
        for broker_id, broker in cluster.brokers.items()
    }


def test_a_topic_is_made_grows_and_goes_on_both_brokers(cluster: MixedCluster, topic: str) -> None:
    create(cluster, topic, [[KAFKA, TIDELOG], [TIDELOG, KAFKA]])
    admin = AdminClient({"bootstrap.servers": cluster.bootstrap})
    more = [NewPartitions(topic, 4, replica_assignment=[[KAFKA, TIDELOG], [TIDELOG, KAFKA]])]
    admin.create_partitions(more)[topic].result(workload.TIMEOUT_S)
    for index in range(4):
        produce(cluster.bootstrap, (topic, index), 10, b"value")
    cluster.wait_all_in_sync([(topic, index) for index in range(4)])
    names = {f"{topic}-{index}" for index in range(4)}
    assert directories(cluster, topic) == {KAFKA: names, TIDELOG: names}
    admin.delete_topics([topic])[topic].result(workload.TIMEOUT_S)
    cluster.wait(lambda: not cluster.store.exists(f"/brokers/topics/{topic}"), "the topic is gone")
    cluster.wait(
        lambda: directories(cluster, topic) == {KAFKA: set(), TIDELOG: set()}, "its directories are gone"
    )


@BOTH
def test_a_config_set_through_one_broker_holds_on_the_other(
    cluster: MixedCluster, topic: str, through: int
) -> None:
    create(cluster, topic, [[KAFKA, TIDELOG]])
    resource = ConfigResource(ResourceType.TOPIC, topic)
    with Admin(bootstrap_servers=cluster.brokers[through].address) as admin:
        (changed,) = admin.alter_configs({resource: [AlterConfigOp("retention.ms", "123456")]})
        assert changed.error is None

    def retention(broker_id: int) -> str | None:
        with Admin(bootstrap_servers=cluster.brokers[broker_id].address) as admin:
            (result,) = admin.describe_configs([resource], names=["retention.ms"])
            return result.entries[0].value

    for broker_id in (KAFKA, TIDELOG):
        knows = partial(lambda broker_id: retention(broker_id) == "123456", broker_id)
        cluster.wait(knows, f"{broker_id} knows")


@BOTH
def test_a_new_replica_begins_where_the_log_of_its_leader_does(
    cluster: MixedCluster, topic: str, through: int
) -> None:
    other = KAFKA + TIDELOG - through
    create(cluster, topic, [[through]])
    place, name = (topic, 0), TopicPartition(topic, 0)
    produce(cluster.bootstrap, place, 200, b"value", **{"batch.num.messages": 10})
    with Admin(bootstrap_servers=cluster.bootstrap) as admin:
        assert admin.delete_records({name: 100})[name].error is None
        (begun,) = admin.alter_partition_reassignments({name: [through, other]})
        assert begun.error is None
    cluster.wait_in_sync([KAFKA, TIDELOG], [place])
    cluster.lead(other, [place])
    offsets = [each.offset for each in workload.read(cluster.bootstrap, [place])[place]]
    assert offsets == list(range(100, 200))


@BOTH
def test_what_only_a_leader_had_that_died_is_cut_off_when_it_is_back(
    cluster: MixedCluster, topic: str, through: int
) -> None:
    """``through`` leads, and dies with records that its follower has not; then the two histories part."""
    leader, follower = through, KAFKA + TIDELOG - through
    create(cluster, topic, [[leader, follower]])
    place = (topic, 0)
    produce(cluster.bootstrap, place, 100, b"both")
    cluster.brokers[follower].process_signal(signal.SIGSTOP)
    # The fetch that waits at the leader brings its follower the first of them still, and no more.
    producer = workload.open_producer(cluster.brokers[leader].address, acks=1)
    for number in range(50):
        producer.produce(topic, b"lost %d" % number, partition=0)
        workload.flush_all(producer)
    cluster.brokers[leader].kill()
    cluster.brokers[follower].process_signal(signal.SIGCONT)
    cluster.wait_led_by(follower, [place])
    produce(cluster.brokers[follower].address, place, 20, b"anew", acks=1)
    cluster.brokers[leader].start()
    cluster.wait_all_in_sync([place])
    values = [each.value for each in workload.read(cluster.bootstrap, [place])[place]]
    kept = len(values) - 120
    assert kept < 50
    assert values == [*[b"both"] * 100, *(b"lost %d" % number for number in range(kept)), *[b"anew"] * 20]
    ones, others = (cluster.brokers[each].data_dir for each in (leader, follower))
    cluster.wait(
        lambda: not differences(ones, others, [place]),
        "the replicas have the same files",
        explain=lambda: differences(ones, others, [place]),
    )
    assert b"lost 49" not in b"".join(batches(ones / f"{topic}-0").values())
