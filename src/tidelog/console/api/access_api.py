"""Transactions, access rules, users and quotas of a cluster; what was done in the console.

What concerns the whole cluster needs a right on all of its topics: rules and transactional ids name them.
"""

from __future__ import annotations

import msgspec

from tidelog.client.admin.quotas import ClientQuotas
from tidelog.console.api.endpoint import Call, Nothing, changes, reads
from tidelog.console.api.topics_api import Done, TypedName
from tidelog.console.people.audit import AuditEntry
from tidelog.console.refusal import forbidden, sentence
from tidelog.console.settings import Role
from tidelog.security.acls.filters import AclFilter

_DESCRIBED = 500
_ENTRIES = 500


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


class AclRow(msgspec.Struct, frozen=True):
    """One access rule."""

    principal: str
    permission: str
    operation: str
    resource: str
    name: str
    pattern: str
    host: str


class UserRow(msgspec.Struct, frozen=True):
    """A SCRAM user."""

    name: str
    mechanisms: list[str]
    problem: str | None


class QuotaRow(msgspec.Struct, frozen=True):
    """Quotas of users, clients and addresses; null is the default of a kind."""

    entity: dict[str, str | None]
    quotas: dict[str, float]


class AuditQuery(msgspec.Struct, forbid_unknown_fields=True):
    """How many entries."""

    limit: int = 200


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
    "Abort what is open and fence the producer.",
    TypedName,
    action="fence producer",
    role=Role.ADMIN,
)
async def fence_producer(call: Call, asked: TypedName) -> Done:
    """The id has to be typed again."""
    name = call.path["id"]
    if asked.name != name:
        raise forbidden(f"type the whole transactional id, {name}, to fence its producer")
    await call.cluster.admin.fence_producer(name)
    return Done()


@reads("/clusters/{cluster}/acls", "Access rules.", Nothing)
async def acls(call: Call, asked: Nothing) -> list[AclRow]:
    """All of them."""
    require_whole_cluster(call)
    found = await call.cluster.admin.describe_acls(AclFilter())
    return sorted(
        (
            AclRow(
                each.entry.principal,
                each.entry.permission.name.lower(),
                each.entry.operation.name.lower(),
                each.pattern.type.name.lower(),
                each.pattern.name,
                each.pattern.pattern_type.name.lower(),
                each.entry.host,
            )
            for each in found
        ),
        key=lambda each: (each.principal, each.resource, each.name, each.operation),
    )


@reads("/clusters/{cluster}/users", "Users who log in by SCRAM; never their passwords.", Nothing)
async def users(call: Call, asked: Nothing) -> list[UserRow]:
    """By name."""
    require_whole_cluster(call)
    found = await call.cluster.admin.describe_user_scram_credentials()
    return [
        UserRow(
            each.name,
            [f"{info.mechanism} ({info.iterations})" for info in each.credentials],
            None if each.error is None else sentence(each.error),
        )
        for each in sorted(found, key=lambda each: each.name)
    ]


@reads("/clusters/{cluster}/quotas", "Quotas of users, client ids and addresses.", Nothing)
async def quotas(call: Call, asked: Nothing) -> list[QuotaRow]:
    """All of them."""
    require_whole_cluster(call)
    return [_quota(each) for each in await call.cluster.admin.describe_client_quotas()]


@reads("/clusters/{cluster}/audit", "What was changed through this console, the newest first.", AuditQuery)
async def audit(call: Call, asked: AuditQuery) -> list[AuditEntry]:
    """Of this cluster."""
    require_whole_cluster(call)
    found = call.console.audit.newest(_ENTRIES)
    of_cluster = [each for each in found if each.cluster in (call.cluster.name, "")]
    return of_cluster[: max(1, min(asked.limit, _ENTRIES))]


def require_whole_cluster(call: Call) -> None:
    """Raise a refusal for those who may see some topics only."""
    name = call.cluster.name
    if not call.person.sees_all_topics(name):
        raise forbidden(
            f"{call.person.name} may see some topics of cluster {name}; this is about all of them"
        )


def _quota(each: ClientQuotas) -> QuotaRow:
    return QuotaRow(dict(each.entity), dict(each.quotas))


ENDPOINTS = (transactions, fence_producer, acls, users, quotas, audit)
