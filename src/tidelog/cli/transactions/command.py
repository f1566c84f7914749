"""``tidelog transactions``: list, describe and abort transactions, and find those that hang."""

from __future__ import annotations

import re
import time
from typing import Annotated

import typer

from tidelog.cli.connect import with_cluster
from tidelog.cli.failure import WrongUsage, report_failures
from tidelog.cli.groups.topics import assignment_text
from tidelog.cli.output import examples, is_terminal, print_json, print_table, printable, remark, time_text
from tidelog.cli.shared_options import DEFAULT_CONNECTION, Connection, JsonOutput, grouped
from tidelog.cli.transactions import abort, hanging
from tidelog.cli.values import duration_text, parse_choices, parse_duration_ms
from tidelog.client.admin.async_admin import AsyncAdmin
from tidelog.client.admin.transaction_resources import (
    PartitionProducers,
    TransactionDescription,
    TransactionState,
)
from tidelog.ids import TopicPartition

app = typer.Typer()

_STATES: list[TransactionState] = [
    state for state in TransactionState if state not in (TransactionState.UNKNOWN, TransactionState.DEAD)
]
_PRODUCER_COLUMNS = ("producer", "epoch", "coord epoch", "sequence", "last write", "open at")
_LIST_EXAMPLES = (
    "tidelog transactions list --state ongoing --longer-than PT10M",
    "tidelog transactions list --pattern 'payments-.*'",
)
_OPEN = (
    TransactionState.ONGOING,
    TransactionState.PREPARE_COMMIT,
    TransactionState.PREPARE_ABORT,
    TransactionState.PREPARE_EPOCH_FENCE,
)


@app.command("list", epilog=examples(*_LIST_EXAMPLES))
@grouped
def list_transactions(
    state: Annotated[
        list[str] | None,
        typer.Option("--state", "-s", metavar="STATE[,…]", help="Only ids in this state; may be repeated."),
    ] = None,
    longer_than: Annotated[
        str | None,
        typer.Option("--longer-than", metavar="PT10M", help="Only transactions open for longer than this."),
    ] = None,
    producer_id: Annotated[
        list[int] | None,
        typer.Option("--producer-id", metavar="ID", help="Only this producer id; may be repeated."),
    ] = None,
    pattern: Annotated[
        str | None,
        typer.Option(
            "--pattern",
            metavar="REGEX",
            help="Only transactional ids that fully match this regular expression.",
        ),
    ] = None,
    json: JsonOutput = False,
    connection: Connection = DEFAULT_CONNECTION,
) -> None:
    """List the transactional ids of all brokers and what they do."""
    states: list[TransactionState] = parse_choices(state, _STATES, "--state")
    longer_than_ms = None if longer_than is None else parse_duration_ms(longer_than, "--longer-than")
    if longer_than is not None and not states:
        # Brokers count from the start of the last transaction, be it open or not.
        states = list(_OPEN)
    _check_pattern(pattern)
    listed = with_cluster(
        connection,
        lambda cluster: AsyncAdmin.of(cluster).list_transactions(
            states=states,
            producer_ids=producer_id or (),
            running_longer_than_ms=longer_than_ms,
            pattern=pattern,
        ),
    )
    found = listed.transactions
    if json:
        print_json(
            [
                {
                    "transactional_id": each.transactional_id,
                    "producer_id": each.producer_id,
                    "state": each.state,
                    "coordinator": each.coordinator.id,
                }
                for each in found
            ]
        )
    elif not found and not listed.errors and is_terminal():
        filtered = states or longer_than or producer_id or pattern
        remark("no transactional ids match" if filtered else "there are no transactional ids yet")
    else:
        print_table(
            ("transactional id", "state", "producer id", "coordinator"),
            [(each.transactional_id, each.state, each.producer_id, each.coordinator.id) for each in found],
            right=("producer id", "coordinator"),
        )
    report_failures(listed.errors)


def _check_pattern(pattern: str | None) -> None:
    try:
        re.compile(pattern or "")
    except re.error as error:
        raise WrongUsage(f"invalid --pattern {pattern!r}: {error}") from None


@app.command(epilog=examples("tidelog transactions describe payments-1"))
@grouped
def describe(
    transactional_ids: Annotated[
        list[str], typer.Argument(metavar="TRANSACTIONAL_ID", help="Transactional ids.", show_default=False)
    ],
    json: JsonOutput = False,
    connection: Connection = DEFAULT_CONNECTION,
) -> None:
    """Describe transactional ids: producer, epoch, state, and the partitions of an open transaction."""
    described = with_cluster(
        connection, lambda cluster: AsyncAdmin.of(cluster).describe_transactions(transactional_ids)
    ).values()
    found = [each for each in described if each.error is None]
    if json:
        print_json([_description_json(each) for each in found])
    elif is_terminal():
        for each in found:
            _print_description(each)
    else:
        columns = ("transactional id", "state", "producer id", "epoch", "timeout ms", "start", "partitions")
        print_table(columns, (_description_row(each) for each in found))
    report_failures([each.error for each in described if each.error is not None])


def _description_row(each: TransactionDescription) -> tuple[object, ...]:
    return (
        each.transactional_id,
        each.state,
        each.producer_id,
        each.producer_epoch,
        each.timeout_ms,
        each.start_time_ms,
        assignment_text(each.partitions),
    )


def _print_description(each: TransactionDescription) -> None:
    print(printable(f"{each.transactional_id}  ({each.state.value})"))
    started = None
    if each.start_time_ms is not None and each.state in _OPEN:
        age = duration_text(max(round(time.time() * 1000) - each.start_time_ms, 0))
        started = f"{time_text(each.start_time_ms)}, {age} ago"
    details = (
        ("producer id", f"{each.producer_id}, epoch {each.producer_epoch}"),
        ("coordinator", each.coordinator and f"{each.coordinator} ({each.coordinator.id})"),
        ("timeout", duration_text(each.timeout_ms)),
        ("open since", started),
        ("partitions", assignment_text(each.partitions)),
    )
    for name, value in details:
        if value is not None:
            print(f"  {name:<12} {value}")


def _description_json(each: TransactionDescription) -> dict[str, object]:
    return {
        "transactional_id": each.transactional_id,
        "state": each.state,
        "producer_id": each.producer_id,
        "producer_epoch": each.producer_epoch,
        "timeout_ms": each.timeout_ms,
        "start_time_ms": each.start_time_ms,
        "partitions": [{"topic": topic, "partition": index} for topic, index in each.partitions],
        "coordinator": each.coordinator and each.coordinator.id,
    }


@app.command("describe-producers", epilog=examples("tidelog transactions describe-producers orders 0"))
@grouped
def describe_producers(
    topic: Annotated[str, typer.Argument(metavar="TOPIC", help="A topic.", show_default=False)],
    partition: Annotated[
        int, typer.Argument(metavar="PARTITION", min=0, help="One of its partitions.", show_default=False)
    ],
    broker: Annotated[
        int | None,
        typer.Option("--broker", "-B", metavar="ID", help="Query this replica instead of the leader."),
    ] = None,
    json: JsonOutput = False,
    connection: Connection = DEFAULT_CONNECTION,
) -> None:
    """Show the producers that a partition knows, and where their open transactions begin."""
    wanted = TopicPartition(topic, partition)
    found = with_cluster(
        connection, lambda cluster: AsyncAdmin.of(cluster).describe_producers([wanted], broker_id=broker)
    )[wanted]
    found.raise_for_error()
    if json:
        print_json([_producer_json(found, at) for at in range(len(found.producers))])
    elif not found.producers and is_terminal():
        remark(f"no idempotent or transactional producer has written to {wanted} recently")
    else:
        print_table(
            _PRODUCER_COLUMNS,
            [
                (
                    each.producer_id,
                    each.producer_epoch,
                    each.coordinator_epoch,
                    each.last_sequence,
                    time_text(each.last_timestamp_ms),
                    each.txn_start_offset,
                )
                for each in found.producers
            ],
            right=[name for name in _PRODUCER_COLUMNS if name != "last write"],
        )


def _producer_json(found: PartitionProducers, at: int) -> dict[str, object]:
    each = found.producers[at]
    return {
        "producer_id": each.producer_id,
        "producer_epoch": each.producer_epoch,
        "coordinator_epoch": each.coordinator_epoch,
        "last_sequence": each.last_sequence,
        "last_timestamp": each.last_timestamp_ms,
        "transaction_start_offset": each.txn_start_offset,
    }


app.command("find-hanging", epilog=hanging.EPILOG)(hanging.command)
app.command("abort", epilog=abort.EPILOG, no_args_is_help=True)(abort.command)
