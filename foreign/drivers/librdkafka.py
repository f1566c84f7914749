"""librdkafka as a driver, through confluent-kafka: one JSON request per line in, one answer per line out.

The operations and their fields are described in tests/compat/driver.py.
"""

from __future__ import annotations

import base64
import json
import sys
import time
from concurrent.futures import Future
from typing import Any, cast

import confluent_kafka
from confluent_kafka import (
    Consumer,
    KafkaError,
    KafkaException,
    Message,
    Producer,
    TopicCollection,
    TopicPartition,
)
from confluent_kafka.admin import (
    AdminClient,
    AlterConfigOpType,
    ConfigEntry,
    ConfigResource,
    ConfigSource,
    NewPartitions,
    NewTopic,
    OffsetSpec,
)

Json = Any
TIMEOUT_S = 20.0


def to_bytes(text: str | None) -> bytes | None:
    return None if text is None else base64.b64decode(text)


def to_text(data: bytes | None) -> str | None:
    return None if data is None else base64.b64encode(data).decode()


class Driver:
    def __init__(self, address: str) -> None:
        self.address = address
        self.admin = AdminClient({"bootstrap.servers": address})

    def perform(self, request: Json) -> Json:
        return getattr(self, "op_" + request["op"])(request)

    def op_version(self, request: Json) -> Json:
        return {"version": confluent_kafka.libversion()[0]}

    # --- records

    def producer(self, request: Json) -> Producer:
        return Producer(
            {
                "bootstrap.servers": self.address,
                "acks": request.get("acks", "all"),
                "compression.codec": request.get("codec", "none"),
                "enable.idempotence": request.get("idempotent", False),
                "linger.ms": 20,
                "message.max.bytes": 8 << 20,
                "message.timeout.ms": 20_000,
            }
        )

    def op_produce(self, request: Json) -> Json:
        producer = self.producer(request)
        offsets: list[int] = []
        errors: list[KafkaError] = []

        def delivered(error: KafkaError | None, message: Message) -> None:
            offset = -1 if request.get("acks") == "0" else message.offset()
            if error is not None:
                errors.append(error)
            else:
                assert offset is not None
                offsets.append(offset)

        for record in request["records"]:
            producer.produce(
                request["topic"],
                partition=request["partition"],
                key=to_bytes(record.get("key")),
                value=to_bytes(record.get("value")),
                headers=[(name, to_bytes(value)) for name, value in record.get("headers", [])],
                on_delivery=delivered,
                **({"timestamp": record["timestamp"]} if record.get("timestamp") is not None else {}),
            )
        producer.flush(TIMEOUT_S)
        if errors:
            raise KafkaException(errors[0])
        return offsets

    def consumer(self, request: Json) -> Consumer:
        return Consumer(
            {
                "bootstrap.servers": self.address,
                "group.id": "never-joined",
                "auto.offset.reset": "error",
                "enable.auto.commit": False,
                "isolation.level": request.get("isolation", "read_uncommitted"),
                "fetch.queue.backoff.ms": 1,
            }
        )

    def op_consume(self, request: Json) -> Json:
        named = {"earliest": confluent_kafka.OFFSET_BEGINNING, "latest": confluent_kafka.OFFSET_END}
        offset = named.get(request["offset"], request["offset"])
        consumer = self.consumer(request)
        consumer.assign([TopicPartition(request["topic"], request["partition"], offset)])
        deadline = time.monotonic() + request.get("timeout_ms", 15_000) / 1000
        records: list[Json] = []
        try:
            while len(records) < request["count"] and time.monotonic() < deadline:
                for message in consumer.consume(request["count"] - len(records), timeout=0.2):
                    if message.error():
                        raise KafkaException(message.error())
                    records.append(describe(message))
        finally:
            consumer.close()
        return records

    def op_stream(self, request: Json) -> Json:
        partitions, count, filler = request["partitions"], request["count"], bytes(request["size"])
        producer = self.producer(request)
        failed: list[KafkaError] = []
        for index in range(count):
            producer.produce(
                request["topic"],
                partition=index % partitions,
                key=str(index),
                value=filler,
                on_delivery=lambda error, _: failed.append(error) if error else None,
            )
            producer.poll(0)
        producer.flush(TIMEOUT_S)
        if failed:
            raise KafkaException(failed[0])
        expected = list(range(partitions))
        consumer = self.consumer(request)
        consumer.assign(
            [TopicPartition(request["topic"], p, confluent_kafka.OFFSET_BEGINNING) for p in range(partitions)]
        )
        received, ordered, deadline = 0, True, time.monotonic() + 30
        while received < count and time.monotonic() < deadline:
            for message in consumer.consume(10_000, timeout=0.2):
                key, partition = message.key(), message.partition()
                assert key is not None
                assert partition is not None
                ordered &= int(key) == expected[partition] and message.value() == filler
                expected[partition] = int(key) + partitions
                received += 1
        consumer.close()
        return {"received": received, "ordered": ordered}

    def op_position(self, request: Json) -> Json:
        at = request["at"]
        named = {
            "earliest": OffsetSpec.earliest(),
            "latest": OffsetSpec.latest(),
            "max_timestamp": OffsetSpec.max_timestamp(),
        }
        spec = named[at] if isinstance(at, str) else OffsetSpec.for_timestamp(at)
        partition = TopicPartition(request["topic"], request["partition"])
        found = only(self.admin.list_offsets({partition: spec}, request_timeout=TIMEOUT_S))
        return {"offset": found.offset, "timestamp": found.timestamp}

    def op_restore(self, request: Json) -> Json:
        """Reads from the beginning until the position is the high watermark, as stream processors restore."""
        consumer = self.consumer(request)
        place = TopicPartition(request["topic"], request["partition"], confluent_kafka.OFFSET_BEGINNING)
        deadline = time.monotonic() + request.get("timeout_ms", 15_000) / 1000
        position, count = -1, 0
        try:
            _, end = consumer.get_watermark_offsets(place, timeout=TIMEOUT_S)
            consumer.assign([place])
            while position < end and time.monotonic() < deadline:
                message = consumer.poll(0.2)
                if message is not None:
                    if message.error():
                        raise KafkaException(message.error())
                    count += 1
                position = consumer.position([place])[0].offset
        finally:
            consumer.close()
        return {"position": position, "end": end, "count": count}

    # --- administration

    def op_cluster(self, request: Json) -> Json:
        cluster = self.admin.describe_cluster(request_timeout=TIMEOUT_S).result()
        nodes = [{"id": node.id, "host": node.host, "port": node.port} for node in cluster.nodes]
        return {"cluster_id": cluster.cluster_id, "controller": cluster.controller.id, "nodes": nodes}

    def op_create_topic(self, request: Json) -> Json:
        topic = NewTopic(
            request["topic"],
            num_partitions=request.get("partitions", -1),
            replication_factor=request.get("replication", -1),
            config=request.get("configs", {}),
        )
        only(self.admin.create_topics([topic], validate_only=request.get("validate_only", False)))
        return {}

    def op_list_topics(self, request: Json) -> Json:
        return list(self.admin.list_topics(timeout=TIMEOUT_S).topics)

    def op_describe_topic(self, request: Json) -> Json:
        topic = only(self.admin.describe_topics(TopicCollection([request["topic"]])))
        partitions = [
            {
                "index": each.id,
                "leader": each.leader.id,
                "replicas": [node.id for node in each.replicas],
                "isr": [node.id for node in each.isr],
            }
            for each in topic.partitions
        ]
        # librdkafka keeps an id in its own base64 alphabet; the 16 bytes are what matters.
        return {
            "topic": topic.name,
            "topic_id": str(topic.topic_id).translate(str.maketrans("+/", "-_")).rstrip("="),
            "internal": topic.is_internal,
            "partitions": partitions,
        }

    def op_delete_topic(self, request: Json) -> Json:
        only(self.admin.delete_topics([request["topic"]]))
        return {}

    def op_create_partitions(self, request: Json) -> Json:
        only(self.admin.create_partitions([NewPartitions(request["topic"], request["total"])]))
        return {}

    def op_describe_configs(self, request: Json) -> Json:
        entries = only(self.admin.describe_configs([ConfigResource(request["resource"], request["name"])]))
        return {
            name: {
                "value": entry.value,
                "source": source_name(entry.source),
                "read_only": entry.is_read_only,
                "sensitive": entry.is_sensitive,
                "synonyms": [
                    [each.name, each.value, source_name(each.source)] for each in entry.synonyms.values()
                ],
            }
            for name, entry in entries.items()
        }

    def op_alter_configs(self, request: Json) -> Json:
        changes = [
            ConfigEntry(name, value, incremental_operation=operation)
            for key, operation in (
                ("set", AlterConfigOpType.SET),
                ("append", AlterConfigOpType.APPEND),
                ("subtract", AlterConfigOpType.SUBTRACT),
            )
            for name, value in request.get(key, {}).items()
        ]
        changes += [
            ConfigEntry(name, None, incremental_operation=AlterConfigOpType.DELETE)
            for name in request.get("delete", [])
        ]
        resource = ConfigResource(request["resource"], request["name"], incremental_configs=changes)
        only(
            self.admin.incremental_alter_configs(
                [resource], validate_only=request.get("validate_only", False)
            )
        )
        return {}

    def op_replace_configs(self, request: Json) -> Json:
        resource = ConfigResource(request["resource"], request["name"], set_config=request["set"])
        only(self.admin.alter_configs([resource], validate_only=request.get("validate_only", False)))
        return {}

    def op_delete_records(self, request: Json) -> Json:
        before = TopicPartition(request["topic"], request["partition"], request["before"])
        return {"low_watermark": only(self.admin.delete_records([before])).low_watermark}

    def op_elect_leaders(self, request: Json) -> Json:
        partition = TopicPartition(request["topic"], request["partition"])
        outcome = self.admin.elect_leaders(confluent_kafka.ElectionType.PREFERRED, [partition]).result()
        for error in outcome.values():
            if error is not None:
                raise error if isinstance(error, KafkaException) else KafkaException(error)
        return {}


def only(futures: dict[Any, Future[Any]]) -> Any:
    (future,) = futures.values()
    return future.result(TIMEOUT_S)


def source_name(source: int | ConfigSource) -> str:
    return ConfigSource(source).name


def describe(message: Message) -> Json:
    kind, timestamp = message.timestamp()
    names: dict[int, str] = {
        confluent_kafka.TIMESTAMP_CREATE_TIME: "CreateTime",
        confluent_kafka.TIMESTAMP_LOG_APPEND_TIME: "LogAppendTime",
    }
    headers = cast("list[tuple[str, bytes | None]]", message.headers() or [])
    return {
        "offset": message.offset(),
        "timestamp": timestamp,
        "timestamp_type": names.get(kind, "NoTimestampType"),
        "key": to_text(message.key()),
        "value": to_text(message.value()),
        "headers": [[name, to_text(value)] for name, value in headers],
    }


def main() -> None:
    driver = Driver(sys.argv[1])
    for line in sys.stdin:
        try:
            answer = {"ok": driver.perform(json.loads(line))}
        except KafkaException as failure:
            error = failure.args[0]
            # With auto.offset.reset=error librdkafka hides the broker's code behind one of its own.
            code = 1 if error.code() == KafkaError._AUTO_OFFSET_RESET else error.code()
            answer = {"error": {"code": code, "message": error.str()}}
        print(json.dumps(answer), flush=True)


if __name__ == "__main__":
    main()
