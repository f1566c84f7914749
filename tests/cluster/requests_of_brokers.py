"""The requests that only brokers may send, in every version, as an attacker would fill them in.

They name a topic and brokers that exist and the highest epochs that there can be, so that a broker that let
one of them in would act on it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any, NamedTuple, TypeVar

from tidelog.ids import Uuid
from tidelog.wire.api import API_TABLE, ApiKey
from tidelog.wire.messages import add_partitions_to_txn as apt
from tidelog.wire.messages import allocate_producer_ids as api_
from tidelog.wire.messages import alter_partition as ap
from tidelog.wire.messages import controlled_shutdown as cs
from tidelog.wire.messages import fetch as fe
from tidelog.wire.messages import leader_and_isr as li
from tidelog.wire.messages import stop_replica as sr
from tidelog.wire.messages import update_metadata as um
from tidelog.wire.messages import write_txn_markers as wtm
from tidelog.wire.schema import Message, Payload

_EPOCH = 2**31 - 1
_BROKER_EPOCH = 2**62
_BROKERS = [1, 2, 3]

NOT_SERVED = (52, 53, 54, 55, 58, 59, 62, 63, 70, 73, 82)
"""API keys of requests of brokers and controllers without ZooKeeper, and of Envelope."""

M = TypeVar("M", bound=Message)


class Target(NamedTuple):
    """What an attack is aimed at."""

    topic: str
    topic_id: Uuid
    transactional_id: str


def _in_version(version: int) -> Callable[..., Any]:
    """A maker of messages that leaves out the fields that a version does not have."""

    def make(message: type[M], **fields: Any) -> M:
        there = {each.name for each in message.FIELDS if each.present_in(version)}
        assert fields.keys() <= {each.name for each in message.FIELDS}
        return message(**{name: value for name, value in fields.items() if name in there})

    return make


def attacks(target: Target) -> Iterator[tuple[ApiKey, int, Payload]]:
    """Every API that takes CLUSTER_ACTION, in every version of it."""
    for key, request_of in _REQUESTS.items():
        api = API_TABLE[key]
        for version in range(max(api.min_version, _FROM.get(key, 0)), api.max_version + 1):
            yield key, version, request_of(_in_version(version), target)


def _leader_and_isr(make: Callable[..., Any], target: Target) -> Payload:
    state = make(
        li.LeaderAndIsrPartitionState,
        topic_name=target.topic,
        controller_epoch=_EPOCH,
        leader=3,
        leader_epoch=_EPOCH,
        isr=[3],
        partition_epoch=_EPOCH,
        replicas=[3],
        is_new=True,
    )
    topic = make(
        li.LeaderAndIsrTopicState, topic_name=target.topic, topic_id=target.topic_id, partition_states=[state]
    )
    request: Payload = make(
        li.LeaderAndIsrRequest,
        controller_id=1,
        controller_epoch=_EPOCH,
        broker_epoch=_BROKER_EPOCH,
        ungrouped_partition_states=[state],
        topic_states=[topic],
        live_leaders=[make(li.LeaderAndIsrLiveLeader, broker_id=3, host_name="127.0.0.1", port=9)],
    )
    return request


def _stop_replica(make: Callable[..., Any], target: Target) -> Payload:
    state = make(sr.StopReplicaPartitionState, leader_epoch=_EPOCH, delete_partition=True)
    request: Payload = make(
        sr.StopReplicaRequest,
        controller_id=1,
        controller_epoch=_EPOCH,
        broker_epoch=_BROKER_EPOCH,
        delete_partitions=True,
        ungrouped_partitions=[make(sr.StopReplicaPartitionV0, topic_name=target.topic)],
        topics=[make(sr.StopReplicaTopicV1, name=target.topic, partition_indexes=[0])],
        topic_states=[make(sr.StopReplicaTopicState, topic_name=target.topic, partition_states=[state])],
    )
    return request


def _update_metadata(make: Callable[..., Any], target: Target) -> Payload:
    state = make(
        um.UpdateMetadataPartitionState,
        topic_name=target.topic,
        controller_epoch=_EPOCH,
        leader=3,
        leader_epoch=_EPOCH,
        isr=[3],
        zk_version=_EPOCH,
        replicas=[3],
    )
    endpoint = make(
        um.UpdateMetadataEndpoint, port=9, host="127.0.0.9", listener="SASL_SSL", security_protocol=3
    )
    request: Payload = make(
        um.UpdateMetadataRequest,
        controller_id=3,
        controller_epoch=_EPOCH,
        broker_epoch=_BROKER_EPOCH,
        ungrouped_partition_states=[state],
        topic_states=[
            make(
                um.UpdateMetadataTopicState,
                topic_name=target.topic,
                topic_id=target.topic_id,
                partition_states=[state],
            )
        ],
        live_brokers=[
            make(um.UpdateMetadataBroker, id=each, v0_host="127.0.0.9", v0_port=9, endpoints=[endpoint])
            for each in _BROKERS
        ],
    )
    return request


def _controlled_shutdown(make: Callable[..., Any], _: Target) -> Payload:
    request: Payload = make(cs.ControlledShutdownRequest, broker_id=1, broker_epoch=_BROKER_EPOCH)
    return request


def _alter_partition(make: Callable[..., Any], target: Target) -> Payload:
    partition = make(
        ap.AlterPartitionRequestPartitionData,
        leader_epoch=_EPOCH,
        new_isr=[3],
        new_isr_with_epochs=[make(ap.BrokerState, broker_id=3, broker_epoch=-1)],
        partition_epoch=_EPOCH,
    )
    topic = make(ap.AlterPartitionRequestTopicData, topic_id=target.topic_id, partitions=[partition])
    request: Payload = make(ap.AlterPartitionRequest, broker_id=1, broker_epoch=_BROKER_EPOCH, topics=[topic])
    return request


def _allocate_producer_ids(make: Callable[..., Any], _: Target) -> Payload:
    request: Payload = make(api_.AllocateProducerIdsRequest, broker_id=1, broker_epoch=_BROKER_EPOCH)
    return request


def _write_txn_markers(make: Callable[..., Any], target: Target) -> Payload:
    marker = make(
        wtm.WritableTxnMarker,
        producer_id=0,
        producer_epoch=2**15 - 1,
        transaction_result=True,
        topics=[make(wtm.WritableTxnMarkerTopic, name=target.topic, partition_indexes=[0])],
        coordinator_epoch=_EPOCH,
    )
    request: Payload = make(wtm.WriteTxnMarkersRequest, markers=[marker])
    return request


def _add_partitions_as_broker(make: Callable[..., Any], target: Target) -> Payload:
    transaction = make(
        apt.AddPartitionsToTxnTransaction,
        transactional_id=target.transactional_id,
        producer_id=0,
        producer_epoch=0,
        verify_only=False,
        topics=[make(apt.AddPartitionsToTxnTopic, name=target.topic, partitions=[0])],
    )
    request: Payload = make(apt.AddPartitionsToTxnRequest, transactions=[transaction])
    return request


def _fetch_as_replica(make: Callable[..., Any], target: Target) -> Payload:
    partition = make(fe.FetchPartition, fetch_offset=0, partition_max_bytes=1000)
    request: Payload = make(
        fe.FetchRequest,
        replica_id=3,
        replica_state=make(fe.ReplicaState, replica_id=3, replica_epoch=_BROKER_EPOCH),
        min_bytes=1,
        max_bytes=1000,
        session_epoch=-1,
        topics=[make(fe.FetchTopic, topic=target.topic, topic_id=target.topic_id, partitions=[partition])],
    )
    return request


_REQUESTS: dict[ApiKey, Callable[[Callable[..., Any], Target], Payload]] = {
    ApiKey.LEADER_AND_ISR: _leader_and_isr,
    ApiKey.STOP_REPLICA: _stop_replica,
    ApiKey.UPDATE_METADATA: _update_metadata,
    ApiKey.CONTROLLED_SHUTDOWN: _controlled_shutdown,
    ApiKey.ALTER_PARTITION: _alter_partition,
    ApiKey.ALLOCATE_PRODUCER_IDS: _allocate_producer_ids,
    ApiKey.WRITE_TXN_MARKERS: _write_txn_markers,
    ApiKey.ADD_PARTITIONS_TO_TXN: _add_partitions_as_broker,
    ApiKey.FETCH: _fetch_as_replica,
}
# Before this version it is a request of clients.
_FROM = {ApiKey.ADD_PARTITIONS_TO_TXN: 4}


def error_codes(message: Message) -> Iterator[int]:
    """All that an answer has, at whatever depth."""
    for each in message.FIELDS:
        value = getattr(message, each.name)
        if each.name.endswith("error_code"):
            yield value
        elif isinstance(value, list):
            for one in value:
                if isinstance(one, Message):
                    yield from error_codes(one)
