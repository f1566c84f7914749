"""Producers: records into batches, batches to partition leaders, exactly once and in order.

async_producer                ``AsyncProducer``, the core
producer                      ``Producer``: the core on a thread, methods generated, ``send`` by _send_port
quick_send, _send_path        the fast and the slow path of a record into its batch
record, record_future         what is sent, and where it went
interceptors, partitioner     what a program may add to that path (and client/serialization)
batch_result                  the outcomes of ``send_batch``; _send_batch: how it and ``send_arrow`` work
_buffer_pool                  the memory that unacknowledged records may take
_record_accumulator           batches per partition, _producer_batch is one of them
_sender                       the background task: _produce_messages, _batch_outcomes
_transaction                  producer id, sequences, state and requests of transactions
_transaction_calls            the calls of a transaction
"""

from tidelog.client.producer.async_producer import AsyncProducer
from tidelog.client.producer.batch_result import (
    BatchDeliveryError,
    BatchResult,
    BatchSourceError,
    RecordOutcome,
)
from tidelog.client.producer.errors import (
    BufferExhaustedError,
    ProducerFencedError,
    TransactionAbortableError,
    TransactionAbortedError,
    TransactionStateError,
)
from tidelog.client.producer.interceptors import ProducerInterceptor
from tidelog.client.producer.partitioner import KeyPartitioner, Partitioner, RoundRobinPartitioner
from tidelog.client.producer.producer import Producer
from tidelog.client.producer.record import DeliveryCallback, ProducerRecord, RecordMetadata
from tidelog.client.producer.record_future import Delivery

__all__ = [
    "AsyncProducer",
    "BatchDeliveryError",
    "BatchResult",
    "BatchSourceError",
    "BufferExhaustedError",
    "Delivery",
    "DeliveryCallback",
    "KeyPartitioner",
    "Partitioner",
    "Producer",
    "ProducerFencedError",
    "ProducerInterceptor",
    "ProducerRecord",
    "RecordMetadata",
    "RecordOutcome",
    "RoundRobinPartitioner",
    "TransactionAbortableError",
    "TransactionAbortedError",
    "TransactionStateError",
]
