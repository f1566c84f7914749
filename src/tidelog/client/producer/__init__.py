"""Producers: records into batches, batches to partition leaders, exactly once and in order.

async_producer                ``AsyncProducer``, the core
producer                      ``Producer``: the core on a thread, methods generated, ``send`` by send_port
quick_send, send_path         the short and the long way of a record into its batch
record, record_future         what is sent, and where it went
interceptors, partitioner     what a program may hang into that way (and client/serialization)
batch_input, batch_sender     ``send_batch``: records and their outcomes (batch_result), tables (table_sender)
table_writer                  ``send_arrow``: rows of tables into batches
buffer_pool                   the memory that unacknowledged records may take
record_accumulator            batches per partition, producer_batch is one of them
sender                        the background task: produce_messages, batch_outcomes
transaction_manager           producer id, sequences, state of the transaction
transactions                  the calls of a transaction, transactional_requests their requests
"""

from tidelog.client.producer.async_producer import AsyncProducer
from tidelog.client.producer.batch_result import (
    BatchDeliveryError,
    BatchResult,
    BatchSourceError,
    RecordOutcome,
)
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
