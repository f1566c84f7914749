"""Methods of kafka-python, aiokafka and confluent-kafka, called on our clients.

A method with one obvious meaning works; for the others an ``AttributeError`` names the method to call
instead. ``foreign_methods`` makes the ``__getattr__`` of a client, which Python calls only for names that the
client does not have. The clients define it ``if not TYPE_CHECKING``: type checkers know our methods alone.
Option names of those libraries are in ``options.foreign_names``.

Invariant: no name here is a method of the client that it is for, and every method that an advice names with
its parentheses exists; a test checks both, and that every public method of the three libraries is here.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Mapping
from typing import Any

from tidelog.client._network.retry import check_seconds
from tidelog.client.errors import ClientClosedError, ClientError
from tidelog.ids import TopicPartition

Meaning = str | Callable[..., Any]
"""What to write instead, or the function that does it, which gets the client first."""

_A_YEAR_S = 3600.0 * 24 * 365


def foreign_methods(meanings: Mapping[str, Meaning]) -> Callable[[Any, str], Any]:
    """The ``__getattr__`` of a class that knows these foreign methods."""
    for called, meaning in meanings.items():
        if not isinstance(meaning, str):
            meaning.__qualname__ = called  # what errors about its arguments name

    def __getattr__(self: Any, name: str) -> Any:
        meaning = meanings.get(name)
        kind = type(self).__name__
        if meaning is None:
            raise AttributeError(f"{kind!r} object has no attribute {name!r}", name=name, obj=self)
        if isinstance(meaning, str):
            raise AttributeError(f"{kind} has no method {name}: {meaning}")
        return functools.partial(meaning, self)

    return __getattr__


def check_poll(timeout: object, max_records: object, keywords: Mapping[str, object]) -> None:
    """Refuse arguments of ``poll`` that are no numbers, and keywords of other libraries' ``poll``."""
    check_seconds("poll", timeout)
    if max_records is not None and (not isinstance(max_records, int) or max_records < 1):
        raise ValueError(f"poll() takes max_records as a number from 1 on, got {max_records!r}")
    for name, value in keywords.items():
        if name == "timeout_ms" and isinstance(value, int | float):
            raise TypeError(
                f"poll() has no argument timeout_ms: call poll(timeout={value / 1000:g}), in seconds, which "
                "returns a list of records"
            )
        raise TypeError(f"poll() has no argument {name}: it takes timeout, in seconds, and max_records")


def refuse_keywords(call: str, keywords: Mapping[str, object], remedies: Mapping[str, str]) -> None:
    """Refuse keywords of other libraries' method of the same name, with what to write instead."""
    for name in keywords:
        remedy = f": {remedies[name]}" if name in remedies else ""
        raise TypeError(f"{call}() has no argument {name}{remedy}")


_LISTENER = "pass listener=…, an instance of a subclass of RebalanceListener with "
SUBSCRIBE_KEYWORDS = {
    "on_assign": _LISTENER + "on_partitions_assigned(partitions)",
    "on_lost": _LISTENER + "on_partitions_lost(partitions)",
    "on_revoke": _LISTENER + "on_partitions_revoked(partitions)",
}
COMMIT_KEYWORDS = {
    "asynchronous": "commit() waits, and commit_nowait() does not",
    "callback": "call commit_nowait(callback=function), which calls function(offsets, error)",
    "message": "commit({record.topic_partition: record.offset + 1})",
    "timeout_ms": "pass timeout=…, in seconds",
}


def _close(client: Any) -> Any:
    return client.close()


# Producers


def _produce(
    producer: Any,
    topic: str,
    value: Any = None,
    key: Any = None,
    partition: int = -1,
    callback: Any = None,
    on_delivery: Any = None,
    timestamp: int = 0,
    headers: Any = None,
) -> Any:
    if callback is not None or on_delivery is not None:
        raise ClientError(
            "produce() cannot take a delivery callback, whose arguments differ here: "
            "call send(topic, value, key, on_delivery=function), which calls function(metadata, error)"
        )
    return producer.send(
        topic,
        value,
        key,
        partition=None if partition == -1 else partition,
        timestamp_ms=timestamp or None,
        headers=headers,
    )


def _sent(
    producer: Any,
    topic: str,
    value: Any = None,
    key: Any = None,
    partition: int | None = None,
    timestamp_ms: int | None = None,
    headers: Any = None,
) -> Any:
    return producer.send(topic, value, key, partition=partition, timestamp_ms=timestamp_ms, headers=headers)


_sent.__qualname__ = "send_and_wait"  # what errors about its arguments name


def _send_and_wait(producer: Any, *record: Any, **fields: Any) -> Any:
    return _sent(producer, *record, **fields).result()


async def _send_and_wait_async(producer: Any, *record: Any, **fields: Any) -> Any:
    return await _sent(producer, *record, **fields)


_CREDENTIALS = "make a new client with `sasl_username` and `sasl_password`"
_CLUSTER_ID = "call `Admin.describe_cluster()`, whose result has `cluster_id`"
_CONNECTED = "leave it out: clients connect by themselves, and errors of calls say why they cannot"

_PRODUCER: dict[str, Meaning] = {
    "bootstrap_connected": _CONNECTED,
    "cluster_id": _CLUSTER_ID,
    "create_batch": "leave it out: `send()` collects records into batches",
    "list_topics": "call `Admin.list_topics()`, or `partitions_for()` for one topic",
    "max_usable_produce_magic": "leave it out: formats are negotiated with each broker",
    "poll": "leave it out: delivery callbacks run on the producer's own thread",
    "produce": _produce,
    "produce_batch": "call `send_batch()`",
    "purge": "call `close(0)`, which drops what is buffered",
    "set_sasl_credentials": _CREDENTIALS,
    "stop": _close,
}
PRODUCER: dict[str, Meaning] = {
    **_PRODUCER,
    "send_and_wait": _send_and_wait,
    "start": "leave it out: a Producer starts when it is made",
}
ASYNC_PRODUCER: dict[str, Meaning] = {**_PRODUCER, "send_and_wait": _send_and_wait_async}

# What `send` returns


def _get(future: Any, timeout: float | None = None) -> Any:
    return future.result(timeout)


_FUTURE_CALLBACK = "call `add_done_callback(function)`, which calls function(future)"
FUTURE: dict[str, Meaning] = {
    "add_both": _FUTURE_CALLBACK,
    "add_callback": _FUTURE_CALLBACK,
    "add_errback": _FUTURE_CALLBACK,
    "failed": "call `exception()`, which returns None where the record was written",
    "get": _get,
    "is_done": "call `done()`",
    "retriable": "call `exception()`; a KafkaError says by `code.retriable`",
    "succeeded": "call `exception()`, which returns None where the record was written",
    "value": "call `result()`",
}

# Consumers


def _refuse_partitions(name: str, partitions: tuple[Any, ...]) -> None:
    if partitions:
        raise ClientError(f"{name}() reads all assigned partitions: name none, and pause() the others")


def _by_partition(records: list[Any]) -> dict[TopicPartition, list[Any]]:
    found: dict[TopicPartition, list[Any]] = {}
    for record in records:
        found.setdefault(record.topic_partition, []).append(record)
    return found


def _getmany(
    consumer: Any, *partitions: Any, timeout_ms: float = 0, max_records: int | None = None
) -> dict[TopicPartition, list[Any]]:
    _refuse_partitions("getmany", partitions)
    return _by_partition(consumer.poll(timeout_ms / 1000, max_records))


async def _getmany_async(
    consumer: Any, *partitions: Any, timeout_ms: float = 0, max_records: int | None = None
) -> dict[TopicPartition, list[Any]]:
    _refuse_partitions("getmany", partitions)
    return _by_partition(await consumer.poll(timeout_ms / 1000, max_records))


def _getone(consumer: Any, *partitions: Any) -> Any:
    _refuse_partitions("getone", partitions)
    for record in consumer:
        return record
    raise ClientClosedError("the consumer is closed")


async def _getone_async(consumer: Any, *partitions: Any) -> Any:
    _refuse_partitions("getone", partitions)
    try:
        return await anext(consumer)
    except StopAsyncIteration:
        raise ClientClosedError("the consumer is closed") from None


def _consume(consumer: Any, num_messages: int = 1, timeout: float = -1) -> Any:
    return consumer.poll(_A_YEAR_S if timeout < 0 else timeout, num_messages)


def _group_metadata(consumer: Any) -> Any:
    return consumer.group_metadata()


def _topics(consumer: Any) -> set[str]:
    return set(consumer.list_topics())


async def _topics_async(consumer: Any) -> set[str]:
    return set(await consumer.list_topics())


def _unassign(consumer: Any) -> Any:
    return consumer.unsubscribe()


_END = "call `end_offsets()`, or `current_lag()`, which asks no broker"
_CONSUMER: dict[str, Meaning] = {
    "bootstrap": _CONNECTED,
    "bootstrap_connected": _CONNECTED,
    "cluster_id": _CLUSTER_ID,
    "commit_async": "call `commit_nowait(callback=function)`, which calls function(offsets, error)",
    "consume": _consume,
    "consumer_group_metadata": _group_metadata,
    "get_watermark_offsets": "call `beginning_offsets()` and `end_offsets()`",
    "highwater": _END,
    "incremental_assign": "call `assign()` with all partitions; those that stay keep their positions",
    "incremental_unassign": "call `assign()` with the partitions that stay; they keep their positions",
    "last_poll_timestamp": "`metrics()` has `last-poll-seconds-ago`",
    "last_stable_offset": "call `end_offsets()` with `isolation_level='read_committed'`",
    "memberid": "call `group_metadata()`, whose result has `member_id`",
    "partitions_for_topic": "call `partitions_for()`",
    "seek_to_committed": "call `seek()` with the result of `committed()`",
    "set_sasl_credentials": _CREDENTIALS,
    "stop": _close,
    "store_offsets": "call `commit_nowait()` with the offsets",
    "unassign": _unassign,
}
CONSUMER: dict[str, Meaning] = {**_CONSUMER, "getmany": _getmany, "getone": _getone, "topics": _topics}
ASYNC_CONSUMER: dict[str, Meaning] = {
    **_CONSUMER,
    "getmany": _getmany_async,
    "getone": _getone_async,
    "topics": _topics_async,
}

# Admin clients


def _list_groups(admin: Any) -> Any:
    return admin.list_groups()


def _describe_groups(admin: Any, group_ids: Any) -> Any:
    return admin.describe_groups(group_ids)


def _delete_groups(admin: Any, group_ids: Any) -> Any:
    return admin.delete_groups(group_ids)


_NO_QUORUM = "the controller is a broker: call `describe_cluster()`, whose result has `controller`"
ADMIN: dict[str, Meaning] = {
    "alter_consumer_group_offsets": "call `alter_group_offsets()`",
    "api_versions": "call `describe_features()`",
    "cluster_id": "call `describe_cluster()`, whose result has `cluster_id`",
    "delete_consumer_groups": _delete_groups,
    "describe_consumer_groups": _describe_groups,
    "describe_metadata_quorum": _NO_QUORUM,
    "describe_topic_partitions": "call `describe_topics()`",
    "find_coordinator": "call `describe_groups()`, whose results have `coordinator`",
    "get_broker_version_data": "call `describe_features()`",
    "incremental_alter_configs": "call `alter_configs()`, which leaves other configs alone",
    "list_consumer_group_offsets": "call `list_group_offsets()`",
    "list_consumer_groups": _list_groups,
    "list_partition_offsets": "call `list_offsets()`",
    "poll": "leave it out: calls return their results",
    "reset_configs": "call `alter_configs()` with `AlterConfigOpType.DELETE`",
    "reset_group_offsets": "call `plan_offset_reset()`, and `alter_group_offsets()` with its offsets",
    "set_sasl_credentials": _CREDENTIALS,
    "start": "leave it out: the first call connects",
    "wait_for_topics": "call `describe_topics()` until the partitions have leaders",
}
