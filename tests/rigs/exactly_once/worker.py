"""A consume-transform-produce loop with librdkafka, as a process of its own that may be killed at any moment.

    python -m tests.rigs.exactly_once.worker BOOTSTRAP TRANSACTIONAL_ID

Reads topic ``in`` as a member of group ``loop``, writes each value, turned around, into the same partition of
topic ``out``, and commits the offsets with the records. Ends with code 3 when its producer is lost (fenced,
say); an aborted transaction begins again at the last committed offsets. Never ends otherwise.
"""

from __future__ import annotations

import sys

from confluent_kafka import Consumer, KafkaException, Message, Producer, TopicPartition
from tests.rigs.delivered import offset_of, place_of, value_of
from tests.rigs.exactly_once.producers import NO_REBOOTSTRAP

PER_TRANSACTION = 25
LOST = 3
WAIT_S = 60.0


class Worker:
    """One producer; consumers come and go."""

    def __init__(self, bootstrap: str, transactional_id: str) -> None:
        self.connection = {
            "bootstrap.servers": bootstrap,
            "reconnect.backoff.ms": 20,
            "reconnect.backoff.max.ms": 200,
            "retry.backoff.ms": 20,
            "log_level": 0,
            **NO_REBOOTSTRAP,
        }
        self.producer = Producer(
            {
                **self.connection,
                "transactional.id": transactional_id,
                "transaction.timeout.ms": 10_000,
                "message.timeout.ms": 10_000,
                "linger.ms": 0,
            }
        )
        self.gathered: list[Message] = []

    def run(self) -> None:
        self.producer.init_transactions(WAIT_S)
        while True:
            self.consume()

    def consume(self) -> None:
        """Work until a transaction is aborted; whoever comes after begins at the committed offsets."""
        consumer = Consumer(
            {
                **self.connection,
                "group.id": "loop",
                "isolation.level": "read_committed",
                "auto.offset.reset": "earliest",
                "enable.auto.commit": False,
                "session.timeout.ms": 2000,
                "heartbeat.interval.ms": 300,
                "fetch.wait.max.ms": 50,
            }
        )
        consumer.subscribe(["in"], on_assign=self._forget, on_revoke=self._forget, on_lost=self._forget)
        try:
            while True:
                self.gather(consumer)
                if self.gathered and not self.transact(consumer):
                    return
        finally:
            self.gathered.clear()
            consumer.close()

    def _forget(self, consumer: Consumer, partitions: list[TopicPartition]) -> None:
        """What was read before the partitions changed hands is read again by its owner."""
        self.gathered.clear()

    def gather(self, consumer: Consumer) -> None:
        self.gathered.clear()
        message = consumer.poll(0.1)
        while message is not None and len(self.gathered) < PER_TRANSACTION:
            if message.error() is None:
                self.gathered.append(message)
            message = consumer.poll(0)
        if message is not None and message.error() is None:
            self.gathered.append(message)

    def transact(self, consumer: Consumer) -> bool:
        """One transaction for what was gathered; whether it was committed."""
        offsets: dict[tuple[str, int], int] = {}
        try:
            self.producer.begin_transaction()
            for message in self.gathered:
                topic, partition = place_of(message)
                offsets[topic, partition] = offset_of(message) + 1
                self.producer.produce("out", value_of(message)[::-1], message.key(), partition)
            self.producer.send_offsets_to_transaction(
                [TopicPartition(topic, index, offset) for (topic, index), offset in offsets.items()],
                consumer.consumer_group_metadata(),
                WAIT_S,
            )
            self.commit()
        except KafkaException as failed:
            if not failed.args[0].txn_requires_abort():
                raise
            self.producer.abort_transaction(WAIT_S)
            return False
        return True

    def commit(self) -> None:
        while True:
            try:
                return self.producer.commit_transaction(WAIT_S)
            except KafkaException as failed:
                if not failed.args[0].retriable():
                    raise


if __name__ == "__main__":
    try:
        Worker(*sys.argv[1:]).run()
    except KafkaException as lost:
        print(lost, file=sys.stderr)
        sys.exit(LOST)
