"""Who may change something cannot stop a cluster by making it keep more than ZooKeeper takes at once.

A request that would need that is refused by itself; the controller goes on with the others.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from tests.rigs.cluster_thread import ClusterThread
from tests.rigs.raw_client import RawClient

from tidelog.errors import ErrorCode
from tidelog.wire.messages.alter_client_quotas import (
    AlterClientQuotasRequest,
    AlterClientQuotasRequestEntryData,
    AlterClientQuotasResponse,
    EntityData,
    OpData,
)
from tidelog.wire.messages.create_acls import AclCreation, CreateAclsRequest, CreateAclsResponse
from tidelog.wire.messages.create_partitions import (
    CreatePartitionsRequest,
    CreatePartitionsResponse,
    CreatePartitionsTopic,
)
from tidelog.wire.messages.create_topics import (
    CreatableTopic,
    CreatableTopicConfig,
    CreateTopicsRequest,
    CreateTopicsResponse,
)
from tidelog.wire.messages.incremental_alter_configs import (
    AlterableConfig,
    AlterConfigsResource,
    IncrementalAlterConfigsRequest,
    IncrementalAlterConfigsResponse,
)

THROTTLED = "follower.replication.throttled.replicas"
LONG = ",".join(f"{number}:1" for number in range(4_000))
MAX_BYTES = 20_000
OPTIONS = {
    "authorizer.class.name": "kafka.security.authorizer.AclAuthorizer",
    "super.users": "User:ANONYMOUS",
    "default.replication.factor": "2",
}


@pytest.fixture
def controller(tmp_path: Path) -> Iterator[RawClient]:
    with ClusterThread(tmp_path, 2, options=OPTIONS) as cluster:
        cluster.zookeeper.max_bytes = MAX_BYTES
        host, _, port = cluster.bootstrap_of(1).rpartition(":")
        with RawClient(host, int(port)) as client:
            yield client


def topic(name: str, throttled: str | None = None) -> CreatableTopic:
    configs = [] if throttled is None else [CreatableTopicConfig(name=THROTTLED, value=throttled)]
    return CreatableTopic(name=name, num_partitions=1, replication_factor=2, configs=configs)


def create(client: RawClient, *topics: CreatableTopic) -> dict[str, int]:
    request = CreateTopicsRequest(topics=list(topics), timeout_ms=20_000)
    answer = client.ask(7, request, CreateTopicsResponse)
    return {each.name: each.error_code for each in answer.topics}


def test_a_request_that_zookeeper_would_not_take_is_refused_by_itself(controller: RawClient) -> None:
    made = create(controller, topic("before"), topic("large", LONG), topic("after"))
    assert made == {"before": 0, "large": ErrorCode.INVALID_REQUEST, "after": 0}
    changed = controller.ask(
        1,
        IncrementalAlterConfigsRequest(
            resources=[
                AlterConfigsResource(
                    resource_type=2,
                    resource_name="before",
                    configs=[AlterableConfig(name=THROTTLED, config_operation=0, value=LONG)],
                )
            ]
        ),
        IncrementalAlterConfigsResponse,
    )
    assert changed.responses[0].error_code == ErrorCode.INVALID_REQUEST
    assert "jute.maxbuffer" in (changed.responses[0].error_message or "")
    rule = AclCreation(
        resource_type=2,
        resource_name="n" * MAX_BYTES,
        resource_pattern_type=3,
        principal="User:a",
        host="*",
        operation=3,
        permission_type=3,
    )
    ruled = controller.ask(3, CreateAclsRequest(creations=[rule]), CreateAclsResponse)
    assert ruled.results[0].error_code == ErrorCode.INVALID_REQUEST
    assert "jute.maxbuffer" in (ruled.results[0].error_message or "")
    quota = AlterClientQuotasRequestEntryData(
        entity=[EntityData(entity_type="client-id", entity_name="n" * MAX_BYTES)],
        ops=[OpData(key="producer_byte_rate", value=1e6)],
    )
    bounded = controller.ask(1, AlterClientQuotasRequest(entries=[quota]), AlterClientQuotasResponse)
    assert bounded.entries[0].error_code == ErrorCode.INVALID_REQUEST
    grown = CreatePartitionsRequest(
        topics=[
            CreatePartitionsTopic(name="before", count=3000, assignments=None),
            CreatePartitionsTopic(name="after", count=2, assignments=None),
        ],
        timeout_ms=20_000,
    )
    more = controller.ask(3, grown, CreatePartitionsResponse)
    assert {each.name: each.error_code for each in more.results} == {
        "before": ErrorCode.INVALID_REQUEST,
        "after": 0,
    }
    assert create(controller, topic("large")) == {"large": 0}
