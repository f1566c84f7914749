"""Quotas of a cluster; they need a right on the whole of it."""

from __future__ import annotations

import msgspec

from tidelog.client.admin.quotas import ClientQuotas, QuotaAlteration
from tidelog.console.api.endpoint import Call, Nothing, changes, reads, require_whole_cluster
from tidelog.console.api.shapes import Done, raise_errors
from tidelog.console.settings import Role


class QuotaRow(msgspec.Struct, frozen=True):
    """Quotas of users, clients and addresses; null is the default of a kind."""

    entity: dict[str, str | None]
    quotas: dict[str, float]


class QuotaRequest(msgspec.Struct, forbid_unknown_fields=True):
    """Quotas to set; null takes one away."""

    entity: dict[str, str | None]
    quotas: dict[str, float | None]


@reads("/clusters/{cluster}/quotas", "Quotas of users, client ids and IP addresses.", Nothing)
async def quotas(call: Call, asked: Nothing) -> list[QuotaRow]:
    """All of them."""
    require_whole_cluster(call)
    return [_quota(each) for each in await call.cluster.admin.describe_client_quotas()]


@changes(
    "PUT",
    "/clusters/{cluster}/quotas",
    "Set or remove quotas.",
    QuotaRequest,
    action="set quotas",
    role=Role.ADMIN,
)
async def set_quotas(call: Call, asked: QuotaRequest) -> Done:
    """They hold on every broker a moment later."""
    call.details |= {"entity": dict(asked.entity), "quotas": dict(asked.quotas)}
    raise_errors(await call.cluster.admin.alter_client_quotas([QuotaAlteration(asked.entity, asked.quotas)]))
    return Done()


def _quota(each: ClientQuotas) -> QuotaRow:
    return QuotaRow(dict(each.entity), dict(each.quotas))


ENDPOINTS = (
    quotas,
    set_quotas,
)
