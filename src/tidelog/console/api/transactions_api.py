"""Transactional ids of a cluster; they need a right on all of its topics, which they may write to."""

from __future__ import annotations

import msgspec

from tidelog.console.api.endpoint import Call, Nothing, changes, reads, require_whole_cluster
from tidelog.console.api.shapes import Done, TypedName, require_typed
from tidelog.console.refusal import sentence
from tidelog.console.settings import Role

_DESCRIBED = 500


class TransactionRow(msgspec.Struct, frozen=True):
    """One transactional id."""

    transactional_id: str
    state: str
    producer_id: int
    producer_epoch: int | None
    coordinator: int
    started_at_ms: int | None
    timeout_ms: int | None
    partitions: list[str]


class TransactionPage(msgspec.Struct, frozen=True):
    """The transactional ids; problems say which brokers did not answer."""

    transactions: list[TransactionRow]
    problems: list[str]


@reads("/clusters/{cluster}/transactions", "Transactional ids with their states and partitions.", Nothing)
async def transactions(call: Call, asked: Nothing) -> TransactionPage:
    """Open ones with the partitions that wait for their end."""
    require_whole_cluster(call)
    admin = call.cluster.admin
    listed = await admin.list_transactions()
    ids = [each.transactional_id for each in listed.transactions][:_DESCRIBED]
    described = await admin.describe_transactions(ids) if ids else {}
    rows = []
    for each in listed.transactions:
        told = described.get(each.transactional_id)
        known = told if told is not None and told.error is None else None
        rows.append(
            TransactionRow(
                each.transactional_id,
                (known.state if known else each.state).value,
                each.producer_id,
                known.producer_epoch if known else None,
                each.coordinator.id,
                known.start_time_ms if known else None,
                known.timeout_ms if known else None,
                [str(partition) for partition in known.partitions] if known else [],
            )
        )
    return TransactionPage(rows, [sentence(each) for each in listed.errors])


@changes(
    "POST",
    "/clusters/{cluster}/transactions/{id}/fence",
    "Abort the open transaction and fence the producer.",
    TypedName,
    action="fence producer",
    role=Role.ADMIN,
)
async def fence_producer(call: Call, asked: TypedName) -> Done:
    """The id has to be typed again."""
    name = call.path["id"]
    require_typed(asked.name, name, "the whole transactional id", "to fence its producer")
    await call.cluster.admin.fence_producer(name)
    return Done()


ENDPOINTS = (
    transactions,
    fence_producer,
)
