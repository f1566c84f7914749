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
    from tidelog.client.admin.cluster_resources import ElectionType as ElectionType
    from tidelog.client.admin.cluster_resources import FeatureUpdate as FeatureUpdate
    from tidelog.client.admin.cluster_resources import UpgradeType as UpgradeType
    from tidelog.client.admin.group_resources import GroupState as GroupState
    from tidelog.client.admin.group_resources import GroupType as GroupType
    from tidelog.client.admin.transaction_resources import AbortMarker as AbortMarker
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
    from tidelog.client.errors import RequestTimeoutError as RequestTimeoutError
    from tidelog.client.group.assignor import Assignment as Assignment
    from tidelog.client.group.assignor import Assignor as Assignor
    from tidelog.client.group.assignor import RebalanceProtocol as RebalanceProtocol
    from tidelog.client.group.assignor import Subscription as Subscription
    from tidelog.client.group.errors import CommitFailedError as CommitFailedError
    from tidelog.client.group.membership import ConsumerGroupMetadata as ConsumerGroupMetadata
    from tidelog.client.producer.async_producer import AsyncProducer as AsyncProducer
    from tidelog.client.producer.errors import ProducerFencedError as ProducerFencedError
    from tidelog.client.producer.errors import TransactionAbortableError as TransactionAbortableError
    from tidelog.client.producer.errors import TransactionAbortedError as TransactionAbortedError
    from tidelog.client.producer.errors import TransactionStateError as TransactionStateError
    from tidelog.client.producer.interceptors import ProducerInterceptor as ProducerInterceptor
    from tidelog.client.producer.producer import Producer as Producer
    from tidelog.client.producer.record import ProducerRecord as ProducerRecord
    from tidelog.client.producer.record import RecordMetadata as RecordMetadata
    from tidelog.client.resources import AlterConfigOp as AlterConfigOp
    from tidelog.client.resources import AlterConfigOpType as AlterConfigOpType
    from tidelog.client.resources import ConfigResource as ConfigResource
    from tidelog.client.resources import IsolationLevel as IsolationLevel
    from tidelog.client.resources import NewPartitions as NewPartitions
    from tidelog.client.resources import NewTopic as NewTopic
    from tidelog.client.resources import OffsetSpec as OffsetSpec
    from tidelog.client.resources import ResourceType as ResourceType
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
    from tidelog.errors import ErrorCode as ErrorCode
    from tidelog.errors import KafkaError as KafkaError
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
    "BrokerUnreachableError": "tidelog.client.errors",
    "BytesDeserializer": "tidelog.client.serialization",
    "BytesSerializer": "tidelog.client.serialization",
    "ClientClosedError": "tidelog.client.errors",
    "ClientError": "tidelog.client.errors",
    "CommitFailedError": "tidelog.client.group.errors",
    "ConfigError": "tidelog.errors",
    "ConfigResource": "tidelog.client.resources",
    "ConnectionLostError": "tidelog.client.errors",
    "Consumer": "tidelog.client.consumer.consumer",
    "ConsumerGroupMetadata": "tidelog.client.group.membership",
    "ConsumerInterceptor": "tidelog.client.consumer.interceptors",
    "ConsumerRecord": "tidelog.records.record_codec",
    "ConsumerTimeoutError": "tidelog.client.consumer.errors",
    "DeadLetter": "tidelog.client.consumer.failure_policy",
    "Deserializer": "tidelog.client.serialization",
    "ElectionType": "tidelog.client.admin.cluster_resources",
    "ErrorCode": "tidelog.errors",
    "FeatureUpdate": "tidelog.client.admin.cluster_resources",
    "GroupState": "tidelog.client.admin.group_resources",
    "GroupType": "tidelog.client.admin.group_resources",
    "IllegalStateError": "tidelog.client.consumer.errors",
    "IsolationLevel": "tidelog.client.resources",
    "JsonDeserializer": "tidelog.client.serialization",
    "JsonSerializer": "tidelog.client.serialization",
    "KafkaError": "tidelog.errors",
    "LogTruncationError": "tidelog.client.consumer.errors",
    "MsgspecDeserializer": "tidelog.client.serialization",
    "MsgspecSerializer": "tidelog.client.serialization",
    "NewPartitions": "tidelog.client.resources",
    "NewTopic": "tidelog.client.resources",
    "NoOffsetForPartitionError": "tidelog.client.consumer.errors",
    "OffsetAndMetadata": "tidelog.client.consumer.partition_state",
    "OffsetOutOfRangeError": "tidelog.client.consumer.errors",
    "OffsetSpec": "tidelog.client.resources",
    "Producer": "tidelog.client.producer.producer",
    "ProducerFencedError": "tidelog.client.producer.errors",
    "ProducerInterceptor": "tidelog.client.producer.interceptors",
    "ProducerRecord": "tidelog.client.producer.record",
    "RebalanceListener": "tidelog.client.consumer.listener",
    "RebalanceProtocol": "tidelog.client.group.assignor",
    "RecordDeserializationError": "tidelog.client.consumer.errors",
    "RecordMetadata": "tidelog.client.producer.record",
    "RecordTooLargeError": "tidelog.client.consumer.errors",
    "RequestTimeoutError": "tidelog.client.errors",
    "ResourceType": "tidelog.client.resources",
    "Retry": "tidelog.client.consumer.failure_policy",
    "SerializationError": "tidelog.client.serialization",
    "Serializer": "tidelog.client.serialization",
    "Skip": "tidelog.client.consumer.failure_policy",
    "Stop": "tidelog.client.consumer.failure_policy",
    "StreamConsumer": "tidelog.client.consumer.stream_consumer",
    "StringDeserializer": "tidelog.client.serialization",
    "StringSerializer": "tidelog.client.serialization",
    "Subscription": "tidelog.client.group.assignor",
    "SubscriptionPattern": "tidelog.client.consumer.subscription_state",
    "TopicPartition": "tidelog.ids",
    "TransactionAbortableError": "tidelog.client.producer.errors",
    "TransactionAbortedError": "tidelog.client.producer.errors",
    "TransactionState": "tidelog.client.admin.transaction_resources",
    "TransactionStateError": "tidelog.client.producer.errors",
    "UpgradeType": "tidelog.client.admin.cluster_resources",
    "WakeupError": "tidelog.client.consumer.errors",
}
"""Public names, and the modules that have them."""


def __getattr__(name: str) -> object:
    module = EXPORTS.get(name)
    if module is None:
        raise AttributeError(f"module 'tidelog.client' has no attribute {name!r}")
    value = getattr(importlib.import_module(module), name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted({*globals(), *EXPORTS})
