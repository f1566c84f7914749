"""One task of an exactly-once write: a transaction that holds its rows and the record that they were written.

The order of things is the protocol (decision 0007):

1. *Take over* the task's transactional id. Earlier attempts, of this run or another, are fenced from here on,
   and whatever they had under way has been either committed or aborted.
2. *Read the record.* If this version is in it, rows are counted and compared, not written. A newer version
   means that this task comes too late, or with an old checkpoint: refused.
3. *Claim* the record of another run, so that tasks of that run which have not begun yet cannot commit.
4. *Write* rows and record in one transaction. It is committed here if this run has already written an epoch
   through this task, because the run's partitioning was checked then, or if the caller vouches for it; else
   the driver commits it, once it knows that the tasks of this epoch fit what was written before
   (``epoch_commit``).

Called by the writers, in executors.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING

from tidelog.errors import ErrorCode, KafkaError, TidelogError
from tidelog.spark.report.content_digest import ContentDigest
from tidelog.spark.report.epoch_record import EpochRecord
from tidelog.spark.write._write_task import Sending, all_parts
from tidelog.spark.write.epoch_producer import EpochProducer
from tidelog.spark.write.write_digest import digest
from tidelog.spark.write.write_message import WriteName, WriteOutcome, WrittenTask
from tidelog.spark.write.write_options import WriteOptions

if TYPE_CHECKING:
    import pyarrow as pa

_FENCED = frozenset({ErrorCode.PRODUCER_FENCED, ErrorCode.INVALID_PRODUCER_EPOCH})
_LOST = _FENCED | frozenset({ErrorCode.INVALID_TXN_STATE, ErrorCode.INVALID_PRODUCER_ID_MAPPING})


class ReplayRefusedError(TidelogError):
    """A version that was written before, and not with the same rows in the same tasks."""


def write_exactly_once(
    batches: Iterable[pa.RecordBatch], options: WriteOptions, name: WriteName
) -> WrittenTask:
    """Write the task's rows unless they are there already."""
    producer = EpochProducer(options.producer_options(name.task_name))
    try:
        written = _write(producer, batches, options, name)
    except BaseException as error:
        producer.give_up()
        if _is_fencing(error) or _is_fencing(error.__cause__):
            raise _fenced(name) from None
        raise
    producer.abandon()
    return written.without_notes()


def _write(
    producer: EpochProducer, batches: Iterable[pa.RecordBatch], options: WriteOptions, name: WriteName
) -> WrittenTask:
    producer.reach(options.broker_timeout_ms)
    previous = producer.take_over()
    if previous is not None and previous.version > name.version:
        raise ReplayRefusedError(
            f"{name.words} comes after version {previous.version}, which task {name.task} has written "
            "already: the checkpoint is older than the output; use a fresh checkpoint, or another "
            "txnAppId, to write again"
        )
    if previous is not None and previous.version == name.version:
        content = ContentDigest()
        for part in all_parts(batches, options):
            content = content.plus(digest(part))
        _compare(name, previous.content, content, options)
        return WrittenTask(name, previous.content, WriteOutcome.FOUND, previous)
    checked = name.same_tasks or (
        previous is not None and previous.run_id == name.run_id and not previous.claimed
    )
    if name.streaming and previous is not None and previous.run_id != name.run_id:
        _claim(producer, previous, name)
    content, topics = _send(producer, batches, options)
    note = None
    if name.note is not None:
        is_same_run = previous is not None and previous.run_id == name.run_id
        note = name.note.of_epoch(topics, previous.note if previous and is_same_run else None)
    producer.record(record := EpochRecord(name.version, name.run_id, content, note=note))
    if not checked:
        prepared = producer.prepare()
        return WrittenTask(name, content, WriteOutcome.PREPARED, previous, prepared)
    _commit(producer, record)
    return WrittenTask(name, content, WriteOutcome.COMMITTED, previous)


def _claim(producer: EpochProducer, previous: EpochRecord, name: WriteName) -> None:
    producer.begin_transaction()
    producer.record(previous.claimed_by(name.run_id))
    producer.with_retry(producer.commit_transaction)


def _send(
    producer: EpochProducer, batches: Iterable[pa.RecordBatch], options: WriteOptions
) -> tuple[ContentDigest, set[str]]:
    """Write the rows: what is in them, and the topics that they go to."""
    producer.begin_transaction()
    sending = Sending(producer)
    content = ContentDigest()
    topics = set() if options.topic is None else {options.topic}
    for part in all_parts(batches, options):
        sending.send(part)
        content = content.plus(digest(part))
        topics.add(part.topic)
    sending.wait()
    return content, topics


def _commit(producer: EpochProducer, record: EpochRecord) -> None:
    """Commit; where the answer does not say whether that was done, the record does."""
    try:
        producer.with_retry(producer.commit_transaction)
    except KafkaError as error:
        if error.code not in _LOST:
            raise
        # Either way the transaction is over, and the record final, whoever writes the next one.
        if producer.read_record(producer.name, stable=False) != record:
            raise


def _compare(name: WriteName, before: ContentDigest, now: ContentDigest, options: WriteOptions) -> None:
    if before == now or (not options.compares_content and before.rows == now.rows):
        return
    if before.rows != now.rows:
        difference = f"{before.rows} rows then, {now.rows} now"
        mend = "with the same parallelism as then (cores, minPartitions, spark.sql.shuffle.partitions)"
    else:
        difference = f"the same {now.rows} rows in number, but not in content"
        mend = (
            "with the same query and parallelism as then, or set replayCheck=count if its rows are not the "
            "same each time (rand, uuid)"
        )
    if not name.streaming:
        mend += "; two writes of one batch need a txnAppId each"
    raise ReplayRefusedError(
        f"{name.words} was written before, and task {name.task} has other rows now ({difference}): run it "
        f"{mend}"
    )


def _is_fencing(error: BaseException | None) -> bool:
    return isinstance(error, KafkaError) and error.code in _FENCED


def _fenced(name: WriteName) -> KafkaError:
    return KafkaError(
        ErrorCode.PRODUCER_FENCED,
        f"task {name.task} of {name.words} was fenced: another attempt of it has begun, or its transaction "
        "took longer than kafka.transaction.timeout.ms (then raise that, and the brokers' "
        "transaction.max.timeout.ms)",
    )
