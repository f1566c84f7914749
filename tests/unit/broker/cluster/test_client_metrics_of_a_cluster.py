"""Subscriptions to clients' metrics in a cluster: every broker goes by them, at once and after a restart."""

from __future__ import annotations

from pathlib import Path

from tests.rigs.cluster_thread import ClusterThread
from tests.rigs.raw_client import RawClient

from tidelog.client.admin.admin import Admin
from tidelog.client.resources import AlterConfigOp, AlterConfigOpType, ConfigResource, ResourceType
from tidelog.ids import Uuid
from tidelog.wire.messages.get_telemetry_subscriptions import (
    GetTelemetrySubscriptionsRequest,
    GetTelemetrySubscriptionsResponse,
)

NAME = "a name/ü"


def asked(cluster: ClusterThread, broker: int) -> tuple[int, int]:
    """What a broker asks a client for that has not been there before: the id and the interval."""
    host, _, port = cluster.bootstrap_of(broker).rpartition(":")
    with RawClient(host, int(port)) as client:
        request = GetTelemetrySubscriptionsRequest(client_instance_id=Uuid(b"one-of-a-cluster"))
        answer = client.ask(0, request, GetTelemetrySubscriptionsResponse)
    return answer.subscription_id, answer.push_interval_ms


def alter(admin: Admin, *ops: AlterConfigOp) -> None:
    (result,) = admin.alter_configs({ConfigResource(ResourceType.CLIENT_METRICS, NAME): list(ops)})
    assert result.error is None


def test_all_brokers_ask_for_the_same_and_go_on_where_another_was_left(tmp_path: Path) -> None:
    with ClusterThread(tmp_path, 2) as cluster, Admin(bootstrap_servers=cluster.bootstrap) as admin:
        alter(admin, AlterConfigOp("metrics", "*"), AlterConfigOp("interval.ms", "1234"))
        for broker in cluster.brokers.values():
            cluster.wait_for(lambda broker=broker: NAME in broker.image.client_metrics)  # type: ignore[misc]
        first, second = asked(cluster, 1), asked(cluster, 2)
        assert first == second
        assert first[1] == 1234
        cluster.stop(2)
        cluster.start(2)
        assert asked(cluster, 2) == first
        alter(
            admin,
            AlterConfigOp("metrics", None, AlterConfigOpType.DELETE),
            AlterConfigOp("interval.ms", None, AlterConfigOpType.DELETE),
        )
        for broker in cluster.brokers.values():
            cluster.wait_for(lambda broker=broker: not broker.image.client_metrics)  # type: ignore[misc]
        assert asked(cluster, 1)[1] == 300_000
        assert admin.list_config_resources([ResourceType.CLIENT_METRICS]) == []
