"""Talk to any Kafka cluster of version 2.1 or later, Tidelog's or Apache's.

    producer, consumer, admin     the clients: an asyncio core each, a synchronous face with the same names
    group                         membership of consumers: classic protocol and KIP-848
    cluster, network_client       requests to the right broker, metadata, retries
    peers, peer, opening          connections: back-off, channels, TLS and SASL (security)
    connection, receiver          one TCP connection: versions, requests in flight, frames
    options, settings             Kafka's options of each client; what the network needs of them
    loop_thread                   the background thread of a synchronous client
    metrics                       figures under Kafka's names

Nothing here imports the server. The public names below are loaded when they are first used.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from tidelog.client.admin.admin import Admin as Admin
    from tidelog.client.admin.async_admin import AsyncAdmin as AsyncAdmin
    from tidelog.client.admin.cluster_resources import BrokerLogDirs as BrokerLogDirs
    from tidelog.client.admin.cluster_resources import ElectionType as ElectionType
    from tidelog.client.admin.cluster_resources import FeatureMetadata as FeatureMetadata
    from tidelog.client.admin.cluster_resources import FeatureResult as FeatureResult
    from tidelog.client.admin.cluster_resources import FeatureUpdate as FeatureUpdate
    from tidelog.client.admin.cluster_resources import LogDirDescription as LogDirDescription
    from tidelog.client.admin.cluster_resources import PartitionReassignment as PartitionReassignment
    from tidelog.client.admin.cluster_resources import ReplicaInfo as ReplicaInfo
    from tidelog.client.admin.cluster_resources import ReplicaMove as ReplicaMove
    from tidelog.client.admin.cluster_resources import UpgradeType as UpgradeType
    from tidelog.client.admin.cluster_resources import VersionRange as VersionRange
    from tidelog.client.admin.group_resources import CommittedOffset as CommittedOffset
    from tidelog.client.admin.group_resources import GroupDescription as GroupDescription
    from tidelog.client.admin.group_resources import GroupLag as GroupLag
    from tidelog.client.admin.group_resources import GroupListing as GroupListing
    from tidelog.client.admin.group_resources import GroupOffsets as GroupOffsets
    from tidelog.client.admin.group_resources import GroupResult as GroupResult
    from tidelog.client.admin.group_resources import GroupState as GroupState
    from tidelog.client.admin.group_resources import GroupType as GroupType
    from tidelog.client.admin.group_resources import ListedGroups as ListedGroups
    from tidelog.client.admin.group_resources import MemberDescription as MemberDescription
    from tidelog.client.admin.group_resources import MemberResult as MemberResult
    from tidelog.client.admin.group_resources import PartitionLag as PartitionLag
    from tidelog.client.admin.group_resources import PartitionResult as PartitionResult
    from tidelog.client.admin.offset_reset import NothingCommittedError as NothingCommittedError
    from tidelog.client.admin.offset_reset import PlannedOffset as PlannedOffset
    from tidelog.client.admin.offset_reset import ResetPlan as ResetPlan
    from tidelog.client.admin.offset_reset import ShiftBy as ShiftBy
    from tidelog.client.admin.offset_reset import ToCurrent as ToCurrent
    from tidelog.client.admin.offset_reset import ToOffset as ToOffset
    from tidelog.client.admin.offset_reset import ToOffsets as ToOffsets
    from tidelog.client.admin.offset_reset import ToPlace as ToPlace
    from tidelog.client.admin.offset_reset import ToTime as ToTime
    from tidelog.client.admin.transaction_resources import AbortMarker as AbortMarker
    from tidelog.client.admin.transaction_resources import HangingTransactions as HangingTransactions
    from tidelog.client.admin.transaction_resources import ListedTransactions as ListedTransactions
    from tidelog.client.admin.transaction_resources import OpenTransaction as OpenTransaction
    from tidelog.client.admin.transaction_resources import PartitionProducers as PartitionProducers
    from tidelog.client.admin.transaction_resources import ProducerState as ProducerState
    from tidelog.client.admin.transaction_resources import TransactionDescription as TransactionDescription
    from tidelog.client.admin.transaction_resources import TransactionListing as TransactionListing
    from tidelog.client.admin.transaction_resources import TransactionState as TransactionState
    from tidelog.client.consumer.async_consumer import AsyncConsumer as AsyncConsumer
    from tidelog.client.consumer.consumer import Consumer as Consumer
    from tidelog.client.consumer.errors import ConsumerTimeoutError as ConsumerTimeoutError
    from tidelog.client.consumer.errors import IllegalStateError as IllegalStateError
    from tidelog.client.consumer.errors import LogTruncationError as LogTruncationError
    from tidelog.client.consumer.errors import NoOffsetForPartitionError as NoOffsetForPartitionError
    from tidelog.client.consumer.errors import OffsetOutOfRangeError as OffsetOutOfRangeError
    from tidelog.client.consumer.errors import RecordDeserializationError as RecordDeserializationError
    from tidelog.client.consumer.errors import RecordTooLargeError as RecordTooLargeError
    from tidelog.client.consumer.errors import WakeupError as WakeupError
    from tidelog.client.consumer.failure_policy import DeadLetter as DeadLetter
    from tidelog.client.consumer.failure_policy import Retry as Retry
    from tidelog.client.consumer.failure_policy import Skip as Skip
    from tidelog.client.consumer.failure_policy import Stop as Stop
    from tidelog.client.consumer.interceptors import ConsumerInterceptor as ConsumerInterceptor
    from tidelog.client.consumer.listener import RebalanceListener as RebalanceListener
    from tidelog.client.consumer.partition_state import OffsetAndMetadata as OffsetAndMetadata
    from tidelog.client.consumer.stream_consumer import StreamConsumer as StreamConsumer
    from tidelog.client.consumer.subscription_state import SubscriptionPattern as SubscriptionPattern
    from tidelog.client.errors import AuthenticationError as AuthenticationError
    from tidelog.client.errors import BrokerUnreachableError as BrokerUnreachableError
    from tidelog.client.errors import ClientClosedError as ClientClosedError
    from tidelog.client.errors import ClientError as ClientError
    from tidelog.client.errors import ConnectionLostError as ConnectionLostError
    from tidelog.client.errors import NoLeaderError as NoLeaderError
    from tidelog.client.errors import RequestTimeoutError as RequestTimeoutError
    from tidelog.client.group.assignor import Assignment as Assignment
    from tidelog.client.group.assignor import Assignor as Assignor
    from tidelog.client.group.assignor import RebalanceProtocol as RebalanceProtocol
    from tidelog.client.group.assignor import Subscription as Subscription
    from tidelog.client.group.assignors.cooperative_sticky import (
        CooperativeStickyAssignor as CooperativeStickyAssignor,
    )
    from tidelog.client.group.assignors.range import RangeAssignor as RangeAssignor
    from tidelog.client.group.assignors.round_robin import RoundRobinAssignor as RoundRobinAssignor
    from tidelog.client.group.assignors.sticky import StickyAssignor as StickyAssignor
    from tidelog.client.group.errors import CommitFailedError as CommitFailedError
    from tidelog.client.group.membership import ConsumerGroupMetadata as ConsumerGroupMetadata
    from tidelog.client.metadata import ClusterMetadata as ClusterMetadata
    from tidelog.client.metadata import Node as Node
    from tidelog.client.metadata import PartitionMetadata as PartitionMetadata
    from tidelog.client.metadata import TopicMetadata as TopicMetadata
    from tidelog.client.partitioner import partition_for_key as partition_for_key
    from tidelog.client.producer.async_producer import AsyncProducer as AsyncProducer
    from tidelog.client.producer.buffer_pool import BufferExhaustedError as BufferExhaustedError
    from tidelog.client.producer.errors import ProducerFencedError as ProducerFencedError
    from tidelog.client.producer.errors import TransactionAbortableError as TransactionAbortableError
    from tidelog.client.producer.errors import TransactionAbortedError as TransactionAbortedError
    from tidelog.client.producer.errors import TransactionStateError as TransactionStateError
    from tidelog.client.producer.interceptors import ProducerInterceptor as ProducerInterceptor
    from tidelog.client.producer.partitioner import KeyPartitioner as KeyPartitioner
    from tidelog.client.producer.partitioner import Partitioner as Partitioner
    from tidelog.client.producer.partitioner import RoundRobinPartitioner as RoundRobinPartitioner
    from tidelog.client.producer.producer import Producer as Producer
    from tidelog.client.producer.record import DeliveryCallback as DeliveryCallback
    from tidelog.client.producer.record import ProducerRecord as ProducerRecord
    from tidelog.client.producer.record import RecordMetadata as RecordMetadata
    from tidelog.client.producer.record_future import Delivery as Delivery
    from tidelog.client.producer.table_writer import TableFuture as TableFuture
    from tidelog.client.producer.table_writer import WrittenRows as WrittenRows
    from tidelog.client.resources import AlterConfigOp as AlterConfigOp
    from tidelog.client.resources import AlterConfigOpType as AlterConfigOpType
    from tidelog.client.resources import ClusterDescription as ClusterDescription
    from tidelog.client.resources import ConfigEntry as ConfigEntry
    from tidelog.client.resources import ConfigResource as ConfigResource
    from tidelog.client.resources import ConfigResult as ConfigResult
    from tidelog.client.resources import ConfigSource as ConfigSource
    from tidelog.client.resources import ConfigSynonym as ConfigSynonym
    from tidelog.client.resources import ConfigType as ConfigType
    from tidelog.client.resources import DeletedRecords as DeletedRecords
    from tidelog.client.resources import IsolationLevel as IsolationLevel
    from tidelog.client.resources import NewPartitions as NewPartitions
    from tidelog.client.resources import NewTopic as NewTopic
    from tidelog.client.resources import OffsetResult as OffsetResult
    from tidelog.client.resources import OffsetSpec as OffsetSpec
    from tidelog.client.resources import Outcome as Outcome
    from tidelog.client.resources import ResourceType as ResourceType
    from tidelog.client.resources import TopicDescription as TopicDescription
    from tidelog.client.resources import TopicResult as TopicResult
    from tidelog.client.serialization import BytesDeserializer as BytesDeserializer
    from tidelog.client.serialization import BytesSerializer as BytesSerializer
    from tidelog.client.serialization import Deserializer as Deserializer
    from tidelog.client.serialization import JsonDeserializer as JsonDeserializer
    from tidelog.client.serialization import JsonSerializer as JsonSerializer
    from tidelog.client.serialization import MsgspecDeserializer as MsgspecDeserializer
    from tidelog.client.serialization import MsgspecSerializer as MsgspecSerializer
    from tidelog.client.serialization import SerializationError as SerializationError
    from tidelog.client.serialization import Serializer as Serializer
    from tidelog.client.serialization import StringDeserializer as StringDeserializer
    from tidelog.client.serialization import StringSerializer as StringSerializer
    from tidelog.errors import ConfigError as ConfigError
    from tidelog.errors import CorruptRecordError as CorruptRecordError
    from tidelog.errors import ErrorCode as ErrorCode
    from tidelog.errors import KafkaError as KafkaError
    from tidelog.errors import TidelogError as TidelogError
    from tidelog.ids import TopicPartition as TopicPartition
    from tidelog.records.record_codec import ConsumerRecord as ConsumerRecord

EXPORTS = {
    "AbortMarker": "tidelog.client.admin.transaction_resources",
    "Admin": "tidelog.client.admin.admin",
    "AlterConfigOp": "tidelog.client.resources",
    "AlterConfigOpType": "tidelog.client.resources",
    "Assignment": "tidelog.client.group.assignor",
    "Assignor": "tidelog.client.group.assignor",
    "AsyncAdmin": "tidelog.client.admin.async_admin",
    "AsyncConsumer": "tidelog.client.consumer.async_consumer",
    "AsyncProducer": "tidelog.client.producer.async_producer",
    "AuthenticationError": "tidelog.client.errors",
    "BrokerLogDirs": "tidelog.client.admin.cluster_resources",
    "BrokerUnreachableError": "tidelog.client.errors",
    "BufferExhaustedError": "tidelog.client.producer.buffer_pool",
    "BytesDeserializer": "tidelog.client.serialization",
    "BytesSerializer": "tidelog.client.serialization",
    "ClientClosedError": "tidelog.client.errors",
    "ClientError": "tidelog.client.errors",
    "ClusterDescription": "tidelog.client.resources",
    "ClusterMetadata": "tidelog.client.metadata",
    "CommitFailedError": "tidelog.client.group.errors",
    "CommittedOffset": "tidelog.client.admin.group_resources",
    "ConfigEntry": "tidelog.client.resources",
    "ConfigError": "tidelog.errors",
    "ConfigResource": "tidelog.client.resources",
    "ConfigResult": "tidelog.client.resources",
    "ConfigSource": "tidelog.client.resources",
    "ConfigSynonym": "tidelog.client.resources",
    "ConfigType": "tidelog.client.resources",
    "ConnectionLostError": "tidelog.client.errors",
    "Consumer": "tidelog.client.consumer.consumer",
    "ConsumerGroupMetadata": "tidelog.client.group.membership",
    "ConsumerInterceptor": "tidelog.client.consumer.interceptors",
    "ConsumerRecord": "tidelog.records.record_codec",
    "ConsumerTimeoutError": "tidelog.client.consumer.errors",
    "CooperativeStickyAssignor": "tidelog.client.group.assignors.cooperative_sticky",
    "CorruptRecordError": "tidelog.errors",
    "DeadLetter": "tidelog.client.consumer.failure_policy",
    "DeletedRecords": "tidelog.client.resources",
    "Delivery": "tidelog.client.producer.record_future",
    "DeliveryCallback": "tidelog.client.producer.record",
    "Deserializer": "tidelog.client.serialization",
    "ElectionType": "tidelog.client.admin.cluster_resources",
    "ErrorCode": "tidelog.errors",
    "FeatureMetadata": "tidelog.client.admin.cluster_resources",
    "FeatureResult": "tidelog.client.admin.cluster_resources",
    "FeatureUpdate": "tidelog.client.admin.cluster_resources",
    "GroupDescription": "tidelog.client.admin.group_resources",
    "GroupLag": "tidelog.client.admin.group_resources",
    "GroupListing": "tidelog.client.admin.group_resources",
    "GroupOffsets": "tidelog.client.admin.group_resources",
    "GroupResult": "tidelog.client.admin.group_resources",
    "GroupState": "tidelog.client.admin.group_resources",
    "GroupType": "tidelog.client.admin.group_resources",
    "HangingTransactions": "tidelog.client.admin.transaction_resources",
    "IllegalStateError": "tidelog.client.consumer.errors",
    "IsolationLevel": "tidelog.client.resources",
    "JsonDeserializer": "tidelog.client.serialization",
    "JsonSerializer": "tidelog.client.serialization",
    "KafkaError": "tidelog.errors",
    "KeyPartitioner": "tidelog.client.producer.partitioner",
    "ListedGroups": "tidelog.client.admin.group_resources",
    "ListedTransactions": "tidelog.client.admin.transaction_resources",
    "LogDirDescription": "tidelog.client.admin.cluster_resources",
    "LogTruncationError": "tidelog.client.consumer.errors",
    "MemberDescription": "tidelog.client.admin.group_resources",
    "MemberResult": "tidelog.client.admin.group_resources",
    "MsgspecDeserializer": "tidelog.client.serialization",
    "MsgspecSerializer": "tidelog.client.serialization",
    "NewPartitions": "tidelog.client.resources",
    "NewTopic": "tidelog.client.resources",
    "NoLeaderError": "tidelog.client.errors",
    "NoOffsetForPartitionError": "tidelog.client.consumer.errors",
    "Node": "tidelog.client.metadata",
    "NothingCommittedError": "tidelog.client.admin.offset_reset",
    "OffsetAndMetadata": "tidelog.client.consumer.partition_state",
    "OffsetOutOfRangeError": "tidelog.client.consumer.errors",
    "OffsetResult": "tidelog.client.resources",
    "OffsetSpec": "tidelog.client.resources",
    "OpenTransaction": "tidelog.client.admin.transaction_resources",
    "Outcome": "tidelog.client.resources",
    "PartitionLag": "tidelog.client.admin.group_resources",
    "PartitionMetadata": "tidelog.client.metadata",
    "PartitionProducers": "tidelog.client.admin.transaction_resources",
    "PartitionReassignment": "tidelog.client.admin.cluster_resources",
    "PartitionResult": "tidelog.client.admin.group_resources",
    "Partitioner": "tidelog.client.producer.partitioner",
    "PlannedOffset": "tidelog.client.admin.offset_reset",
    "Producer": "tidelog.client.producer.producer",
    "ProducerFencedError": "tidelog.client.producer.errors",
    "ProducerInterceptor": "tidelog.client.producer.interceptors",
    "ProducerRecord": "tidelog.client.producer.record",
    "ProducerState": "tidelog.client.admin.transaction_resources",
    "RangeAssignor": "tidelog.client.group.assignors.range",
    "RebalanceListener": "tidelog.client.consumer.listener",
    "RebalanceProtocol": "tidelog.client.group.assignor",
    "RecordDeserializationError": "tidelog.client.consumer.errors",
    "RecordMetadata": "tidelog.client.producer.record",
    "RecordTooLargeError": "tidelog.client.consumer.errors",
    "ReplicaInfo": "tidelog.client.admin.cluster_resources",
    "ReplicaMove": "tidelog.client.admin.cluster_resources",
    "RequestTimeoutError": "tidelog.client.errors",
    "ResetPlan": "tidelog.client.admin.offset_reset",
    "ResourceType": "tidelog.client.resources",
    "Retry": "tidelog.client.consumer.failure_policy",
    "RoundRobinAssignor": "tidelog.client.group.assignors.round_robin",
    "RoundRobinPartitioner": "tidelog.client.producer.partitioner",
    "SerializationError": "tidelog.client.serialization",
    "Serializer": "tidelog.client.serialization",
    "ShiftBy": "tidelog.client.admin.offset_reset",
    "Skip": "tidelog.client.consumer.failure_policy",
    "StickyAssignor": "tidelog.client.group.assignors.sticky",
    "Stop": "tidelog.client.consumer.failure_policy",
    "StreamConsumer": "tidelog.client.consumer.stream_consumer",
    "StringDeserializer": "tidelog.client.serialization",
    "StringSerializer": "tidelog.client.serialization",
    "Subscription": "tidelog.client.group.assignor",
    "SubscriptionPattern": "tidelog.client.consumer.subscription_state",
    "TableFuture": "tidelog.client.producer.table_writer",
    "TidelogError": "tidelog.errors",
    "ToCurrent": "tidelog.client.admin.offset_reset",
    "ToOffset": "tidelog.client.admin.offset_reset",
    "ToOffsets": "tidelog.client.admin.offset_reset",
    "ToPlace": "tidelog.client.admin.offset_reset",
    "ToTime": "tidelog.client.admin.offset_reset",
    "TopicDescription": "tidelog.client.resources",
    "TopicMetadata": "tidelog.client.metadata",
    "TopicPartition": "tidelog.ids",
    "TopicResult": "tidelog.client.resources",
    "TransactionAbortableError": "tidelog.client.producer.errors",
    "TransactionAbortedError": "tidelog.client.producer.errors",
    "TransactionDescription": "tidelog.client.admin.transaction_resources",
    "TransactionListing": "tidelog.client.admin.transaction_resources",
    "TransactionState": "tidelog.client.admin.transaction_resources",
    "TransactionStateError": "tidelog.client.producer.errors",
    "UpgradeType": "tidelog.client.admin.cluster_resources",
    "VersionRange": "tidelog.client.admin.cluster_resources",
    "WakeupError": "tidelog.client.consumer.errors",
    "WrittenRows": "tidelog.client.producer.table_writer",
    "partition_for_key": "tidelog.client.partitioner",
}
"""Public names, and the modules that have them."""


def __getattr__(name: str) -> object:
    if name == "__all__":  # asked for by `import *`
        return sorted(EXPORTS)
    module = EXPORTS.get(name)
    if module is None:
        raise AttributeError(f"module 'tidelog.client' has no attribute {name!r}")
    value = getattr(importlib.import_module(module), name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted({*globals(), *EXPORTS})
