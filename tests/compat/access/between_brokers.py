"""What brokers ask of each other where there is a ZooKeeper: CLUSTER_ACTION, and nothing else, lets it in.

Whoever has it is answered by its next check, which none of these requests passes: they are of a controller
that has been replaced, or of brokers that are not there.
"""

from __future__ import annotations

from tests.compat.access.table import CLUSTER_ACTION, Access, cluster

from tidelog.wire.messages.add_partitions_to_txn import (
    AddPartitionsToTxnRequest,
    AddPartitionsToTxnTopic,
    AddPartitionsToTxnTransaction,
)
from tidelog.wire.messages.allocate_producer_ids import AllocateProducerIdsRequest
from tidelog.wire.messages.alter_partition import AlterPartitionRequest
from tidelog.wire.messages.controlled_shutdown import ControlledShutdownRequest
from tidelog.wire.messages.leader_and_isr import LeaderAndIsrRequest
from tidelog.wire.messages.stop_replica import StopReplicaRequest
from tidelog.wire.messages.update_metadata import UpdateMetadataRequest

_NOBODY = 999
_NEEDS = (cluster(CLUSTER_ACTION),)

BETWEEN_BROKERS: tuple[Access, ...] = (
    Access("leader-and-isr", 7, _NEEDS, lambda g: LeaderAndIsrRequest(controller_id=_NOBODY)),
    Access("stop-replica", 4, _NEEDS, lambda g: StopReplicaRequest(controller_id=_NOBODY)),
    Access("update-metadata", 8, _NEEDS, lambda g: UpdateMetadataRequest(controller_id=_NOBODY)),
    Access("controlled-shutdown", 3, _NEEDS, lambda g: ControlledShutdownRequest(broker_id=_NOBODY)),
    Access("alter-partition", 3, _NEEDS, lambda g: AlterPartitionRequest(broker_id=_NOBODY)),
    Access("allocate-producer-ids", 0, _NEEDS, lambda g: AllocateProducerIdsRequest(broker_id=_NOBODY)),
    Access(
        "add-partitions-to-txn-as-broker",
        4,
        _NEEDS,
        lambda g: AddPartitionsToTxnRequest(
            transactions=[
                AddPartitionsToTxnTransaction(
                    transactional_id=g.transaction,
                    producer_id=4711,
                    producer_epoch=0,
                    verify_only=True,
                    topics=[AddPartitionsToTxnTopic(name=g.topic, partitions=[0])],
                )
            ]
        ),
    ),
)
