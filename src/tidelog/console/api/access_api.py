"""Transactions, access rules, users and quotas of a cluster; what was done in the console.

What concerns the whole cluster needs a right on all of its topics: rules and transactional ids name them.
"""

from __future__ import annotations

from typing import Literal

import msgspec

from tidelog.client.admin.quotas import ClientQuotas, QuotaAlteration
from tidelog.client.admin.scram_users import ScramDeletion, ScramUpsertion
from tidelog.console.api.endpoint import Call, Nothing, changes, reads, require_whole_cluster
from tidelog.console.api.shapes import Done, TypedName, raise_errors, require_typed
from tidelog.console.people.audit import AuditEntry
from tidelog.console.refusal import Refusal, not_found, sentence
from tidelog.console.settings import Role
from tidelog.security.acls.filters import AclFilter
from tidelog.security.acls.model import (
    AclBinding,
    AclEntry,
    Operation,
    PatternType,
    Permission,
    ResourcePattern,
    ResourceType,
)

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


class AclRequest(msgspec.Struct, forbid_unknown_fields=True):
    """An access rule to add or to remove, in Kafka's words."""

    principal: str
    operation: str
    resource: str
    name: str
    permission: Literal["allow", "deny"] = "allow"
    pattern: Literal["literal", "prefixed"] = "literal"
    host: str = "*"


class UserRequest(msgspec.Struct, forbid_unknown_fields=True):
    """A SCRAM user to add, or whose password changes."""

    name: str
    password: str
    mechanism: Literal["SCRAM-SHA-256", "SCRAM-SHA-512"] = "SCRAM-SHA-512"


class QuotaRequest(msgspec.Struct, forbid_unknown_fields=True):
    """Quotas to set; null takes one away."""

    entity: dict[str, str | None]
    quotas: dict[str, float | None]


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
    require_typed(asked.name, name, "the whole transactional id", "to fence its producer")
    await call.cluster.admin.fence_producer(name)
    return Done()


@reads("/clusters/{cluster}/acls", "Access rules.", Nothing)
async def acls(call: Call, asked: Nothing) -> list[AclRow]:
    """All of them."""
    require_whole_cluster(call)
    found = await call.cluster.admin.describe_acls(AclFilter())
    return sorted(
        map(acl_row, found), key=lambda each: (each.principal, each.resource, each.name, each.operation)
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


@changes(
    "POST",
    "/clusters/{cluster}/acls",
    "Add an access rule.",
    AclRequest,
    action="add access rule",
    role=Role.ADMIN,
)
async def add_acl(call: Call, asked: AclRequest) -> Done:
    """One that is there already is fine."""
    binding = _binding(asked)
    call.details["rule"] = str(binding)
    raise_errors(await call.cluster.admin.create_acls([binding]))
    return Done()


@changes(
    "DELETE",
    "/clusters/{cluster}/acls",
    "Remove an access rule.",
    AclRequest,
    action="remove access rule",
    role=Role.ADMIN,
)
async def remove_acl(call: Call, asked: AclRequest) -> Done:
    """Exactly the one that is named."""
    binding = _binding(asked)
    call.details["rule"] = str(binding)
    pattern, entry = binding
    exactly = AclFilter(
        pattern.type,
        pattern.name,
        pattern.pattern_type,
        entry.principal,
        entry.host,
        entry.operation,
        entry.permission,
    )
    for result in await call.cluster.admin.delete_acls([exactly]):
        result.raise_for_error()
        if not result.results:
            raise not_found("there is no such rule any more")
    return Done()


@changes(
    "PUT",
    "/clusters/{cluster}/users",
    "Add a SCRAM user, or change his password.",
    UserRequest,
    action="set user",
    role=Role.ADMIN,
)
async def set_user(call: Call, asked: UserRequest) -> Done:
    """Brokers get what is made of the password, never the password."""
    if not asked.name or not asked.password:
        raise Refusal("a user has a name and a password")
    call.details |= {"user": asked.name, "mechanism": asked.mechanism}
    change = ScramUpsertion(asked.name, asked.password, asked.mechanism)
    raise_errors(await call.cluster.admin.alter_user_scram_credentials([change]))
    return Done()


@changes(
    "DELETE",
    "/clusters/{cluster}/users/{id}",
    "Remove a SCRAM user.",
    TypedName,
    action="remove user",
    role=Role.ADMIN,
)
async def remove_user(call: Call, asked: TypedName) -> Done:
    """With all his passwords; the name has to be typed again."""
    name = call.path["id"]
    require_typed(asked.name, name, "the user's whole name", "to remove him")
    found = await call.cluster.admin.describe_user_scram_credentials([name])
    mechanisms = [info.mechanism for each in found for info in each.credentials]
    if not mechanisms:
        raise not_found(f"there is no SCRAM user {name}")
    gone = [ScramDeletion(name, each) for each in mechanisms]
    raise_errors(await call.cluster.admin.alter_user_scram_credentials(gone))
    return Done()


@changes(
    "PUT",
    "/clusters/{cluster}/quotas",
    "Set or take away quotas.",
    QuotaRequest,
    action="set quotas",
    role=Role.ADMIN,
)
async def set_quotas(call: Call, asked: QuotaRequest) -> Done:
    """They hold on every broker a moment later."""
    call.details |= {"entity": dict(asked.entity), "quotas": dict(asked.quotas)}
    raise_errors(await call.cluster.admin.alter_client_quotas([QuotaAlteration(asked.entity, asked.quotas)]))
    return Done()


@reads("/clusters/{cluster}/audit", "What was changed through this console, the newest first.", AuditQuery)
async def audit(call: Call, asked: AuditQuery) -> list[AuditEntry]:
    """Of this cluster."""
    require_whole_cluster(call)
    found = call.console.audit.newest(_ENTRIES)
    of_cluster = [each for each in found if each.cluster in (call.cluster.name, "")]
    return of_cluster[: max(1, min(asked.limit, _ENTRIES))]


def acl_row(binding: AclBinding) -> AclRow:
    """A rule as pages show it."""
    pattern, entry = binding
    return AclRow(
        entry.principal,
        entry.permission.name.lower(),
        entry.operation.name.lower(),
        pattern.type.name.lower(),
        pattern.name,
        pattern.pattern_type.name.lower(),
        entry.host,
    )


def _binding(asked: AclRequest) -> AclBinding:
    try:
        pattern = ResourcePattern(
            ResourceType[asked.resource.upper()], asked.name, PatternType[asked.pattern.upper()]
        )
        operation = Operation[asked.operation.upper()]
    except KeyError as error:
        raise Refusal(f"Kafka knows no resource or operation {error.args[0].lower()}") from None
    if not asked.principal.partition(":")[2] or not asked.name:
        raise Refusal("a rule names a principal, such as User:alice, and the resources that it is about")
    return AclBinding(
        pattern, AclEntry(asked.principal, asked.host, operation, Permission[asked.permission.upper()])
    )


def _quota(each: ClientQuotas) -> QuotaRow:
    return QuotaRow(dict(each.entity), dict(each.quotas))


ENDPOINTS = (
    transactions,
    fence_producer,
    acls,
    add_acl,
    remove_acl,
    users,
    set_user,
    remove_user,
    quotas,
    set_quotas,
    audit,
)
