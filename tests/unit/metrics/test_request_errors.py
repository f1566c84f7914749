"""Error codes are counted as Kafka's ``errorCounts`` has them: NONE is one of them."""

from __future__ import annotations

import pytest

from tidelog.errors import ErrorCode
from tidelog.metrics.request_errors import RequestErrors
from tidelog.wire.api import API_TABLE
from tidelog.wire.messages.add_partitions_to_txn import (
    AddPartitionsToTxnPartitionResult,
    AddPartitionsToTxnResponse,
    AddPartitionsToTxnResult,
    AddPartitionsToTxnTopicResult,
)
from tidelog.wire.messages.create_topics import CreatableTopicResult, CreateTopicsResponse
from tidelog.wire.messages.delete_acls import (
    DeleteAclsFilterResult,
    DeleteAclsMatchingAcl,
    DeleteAclsResponse,
)
from tidelog.wire.messages.elect_leaders import (
    ElectLeadersResponse,
    PartitionResult,
    ReplicaElectionResult,
)
from tidelog.wire.messages.find_coordinator import Coordinator, FindCoordinatorResponse
from tidelog.wire.messages.heartbeat import HeartbeatResponse
from tidelog.wire.messages.offset_commit import (
    OffsetCommitResponse,
    OffsetCommitResponsePartition,
    OffsetCommitResponseTopic,
)
from tidelog.wire.messages.offset_fetch import OffsetFetchResponse, OffsetFetchResponseGroup
from tidelog.wire.schema import Payload


def committed(*codes: int) -> OffsetCommitResponse:
    partitions = [
        OffsetCommitResponsePartition(partition_index=index, error_code=code)
        for index, code in enumerate(codes)
    ]
    return OffsetCommitResponse(topics=[OffsetCommitResponseTopic(name="orders", partitions=partitions)])


def test_every_code_in_an_answer_counts_and_none_is_one_of_them() -> None:
    errors = RequestErrors()
    errors.count_in("Heartbeat", HeartbeatResponse(), 4)
    errors.count_in("Heartbeat", HeartbeatResponse(error_code=ErrorCode.REBALANCE_IN_PROGRESS), 4)
    errors.count_in("OffsetCommit", committed(0, 0, ErrorCode.UNKNOWN_MEMBER_ID), 8)
    assert errors.by_request == {
        "Heartbeat": {"NONE": 1, "REBALANCE_IN_PROGRESS": 1},
        "OffsetCommit": {"NONE": 2, "UNKNOWN_MEMBER_ID": 1},
    }
    assert errors.counted == {"Heartbeat": 2, "OffsetCommit": 1}


def test_a_long_answer_is_counted_in_slices() -> None:
    errors = RequestErrors()
    codes = [0, ErrorCode.UNKNOWN_MEMBER_ID] * 1000
    slices = list(errors.count_in_slices("OffsetCommit", committed(*codes), 8))
    assert len(slices) > 5
    assert errors.by_request == {"OffsetCommit": {"NONE": 1000, "UNKNOWN_MEMBER_ID": 1000}}
    assert errors.counted == {"OffsetCommit": 1}


def counted(request: str, response: Payload, version: int) -> dict[str, int]:
    """By error, counted at once and in slices."""
    errors, sliced = RequestErrors(), RequestErrors()
    errors.count_in(request, response, version)
    list(sliced.count_in_slices(request, response, version))
    assert sliced.by_request == errors.by_request
    return dict(errors.by_request[request])


def test_partitions_that_are_added_to_a_transaction_are_counted() -> None:
    partitions = [
        AddPartitionsToTxnPartitionResult(partition_index=index, partition_error_code=code)
        for index, code in enumerate([0, ErrorCode.INVALID_PRODUCER_ID_MAPPING])
    ]
    topics = [AddPartitionsToTxnTopicResult(name="orders", results_by_partition=partitions)]
    found = {"NONE": 1, "INVALID_PRODUCER_ID_MAPPING": 1}
    response = AddPartitionsToTxnResponse(results_by_topic_v3_and_below=topics)
    assert counted("AddPartitionsToTxn", response, 3) == found
    transaction = AddPartitionsToTxnResult(transactional_id="t", topic_results=topics)
    response = AddPartitionsToTxnResponse(results_by_transaction=[transaction])
    assert counted("AddPartitionsToTxn", response, 4) == {**found, "NONE": 2}, "that of the answer, too"


def test_codes_of_a_created_topics_configs_do_not_count() -> None:
    topic = CreatableTopicResult(name="orders", topic_config_error_code=ErrorCode.TOPIC_AUTHORIZATION_FAILED)
    assert counted("CreateTopics", CreateTopicsResponse(topics=[topic]), 5) == {"NONE": 1}


NOT_HERE = ErrorCode.NOT_COORDINATOR


@pytest.mark.parametrize(
    ("request_name", "failed", "version"),
    [
        ("FindCoordinator", FindCoordinatorResponse(error_code=NOT_HERE), 3),
        ("FindCoordinator", FindCoordinatorResponse(coordinators=[Coordinator(error_code=NOT_HERE)]), 4),
        ("OffsetFetch", OffsetFetchResponse(error_code=NOT_HERE), 7),
        ("OffsetFetch", OffsetFetchResponse(groups=[OffsetFetchResponseGroup(error_code=NOT_HERE)]), 8),
    ],
)
def test_a_code_that_is_not_in_the_answers_version_does_not_count(
    request_name: str, failed: Payload, version: int
) -> None:
    assert counted(request_name, failed, version) == {"NOT_COORDINATOR": 1}


def test_every_code_that_later_versions_do_not_carry_is_known() -> None:
    for api in API_TABLE.values():
        for field in api.response.FIELDS:
            if field.name == "error_code" and field.until < api.response.VERSIONS[1]:
                assert counted(api.name, api.response(), field.until) == {"NONE": 1}, api.name
                assert counted(api.name, api.response(), field.until + 1) == {}, api.name


def test_the_code_of_an_election_counts_also_before_answers_carry_it() -> None:
    refused = PartitionResult(error_code=ErrorCode.ELECTION_NOT_NEEDED)
    response = ElectLeadersResponse(
        replica_election_results=[ReplicaElectionResult(topic="orders", partition_result=[refused])]
    )
    assert counted("ElectLeaders", response, 0) == {"NONE": 1, "ELECTION_NOT_NEEDED": 1}


def test_acls_that_were_deleted_count_by_their_filters() -> None:
    found = DeleteAclsFilterResult(matching_acls=[DeleteAclsMatchingAcl(), DeleteAclsMatchingAcl()])
    assert counted("DeleteAcls", DeleteAclsResponse(filter_results=[found]), 3) == {"NONE": 1}
