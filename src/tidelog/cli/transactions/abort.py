"""``tidelog transactions abort``: end a transaction by its transactional id, or a hanging one by its place.

By transactional id the coordinator does it, in all partitions, and the producer that holds the id is fenced.
By place an abort marker is written into one partition, past the coordinator: right only for a transaction
that hangs (``find-hanging`` says which), or the partition's contents and the coordinator disagree.
"""

from __future__ import annotations

from typing import Annotated

import typer

from tidelog.cli.asking import confirm
from tidelog.cli.connect import with_cluster
from tidelog.cli.failure import Failure, WrongUsage
from tidelog.cli.groups.topics import assignment_text
from tidelog.cli.output import Changes, examples, is_terminal, printable, remark
from tidelog.cli.shared_options import DEFAULT_CONNECTION, Connection, JsonOutput, Yes, grouped
from tidelog.client.admin.async_admin import AsyncAdmin
from tidelog.client.admin.transaction_resources import AbortMarker, TransactionDescription, TransactionState
from tidelog.errors import ErrorCode, KafkaError
from tidelog.ids import TopicPartition

EPILOG = examples(
    "tidelog transactions abort --transactional-id payments-1",
    "tidelog transactions abort --topic orders --partition 0 --start-offset 1042",
    "tidelog transactions abort -t orders -p 0 --producer-id 7 --producer-epoch 2 --coordinator-epoch 3",
)


@grouped
def command(
    transactional_id: Annotated[
        str | None,
        typer.Option(
            "--transactional-id", metavar="ID", help="The transactional id whose open transaction to abort."
        ),
    ] = None,
    topic: Annotated[
        str | None,
        typer.Option("--topic", "-t", metavar="TOPIC", help="The topic with the hanging transaction."),
    ] = None,
    partition: Annotated[
        int | None,
        typer.Option(
            "--partition", "-p", metavar="N", min=0, help="The partition with the hanging transaction."
        ),
    ] = None,
    start_offset: Annotated[
        int | None,
        typer.Option("--start-offset", metavar="N", min=0, help="The offset where the transaction starts."),
    ] = None,
    producer_id: Annotated[
        int | None, typer.Option("--producer-id", metavar="ID", min=0, help="Alternatively: the producer id,")
    ] = None,
    producer_epoch: Annotated[
        int | None, typer.Option("--producer-epoch", metavar="N", min=0, help="the producer epoch,")
    ] = None,
    coordinator_epoch: Annotated[
        int | None,
        typer.Option("--coordinator-epoch", metavar="N", min=-1, help="and the coordinator epoch."),
    ] = None,
    yes: Yes = False,
    json: JsonOutput = False,
    connection: Connection = DEFAULT_CONNECTION,
) -> None:
    """Abort a transaction: by its transactional id, or a hanging one by its place. Asks on a terminal."""
    producer = (producer_id, producer_epoch, coordinator_epoch)
    if transactional_id is not None:
        if (
            topic is not None
            or partition is not None
            or start_offset is not None
            or any(value is not None for value in producer)
        ):
            raise WrongUsage(
                "--transactional-id is sufficient: omit the options for topic, partition and producer"
            )
        _abort_by_id(transactional_id, yes, connection, json=json)
        return
    if topic is None or partition is None:
        raise WrongUsage("specify --transactional-id, or --topic and --partition")
    place = TopicPartition(topic, partition)
    if start_offset is not None:
        if any(value is not None for value in producer):
            raise WrongUsage("--start-offset determines the producer: omit the --producer options")
        _abort_at(place, start_offset, yes, connection, json=json)
        return
    if producer_id is None or producer_epoch is None or coordinator_epoch is None:
        raise WrongUsage(
            "specify --start-offset (Kafka 3.0 and later), or --producer-id, --producer-epoch and "
            "--coordinator-epoch"
        )
    # A partition that has never seen a marker of the producer shows -1: 0 is at most any coordinator's epoch.
    marker = AbortMarker(place, producer_id, producer_epoch, max(coordinator_epoch, 0))
    _write(marker, yes, connection, json=json)


def _abort_by_id(transactional_id: str, yes: bool, connection: Connection, *, json: bool) -> None:
    async def look(admin: AsyncAdmin) -> TransactionDescription:
        return (await admin.describe_transactions([transactional_id]))[transactional_id]

    described = with_cluster(connection, lambda cluster: look(AsyncAdmin.of(cluster)))
    described.raise_for_error()
    if described.state is not TransactionState.ONGOING:
        raise Failure(
            f"transactional id {transactional_id!r} has no open transaction: "
            f"its state is {described.state.value}"
        )
    say = remark if json else print
    say(
        f"transaction of {transactional_id}, producer {described.producer_id} "
        f"epoch {described.producer_epoch}, in {assignment_text(described.partitions) or 'no partition yet'}"
    )
    _ask("Abort it and fence its producer?", yes)
    with_cluster(
        connection,
        lambda cluster: AsyncAdmin.of(cluster).fence_producer(
            transactional_id, timeout_ms=described.timeout_ms
        ),
    )
    with Changes(json=json) as done:
        done.add(
            f"aborted the transaction of {transactional_id}",
            transactional_id=transactional_id,
            producer_id=described.producer_id,
            producer_epoch=described.producer_epoch,
        )


def _abort_at(
    place: TopicPartition, start_offset: int, yes: bool, connection: Connection, *, json: bool
) -> None:
    found = with_cluster(connection, lambda cluster: AsyncAdmin.of(cluster).describe_producers([place]))[
        place
    ]
    found.raise_for_error()
    for each in found.producers:
        if each.txn_start_offset == start_offset:
            marker = AbortMarker(place, each.producer_id, each.producer_epoch, each.coordinator_epoch or 0)
            _write(marker, yes, connection, json=json)
            return
    begins = [str(each.txn_start_offset) for each in found.producers if each.txn_start_offset is not None]
    raise Failure(
        f"no open transaction starts at offset {start_offset} of {place}; "
        + (f"open transactions start at {', '.join(begins)}" if begins else "there are no open transactions")
    )


def _write(marker: AbortMarker, yes: bool, connection: Connection, *, json: bool) -> None:
    say = remark if json else print
    say(
        f"transaction in {marker.partition} of producer {marker.producer_id} epoch {marker.producer_epoch}, "
        f"coordinator epoch {marker.coordinator_epoch}"
    )
    owner = with_cluster(connection, lambda cluster: _owner(AsyncAdmin.of(cluster), marker))
    if owner is not None:
        remark(
            f"the transaction is not hanging: transactional id {owner!r} has it open; run `tidelog "
            f"transactions abort --transactional-id {printable(owner)}` to abort it in all partitions"
        )
    _ask("Write an abort marker, bypassing the coordinator?", yes)
    with_cluster(connection, lambda cluster: AsyncAdmin.of(cluster).abort_transaction(marker))
    with Changes(json=json) as done:
        done.add(
            f"aborted the transaction in {marker.partition}",
            topic=marker.partition.topic,
            partition=marker.partition.partition,
            producer_id=marker.producer_id,
            producer_epoch=marker.producer_epoch,
        )


async def _owner(admin: AsyncAdmin, marker: AbortMarker) -> str | None:
    """The transactional id whose coordinator will end the transaction; None if it hangs."""
    try:
        listed = await admin.list_transactions(producer_ids=[marker.producer_id])
        described = await admin.describe_transactions([each.transactional_id for each in listed.transactions])
    except KafkaError as error:
        if error.code is not ErrorCode.UNSUPPORTED_VERSION:
            raise
        return None
    owners = (name for name, each in described.items() if marker.partition in each.partitions)
    return next(owners, None)


def _ask(question: str, yes: bool) -> None:
    if not yes and is_terminal():
        confirm(question)
