"""Access rules of a cluster; they name topics, and need a right on all of them."""

from __future__ import annotations

from typing import Literal

import msgspec

from tidelog.console.api.endpoint import Call, Nothing, changes, reads, require_whole_cluster
from tidelog.console.api.shapes import Done, raise_errors
from tidelog.console.refusal import Refusal, not_found
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


class AclRow(msgspec.Struct, frozen=True):
    """One access rule."""

    principal: str
    permission: str
    operation: str
    resource: str
    name: str
    pattern: str
    host: str


class AclRequest(msgspec.Struct, forbid_unknown_fields=True):
    """An access rule to add or to remove, in Kafka's words."""

    principal: str
    operation: str
    resource: str
    name: str
    permission: Literal["allow", "deny"] = "allow"
    pattern: Literal["literal", "prefixed"] = "literal"
    host: str = "*"


@reads("/clusters/{cluster}/acls", "ACLs.", Nothing)
async def acls(call: Call, asked: Nothing) -> list[AclRow]:
    """All of them."""
    require_whole_cluster(call)
    found = await call.cluster.admin.describe_acls(AclFilter())
    return sorted(
        map(acl_row, found), key=lambda each: (each.principal, each.resource, each.name, each.operation)
    )


@changes(
    "POST",
    "/clusters/{cluster}/acls",
    "Add an ACL.",
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
    "Remove an ACL.",
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
            raise not_found("this ACL no longer exists")
    return Done()


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
        raise Refusal(f"unknown resource or operation {error.args[0].lower()}") from None
    if not asked.principal.partition(":")[2] or not asked.name:
        raise Refusal("an ACL needs a principal, such as User:alice, and a resource name")
    return AclBinding(
        pattern, AclEntry(asked.principal, asked.host, operation, Permission[asked.permission.upper()])
    )


ENDPOINTS = (
    acls,
    add_acl,
    remove_acl,
)
