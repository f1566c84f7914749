from __future__ import annotations

import pytest

from tidelog.broker.responses import is_long
from tidelog.wire.messages.consumer_group_describe import (
    Assignment,
    ConsumerGroupDescribeResponse,
    Member,
    TopicPartitions,
)
from tidelog.wire.messages.consumer_group_describe import DescribedGroup as ConsumerGroup
from tidelog.wire.messages.describe_groups import DescribedGroup, DescribedGroupMember, DescribeGroupsResponse
from tidelog.wire.schema import Payload


def classic(groups: int, metadata: int) -> DescribeGroupsResponse:
    member = DescribedGroupMember(member_metadata=bytes(metadata))
    return DescribeGroupsResponse(groups=[DescribedGroup(members=[member])] * groups)


def consumers(partitions: int) -> ConsumerGroupDescribeResponse:
    owned = Assignment(topic_partitions=[TopicPartitions(partitions=list(range(partitions)))])
    return ConsumerGroupDescribeResponse(groups=[ConsumerGroup(members=[Member(assignment=owned)])])


@pytest.mark.parametrize(
    ("response", "long"),
    [
        (classic(400, 100), False),
        (classic(500, 100), True),
        (classic(2, 100_000), False),
        (classic(2, 900_000), True),
        (consumers(900), False),
        (consumers(1000), True),
    ],
)
def test_a_response_is_long_by_its_elements_and_by_its_bytes(response: Payload, long: bool) -> None:
    assert is_long(response) is long
