"""What coordinators refuse, over the wire: the errors are answered and forgotten."""

from __future__ import annotations

import gc
import time
from collections.abc import Iterator

import pytest
from tests.rigs.raw_client import RawClient
from tests.rigs.raw_topic import RawTopic
from tests.rigs.raw_transaction import RawTransactions

from tidelog.testing.broker_thread import BrokerThread
from tidelog.wire.api import ApiKey
from tidelog.wire.messages.add_offsets_to_txn import AddOffsetsToTxnRequest
from tidelog.wire.messages.add_partitions_to_txn import AddPartitionsToTxnRequest, AddPartitionsToTxnTopic
from tidelog.wire.messages.consumer_group_heartbeat import ConsumerGroupHeartbeatRequest
from tidelog.wire.messages.end_txn import EndTxnRequest
from tidelog.wire.messages.find_coordinator import FindCoordinatorRequest, FindCoordinatorResponse
from tidelog.wire.messages.heartbeat import HeartbeatRequest
from tidelog.wire.messages.init_producer_id import InitProducerIdRequest
from tidelog.wire.messages.join_group import JoinGroupRequest, JoinGroupRequestProtocol
from tidelog.wire.messages.leave_group import LeaveGroupRequest, MemberIdentity
from tidelog.wire.messages.list_groups import ListGroupsRequest, ListGroupsResponse
from tidelog.wire.messages.offset_commit import (
    OffsetCommitRequest,
    OffsetCommitRequestPartition,
    OffsetCommitRequestTopic,
)
from tidelog.wire.messages.sync_group import SyncGroupRequest
from tidelog.wire.messages.txn_offset_commit import (
    TxnOffsetCommitRequest,
    TxnOffsetCommitRequestPartition,
    TxnOffsetCommitRequestTopic,
)
from tidelog.wire.schema import Payload

REFUSED = 100

REQUESTS: dict[str, tuple[int, Payload]] = {
    "heartbeat": (4, HeartbeatRequest(group_id="g", generation_id=1, member_id="nobody")),
    "sync": (
        5,
        SyncGroupRequest(
            group_id="g", generation_id=1, member_id="nobody", protocol_type="consumer", protocol_name="range"
        ),
    ),
    "join": (
        5,
        JoinGroupRequest(
            group_id="g",
            session_timeout_ms=10_000,
            rebalance_timeout_ms=10_000,
            member_id="nobody",
            protocol_type="consumer",
            protocols=[JoinGroupRequestProtocol(name="range", metadata=b"")],
        ),
    ),
    "leave": (4, LeaveGroupRequest(group_id="g", members=[MemberIdentity(member_id="nobody")])),
    "consumer heartbeat": (
        1,
        ConsumerGroupHeartbeatRequest(group_id="g", member_id="nobody", member_epoch=3),
    ),
    "commit": (
        8,
        OffsetCommitRequest(
            group_id="g",
            generation_id_or_member_epoch=3,
            member_id="nobody",
            topics=[OffsetCommitRequestTopic(name="orders", partitions=[OffsetCommitRequestPartition()])],
        ),
    ),
    "init": (4, InitProducerIdRequest(transactional_id="t", transaction_timeout_ms=-1)),
    "add offsets": (
        3,
        AddOffsetsToTxnRequest(transactional_id="nobody", producer_id=77, producer_epoch=0, group_id="g"),
    ),
    "add partitions": (
        3,
        AddPartitionsToTxnRequest(
            v3_and_below_transactional_id="nobody",
            v3_and_below_producer_id=77,
            v3_and_below_topics=[AddPartitionsToTxnTopic(name="orders", partitions=[0])],
        ),
    ),
    "end": (3, EndTxnRequest(transactional_id="nobody", producer_id=77, producer_epoch=0, committed=True)),
    "end, of an old client": (
        1,
        EndTxnRequest(transactional_id="nobody", producer_id=77, producer_epoch=0, committed=True),
    ),
    "transactional commit": (
        5,
        TxnOffsetCommitRequest(
            transactional_id="nobody",
            group_id="g",
            producer_id=77,
            topics=[
                TxnOffsetCommitRequestTopic(name="orders", partitions=[TxnOffsetCommitRequestPartition()])
            ],
        ),
    ),
}


@pytest.fixture(scope="module")
def coordinated(broker: BrokerThread) -> Iterator[RawClient]:
    """A client of a broker whose coordinators serve."""
    deadline = time.monotonic() + 20
    find = FindCoordinatorRequest(key_type=0, coordinator_keys=["g"])
    with RawClient(broker.host, broker.port) as client:
        RawTopic(client, "orders")
        while client.ask(4, find, FindCoordinatorResponse).coordinators[0].error_code:
            assert time.monotonic() < deadline
        while client.ask(4, ListGroupsRequest(), ListGroupsResponse).error_code:
            assert time.monotonic() < deadline
        for name in ("t", "nobody"):
            RawTransactions(client, name).init()
        yield client


@pytest.mark.parametrize("name", REQUESTS)
def test_refused_requests_leave_nothing_to_the_garbage_collector(coordinated: RawClient, name: str) -> None:
    version, request = REQUESTS[name]

    def refuse() -> None:
        for _ in range(REFUSED):
            response = coordinated.request(ApiKey(request.API_KEY), version, request)
            assert codes_of(response), response

    refuse()
    gc.disable()
    try:
        gc.collect()
        refuse()
        assert gc.collect() < REFUSED
    finally:
        gc.enable()


def codes_of(message: object) -> set[int]:
    """All error codes other than NONE in a response."""
    found: set[int] = set()
    if isinstance(message, list):
        for each in message:
            found |= codes_of(each)
    else:
        for field in getattr(message, "__struct_fields__", ()):
            value = getattr(message, field)
            found |= {value} - {0} if field.endswith("error_code") else codes_of(value)
    return found
