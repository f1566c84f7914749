"""The driver's part of an exactly-once write: an unchecked epoch is committed if all of it fits, or aborted.

Only the driver knows how many tasks an epoch has. When a run writes its first epoch (each batch write is a
run of its own), its tasks leave their transactions open, and :func:`commit_epoch`

1. looks at the records of tasks that this epoch does not have: one that has written the same version wrote
   rows which other tasks have now, so the epoch is refused, with nothing changed; the others are taken over,
   so that what is left of their run cannot write any more. A stream claims them, too; batch writes leave
   their records alone, which expire once no write has so many tasks any more;
2. commits the transactions. One that is gone is not guessed about: the task's record tells.

If the driver dies in between, a part of the epoch is there, written by tasks that fit together; the next run
finds it and goes through the same. Called by the writers, on the driver.
"""

from __future__ import annotations

import logging
from collections.abc import Sequence

from tidelog.client.producer._transaction_calls import PreparedTransaction
from tidelog.errors import KafkaError, TidelogError
from tidelog.spark.report.epoch_record import EpochRecord, task_name
from tidelog.spark.write._epoch_requests import end_transactions, known_tasks
from tidelog.spark.write.epoch_producer import EpochProducer
from tidelog.spark.write.epoch_task import ReplayRefusedError
from tidelog.spark.write.write_message import WriteName, WrittenTask
from tidelog.spark.write.write_options import WriteOptions

logger = logging.getLogger(__name__)


def commit_epoch(tasks: Sequence[WrittenTask], options: WriteOptions) -> None:
    """Check the tasks of an epoch and commit those that are prepared; raises with all of them aborted."""
    with EpochProducer(options.producer_options()) as client:
        try:
            client.reach(options.broker_timeout_ms)
            _check(client, tasks, options)
        except BaseException:
            _end(client, tasks, commit=False)
            raise
        _commit(client, tasks)


def abort_epoch(tasks: Sequence[WrittenTask], options: WriteOptions) -> None:
    """Abort what is prepared, so that readers of committed records need not wait for its timeout."""
    if any(task.transaction for task in tasks):
        with EpochProducer(options.producer_options()) as client:
            _end(client, tasks, commit=False)


def _check(client: EpochProducer, tasks: Sequence[WrittenTask], options: WriteOptions) -> None:
    name = tasks[0].name
    known = client.ask_cluster(
        lambda cluster: known_tasks(cluster, name.app_id), "the tasks that have written"
    )
    present = {task.name.task for task in tasks}
    has_history = any(task.previous for task in tasks)
    for number in known:
        if number not in present:
            has_history |= _settle_absent(client, number, len(present), name, options)
    if options.fails_on_missing_epoch and name.streaming and name.version > 0 and not has_history:
        raise ReplayRefusedError(
            f"{name.words} is not the first, and the brokers have no record of earlier ones: they have "
            "expired (see offsets.retention.minutes), or another sink wrote them; set "
            "failOnMissingEpoch=false to write it, or use a fresh checkpoint"
        )


def _settle_absent(
    client: EpochProducer, number: int, count: int, name: WriteName, options: WriteOptions
) -> bool:
    """Look at, and take over, a task that this epoch does not have; whether it has written anything."""
    absent = task_name(name.app_id, number)
    record = client.read_record(absent, stable=False)
    # What another run has claimed may have a transaction of that run under way.
    if record is None or not record.claimed or record.run_id != name.run_id:
        record = _taken_over(absent, name, options)
    if record is not None and record.version >= name.version and record.content.rows:
        raise ReplayRefusedError(
            f"{name.words} was written before by more tasks: task {number} wrote {record.content.rows} rows, "
            f"and there are {count} tasks now; run it with the same parallelism as then (cores, "
            "minPartitions, spark.sql.shuffle.partitions); nothing was written"
        )
    return record is not None


def _taken_over(absent: str, name: WriteName, options: WriteOptions) -> EpochRecord | None:
    producer = EpochProducer(options.producer_options(absent))
    try:
        record = producer.take_over()
        # Tasks of batch writes do not go by whose name is in it; and what is committed anew does not expire.
        if name.streaming and record is not None and record.version < name.version:
            producer.begin_transaction()
            producer.record(record.claimed_by(name.run_id))
            producer.with_retry(producer.commit_transaction)
        return record
    finally:
        producer.give_up()


def _commit(client: EpochProducer, tasks: Sequence[WrittenTask]) -> None:
    by_id = {task.name.task_name: task for task in tasks}
    for transactional_id, error in _end(client, tasks, commit=True).items():
        if error is None:
            continue
        task = by_id[transactional_id]
        # The transaction is over, one way or the other, and the record final, whoever writes the next one.
        record = client.read_record(transactional_id, stable=False)
        if record != EpochRecord(task.name.version, task.name.run_id, task.content):
            raise KafkaError(
                error.code,
                f"task {task.name.task} of {task.name.words} was not committed ({error}): its transaction "
                "was taken over, or was open for longer than kafka.transaction.timeout.ms; start again, "
                "and raise that option, and the brokers' transaction.max.timeout.ms, if it was time",
            )


def _end(
    client: EpochProducer, tasks: Sequence[WrittenTask], *, commit: bool
) -> dict[str, KafkaError | None]:
    prepared: list[PreparedTransaction] = [task.transaction for task in tasks if task.transaction]
    deadline = client.deadline()
    try:
        return client.ask_cluster(
            lambda cluster: end_transactions(cluster, prepared, deadline, commit=commit),
            "the transactions' end",
        )
    except TidelogError as error:
        if commit:
            raise
        logger.warning("%d transactions were not aborted and will time out: %s", len(prepared), error)
        return {}
