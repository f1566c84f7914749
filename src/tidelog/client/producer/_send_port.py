"""``SendPort``: what a ``Producer`` uses of its core in the threads that send, beside the loop.

A record whose batch is open wakes no other thread; what else ``Producer.send``, ``send_arrow`` and
``send_batch`` need of the core are the members below. Everything else goes over the loop, on which the core's
state lives. ``async_producer.open_send_port`` makes one; ``Producer`` alone uses it, from any thread.
"""

from __future__ import annotations

from collections.abc import Callable, Coroutine
from typing import Any, NamedTuple

from tidelog.client._network.retry import Deadline
from tidelog.client.metadata import TopicMetadata
from tidelog.client.producer._buffer_pool import BufferPool
from tidelog.client.producer._send_path import SendPath


class SendPort(NamedTuple):
    """The way of a record from any thread."""

    path: SendPath
    """Into the accumulator, by its lock."""
    pool: BufferPool
    known_topic: Callable[[str], TopicMetadata | None]
    """What the last metadata say of a topic."""
    wait_for_topic: Callable[[str, Deadline, int | None], Coroutine[Any, Any, TopicMetadata]]
    """To be run on the loop: a topic once there are metadata of it, and of the partition if one is named."""
    note_metadata_wait: Callable[[float], None]
    """Told for how many seconds a record has waited for metadata."""
    note_lost_record: Callable[[Exception], None]
    """To be called on the loop: has the transaction fail because a record could not be buffered."""
