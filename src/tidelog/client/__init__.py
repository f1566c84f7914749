"""Talk to any Kafka cluster of version 2.1 or later, Tidelog's or Apache's.

    producer, consumer, admin     the clients: an asyncio core each, a synchronous one generated from it
    scanning                      topics as tables, for queries
    group                         membership of consumers: classic protocol and KIP-848
    subscription                  what a consumer reads, shared with its membership
    options                       Kafka's options of each client
    metadata, resources, errors   what calls return and raise
    serialization                 serializers and deserializers
    metrics, reporters            figures under Kafka's names
    record_reader                 the interface of `tidelog produce --reader`

    _network                      requests to brokers: connections, metadata, retries
    _telemetry                    reporters, cluster listeners, telemetry (KIP-714)
    _ranges                       offset ranges in bulk, for scanning and Spark
    _offsets                      ListOffsets, for admin, consumers and scanning
    _loop_thread                  the background thread of a synchronous client
    _foreign_methods              methods of other libraries: they work, or the error names ours

A program imports no module or package whose name begins with ``_``. Nothing here imports the server. The
names below are those that most programs need; they are loaded when they are first used, and ``tidelog``
offers them too. All others are imported from their modules.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from tidelog.client.admin.admin import Admin as Admin
    from tidelog.client.admin.async_admin import AsyncAdmin as AsyncAdmin
    from tidelog.client.admin.option_types import AdminOptions as AdminOptions
    from tidelog.client.consumer.async_consumer import AsyncConsumer as AsyncConsumer
    from tidelog.client.consumer.consumer import Consumer as Consumer
    from tidelog.client.consumer.errors import RecordDeserializationError as RecordDeserializationError
    from tidelog.client.consumer.failure_policy import DeadLetter as DeadLetter
    from tidelog.client.consumer.failure_policy import Retry as Retry
    from tidelog.client.consumer.failure_policy import Skip as Skip
    from tidelog.client.consumer.failure_policy import Stop as Stop
    from tidelog.client.consumer.health import ConsumerHealth as ConsumerHealth
    from tidelog.client.consumer.interceptors import ConsumerInterceptor as ConsumerInterceptor
    from tidelog.client.consumer.option_types import ConsumerOptions as ConsumerOptions
    from tidelog.client.consumer.stream_consumer import StreamConsumer as StreamConsumer
    from tidelog.client.errors import AuthenticationError as AuthenticationError
    from tidelog.client.errors import BrokerUnreachableError as BrokerUnreachableError
    from tidelog.client.errors import ClientClosedError as ClientClosedError
    from tidelog.client.errors import ClientError as ClientError
    from tidelog.client.errors import ConnectionLostError as ConnectionLostError
    from tidelog.client.errors import NoOffsetForPartitionError as NoOffsetForPartitionError
    from tidelog.client.errors import RequestTimeoutError as RequestTimeoutError
    from tidelog.client.group.assignor import Assignment as Assignment
    from tidelog.client.group.assignor import Assignor as Assignor
    from tidelog.client.group.errors import CommitFailedError as CommitFailedError
    from tidelog.client.partitioner import partition_for_key as partition_for_key
    from tidelog.client.producer.async_producer import AsyncProducer as AsyncProducer
    from tidelog.client.producer.batch_result import BatchDeliveryError as BatchDeliveryError
    from tidelog.client.producer.batch_result import BatchResult as BatchResult
    from tidelog.client.producer.batch_result import BatchSourceError as BatchSourceError
    from tidelog.client.producer.errors import BufferExhaustedError as BufferExhaustedError
    from tidelog.client.producer.errors import ProducerFencedError as ProducerFencedError
    from tidelog.client.producer.errors import TransactionAbortableError as TransactionAbortableError
    from tidelog.client.producer.errors import TransactionStateError as TransactionStateError
    from tidelog.client.producer.health import ProducerHealth as ProducerHealth
    from tidelog.client.producer.interceptors import ProducerInterceptor as ProducerInterceptor
    from tidelog.client.producer.option_types import ProducerOptions as ProducerOptions
    from tidelog.client.producer.producer import Producer as Producer
    from tidelog.client.producer.record import ProducerRecord as ProducerRecord
    from tidelog.client.producer.record import RecordMetadata as RecordMetadata
    from tidelog.client.producer.record_future import Delivery as Delivery
    from tidelog.client.reporters import MetricsReporter as MetricsReporter
    from tidelog.client.resources import AlterConfigOp as AlterConfigOp
    from tidelog.client.resources import AlterConfigOpType as AlterConfigOpType
    from tidelog.client.resources import ConfigResource as ConfigResource
    from tidelog.client.resources import ConfigResult as ConfigResult
    from tidelog.client.resources import ConfigSource as ConfigSource
    from tidelog.client.resources import NewPartitions as NewPartitions
    from tidelog.client.resources import NewTopic as NewTopic
    from tidelog.client.resources import OffsetSpec as OffsetSpec
    from tidelog.client.resources import ResourceType as ResourceType
    from tidelog.client.scanning.scan import scan as scan
    from tidelog.client.serialization import MsgspecDeserializer as MsgspecDeserializer
    from tidelog.client.serialization import MsgspecSerializer as MsgspecSerializer
    from tidelog.client.subscription.listener import RebalanceListener as RebalanceListener
    from tidelog.client.subscription.offsets import OffsetAndMetadata as OffsetAndMetadata
    from tidelog.errors import ConfigError as ConfigError
    from tidelog.errors import ErrorCode as ErrorCode
    from tidelog.errors import KafkaError as KafkaError
    from tidelog.errors import TidelogError as TidelogError
    from tidelog.ids import TopicPartition as TopicPartition
    from tidelog.records.record_codec import ConsumerRecord as ConsumerRecord

EXPORTS = {
    "Admin": "tidelog.client.admin.admin",
    "AdminOptions": "tidelog.client.admin.option_types",
    "AlterConfigOp": "tidelog.client.resources",
    "AlterConfigOpType": "tidelog.client.resources",
    "Assignment": "tidelog.client.group.assignor",
    "Assignor": "tidelog.client.group.assignor",
    "AsyncAdmin": "tidelog.client.admin.async_admin",
    "AsyncConsumer": "tidelog.client.consumer.async_consumer",
    "AsyncProducer": "tidelog.client.producer.async_producer",
    "AuthenticationError": "tidelog.client.errors",
    "BatchDeliveryError": "tidelog.client.producer.batch_result",
    "BatchResult": "tidelog.client.producer.batch_result",
    "BatchSourceError": "tidelog.client.producer.batch_result",
    "BrokerUnreachableError": "tidelog.client.errors",
    "BufferExhaustedError": "tidelog.client.producer.errors",
    "ClientClosedError": "tidelog.client.errors",
    "ClientError": "tidelog.client.errors",
    "CommitFailedError": "tidelog.client.group.errors",
    "ConfigError": "tidelog.errors",
    "ConfigResource": "tidelog.client.resources",
    "ConfigResult": "tidelog.client.resources",
    "ConfigSource": "tidelog.client.resources",
    "ConnectionLostError": "tidelog.client.errors",
    "Consumer": "tidelog.client.consumer.consumer",
    "ConsumerHealth": "tidelog.client.consumer.health",
    "ConsumerInterceptor": "tidelog.client.consumer.interceptors",
    "ConsumerOptions": "tidelog.client.consumer.option_types",
    "ConsumerRecord": "tidelog.records.record_codec",
    "DeadLetter": "tidelog.client.consumer.failure_policy",
    "Delivery": "tidelog.client.producer.record_future",
    "ErrorCode": "tidelog.errors",
    "KafkaError": "tidelog.errors",
    "MetricsReporter": "tidelog.client.reporters",
    "MsgspecDeserializer": "tidelog.client.serialization",
    "MsgspecSerializer": "tidelog.client.serialization",
    "NewPartitions": "tidelog.client.resources",
    "NewTopic": "tidelog.client.resources",
    "NoOffsetForPartitionError": "tidelog.client.errors",
    "OffsetAndMetadata": "tidelog.client.subscription.offsets",
    "OffsetSpec": "tidelog.client.resources",
    "Producer": "tidelog.client.producer.producer",
    "ProducerFencedError": "tidelog.client.producer.errors",
    "ProducerHealth": "tidelog.client.producer.health",
    "ProducerInterceptor": "tidelog.client.producer.interceptors",
    "ProducerOptions": "tidelog.client.producer.option_types",
    "ProducerRecord": "tidelog.client.producer.record",
    "RebalanceListener": "tidelog.client.subscription.listener",
    "RecordDeserializationError": "tidelog.client.consumer.errors",
    "RecordMetadata": "tidelog.client.producer.record",
    "RequestTimeoutError": "tidelog.client.errors",
    "ResourceType": "tidelog.client.resources",
    "Retry": "tidelog.client.consumer.failure_policy",
    "Skip": "tidelog.client.consumer.failure_policy",
    "Stop": "tidelog.client.consumer.failure_policy",
    "StreamConsumer": "tidelog.client.consumer.stream_consumer",
    "TidelogError": "tidelog.errors",
    "TopicPartition": "tidelog.ids",
    "TransactionAbortableError": "tidelog.client.producer.errors",
    "TransactionStateError": "tidelog.client.producer.errors",
    "partition_for_key": "tidelog.client.partitioner",
    "scan": "tidelog.client.scanning.scan",
}
"""What ``tidelog`` and ``tidelog.client`` offer, and the modules that have it."""


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
