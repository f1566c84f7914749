"""Producers: records into batches, batches to partition leaders, exactly once and in order.

async_producer                ``AsyncProducer``, the core
producer                      ``Producer``: the core on a thread, methods generated, ``send`` by send_port
quick_send, send_path         the short and the long way of a record into its batch
record, record_future         what is sent, and where it went
interceptors, partitioner     what a program may hang into that way (and client/serialization)
buffer_pool                   the memory that unacknowledged records may take
record_accumulator            batches per partition, producer_batch is one of them
sender                        the background task: produce_messages, batch_outcomes
transaction_manager           producer id, sequences, state of the transaction
transactions                  the calls of a transaction, transactional_requests their requests
"""

from tidelog.client.producer.async_producer import AsyncProducer
from tidelog.client.producer.buffer_pool import BufferExhaustedError
from tidelog.client.producer.errors import (
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
    "RoundRobinPartitioner",
    "TransactionAbortableError",
    "TransactionAbortedError",
    "TransactionStateError",
]
