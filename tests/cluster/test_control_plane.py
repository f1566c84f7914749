"""``control.plane.listener.name``: the controller's requests come in by a listener of their own."""

from __future__ import annotations

import functools
import json
import re
import threading
import urllib.request
from collections.abc import Awaitable, Callable

import pytest
from tests.rigs.cluster_thread import ClusterThread

from tidelog import Admin, NewTopic, Producer
from tidelog.broker.context import RequestContext
from tidelog.broker.handlers import alter_partition, leader_and_isr, update_metadata
from tidelog.config.broker_config import BrokerConfig
from tidelog.errors import ConfigError
from tidelog.wire.schema import Payload

Response = Payload | Awaitable[Payload]

OPTIONS = {
    "listeners": "PLAINTEXT://127.0.0.1:0,CONTROL://127.0.0.1:0",
    "listener.security.protocol.map": "PLAINTEXT:PLAINTEXT,CONTROL:PLAINTEXT",
    "control.plane.listener.name": "CONTROL",
}
WAIT_S = 60


@pytest.fixture
def heard(monkeypatch: pytest.MonkeyPatch) -> set[str]:
    """The listeners by which the requests of the controller, and those to it, have come."""
    listeners: set[str] = set()

    def noting(handle: Callable[..., Response]) -> Callable[..., Response]:
        @functools.wraps(handle)
        def noted(context: RequestContext, request: Payload, *services: object) -> Response:
            listeners.add(context.connection.listener)
            return handle(context, request, *services)

        return noted

    for module in (leader_and_isr, update_metadata, alter_partition):
        monkeypatch.setattr(module, "handle", noting(module.handle))
    return listeners


def test_the_controller_speaks_by_it_and_it_is_registered_as_in_kafka(
    tmp_path_factory: pytest.TempPathFactory, heard: set[str]
) -> None:
    with ClusterThread(tmp_path_factory.mktemp("control"), 3, options=OPTIONS) as cluster:
        with Admin(bootstrap_servers=cluster.bootstrap) as admin:
            admin.create_topics([NewTopic("orders", partitions=3)])
        with Producer(bootstrap_servers=cluster.bootstrap, acks="all") as producer:
            producer.send("orders", b"x").result(timeout=WAIT_S)
        cluster.stop(3)
        cluster.start(3)
        cluster.wait_for(
            lambda: all(
                len(each.isr) == 3
                for broker in cluster.brokers.values()
                for each in broker.partitions
                if each.is_leader
            ),
            what="replicas to be taken in by AlterPartition",
        )
        assert heard == {"CONTROL"}
        node = json.loads(cluster.call(lambda: cluster.zookeeper.node("/brokers/ids/2").data))
        ports = {each.name: each.port for each in cluster.brokers[2].advertised}
        assert node["endpoints"] == [
            f"PLAINTEXT://127.0.0.1:{ports['PLAINTEXT']}",
            f"CONTROL://127.0.0.1:{ports['CONTROL']}",
        ]
        assert node["listener_security_protocol_map"] == {"PLAINTEXT": "PLAINTEXT", "CONTROL": "PLAINTEXT"}


def test_the_control_plane_has_an_idle_percent_of_its_own(tmp_path_factory: pytest.TempPathFactory) -> None:
    options = {**OPTIONS, "metrics.listeners": "127.0.0.1:0"}
    with ClusterThread(tmp_path_factory.mktemp("idle"), 2, options=options) as cluster:
        with Admin(bootstrap_servers=cluster.bootstrap) as admin:
            admin.create_topics([NewTopic("orders", partitions=3, replication_factor=2)])
        broker = cluster.brokers[1]
        busy = broker.network.apart_busy
        assert busy is not None
        cluster.wait_for(lambda: busy.total_s > 0, what="requests of the controller to be counted")
        assert broker.metrics is not None
        with urllib.request.urlopen(
            f"http://127.0.0.1:{broker.metrics.ports[0]}/metrics", timeout=60
        ) as page:
            text = page.read().decode()
    idle = dict(re.findall(r"^(kafka_\w+)_controlplane\w+idle_percent (\S+)$", text, re.MULTILINE))
    assert idle.keys() == {"kafka_network_socketserver", "kafka_server_kafkarequesthandlerpool"}
    assert all(0 <= float(each) <= 1 for each in idle.values())
    assert re.search(r'metrics_request_total\{listener="CONTROL",networkProcessor="0"\} [1-9]', text)


def test_leaders_change_while_clients_keep_every_broker_busy(
    tmp_path_factory: pytest.TempPathFactory,
) -> None:
    options = {**OPTIONS, "max.connections": "60", "min.insync.replicas": "1"}
    stop = threading.Event()
    with ClusterThread(tmp_path_factory.mktemp("busy"), 3, options=options) as cluster:
        with Admin(bootstrap_servers=cluster.bootstrap) as admin:
            admin.create_topics([NewTopic("orders", assignments={0: [1, 2, 3]})])

        def load() -> None:
            with Producer(bootstrap_servers=cluster.bootstrap, acks="all") as producer:
                while not stop.is_set():
                    sent = [producer.send("orders", b"x" * 1000) for _ in range(200)]
                    for each in sent:
                        each.result(timeout=WAIT_S)

        def in_sync() -> int:
            replicas = [each.partitions.by_name.get(("orders", 0)) for each in cluster.brokers.values()]
            return max(len(each.isr) for each in replicas if each is not None and each.is_leader)

        clients = [threading.Thread(target=load) for _ in range(4)]
        for client in clients:
            client.start()
        try:
            for _ in range(3):
                leader = cluster.leader_of("orders")
                cluster.stop(leader)
                assert cluster.leader_of("orders") != leader
                cluster.start(leader)
                cluster.wait_for(in_sync, lambda count: count == 3, "three replicas in sync")
        finally:
            stop.set()
            for client in clients:
                client.join(WAIT_S)


@pytest.mark.parametrize("name", ["PLAINTEXT", "NOWHERE"])
def test_it_must_be_a_listener_other_than_the_one_between_brokers(name: str) -> None:
    with pytest.raises(ConfigError, match=r"control\.plane\.listener\.name.*CONTROL"):
        BrokerConfig({**OPTIONS, "control.plane.listener.name": name})
