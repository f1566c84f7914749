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
    from tidelog.client.consumer.interceptors import ConsumerInterceptor as ConsumerInterceptor
    from tidelog.client.consumer.listener import RebalanceListener as RebalanceListener
    from tidelog.client.consumer.partition_state import OffsetAndMetadata as OffsetAndMetadata
    from tidelog.client.errors import AuthenticationError as AuthenticationError
    from tidelog.client.errors import BrokerUnreachableError as BrokerUnreachableError
    from tidelog.client.errors import ClientClosedError as ClientClosedError
    from tidelog.client.errors import ClientError as ClientError
    from tidelog.client.errors import ConnectionLostError as ConnectionLostError
    from tidelog.client.errors import RequestTimeoutError as RequestTimeoutError
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
    "ConnectionLostError": "tidelog.client.errors",
    "Consumer": "tidelog.client.consumer.consumer",
    "ConsumerGroupMetadata": "tidelog.client.group.membership",
    "ConsumerInterceptor": "tidelog.client.consumer.interceptors",
    "ConsumerRecord": "tidelog.records.record_codec",
    "ConsumerTimeoutError": "tidelog.client.consumer.errors",
    "Deserializer": "tidelog.client.serialization",
    "ErrorCode": "tidelog.errors",
    "IllegalStateError": "tidelog.client.consumer.errors",
    "JsonDeserializer": "tidelog.client.serialization",
    "JsonSerializer": "tidelog.client.serialization",
    "KafkaError": "tidelog.errors",
    "LogTruncationError": "tidelog.client.consumer.errors",
    "MsgspecDeserializer": "tidelog.client.serialization",
    "MsgspecSerializer": "tidelog.client.serialization",
    "NoOffsetForPartitionError": "tidelog.client.consumer.errors",
    "OffsetAndMetadata": "tidelog.client.consumer.partition_state",
    "OffsetOutOfRangeError": "tidelog.client.consumer.errors",
    "Producer": "tidelog.client.producer.producer",
    "ProducerFencedError": "tidelog.client.producer.errors",
    "ProducerInterceptor": "tidelog.client.producer.interceptors",
    "ProducerRecord": "tidelog.client.producer.record",
    "RebalanceListener": "tidelog.client.consumer.listener",
    "RecordDeserializationError": "tidelog.client.consumer.errors",
    "RecordMetadata": "tidelog.client.producer.record",
    "RecordTooLargeError": "tidelog.client.consumer.errors",
    "RequestTimeoutError": "tidelog.client.errors",
    "SerializationError": "tidelog.client.serialization",
    "Serializer": "tidelog.client.serialization",
    "StringDeserializer": "tidelog.client.serialization",
    "StringSerializer": "tidelog.client.serialization",
    "TopicPartition": "tidelog.ids",
    "TransactionAbortableError": "tidelog.client.producer.errors",
    "TransactionAbortedError": "tidelog.client.producer.errors",
    "TransactionStateError": "tidelog.client.producer.errors",
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
