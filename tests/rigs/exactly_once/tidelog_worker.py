"""The consume-transform-produce loop of ``worker`` with our own clients.

python -m tests.rigs.exactly_once.tidelog_worker BOOTSTRAP TRANSACTIONAL_ID PROTOCOL
"""

from __future__ import annotations

import sys
from typing import Any

from tidelog import Consumer, ConsumerRecord, Producer, TopicPartition
from tidelog.errors import TidelogError

PER_TRANSACTION = 25
LOST = 3
IMPATIENT: dict[str, Any] = {
    "retry_backoff_ms": 20,
    "reconnect_backoff_ms": 20,
    "reconnect_backoff_max_ms": 200,
}


def main(bootstrap: str, transactional_id: str, protocol: Any) -> None:
    with Producer(
        bootstrap_servers=bootstrap,
        transactional_id=transactional_id,
        transaction_timeout_ms=10_000,
        linger_ms=0,
        **IMPATIENT,
    ) as producer:
        producer.init_transactions()
        while not producer.has_fatal_error:
            consume(producer, bootstrap, protocol)
    sys.exit(LOST)


def consume(producer: Producer, bootstrap: str, protocol: Any) -> None:
    """Work until a transaction fails; whoever comes after begins at the committed offsets."""
    timing: dict[str, Any] = (
        {"session_timeout_ms": 2000, "heartbeat_interval_ms": 300} if protocol == "classic" else {}
    )
    with Consumer(
        bootstrap_servers=bootstrap,
        group_id="loop",
        group_protocol=protocol,
        isolation_level="read_committed",
        auto_offset_reset="earliest",
        enable_auto_commit=False,
        fetch_max_wait_ms=50,
        **timing,
        **IMPATIENT,
    ) as consumer:
        consumer.subscribe(["in"])
        while True:
            records = consumer.poll(0.1, PER_TRANSACTION)
            try:
                if records:
                    transact(producer, consumer, records)
            except TidelogError as failed:
                print(transactional_failure(producer, failed), file=sys.stderr, flush=True)
                return


def transact(producer: Producer, consumer: Consumer, records: list[ConsumerRecord]) -> None:
    with producer.transaction():
        for record in records:
            producer.send("out", record.value[::-1], key=record.key, partition=record.partition)
        read = {TopicPartition(each.topic, each.partition): each.offset + 1 for each in records}
        producer.send_offsets_to_transaction(read, consumer.group_metadata())


def transactional_failure(producer: Producer, failed: TidelogError) -> str:
    return f"{'lost' if producer.has_fatal_error else 'aborted'}: {type(failed).__name__}: {failed}"


if __name__ == "__main__":
    main(*sys.argv[1:])
