"""Error codes are counted as Kafka's ``errorCounts`` has them: NONE is one of them."""

from __future__ import annotations

from tidelog.errors import ErrorCode
from tidelog.metrics.request_errors import RequestErrors
from tidelog.wire.messages.heartbeat import HeartbeatResponse
from tidelog.wire.messages.offset_commit import (
    OffsetCommitResponse,
    OffsetCommitResponsePartition,
    OffsetCommitResponseTopic,
)


def committed(*codes: int) -> OffsetCommitResponse:
    partitions = [
        OffsetCommitResponsePartition(partition_index=index, error_code=code)
        for index, code in enumerate(codes)
    ]
    return OffsetCommitResponse(topics=[OffsetCommitResponseTopic(name="orders", partitions=partitions)])


def test_every_code_in_an_answer_counts_and_none_is_one_of_them() -> None:
    errors = RequestErrors()
    errors.count_in("Heartbeat", HeartbeatResponse())
    errors.count_in("Heartbeat", HeartbeatResponse(error_code=ErrorCode.REBALANCE_IN_PROGRESS))
    errors.count_in("OffsetCommit", committed(0, 0, ErrorCode.UNKNOWN_MEMBER_ID))
    assert errors.by_request == {
        "Heartbeat": {"NONE": 1, "REBALANCE_IN_PROGRESS": 1},
        "OffsetCommit": {"NONE": 2, "UNKNOWN_MEMBER_ID": 1},
    }
    assert errors.counted == {"Heartbeat": 2, "OffsetCommit": 1}


def test_a_long_answer_is_counted_in_slices() -> None:
    errors = RequestErrors()
    codes = [0, ErrorCode.UNKNOWN_MEMBER_ID] * 1000
    slices = list(errors.count_in_slices("OffsetCommit", committed(*codes)))
    assert len(slices) > 5
    assert errors.by_request == {"OffsetCommit": {"NONE": 1000, "UNKNOWN_MEMBER_ID": 1000}}
    assert errors.counted == {"OffsetCommit": 1}
