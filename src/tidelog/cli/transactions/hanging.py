"""``tidelog transactions find-hanging``: open transactions that no coordinator will ever end.

They hold up the last stable offset, so read_committed consumers stop there and compaction does, too.
"""

from __future__ import annotations

import time
from typing import Annotated

import typer

from tidelog.cli.connect import with_cluster
from tidelog.cli.failure import WrongUsage, report_failures
from tidelog.cli.output import counted, examples, is_terminal, print_json, print_table, remark
from tidelog.cli.shared_options import DEFAULT_CONNECTION, Connection, JsonOutput, grouped
from tidelog.cli.values import duration_text, parse_duration_ms
from tidelog.client.admin.async_admin import AsyncAdmin
from tidelog.client.admin.transaction_resources import HangingTransactions, OpenTransaction

EPILOG = examples(
    "tidelog transactions find-hanging",
    "tidelog transactions find-hanging --topic orders --idle PT30M",
)
_COLUMNS = ("topic", "partition", "start offset", "producer id", "epoch", "coordinator epoch", "idle")


@grouped
def command(
    topic: Annotated[
        str | None, typer.Option("--topic", "-t", metavar="TOPIC", help="Search only this topic.")
    ] = None,
    partition: Annotated[
        int | None,
        typer.Option("--partition", "-p", metavar="N", min=0, help="Search only this partition of --topic."),
    ] = None,
    broker: Annotated[
        int | None, typer.Option("--broker", "-B", metavar="ID", help="Search only replicas on this broker.")
    ] = None,
    idle: Annotated[
        str,
        typer.Option(
            "--idle",
            metavar="PT15M",
            help="The time without records; at least the longest transaction timeout in use.",
        ),
    ] = "PT15M",
    json: JsonOutput = False,
    connection: Connection = DEFAULT_CONNECTION,
) -> None:
    """Find transactions that hang: open in a partition, and unknown to their coordinator."""
    if partition is not None and topic is None:
        raise WrongUsage("--partition requires --topic")
    idle_ms = parse_duration_ms(idle, "--idle")
    found = with_cluster(
        connection,
        lambda cluster: AsyncAdmin.of(cluster).find_hanging_transactions(
            topic=topic, partition=partition, broker_id=broker, idle_longer_than_ms=idle_ms
        ),
    )
    if json:
        print_json([_json(each) for each in found.hanging])
    elif found.hanging or not is_terminal():
        print_table(_COLUMNS, [_row(each) for each in found.hanging], right=_COLUMNS[1:])
    if is_terminal() and not json:
        _advise(found)
    report_failures(found.errors)


def _advise(found: HangingTransactions) -> None:
    if not found.hanging:
        remark(f"no hanging transactions in {counted(found.searched, 'partition')}")
        return
    (topic, index), start = found.hanging[0].partition, found.hanging[0].producer.txn_start_offset
    place = f"--topic {topic} --partition {index} --start-offset {start}"
    remark(f"abort one with `tidelog transactions abort {place}`")


def _row(each: OpenTransaction) -> tuple[object, ...]:
    producer = each.producer
    return (
        each.partition.topic,
        each.partition.partition,
        producer.txn_start_offset,
        producer.producer_id,
        producer.producer_epoch,
        producer.coordinator_epoch,
        duration_text(max(round(time.time() * 1000) - producer.last_timestamp_ms, 0)),
    )


def _json(each: OpenTransaction) -> dict[str, object]:
    producer = each.producer
    return {
        "topic": each.partition.topic,
        "partition": each.partition.partition,
        "start_offset": producer.txn_start_offset,
        "producer_id": producer.producer_id,
        "producer_epoch": producer.producer_epoch,
        "coordinator_epoch": producer.coordinator_epoch,
        "last_timestamp": producer.last_timestamp_ms,
    }
