from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any

import pytest
from tests.rigs.waiting import until

from tidelog.client._network.cluster import COORDINATOR, Cluster
from tidelog.client._network.retry import Deadline
from tidelog.client.errors import (
    BrokerUnreachableError,
    ClientClosedError,
    ConnectionLostError,
    RequestTimeoutError,
)
from tidelog.client.metadata import Node
from tidelog.errors import ErrorCode, KafkaError
from tidelog.wire.api import ApiKey
from tidelog.wire.codec import decode, encode
from tidelog.wire.messages.api_versions import FinalizedFeatureKey
from tidelog.wire.messages.describe_cluster import DescribeClusterRequest, DescribeClusterResponse
from tidelog.wire.messages.metadata import MetadataResponse, MetadataResponseBroker

Action = Callable[[Cluster], Awaitable[None]]

DESCRIBE = DescribeClusterRequest.VERSIONS[1]
BODY = encode(DescribeClusterRequest(), DESCRIBE)


def run(broker: Any, action: Action, **options: Any) -> None:
    broker.handlers.setdefault(
        ApiKey.DESCRIBE_CLUSTER, lambda request, version: DescribeClusterResponse(cluster_id="scripted")
    )

    async def main() -> None:
        async with broker, Cluster(broker.address, **({"retry_backoff_ms": 1} | options)) as cluster:
            await action(cluster)

    asyncio.run(main())


def cluster_id(body: bytes | memoryview) -> str | None:
    return decode(DescribeClusterResponse, DESCRIBE, body)[0].cluster_id


def test_an_exchange_moves_bodies_without_headers(scripted_broker: Any) -> None:
    async def action(cluster: Cluster) -> None:
        assert cluster_id(await cluster.exchange(7, ApiKey.DESCRIBE_CLUSTER, DESCRIBE, [BODY])) == "scripted"

    run(scripted_broker, action)


def test_requests_leave_in_the_order_of_the_calls_and_are_counted_until_answered(
    scripted_broker: Any,
) -> None:
    async def action(cluster: Cluster) -> None:
        assert cluster.ready(7)
        futures = [cluster.send(7, ApiKey.DESCRIBE_CLUSTER, DESCRIBE, [BODY]) for _ in range(5)]
        assert cluster.in_flight(7) == 5
        assert [cluster_id(each) for each in await asyncio.gather(*futures)] == list("01234")
        assert cluster.in_flight(7) == 0

    numbers = iter(range(5))
    scripted_broker.handlers[ApiKey.DESCRIBE_CLUSTER] = lambda request, version: DescribeClusterResponse(
        cluster_id=str(next(numbers))
    )
    run(scripted_broker, action)


def test_asking_whether_a_broker_is_ready_begins_to_connect_to_it(scripted_broker: Any) -> None:
    async def action(cluster: Cluster) -> None:
        assert not cluster.ready(7, COORDINATOR)
        with pytest.raises(BrokerUnreachableError, match="no connection"):
            cluster.send(7, ApiKey.DESCRIBE_CLUSTER, DESCRIBE, [BODY], channel=COORDINATOR)
        await until(lambda: cluster.ready(7, COORDINATOR))
        assert scripted_broker.connections == 2

    run(scripted_broker, action)


def test_a_broker_that_is_not_in_the_metadata_is_never_ready_and_named_when_used(
    scripted_broker: Any,
) -> None:
    async def action(cluster: Cluster) -> None:
        assert not cluster.ready(5)
        assert cluster.in_flight(5) == 0
        with pytest.raises(KafkaError, match="no broker 5 among those alive: 7"):
            await cluster.exchange(5, ApiKey.DESCRIBE_CLUSTER, DESCRIBE, [BODY])

    run(scripted_broker, action)


def test_a_request_that_waits_on_the_usual_connection_does_not_hold_up_the_coordinators(
    scripted_broker: Any,
) -> None:
    async def action(cluster: Cluster) -> None:
        held = cluster.send(7, ApiKey.DESCRIBE_CLUSTER, DESCRIBE, [BODY])
        answer = await cluster.ask_node(
            7, DescribeClusterRequest(), DescribeClusterResponse, channel=COORDINATOR
        )
        assert answer.cluster_id == "second"
        assert not held.done()
        assert cluster.in_flight(7) == 1
        held.cancel()

    answers = iter([None, DescribeClusterResponse(cluster_id="second")])
    scripted_broker.handlers[ApiKey.DESCRIBE_CLUSTER] = lambda request, version: next(answers)
    run(scripted_broker, action)


def test_versions_are_those_of_the_broker_within_the_callers_bounds(scripted_broker: Any) -> None:
    scripted_broker.versions[ApiKey.PRODUCE] = (3, 9)

    async def action(cluster: Cluster) -> None:
        assert cluster.api_version(7, ApiKey.PRODUCE, 3, 13) == 9
        assert cluster.api_version(7, ApiKey.PRODUCE, 3, 7) == 7
        with pytest.raises(KafkaError, match="PRODUCE") as refused:
            cluster.api_version(7, ApiKey.PRODUCE, 10, 13)
        assert refused.value.code is ErrorCode.UNSUPPORTED_VERSION
        with pytest.raises(BrokerUnreachableError, match="no connection"):
            cluster.api_version(Node(8, "127.0.0.1", 1), ApiKey.PRODUCE, 3, 13)

    run(scripted_broker, action)


def test_a_clusters_features_are_known_from_the_greeting(scripted_broker: Any) -> None:
    def greeting(request: Any, version: int) -> Any:
        response = scripted_broker.api_versions()
        response.finalized_features_epoch = 4
        response.finalized_features = [FinalizedFeatureKey(name="transaction.version", max_version_level=2)]
        return response

    scripted_broker.handlers[ApiKey.API_VERSIONS] = greeting

    async def action(cluster: Cluster) -> None:
        assert cluster.finalized_feature("transaction.version") == 2
        assert cluster.finalized_feature("group.version") == 0

    run(scripted_broker, action)


def test_a_broker_that_asks_for_a_pause_gets_one(scripted_broker: Any) -> None:
    async def action(cluster: Cluster) -> None:
        assert cluster.ready(7)
        await cluster.ask_node(7, DescribeClusterRequest(), DescribeClusterResponse)
        assert not cluster.ready(7)
        assert 0 < cluster.delay_ms(7) <= 60_000

    scripted_broker.handlers[ApiKey.DESCRIBE_CLUSTER] = lambda request, version: DescribeClusterResponse(
        throttle_time_ms=60_000
    )
    run(scripted_broker, action)


def test_a_broker_that_cannot_be_reached_is_left_alone_for_the_back_off(scripted_broker: Any) -> None:
    async def action(cluster: Cluster) -> None:
        gone = Node(9, "127.0.0.1", 1)
        assert not cluster.ready(gone)
        await until(lambda: cluster.delay_ms(gone) > 0)
        assert 40_000 < cluster.delay_ms(gone) <= 72_000
        with pytest.raises(BrokerUnreachableError, match=r"127\.0\.0\.1:1.*connection refused"):
            await cluster.exchange(gone, ApiKey.DESCRIBE_CLUSTER, DESCRIBE, [BODY], timeout_ms=20)

    run(scripted_broker, action, reconnect_backoff_ms=60_000, reconnect_backoff_max_ms=60_000)


def test_a_lost_connection_backs_off(scripted_broker: Any) -> None:
    async def action(cluster: Cluster) -> None:
        connection = await cluster.connection_to(7)
        connection.abort(ConnectionResetError("cut by the test"))
        assert not cluster.ready(7)
        assert 0 < cluster.delay_ms(7) <= 72_000

    run(scripted_broker, action, reconnect_backoff_ms=60_000, reconnect_backoff_max_ms=60_000)


def test_a_lost_connection_is_opened_again_after_the_back_off(scripted_broker: Any) -> None:
    async def action(cluster: Cluster) -> None:
        connection = await cluster.connection_to(7)
        connection.abort(ConnectionResetError("cut by the test"))
        assert cluster_id(await cluster.exchange(7, ApiKey.DESCRIBE_CLUSTER, DESCRIBE, [BODY])) == "scripted"
        assert await cluster.connection_to(7) is not connection

    run(scripted_broker, action, reconnect_backoff_ms=5, reconnect_backoff_max_ms=5)


def test_a_connection_that_nobody_uses_is_closed_and_opened_again_when_wanted(scripted_broker: Any) -> None:
    async def action(cluster: Cluster) -> None:
        connection = await cluster.connection_to(7)
        await until(lambda: not connection.is_open)
        assert cluster.delay_ms(7) == 0
        assert cluster_id(await cluster.exchange(7, ApiKey.DESCRIBE_CLUSTER, DESCRIBE, [BODY])) == "scripted"
        figures = cluster.metrics.snapshot()
        assert figures["connection-creation-total"] == 2
        assert figures["connection-close-total"] >= 1

    run(scripted_broker, action, connections_max_idle_ms=20, reconnect_backoff_ms=60_000)


def test_a_connection_with_a_request_in_flight_is_not_idle(scripted_broker: Any) -> None:
    async def action(cluster: Cluster) -> None:
        connection = await cluster.connection_to(7)
        with pytest.raises(RequestTimeoutError):
            await cluster.exchange(7, ApiKey.DESCRIBE_CLUSTER, DESCRIBE, [BODY], timeout_ms=300)
        assert not connection.is_open

    scripted_broker.handlers[ApiKey.DESCRIBE_CLUSTER] = lambda request, version: None
    run(scripted_broker, action, connections_max_idle_ms=20)


def test_the_least_loaded_broker_is_connected_first_then_least_busy() -> None:
    async def main() -> None:
        client = Cluster("127.0.0.1:1", reconnect_backoff_ms=60_000)
        nodes = {number: Node(number, "127.0.0.1", number) for number in (1, 2)}
        assert client.peers.least_loaded(nodes) in nodes.values()
        for node in nodes.values():
            with pytest.raises(BrokerUnreachableError):
                await client.connection_to(node)
        assert client.peers.least_loaded(nodes) is None
        assert client.least_loaded_node() is None
        await client.close()

    asyncio.run(main())


def test_a_busy_connection_gives_way_to_an_idle_one(scripted_broker: Any) -> None:
    async def action(cluster: Cluster) -> None:
        assert cluster.least_loaded_node() == cluster.metadata.nodes[7]
        busy = cluster.send(7, ApiKey.DESCRIBE_CLUSTER, DESCRIBE, [BODY])
        idle = await cluster.connection_to(7, channel=COORDINATOR)
        assert await cluster.peers.any(cluster.metadata.nodes, cluster.deadline()) is idle
        busy.cancel()

    scripted_broker.handlers[ApiKey.DESCRIBE_CLUSTER] = lambda request, version: None
    run(scripted_broker, action)


def test_closing_fails_what_is_in_flight_and_whatever_comes_later(scripted_broker: Any) -> None:
    async def action(cluster: Cluster) -> None:
        answer = cluster.send(7, ApiKey.DESCRIBE_CLUSTER, DESCRIBE, [BODY])
        await cluster.close()
        with pytest.raises(ConnectionLostError, match=r"DESCRIBE_CLUSTER.*this client closed it"):
            await answer
        with pytest.raises(ClientClosedError):
            await cluster.exchange(7, ApiKey.DESCRIBE_CLUSTER, DESCRIBE, [BODY])

    scripted_broker.handlers[ApiKey.DESCRIBE_CLUSTER] = lambda request, version: None
    run(scripted_broker, action)


def advertise_nobody(broker: Any) -> None:
    """The only broker in the metadata is one that cannot be reached."""
    broker.handlers[ApiKey.METADATA] = lambda request, version: MetadataResponse(
        brokers=[MetadataResponseBroker(node_id=3, host="127.0.0.1", port=1)], cluster_id="scripted"
    )


def test_when_no_known_broker_can_be_reached_the_bootstrap_servers_are_asked_again(
    scripted_broker: Any,
) -> None:
    async def action(cluster: Cluster) -> None:
        await cluster.peers.disconnect()
        assert list(cluster.metadata.nodes) == [3]
        assert (await cluster.refresh([])).cluster_id == "scripted"

    advertise_nobody(scripted_broker)
    run(scripted_broker, action)


def test_without_recovery_the_bootstrap_servers_are_not_asked_again(scripted_broker: Any) -> None:
    async def action(cluster: Cluster) -> None:
        await cluster.peers.disconnect()
        with pytest.raises(BrokerUnreachableError, match=r"127\.0\.0\.1:1"):
            await cluster.refresh([], deadline=cluster.deadline(50))

    advertise_nobody(scripted_broker)
    run(scripted_broker, action, metadata_recovery_strategy="none")


def test_a_broker_that_wants_clients_to_start_again_is_obeyed(scripted_broker: Any) -> None:
    metadata = scripted_broker.metadata
    answers = iter([metadata, lambda: MetadataResponse(error_code=ErrorCode.REBOOTSTRAP_REQUIRED), metadata])
    scripted_broker.handlers[ApiKey.METADATA] = lambda request, version: next(answers)()

    async def action(cluster: Cluster) -> None:
        connection = await cluster.connection_to(7)
        with pytest.raises(KafkaError, match="REBOOTSTRAP_REQUIRED"):
            await cluster.refresh([])
        assert cluster.metadata.nodes == {}
        assert not connection.is_open
        await cluster.refresh([])
        assert list(cluster.metadata.nodes) == [7]

    run(scripted_broker, action)


def test_metadata_that_never_comes_makes_the_client_start_again(scripted_broker: Any) -> None:
    metadata = scripted_broker.metadata
    answers = iter([metadata, lambda: MetadataResponse(error_code=ErrorCode.UNKNOWN_SERVER_ERROR), metadata])
    scripted_broker.handlers[ApiKey.METADATA] = lambda request, version: next(answers)()

    async def action(cluster: Cluster) -> None:
        connection = await cluster.connection_to(7)
        with pytest.raises(KafkaError):
            await cluster.refresh([])
        assert connection.is_open
        # The time without metadata is what counts, in milliseconds of the real clock.
        await asyncio.sleep(0.002)
        await cluster.refresh([])
        assert not connection.is_open

    run(scripted_broker, action, metadata_recovery_rebootstrap_trigger_ms=1)


def test_starting_again_cancels_nobody_who_waits_for_a_connection(scripted_broker: Any) -> None:
    async def action(cluster: Cluster) -> None:
        connection = await cluster.connection_to(7)
        connection.abort(ConnectionAbortedError("the test cuts it"))
        scripted_broker.handlers[ApiKey.API_VERSIONS] = lambda request, version: None
        asked = len(scripted_broker.requests(ApiKey.API_VERSIONS))
        bystander = asyncio.create_task(
            cluster.request_any(DescribeClusterRequest(), DescribeClusterResponse, Deadline(20_000))
        )
        await until(lambda: len(scripted_broker.requests(ApiKey.API_VERSIONS)) > asked)
        scripted_broker.handlers[ApiKey.API_VERSIONS] = lambda request, version: (
            scripted_broker.api_versions()
        )
        await cluster._rebootstrap()
        assert (await bystander).cluster_id == "scripted"

    run(scripted_broker, action)


def test_figures_are_told_by_kafkas_names(scripted_broker: Any) -> None:
    async def action(cluster: Cluster) -> None:
        await cluster.exchange(7, ApiKey.DESCRIBE_CLUSTER, DESCRIBE, [BODY])
        figures = cluster.metrics.snapshot()
        assert figures["request-total"] == figures["response-total"] == 3
        assert figures["request-total{node-id=node-7}"] == 3
        assert figures["outgoing-byte-total"] > 3 * len(BODY)
        assert figures["incoming-byte-total"] > 0
        assert figures["connection-count"] == 1
        assert (
            0
            < figures["request-latency-avg{node-id=node-7}"]
            <= figures["request-latency-max{node-id=node-7}"]
        )
        assert 0 <= figures["metadata-age"] < 60

    run(scripted_broker, action)
