"""The API table is Kafka 4.3's: keys, versions, flexible versions and header versions."""

from __future__ import annotations

import pytest
from kio.index import load_request_schema, load_response_schema
from kio.schema.index import api_key_map, schema_name_map

from tidelog.errors import WireError
from tidelog.wire.api import API_TABLE, ApiKey, request_header_version, response_header_version

ADVERTISED = """
0 Produce 0-13, 1 Fetch 4-18, 2 ListOffsets 1-11, 3 Metadata 0-13, 8 OffsetCommit 2-10, 9 OffsetFetch 1-10,
10 FindCoordinator 0-6, 11 JoinGroup 0-9, 12 Heartbeat 0-4, 13 LeaveGroup 0-5, 14 SyncGroup 0-5,
15 DescribeGroups 0-6, 16 ListGroups 0-5, 17 SaslHandshake 0-1, 18 ApiVersions 0-4, 19 CreateTopics 2-7,
20 DeleteTopics 1-6, 21 DeleteRecords 0-2, 22 InitProducerId 0-5, 23 OffsetForLeaderEpoch 2-4,
24 AddPartitionsToTxn 0-5, 25 AddOffsetsToTxn 0-4, 26 EndTxn 0-5, 27 WriteTxnMarkers 1-2,
28 TxnOffsetCommit 0-5, 29 DescribeAcls 1-3, 30 CreateAcls 1-3, 31 DeleteAcls 1-3, 32 DescribeConfigs 1-4,
33 AlterConfigs 0-2, 34 AlterReplicaLogDirs 1-2, 35 DescribeLogDirs 1-5, 36 SaslAuthenticate 0-2,
37 CreatePartitions 0-3, 38 CreateDelegationToken 1-3, 39 RenewDelegationToken 1-2,
40 ExpireDelegationToken 1-2, 41 DescribeDelegationToken 1-3, 42 DeleteGroups 0-2, 43 ElectLeaders 0-2,
44 IncrementalAlterConfigs 0-1, 45 AlterPartitionReassignments 0-1, 46 ListPartitionReassignments 0-0,
47 OffsetDelete 0-0, 48 DescribeClientQuotas 0-1, 49 AlterClientQuotas 0-1,
50 DescribeUserScramCredentials 0-0, 51 AlterUserScramCredentials 0-0, 55 DescribeQuorum 0-2,
56 AlterPartition 2-3, 57 UpdateFeatures 0-2, 60 DescribeCluster 0-2, 61 DescribeProducers 0-0,
64 UnregisterBroker 0-0, 65 DescribeTransactions 0-0, 66 ListTransactions 0-2,
68 ConsumerGroupHeartbeat 0-1, 69 ConsumerGroupDescribe 0-1, 71 GetTelemetrySubscriptions 0-0,
72 PushTelemetry 0-0, 74 ListConfigResources 0-1, 75 DescribeTopicPartitions 0-0,
76 ShareGroupHeartbeat 1-1, 77 ShareGroupDescribe 1-1, 78 ShareFetch 1-2, 79 ShareAcknowledge 1-2,
80 AddRaftVoter 0-1, 81 RemoveRaftVoter 0-0, 83 InitializeShareGroupState 0-0, 84 ReadShareGroupState 0-0,
85 WriteShareGroupState 0-1, 86 DeleteShareGroupState 0-0, 87 ReadShareGroupStateSummary 0-1,
88 StreamsGroupHeartbeat 0-0, 89 StreamsGroupDescribe 0-0, 90 DescribeShareGroupOffsets 0-1,
91 AlterShareGroupOffsets 0-0, 92 DeleteShareGroupOffsets 0-0
"""


# Between brokers and their controller; the first four are gone from Kafka 4, their versions those of 3.9.
BETWEEN_BROKERS = (
    "4 LeaderAndIsr 0-7, 5 StopReplica 0-4, 6 UpdateMetadata 0-8, 7 ControlledShutdown 0-3, "
    + ("67 AllocateProducerIds 0-0")
)
NOT_IN_THE_ORACLE = {
    ApiKey.LEADER_AND_ISR,
    ApiKey.STOP_REPLICA,
    ApiKey.UPDATE_METADATA,
    ApiKey.CONTROLLED_SHUTDOWN,
}


def test_versions_are_those_of_a_kafka_4_3_broker_and_of_a_3_9_controller() -> None:
    ours = {
        f"{api.key.value} {api.name} {api.advertised_min}-{api.advertised_max}" for api in API_TABLE.values()
    }
    assert ours == set(" ".join(ADVERTISED.split()).split(", ")) | set(BETWEEN_BROKERS.split(", "))
    assert list(API_TABLE) == sorted(API_TABLE)


def test_produce_0_to_2_are_advertised_but_not_accepted() -> None:
    produce = API_TABLE[ApiKey.PRODUCE]
    assert [version for version in range(-1, 16) if produce.accepts(version)] == list(range(3, 14))
    assert produce.advertised_min == 0


def test_init_producer_id_6_is_accepted_but_not_advertised() -> None:
    api = API_TABLE[ApiKey.INIT_PRODUCER_ID]
    assert api.accepts(6)
    assert api.advertised_max == 5


@pytest.mark.parametrize(
    "key", [key for key in ApiKey if key not in NOT_IN_THE_ORACLE], ids=lambda key: key.name
)
def test_versions_classes_and_headers_agree_with_the_oracle(key: ApiKey) -> None:
    api = API_TABLE[key]
    name = api_key_map[key]
    versions = sorted(schema_name_map[name])
    assert key.name == name.upper()
    assert (api.min_version, api.max_version) == (versions[0], versions[-1])
    for payload in (api.request, api.response):
        assert key == payload.API_KEY
        assert (api.min_version, api.max_version) == payload.VERSIONS
        assert api.flexible_since == payload.FLEXIBLE_SINCE
    for version in versions:
        request, response = load_request_schema(key, version), load_response_schema(key, version)
        assert request_header_version(key, version) == request.__header_schema__.__version__
        assert response_header_version(key, version) == response.__header_schema__.__version__


@pytest.mark.parametrize("version", [0, 1, 2, 3, 4, 5, 99])
def test_api_versions_responses_never_have_a_flexible_header(version: int) -> None:
    assert response_header_version(ApiKey.API_VERSIONS, version) == 0


def test_requests_of_versions_to_come_have_the_newest_header() -> None:
    assert request_header_version(ApiKey.API_VERSIONS, 99) == 2


@pytest.mark.parametrize("key", [-1, 52, 93, 32767])
def test_keys_that_do_not_exist_are_refused(key: int) -> None:
    with pytest.raises(WireError, match=str(key)):
        request_header_version(key, 0)
    with pytest.raises(WireError, match=str(key)):
        response_header_version(key, 0)
