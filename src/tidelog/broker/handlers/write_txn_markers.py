"""WriteTxnMarkers 1 to 2: ends transactions in the partitions that this broker leads.

Sent by transaction coordinators of other brokers, and by admin clients that abort a hanging transaction.
Answered when every marker is committed or refused; a producer that the request names several times is
answered once, with all its partitions. Version 2 says which transaction version the markers are of, by which
late ones are told from others (KIP-890); those of version 1 count as version 0.

The outcome for a partition is described in ``broker/coordination/transaction_markers``.
"""

from __future__ import annotations

from tidelog.broker.context import RequestContext
from tidelog.broker.coordination.transaction_markers import TransactionMarkers
from tidelog.coordinator.transaction.markers import MarkerRequest
from tidelog.errors import ErrorCode
from tidelog.ids import TopicPartition
from tidelog.scheduling.promise import Promise, gather
from tidelog.wire.api import ApiKey
from tidelog.wire.messages.write_txn_markers import (
    WritableTxnMarker,
    WritableTxnMarkerPartitionResult,
    WritableTxnMarkerResult,
    WritableTxnMarkerTopicResult,
    WriteTxnMarkersRequest,
    WriteTxnMarkersResponse,
)

API = ApiKey.WRITE_TXN_MARKERS
VERSIONS = (1, 2)

Codes = dict[TopicPartition, ErrorCode]


def handle(
    context: RequestContext, request: WriteTxnMarkersRequest, markers: TransactionMarkers
) -> Promise[WriteTxnMarkersResponse]:
    """Write all markers, one after the other."""
    written = [markers.write(_request(each)) for each in request.markers]
    return gather(written).then(lambda answers: _response(request.markers, answers))


def _request(marker: WritableTxnMarker) -> MarkerRequest:
    return MarkerRequest(
        marker.producer_id,
        marker.producer_epoch,
        marker.coordinator_epoch,
        marker.transaction_result,
        _partitions(marker),
        marker.transaction_version,
    )


def _partitions(marker: WritableTxnMarker) -> tuple[TopicPartition, ...]:
    return tuple(
        TopicPartition(each.name, index) for each in marker.topics for index in each.partition_indexes
    )


def _response(markers: list[WritableTxnMarker], answers: list[Codes]) -> WriteTxnMarkersResponse:
    by_producer: dict[int, Codes] = {}
    for marker, codes in zip(markers, answers, strict=True):
        by_producer.setdefault(marker.producer_id, {}).update(codes)
    return WriteTxnMarkersResponse(
        markers=[
            WritableTxnMarkerResult(producer_id=producer_id, topics=_topics(codes))
            for producer_id, codes in by_producer.items()
            if codes
        ]
    )


def _topics(codes: Codes) -> list[WritableTxnMarkerTopicResult]:
    topics: dict[str, WritableTxnMarkerTopicResult] = {}
    for (name, index), code in codes.items():
        topic = topics.setdefault(name, WritableTxnMarkerTopicResult(name=name, partitions=[]))
        topic.partitions.append(WritableTxnMarkerPartitionResult(partition_index=index, error_code=code))
    return list(topics.values())
